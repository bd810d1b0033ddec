//! What a test needs from its host. Without it, the test fails in CI and prints a `skipped:` line elsewhere. The only
//! tests that CI may skip are those of an `SkipReason`.

use std::io::Write;
use std::path::Path;

/// Variables that forbid skipping a test.
const REQUIRED: [&str; 2] = ["CI", "SANDBOX_TEST_REQUIRE"];

/// Why a test, or a part of one, may be skipped even in CI: a property of the kernel, or a suite with a make target.
#[derive(Debug, Clone, Copy)]
enum SkipReason {
    /// Only the freezer of cgroup v1 blocks SIGKILL. A host with cgroup v2 cannot have a process that survives it.
    CgroupV2,
    /// A kernel before 6.3 cannot map ids on a tmpfs.
    OldTmpfs,
    /// Docker's engine takes a minute to start: `make test-backends` compares its backends.
    NoDocker,
}

impl SkipReason {
    fn needs(self) -> &'static str {
        match self {
            Self::CgroupV2 => "the freezer of cgroup v1, and this host has cgroup v2",
            Self::OldTmpfs => "Linux 6.3, to map ids on a tmpfs",
            Self::NoDocker => "SANDBOX_TEST_DOCKER=1 (make test-backends) for the Docker backends",
        }
    }

    /// Skips a test if the exception applies to this host.
    fn permits(self, applies: bool) -> bool {
        if applies {
            report(self.needs());
        }
        applies
    }
}

/// Whether a test that needs root may continue.
#[must_use = "return from the test if this is false"]
pub fn root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    that("root", status.lines().any(|line| line.starts_with("Uid:\t0\t")))
}

/// Whether a test that needs a program of the host may continue.
#[must_use = "return from the test if this is false"]
pub fn program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = Path::new(name).is_absolute() && Path::new(name).exists()
        || std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    that(name, found)
}

/// Whether a test that freezes processes may continue.
#[must_use = "return from the test if this is false"]
pub fn freezer() -> bool {
    let is_v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    !SkipReason::CgroupV2.permits(is_v2)
        && that("the freezer of cgroup v1", Path::new("/sys/fs/cgroup/freezer/cgroup.procs").exists())
}

/// The kernel's `TMPFS_MAGIC`.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// Whether a test that writes to a mounted directory, with the ids of its owner, may continue.
#[must_use = "return from the test if this is false"]
pub fn mapped_ids(dir: &Path) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut version = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    let is_old = (version.next(), version.next()) < (Some(6), Some(3));
    let is_tmpfs = rustix::fs::statfs(dir).unwrap().f_type == TMPFS;
    !SkipReason::OldTmpfs.permits(is_old && is_tmpfs)
}

/// Whether a test that starts Docker's engine may continue.
#[must_use = "return from the test if this is false"]
pub fn docker() -> bool {
    !SkipReason::NoDocker.permits(std::env::var_os("SANDBOX_TEST_DOCKER").is_none())
}

/// Whether a test that needs a feature of the host may continue.
#[must_use = "return from the test if this is false"]
pub fn that(what: &str, there: bool) -> bool {
    if !there {
        let required = REQUIRED.iter().any(|name| std::env::var_os(name).is_some());
        assert!(!required, "this test needs {what}, and CI must not skip it");
        report(what);
    }
    there
}

/// Prints what a test needs that is skipped.
fn report(what: &str) {
    let thread = std::thread::current();
    // Not by a macro: the test harness would capture the line.
    let _ = writeln!(std::io::stderr(), "skipped: {} needs {what}", thread.name().unwrap_or("a test"));
}
