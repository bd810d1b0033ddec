//! Programs in cells as the host sees them, and a way to keep them from dying. For tests that run as root.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::PATIENCE;

/// Waits for the process with this command line. Returns its id and its parent's, which is the cell's init and has
/// nothing to do: the keeper knows that the program has started.
pub fn find(argv: &[&str]) -> (u32, u32) {
    let line: Vec<u8> = argv.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
    let until = Instant::now() + PATIENCE;
    loop {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_it = |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|own| own == line);
        if let Some(pid) = pids.find(is_it) {
            let init = field(pid, "PPid:");
            if word(init, "State:") == "S" {
                return (pid, init);
            }
        }
        assert!(Instant::now() < until, "there is no process {argv:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A number in the status of a process.
pub fn field(pid: u32, name: &str) -> u32 {
    word(pid, name).parse().unwrap()
}

/// The first word of a line in the status of a process.
fn word(pid: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_ascii_whitespace().next().unwrap().to_owned()
}

/// Frozen processes, which survive even SIGKILL, until this is dropped.
#[derive(Debug)]
pub struct Frozen(PathBuf);

impl Frozen {
    /// Freezes processes with the freezer of cgroup v1, which also blocks SIGKILL. The test checks first that the host
    /// has one: [`needs::freezer`](crate::needs::freezer).
    pub fn new(pids: &[u32]) -> Self {
        let name = format!("sandbox-test-{}-{}", std::process::id(), pids[0]);
        let group = PathBuf::from("/sys/fs/cgroup/freezer").join(name);
        std::fs::create_dir(&group).unwrap();
        let frozen = Self(group);
        for pid in pids {
            std::fs::write(frozen.0.join("cgroup.procs"), pid.to_string()).unwrap();
        }
        let state = frozen.0.join("freezer.state");
        std::fs::write(&state, "FROZEN").unwrap();
        let until = Instant::now() + PATIENCE;
        while std::fs::read_to_string(&state).unwrap().trim() != "FROZEN" {
            assert!(Instant::now() < until, "they do not freeze");
            std::thread::sleep(Duration::from_millis(1));
        }
        frozen
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("freezer.state"), "THAWED");
        for _ in 0..1000 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
