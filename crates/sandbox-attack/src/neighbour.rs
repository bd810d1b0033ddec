//! The neighbour: an innocent program in a separate cell, beside every hostile one. It holds secrets in a file, in its
//! environment and in shared memory, listens on its own loopback, and reports at its end whether another program
//! interfered with it.
//!
//! The program is this very binary: it exists on every host and starts quickly.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

/// The argument that makes this program a neighbour.
pub const COMMAND: &str = "attack-neighbour";

/// Its report when it is ready, and at the end if there was no interference.
pub(crate) const READY: &str = "ready\n";
pub(crate) const UNHARMED: &str = "unharmed\n";

/// Where it keeps its secret in every cell, and where only if the cell has a private root file system.
pub(crate) const FILES: [&str; 2] = ["/tmp/neighbour", "/sandbox/neighbour"];
pub(crate) const FILES_OF_ROOT: [&str; 1] = ["/dev/shm/neighbour"];

/// The variable with these paths, so that they are the actual ones in every cell.
pub(crate) const FILES_VARIABLE: &str = "NEIGHBOUR_FILES";

/// The variables with its secret, its port and the name of its socket. The last two are missing in cells without a
/// network namespace.
pub(crate) const VARIABLES: [&str; 3] = ["NEIGHBOUR_SECRET", "NEIGHBOUR_PORT", "NEIGHBOUR_SOCKET"];

/// The variable with the path of a file that its cell shares with others, which it opens now and then.
pub(crate) const SHARED_VARIABLE: &str = "NEIGHBOUR_SHARED";

/// Runs beside an attack until standard input ends. This is what runs in a cell.
#[must_use]
pub fn live() -> u8 {
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
    let files = std::env::var(FILES_VARIABLE).unwrap_or_default();
    let shared_file = std::env::var(SHARED_VARIABLE).unwrap_or_default();
    for file in files.split(':') {
        std::fs::write(file, &secret)?;
    }
    let sockets = match listen(&port, &name) {
        _ if port.is_empty() => None,
        // Its cell mounts a host directory, and therefore has no such sockets.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => None,
        sockets => Some(sockets?),
    };
    // Held until the end, for attacks that look whether it is.
    let shared = (!shared_file.is_empty()).then(|| std::fs::File::open(&shared_file)).transpose()?;
    let lock = |shared| rustix::fs::flock(shared, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    shared.as_ref().map_or(Ok(()), lock)?;
    std::io::stdout().write_all(READY.as_bytes())?;
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut vec![]);
        drop(sender);
    });
    let mut harm = String::new();
    loop {
        let waited = receiver.recv_timeout(Duration::from_millis(20));
        let _ = std::fs::read(&shared_file);
        if let Some((tcp, unix)) = &sockets {
            if let Ok((mut stream, _)) = tcp.accept() {
                let _ = stream.write_all(secret.as_bytes());
                harm.push_str("another program connected to the neighbour's port\n");
            }
            if let Ok((mut stream, _)) = unix.accept() {
                let _ = stream.write_all(secret.as_bytes());
                harm.push_str("another program connected to the neighbour's socket\n");
            }
        }
        if waited != Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            break;
        }
    }
    for file in files.split(':') {
        if std::fs::read_to_string(file).ok().as_deref() != Some(&secret) {
            harm.push_str(&format!("the neighbour's file {file} was changed\n"));
        }
    }
    Ok(harm)
}

/// Opens its port and its socket.
fn listen(port: &str, name: &str) -> std::io::Result<(TcpListener, UnixListener)> {
    let tcp = TcpListener::bind(("127.0.0.1", port.parse().unwrap_or(0)))?;
    let unix = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    tcp.set_nonblocking(true)?;
    unix.set_nonblocking(true)?;
    Ok((tcp, unix))
}
