"""Programs with known answers. A seed and a number decide everything about a program, so a run can be repeated."""

import dataclasses
import random
import re

from history import Expected, Json

TOKEN = re.compile(r"chaos-\d+-\d+")


@dataclasses.dataclass(frozen=True)
class Program:
    """A program, its answer, and what a client does with it."""

    number: int
    token: str
    kind: str
    request: Json
    expected: Expected
    face: str  # job, run or batch
    keyed: bool
    webhook: bool
    followed: bool
    cancel_after: float | None


KINDS = (
    ("lines", 30),
    ("euro", 15),
    ("exit", 15),
    ("slow", 20),
    ("shell", 10),
    ("stdin", 5),
    ("large", 5),
    ("endless", 12),
)


def program(seed: int, number: int) -> Program:
    """The program with this number."""
    random_source = random.Random(f"{seed}/{number}")
    token = f"chaos-{seed}-{number}"
    kind = random_source.choices([name for name, _ in KINDS], [weight for _, weight in KINDS])[0]
    request, expected = MAKERS[kind](token, random_source)
    face = random_source.choices(["job", "run", "batch"], [80, 14, 6])[0]
    if kind == "endless":
        face = "job"
    elif face == "batch":
        kind, (request, expected) = "stdin", stdin(token, random_source)
    return Program(
        number=number,
        token=token,
        kind=kind,
        request={"timeout": "30s", **request},
        expected=expected,
        face=face,
        keyed=random_source.random() < 0.5,
        webhook=random_source.random() < 0.35,
        followed=random_source.random() < 0.4,
        cancel_after=random_source.uniform(0, 1.5) if kind == "endless" else None,
    )


def lines(token: str, source: random.Random) -> tuple[Json, Expected]:
    count = source.randint(1, 300)
    code = f"# {token}\nfor number in range({count}): print('{token}', number)"
    return {"code": code}, Expected("".join(f"{token} {number}\n" for number in range(count)))


def euro(token: str, source: random.Random) -> tuple[Json, Expected]:
    """Characters of three bytes, which the pieces of a stream must not cut."""
    count = source.choice((10, 5_000, 50_000))
    return {"code": f"# {token}\nprint('{token}' + '€' * {count})"}, Expected(token + "€" * count + "\n")


def exit_code(token: str, source: random.Random) -> tuple[Json, Expected]:
    code = source.randint(1, 100)
    text = f"# {token}\nimport sys\nprint('{token}')\nsys.stderr.write('{token} fails\\n')\nsys.exit({code})"
    return {"code": text}, Expected(f"{token}\n", code, f"{token} fails\n", "runtime_error")


def slow(token: str, source: random.Random) -> tuple[Json, Expected]:
    """Output in pieces over a second or two, so that faults hit it half-way."""
    count, pause = source.randint(5, 20), source.uniform(0.02, 0.1)
    code = (
        f"# {token}\nimport time\n"
        f"for number in range({count}):\n print('{token}', number, flush=True)\n time.sleep({pause:.3f})"
    )
    return {"code": code}, Expected("".join(f"{token} {number}\n" for number in range(count)))


def shell(token: str, source: random.Random) -> tuple[Json, Expected]:
    count = source.randint(1, 50)
    return {"language": "bash", "code": f"for n in $(seq {count}); do echo {token} $n; done"}, Expected(
        "".join(f"{token} {number}\n" for number in range(1, count + 1))
    )


def stdin(token: str, source: random.Random) -> tuple[Json, Expected]:
    text = f"{token} {source.randint(0, 10**9)}"
    return {"code": f"# {token}\nprint(input()[::-1])", "stdin": text + "\n"}, Expected(text[::-1] + "\n")


def large(token: str, source: random.Random) -> tuple[Json, Expected]:
    """A request far above what a store keeps in one small record."""
    size = source.randint(100_000, 400_000)
    code = f"# {token}\nprint('{token}', len(open('data.txt').read()))"
    return {"code": code, "files": {"data.txt": "x" * size}}, Expected(f"{token} {size}\n")


def endless(token: str, _: random.Random) -> tuple[Json, Expected]:
    """A program that a client cancels."""
    code = f"# {token}\nimport time\nwhile True:\n print('{token}', flush=True)\n time.sleep(0.2)"
    return {"code": code}, Expected("", verdict="cancelled")


MAKERS = {
    "lines": lines,
    "euro": euro,
    "exit": exit_code,
    "slow": slow,
    "shell": shell,
    "stdin": stdin,
    "large": large,
    "endless": endless,
}
