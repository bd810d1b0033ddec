//! The part of a zygote that an interpreter cannot do itself. It is loaded into the interpreter's process, so it stands
//! on nothing but the kernel and that process's own `fork`: no standard library, no allocation.
//!
//! # Theory of operation
//!
//! [`sandbox_zygote`] turns the process that calls it into a zygote. For every cell that it is sent it forks a child into
//! that cell, and only in those children does the call return. A child goes through the same steps as a program between
//! fork and exec (`sandbox-sys/src/spawn.rs`). When the call returns it is locked, and has seen nothing of any request; the
//! interpreter can make it ready further. [`sandbox_wait`] then says that it is, waits for what it is to run, and hands
//! that to the interpreter.
//!
//! The child has to be in the cell's PID namespace, and the cell's init has to be its parent: init reaps it, and its
//! status is the run's. So there are two forks. The zygote lets its next child be born into the cell's PID namespace;
//! that child borrows the zygote's memory, forks the real one, and ends, whereupon the real one is init's.
//!
//! The zygote's syscall filter is the children's too: none is made for each of them. It lets `setns` through only with a key
//! above the arguments (`sandbox-cell/src/syscalls/policy.rs`), which comes with each cell and is wiped from a child's
//! memory before the call returns in it.
#![no_std]
#![allow(clippy::missing_safety_doc, reason = "there is one entry, and it is explained above")]

use core::arch::asm;
use core::mem::{size_of, zeroed};

mod node;
mod threads;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(127)
}

/// The compiler's own library mentions it; nothing here unwinds.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// What a child is to run, as init wrote it.
#[repr(C)]
pub struct Go {
    data: *const u8,
    length: usize,
}

const SYS_WRITE: usize = 1;
const SYS_CLOSE: usize = 3;
const SYS_MMAP: usize = 9;
const SYS_DUP2: usize = 33;
const SYS_GETPID: usize = 39;
const SYS_RECVMSG: usize = 47;
const SYS_WAIT4: usize = 61;
const SYS_SETSID: usize = 112;
const SYS_SETRESUID: usize = 117;
const SYS_SETRESGID: usize = 119;
const SYS_CAPSET: usize = 126;
const SYS_PRCTL: usize = 157;
const SYS_EXIT_GROUP: usize = 231;
const SYS_PRLIMIT64: usize = 302;
const SYS_SETNS: usize = 308;
const SYS_GETRANDOM: usize = 318;
const SYS_PIDFD_OPEN: usize = 434;
const SYS_CLOSE_RANGE: usize = 436;
const SYS_LANDLOCK_RESTRICT_SELF: usize = 446;

const EINTR: isize = -4;
const EINVAL: isize = -22;
const EPIPE: isize = -32;

const CLONE_NEWNS: usize = 0x0002_0000;
const CLONE_NEWCGROUP: usize = 0x0200_0000;
const CLONE_NEWUTS: usize = 0x0400_0000;
const CLONE_NEWIPC: usize = 0x0800_0000;
const CLONE_NEWUSER: usize = 0x1000_0000;
const CLONE_NEWPID: usize = 0x2000_0000;
const CLONE_NEWNET: usize = 0x4000_0000;

unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: a system call changes no registers but these; what it does to memory is the caller's business.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c,
             in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// A call that concerns no memory of ours.
fn plain<const N: usize>(number: usize, arguments: [usize; N]) -> isize {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&arguments);
    // SAFETY: the callers pass numbers only.
    unsafe { call(number, all) }
}

fn exit(code: usize) -> ! {
    loop {
        plain(SYS_EXIT_GROUP, [code]);
    }
}

unsafe extern "C" {
    /// The C library's, which also does what other libraries have asked to be done when the process forks: some have
    /// threads, which do not survive it, and some have random numbers, which should differ afterwards.
    fn fork() -> i32;

    /// The C library's: what the kernel told the program when it started.
    fn getauxval(kind: u64) -> usize;
}

/// Forks twice, as told above. Zero in the grandchild; in the caller the id of the child in between, which has ended or
/// is about to.
unsafe fn fork_twice() -> isize {
    /// `CLONE_VM | CLONE_VFORK`, and SIGCHLD at its end.
    const BORROW: usize = 0x0000_4100 | 17;
    let result: isize;
    // SAFETY: the child in between has the caller's memory and its stack. Below where the caller's ends it may do what it
    // likes: the caller waits until it has ended. (The red zone, which a compiler may use below that, is left alone.)
    // The grandchild has a copy of everything, as after any fork, and goes on with the caller's stack.
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

const MOST_FDS: usize = 24;

#[repr(C)]
struct Slice {
    base: *mut u8,
    length: usize,
}

#[repr(C)]
struct Message {
    name: usize,
    name_length: usize,
    slices: *mut Slice,
    slice_count: usize,
    control: *mut Control,
    control_length: usize,
    flags: usize,
}

#[repr(C)]
struct Control {
    length: usize,
    level: i32,
    kind: i32,
    fds: [i32; MOST_FDS],
}

/// Receives a message and its descriptors: how many bytes, and how many descriptors.
fn receive(socket: usize, buffer: *mut u8, length: usize, fds: &mut [i32; MOST_FDS]) -> Result<(usize, usize), isize> {
    const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;
    loop {
        // SAFETY: all zeroes is a valid value of these.
        let mut control: Control = unsafe { zeroed() };
        let mut slice = Slice { base: buffer, length };
        let mut message = Message {
            name: 0,
            name_length: 0,
            slices: &raw mut slice,
            slice_count: 1,
            control: &raw mut control,
            control_length: size_of::<Control>(),
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

/// What comes with the descriptors of a cell.
#[repr(C)]
#[derive(Clone, Copy)]
struct Kit {
    landlock: u32,
    groups: u32,
    change_ids: u32,
    id: u32,
    key: u64,
}

impl Kit {
    /// Enters a namespace. The kernel takes two ints; what stands above them is for the filter.
    fn set_namespace(&self, fd: usize, kind: usize) -> isize {
        const HIGH: usize = 0xffff_ffff << 32;
        let key = self.key as usize;
        plain(SYS_SETNS, [fd | key & HIGH, kind | key << 32])
    }
}

/// Clears what was on the stack below the caller's frame.
#[inline(never)]
fn wipe_stack() {
    let mut area = [0_u8; 16 * 1024];
    for byte in &mut area {
        // SAFETY: a byte of our own. The compiler must not leave it out.
        unsafe { core::ptr::write_volatile(byte, 0) };
    }
}

/// The fixed order of a cell's descriptors; a Landlock ruleset and its groups follow.
const PARK: usize = 0;
const PID: usize = 1;
const JOINED: [usize; 6] = [CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWNET, CLONE_NEWCGROUP, CLONE_NEWNS, CLONE_NEWUSER];
const FIXED: usize = 2 + JOINED.len();

/// What becomes of the zygote's own descriptors in its children.
#[derive(Clone, Copy)]
enum Rest<'a> {
    Kept,
    Closed,
    /// They are needed, but not as they are.
    Replaced(&'a node::Children),
}

/// Becomes a zygote that hears of cells on `control`. With `close_all`, children keep no descriptor but their streams.
/// Returns in a child the descriptor to wait at, and in the zygote, when it is not needed any more, -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sandbox_zygote(control: i32, close_all: i32) -> i32 {
    let rest = if close_all != 0 { Rest::Closed } else { Rest::Kept };
    // SAFETY: as the caller promises.
    unsafe { serve(control, rest) }
}

/// The same for callers who have more to say about descriptors.
unsafe fn serve(control: i32, rest: Rest<'_>) -> i32 {
    // SAFETY: as the caller promises.
    let park = unsafe { hear_of_cells(control, rest) };
    wipe_stack();
    park
}

#[inline(never)]
unsafe fn hear_of_cells(control: i32, rest: Rest<'_>) -> i32 {
    const WALL: usize = 0x4000_0000;
    let control = control as usize;
    let pid = plain(SYS_GETPID, []);
    let own = plain(SYS_PIDFD_OPEN, [pid as usize, 0]);
    if own < 0 {
        return -1;
    }
    let own = own as usize;
    // SAFETY: the bytes are constant.
    unsafe { call(SYS_WRITE, [control, b"ready".as_ptr() as usize, 5, 0, 0, 0]) };
    loop {
        let mut kit = Kit { landlock: 0, groups: 0, change_ids: 0, id: 0, key: 0 };
        let mut fds = [-1; MOST_FDS];
        let Ok((length, count)) = receive(control, (&raw mut kit).cast(), size_of::<Kit>(), &mut fds) else {
            return -1;
        };
        let whole = FIXED + usize::from(kit.landlock != 0) + kit.groups as usize;
        let entered =
            length == size_of::<Kit>() && count == whole && kit.set_namespace(fds[PID] as usize, CLONE_NEWPID) == 0;
        if entered {
            // SAFETY: only this thread goes on in the child, as after every fork.
            let child = unsafe { fork_twice() };
            if child == 0 {
                // Libraries know by the id that they were forked. In another namespace it could be the same.
                if plain(SYS_GETPID, []) == pid {
                    exit(126);
                }
                plain(SYS_CLOSE, [own]);
                // SAFETY: as the caller promises.
                return unsafe { enter(&fds[..count], kit, control, rest) } as i32;
            }
            if kit.set_namespace(own, CLONE_NEWPID) != 0 {
                // What is forked next would be born in somebody's cell.
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

fn must(result: isize) -> usize {
    if result < 0 {
        exit(126);
    }
    result as usize
}

/// Gives a child other random bytes than the kernel gave the zygote when that started. Whoever looks for a seed there finds
/// one that no other child has.
///
/// What the C library has made of the zygote's bytes stays as it is: the value that guards stack frames, and the one that
/// guards saved addresses. Frames that are still to be returned from and addresses that are still to be jumped to have
/// been guarded with them, so that a child with other values would end at once. All children of a zygote have these in
/// common, as they have the layout of memory; what a child executes has its own.
fn renew_seed() {
    const AT_RANDOM: u64 = 25;
    const LENGTH: usize = 16;
    // SAFETY: it only looks something up.
    let place = unsafe { getauxval(AT_RANDOM) };
    if place != 0 {
        // SAFETY: the kernel put that many bytes there, on this process's stack, for it alone; it now writes others.
        let written = must(unsafe { call(SYS_GETRANDOM, [place, LENGTH, 0, 0, 0, 0]) });
        if written != LENGTH {
            exit(126);
        }
    }
}

/// Where a child waits: above the streams.
const PLACE: usize = 3;

unsafe fn enter(fds: &[i32], kit: Kit, control: usize, rest: Rest<'_>) -> usize {
    const PR_SET_DUMPABLE: usize = 4;
    const PR_CAPBSET_DROP: usize = 24;
    const CAPABILITY_VERSION: u32 = 0x2008_0522;
    renew_seed();
    let at = |index: usize| fds[index] as usize;
    let after = FIXED + usize::from(kit.landlock != 0);
    for group in &fds[after..] {
        // SAFETY: the byte is constant.
        must(unsafe { call(SYS_WRITE, [*group as usize, b"0".as_ptr() as usize, 1, 0, 0, 0]) });
    }
    // The user namespace last: the others belong to the one that the zygote is in.
    for (index, kind) in JOINED.into_iter().enumerate() {
        must(kit.set_namespace(at(2 + index), kind));
    }
    must(plain(SYS_SETSID, []));
    let id = kit.id as usize;
    if kit.change_ids != 0 {
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
    // Other ids made it undumpable, which would take its own /proc entry from it.
    must(plain(SYS_PRCTL, [PR_SET_DUMPABLE, 1]));
    if kit.landlock != 0 {
        must(plain(SYS_LANDLOCK_RESTRICT_SELF, [at(FIXED), 0]));
    }
    let park = at(PARK);
    if let Rest::Closed = rest {
        must(plain(SYS_DUP2, [park, PLACE]));
        must(plain(SYS_CLOSE_RANGE, [PLACE + 1, u32::MAX as usize, 0]));
        return PLACE;
    }
    for fd in &fds[1..] {
        plain(SYS_CLOSE, [*fd as usize]);
    }
    plain(SYS_CLOSE, [control]);
    if let Rest::Replaced(children) = rest {
        children.settle(park);
    }
    park
}

/// The longest message of init's; see `sandbox-cell/src/wire.rs`.
const MOST: usize = 256 * 1024;

/// Says that this child is ready, waits for something to run, connects its streams and sets its limits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sandbox_wait(park: i32, go: *mut Go) {
    /// Read and write; private and of no file.
    const PROTECTION: usize = 3;
    const MAPPING: usize = 0x22;
    let park = park as usize;
    let own = plain(SYS_GETPID, []) as u32;
    // SAFETY: the kernel reads four bytes.
    must(unsafe { call(SYS_WRITE, [park, &raw const own as usize, 4, 0, 0, 0]) });
    let buffer = must(plain(SYS_MMAP, [0, MOST, PROTECTION, MAPPING, usize::MAX, 0])) as *mut u8;
    let mut fds = [-1; MOST_FDS];
    let Ok((length, 3)) = receive(park, buffer, MOST, &mut fds) else { exit(0) };
    for (target, fd) in fds[..3].iter().enumerate() {
        must(plain(SYS_DUP2, [*fd as usize, target]));
    }
    for fd in &fds[..3] {
        plain(SYS_CLOSE, [*fd as usize]);
    }
    plain(SYS_CLOSE, [park]);
    // A count, then for each limit which it is and its value, all of eight bytes.
    let word = |index: usize| {
        if (index + 1) * 8 > length {
            exit(126);
        }
        // SAFETY: within what was received, in a mapping that begins at a page.
        unsafe { *buffer.cast::<u64>().add(index) }
    };
    let count = word(0) as usize;
    for index in 0..count.min(64) {
        let (which, value) = (word(1 + 2 * index), word(2 + 2 * index));
        let pair = [value, value];
        // SAFETY: the kernel reads two words.
        must(unsafe { call(SYS_PRLIMIT64, [0, which as usize, pair.as_ptr() as usize, 0, 0, 0]) });
    }
    let start = (1 + 2 * count) * 8;
    if start > length {
        exit(126);
    }
    // SAFETY: the caller's `go` is his own; the data is within the mapping.
    unsafe { *go = Go { data: buffer.add(start), length: length - start } };
}
