//! A Redis server for tests.

use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

use crate::GuardedChild;

/// Ports below the range that the kernel assigns to clients.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// How many ports are tried.
const ATTEMPTS: usize = 50;

/// A Redis server on loopback, without persistence. It ends when it is dropped, and with the test process.
#[derive(Debug)]
pub struct RedisServer {
    child: GuardedChild,
    port: u16,
}

impl RedisServer {
    /// Starts a server, with a password if one is given.
    pub fn start(password: Option<&str>) -> Self {
        (0..ATTEMPTS).find_map(|_| Self::start_at(random_port(), password)).expect("redis-server finds no free port")
    }

    /// Starts a server on a port. If the port is taken, the server ends before it is ready.
    fn start_at(port: u16, password: Option<&str>) -> Option<Self> {
        let mut command = Command::new("setpriv");
        command.args([
            "--pdeathsig",
            "KILL",
            "redis-server",
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        command.args(["--port", &port.to_string()]);
        if let Some(password) = password {
            command.args(["--requirepass", password]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let (sender, started) = channel();
        // The server ends with the thread that started it, which lives as long as it prints.
        std::thread::spawn(move || {
            let mut child = GuardedChild(command.spawn().expect("start setpriv and redis-server"));
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
            if lines.any(|line| line.contains("Ready to accept connections")) {
                let _ = sender.send(child);
                lines.for_each(drop);
            }
        });
        let child = started.recv().ok()?;
        Some(Self { child, port })
    }

    /// Its address, for `REDIS_ADDR`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn random_port() -> u16 {
    let random = RandomState::new().hash_one(std::process::id());
    PORTS.start + u16::try_from(random % u64::from(PORTS.end - PORTS.start)).unwrap()
}
