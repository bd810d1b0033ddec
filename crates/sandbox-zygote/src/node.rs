//! Additions for Node.js, which has threads, an event loop and a heap that is not meant to be forked.
//!
//! # Theory of operation
//!
//! The library is preloaded into Node.js, so that it intercepts some calls to the C library, and then loaded once more
//! as an addon, with a function that makes the process a zygote.
//!
//! - V8 asks the kernel to exclude its heap from forks (`MADV_DONTFORK`). That request is not passed on.
//! - V8 spreads its heap over the address space, which makes forks expensive: see `heap.rs`.
//! - It has threads: see `threads.rs`.
//! - The descriptors of the event loops are the zygote's: two cells that share them could communicate through them. A
//!   child replaces them with new descriptors of the same kind, and the event loop of the program creates fresh ones.
//!   They must not simply be closed: the other loops, some of which belong to the lost threads, are still written to
//!   and closed at exit, and the numbers could be in use for other files by then.
//! - Random numbers would be the same in all children; V8 gets another seed.
//! - At exit Node.js frees its heap, which touches memory that was shared until then. The kernel does that faster.

use core::ffi::c_void;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::entry::{CommandText, ZygoteFds, fork, sandbox_wait, serve};
use crate::heap;
use crate::large_pages::sandbox_use_large_pages;
use crate::rehearsal::{is_rehearsal, rehearse, sandbox_end_rehearsal};
use crate::syscall::{SYS_CLOSE, SYS_DUP2, SYS_GETPID, SYS_GETRANDOM, SYS_MADVISE, call, exit, must, plain};
use crate::threads::{bring_to_rest, in_child, need};

const SYS_FSTAT: usize = 5;
const SYS_DUP: usize = 32;
const SYS_EPOLL_WAIT: usize = 232;
const SYS_EVENTFD2: usize = 290;
const SYS_EPOLL_CREATE1: usize = 291;
const SYS_DUP3: usize = 292;
const SYS_PIPE2: usize = 293;

const EBADF: isize = -9;

unsafe extern "C" {
    fn __errno_location() -> *mut i32;
    fn on_exit(handler: extern "C" fn(i32, *mut c_void), argument: *mut c_void) -> i32;
    fn fflush(stream: *mut c_void) -> i32;
}

/// Registered first, so called last at exit.
extern "C" fn at_exit(status: i32, _: *mut c_void) {
    // SAFETY: none means all streams.
    unsafe { fflush(null_mut()) };
    if is_rehearsal() {
        sandbox_end_rehearsal();
    }
    exit(status as usize);
}

/// Replaces the C library's function: does not pass on the request to exclude memory from forks.
///
/// # Safety
///
/// As for the C library's function.
#[must_use]
#[cfg_attr(zygote_library, unsafe(no_mangle))]
pub unsafe extern "C" fn madvise(address: usize, length: usize, advice: i32) -> i32 {
    const MADV_DONTFORK: i32 = 10;
    if advice == MADV_DONTFORK {
        return 0;
    }
    // SAFETY: the caller's memory.
    let result = unsafe { call(SYS_MADVISE, [address, length, advice as usize, 0, 0, 0]) };
    if result < 0 {
        // SAFETY: the C library's variable.
        unsafe { *__errno_location() = -result as i32 };
        return -1;
    }
    0
}

type Env = *const c_void;
type Value = *const c_void;
type Callback = unsafe extern "C" fn(Env, *const c_void) -> Value;

/// Called when Node.js loads the addon.
///
/// # Safety
///
/// To be called by Node.js, with its own values.
#[must_use]
#[cfg_attr(zygote_library, unsafe(no_mangle))]
pub unsafe extern "C" fn napi_register_module_v1(env: Env, exports: Value) -> Value {
    type Function = unsafe extern "C" fn(Env, *const u8, usize, Callback, *const c_void, *mut Value) -> i32;
    type Set = unsafe extern "C" fn(Env, Value, *const u8, Value) -> i32;
    let functions: [(_, Callback); _] = [
        (c"serve", become_zygote),
        (c"wait", wait_for_program),
        (c"pipe", make_pipe),
        (c"useLargePages", use_large_pages),
        (c"exchange", exchange_fds),
        (c"turn", turn_event_loop),
    ];
    for (name, callback) in functions {
        let mut function = null();
        // SAFETY: the types are those of Node.js's functions, and the name ends with a NUL.
        unsafe {
            need::<Function>(c"napi_create_function")(env, null(), 0, callback, null(), &raw mut function);
            need::<Set>(c"napi_set_named_property")(env, exports, name.as_ptr().cast(), function);
        }
    }
    exports
}

/// The buffer argument of a function.
unsafe fn argument(env: Env, info: *const c_void) -> (*mut u8, usize) {
    type CallbackInfo =
        unsafe extern "C" fn(Env, *const c_void, *mut usize, *mut Value, *mut Value, *mut c_void) -> i32;
    type Buffer = unsafe extern "C" fn(Env, Value, *mut *mut u8, *mut usize) -> i32;
    let (mut count, mut first) = (1, null());
    let (mut data, mut length) = (null_mut(), 0);
    // SAFETY: the types are those of Node.js's functions, and each gets storage for its results.
    unsafe {
        need::<CallbackInfo>(c"napi_get_cb_info")(env, info, &raw mut count, &raw mut first, null_mut(), null_mut());
        need::<Buffer>(c"napi_get_buffer_info")(env, first, &raw mut data, &raw mut length);
    }
    (data, length)
}

/// Creates a pipe, for which Node.js has no call. Its argument is a buffer of eight bytes for the two ends.
unsafe extern "C" fn make_pipe(env: Env, info: *const c_void) -> Value {
    const CLOSE_ON_EXEC: usize = 0x8_0000;
    // SAFETY: the values come from Node.js.
    let (data, length) = unsafe { argument(env, info) };
    if length == 8 {
        // SAFETY: the kernel writes eight bytes.
        must(unsafe { call(SYS_PIPE2, [data as usize, CLOSE_ON_EXEC, 0, 0, 0, 0]) });
    }
    null()
}

/// Exchanges two descriptors, whose numbers are in a buffer of eight bytes.
unsafe extern "C" fn exchange_fds(env: Env, info: *const c_void) -> Value {
    // SAFETY: the values come from Node.js.
    let (data, length) = unsafe { argument(env, info) };
    if length == 8 {
        // SAFETY: the buffer has eight bytes.
        let [first, second] = unsafe { data.cast::<[i32; 2]>().read_unaligned() }.map(|fd| fd as usize);
        let spare = must(plain(SYS_DUP, [first]));
        must(plain(SYS_DUP2, [second, first]));
        must(plain(SYS_DUP2, [spare, second]));
        plain(SYS_CLOSE, [spare]);
    }
    null()
}

/// Whether this zygote uses large pages.
static LARGE_PAGES: AtomicBool = AtomicBool::new(false);

/// Moves the code of Node.js into large pages, and has the heap follow once no thread can write to it.
unsafe extern "C" fn use_large_pages(_: Env, _: *const c_void) -> Value {
    sandbox_use_large_pages();
    LARGE_PAGES.store(true, Ordering::Relaxed);
    null()
}

/// The event loop of this thread.
unsafe fn event_loop_of(env: Env) -> *mut c_void {
    type Loop = unsafe extern "C" fn(Env, *mut *mut c_void) -> i32;
    let mut event_loop = null_mut();
    // SAFETY: the type is that of Node.js's function, which gets storage for its result.
    unsafe { need::<Loop>(c"napi_get_uv_event_loop")(env, &raw mut event_loop) };
    if event_loop.is_null() {
        exit(126);
    }
    event_loop
}

/// Has the event loop do what is due, without waiting. Otherwise every child would do it.
unsafe extern "C" fn turn_event_loop(env: Env, _: *const c_void) -> Value {
    const NO_WAIT: i32 = 2;
    type Run = unsafe extern "C" fn(*mut c_void, i32) -> i32;
    // SAFETY: the type is that of the event loop's function, and this thread owns the loop.
    unsafe { need::<Run>(c"uv_run")(event_loop_of(env), NO_WAIT) };
    null()
}

/// Makes the process a zygote. In children, returns the descriptor at which they receive their command, or -1 in the
/// rehearsal; in the zygote, returns nothing when it is no longer needed.
unsafe extern "C" fn become_zygote(env: Env, _: *const c_void) -> Value {
    const CONTROL: i32 = 3;
    const REHEARSAL: i32 = -1;
    type Number = unsafe extern "C" fn(Env, i32, *mut Value) -> i32;
    let mut place = null();
    // SAFETY: the types are those of Node.js's functions, and each gets storage for its results.
    unsafe {
        let event_loop = event_loop_of(env);
        on_exit(at_exit, null_mut());
        bring_to_rest();
        let children = Children::new(event_loop);
        if LARGE_PAGES.load(Ordering::Relaxed) {
            heap::use_large_pages();
        }
        let is_rehearsal = rehearse(fork);
        let park = if is_rehearsal { REHEARSAL } else { serve(CONTROL, ZygoteFds::Replaced(&children), fork) };
        if is_rehearsal {
            children.settle(usize::MAX);
        }
        if is_rehearsal || park >= 0 {
            need::<Number>(c"napi_create_int32")(env, park, &raw mut place);
        }
    }
    place
}

/// Waits for the command, which it returns as text. Its argument is a buffer with the descriptor that the child got, which
/// it replaces with the child's process id.
unsafe extern "C" fn wait_for_program(env: Env, info: *const c_void) -> Value {
    type Text = unsafe extern "C" fn(Env, *const u8, usize, *mut Value) -> i32;
    let (mut command, mut text) = (CommandText { data: null(), length: 0 }, null());
    // SAFETY: the types are those of Node.js's functions, and each gets storage for its results.
    unsafe {
        let (data, length) = argument(env, info);
        if length != size_of::<i32>() {
            exit(126);
        }
        sandbox_wait(data.cast::<i32>().read_unaligned(), &raw mut command);
        data.cast::<i32>().write_unaligned(plain(SYS_GETPID, []) as i32);
        need::<Text>(c"napi_create_string_utf8")(env, command.data, command.length, &raw mut text);
    }
    text
}

/// A descriptor of the zygote, which no child may keep.
#[derive(Clone, Copy, PartialEq)]
struct SharedFd {
    fd: usize,
    kind: FdKind,
}

/// The facts about the zygote that a child needs.
pub(crate) struct Children {
    shared: [SharedFd; 64],
    count: usize,
    event_loop: *mut c_void,
    fork_loop: unsafe extern "C" fn(*mut c_void) -> i32,
    /// V8's random number generator.
    random: *mut c_void,
    set_seed: unsafe extern "C" fn(*mut c_void, i64),
}

impl Children {
    /// Examines the zygote. If a function that children need is missing, the process does not become one.
    unsafe fn new(event_loop: *mut c_void) -> Self {
        type Current = unsafe extern "C" fn() -> *mut c_void;
        type Random = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
        // SAFETY: the types are those of the event loop's and of V8's functions.
        let mut children = unsafe {
            let isolate = need::<Current>(c"_ZN2v87Isolate10GetCurrentEv")();
            let random = need::<Random>(c"_ZN2v88internal7Isolate23random_number_generatorEv")(isolate);
            let set_seed = need(c"_ZN2v84base21RandomNumberGenerator7SetSeedEl");
            let fork_loop = need(c"uv_loop_fork");
            Self {
                shared: [SharedFd { fd: 0, kind: FdKind::Other }; 64],
                count: 0,
                event_loop,
                fork_loop,
                random,
                set_seed,
            }
        };
        children.look();
        children
    }

    /// Records the zygote's descriptors.
    fn look(&mut self) {
        const FIRST: usize = 3;
        const MOST: usize = 1024;
        for fd in FIRST..MOST {
            let Some(kind) = FdKind::of(fd) else { continue };
            if self.count == self.shared.len() {
                exit(126);
            }
            self.shared[self.count] = SharedFd { fd, kind };
            self.count += 1;
        }
    }

    /// Detaches a child from the zygote. Afterwards it has no descriptor of the zygote except `kept`.
    pub(crate) fn settle(&self, kept: usize) {
        const CLOSE_ON_EXEC: usize = 0x8_0000;
        const NONBLOCKING: usize = 0x800;
        in_child();
        let idle = must(plain(SYS_EVENTFD2, [0, CLOSE_ON_EXEC | NONBLOCKING]));
        for shared in &self.shared[..self.count] {
            // It is closed, or its number was reused: event loops recreate one of their pipes after a fork.
            if shared.fd == kept || shared.fd == idle || FdKind::of(shared.fd) != Some(shared.kind) {
                continue;
            }
            if shared.kind == FdKind::Poll {
                let new = must(plain(SYS_EPOLL_CREATE1, [CLOSE_ON_EXEC]));
                must(plain(SYS_DUP3, [new, shared.fd, CLOSE_ON_EXEC]));
                plain(SYS_CLOSE, [new]);
            } else {
                must(plain(SYS_DUP3, [idle, shared.fd, CLOSE_ON_EXEC]));
            }
        }
        plain(SYS_CLOSE, [idle]);
        // A seed that no other child of the zygote has. The kernel writes eight bytes.
        let mut seed = 0_i64;
        // SAFETY: this thread owns the loop and the random number generator.
        unsafe {
            must(call(SYS_GETRANDOM, [&raw mut seed as usize, 8, 0, 0, 0, 0]));
            (self.set_seed)(self.random, seed);
            if (self.fork_loop)(self.event_loop) != 0 {
                exit(126);
            }
        }
    }
}

/// The relevant kinds of descriptors.
#[derive(Clone, Copy, PartialEq)]
enum FdKind {
    /// A pipe, by its inode.
    Pipe(u64),
    /// An epoll instance of an event loop.
    Poll,
    Other,
}

impl FdKind {
    /// The kind of a descriptor, if it is open.
    fn of(fd: usize) -> Option<Self> {
        const FORMAT: u32 = 0o170_000;
        const PIPE: u32 = 0o010_000;
        // The layout on this architecture: the inode is the second word, the mode begins the fourth.
        let mut status = [0_u64; 18];
        // SAFETY: the kernel writes 144 bytes.
        if unsafe { call(SYS_FSTAT, [fd, &raw mut status as usize, 0, 0, 0, 0]) } == EBADF {
            return None;
        }
        if status[3] as u32 & FORMAT == PIPE {
            return Some(Self::Pipe(status[1]));
        }
        let mut event = [0_u64; 2];
        // SAFETY: the kernel writes at most one event, of twelve bytes. It refuses descriptors of another kind.
        let polled = unsafe { call(SYS_EPOLL_WAIT, [fd, &raw mut event as usize, 1, 0, 0, 0]) };
        Some(if polled >= 0 { Self::Poll } else { Self::Other })
    }
}
