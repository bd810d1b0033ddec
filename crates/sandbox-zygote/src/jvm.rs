//! Additions for the Java virtual machine, which cannot do without its threads.
//!
//! # Theory of operation
//!
//! The library is loaded into the JVM by a class `Compiler`, whose native methods are here. Garbage collection and
//! safepoints need threads of the JVM, so children get copies of all threads, not only of the one that forks:
//!
//! - Every other thread is interrupted by a signal, wherever it is, and *rests* in the handler. In the zygote it rests
//!   until the end, so that nothing changes between two children.
//! - A child that is locked in its cell *revives* them: for each it creates a kernel thread with the same stack and the
//!   same thread-local storage, which returns from the handler. The kernel restores the registers from the stack. A system
//!   call that was interrupted fails with `EINTR` or is repeated, as after any signal.
//! - The C library's `fork` would reset its own records of the other threads, for example whose memory arenas are in use.
//!   So the kernel's is used, and the C library only learns the new ids.
//!
//! The JVM reads classes through a descriptor that it keeps open. A child keeps no descriptor of the zygote, because two
//! cells could communicate through its position, but opens the same files again under the same numbers.
//!
//! The thread that forks must not return to Java in the zygote, because it could wait for a thread that rests.

use core::arch::{asm, naked_asm};
use core::ffi::c_void;
use core::ptr::null;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::entry::{CommandText, ZygoteFds, sandbox_wait, serve};
use crate::syscall::{SYS_CLOSE, SYS_GETPID, SYS_OPEN, SYS_PRCTL, call, exit, must, nap, plain};

const SYS_FSTAT: usize = 5;
const SYS_RT_SIGACTION: usize = 13;
const SYS_CLONE: usize = 56;
const SYS_FCNTL: usize = 72;
const SYS_CHDIR: usize = 80;
const SYS_READLINK: usize = 89;
const SYS_GETTID: usize = 186;
const SYS_GETDENTS64: usize = 217;
const SYS_TGKILL: usize = 234;
const SYS_DUP3: usize = 292;

/// The signal that brings a thread to rest: a real-time signal that neither the C library nor the JVM uses.
const REST: usize = 60;

/// How long all threads may take to come to rest, in milliseconds.
const PATIENCE: usize = 10_000;

/// The control connection.
const CONTROL: i32 = 3;

/// A thread that rests.
struct Resting {
    /// The end of its stack, on which its registers are. Stored last; zero until then.
    stack: AtomicUsize,
    id: AtomicUsize,
    /// Where the C library has its thread-local storage.
    storage: AtomicUsize,
    /// Where the C library has its id.
    id_place: AtomicUsize,
}

const MOST: usize = 64;
static THREADS: [Resting; MOST] = [const {
    Resting {
        stack: AtomicUsize::new(0),
        id: AtomicUsize::new(0),
        storage: AtomicUsize::new(0),
        id_place: AtomicUsize::new(0),
    }
}; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The address at which the C library has the id of the thread that forks.
static FORKING: AtomicUsize = AtomicUsize::new(0);

/// All threads that rest, or are about to.
fn all() -> &'static [Resting] {
    &THREADS[..COUNT.load(Ordering::SeqCst).min(MOST)]
}

/// The address at which the C library has the id of the calling thread, which the kernel clears when the thread ends.
fn id_place() -> usize {
    const PR_GET_TID_ADDRESS: usize = 40;
    let mut place = 0_usize;
    // SAFETY: the kernel writes a word.
    must(unsafe { call(SYS_PRCTL, [PR_GET_TID_ADDRESS, &raw mut place as usize, 0, 0, 0, 0]) });
    place
}

/// The handler of the signal. Returns in children only, in the thread that continues this one.
extern "C" fn come_to_rest(_: i32) {
    let number = COUNT.fetch_add(1, Ordering::SeqCst);
    // More threads than a zygote should have.
    let Some(own) = THREADS.get(number) else { exit(126) };
    let storage: usize;
    // SAFETY: the first word of the thread-local storage is its own address.
    unsafe { asm!("mov {}, fs:[0]", out(reg) storage, options(nostack, readonly, preserves_flags)) };
    own.storage.store(storage, Ordering::SeqCst);
    own.id_place.store(id_place(), Ordering::SeqCst);
    own.id.store(plain(SYS_GETTID, []) as usize, Ordering::SeqCst);
    // SAFETY: the slot is static, and nothing else stores its stack.
    unsafe { rest(own.stack.as_ptr()) };
}

/// Saves the registers that a function has to preserve on the stack, stores its end, and never returns in this thread.
#[unsafe(naked)]
unsafe extern "C" fn rest(stack: *mut usize) {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "2:",
        "mov eax, {pause}",
        "syscall",
        "jmp 2b",
        pause = const 34,
    )
}

/// Creates a thread that returns from [`rest`] on another's stack. Returns its id, or an error.
#[unsafe(naked)]
unsafe extern "C" fn continue_thread(
    flags: usize,
    stack: usize,
    parent_place: usize,
    child_place: usize,
    storage: usize,
) -> isize {
    naked_asm!(
        "mov r10, rcx",
        "mov eax, {clone}",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
        clone = const SYS_CLONE,
    )
}

/// Returns from a signal handler. The C library has such a function, which it does not export.
#[unsafe(naked)]
unsafe extern "C" fn return_from_signal() {
    naked_asm!("mov eax, {sigreturn}", "syscall", sigreturn = const 15)
}

/// Sets what happens at the signal: a handler, or zero for the default.
fn handle(handler: usize) {
    /// `SA_RESTORER | SA_RESTART`
    const FLAGS: usize = 0x1400_0000;
    let action = [handler, FLAGS, return_from_signal as *const () as usize, usize::MAX];
    // SAFETY: the kernel reads a handler, flags, the function that returns from the handler, and a set of signals.
    must(unsafe { call(SYS_RT_SIGACTION, [REST, &raw const action as usize, 0, size_of::<usize>(), 0, 0]) });
}

/// Brings all other threads to rest, including those that were started meanwhile.
fn bring_to_rest() {
    handle(come_to_rest as *const () as usize);
    let (process, own) = (plain(SYS_GETPID, []) as usize, plain(SYS_GETTID, []) as usize);
    let mut left = PATIENCE;
    let rests = |id: usize| {
        let is = |known: &Resting| known.id.load(Ordering::SeqCst) == id && known.stack.load(Ordering::SeqCst) != 0;
        all().iter().any(is)
    };
    loop {
        let mut awake = false;
        each_thread(|id| {
            if id != own && !rests(id) {
                awake = true;
                // A signal that is sent again stays pending, because the handler of the first blocks it.
                plain(SYS_TGKILL, [process, id, REST]);
            }
        });
        if !awake {
            return;
        }
        nap();
        left -= 1;
        if left == 0 {
            exit(126);
        }
    }
}

/// Calls a function with the id of each thread of this process.
fn each_thread(mut visit: impl FnMut(usize)) {
    const DIRECTORY: usize = 0x1_0000;
    const NAME: usize = 19;
    // SAFETY: the path ends with a NUL.
    let listed = must(unsafe { call(SYS_OPEN, [c"/proc/self/task".as_ptr() as usize, DIRECTORY, 0, 0, 0, 0]) });
    let mut buffer = [0_u8; 2048];
    loop {
        // SAFETY: the kernel writes at most the size of the buffer.
        let read = unsafe { call(SYS_GETDENTS64, [listed, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) };
        let mut entries = &buffer[..must(read)];
        if entries.is_empty() {
            break;
        }
        // An entry has an inode, an offset, its size and a type before its name.
        while let [_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, low, high, ..] = *entries {
            let (entry, others) = entries.split_at(usize::from(u16::from_ne_bytes([low, high])));
            let digits = entry[NAME..].iter().take_while(|byte| byte.is_ascii_digit());
            let id = digits.fold(0, |id, digit| id * 10 + usize::from(digit - b'0'));
            if id != 0 {
                visit(id);
            }
            entries = others;
        }
    }
    plain(SYS_CLOSE, [listed]);
}

/// Forks without the C library, which only gets the new id of the calling thread.
pub(crate) unsafe extern "C" fn fork_alone() -> i32 {
    /// `CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID`, and SIGCHLD at its end.
    const FLAGS: usize = 0x0120_0000 | 0x11;
    let place = FORKING.load(Ordering::SeqCst);
    // SAFETY: the kernel writes the id to the child's copy of the C library's record of this thread.
    (unsafe { call(SYS_CLONE, [FLAGS, 0, 0, place, 0, 0]) }) as i32
}

/// Continues every thread that rests in the zygote.
unsafe fn revive() {
    /// A thread of the C library's: shares everything, with its own storage and its id where the C library expects it
    /// (`CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
    /// CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID`).
    const FLAGS: usize = 0x003d_0f00;
    handle(0);
    for thread in all() {
        let [stack, place, storage] =
            [&thread.stack, &thread.id_place, &thread.storage].map(|value| value.load(Ordering::SeqCst));
        // SAFETY: nothing else uses that stack and that storage: the thread itself exists in the zygote only.
        must(unsafe { continue_thread(FLAGS, stack, place, place, storage) });
    }
}

/// A file that the zygote has open for reading.
struct OpenFile {
    fd: usize,
    /// Ends with a NUL.
    path: [u8; OpenFile::MOST_PATH],
}

impl OpenFile {
    const MOST_PATH: usize = 512;

    /// The file behind a descriptor, if it is one that can be opened again: a regular file or a device.
    fn of(fd: usize) -> Option<Self> {
        const F_GETFL: usize = 3;
        const ACCESS: isize = 3;
        const FORMAT: u32 = 0o170_000;
        const FILE: u32 = 0o100_000;
        const DEVICE: u32 = 0o020_000;
        // The layout on this architecture: the mode begins the fourth word.
        let mut status = [0_u64; 18];
        // SAFETY: the kernel writes 144 bytes.
        let found = unsafe { call(SYS_FSTAT, [fd, &raw mut status as usize, 0, 0, 0, 0]) };
        let is_file = matches!(status[3] as u32 & FORMAT, FILE | DEVICE);
        if found < 0 || !is_file || plain(SYS_FCNTL, [fd, F_GETFL]) & ACCESS != 0 {
            return None;
        }
        let mut link = *b"/proc/self/fd/\0\0\0\0\0";
        let digits = &mut link[14..18];
        for (place, divisor) in digits.iter_mut().zip([1000, 100, 10, 1]) {
            *place = b'0' + (fd / divisor % 10) as u8;
        }
        // The kernel accepts no leading zeros.
        let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
        digits.rotate_left(zeros);
        digits[4 - zeros..].fill(0);
        let mut path = [0; Self::MOST_PATH];
        // SAFETY: the link ends with a NUL, and the kernel writes at most the given number of bytes.
        let length =
            unsafe { call(SYS_READLINK, [link.as_ptr() as usize, path.as_mut_ptr() as usize, path.len(), 0, 0, 0]) };
        (0 < length && (length as usize) < path.len()).then_some(Self { fd, path })
    }

    /// Opens it again in a child.
    fn reopen(&self) {
        const CLOSE_ON_EXEC: usize = 0x8_0000;
        // SAFETY: the path ends with a NUL.
        let new = must(unsafe { call(SYS_OPEN, [self.path.as_ptr() as usize, CLOSE_ON_EXEC, 0, 0, 0, 0]) });
        if new != self.fd {
            must(plain(SYS_DUP3, [new, self.fd, CLOSE_ON_EXEC]));
            plain(SYS_CLOSE, [new]);
        }
    }
}

/// The function table of the Java Native Interface, as far as it is used here.
type JniEnv = *const *const *const c_void;

/// `static native int serve()`: makes the process a zygote. Returns the descriptor at which a child waits, in children
/// only.
///
/// # Safety
///
/// To be called by the JVM.
#[must_use]
#[cfg_attr(zygote_library, unsafe(export_name = "Java_Compiler_serve"))]
pub unsafe extern "C" fn become_zygote(_: JniEnv, _: *const c_void) -> i32 {
    /// A JVM has few files open.
    const MOST_FILES: usize = 8;
    const MOST_FD: usize = 256;
    FORKING.store(id_place(), Ordering::SeqCst);
    bring_to_rest();
    let mut files = [const { None }; MOST_FILES];
    let open = (CONTROL as usize + 1..MOST_FD).filter_map(OpenFile::of);
    for (number, file) in open.enumerate() {
        let Some(place) = files.get_mut(number) else { exit(126) };
        *place = Some(file);
    }
    // SAFETY: a child continues the threads that hold locks.
    let park = unsafe { serve(CONTROL, ZygoteFds::Closed, fork_alone) };
    if park < 0 {
        exit(0);
    }
    for file in files.iter().flatten() {
        file.reopen();
    }
    // SAFETY: this is a child, and the only thread in it.
    unsafe { revive() };
    park
}

/// `static native ByteBuffer await(int)`: waits for the command and enters its working directory, which Java cannot do.
///
/// # Safety
///
/// To be called by the JVM, in a child.
#[must_use]
#[cfg_attr(zygote_library, unsafe(export_name = "Java_Compiler_await"))]
pub unsafe extern "C" fn await_command(env: JniEnv, _: *const c_void, park: i32) -> *const c_void {
    /// The position of `NewDirectByteBuffer` in the table, which is part of its specification.
    const NEW_DIRECT_BYTE_BUFFER: usize = 229;
    type NewBuffer = unsafe extern "C" fn(JniEnv, *mut c_void, i64) -> *const c_void;
    let mut command = CommandText { data: null(), length: 0 };
    // SAFETY: the command begins with the working directory, which ends with a NUL, and is never freed. The JVM passes its
    // own table, whose entry has this type.
    unsafe {
        sandbox_wait(park, &raw mut command);
        must(call(SYS_CHDIR, [command.data as usize, 0, 0, 0, 0, 0]));
        let entry = (*env).add(NEW_DIRECT_BYTE_BUFFER).cast::<Option<NewBuffer>>().read();
        entry.map_or(null(), |create| create(env, command.data.cast_mut().cast(), command.length as i64))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::fs::{File, OpenOptions};
    use std::os::fd::AsRawFd;
    use std::vec::Vec;

    use super::*;

    fn ids() -> Vec<usize> {
        let mut ids = Vec::new();
        each_thread(|id| ids.push(id));
        ids
    }

    #[test]
    fn every_thread_is_listed_once() {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            tell.send(plain(SYS_GETTID, []) as usize).expect("received");
            let _ = wait.recv();
        });
        let other_id = told.recv().expect("sent");
        let listed = ids();
        for id in [plain(SYS_GETTID, []) as usize, other_id] {
            assert_eq!(listed.iter().filter(|listed| **listed == id).count(), 1, "{listed:?}");
        }
        drop(done);
        other.join().expect("ended");
    }

    #[test]
    fn files_that_are_open_for_reading_can_be_opened_again() {
        let path = std::env::current_exe().expect("known");
        let file = File::open(&path).expect("open");
        let found = OpenFile::of(file.as_raw_fd() as usize).expect("a file");
        let shown = CStr::from_bytes_until_nul(&found.path).expect("ends");
        assert_eq!(shown.to_bytes(), path.as_os_str().as_encoded_bytes());
    }

    #[test]
    fn other_descriptors_are_not_opened_again() {
        let writable = OpenOptions::new().write(true).open("/dev/null").expect("open");
        assert!(OpenFile::of(writable.as_raw_fd() as usize).is_none());
        let (reader, _writer) = std::io::pipe().expect("made");
        assert!(OpenFile::of(reader.as_raw_fd() as usize).is_none());
        assert!(OpenFile::of(9_999).is_none(), "not open");
    }
}
