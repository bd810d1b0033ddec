//! The state of the host before all attacks, and a check for changes beyond the planted objects: settings, processes,
//! mounts, cgroups.

use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sandbox_executor::GATEWAY_THREAD;

/// The variable with a secret in the suite's environment.
pub(crate) const SECRET_VARIABLE: &str = "SANDBOX_ATTACK_SECRET";

/// The host before all attacks.
pub(crate) struct HostBaseline {
    /// The environment of the suite.
    pub(crate) secret: String,
    pub(crate) root: bool,
    /// This program.
    pub(crate) executable: PathBuf,
    pub(crate) temp_dir: PathBuf,
    pub(crate) host_name: String,
    /// The host's addresses.
    pub(crate) addresses: Vec<String>,
    /// The suite's cgroups that are not roots.
    pub(crate) groups: Vec<String>,
    settings: [Option<String>; 2],
    stat: Option<(u64, u64, i64, i64)>,
    digest: Option<u64>,
}

impl HostBaseline {
    pub(crate) fn new() -> std::io::Result<Self> {
        let executable = std::env::current_exe()?;
        Ok(Self {
            secret: std::env::var(SECRET_VARIABLE).unwrap_or_default(),
            root: rustix::process::geteuid().is_root(),
            temp_dir: std::env::temp_dir().canonicalize()?,
            host_name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            addresses: addresses(),
            groups: own_groups(),
            settings: settings(),
            stat: stat(&executable),
            digest: digest(&executable),
            executable,
        })
    }

    /// What has changed on the host.
    pub(crate) fn changes(&self) -> Vec<String> {
        let mut evidence = vec![];
        let [name, pattern] = settings();
        if name != self.settings[0] {
            evidence.push("the host name was changed".to_owned());
        }
        if pattern != self.settings[1] {
            evidence.push("the host's core_pattern was changed".to_owned());
        }
        if stat(&self.executable) != self.stat {
            evidence.push("this program's file was changed".to_owned());
        }
        evidence
    }

    /// What remains after all attacks: cells, cgroups, or a modified copy of this program.
    pub(crate) fn remains(&self) -> Vec<String> {
        let mut evidence = vec![];
        if digest(&self.executable) != self.digest {
            evidence.push("this program's content was changed".to_owned());
        }
        // Cells are cleaned up while their result is delivered; give that a moment.
        let until = Instant::now() + Duration::from_secs(3);
        loop {
            let left = left_by_keepers();
            if left.is_empty() || Instant::now() > until {
                evidence.extend(left);
                return evidence;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Processes and mounts that contain a marker.
pub(crate) fn of_marker(marker: &str) -> Vec<String> {
    let variable = format!("MARKER={marker}");
    let mut evidence = vec![];
    for (pid, _) in processes() {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if environ.split(|byte| *byte == 0).any(|pair| pair == variable.as_bytes()) {
            evidence.push(format!("its process {pid} is left"));
        }
    }
    if std::fs::read_to_string("/proc/self/mountinfo").is_ok_and(|mounts| mounts.contains(marker)) {
        evidence.push("one of its mounts is left".to_owned());
    }
    evidence
}

/// Threads of this process that still serve a gateway, when no cell with a gateway should exist.
pub(crate) fn of_gateways() -> Vec<String> {
    let count = || {
        let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let names = threads.map(|thread| std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default());
        names.filter(|name| name.trim() == GATEWAY_THREAD).count()
    };
    // A thread that has ended and was joined is listed for a moment longer.
    let deadline = Instant::now() + Duration::from_secs(1);
    while count() > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    match count() {
        0 => vec![],
        left => vec![format!("{left} threads of its gateway are left")],
    }
}

/// Whether a process is stopped.
pub(crate) fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}

/// Every process, with its parent.
fn processes() -> Vec<(u32, u32)> {
    let mut found = vec![];
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse().ok());
        found.push((pid, parent.unwrap_or(0)));
    }
    found
}

/// Cells and cgroups of this process's keeper, when no cell should exist.
fn left_by_keepers() -> Vec<String> {
    let (own, all) = (std::process::id(), processes());
    let mut left = vec![];
    for (keeper, _) in all.iter().filter(|(_, parent)| *parent == own) {
        let cells = all.iter().filter(|(_, parent)| parent == keeper);
        left.extend(cells.map(|(pid, _)| format!("process {pid} of a cell is left")));
        groups(Path::new("/sys/fs/cgroup"), 5, &format!("sandbox-run-{keeper}-"), &mut left);
    }
    left
}

/// Cgroups of cells. On v1 each has the keeper's name and a number; on v2 they are below a cgroup of that name.
fn groups(dir: &Path, depth: usize, prefix: &str, left: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        let of_cell = match name.strip_prefix(prefix) {
            Some(rest) => rest.contains('-'),
            None => name.starts_with("cell-") && dir.to_string_lossy().contains(prefix),
        };
        if of_cell {
            left.push(format!("the cgroup {} is left", entry.path().display()));
        } else if depth > 0 {
            groups(&entry.path(), depth - 1, prefix, left);
        }
    }
}

fn settings() -> [Option<String>; 2] {
    ["hostname", "core_pattern"].map(|name| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok())
}

fn stat(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let meta = path.metadata().ok()?;
    Some((meta.ino(), meta.len(), meta.mtime(), meta.ctime()))
}

fn digest(path: &Path) -> Option<u64> {
    let mut file = std::fs::File::open(path).ok()?;
    let (mut hasher, mut buffer) = (DefaultHasher::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer).ok()? {
            0 => return Some(hasher.finish()),
            n => hasher.write(&buffer[..n]),
        }
    }
}

/// The paths of this process's cgroups, without roots, which reveal nothing.
fn own_groups() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.filter(|path| path.len() > 1).map(str::to_owned).collect()
}

/// IPv4 addresses of the host, except loopback.
fn addresses() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let lines: Vec<&str> = table.lines().collect();
    let local = lines.windows(2).filter(|pair| pair[1].contains("/32 host LOCAL"));
    let mut found: Vec<String> =
        local.filter_map(|pair| Some(pair[0].split_once("|-- ")?.1.trim().to_owned())).collect();
    found.retain(|address| !address.starts_with("127."));
    found.sort();
    found.dedup();
    found
}
