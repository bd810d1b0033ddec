"""Reports: tables for a terminal, the generated parts of documents, and the plot in docs/PERFORMANCE.md.

The tables are Markdown in both places; it is readable enough in a terminal.
"""

import json
import math
import os
import re
import textwrap

from plot import draw as plot
from plot import milliseconds

__all__ = ["plot", "text", "write_docs"]

# What the README shows of the table of medians.
README_CASES = ("static", "python", "javascript", "go", "java")
README_CONTENDERS = ("bare", "sandbox-run", "sandbox-server", "bubblewrap", "docker")


def text(result):
    return "\n\n".join(
        part
        for part in (
            latency(result),
            costs(result),
            throughput(result),
            more_cores(result),
            memory(result),
            growth(result),
            jobs(result),
            missing(result),
            bars(result),
        )
        if part
    )


def table(head, rows, numbers=()):
    """A Markdown table with its columns aligned; `numbers` are aligned to the right."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]

    def line(cells):
        padded = (
            cell.rjust(width) if number in numbers else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "| " + " | ".join(padded) + " |"

    rule = (
        "|"
        + "|".join("-" * (width + 1) + (":" if number in numbers else "-") for number, width in enumerate(widths))
        + "|"
    )
    return "\n".join([line(head), rule, *map(line, rows)])


def latency(result):
    rows = []
    for case in result["cases"].values():
        bare = case["contenders"]["bare"]["p50"]
        for name, figures in case["contenders"].items():
            together = case["at_once"]["contenders"].get(name)
            rows.append(
                [
                    case["title"] if name == "bare" else "",
                    f"bare ({case['bare_is']})" if name == "bare" else name,
                    *(milliseconds(figures[share]) for share in ("p50", "p95", "p99")),
                    "" if name == "bare" else f"{figures['p50'] / bare:.3g}",
                    "" if name == "bare" else f"{figures['p50'] - bare:+.2f} ms",
                    milliseconds(together["p50"]) if together else "",
                    milliseconds(together["p99"]) if together else "",
                    figures["n"],
                    warm(case.get("starts", {})) if name == "sandbox-server" else "",
                ]
            )
    if not rows:
        return ""
    cores = next(iter(result["cases"].values()))["at_once"]["concurrency"]
    head = [
        "program",
        "contender",
        "p50",
        "p95",
        "p99",
        "× bare",
        "over bare",
        f"p50, {cores} at once",
        f"p99, {cores} at once",
        "runs",
        "warm",
    ]
    return table(head, rows, range(2, 11))


def warm(starts):
    total = sum(starts.values())
    return f"{100 * (starts.get('warm', 0) + starts.get('ready', 0)) / total:.0f} %" if total else ""


def costs(result):
    rows = []
    roles = ["caller", "keeper", "init", "zygote", "program"]
    for case in result.get("costs", {}).values():
        bare = case["contenders"]["bare"]["total"]
        for name, figures in case["contenders"].items():
            own = figures["roles"]
            rows.append(
                [
                    case["title"] if name == "bare" else "",
                    f"bare ({case['bare_is']})" if name == "bare" else name,
                    cpu(figures["total"]),
                    "" if name == "bare" or not bare else f"{figures['total'] / bare:.3g}",
                    cpu(figures["user"]),
                    cpu(figures["system"]),
                    *(cpu(own[role]) if role in own else "" for role in roles),
                    cpu(figures["kernel"]),
                    cpu(figures["machine"]),
                    cpu(figures["client"]),
                    figures["runs"],
                    started(name, figures.get("starts", {})),
                ]
            )
    head = ["CPU ms a run", "contender", "total", "× bare", "user", "system", "server or command", *roles[1:]]
    head += ["kernel threads", "machine", "client", "runs", "started so"]
    return rows and table(head, rows, range(2, len(head)))


def cpu(value):
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def started(name, starts):
    """How many of a server's runs started as its name says."""
    return f"{100 * starts.get(name.split()[-1], 0) / sum(starts.values()):.0f} %" if starts else ""


def throughput(result):
    rows, measured = [], result.get("throughput", {})
    names = list(dict.fromkeys(name for case in measured.values() for one in case["levels"].values() for name in one))
    for case in measured.values():
        for number, (level, one) in enumerate(case["levels"].items()):
            ratio = one["sandbox-server"]["rate"] / one["bare"]["rate"]
            spent = {name: figures["total"] for name, figures in one.items() if "total" in figures}
            rows.append(
                [
                    "" if number else case["title"],
                    level,
                    *(rate(one[name]["rate"]) if name in one else "" for name in names),
                    f"{ratio:.2f}",
                    *(cpu(spent[name]) if name in spent else "" for name in names),
                    f"{spent['sandbox-server'] / spent['bare']:.2f}" if spent.get("bare") else "",
                    *(cpu(one[name]["client"]) if name in spent else "" for name in ("bare", "sandbox-server")),
                ]
            )
    head = ["throughput", "at once", *(f"{name}, runs a second" for name in names), "× bare"]
    head += [*(f"{name}, CPU ms a run" for name in names), "× bare", "client of bare", "client of the server"]
    return rows and table(head, rows, range(1, len(head)))


def more_cores(result):
    """What more cores would give, computed from the best level of the Python runs. Keeper and zygote use one core each."""
    levels = result.get("throughput", {}).get("python", {}).get("levels", {}).values()
    serial = ("keeper", "zygote")
    servers = [one["sandbox-server"] for one in levels]
    servers = [one for one in servers if all(one.get("roles", {}).get(role) for role in serial)]
    if not servers:
        return None
    best = max(servers, key=lambda one: one["rate"])
    bounds = [1000 / best["roles"][role] for role in serial]
    rows = []
    for cores in (4, 16, 64):
        allowed = cores * 1000 / (best["total"] + best["client"])
        least = min(allowed, *bounds)
        rows.append([cores, rate(allowed), *map(rate, bounds), rate(least), math.ceil(allowed / least)])
    head = ["cores (computed)", "Python runs a second by CPU time", "by one keeper", "by one zygote", "by one server"]
    return table([*head, "servers that use all cores"], rows, range(len(head) + 1))


def rate(value):
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def memory(result):
    if "memory" not in result:
        return ""
    figures = result["memory"]
    rows = [
        [
            "a ready cell",
            f"{figures['ready_cells']} of them" if figures["ready_cells"] else "there are none",
            size(figures["ready_cell_pss"]),
        ],
        ["a running cell with a Python program", "", size(figures["running_cell_pss"])],
        ["server", "", size(figures["server_pss"])],
        ["keeper", "", size(figures["keeper_pss"])],
    ]
    rows += [
        [f"waiting: {name}", f"{one['count']} of them", size(one["pss"] // one["count"])]
        for name, one in sorted(figures["others"].items())
    ]
    return table(["memory (PSS)", "", "each"], rows, [2])


def size(number):
    if number is None:
        return "n/a"
    return f"{number / 2**20:.1f} MiB" if abs(number) >= 2**20 else f"{number / 2**10:.0f} KiB"


def growth(result):
    rows = [
        [
            one["runs"],
            size(one["server_pss"]),
            size(one["server_rss"]),
            size(one["keeper_pss"]),
            size(one["keeper_rss"]),
            one["open_files"],
            one["cgroups"],
            one["processes"],
        ]
        for one in result.get("growth", [])
    ]
    head = [
        "after runs",
        "server PSS",
        "server RSS",
        "keeper PSS",
        "keeper RSS",
        "open files",
        "cgroups",
        "processes below",
    ]
    return rows and table(head, rows, range(8))


def jobs(result):
    if "jobs" not in result:
        return ""
    figures = result["jobs"]
    rows = [
        ["created a second, embedded store, 32 clients", f"{figures['created_embedded']:.0f}"],
        ["created a second, two servers on one Redis, 32 clients", f"{figures['created_redis']:.0f}"],
        ["runs a second as jobs, Redis", f"{figures['throughput']['jobs']:.0f}"],
        ["runs a second without jobs, same server", f"{figures['throughput']['runs']:.0f}"],
        ["first output of a followed job, Redis", milliseconds(figures["first_output"]["job"])],
        ["first output of a streamed run, same server", milliseconds(figures["first_output"]["run"])],
        ["commands a second of an idle server to Redis", f"{figures['idle_commands']:.2f}"],
        ["a finished job with a request of 1 KB in Redis", f"{figures['finished_bytes']:.0f} bytes"],
    ]
    return table(["jobs", ""], rows, [1])


def missing(result):
    return "\n".join(f"- {name} did not take part: {reason}" for name, reason in result["missing"].items())


def bars(result):
    rows = []
    for bar in result["bars"]:
        sign = "≥" if bar["more"] else "≤"
        rows.append(
            [
                bar["what"],
                "" if bar["value"] is None else f"{bar['value']:.3g}",
                bar["unit"],
                f"{sign} {bar['must']:g}",
                "" if bar["aim"] is None else f"{sign} {bar['aim']:g}",
                {"aim": "aim reached", "must": "reached"}.get(bar["verdict"], bar["verdict"]),
            ]
        )
    if result["mode"] == "smoke":
        return ""
    return table(["bar", "measured", "unit", "must", "aim", "verdict"], rows, [1, 3, 4])


def missed(result):
    """The bars that were missed, in a sentence."""
    measured = [bar for bar in result["bars"] if bar["verdict"] != "not measured"]
    below = [bar for bar in measured if bar["verdict"] == "MISSED"]
    unmeasured = len(result["bars"]) - len(measured)
    text = f"{len(measured) - len(below)} of {len(measured)} performance targets were reached"
    if below:
        text += ". Missed: " + "; ".join(
            f"{bar['what']} ({bar['value']:.3g} {bar['unit']}, target {'≥' if bar['more'] else '≤'} {bar['must']:g})"
            for bar in below
        )
    return text + (f". Not measured: {unmeasured}." if unmeasured else ".")


def is_busy(about):
    """Whether so much else ran on the machine that verdicts may be wrong."""
    return about["load_before"] > about["cores"] / 2


def summary(result):
    """The README's table and sentence."""
    about = result["machine"]
    busy = " The machine was busy with other work." if is_busy(about) else ""
    measured = f"Medians, measured on {about['date']} on {about['cores']} cores with `make bench`.{busy} {missed(result)}"
    measured += " [docs/PERFORMANCE.md](docs/PERFORMANCE.md) has the method and all figures."
    words = textwrap.fill(measured, 100, break_long_words=False, break_on_hyphens=False)
    return f"{speed(result, README_CASES, README_CONTENDERS)}\n\n{words}"


def machine(result):
    about = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    busy = "**The machine was busy with other work: verdicts may be wrong either way.** "
    return (
        f"Measured on {about['date']} as {about['user']} on {about['cores']} cores and {about['memory_gib']} GiB, "
        f"{about['system']}, Linux {about['kernel']}, cgroup {about['cgroups']}, load {about['load_before']} before. "
        f"{busy if is_busy(about) else ''}Versions: {versions}."
    )


def syscalls(figures):
    """The counts of hotpath.py."""
    names = list(figures["processes"])
    rows = [
        [name, f"{one['calls']:.1f}", ", ".join(f"{call} {count:.1f}" for call, count in list(one["most"].items())[:8])]
        for name, one in figures["processes"].items()
    ]
    intro = f"{figures['requests']} requests for Python `print(2+2)`, one after the other, after as many to warm up."
    return intro + "\n\n" + table(["system calls a request", "all", "the most frequent"], rows, [1]) if names else ""


def speed(result, cases=None, contenders=None):
    """The median of each program for every contender that ran it, for pages with more than figures; or of some of them."""
    shown = [case for key, case in result["cases"].items() if cases is None or key in cases]
    names = dict.fromkeys(name for case in shown for name in case["contenders"])
    names = [name for name in names if contenders is None or name in contenders]
    rows = []
    for case in shown:
        who = case["contenders"]
        rows.append([case["title"], *(milliseconds(who[name]["p50"]) if name in who else "" for name in names)])
    head = ["median", *("no sandbox" if name == "bare" else name for name in names)]
    return table(head, rows, range(1, len(head)))


def write_docs(root, figures_file, syscalls_file):
    with open(figures_file) as file:
        result = json.load(file)
    command = {"full": "make bench", "quick": "make bench BENCH=--quick"}.get(result["mode"], "make bench-smoke")
    origin = f"`{command}`. {machine(result)}"
    blocks = {"figures": "\n\n".join([origin, "![](performance.svg)", text(result)])}
    if syscalls_file:
        with open(syscalls_file) as file:
            blocks["syscalls"] = "`make bench-syscalls`: " + syscalls(json.load(file))
    docs = os.path.join(root, "docs")
    for name, content in blocks.items():
        fill(os.path.join(docs, "PERFORMANCE.md"), f"<!-- {name}: generated -->", content, f"<!-- {name}: end -->")
    for page, content in (
        (os.path.join(root, "README.md"), summary(result)),
        (os.path.join(docs, "EVALUATION.md"), f"{speed(result)}\n\n{origin}"),
    ):
        fill(page, "<!-- speed:begin -->", content, "<!-- speed:end -->")
    with open(os.path.join(docs, "performance.svg"), "w") as file:
        file.write(plot(result))


def fill(path, begin, content, end):
    """Replaces the content between two markers of a page."""
    with open(path) as file:
        page = file.read()
    pattern = f"({re.escape(begin)}\n).*?({re.escape(end)})"
    page, found = re.subn(pattern, lambda match: f"{match[1]}\n{content}\n\n{match[2]}", page, flags=re.DOTALL)
    if found != 1:
        raise SystemExit(f"bench: {path} has no place for {begin}")
    with open(path, "w") as file:
        file.write(page)
