"""Other sandboxes, configured to do the same as far as possible. Each is optional and is skipped with a reason."""

import itertools
import json
import os
import shutil
import subprocess
import time
import urllib.request

from install import Unavailable, run
from measure import CODE, Command, Contender, Failed, Request
from processes import of_peer

GO_JUDGE = "v1.8.5"


def find(name):
    """A program that may be in a directory that is only on root's PATH."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not path:
        raise Unavailable(f"there is no {name}")
    return path


class Bubblewrap:
    """The same namespaces, mounts, masks, privileges and syscall filter as a cell. It has no cgroups, no
    Landlock, no limits and no accounting of resource usage."""

    name = "bubblewrap"
    FILTER = 9  # the descriptor of the filter

    COMMAND = f"""--seccomp {FILTER} --unshare-all --unshare-user --uid 1000 --gid 1000 --hostname sandbox --new-session
        --die-with-parent --cap-drop ALL --clearenv --setenv PATH /usr/bin:/bin
        --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/sbin /sbin --symlink usr/lib /lib
        --symlink usr/lib64 /lib64 --ro-bind /etc/ld.so.cache /etc/ld.so.cache
        --ro-bind /etc/alternatives /etc/alternatives --ro-bind /etc/ssl/certs /etc/ssl/certs --proc /proc --dev /dev
        --tmpfs /tmp --tmpfs /dev/shm --tmpfs /home/sandbox --tmpfs /sandbox --chdir /sandbox""".split()

    def __init__(self, workshop):
        self.workshop = workshop
        self.program = find("bwrap")
        self.version = run([self.program, "--version"]).decode().split()[-1]
        if not workshop.filter:
            raise Unavailable("the syscall filter of a cell was not given (--filter)")
        self.command = [self.program, *self.COMMAND]
        # The parts of /proc that cells hide too.
        for name in ("cmdline", "kallsyms", "kcore", "keys", "locks"):
            if os.path.exists(f"/proc/{name}"):
                self.command += ["--ro-bind", "/dev/null", f"/proc/{name}"]
        for name in ("acpi", "scsi"):
            if os.path.exists(f"/proc/{name}"):
                self.command += ["--tmpfs", f"/proc/{name}"]

    def contender(self, case):
        if case.key == "static":
            words = ["--ro-bind", self.workshop.hello, "/opt/hello", "--remount-ro", "/", "/opt/hello"]
        elif case.key == "python":
            words = ["--remount-ro", "/", self.workshop.tools["python"], "-c", CODE]
        else:
            return None
        # Opened each time, because bubblewrap reads it to its end.
        opened = (os.POSIX_SPAWN_OPEN, self.FILTER, self.workshop.filter, os.O_RDONLY, 0)
        step = [*self.command, *words]
        return Contender(
            self.name,
            lambda: Command([step], self.workshop.environment, self.workshop.log, extra=[opened]),
            started="peer",
        )

    def stop(self):
        pass


class Runc:
    """The configuration of `runc spec`, with limits on memory and processes, and read-only host directories."""

    name = "runc"
    every = 2

    def __init__(self, workshop):
        self.workshop = workshop
        self.program = find("runc")
        self.version = run([self.program, "--version"]).decode().split()[2]
        self.state = os.path.join(workshop.directory, "runc")
        self.numbers = itertools.count()

    def contender(self, case):
        if case.key == "static":
            bundle = self._bundle(case.key, ["/opt/hello"], [(self.workshop.hello, "/opt/hello")])
        elif case.key == "python":
            directories = [(path, path) for path in ("/usr", "/bin", "/lib", "/lib64") if os.path.exists(path)]
            bundle = self._bundle(case.key, [self.workshop.tools["python"], "-c", case.source], directories)
        else:
            return None
        # The name of a container can be reused only once it is gone.
        name = lambda: f"sandbox-bench-{os.getpid()}-{next(self.numbers)}"  # noqa: E731
        step = [self.program, "--root", self.state, "run", "--bundle", bundle, name]
        return Contender(self.name, lambda: Command([step], self.workshop.environment, self.workshop.log), self.every)

    def _bundle(self, key, argv, shown):
        bundle = os.path.join(self.workshop.directory, f"runc-{key}")
        os.makedirs(os.path.join(bundle, "rootfs"))
        run([self.program, "spec", "--bundle", bundle])
        path = os.path.join(bundle, "config.json")
        with open(path) as file:
            config = json.load(file)
        config["process"].update(terminal=False, args=argv, user={"uid": 1000, "gid": 1000}, capabilities={})
        config["root"]["readonly"] = True
        for source, target in shown:
            # Runc cannot create mount points in a read-only root.
            place = os.path.join(bundle, "rootfs", target.lstrip("/"))
            if os.path.isdir(source):
                os.makedirs(place)
            else:
                os.makedirs(os.path.dirname(place), exist_ok=True)
                open(place, "w").close()
            config["mounts"].append(
                {
                    "destination": target,
                    "type": "bind",
                    "source": os.path.realpath(source),
                    "options": ["rbind", "ro", "nosuid", "nodev"],
                }
            )
        config["linux"]["resources"].update(memory={"limit": 256 << 20}, pids={"limit": 64})
        with open(path, "w") as file:
            json.dump(config, file)
        return bundle

    def stop(self):
        pass


class Docker:
    """`docker run --rm` of an image that holds the static binary alone, without a network. The engine is
    private, with its own directories and socket, and touches neither the packet filter nor the host's network."""

    name = "docker"
    every = 4

    def __init__(self, workshop):
        self.workshop = workshop
        self.engine = None
        path = workshop.environment["PATH"] + ":/usr/sbin:/sbin"
        if not shutil.which("dockerd", path=path):
            place = self._unpack()
            path = f"{place}/usr/sbin:{place}/usr/bin:{path}"
        self.environment = {**workshop.environment, "PATH": path}
        self.client = shutil.which("docker", path=path)
        if not self.client or not shutil.which("runc", path=path):
            raise Unavailable("there is no docker, or no runc")
        self.place = os.path.join(workshop.directory, "docker")
        os.mkdir(self.place)
        self.group = f"sandbox-bench-{os.getpid()}-docker"
        self.command = [self.client, "--host", f"unix://{self.place}/socket"]
        try:
            self._start(shutil.which("dockerd", path=path))
        except BaseException:
            self.stop()
            raise

    def _unpack(self):
        """Debian's packages, unpacked but not installed: no service is started, and the system does not change."""
        place = os.path.join(self.workshop.cache, "docker")
        if not os.path.exists(os.path.join(place, "complete")):
            os.makedirs(place, exist_ok=True)
            run(["apt-get", "download", "-qq", "docker.io", "containerd"], cwd=place)
            for name in os.listdir(place):
                if name.endswith(".deb"):
                    run(["dpkg-deb", "-x", os.path.join(place, name), place])
                    os.remove(os.path.join(place, name))
            open(os.path.join(place, "complete"), "w").close()
        return place

    def _start(self, program):
        log = os.path.join(self.place, "log")
        with open(log, "w") as output:
            self.engine = subprocess.Popen(
                [
                    program,
                    "--host",
                    f"unix://{self.place}/socket",
                    "--data-root",
                    f"{self.place}/data",
                    "--exec-root",
                    f"{self.place}/exec",
                    "--pidfile",
                    f"{self.place}/pid",
                    "--cgroup-parent",
                    f"/{self.group}",
                    "--iptables=false",
                    "--ip6tables=false",
                    "--ip-forward=false",
                    "--ip-masq=false",
                    "--bridge=none",
                    "--userland-proxy=false",
                    "--log-level",
                    "error",
                ],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        for _ in range(120):
            asked = subprocess.run(
                [*self.command, "version", "--format", "{{.Server.Version}}"],
                env=self.environment,
                capture_output=True,
                text=True,
            )
            if asked.returncode == 0:
                break
            if self.engine.poll() is not None:
                with open(log) as said:
                    raise Unavailable(
                        f"the engine does not start: {(said.read().strip().splitlines() or ['?'])[-1][:200]}"
                    )
            time.sleep(0.25)
        else:
            raise Unavailable("the engine does not answer")
        self.version = asked.stdout.strip()
        archive = run(["tar", "-c", "-C", os.path.dirname(self.workshop.hello), os.path.basename(self.workshop.hello)])
        run([*self.command, "import", "-", "hello"], input=archive, env=self.environment)

    def contender(self, case):
        if case.key != "static":
            return None
        step = [
            *self.command,
            "run",
            "--rm",
            "--network",
            "none",
            "--read-only",
            "--cap-drop",
            "ALL",
            "--memory",
            "256m",
            "--pids-limit",
            "64",
            "hello",
            "/" + os.path.basename(self.workshop.hello),
        ]
        return Contender(self.name, lambda: Command([step], self.environment, self.workshop.log), self.every)

    def stop(self):
        if self.engine:
            self.engine.terminate()
            self.engine.wait()
        remove_groups(self.group)


class GoJudge:
    """A judge's sandbox behind HTTP. It runs one program after the other in the same container."""

    name = "go-judge"

    def __init__(self, workshop):
        self.workshop = workshop
        self.process = None
        self.version = GO_JUDGE
        self.group = f"sandbox-bench-{os.getpid()}-go-judge"
        program = self._install()
        # A port that the kernel gives to no one who asks for any.
        self.address = ("127.0.0.1", 20000 + os.getpid() % 10000)
        place = os.path.join(workshop.directory, "go-judge")
        os.mkdir(place)
        with open(os.path.join(workshop.directory, "go-judge.log"), "w") as log:
            self.process = subprocess.Popen(
                [
                    program,
                    "-http-addr",
                    f"127.0.0.1:{self.address[1]}",
                    "-dir",
                    place,
                    "-cgroup-prefix",
                    self.group,
                    "-release",
                    "-silent",
                ],
                env=workshop.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self.hello = self._upload(workshop.hello)
        except BaseException:
            self.stop()
            raise

    def _install(self):
        program = os.path.join(self.workshop.cache, "bin", "go-judge")
        if not os.path.exists(program):
            # In a separate module: a fixed version needs no list of all versions.
            place = os.path.join(self.workshop.cache, "go-judge")
            os.makedirs(place, exist_ok=True)
            with open(os.path.join(place, "go.mod"), "w") as file:
                file.write(f"module bench\n\ngo 1.23\n\nrequire github.com/criyle/go-judge {GO_JUDGE}\n")
            environment = {**self.workshop.environment, "GOBIN": os.path.dirname(program), "GOFLAGS": "-mod=mod"}
            run(
                [self.workshop.tools["go"], "install", "github.com/criyle/go-judge/cmd/go-judge"],
                cwd=place,
                env=environment,
            )
        return program

    def _upload(self, path):
        with open(path, "rb") as file:
            content = file.read()
        boundary = "sandbox-bench"
        body = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="hello"\r\n\r\n'.encode()
            + content
            + f"\r\n--{boundary}--\r\n".encode()
        )
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.address[1]}/file",
            data=body,
            headers={"Content-Type": f"multipart/form-data; boundary={boundary}"},
        )
        for _ in range(100):
            try:
                with urllib.request.urlopen(request) as answer:
                    return json.loads(answer.read())
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        raise Unavailable("it does not start")

    def contender(self, case):
        command = {
            "env": ["PATH=/usr/bin:/bin"],
            "cpuLimit": 60 * 10**9,
            "memoryLimit": 256 << 20,
            "procLimit": 64,
            "files": [{"content": ""}, {"name": "stdout", "max": 1 << 20}, {"name": "stderr", "max": 1 << 20}],
        }
        if case.key == "static":
            command.update(args=["hello"], copyIn={"hello": {"fileId": self.hello}})
        elif case.key == "python":
            command.update(args=[self.workshop.tools["python"], "-c", case.source])
        else:
            return None

        def decode(results):
            if results[0]["status"] != "Accepted":
                raise Failed(str(results[0]))
            return results[0]["files"]["stdout"]

        return Contender(
            self.name,
            lambda: Request(self.address, "/run", lambda _: {"cmd": [command]}, decode),
            living=lambda: of_peer(self.process.pid),
            started="other",
        )

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait()
        remove_groups(self.group)


def remove_groups(name):
    """Removes empty cgroups that a peer leaves behind, under the name that it was given here."""
    roots = ["/sys/fs/cgroup", *(entry.path for entry in os.scandir("/sys/fs/cgroup") if entry.is_dir())]
    for _ in range(50):  # their processes may still be exiting
        left = False
        for root in roots:
            for directory, _, _ in os.walk(os.path.join(root, name), topdown=False):
                try:
                    os.rmdir(directory)
                except OSError:
                    left = True
        if not left:
            break
        time.sleep(0.1)


PEERS = [Bubblewrap, Runc, Docker, GoJudge]
