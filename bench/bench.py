#!/usr/bin/env python3
"""Measures sandbox-run and sandbox-server against no sandbox at all and against other sandboxes.

Everything is measured in one run, and contenders take turns, so that other load on the host affects all of them
equally; only the ratios count. Every answer is checked. Prints tables, writes JSON and a plot, and fails if a bar is
missed.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import bars
import costs
import jobs
import machine
import memory
import report
from cases import CASES, STATIC, Bare
from install import Unavailable
from measure import Failed, at_once, interleaved, once, summary
from peers import PEERS, GoJudge
from product import Cli, Server
from sampler import NoSampling, Sampler

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PARTS = ["latency", "costs", "throughput", "memory", "growth", "jobs"]
SMOKE = ["static", "python", "javascript", "java", "rust", "c-seen"]
CONCURRENCY = [1, 2, 8, 64, 256]


class Workshop:
    """The surroundings of a run: a temporary directory, a persistent one, an environment, the tools."""

    def __init__(self, cache, syscall_filter):
        self.cache = os.path.abspath(cache)
        os.makedirs(self.cache, exist_ok=True)
        self.directory = tempfile.mkdtemp(prefix="sandbox-bench-")
        os.chmod(self.directory, 0o755)  # the server drops root privileges
        # A copy, because another build may replace it.
        self.filter = shutil.copy(syscall_filter, self.directory) if syscall_filter else None
        self.log = os.open(os.path.join(self.directory, "stderr.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        # All contenders use the system's interpreter, if there is one, so that those that only mount /usr can use it too.
        first = os.path.join(self.directory, "path")
        os.mkdir(first)
        if os.path.exists("/usr/bin/python3"):
            os.symlink("/usr/bin/python3", os.path.join(first, "python3"))
        self.environment = {"PATH": f"{first}:{os.environ['PATH']}", "HOME": os.environ.get("HOME", "/")}
        for name in (
            "RUSTUP_HOME",
            "CARGO_HOME",
            "JAVA_HOME",
            "UV_DEFAULT_INDEX",
            "UV_INDEX_URL",
            "GOPROXY",
            "GOSUMDB",
        ):
            if name in os.environ:
                self.environment[name] = os.environ[name]
        self.tools = {}
        image = os.path.join(self.directory, "image")
        os.mkdir(image)
        self.hello = os.path.join(image, "hello")
        subprocess.run(["cc", "-O2", "-static", "-x", "c", "-", "-o", self.hello], input=STATIC.encode(), check=True)

    def said(self):
        """The end of the commands' standard error."""
        with open(os.path.join(self.directory, "stderr.log"), errors="replace") as file:
            return file.read()[-2000:]

    def close(self):
        os.close(self.log)
        shutil.rmtree(self.directory, ignore_errors=True)


def say(text):
    print(text, file=sys.stderr, flush=True)


def start_peers(workshop, wanted, missing, stack):
    peers = []
    for peer in PEERS:
        if peer.name not in wanted:
            continue
        try:
            peers.append(peer(workshop))
            stack.callback(peers[-1].stop)
        except (Unavailable, OSError) as reason:
            missing[peer.name] = str(reason)
            say(f"bench: {peer.name} does not take part: {reason}")
    return peers


def works(contender, case, missing):
    """Whether a peer supports the case on this host. A supported case that fails is an error."""
    slot = contender.new_slot()
    try:
        once(slot, *next(case.programs()))
        return True
    except (Failed, OSError) as reason:
        missing[contender.name] = f"does not run here ({case.title}): {reason}"
        say(f"bench: {contender.name} {missing[contender.name]}")
        return False
    finally:
        slot.close()


def latency(case, contenders, peers, rounds, cores, missing):
    for peer in peers:
        contender = peer.contender(case)
        if contender and works(contender, case, missing):
            contenders.append(contender)
    times = interleaved(contenders, case.programs(), rounds, warm_up=min(3, rounds // 2))
    together = {}
    for contender in contenders:
        if contender.name in ("bare", Server.name):
            together[contender.name] = summary(at_once(contender, case.programs(), cores, max(rounds, 2 * cores))[0])
    return {
        "title": case.title,
        "bare_is": case.bare_is,
        "contenders": {name: summary(values) for name, values in times.items()},
        "at_once": {"concurrency": cores, "contenders": together},
    }


def start_all_ways(servers, workshop, capacity, stack):
    """For each server, three of its program: their runs start cold, ready and warm."""
    started = []
    for server in servers:
        for start, settings in (
            ("cold", {"SANDBOX_READY_CELLS": "0", "SANDBOX_ZYGOTES": "0"}),
            ("ready", {"SANDBOX_ZYGOTES": "0"}),
            ("warm", {}),
        ):
            one = Server(server.program, workshop, capacity, name=f"{server.name} {start}", settings=settings)
            stack.callback(one.stop)
            started.append((start, one))
    return started


def cost(case, sides, peers, servers, sampler, mode, missing):
    """The cost of a run: bare, with the command, by how the server starts it, and in other sandboxes."""
    servers = [server for start, server in servers if start != "warm" or case.key in costs.WARM]
    contenders = [side.contender(case) for side in (*sides, *servers)]
    for peer in peers:
        if peer.name in costs.PEERS and (contender := peer.contender(case)) and works(contender, case, missing):
            contenders.append(contender)

    def warmed_up():
        for server in servers:
            server.starts.clear()

    figures = costs.measure(case, contenders, sampler, mode, warmed_up)
    for server in servers:
        figures[server.name]["starts"] = dict(server.starts[case.key])
    return {"title": case.title, "bare_is": case.bare_is, "contenders": figures}


def throughput(case, contenders, levels, least, sampler, turns):
    """Runs per second and their cost at each concurrency."""
    for contender in contenders:  # prepares toolchains and fills caches
        at_once(contender, case.programs(), levels[0], 2 * levels[0])
    figures = {}
    for level in levels:
        count = max(least, 2 * level)
        measured = costs.Costs(sampler, contenders) if sampler else None
        seconds = dict.fromkeys((contender.name for contender in contenders), 0.0)
        for _ in range(turns):
            if measured:
                measured.rest(costs.SETTLE)
            for contender in contenders:
                took = measured.at_once if measured else unmeasured
                seconds[contender.name] += took(contender, case, level, count)[1]
        figures[str(level)] = {
            name: {"rate": round(turns * count / spent, 2), **(measured.figures(name) if measured else {})}
            for name, spent in seconds.items()
        }
    return {"title": case.title, "levels": figures}


def unmeasured(contender, case, concurrency, count):
    return at_once(contender, case.programs(), concurrency, count)


def throughput_work(mode, cores):
    """Case → how many at once, and how many calls at least in a turn."""
    if mode == "smoke":
        return {"python": ([1, 2], 4)}
    few, many = [cores, 2 * cores], sorted({cores, 4 * cores, 64})
    if mode == "quick":
        return {"python": (CONCURRENCY, 40), "javascript": (many, 40), "java": (few, 4)}
    return {"python": (CONCURRENCY, 400), "javascript": (many, 200), "java": (few, 12)}


def measure(arguments, workshop, stack):
    """Measures everything that was requested; the stack ends all started processes."""
    cores = len(os.sched_getaffinity(0))
    cli = Cli(os.path.abspath(arguments.sandbox_run), workshop)
    found = cli.tools()
    workshop.tools.update({name: one["path"] for name, one in found.items()})
    missing = {}
    peers = start_peers(workshop, arguments.peers, missing, stack)
    server = Server(os.path.abspath(arguments.sandbox_server), workshop, arguments.capacity, arguments.cold)
    stack.callback(server.stop)
    sides = [cli, server]
    if arguments.before:
        commands = [os.path.join(os.path.abspath(arguments.before), side.name) for side in (cli, server)]
        sides.append(Cli(commands[0], workshop, f"{Cli.name} before"))
        sides.append(Server(commands[1], workshop, arguments.capacity, arguments.cold, f"{Server.name} before"))
        stack.callback(sides[-1].stop)
    bare = Bare(workshop.tools, workshop.directory, workshop.cache, workshop.environment, workshop.log)
    result = {"machine": machine.describe(cores), "mode": arguments.mode, "missing": missing, "cases": {}}
    result["machine"]["versions"] = {
        "sandbox": cli.version.split()[-1],
        **{
            name: found[name]["version"]
            for name in ("python", "javascript", "java", "go", "rust", "c")
            if name in found
        },
        **{peer.name: peer.version for peer in peers},
    }
    cases = {case.key: case for case in CASES}
    if "latency" in arguments.parts:
        for key in arguments.cases:
            case = cases[key]
            if case.language not in (*found, "static"):
                missing[case.title] = f"there is no toolchain for {case.language} here"
                continue
            rounds = {"full": case.rounds, "quick": case.quick, "smoke": 2}[arguments.mode]
            say(f"bench: {case.title}, {rounds} rounds")
            try:
                contenders = [side.contender(case) for side in (bare, *sides)]
            except Unavailable as reason:
                missing[case.title] = f"without a sandbox, {reason}"
                continue
            result["cases"][key] = latency(case, contenders, peers, rounds, cores, missing)
        for key, counts in server.starts.items():
            result["cases"][key]["starts"] = dict(counts)
    python = cases["python"]
    servers = [side for side in sides if isinstance(side, Server)]
    sampler = None
    if {"costs", "throughput"} & set(arguments.parts):
        try:
            sampler = Sampler()
            stack.callback(sampler.close)
        except NoSampling as reason:
            missing["the cost of a run"] = str(reason)
    if "costs" in arguments.parts and sampler:
        result["costs"] = {}
        commands = [bare, *(side for side in sides if isinstance(side, Cli))]
        with contextlib.ExitStack() as started:
            started_all_ways = start_all_ways(servers, workshop, 2 * cores, started)
            for key in costs.CASES[:2] if arguments.mode == "smoke" else costs.CASES:
                case = cases[key]
                if key not in arguments.cases or case.language not in (*found, "static"):
                    continue
                say(f"bench: costs, {case.title}")
                result["costs"][key] = cost(case, commands, peers, started_all_ways, sampler, arguments.mode, missing)
    if "memory" in arguments.parts:
        say("bench: memory")
        memory.settle(server)
        result["memory"] = {**memory.idle(server), "running_cell_pss": memory.running(server, python)}
    if "throughput" in arguments.parts:
        result["throughput"] = {}
        turns = 3 if arguments.mode == "full" else 1
        for key, (levels, least) in throughput_work(arguments.mode, cores).items():
            case = cases[key]
            if key not in arguments.cases or case.language not in found:
                continue
            say(f"bench: throughput, {case.title}, {', '.join(map(str, levels))} at once")
            contenders = [side.contender(case) for side in (bare, *servers)]
            judges = (peer.contender(case) for peer in peers if peer.name == GoJudge.name)
            contenders += [judge for judge in judges if judge and works(judge, case, missing)]
            result["throughput"][key] = throughput(case, contenders, levels, least, sampler, turns)
    if "growth" in arguments.parts:
        say(f"bench: growth over {arguments.runs} runs")
        server.stop()
        fresh = Server(os.path.abspath(arguments.sandbox_server), workshop, arguments.capacity, arguments.cold)
        stack.callback(fresh.stop)
        result["growth"] = memory.growth(fresh, python, arguments.runs, cores)
    if "jobs" in arguments.parts:
        server.stop()
        result["jobs"] = jobs.measure(os.path.abspath(arguments.sandbox_server), workshop, cores, arguments.mode, say)
    result["bars"] = bars.judge(result)
    return result


def arguments_of(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandbox-run", help="the command to measure")
    parser.add_argument("--sandbox-server", help="the server to measure")
    parser.add_argument(
        "--before", metavar="DIR", help="a directory with an earlier build of both programs, to compare with"
    )
    parser.add_argument("--filter", help="the syscall filter of a cell, for bubblewrap")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", dest="mode", action="store_const", const="quick", default="full", help="fewer rounds")
    size.add_argument(
        "--smoke",
        dest="mode",
        action="store_const",
        const="smoke",
        help="only see whether everything works: few rounds, no peers, no bars decided",
    )
    parser.add_argument("--parts", type=lambda text: text.split(","), default=PARTS, help=",".join(PARTS))
    keys = [case.key for case in CASES]
    parser.add_argument("--cases", type=lambda text: text.split(","), help=",".join(keys))
    names = [peer.name for peer in PEERS]
    parser.add_argument("--peers", type=lambda text: text.split(",") if text else [], help=",".join(names))
    parser.add_argument("--runs", type=int, help="runs over which growth is measured [10000; quick: 300, smoke: 10]")
    parser.add_argument("--capacity", type=int, default=max(CONCURRENCY), help="the server's capacity")
    parser.add_argument("--cold", action="store_true", help="the server keeps nothing ready")
    parser.add_argument(
        "--cache", default=os.path.join(ROOT, "target", "bench"), help="where peers and packages are kept"
    )
    parser.add_argument("--json", metavar="FILE", help="where the figures go [default: bench.json in the cache]")
    parser.add_argument(
        "--write-docs",
        metavar="FILE",
        help="measure nothing; write these figures into README.md and docs, and draw the plot",
    )
    parser.add_argument("--syscalls", metavar="FILE", help="with --write-docs: figures of hotpath.py")
    arguments = parser.parse_args(words)
    smoke = arguments.mode == "smoke"
    if arguments.cases is None:
        arguments.cases = SMOKE if smoke else keys
    if arguments.peers is None:
        arguments.peers = [] if smoke else names
    if arguments.runs is None:
        arguments.runs = {"full": 10_000, "quick": 300, "smoke": 10}[arguments.mode]
    for given, known in ((arguments.parts, PARTS), (arguments.cases, keys), (arguments.peers, names)):
        for word in given:
            if word not in known:
                parser.error(f"'{word}' is none of {', '.join(known)}")
    if not arguments.write_docs and not (arguments.sandbox_run and arguments.sandbox_server):
        parser.error("--sandbox-run and --sandbox-server are needed")
    return arguments


def main():
    arguments = arguments_of(sys.argv[1:])
    if arguments.write_docs:
        report.write_docs(ROOT, arguments.write_docs, arguments.syscalls)
        return
    # Ends like Ctrl-C: all started processes are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with contextlib.ExitStack() as stack:
            workshop = Workshop(arguments.cache, arguments.filter)
            stack.callback(workshop.close)
            try:
                result = measure(arguments, workshop, stack)
            except Failed as failure:
                sys.exit(f"bench: {failure}\n{workshop.said()}")
            finally:
                # Clean up even if the user presses Ctrl-C twice.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        sys.exit(130)

    path = arguments.json or os.path.join(arguments.cache, "bench.json")
    with open(path, "w") as file:
        json.dump(result, file, indent=1)
    with open(os.path.splitext(path)[0] + ".svg", "w") as file:
        file.write(report.plot(result))
    print(report.text(result))
    missed = [f"{bar['what']} ({bar['unit']})" for bar in result["bars"] if bar["verdict"] == "MISSED"]
    if missed and arguments.mode != "smoke":
        sys.exit(f"bench: missed {len(missed)} of {len(result['bars'])} bars: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
