//! The entry points that interpreters call: `sandbox_zygote` and `sandbox_wait`.

use core::arch::asm;
use core::mem::{size_of, zeroed};

use crate::node::Children;
use crate::protocol::{
    EnterParams, GREETING, MOST_COMMAND, MOST_FDS, NAMESPACES, STREAMS, decode_command, encode_pid, enter_fds,
};
use crate::rehearsal::copy_pages_unless_readable;
use crate::syscall::{
    CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS, EINTR, EINVAL,
    EPIPE, SYS_CAPSET, SYS_CLOSE, SYS_CLOSE_RANGE, SYS_DUP2, SYS_GETPID, SYS_GETPPID, SYS_GETRANDOM,
    SYS_LANDLOCK_RESTRICT_SELF, SYS_MMAP, SYS_PIDFD_OPEN, SYS_PRCTL, SYS_PRLIMIT64, SYS_RECVMSG, SYS_SETNS,
    SYS_SETRESGID, SYS_SETRESUID, SYS_SETSID, SYS_WAIT4, SYS_WRITE, call, exit, must, nap, plain,
};

/// The command of a child: the text of a [`crate::protocol::ChildCommand`].
#[derive(Debug)]
#[repr(C)]
pub struct CommandText {
    pub(crate) data: *const u8,
    pub(crate) length: usize,
}

unsafe extern "C" {
    /// From the C library, because it also runs the fork handlers that other libraries have registered: some have
    /// threads, which do not survive a fork, and some have random state, which should differ afterwards.
    pub(crate) fn fork() -> i32;

    /// From the C library: reads the auxiliary vector.
    fn getauxval(kind: u64) -> usize;
}

/// A function that forks. It returns zero in the child, and the child's id or an error in the caller.
pub(crate) type Fork = unsafe extern "C" fn() -> i32;

/// Forks twice, as described in the crate's documentation. Returns zero in the grandchild; in the caller the id of the
/// intermediate child, which has ended or is about to.
unsafe fn fork_twice(fork: Fork) -> isize {
    /// `CLONE_VM | CLONE_VFORK`, and SIGCHLD at its end.
    const BORROW: usize = 0x0000_4100 | 0x11;
    let result: isize;
    // SAFETY: the intermediate child has the caller's memory and its stack. Below the end of the caller's stack it may
    // write freely, because the caller waits until it has ended. (The red zone, which a compiler may use below that, is
    // left alone.) The grandchild has a copy of everything, as after any fork, and continues with the caller's stack.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov r13, rsp",
            "sub rsp, 256",
            "and rsp, -16",
            "call r12",
            "mov rsp, r13",
            "movsxd rax, eax",
            "test rax, rax",
            "jz 2f",
            "mov rdi, rax",
            "shr rdi, 63",
            "mov eax, 60",
            "syscall",
            "2:",
            inlateout("rax") 56_isize => result,
            inlateout("rdi") BORROW => _,
            inlateout("rsi") 0_usize => _,
            inlateout("rdx") 0_usize => _,
            inlateout("r10") 0_usize => _,
            inlateout("r8") 0_usize => _,
            in("r12") fork as *const (),
            out("r13") _,
            clobber_abi("C"),
        );
    }
    result
}

#[repr(C)]
struct IoVector {
    base: *mut u8,
    length: usize,
}

#[repr(C)]
struct MessageHeader {
    name: usize,
    name_length: usize,
    slices: *mut IoVector,
    slice_count: usize,
    control: *mut ControlMessage,
    control_length: usize,
    flags: usize,
}

#[repr(C)]
struct ControlMessage {
    length: usize,
    level: i32,
    kind: i32,
    fds: [i32; MOST_FDS],
}

/// Receives a message and its descriptors. Returns the number of bytes and of descriptors.
fn receive(socket: usize, buffer: *mut u8, length: usize, fds: &mut [i32; MOST_FDS]) -> Result<(usize, usize), isize> {
    const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;
    loop {
        // SAFETY: all zeroes is a valid value of these.
        let mut control: ControlMessage = unsafe { zeroed() };
        let mut slice = IoVector { base: buffer, length };
        let mut message = MessageHeader {
            name: 0,
            name_length: 0,
            slices: &raw mut slice,
            slice_count: 1,
            control: &raw mut control,
            control_length: size_of::<ControlMessage>(),
            flags: 0,
        };
        // SAFETY: the kernel writes to the buffers that the message describes, all of which live across the call.
        let received = unsafe { call(SYS_RECVMSG, [socket, &raw mut message as usize, MSG_CMSG_CLOEXEC, 0, 0, 0]) };
        if received == EINTR {
            continue;
        }
        if received <= 0 {
            return Err(if received == 0 { EPIPE } else { received });
        }
        let rights = control.level == 1 && control.kind == 1 && message.control_length >= 16;
        let count = if rights { (control.length - 16) / 4 } else { 0 }.min(MOST_FDS);
        fds[..count].copy_from_slice(&control.fds[..count]);
        return Ok((received as usize, count));
    }
}

/// Enters a namespace. The kernel takes two ints; the bits above them are for the filter.
fn set_namespace(key: u64, fd: usize, kind: usize) -> isize {
    const HIGH: usize = 0xffff_ffff << 32;
    let key = key as usize;
    plain(SYS_SETNS, [fd | key & HIGH, kind | key << 32])
}

/// Clears the stack below the caller's frame.
#[inline(never)]
fn wipe_stack() {
    let mut area = [0_u8; 16 * 1024];
    for byte in &mut area {
        // SAFETY: a local byte. The compiler must not elide the write.
        unsafe { core::ptr::write_volatile(byte, 0) };
    }
}

/// The types of [`NAMESPACES`].
const NAMESPACE_KINDS: [usize; NAMESPACES.len()] =
    [CLONE_NEWPID, CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWNET, CLONE_NEWCGROUP, CLONE_NEWNS, CLONE_NEWUSER];

/// The fate of the zygote's descriptors in its children.
#[derive(Clone, Copy)]
pub(crate) enum ZygoteFds<'a> {
    Kept,
    Closed,
    /// They are needed, but have to be replaced.
    Replaced(&'a Children),
}

/// Becomes a zygote that receives cells on `control`. With `close_all`, children keep no descriptor except their
/// streams. Returns the descriptor to wait at in a child, and -1 in the zygote when it is no longer needed.
///
/// # Safety
///
/// The process must be able to fork: no other thread may hold a lock that a child needs.
#[must_use]
#[cfg_attr(zygote_library, unsafe(no_mangle))]
pub unsafe extern "C" fn sandbox_zygote(control: i32, close_all: i32) -> i32 {
    let rest = if close_all != 0 { ZygoteFds::Closed } else { ZygoteFds::Kept };
    // SAFETY: as the caller promises.
    unsafe { serve(control, rest, fork) }
}

/// The same for callers that treat descriptors differently, or fork in another way.
pub(crate) unsafe fn serve(control: i32, rest: ZygoteFds<'_>, fork: Fork) -> i32 {
    // SAFETY: as the caller promises.
    let park = unsafe { receive_cells(control, rest, fork) };
    wipe_stack();
    park
}

#[inline(never)]
unsafe fn receive_cells(control: i32, rest: ZygoteFds<'_>, fork: Fork) -> i32 {
    const WALL: usize = 0x4000_0000;
    let control = control as usize;
    let pid = plain(SYS_GETPID, []);
    let own = plain(SYS_PIDFD_OPEN, [pid as usize, 0]);
    if own < 0 {
        return -1;
    }
    let own = own as usize;
    // SAFETY: the bytes are constant.
    unsafe { call(SYS_WRITE, [control, GREETING.as_ptr() as usize, GREETING.len(), 0, 0, 0]) };
    loop {
        let mut message = [0; EnterParams::SIZE];
        let mut fds = [-1; MOST_FDS];
        let Ok((length, count)) = receive(control, message.as_mut_ptr(), message.len(), &mut fds) else {
            return -1;
        };
        let params = EnterParams::decode(&message[..length]).filter(|params| params.fds() == count);
        let pid_namespace = fds[enter_fds::FIRST_NAMESPACE] as usize;
        if let Some(params) = params
            && set_namespace(params.key, pid_namespace, CLONE_NEWPID) == 0
        {
            // SAFETY: only this thread continues in the child, as after every fork.
            let child = unsafe { fork_twice(fork) };
            if child == 0 {
                // Libraries detect a fork by the process id. In another namespace it could be the same.
                if plain(SYS_GETPID, []) == pid {
                    exit(126);
                }
                plain(SYS_CLOSE, [own]);
                // SAFETY: as the caller promises.
                return unsafe { enter(&fds[..count], params, control, rest) } as i32;
            }
            if set_namespace(params.key, own, CLONE_NEWPID) != 0 {
                // Otherwise the next child would be created in the previous cell.
                return -1;
            }
            if child > 0 {
                plain(SYS_WAIT4, [child as usize, 0, WALL, 0]);
            }
        }
        for fd in &fds[..count] {
            plain(SYS_CLOSE, [*fd as usize]);
        }
    }
}

/// Replaces the random bytes that the kernel gave the zygote at its start, so that code which takes a seed from there
/// gets a different one in each child.
///
/// The values that the C library derived from the zygote's bytes stay the same: the stack protector and the pointer
/// guard. Existing frames and saved addresses are protected with them, so a child with other values would crash at
/// once. All children of a zygote share these values, as they share the memory layout; a program that a child executes
/// gets fresh ones.
fn renew_seed() {
    const AT_RANDOM: u64 = 25;
    const LENGTH: usize = 16;
    // SAFETY: a look-up without side effects.
    let place = unsafe { getauxval(AT_RANDOM) };
    if place != 0 {
        // SAFETY: the kernel put that many bytes there, on this process's stack, and now overwrites them.
        let written = must(unsafe { call(SYS_GETRANDOM, [place, LENGTH, 0, 0, 0, 0]) });
        if written != LENGTH {
            exit(126);
        }
    }
}

/// The descriptor at which a child waits: above the streams.
const PLACE: usize = 3;

unsafe fn enter(fds: &[i32], params: EnterParams, control: usize, rest: ZygoteFds<'_>) -> usize {
    const PR_SET_DUMPABLE: usize = 4;
    const PR_CAPBSET_DROP: usize = 24;
    const CAPABILITY_VERSION: u32 = 0x2008_0522;
    renew_seed();
    let at = |index: usize| fds[index] as usize;
    for group in &fds[params.first_group()..] {
        // SAFETY: the byte is constant.
        must(unsafe { call(SYS_WRITE, [*group as usize, b"0".as_ptr() as usize, 1, 0, 0, 0]) });
    }
    // The child was created in the PID namespace. The user namespace comes last: the others belong to the zygote's.
    for (index, kind) in NAMESPACE_KINDS.into_iter().enumerate().skip(1) {
        must(set_namespace(params.key, at(enter_fds::FIRST_NAMESPACE + index), kind));
    }
    must(plain(SYS_SETSID, []));
    if let Some(id) = params.id {
        let id = id as usize;
        must(plain(SYS_SETRESGID, [id, id, id]));
        must(plain(SYS_SETRESUID, [id, id, id]));
    }
    // A process that enters a user namespace has every capability in it.
    let mut capability = 0;
    loop {
        match plain(SYS_PRCTL, [PR_CAPBSET_DROP, capability]) {
            EINVAL => break,
            result => must(result),
        };
        capability += 1;
    }
    let header = [CAPABILITY_VERSION, 0];
    let none = [0_u32; 6];
    // SAFETY: the kernel reads a header and two sets of three words.
    must(unsafe { call(SYS_CAPSET, [header.as_ptr() as usize, none.as_ptr() as usize, 0, 0, 0, 0]) });
    // Changing ids made the process undumpable, which would make its own /proc entry inaccessible.
    must(plain(SYS_PRCTL, [PR_SET_DUMPABLE, 1]));
    if params.landlock {
        must(plain(SYS_LANDLOCK_RESTRICT_SELF, [at(enter_fds::AFTER_NAMESPACES), 0]));
    }
    let park = at(enter_fds::PARK);
    if let ZygoteFds::Closed = rest {
        must(plain(SYS_DUP2, [park, PLACE]));
        must(plain(SYS_CLOSE_RANGE, [PLACE + 1, u32::MAX as usize, 0]));
        return PLACE;
    }
    for fd in &fds[1..] {
        plain(SYS_CLOSE, [*fd as usize]);
    }
    plain(SYS_CLOSE, [control]);
    if let ZygoteFds::Replaced(children) = rest {
        children.settle(park);
    }
    park
}

/// Reports that this child is ready, waits for a command, connects its streams and sets its limits.
///
/// # Safety
///
/// `text` must point to storage for the result, which stays valid as long as the process.
#[cfg_attr(zygote_library, unsafe(no_mangle))]
pub unsafe extern "C" fn sandbox_wait(park: i32, text: *mut CommandText) {
    /// Read and write; private and anonymous.
    const PROTECTION: usize = 3;
    const MAPPING: usize = 0x22;
    const INIT: isize = 1;
    let park = park as usize;
    // On a busy host the intermediate child may still have to end. The program's parent is init, as without a zygote.
    while plain(SYS_GETPPID, []) != INIT {
        nap();
    }
    let own = encode_pid(plain(SYS_GETPID, []) as u32);
    // SAFETY: the kernel reads these bytes.
    must(unsafe { call(SYS_WRITE, [park, own.as_ptr() as usize, own.len(), 0, 0, 0]) });
    copy_pages_unless_readable(park);
    let buffer = must(plain(SYS_MMAP, [0, MOST_COMMAND, PROTECTION, MAPPING, usize::MAX, 0])) as *mut u8;
    let mut fds = [-1; MOST_FDS];
    let Ok((length, STREAMS)) = receive(park, buffer, MOST_COMMAND, &mut fds) else { exit(0) };
    for (target, fd) in fds[..STREAMS].iter().enumerate() {
        must(plain(SYS_DUP2, [*fd as usize, target]));
    }
    for fd in &fds[..STREAMS] {
        plain(SYS_CLOSE, [*fd as usize]);
    }
    plain(SYS_CLOSE, [park]);
    // SAFETY: this many bytes were received, into a mapping that is never removed.
    let message = unsafe { core::slice::from_raw_parts(buffer, length) };
    let Some((limits, rest)) = decode_command(message) else { exit(126) };
    for (resource, value) in limits {
        let pair = [value, value];
        // SAFETY: the kernel reads two words.
        must(unsafe { call(SYS_PRLIMIT64, [0, resource as usize, pair.as_ptr() as usize, 0, 0, 0]) });
    }
    // SAFETY: the caller owns the storage.
    unsafe { *text = CommandText { data: rest.as_ptr(), length: rest.len() } };
}
