"""The programs of a soak: several languages, and hostile ones among them, each with the verdicts that are right for it."""

import dataclasses
import random

from history import Json


@dataclasses.dataclass(frozen=True)
class Mixed:
    """A program, what it has to print (None: anything), and how it may end."""

    name: str
    request: Json
    stdout: str | None
    verdicts: tuple[str, ...] = ("ok",)


HOSTILE_EVERY = 25
LANGUAGES = ("python", "javascript", "bash", "python", "c")
HOSTILE = ("fork-bomb", "memory", "output", "spin", "daemon")


def mixed(seed: int, number: int) -> Mixed:
    """The program with this number. Every 25th is hostile."""
    source = random.Random(f"{seed}/soak/{number}")
    if number % HOSTILE_EVERY == HOSTILE_EVERY - 1:
        return hostile(source.choice(HOSTILE))
    language, answer = source.choice(LANGUAGES), f"{seed}-{number}"
    code = {
        "python": f"print('{answer}')",
        "javascript": f"console.log('{answer}')",
        "bash": f"echo {answer}",
        # One source for all, so that it is compiled once: the answer is an argument.
        "c": "#include <stdio.h>\nint main(int n, char **words) { puts(words[1]); return 0; }",
    }[language]
    request: Json = {"language": language, "code": code, "timeout": "60s"}
    if language == "c":
        request["args"] = [answer]
    return Mixed(language, request, f"{answer}\n")


def hostile(name: str) -> Mixed:
    """Milder forms of programs in attacks/exhaust: they take one cell's share and nothing that the machine has only once."""
    limited: dict[str, tuple[str, str, Json, tuple[str, ...]]] = {
        "fork-bomb": (
            "bash",
            "bomb() { [ $1 -gt 8 ] && sleep 2 || { bomb $(($1 + 1)) | bomb $(($1 + 1)) & }; }\nbomb 0\nwait\nsleep 2",
            {"processes": 24, "wall_time": "1s"},
            ("process_limit", "timeout", "runtime_error", "ok"),
        ),
        "memory": (
            "python",
            "kept = []\nwhile True: kept.append(bytearray(1 << 20))",
            {"memory": "48m", "wall_time": "20s"},
            ("memory_limit", "runtime_error"),
        ),
        "output": (
            "python",
            "while True: print('x' * 4096)",
            {"output": "256k", "wall_time": "20s"},
            ("output_limit",),
        ),
        "spin": ("python", "while True: pass", {"wall_time": "300ms"}, ("timeout",)),
        "daemon": (
            "python",
            "import os, time\nif os.fork() == 0:\n os.setsid()\n time.sleep(60)\nprint('parent', flush=True)",
            {"wall_time": "5s"},
            ("ok", "timeout"),
        ),
    }
    language, code, limits, verdicts = limited[name]
    return Mixed(name, {"language": language, "code": code, "limits": limits}, None, verdicts)
