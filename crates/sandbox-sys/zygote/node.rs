//! What Node.js needs besides: it has threads, an event loop and a heap that is not meant to be forked.
//!
//! # Theory of operation
//!
//! The library is preloaded into Node.js, so that some calls of the C library's come here first, and then loaded once more
//! as an addon, whose one function makes a zygote of the process.
//!
//! - V8 asks the kernel to leave its heap out of forks. That request is not passed on.
//! - Even single-threaded it starts threads, which only exist in the zygote. When a child ends it waits for them; as far
//!   as it is concerned, they have ended. They have stacks of their own, so that no thread of a child's gets the name of
//!   one that is gone. When the process becomes a zygote they come to rest, and where they rest they hold nothing: a
//!   condition variable for which somebody waited who is not there any more could not be used by a child.
//! - The event loops' descriptors are the zygote's: two cells that had them in common could talk through them. In a
//!   child they become descriptors of its own, of the same kind as far as anybody notices. Then the loop of the program
//!   makes itself new ones. They must not just be closed: the other loops, of which some were the lost threads', are still
//!   written to and taken apart in the end, and the numbers could be somebody else's by then.

use core::ffi::{CStr, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::{Go, Rest, SYS_CLOSE, SYS_GETPID, SYS_MMAP, call, exit, must, plain, serve};

const SYS_FSTAT: usize = 5;
const SYS_MADVISE: usize = 28;
const SYS_PAUSE: usize = 34;
const SYS_NANOSLEEP: usize = 35;
const SYS_GETTID: usize = 186;
const SYS_EPOLL_WAIT: usize = 232;
const SYS_EVENTFD2: usize = 290;
const SYS_EPOLL_CREATE1: usize = 291;
const SYS_DUP3: usize = 292;
const SYS_GETRANDOM: usize = 318;

const EBADF: isize = -9;

unsafe extern "C" {
    fn dlsym(handle: *const c_void, name: *const u8) -> *const c_void;
    fn __errno_location() -> *mut i32;
}

/// In all libraries, or in those after this one.
const ANYWHERE: usize = 0;
const NEXT: usize = usize::MAX;

/// A function of the C library's that was replaced here. Of some there are older ones of the same name.
unsafe fn original<F: Copy>(name: &CStr) -> F {
    type Versioned = unsafe extern "C" fn(*const c_void, *const u8, *const u8) -> *const c_void;
    const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
    // SAFETY: the type is that of the C library's function, if it has it, and the names end with a NUL.
    unsafe {
        let versioned = dlsym(ANYWHERE as *const c_void, c"dlvsym".as_ptr().cast());
        if !versioned.is_null() {
            let versioned = *(&raw const versioned).cast::<Versioned>();
            let found = versioned(NEXT as *const c_void, name.as_ptr().cast(), c"GLIBC_2.3.2".as_ptr().cast());
            if !found.is_null() {
                return *(&raw const found).cast::<F>();
            }
        }
        need(NEXT, name)
    }
}

/// A function of the process's, without which it cannot go on. `F` must be the type of a pointer to it.
unsafe fn need<F: Copy>(place: usize, name: &CStr) -> F {
    const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
    // SAFETY: the name ends with a NUL.
    let found = unsafe { dlsym(place as *const c_void, name.as_ptr().cast()) };
    if found.is_null() {
        exit(126);
    }
    // SAFETY: as the caller promises.
    unsafe { *(&raw const found).cast::<F>() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn madvise(address: usize, length: usize, advice: i32) -> i32 {
    const MADV_DONTFORK: i32 = 10;
    if advice == MADV_DONTFORK {
        return 0;
    }
    // SAFETY: the caller's own memory.
    let result = unsafe { call(SYS_MADVISE, [address, length, advice as usize, 0, 0, 0]) };
    if result < 0 {
        // SAFETY: the C library's own variable.
        unsafe { *__errno_location() = -result as i32 };
        return -1;
    }
    0
}

/// Whether this is a child.
static CHILD: AtomicBool = AtomicBool::new(false);

/// The zygote's threads.
static THREADS: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];

type Create = unsafe extern "C" fn(*mut usize, *mut c_void, *const c_void, *const c_void) -> i32;

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut usize,
    attributes: *mut c_void,
    start: *const c_void,
    argument: *const c_void,
) -> i32 {
    // SAFETY: the types are those of the C library's functions.
    let create: Create = unsafe { original(c"pthread_create") };
    if CHILD.load(Ordering::Relaxed) {
        // SAFETY: as the caller promises.
        return unsafe { create(thread, attributes, start, argument) };
    }
    // SAFETY: as above.
    let result = unsafe { create_apart(create, thread, attributes, start, argument) };
    if result == 0 {
        // SAFETY: it has been set.
        let id = unsafe { *thread };
        let is_noted =
            |slot: &AtomicUsize| slot.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !THREADS.iter().any(is_noted) {
            // It has more threads than a zygote should.
            exit(126);
        }
    }
    result
}

/// Starts a thread on a stack that no other thread will ever have.
unsafe fn create_apart(
    create: Create,
    thread: *mut usize,
    attributes: *mut c_void,
    start: *const c_void,
    argument: *const c_void,
) -> i32 {
    const STACK: usize = 8 << 20;
    /// Read and write; private, of no file, and not accounted for before it is used.
    const PROTECTION: usize = 3;
    const MAPPING: usize = 0x4022;
    // SAFETY: the types are those of the C library's functions.
    let (init, set): (unsafe extern "C" fn(*mut c_void) -> i32, unsafe extern "C" fn(*mut c_void, usize, usize) -> i32) =
        unsafe { (need(ANYWHERE, c"pthread_attr_init"), need(ANYWHERE, c"pthread_attr_setstack")) };
    let stack = must(plain(SYS_MMAP, [0, STACK, PROTECTION, MAPPING, usize::MAX, 0]));
    // More than any C library has in them.
    let mut fresh = [0_u64; 32];
    let mut used = attributes;
    // SAFETY: attributes of the caller's, or fresh ones; whoever made his own is done with them after this.
    unsafe {
        if used.is_null() {
            used = (&raw mut fresh).cast();
            init(used);
        }
        set(used, stack, STACK);
        create(thread, used, start, argument)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_join(thread: usize, result: *mut *mut c_void) -> i32 {
    if CHILD.load(Ordering::Relaxed) && THREADS.iter().any(|known| known.load(Ordering::Relaxed) == thread) {
        return 0;
    }
    // SAFETY: the type is that of the C library's function, and the rest is the caller's promise.
    unsafe { original::<unsafe extern "C" fn(usize, *mut *mut c_void) -> i32>(c"pthread_join")(thread, result) }
}

/// Whether the process is a zygote, whose threads rest.
static RESTS: AtomicBool = AtomicBool::new(false);

/// The threads that have waited for something: twice the id, and one if the thread does not wait at the moment.
static WAITED: [AtomicUsize; THREADS.len()] = [const { AtomicUsize::new(0) }; THREADS.len()];

/// In a child, what it says. Before that, returns every now and then, as it may, and does not wait with the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_cond_wait(condition: *mut c_void, mutex: *mut c_void) -> i32 {
    type Wait = unsafe extern "C" fn(*mut c_void, *mut c_void) -> i32;
    type Simple = unsafe extern "C" fn(*mut c_void) -> i32;
    if CHILD.load(Ordering::Relaxed) {
        // SAFETY: the type is that of the C library's function, and the rest is the caller's promise.
        return unsafe { original::<Wait>(c"pthread_cond_wait")(condition, mutex) };
    }
    let thread = plain(SYS_GETTID, []) as usize;
    let own = if thread as isize == plain(SYS_GETPID, []) { None } else { Some(slot_of(thread)) };
    // SAFETY: the types are those of the C library's functions, and the caller holds the lock.
    unsafe { need::<Simple>(ANYWHERE, c"pthread_mutex_unlock")(mutex) };
    if let Some(slot) = own {
        slot.store(thread * 2, Ordering::SeqCst);
    }
    nap();
    if let Some(slot) = own {
        slot.store(thread * 2 + 1, Ordering::SeqCst);
        if RESTS.load(Ordering::SeqCst) {
            slot.store(thread * 2, Ordering::SeqCst);
            loop {
                plain(SYS_PAUSE, []);
            }
        }
    }
    // SAFETY: as above.
    unsafe { need::<Simple>(ANYWHERE, c"pthread_mutex_lock")(mutex) }
}

fn slot_of(thread: usize) -> &'static AtomicUsize {
    let known = WAITED.iter().find(|slot| slot.load(Ordering::SeqCst) / 2 == thread);
    let take =
        |slot: &&AtomicUsize| slot.compare_exchange(0, thread * 2 + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    known.or_else(|| WAITED.iter().find(take)).unwrap_or_else(|| exit(126))
}

/// Waits until the other threads rest.
fn bring_to_rest() {
    RESTS.store(true, Ordering::SeqCst);
    while WAITED.iter().any(|slot| slot.load(Ordering::SeqCst) % 2 == 1) {
        nap();
    }
}

/// A millisecond.
fn nap() {
    let time = [0_u64, 1_000_000];
    // SAFETY: the kernel reads two words.
    unsafe { call(SYS_NANOSLEEP, [&raw const time as usize, 0, 0, 0, 0, 0]) };
}

type Env = *const c_void;
type Value = *const c_void;
type Callback = unsafe extern "C" fn(Env, *const c_void) -> Value;

/// Node.js loads the addon: its one function is all there is to it.
#[unsafe(no_mangle)]
unsafe extern "C" fn napi_register_module_v1(env: Env, _exports: Value) -> Value {
    type Function = unsafe extern "C" fn(Env, *const u8, usize, Callback, *const c_void, *mut Value) -> i32;
    let mut function = null();
    // SAFETY: the type is that of Node.js's function.
    unsafe { need::<Function>(ANYWHERE, c"napi_create_function")(env, null(), 0, become_zygote, null(), &raw mut function) };
    function
}

/// Makes a zygote of the process. Its argument is a buffer with the rules about system calls. In children, returns what
/// to run as text; in the zygote, nothing, when it is not needed any more.
unsafe extern "C" fn become_zygote(env: Env, info: *const c_void) -> Value {
    const CONTROL: i32 = 3;
    type Arguments = unsafe extern "C" fn(Env, *const c_void, *mut usize, *mut Value, *mut Value, *mut c_void) -> i32;
    type Buffer = unsafe extern "C" fn(Env, Value, *mut *const u8, *mut usize) -> i32;
    type Loop = unsafe extern "C" fn(Env, *mut *mut c_void) -> i32;
    type Text = unsafe extern "C" fn(Env, *const u8, usize, *mut Value) -> i32;
    let (mut count, mut argument) = (1, null());
    let (mut filter, mut length) = (null(), 0);
    let (mut go, mut text) = (Go { data: null(), length: 0 }, null());
    let mut event_loop = null_mut();
    // SAFETY: the types are those of Node.js's functions, and each gets places for what it returns.
    unsafe {
        need::<Arguments>(ANYWHERE, c"napi_get_cb_info")(
            env,
            info,
            &raw mut count,
            &raw mut argument,
            null_mut(),
            null_mut(),
        );
        need::<Buffer>(ANYWHERE, c"napi_get_buffer_info")(env, argument, &raw mut filter, &raw mut length);
        need::<Loop>(ANYWHERE, c"napi_get_uv_event_loop")(env, &raw mut event_loop);
        if length == 0 || event_loop.is_null() {
            exit(126);
        }
        bring_to_rest();
        let children = Children::new(event_loop);
        if serve(CONTROL, (filter, length), Rest::Replaced(&children), &raw mut go) == 0 {
            need::<Text>(ANYWHERE, c"napi_create_string_utf8")(env, go.data, go.length, &raw mut text);
        }
    }
    text
}

/// A descriptor of the zygote's, which no child may keep.
#[derive(Clone, Copy, PartialEq)]
struct Shared {
    fd: usize,
    kind: Kind,
}

/// What a child has to know about the zygote.
pub(crate) struct Children {
    shared: [Shared; 64],
    count: usize,
    event_loop: *mut c_void,
    fork_loop: unsafe extern "C" fn(*mut c_void) -> i32,
    /// The source of the engine's random numbers.
    random: *mut c_void,
    set_seed: unsafe extern "C" fn(*mut c_void, i64),
}

impl Children {
    /// Looks at the zygote. Where something is missing that children need, there is no zygote.
    unsafe fn new(event_loop: *mut c_void) -> Self {
        type Current = unsafe extern "C" fn() -> *mut c_void;
        type Random = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
        // SAFETY: the types are those of the event loop's and of V8's functions.
        let mut children = unsafe {
            let isolate = need::<Current>(ANYWHERE, c"_ZN2v87Isolate10GetCurrentEv")();
            let random = need::<Random>(ANYWHERE, c"_ZN2v88internal7Isolate23random_number_generatorEv")(isolate);
            let set_seed = need(ANYWHERE, c"_ZN2v84base21RandomNumberGenerator7SetSeedEl");
            let fork_loop = need(ANYWHERE, c"uv_loop_fork");
            Self { shared: [Shared { fd: 0, kind: Kind::Other }; 64], count: 0, event_loop, fork_loop, random, set_seed }
        };
        children.look();
        children
    }

    /// Looks which descriptors the zygote has.
    fn look(&mut self) {
        const FIRST: usize = 3;
        const MOST: usize = 1024;
        for fd in FIRST..MOST {
            let Some(kind) = Kind::of(fd) else { continue };
            if self.count == self.shared.len() {
                exit(126);
            }
            self.shared[self.count] = Shared { fd, kind };
            self.count += 1;
        }
    }

    /// Makes a process of its own of a child. It has nothing of the zygote's afterwards but `kept`.
    pub(crate) fn settle(&self, kept: usize) {
        const CLOSE_ON_EXEC: usize = 0x8_0000;
        const NONBLOCKING: usize = 0x800;
        CHILD.store(true, Ordering::Relaxed);
        let idle = must(plain(SYS_EVENTFD2, [0, CLOSE_ON_EXEC | NONBLOCKING]));
        for shared in &self.shared[..self.count] {
            // Gone, or in the place of one that is gone: event loops make one of their pipes anew after a fork.
            if shared.fd == kept || shared.fd == idle || Kind::of(shared.fd) != Some(shared.kind) {
                continue;
            }
            if shared.kind == Kind::Poll {
                let new = must(plain(SYS_EPOLL_CREATE1, [CLOSE_ON_EXEC]));
                must(plain(SYS_DUP3, [new, shared.fd, CLOSE_ON_EXEC]));
                plain(SYS_CLOSE, [new]);
            } else {
                must(plain(SYS_DUP3, [idle, shared.fd, CLOSE_ON_EXEC]));
            }
        }
        plain(SYS_CLOSE, [idle]);
        // Other random numbers than the zygote's other children have. The kernel writes eight bytes.
        let mut seed = 0_i64;
        // SAFETY: the loop and the source of random numbers are this thread's.
        unsafe {
            must(call(SYS_GETRANDOM, [&raw mut seed as usize, 8, 0, 0, 0, 0]));
            (self.set_seed)(self.random, seed);
            if (self.fork_loop)(self.event_loop) != 0 {
                exit(126);
            }
        }
    }
}

/// What a descriptor is, as far as it matters.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// A pipe, by its inode.
    Pipe(u64),
    /// What event loops wait with.
    Poll,
    Other,
}

impl Kind {
    /// The kind of a descriptor, if there is one.
    fn of(fd: usize) -> Option<Self> {
        const FORMAT: u32 = 0o170_000;
        const PIPE: u32 = 0o010_000;
        // As the kernel has it on this architecture: the inode is the second word, the mode begins the fourth.
        let mut status = [0_u64; 18];
        // SAFETY: the kernel writes 144 bytes.
        if unsafe { call(SYS_FSTAT, [fd, &raw mut status as usize, 0, 0, 0, 0]) } == EBADF {
            return None;
        }
        if status[3] as u32 & FORMAT == PIPE {
            return Some(Self::Pipe(status[1]));
        }
        let mut event = [0_u64; 2];
        // SAFETY: the kernel writes at most one event, of twelve bytes. It refuses what is of another kind.
        let polled = unsafe { call(SYS_EPOLL_WAIT, [fd, &raw mut event as usize, 1, 0, 0, 0]) };
        Some(if polled >= 0 { Self::Poll } else { Self::Other })
    }
}
