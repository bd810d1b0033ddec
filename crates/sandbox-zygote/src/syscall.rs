//! System calls without a C library.

use core::arch::asm;

pub(crate) const SYS_READ: usize = 0;
pub(crate) const SYS_WRITE: usize = 1;
pub(crate) const SYS_OPEN: usize = 2;
pub(crate) const SYS_CLOSE: usize = 3;
pub(crate) const SYS_MMAP: usize = 9;
pub(crate) const SYS_MPROTECT: usize = 10;
pub(crate) const SYS_MUNMAP: usize = 11;
pub(crate) const SYS_MREMAP: usize = 25;
pub(crate) const SYS_MADVISE: usize = 28;
pub(crate) const SYS_DUP2: usize = 33;
pub(crate) const SYS_NANOSLEEP: usize = 35;
pub(crate) const SYS_GETPID: usize = 39;
pub(crate) const SYS_RECVMSG: usize = 47;
pub(crate) const SYS_WAIT4: usize = 61;
pub(crate) const SYS_GETPPID: usize = 110;
pub(crate) const SYS_SETSID: usize = 112;
pub(crate) const SYS_SETRESUID: usize = 117;
pub(crate) const SYS_SETRESGID: usize = 119;
pub(crate) const SYS_CAPSET: usize = 126;
pub(crate) const SYS_PRCTL: usize = 157;
pub(crate) const SYS_EXIT_GROUP: usize = 231;
pub(crate) const SYS_PRLIMIT64: usize = 302;
pub(crate) const SYS_SETNS: usize = 308;
pub(crate) const SYS_GETRANDOM: usize = 318;
pub(crate) const SYS_PIDFD_OPEN: usize = 434;
pub(crate) const SYS_CLOSE_RANGE: usize = 436;
pub(crate) const SYS_LANDLOCK_RESTRICT_SELF: usize = 446;

pub(crate) const EINTR: isize = -4;
pub(crate) const EINVAL: isize = -22;
pub(crate) const EPIPE: isize = -32;

pub(crate) const CLONE_NEWNS: usize = 0x0002_0000;
pub(crate) const CLONE_NEWCGROUP: usize = 0x0200_0000;
pub(crate) const CLONE_NEWUTS: usize = 0x0400_0000;
pub(crate) const CLONE_NEWIPC: usize = 0x0800_0000;
pub(crate) const CLONE_NEWUSER: usize = 0x1000_0000;
pub(crate) const CLONE_NEWPID: usize = 0x2000_0000;
pub(crate) const CLONE_NEWNET: usize = 0x4000_0000;

/// A call that may access memory.
pub(crate) unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: a system call changes no registers except these; the caller is responsible for its effect on memory.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") arguments[0], in("rsi") arguments[1],
             in("rdx") arguments[2], in("r10") arguments[3], in("r8") arguments[4], in("r9") arguments[5],
             lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// A call that accesses no memory of ours.
pub(crate) fn plain<const N: usize>(number: usize, arguments: [usize; N]) -> isize {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&arguments);
    // SAFETY: the callers pass numbers only.
    unsafe { call(number, all) }
}

/// Ends the process.
pub(crate) fn exit(code: usize) -> ! {
    loop {
        plain(SYS_EXIT_GROUP, [code]);
    }
}

/// The result of a call that must succeed in a child.
pub(crate) fn must(result: isize) -> usize {
    if result < 0 {
        exit(126);
    }
    result as usize
}

/// Sleeps for a millisecond.
pub(crate) fn nap() {
    let time = [0_u64, 1_000_000];
    // SAFETY: the kernel reads two words.
    unsafe { call(SYS_NANOSLEEP, [&raw const time as usize, 0, 0, 0, 0, 0]) };
}

#[cfg(zygote_library)]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(127)
}

/// The compiler's runtime library refers to it; nothing here unwinds.
#[cfg(zygote_library)]
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
