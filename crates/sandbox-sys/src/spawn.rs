//! Starts the untrusted program: the steps between fork and exec.
//!
//! The child is created with `CLONE_VM | CLONE_VFORK`: it borrows the parent's memory while the parent waits. So no
//! page table is copied, and a failed step is simply stored in the shared [`SpawnStep`] instead of going through a
//! pipe. In return, the child must not allocate, lock or return.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::signal::SignalSet;

/// The program to start, and the restrictions to apply first. Everything is prepared: the child only makes system
/// calls.
#[derive(Debug)]
pub struct Program<'a> {
    /// Absolute paths to try in order, as a shell does along `PATH`.
    pub paths: &'a [CString],
    /// The arguments, the program's name first.
    pub args: &'a [CString],
    /// The environment, `NAME=value` each.
    pub env: &'a [CString],
    /// The working directory.
    pub cwd: &'a CStr,
    /// Standard input, output and error. Each must be above 2.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Whether standard input is a terminal that becomes the controlling terminal of the program's session.
    pub terminal: bool,
    /// A descriptor that the program gets as number 3.
    pub extra: Option<BorrowedFd<'a>>,
    /// Capabilities that the program keeps; the caller must have them.
    pub kept: CapabilitySet,
    /// `cgroup.procs` files of the cgroups to join.
    pub cgroups: &'a [BorrowedFd<'a>],
    /// Limits per process.
    pub rlimits: &'a [(Resource, u64)],
    /// User and group id to take, where the parent may change them.
    pub ids: Option<(u32, u32)>,
    /// The Landlock ruleset to enter.
    pub landlock: Option<BorrowedFd<'a>>,
    /// Whether a rule must first be added that lets the process read its own `/proc` entry.
    pub own_proc: bool,
}

/// A step between fork and exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpawnStep {
    /// Creating the process itself.
    Fork,
    /// Joining its cgroups.
    Cgroup,
    /// Starting a new session.
    Session,
    /// Connecting standard input, output and error.
    Stdio,
    /// Taking the controlling terminal.
    Terminal,
    /// Setting per-process limits.
    Rlimit,
    /// Dropping user id, group id and capabilities.
    Privileges,
    /// Entering the Landlock ruleset.
    Landlock,
    /// Changing to the working directory.
    WorkingDirectory,
    /// Executing the program.
    Exec,
}

/// A failed step, and why it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpawnError {
    /// The step.
    pub step: SpawnStep,
    /// The kernel's error.
    pub errno: Errno,
}

struct SpawnState<'a> {
    program: &'a Program<'a>,
    args: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
    failure: Option<SpawnError>,
}

/// Starts the program. Returns once it runs, or with the step that failed.
pub fn spawn(program: &Program<'_>) -> Result<Pid, SpawnError> {
    let mut shared = SpawnState { program, args: pointers(program.args), env: pointers(program.env), failure: None };
    let pid = borrow_memory(&mut shared).map_err(|errno| SpawnError { step: SpawnStep::Fork, errno })?;
    // The parent reaps a failed child with all its others.
    shared.failure.map_or(Ok(pid), Err)
}

/// Starts a process that uses this one's memory, on a separate stack, while this one waits until it has executed a
/// program or ended.
fn borrow_memory(shared: &mut SpawnState<'_>) -> crate::Result<Pid> {
    // Deep enough for a handful of system calls and, in debug builds, their unoptimised frames.
    const STACK: usize = 128 * 1024;
    // Not cleared: the child touches only a little of it.
    let mut stack: Vec<u128> = Vec::with_capacity(STACK / size_of::<u128>());
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: `child` only makes system calls on its arguments and ends; it does not allocate, lock or unwind.
    // CLONE_VFORK suspends this thread until the child has executed or ended, so `stack` and `shared` outlive the
    // child's use of them and nothing else touches them meanwhile. `top` is the end of the stack, aligned to 16 bytes.
    // The child gets its own copy of the descriptor table and of signal state.
    let pid = unsafe { libc::clone(child, top.cast(), flags, ptr::from_mut(shared).cast()) };
    crate::check(pid.into())?;
    Pid::from_raw(pid).ok_or(Errno::CHILD)
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
}

extern "C" fn child(shared: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `spawn` passes a pointer to its `SpawnState`, which it does not touch until this process is gone.
    let shared = unsafe { &mut *shared.cast::<SpawnState<'_>>() };
    shared.failure = Some(become_program(shared));
    // SAFETY: _exit never returns. Exit handlers belong to the parent and must not run here.
    unsafe { libc::_exit(127) }
}

/// Takes every step; returns only on failure.
fn become_program(shared: &SpawnState<'_>) -> SpawnError {
    match prepare(shared.program) {
        Err(error) => error,
        Ok(()) => SpawnError { step: SpawnStep::Exec, errno: exec(shared) },
    }
}

fn prepare(program: &Program<'_>) -> Result<(), SpawnError> {
    let at = |step| move |errno| SpawnError { step, errno };
    for group in program.cgroups {
        rustix::io::write(group, b"0").map_err(at(SpawnStep::Cgroup))?;
    }
    rustix::process::setsid().map_err(at(SpawnStep::Session))?;
    for (target, source) in program.stdio.iter().enumerate() {
        dup_to(*source, target).map_err(at(SpawnStep::Stdio))?;
    }
    if program.terminal {
        rustix::process::ioctl_tiocsctty(program.stdio[0]).map_err(at(SpawnStep::Terminal))?;
    }
    for &(resource, value) in program.rlimits {
        // Compilers and programs that recurse deeply raise the size of their stack themselves, which the memory limit bounds.
        let raised = (resource == Resource::Stack).then(|| rustix::process::getrlimit(resource).maximum);
        let limit = Rlimit { current: Some(value), maximum: raised.unwrap_or(Some(value)) };
        rustix::process::setrlimit(resource, limit).map_err(at(SpawnStep::Rlimit))?;
    }
    drop_privileges(program.ids, program.kept).map_err(at(SpawnStep::Privileges))?;
    if let Some(ruleset) = program.landlock {
        if program.own_proc {
            crate::landlock::allow_own_process(ruleset).map_err(at(SpawnStep::Landlock))?;
        }
        crate::landlock::restrict_self(ruleset).map_err(at(SpawnStep::Landlock))?;
    }
    // Before the working directory is entered: its path may lead through /proc/self/fd, and must not find init's
    // descriptors.
    if let Some(extra) = program.extra {
        dup_to(extra, 3).map_err(at(SpawnStep::Stdio))?;
    }
    close_from(if program.extra.is_some() { 4 } else { 3 }).map_err(at(SpawnStep::Stdio))?;
    rustix::process::chdir(program.cwd).map_err(at(SpawnStep::WorkingDirectory))?;
    Ok(())
}

fn drop_privileges(ids: Option<(u32, u32)>, kept: CapabilitySet) -> Result<(), Errno> {
    if let Some((uid, gid)) = ids {
        let gid = rustix::process::Gid::from_raw(gid);
        let uid = rustix::process::Uid::from_raw(uid);
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    }
    rustix::thread::set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: kept })?;
    // Only ambient capabilities survive the exec of a plain file.
    kept.iter().try_for_each(|capability| rustix::thread::configure_capability_in_ambient_set(capability, true))
}

fn exec(shared: &SpawnState<'_>) -> Errno {
    let _ = SignalSet::of(&[]).block();
    let mut errno = Errno::NOENT;
    for path in shared.program.paths {
        // SAFETY: all strings are nul-terminated, both arrays end in a null pointer, all outlive the call.
        unsafe {
            libc::execve(path.as_ptr(), shared.args.as_ptr(), shared.env.as_ptr());
        }
        // SAFETY: errno belongs to this thread.
        let last = Errno::from_raw_os_error(unsafe { *libc::__errno_location() });
        // As along PATH: a file that may not be executed is remembered, a missing one is skipped.
        match last {
            Errno::NOENT | Errno::NOTDIR => {}
            Errno::ACCESS => errno = last,
            _ => return last,
        }
    }
    errno
}

fn dup_to(source: BorrowedFd<'_>, target: usize) -> Result<(), Errno> {
    let source = source.as_fd().as_raw_fd();
    let target = i32::try_from(target).map_err(|_| Errno::BADF)?;
    // SAFETY: this process has its own descriptor table; replacing 0, 1 and 2 in it affects no other process.
    let ret = unsafe { libc::dup2(source, target) };
    crate::check(ret.into()).map(drop)
}

fn close_from(first: u32) -> Result<(), Errno> {
    // SAFETY: closes descriptors of this process's own table, which nothing in it uses any more before exec.
    let ret = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0_u32) };
    crate::check(ret).map(drop)
}
