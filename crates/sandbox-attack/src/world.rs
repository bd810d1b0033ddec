//! The objects that the suite plants before an attack, and a check of their state afterwards: the only evidence that
//! does not come from the attack itself. All of them belong to the suite, have random names, and are removed on drop.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sandbox_base::random::{random_bytes, random_token};
use sandbox_sys::ipc::{MessageQueue, SharedMemory, remove_segment};
use sandbox_sys::keyring::SessionKey;
use tempfile::TempDir;

use crate::baseline::{self, HostBaseline};
use crate::neighbour;

/// The directories of the host in which a file with the marker's name is a breach.
const PLACES: [&str; 14] = [
    "/",
    "/tmp",
    "/var/tmp",
    "/dev/shm",
    "/run",
    "/etc",
    "/etc/cron.d",
    "/root",
    "/home",
    "/opt",
    "/srv",
    "/usr/bin",
    "/usr/lib",
    "/var",
];

/// The content of files that must not change.
const CONTENT: &str = "this file is unchanged\n";

/// The path of the planted directory in the cell.
pub(crate) const SHOWN: &str = "/opt/shown";

/// A file as it was planted.
struct PlantedFile {
    path: PathBuf,
    content: String,
    facts: FileFacts,
}

/// Mode, owner, group, links.
type FileFacts = (u32, u32, u32, u64);

/// Everything that is planted for one attack.
pub(crate) struct World {
    dir: TempDir,
    /// A unique name.
    pub(crate) marker: String,
    /// Each secret, and where it is.
    tokens: Vec<(&'static str, String)>,
    files: Vec<PlantedFile>,
    tcp: TcpListener,
    unix: UnixListener,
    socket: UnixListener,
    shown_socket: UnixListener,
    memory: Option<SharedMemory>,
    memory_content: String,
    queue: Option<MessageQueue>,
    pub(crate) key: Option<SessionKey>,
    victim: Child,
    /// A port that is free outside.
    pub(crate) free_port: u16,
    left_key: i32,
    variables: Vec<(&'static str, String)>,
    pub(crate) neighbour: [String; 3],
}

impl World {
    pub(crate) fn plant(baseline: &HostBaseline) -> io::Result<Self> {
        let marker = format!("sandbox-attack-{}", token()?);
        let dir = tempfile::Builder::new().prefix("sandbox-attack-").tempdir()?;
        set_mode(dir.path(), 0o755)?;
        let mut tokens = vec![];
        if !baseline.secret.is_empty() {
            tokens.push(("the suite's environment", baseline.secret.clone()));
        }
        let mut secret = |what| -> io::Result<String> {
            let token = token()?;
            tokens.push((what, token.clone()));
            Ok(token)
        };
        let at = |name: &str| dir.path().join(name);
        for name in ["open", "shown"] {
            std::fs::create_dir(at(name))?;
            set_mode(&at(name), 0o777)?;
        }
        let planted = [
            ("secret", secret("a world-readable file")?, 0o644),
            ("private", secret("a file that only the suite's user may read")?, 0o600),
            ("open/writable", CONTENT.to_owned(), 0o666),
            ("shown/shared", CONTENT.to_owned(), 0o666),
            ("shown/owned", CONTENT.to_owned(), 0o644),
        ];
        for (name, content, mode) in &planted {
            std::fs::write(at(name), content)?;
            set_mode(&at(name), *mode)?;
        }
        if baseline.root {
            let owner = 0x6000_0000 + u32::try_from(number()? % 0x0fff_ffff).unwrap_or(0);
            chown(at("shown/owned"), Some(owner), Some(owner))?;
            tokens.push(("the owner of a file", owner.to_string()));
        }
        let files = planted
            .into_iter()
            .map(|(name, content, _)| Ok(PlantedFile { facts: facts(&at(name))?, path: at(name), content }))
            .collect::<io::Result<_>>()?;

        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let unix = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&marker)?)?;
        let socket = UnixListener::bind(at("socket"))?;
        set_mode(&at("socket"), 0o777)?;
        let shown_socket = UnixListener::bind(at("shown/socket"))?;
        set_mode(&at("shown/socket"), 0o777)?;
        tcp.set_nonblocking(true)?;
        unix.set_nonblocking(true)?;
        socket.set_nonblocking(true)?;
        shown_socket.set_nonblocking(true)?;

        let mut secret = |what| -> io::Result<String> {
            let token = token()?;
            tokens.push((what, token.clone()));
            Ok(token)
        };
        let memory_content = secret("shared memory")?;
        let (memory_key, queue_key, left_key) = (number()?, number()?, number()?);
        let memory = SharedMemory::create(memory_key, memory_content.as_bytes()).ok();
        let queue = MessageQueue::create(queue_key, secret("a message queue")?.as_bytes()).ok();
        let key = SessionKey::add(&marker, secret("a key in the session's keyring")?.as_bytes()).ok();
        let victim = victim(&secret("a process's arguments")?, &secret("a process's environment")?)?;
        let (free_port, neighbour_port) = (unassigned_port()?, unassigned_port()?);
        let neighbour = [secret("the neighbour's files")?, neighbour_port.to_string(), token()?];
        // In a cell without a private root, its paths have other locations, and variables are rewritten accordingly.
        // With two slashes, a path means the host's in every cell.
        let path = |name: &str| format!("/{}", at(name).display());
        let mut variables = vec![
            ("WORLD", format!("/{}", dir.path().display())),
            ("SECRET", path("secret")),
            ("PRIVATE", path("private")),
            ("WRITABLE", path("open/writable")),
            ("SOCKET", path("socket")),
            ("SHOWN", SHOWN.to_owned()),
            ("PORT", tcp.local_addr()?.port().to_string()),
            ("FREE_PORT", free_port.to_string()),
            ("MEMORY_KEY", memory_key.to_string()),
            ("MEMORY_ID", memory.as_ref().map_or(-1, SharedMemory::id).to_string()),
            ("QUEUE_KEY", queue_key.to_string()),
            ("LEFT_KEY", left_key.to_string()),
            ("VICTIM", victim.id().to_string()),
            ("SUITE", std::process::id().to_string()),
            ("NEIGHBOUR_PORT", neighbour[1].clone()),
            ("NEIGHBOUR_SOCKET", neighbour[2].clone()),
        ];
        variables.push(("MARKER", marker.clone()));
        Ok(Self {
            dir,
            marker,
            tokens,
            files,
            tcp,
            unix,
            socket,
            shown_socket,
            memory,
            memory_content,
            queue,
            key,
            victim,
            free_port,
            left_key,
            variables,
            neighbour,
        })
    }

    /// The variables of the hostile program: where to look, but no secret.
    pub(crate) fn variables(&self) -> &[(&'static str, String)] {
        &self.variables
    }

    /// The program's text with the planted paths in it, for attacks that happen while it is compiled.
    pub(crate) fn fill_in(&self, text: &str) -> String {
        let fill = |text: String, (name, value): &(&str, String)| text.replace(&format!("@{name}@"), value);
        self.variables.iter().fold(text.to_owned(), fill)
    }

    /// The planted directory that the cell mounts.
    pub(crate) fn shown(&self) -> PathBuf {
        self.dir.path().join("shown")
    }

    /// Whether System V segments and queues could be planted.
    pub(crate) fn has_sysv(&self) -> bool {
        self.memory.is_some() && self.queue.is_some()
    }

    /// The secrets that occur in a text.
    pub(crate) fn secrets_in(&self, text: &str) -> Vec<String> {
        let found = self.tokens.iter().filter(|(_, token)| text.contains(token.as_str()));
        found.map(|(what, _)| format!("it learnt a secret: {what}")).collect()
    }

    /// Whether a server listens on the free port.
    pub(crate) fn is_port_open(&self) -> bool {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.free_port)).is_ok()
    }

    /// What has changed.
    pub(crate) fn inspect(&mut self, baseline: &HostBaseline) -> Vec<String> {
        let mut evidence = vec![];
        for file in &self.files {
            let content = std::fs::read_to_string(&file.path).ok();
            let name = file.path.strip_prefix(self.dir.path()).unwrap_or(&file.path).display();
            if content.as_deref() != Some(&file.content) {
                evidence.push(format!("the planted file {name} was changed"));
            } else if facts(&file.path).ok() != Some(file.facts) {
                evidence.push(format!("mode, owner or links of the planted file {name} were changed"));
            }
        }
        let names = |dir: &str| std::fs::read_dir(self.dir.path().join(dir)).map_or(0, Iterator::count);
        if (names(""), names("open"), names("shown")) != (5, 1, 3) {
            evidence.push("the planted directories contain other files".to_owned());
        }
        let places = PLACES.iter().map(Path::new).chain([baseline.temp_dir.as_path()]);
        for left in places.map(|place| place.join(&self.marker)) {
            if left.symlink_metadata().is_ok() {
                evidence.push(format!("it created {}", left.display()));
                let _ = std::fs::remove_file(&left).or_else(|_| std::fs::remove_dir_all(&left));
            }
        }
        if self.tcp.accept().is_ok() {
            evidence.push("it connected to a port outside".to_owned());
        }
        if self.unix.accept().is_ok() {
            evidence.push("it connected to an abstract socket outside".to_owned());
        }
        if self.socket.accept().is_ok() {
            evidence.push("it connected to a socket file outside".to_owned());
        }
        if self.shown_socket.accept().is_ok() {
            evidence.push("it connected to a socket in a mounted directory".to_owned());
        }
        if self
            .memory
            .as_ref()
            .is_some_and(|memory| memory.read().ok().as_deref() != Some(self.memory_content.as_bytes()))
        {
            evidence.push("it changed or removed shared memory outside".to_owned());
        }
        if self.queue.as_ref().is_some_and(|queue| queue.len() != Ok(1)) {
            evidence.push("it changed or removed a message queue outside".to_owned());
        }
        if remove_segment(self.left_key) {
            evidence.push("it left shared memory outside".to_owned());
        }
        match self.victim.try_wait() {
            Ok(None) if baseline::is_stopped(self.victim.id()) => {
                evidence.push("it stopped a process outside".to_owned());
            }
            Ok(None) => {}
            _ => evidence.push("it ended a process outside".to_owned()),
        }
        evidence.extend(baseline::of_marker(&self.marker));
        evidence.extend(baseline.changes());
        evidence
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Only the suite's own child is killed.
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

/// A process with secrets. It ends when its input does, so that it cannot outlive the suite.
fn victim(argument: &str, variable: &str) -> io::Result<Child> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "read line", argument]).env("VICTIM_SECRET", variable);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

/// The environment of a neighbour.
pub(crate) fn neighbour_environment(values: &[String; 3]) -> impl Iterator<Item = (&'static str, String)> {
    neighbour::VARIABLES.into_iter().zip(values.iter().cloned())
}

fn facts(path: &Path) -> io::Result<FileFacts> {
    let meta = path.symlink_metadata()?;
    Ok((meta.mode(), meta.uid(), meta.gid(), meta.nlink()))
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode))
}

/// A random name that is a valid identifier for compilers.
pub(crate) fn token() -> io::Result<String> {
    Ok(format!("t{}", random_token::<12>()?))
}

/// A random port below those that the kernel gives to programs that ask for any. No server listens on it.
fn unassigned_port() -> io::Result<u16> {
    loop {
        let port = 20_000 + u16::try_from(number()? % 10_000).unwrap_or(0);
        if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            return Ok(port);
        }
    }
}

/// A random positive number.
fn number() -> io::Result<i32> {
    Ok((i32::from_ne_bytes(random_bytes()?) & i32::MAX).max(1))
}
