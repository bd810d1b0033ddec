//! Confining a process that serves a network and asks a keeper for cells: it needs little of the system itself.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope,
};

use crate::error::Failure;
use crate::syscalls;

/// What such a process may open.
#[derive(Debug, Clone, Default)]
pub struct ServiceFiles {
    /// What it may read, besides what makes up the system.
    pub readable: Vec<PathBuf>,
    /// What it may read and change.
    pub writable: Vec<PathBuf>,
}

/// What makes up the system: programs, their settings, and what the kernel tells.
const SYSTEM: [&str; 13] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/proc", "/sys", "/run", "/dev"];

const KNOWN: ABI = ABI::V6;

/// Confines this process for good: it can open nothing but these files, execute nothing but programs of the system, reach no
/// process outside by signals and abstract sockets, and make no system call that its work does not take. The process must
/// have a single thread: those that exist already would not be confined.
pub fn confine_service(files: &ServiceFiles) -> Result<(), Failure> {
    let failed = |step: &str| format!("cannot confine the service (step: {step})");
    rustix::thread::set_no_new_privs(true).map_err(|errno| Failure::os(failed("no new privileges"), errno))?;
    if sandbox_sys::landlock::abi_version() > 0 {
        let status = rules(files).and_then(RulesetCreated::restrict_self);
        status.map_err(|error| Failure::new(failed("Landlock"), error.to_string()))?;
    }
    let filter = syscalls::compile(&syscalls::policy_of_service());
    sandbox_sys::seccomp::install(&filter).map_err(|errno| Failure::os(failed("syscall filter"), errno))
}

fn rules(files: &ServiceFiles) -> Result<RulesetCreated, landlock::RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KNOWN))?
        .scope(Scope::from_all(KNOWN))?
        .create()?;
    let readable = SYSTEM.iter().map(Path::new).chain(files.readable.iter().map(PathBuf::as_path));
    for path in readable {
        rules = allow(rules, path, AccessFs::from_read(KNOWN))?;
    }
    for path in files.writable.iter().map(PathBuf::as_path) {
        rules = allow(rules, path, AccessFs::from_all(KNOWN) & !AccessFs::Execute)?;
    }
    allow(rules, Path::new("/dev/null"), AccessFs::ReadFile | AccessFs::WriteFile)
}

/// Adds a rule for what is there; what is not needs none.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, landlock::RulesetError> {
    let Ok(fd) = PathFd::new(path) else { return Ok(rules) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(KNOWN) };
    rules.add_rule(PathBeneath::new(fd, access))
}
