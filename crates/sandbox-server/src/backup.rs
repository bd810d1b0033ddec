//! `sandbox-server backup FILE`: a consistent copy of the job store, whether the server runs or not.
//!
//! The file of the store belongs to one process. So a running server listens on a Unix socket in its data directory, which
//! only its user and root can open, and sends a copy to each client: a line with `ok` and the size, and the bytes; or a
//! line with the reason why there is none.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;

use crate::config::Config;
use crate::state::App;

/// The socket in the data directory.
const SOCKET: &str = "backup.sock";

/// The copy that is being sent, in the data directory.
const COPY: &str = "backup.redb";

/// The job store in the data directory.
pub(crate) const JOBS: &str = "jobs.redb";

/// The idle timeout of a client that receives a copy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts to serve copies of the store on a socket, one client at a time.
pub(crate) fn start(app: &Arc<App>, data_dir: &Path) {
    let socket = data_dir.join(SOCKET);
    // One of a server that was killed. No other server can have the store open now.
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket)
        .and_then(|listener| std::fs::set_permissions(&socket, Permissions::from_mode(0o600)).map(|()| listener));
    match listener {
        Ok(listener) => drop(tokio::spawn(serve(Arc::clone(app), listener, SocketFile(socket)))),
        Err(error) => {
            tracing::warn!(%error, socket = %socket.display(), "cannot listen: no backups while the server runs");
        }
    }
}

async fn serve(app: Arc<App>, listener: UnixListener, socket: SocketFile) {
    let copy = socket.0.with_file_name(COPY);
    loop {
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        };
        let _ = std::fs::remove_file(&copy);
        let made = match app.jobs.backup(&copy).await {
            Ok(true) => Ok(copy.clone()),
            Ok(false) => Err("the jobs are in Redis".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let sent = tokio::task::spawn_blocking(move || send(client, made)).await;
        let _ = std::fs::remove_file(&copy);
        match sent {
            Ok(Ok(bytes)) => tracing::info!(bytes, "sent a backup of the job store"),
            Ok(Err(error)) => tracing::error!(error, "cannot back up the job store"),
            Err(_) => return,
        }
    }
}

/// The file of the socket, until it is dropped.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Sends a copy, or why there is none. Blocks.
fn send(client: tokio::net::UnixStream, made: Result<PathBuf, String>) -> Result<u64, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut client = client.into_std().map_err(failed)?;
    client.set_nonblocking(false).and_then(|()| client.set_write_timeout(Some(PATIENCE))).map_err(failed)?;
    let copy = match made {
        Ok(copy) => copy,
        Err(error) => {
            let _ = writeln!(client, "{error}");
            return Err(error);
        }
    };
    let mut copy = File::open(copy).map_err(failed)?;
    let size = copy.metadata().map_err(failed)?.len();
    writeln!(client, "ok {size}").map_err(failed)?;
    std::io::copy(&mut copy, &mut client).map_err(failed)
}

/// Writes a backup to a file that must not exist.
pub(crate) fn make(config: &Config, file: &Path) -> Result<(), String> {
    let data_dir = config.settings.data_dir.as_ref().ok_or("no data directory; set SANDBOX_DATA_DIR")?;
    #[cfg(feature = "redis")]
    if config.redis.is_some() {
        return Err("the jobs are in Redis: use its own backups (BGSAVE, or a replica)".to_owned());
    }
    match UnixStream::connect(data_dir.join(SOCKET)) {
        Ok(server) => receive(server, file),
        // No server runs.
        Err(_) => sandbox_jobs::backup_file(&data_dir.join(JOBS), file)
            .map_err(|error| format!("cannot copy {}: {error}", data_dir.join(JOBS).display())),
    }
}

fn receive(server: UnixStream, file: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot receive the backup: {error}");
    let mut server = BufReader::new(server);
    let mut head = String::new();
    (&mut server).take(1000).read_line(&mut head).map_err(failed)?;
    let size: u64 = match head.trim().strip_prefix("ok ").map(str::parse) {
        Some(Ok(size)) => size,
        _ => return Err(format!("the server cannot make a backup: {}", head.trim())),
    };
    let options = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let cannot_write = |error: std::io::Error| format!("cannot write {}: {error}", file.display());
    let mut out: File = options.map_err(cannot_write)?;
    let copied = std::io::copy(&mut server, &mut out).and_then(|bytes| out.flush().and(out.sync_all()).map(|()| bytes));
    match copied {
        Ok(bytes) if bytes == size => Ok(()),
        other => {
            let _ = std::fs::remove_file(file);
            let why = other.map_or_else(|error| error.to_string(), |bytes| format!("{bytes} of {size} bytes arrived"));
            Err(format!("the backup is incomplete: {why}"))
        }
    }
}
