//! A Docker engine dedicated to the test: its own directories and socket, no bridge, no packet filter.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sandbox_testing::command::binary;

pub(crate) struct Engine {
    daemon: Child,
    dir: tempfile::TempDir,
    pub(crate) host: String,
}

impl Engine {
    pub(crate) fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("sandbox-docker-").tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let host = format!("unix://{}", path("socket"));
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let daemon = Command::new("dockerd")
            .args(["--data-root", &path("data"), "--exec-root", &path("exec"), "--pidfile", &path("pid")])
            .args(["--host", &host, "--iptables=false", "--bridge=none", "--storage-driver", "vfs"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("dockerd (Debian: docker.io)");
        let engine = Self { daemon, dir, host };
        let began = Instant::now();
        while !engine.docker(&["version"]).0 {
            let log = std::fs::read_to_string(engine.dir.path().join("log")).unwrap();
            assert!(began.elapsed() < Duration::from_secs(60), "the engine does not start: {log}");
            std::thread::sleep(Duration::from_millis(100));
        }
        engine
    }

    fn docker(&self, args: &[&str]) -> (bool, String) {
        let output = Command::new("docker").args(args).env("DOCKER_HOST", &self.host).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// Starts the container that runs share, as an operator would: with this program in it, and the host's toolchains.
    pub(crate) fn runner(&self) -> String {
        let root = self.dir.path().join("root");
        for dir in ["dev", "proc", "sys", "tmp", "etc", ".sandbox", "usr", "root"] {
            std::fs::create_dir_all(root.join(dir)).unwrap();
        }
        let mut mounts = vec![format!("type=bind,src={},dst=/.sandbox/run,readonly", binary())];
        mounts.push("type=bind,src=/usr,dst=/usr,readonly".to_owned());
        std::fs::write(root.join(".sandbox/run"), "").unwrap();
        for name in ["bin", "lib", "lib64", "sbin"] {
            if let Ok(target) = Path::new("/").join(name).read_link() {
                std::os::unix::fs::symlink(target, root.join(name)).unwrap();
            }
        }
        let import = format!("tar -C {} -c . | docker import - runner", root.display());
        let imported = Command::new("sh").args(["-c", &import]).env("DOCKER_HOST", &self.host).output().unwrap();
        assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
        let name = "code-sandbox-runner".to_owned();
        let mut args = vec!["run", "--detach", "--name", &name, "--network", "none", "--init=false"];
        args.extend(["--tmpfs", "/tmp/jobs:rw,exec,mode=1777,size=256m"]);
        for mount in &mounts {
            args.extend(["--mount", mount]);
        }
        args.extend(["runner", "/usr/bin/sleep", "infinity"]);
        let (started, output) = self.docker(&args);
        assert!(started, "{output}");
        name
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let (_, containers) = self.docker(&["ps", "--all", "--quiet"]);
        for container in containers.split_whitespace() {
            self.docker(&["rm", "--force", container]);
        }
        // On SIGTERM it ends the processes that it has started.
        let _ = Command::new("kill").arg(self.daemon.id().to_string()).status();
        let began = Instant::now();
        while self.daemon.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}
