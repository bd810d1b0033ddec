//! The neighbour: an innocent program in a cell of its own, beside every hostile one. It holds secrets in a file, in its
//! environment and in shared memory, listens on its own loopback, and says in the end whether anybody came near.
//!
//! The program is this very binary: it is there on every host, and it is quick to start.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

/// The argument with which this program is a neighbour.
pub(crate) const COMMAND: &str = "attack-neighbour";

/// What it says when it is ready, and in the end if nobody came near.
pub(crate) const READY: &str = "ready\n";
pub(crate) const UNHARMED: &str = "unharmed\n";

/// Where it keeps its secret.
pub(crate) const FILES: [&str; 3] = ["/tmp/neighbour", "/dev/shm/neighbour", "/sandbox/neighbour"];

/// The variables with its secret, its port and the name of its socket.
pub(crate) const VARIABLES: [&str; 3] = ["NEIGHBOUR_SECRET", "NEIGHBOUR_PORT", "NEIGHBOUR_SOCKET"];

/// A file that its cell shares with others, which it opens now and then.
pub(crate) const SHARED: &str = "/opt/shown/shared";

/// Lives beside an attack until standard input ends. This is what runs in a cell.
pub(crate) fn live() -> u8 {
    match watch() {
        Ok(harm) => {
            let _ = std::io::stdout().write_all(if harm.is_empty() { UNHARMED } else { &harm }.as_bytes());
            0
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            1
        }
    }
}

fn watch() -> std::io::Result<String> {
    let [secret, port, name] = VARIABLES.map(|name| std::env::var(name).unwrap_or_default());
    for file in FILES {
        std::fs::write(file, &secret)?;
    }
    let tcp = TcpListener::bind(("127.0.0.1", port.parse().unwrap_or(0)))?;
    let unix = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    tcp.set_nonblocking(true)?;
    unix.set_nonblocking(true)?;
    // Held to the end, for those who look whether it is.
    let shared = std::fs::File::open(SHARED)?;
    rustix::fs::flock(&shared, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    std::io::stdout().write_all(READY.as_bytes())?;
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut vec![]);
        drop(sender);
    });
    let mut harm = String::new();
    loop {
        let waited = receiver.recv_timeout(Duration::from_millis(20));
        let _ = std::fs::read(SHARED);
        if let Ok((mut stream, _)) = tcp.accept() {
            let _ = stream.write_all(secret.as_bytes());
            harm.push_str("somebody connected to the neighbour's port\n");
        }
        if let Ok((mut stream, _)) = unix.accept() {
            let _ = stream.write_all(secret.as_bytes());
            harm.push_str("somebody connected to the neighbour's socket\n");
        }
        if waited != Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            break;
        }
    }
    for file in FILES {
        if std::fs::read_to_string(file).ok().as_deref() != Some(&secret) {
            harm.push_str(&format!("the neighbour's file {file} was changed\n"));
        }
    }
    Ok(harm)
}
