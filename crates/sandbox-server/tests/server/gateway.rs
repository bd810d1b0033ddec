//! The way out of a cell, as the server has it: nothing of a run's connections outlives the run.

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use sandbox_testing::eventually;
use serde_json::json;

use crate::Server;

impl Server {
    fn process(&self, what: &str) -> Vec<String> {
        let entries = std::fs::read_dir(format!("/proc/{}/{what}", self.child.id())).unwrap().flatten();
        let name = |path: std::path::PathBuf| match what {
            "task" => std::fs::read_to_string(path.join("comm")).unwrap_or_default(),
            _ => std::fs::read_link(path).map(|link| link.display().to_string()).unwrap_or_default(),
        };
        entries.map(|entry| name(entry.path())).collect()
    }

    /// How many threads serve gateways.
    fn gateway_threads(&self) -> usize {
        self.process("task").iter().filter(|name| name.trim() == "gateway").count()
    }

    fn sockets(&self) -> usize {
        self.process("fd").iter().filter(|link| link.starts_with("socket:")).count()
    }
}

#[test]
fn connections_end_with_their_run() {
    // A server that accepts no connection: connections to it are never made, and never refused.
    let full = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let target = full.local_addr().unwrap();
    let mut queue = vec![];
    while let Ok(stream) = TcpStream::connect_timeout(&target, Duration::from_millis(300)) {
        queue.push(stream);
        assert!(queue.len() < 64, "the queue is never full");
    }
    let server = Server::start_with(&["--cold"], &[("SANDBOX_NETWORK_ALLOW", "127.0.0.1")]);
    let code = format!(
        "import socket, time\n\
         kept = []\n\
         for number in range(100):\n    \
             kept.append(socket.create_connection(('127.0.0.1', 3128), 5))\n    \
             kept[-1].sendall(b'CONNECT {target} HTTP/1.1\\r\\n\\r\\n' if number % 2 else b'')\n\
         print('open', flush=True)\n\
         time.sleep(2)"
    );
    let network = json!({"mode": "allowlist", "hosts": [target.to_string()]});
    let request = json!({"code": code, "network": network, "timeout": 20});
    server.post(&json!({"code": "1"}));
    let before = server.sockets();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| server.post(&request));
        // One takes them in, and each of 64 has a thread; the others were sent away.
        eventually("all are busy", || server.gateway_threads() == 65);
        let (status, answer) = run.join().unwrap();
        assert_eq!((status, &answer["stdout"]), (200, &"open\n".into()), "{answer:#}");
        assert_eq!(answer["metrics"]["network"]["connections"], 0, "{answer:#}");
    });
    // A thread that has ended is listed for a moment longer. One that outlived the run would do so for fifteen seconds.
    let until = Instant::now() + Duration::from_secs(5);
    while server.gateway_threads() > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(server.gateway_threads(), 0, "threads outlive the run");
    // The connection that brought the answer may still be there.
    eventually("its sockets are gone", || server.sockets() <= before);
}
