"""The programs that are measured, and how each is run without any sandbox."""

import dataclasses
import itertools
import os

from install import run, virtual_environment
from measure import CODE, Command, Contender

# Sources that must not be cached contain another number each time, which the program also prints.
FRESH = "@N@"

STATIC = """#include <unistd.h>
int main(void) { return write(1, "hello\\n", 6) == 6 ? 0 : 1; }
"""
C = """#include <stdio.h>
int main(void) { puts("hello"); return 0; }
"""
PANDAS = """import numpy, pandas
print(int(pandas.Series(numpy.arange(10)).sum()))
"""
PACKAGES = ["numpy==2.2.6", "pandas==2.2.3"]
JAVA = """public class Main {
    public static void main(String[] args) {
        System.out.println("hello @N@");
    }
}
"""
GO = """package main

import "fmt"

func main() {
	fmt.Println("hello @N@")
}
"""
RUST = """fn main() {
    println!("hello @N@");
}
"""


@dataclasses.dataclass(frozen=True)
class Case:
    key: str
    title: str
    language: str
    source: str
    expected: str
    rounds: int
    quick: int  # rounds with --quick
    bare_is: str
    packages: tuple = ()

    def programs(self):
        """Pairs of source and expected output, a new one each time if the case requires that."""
        for number in COUNTER:
            text = str(number)
            yield self.source.replace(FRESH, text), self.expected.replace(FRESH, text)


# One counter for all cases: no source is ever used twice.
COUNTER = itertools.count(100_000)

SEEN = {"c": C, "go": GO.replace(FRESH, "again"), "rust": RUST.replace(FRESH, "again")}

CASES = [
    Case("static", "static binary", "static", STATIC, "hello\n", 200, 40, "exec"),
    Case("python", "Python print(2+2)", "python", "print(2+2)", "4\n", 200, 40, "python3 -c"),
    Case(
        "pandas",
        "Python, numpy and pandas",
        "python",
        PANDAS,
        "45\n",
        50,
        5,
        "python3 -c in a virtual environment",
        tuple(PACKAGES),
    ),
    Case("javascript", "JavaScript", "javascript", 'console.log("hello")', "hello\n", 200, 10, "node -e"),
    Case("java", "Java, new source", "java", JAVA, f"hello {FRESH}\n", 30, 4, "java Main.java"),
    Case("go", "Go, new source", "go", GO, f"hello {FRESH}\n", 40, 5, "go build, warm cache, then exec"),
    Case("rust", "Rust, new source", "rust", RUST, f"hello {FRESH}\n", 40, 5, "rustc, then exec"),
    Case("c-seen", "C, seen before", "c", SEEN["c"], "hello\n", 200, 20, "exec"),
    Case("go-seen", "Go, seen before", "go", SEEN["go"], "hello again\n", 200, 20, "exec"),
    Case("rust-seen", "Rust, seen before", "rust", SEEN["rust"], "hello again\n", 200, 20, "exec"),
]


class Bare:
    """No sandbox at all: the same toolchains, found where the product finds them, started directly."""

    def __init__(self, tools, directory, cache, environment, log):
        self.tools, self.directory, self.log = tools, directory, log
        self.environment = {
            **environment,
            "GOCACHE": os.path.join(cache, "go-cache"),
            "GOTOOLCHAIN": "local",
            "CGO_ENABLED": "0",
            "GOFLAGS": "-buildvcs=false",
        }
        self.cache = cache
        self.numbers = itertools.count()

    def contender(self, case):
        make = getattr(self, "_" + case.key.replace("-", "_"))
        program = make(case)
        return Contender("bare", lambda: self._slot(*program))

    def _slot(self, steps, source_name=None):
        # Each has separate files, so that many can run at once.
        place = os.path.join(self.directory, f"bare-{next(self.numbers)}")
        os.mkdir(place)
        steps = [[word if word is CODE else word.replace("{}", place) for word in step] for step in steps]
        source_file = os.path.join(place, source_name) if source_name else None
        return Command(steps, self.environment, self.log, source_file)

    def _static(self, case):
        return ([[self.compiled(case, ["cc", "-O2", "-static"], "c")]],)

    def _python(self, _):
        return ([[self.tools["python"], "-c", CODE]],)

    def _pandas(self, case):
        python = virtual_environment(self.tools["python"], case.packages, self.cache, self.environment)
        return ([[python, "-c", CODE]],)

    def _javascript(self, _):
        return ([[self.tools["javascript"], "-e", CODE]],)

    def _java(self, _):
        return [[self.tools["java"], "{}/Main.java"]], "Main.java"

    def _go(self, _):
        return [[self.tools["go"], "build", "-o", "{}/program", "{}/main.go"], ["{}/program"]], "main.go"

    def _rust(self, _):
        return [[self.tools["rust"], "--edition", "2021", "-o", "{}/program", "{}/main.rs"], ["{}/program"]], "main.rs"

    def _c_seen(self, case):
        return ([[self.compiled(case, ["cc", "-O2"], "c")]],)

    def _go_seen(self, case):
        return ([[self.compiled(case, [self.tools["go"], "build"], "go")]],)

    def _rust_seen(self, case):
        return ([[self.compiled(case, [self.tools["rust"], "--edition", "2021", "-C", "opt-level=1"], "rs")]],)

    def compiled(self, case, command, ending):
        """A program, compiled once."""
        program = os.path.join(self.directory, f"program-{case.key}")
        if not os.path.exists(program):
            source = f"{program}.{ending}"
            with open(source, "w") as file:
                file.write(case.source)
            run([*command, "-o", program, source], env=self.environment)
        return program
