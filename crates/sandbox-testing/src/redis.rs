//! Redis servers for tests: on a socket in a directory, or on a port.

use std::fs::Permissions;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

use tempfile::TempDir;

use crate::GuardedChild;

/// Ports below those that the kernel gives to clients. A cluster node takes a second one, 10,000 above.
const PORTS: std::ops::Range<u16> = 12_000..22_000;

/// The number of ports that are tried.
const ATTEMPTS: usize = 50;

/// A Redis server, without persistence unless its arguments ask for it. It ends when it is dropped, and with the test
/// process.
#[derive(Debug)]
pub struct RedisServer {
    child: Option<GuardedChild>,
    dir: TempDir,
    port: Option<u16>,
}

impl RedisServer {
    /// Starts a server on a port of loopback, with a password if one is given.
    pub fn start(password: Option<&str>) -> Self {
        let arguments: Vec<&str> = password.iter().flat_map(|password| ["--requirepass", password]).collect();
        Self::on_port("--port", &arguments)
    }

    /// Starts a server on a port of loopback, which this option sets.
    pub fn on_port(option: &str, arguments: &[&str]) -> Self {
        Self::on_port_with(option, arguments, |_, _| {})
    }

    /// Starts a server on a port of loopback, after its directory has been prepared.
    pub fn on_port_with(option: &str, arguments: &[&str], prepare: impl Fn(&Path, u16)) -> Self {
        for _ in 0..ATTEMPTS {
            let (dir, port) = (tempfile::tempdir().unwrap(), random_port());
            prepare(dir.path(), port);
            let text = port.to_string();
            // A port that is taken ends the server before it is ready.
            if let Some(child) = launch(dir.path(), &[arguments, &[option, &text, "--bind", "127.0.0.1"]].concat()) {
                return Self { child: Some(child), dir, port: Some(port) };
            }
        }
        panic!("redis-server finds no free port");
    }

    /// Starts a server on a Unix socket.
    pub fn on_socket(arguments: &[&str]) -> Self {
        // Servers that have dropped root privileges connect to it, too.
        let dir = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
        let mut server = Self { child: None, dir, port: None };
        server.start_again(arguments);
        server
    }

    /// Starts a server on its Unix socket again, after it was killed.
    pub fn start_again(&mut self, arguments: &[&str]) {
        let socket = ["--port", "0", "--unixsocket", "redis.sock", "--unixsocketperm", "777"];
        self.child = Some(launch(self.dir.path(), &[&socket, arguments].concat()).expect("redis-server ended"));
    }

    /// Its address, for `REDIS_ADDR`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port.expect("it is on a socket")
    }

    /// The URL of its Unix socket, for `REDIS_URL`.
    pub fn socket_url(&self) -> String {
        format!("unix://{}/redis.sock", self.dir.path().display())
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        self.child = None;
    }

    /// Sends a signal to the server, such as `-STOP`.
    pub fn signal(&self, signal: &str) {
        let id = self.child.as_ref().expect("it was killed").id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
}

/// Starts redis-server in a directory, unless it ends before it is ready.
fn launch(dir: &Path, arguments: &[&str]) -> Option<GuardedChild> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "redis-server"]).args(arguments).current_dir(dir);
    if !arguments.contains(&"--sentinel") {
        command.args(["--save", "", "--dir"]).arg(dir);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let (sender, started) = channel();
    // The server ends with the thread that started it, which lives as long as it prints.
    std::thread::spawn(move || {
        let mut child = GuardedChild(command.spawn().expect("start setpriv and redis-server"));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let is_ready = |line: String| {
            ["ready to accept connections", "Ready to accept connections", "Sentinel ID is"]
                .iter()
                .any(|text| line.contains(text))
        };
        if lines.any(is_ready) {
            let _ = sender.send(child);
            lines.for_each(drop);
        }
    });
    started.recv().ok()
}

fn random_port() -> u16 {
    let random = RandomState::new().hash_one(std::process::id());
    PORTS.start + u16::try_from(random % u64::from(PORTS.end - PORTS.start)).unwrap()
}
