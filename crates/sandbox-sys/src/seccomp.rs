//! Installs a compiled syscall filter. `sandbox-cell` compiles it.

use crate::{Result, check};

/// One instruction of classic BPF, in the kernel's layout (`struct sock_filter`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// The instruction code.
    pub code: u16,
    /// How many instructions to skip if the test holds.
    pub jump_true: u8,
    /// How many instructions to skip if it does not.
    pub jump_false: u8,
    /// The operand.
    pub operand: u32,
}

/// Installs `program` for the calling thread and everything it starts. It can never be removed.
/// Needs `no_new_privs`.
pub fn install(program: &[Instruction]) -> Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| rustix::io::Errno::INVAL)?;
    let fprog = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
    // SAFETY: `Instruction` has the layout of `sock_filter`; the kernel copies `len` of them from a slice that
    // is at least that long and lives across the call.
    let ret = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0_u32, &raw const fprog) };
    check(ret).map(drop)
}

/// Whether the kernel supports syscall filters.
#[must_use]
pub fn is_supported() -> bool {
    let action: u32 = libc::SECCOMP_RET_KILL_PROCESS;
    // SAFETY: the call reads one u32 that lives across it.
    let ret = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0_u32, &raw const action) };
    ret == 0
}
