"""The product under test: `sandbox-run`, and `sandbox-server` on loopback with a separate data directory."""

import json
import os
import signal
import subprocess
import time

from measure import CODE, Command, Contender, Failed, Request
from processes import KEEPER, children, command_name, of_server


class Cli:
    """`sandbox-run`, which starts cold each time."""

    name = "sandbox-run"

    def __init__(self, program, workshop, name=name):
        self.program, self.workshop, self.name = program, workshop, name
        self.environment = {
            **workshop.environment,
            "SANDBOX_DATA_DIR": os.path.join(workshop.directory, f"{self.name} data"),
            "SANDBOX_TIMEOUT": "60s",
        }
        self.version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()

    def tools(self):
        """Language → executable, as the product finds them."""
        found = subprocess.run(
            [self.program, "languages", "--json"], env=self.environment, capture_output=True, check=True
        )
        return {one["name"]: one for one in json.loads(found.stdout) if one.get("path")}

    def contender(self, case):
        if case.key == "static":
            step = [self.program, "exec", "--quiet", "--", self.workshop.hello]
        else:
            packages = [word for package in case.packages for word in ("--package", package)]
            step = [self.program, "--lang", case.language, "--quiet", *packages, "--code", CODE]
        return Contender(self.name, lambda: Command([step], self.environment, self.workshop.log), started="caller")


class Server:
    """`sandbox-server`, started here and ended with `stop`."""

    name = "sandbox-server"

    def __init__(self, program, workshop, capacity, cold=False, name=name, settings=None):
        self.program, self.name = program, name
        self.data = os.path.join(workshop.directory, f"{name} data")
        definitions = os.path.join(os.path.dirname(os.path.abspath(__file__)), "runtimes")
        # The server drops root privileges, so definitions have to be where it can still read them.
        visible = os.path.join(workshop.directory, "runtimes")
        os.makedirs(visible, exist_ok=True)
        for name in os.listdir(definitions):
            with open(os.path.join(definitions, name)) as source, open(os.path.join(visible, name), "w") as copy:
                copy.write(source.read())
        environment = {
            **workshop.environment,
            "SANDBOX_DATA_DIR": self.data,
            "SANDBOX_RUNTIMES": visible,
            # With 256 concurrent runs on few cores, each takes long and must not time out.
            "SANDBOX_TIMEOUT": "60s",
            "SANDBOX_MAX_TIMEOUT": "60s",
            # Toolchains are prepared by the first run of each case, which is not measured.
            "SANDBOX_PREPARE": "none",
            **(settings or {}),
        }
        if cold:
            environment.update(SANDBOX_READY_CELLS="0", SANDBOX_ZYGOTES="0")
        self.log = os.path.join(workshop.directory, f"{self.name}.log")
        command = [
            program,
            "--http-host",
            "127.0.0.1",
            "--http-port",
            "0",
            "--capacity",
            str(capacity),
            "--log-format",
            "json",
        ]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stderr=log)
        self.starts = {}  # case → how runs started → how many
        try:
            self.address = self._address()
            self.keeper = self._keeper()
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self):
        return self.process.pid

    def _address(self):
        for _ in range(600):
            with open(self.log) as log:
                for line in log:
                    fields = json.loads(line).get("fields", {}) if line.endswith("}\n") else {}
                    if "address" in fields:
                        host, port = fields["address"].rsplit(":", 1)
                        return host, int(port)
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        with open(self.log) as log:
            raise Failed(f"the server did not start: {log.read()[-2000:]}")

    def _keeper(self):
        # The keeper is the child of a launcher, which is a child of the server; in release 0.1, it is the child of the
        # server. It gives itself its name.
        for _ in range(100):
            below = children(self.pid)
            for pid in [*below, *(pid for child in below for pid in children(child))]:
                if command_name(pid) == KEEPER:
                    return pid
            time.sleep(0.05)
        raise Failed("the server has no keeper")

    def slot(self, case):
        def encode(source):
            request = {"language": case.language, "code": source}
            return {**request, "requirements": list(case.packages)} if case.packages else request

        def decode(result):
            if result["verdict"] != "ok":
                raise Failed(f"the run ended with {result['verdict']}: {result['error']}")
            # Of a compiled program, the compiler is the part that can start warm, unless the program is cached.
            compiler = (result.get("compile") or {}).get("start")
            start = compiler or result["metrics"].get("start", "cold")
            counts = self.starts.setdefault(case.key, {})
            counts[start] = counts.get(start, 0) + 1
            return result["stdout"]

        return Request(self.address, "/execute", encode, decode)

    def contender(self, case):
        return Contender(self.name, lambda: self.slot(case), living=lambda: of_server(self), started="other")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
