//! Confines a process that serves a network and asks a keeper for cells, because it needs few privileges itself.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::error::Failure;
use crate::landlock_rules::{FileAccess, LandlockRules};
use crate::syscalls;

/// The files that such a process may open.
#[derive(Debug, Clone, Default)]
pub struct ServiceFiles {
    /// Readable paths, besides the system directories.
    pub readable: Vec<PathBuf>,
    /// Readable and writable paths.
    pub writable: Vec<PathBuf>,
}

/// The system: programs, their configuration, and the kernel's interfaces.
const SYSTEM: [&str; 13] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/proc", "/sys", "/run", "/dev"];

/// Confines this process permanently: it can open only these files, execute only programs of the system, reach no
/// process outside by signals and abstract sockets, and make no system call that its work does not need. The process
/// must have a single thread: other existing threads would not be confined.
pub fn confine_service(files: &ServiceFiles) -> Result<(), Failure> {
    let failed = |step: &str| format!("cannot confine the service (step: {step})");
    rustix::thread::set_no_new_privs(true).map_err(|errno| Failure::os(failed("no new privileges"), errno))?;
    if sandbox_sys::landlock::abi_version() > 0 {
        rules(files)
            .and_then(|rules| sandbox_sys::landlock::restrict_self(rules.as_fd()))
            .map_err(|errno| Failure::os(failed("Landlock"), errno))?;
    }
    let filter = syscalls::compile(&syscalls::policy_of_service());
    sandbox_sys::seccomp::install(&filter).map_err(|errno| Failure::os(failed("syscall filter"), errno))
}

fn rules(files: &ServiceFiles) -> rustix::io::Result<OwnedFd> {
    let mut rules = LandlockRules::new()?;
    let readable = SYSTEM.iter().map(Path::new).chain(files.readable.iter().map(PathBuf::as_path));
    for path in readable {
        rules = rules.allow_if_present(path, FileAccess::Read)?;
    }
    for path in &files.writable {
        rules = rules.allow_if_present(path, FileAccess::AllButExecute)?;
    }
    rules.allow_if_present(Path::new("/dev/null"), FileAccess::ReadAndWrite)?.seal()
}
