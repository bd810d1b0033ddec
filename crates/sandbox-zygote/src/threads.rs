//! Threads that survive a fork.
//!
//! # Theory of operation
//!
//! Node.js has threads, and after a fork the child has only the thread that forked. The memory of the others still
//! exists, including their stacks, and so does their pending work. So the library, which is preloaded, intercepts the
//! calls that start threads and make them wait for each other:
//!
//! - Threads of the zygote get dedicated stacks, which are never reused.
//! - Before there are children, a thread that waits for a condition variable wakes up periodically, as it may. It does
//!   not wait inside the C library, because a condition variable with a waiter that no longer exists cannot be used any
//!   more.
//! - When the process becomes a zygote, these threads come to *rest* where they would have waited, and save their
//!   context. When they continue, they check again whether there is work.
//! - When a child signals one of its resting threads, that thread is *revived*: a new thread continues on its stack. A
//!   broadcast does not count: Node.js uses it to make threads end.
//! - A child that joins a thread that was never revived returns at once.

use core::arch::{asm, naked_asm};
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::syscall::{SYS_GETPID, SYS_MMAP, exit, must, nap, plain};

const SYS_PAUSE: usize = 34;
const SYS_GETTID: usize = 186;

unsafe extern "C" {
    fn dlsym(handle: *const c_void, name: *const u8) -> *const c_void;
}

/// Looks up a required function of the process. `F` must be the type of a pointer to it.
pub(crate) unsafe fn need<F: Copy>(name: &CStr) -> F {
    const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
    // SAFETY: the name ends with a NUL, and zero means all libraries.
    let found = unsafe { dlsym(core::ptr::null(), name.as_ptr().cast()) };
    if found.is_null() {
        exit(126);
    }
    // SAFETY: as the caller promises.
    unsafe { *(&raw const found).cast::<F>() }
}

/// A function of the C library that this library replaces.
struct Original {
    name: &'static CStr,
    found: AtomicUsize,
}

impl Original {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicUsize::new(0) }
    }

    /// The function; `F` must be the type of a pointer to it.
    unsafe fn get<F: Copy>(&self) -> F {
        type Versioned = unsafe extern "C" fn(*const c_void, *const u8, *const u8) -> *const c_void;
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        let next = usize::MAX as *const c_void;
        let mut found = self.found.load(Ordering::Relaxed);
        if found == 0 {
            // SAFETY: the names end with a NUL, and the type is that of the C library's function.
            unsafe {
                // Some have older versions of the same name, which would be found otherwise.
                let versioned = dlsym(core::ptr::null(), c"dlvsym".as_ptr().cast());
                if !versioned.is_null() {
                    let versioned = *(&raw const versioned).cast::<Versioned>();
                    found = versioned(next, self.name.as_ptr().cast(), c"GLIBC_2.3.2".as_ptr().cast()) as usize;
                }
                if found == 0 {
                    found = dlsym(next, self.name.as_ptr().cast()) as usize;
                }
            }
            if found == 0 {
                exit(126);
            }
            self.found.store(found, Ordering::Relaxed);
        }
        // SAFETY: as the caller promises.
        unsafe { *(&raw const found).cast::<F>() }
    }
}

type Create = unsafe extern "C" fn(*mut usize, *mut c_void, ThreadStart, *mut c_void) -> i32;
type ThreadStart = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Join = unsafe extern "C" fn(usize, *mut *mut c_void) -> i32;
type Wait = unsafe extern "C" fn(*mut c_void, *mut c_void) -> i32;
type Signal = unsafe extern "C" fn(*mut c_void) -> i32;

static CREATE: Original = Original::new(c"pthread_create");
static JOIN: Original = Original::new(c"pthread_join");
static WAIT: Original = Original::new(c"pthread_cond_wait");
static SIGNAL: Original = Original::new(c"pthread_cond_signal");

/// Whether the process is a zygote, whose threads come to rest.
static RESTS: AtomicBool = AtomicBool::new(false);

/// Whether this is a child.
static CHILD: AtomicBool = AtomicBool::new(false);

/// A saved context: the stack and the registers that the compiler does not save itself.
#[repr(C)]
struct Context {
    rsp: usize,
    rbp: usize,
    rbx: usize,
    rip: usize,
}

/// A thread of the zygote.
#[repr(C)]
struct Thread {
    /// Where it rests, for a child to continue.
    rest: Context,
    /// The context of the thread that continues it.
    back: Context,
    start: AtomicUsize,
    argument: AtomicUsize,
    /// The C library's handle; zero if there is none.
    name: AtomicUsize,
    /// The kernel's id, once it has waited for something.
    id: AtomicUsize,
    /// Its state: one of the constants below.
    state: AtomicUsize,
    /// The condition variable for which it would wait.
    condition: AtomicUsize,
    /// The handle of the thread that continues it.
    heir: AtomicUsize,
}

const RUNS: usize = 0;
const WAITS: usize = 1;
const RESTING: usize = 2;
const REVIVED: usize = 3;

impl Thread {
    const fn new() -> Self {
        Self {
            rest: Context { rsp: 0, rbp: 0, rbx: 0, rip: 0 },
            back: Context { rsp: 0, rbp: 0, rbx: 0, rip: 0 },
            start: AtomicUsize::new(0),
            argument: AtomicUsize::new(0),
            name: AtomicUsize::new(0),
            id: AtomicUsize::new(0),
            state: AtomicUsize::new(RUNS),
            condition: AtomicUsize::new(0),
            heir: AtomicUsize::new(0),
        }
    }
}

const MOST: usize = 32;
static mut THREADS: [Thread; MOST] = [const { Thread::new() }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The thread with this number, counted from zero.
fn thread(number: usize) -> *mut Thread {
    // SAFETY: the index is below the number of slots.
    unsafe { (&raw mut THREADS).cast::<Thread>().add(number) }
}

/// All of them. Their contexts are not accessed through these.
fn all() -> impl Iterator<Item = *mut Thread> {
    (0..COUNT.load(Ordering::SeqCst).min(MOST)).map(thread)
}

/// Replaces the C library's function: registers the zygote's threads, and gives each a dedicated stack.
///
/// # Safety
///
/// As for the C library's function.
#[cfg_attr(zygote_library, unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_create(
    name: *mut usize,
    attributes: *mut c_void,
    start: ThreadStart,
    argument: *mut c_void,
) -> i32 {
    // SAFETY: the type is that of the C library's function.
    let create = unsafe { CREATE.get::<Create>() };
    if CHILD.load(Ordering::Relaxed) {
        // SAFETY: as the caller promises.
        return unsafe { create(name, attributes, start, argument) };
    }
    let number = COUNT.fetch_add(1, Ordering::SeqCst);
    if number >= MOST {
        // More threads than a zygote should have.
        exit(126);
    }
    let own = thread(number);
    // SAFETY: a static slot, whose atomic fields any thread may change; the attributes are the caller's or fresh ones.
    unsafe {
        (*own).start.store(start as usize, Ordering::SeqCst);
        (*own).argument.store(argument as usize, Ordering::SeqCst);
        let result = create_apart(create, name, attributes, begin, own.cast());
        if result == 0 {
            (*own).name.store(*name, Ordering::SeqCst);
        }
        result
    }
}

/// Starts a thread on a stack that no other thread will ever have.
unsafe fn create_apart(
    create: Create,
    name: *mut usize,
    attributes: *mut c_void,
    start: ThreadStart,
    argument: *mut c_void,
) -> i32 {
    const STACK: usize = 8 << 20;
    /// Read and write; private, anonymous, and not accounted before it is used.
    const PROTECTION: usize = 3;
    const MAPPING: usize = 0x4022;
    type Init = unsafe extern "C" fn(*mut c_void) -> i32;
    type SetStack = unsafe extern "C" fn(*mut c_void, usize, usize) -> i32;
    let stack = must(plain(SYS_MMAP, [0, STACK, PROTECTION, MAPPING, usize::MAX, 0]));
    // Larger than the attributes of any C library.
    let mut fresh = [0_u64; 32];
    let mut used = attributes;
    // SAFETY: the attributes are the caller's, or fresh ones, which are not used after this.
    unsafe {
        if used.is_null() {
            used = (&raw mut fresh).cast();
            need::<Init>(c"pthread_attr_init")(used);
        }
        need::<SetStack>(c"pthread_attr_setstack")(used, stack, STACK);
        create(name, used, start, argument)
    }
}

/// Where a thread of the zygote begins, and where it ends even if another thread continued it.
unsafe extern "C" fn begin(own: *mut c_void) -> *mut c_void {
    let own = own.cast::<Thread>();
    // SAFETY: its argument is of that type. If another thread continued it, that thread gets its own stack back.
    unsafe {
        let (start, argument) = ((*own).start.load(Ordering::SeqCst), (*own).argument.load(Ordering::SeqCst));
        let result = (*(&raw const start).cast::<ThreadStart>())(argument as *mut c_void);
        if (*own).state.load(Ordering::SeqCst) == REVIVED {
            asm!(
                "mov rsp, [rdi]",
                "mov rbp, [rdi + 8]",
                "mov rbx, [rdi + 16]",
                "jmp [rdi + 24]",
                in("rdi") &raw const (*own).back,
                in("rax") result,
                options(noreturn),
            );
        }
        result
    }
}

/// Replaces the C library's function: joins the thread that was revived, if there is one.
///
/// # Safety
///
/// As for the C library's function.
#[cfg_attr(zygote_library, unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_join(name: usize, result: *mut *mut c_void) -> i32 {
    let mut joined = name;
    if CHILD.load(Ordering::Relaxed) {
        // SAFETY: the atomic fields of a static slot.
        if let Some(known) = all().find(|known| unsafe { &**known }.name.load(Ordering::SeqCst) == name) {
            // SAFETY: the same.
            joined = unsafe { &*known }.heir.load(Ordering::SeqCst);
            if joined == 0 {
                return 0;
            }
        }
    }
    // SAFETY: the type is that of the C library's function, and the rest is the caller's promise.
    unsafe { JOIN.get::<Join>()(joined, result) }
}

/// Replaces the C library's function: a thread of the zygote wakes up periodically, or comes to rest.
///
/// # Safety
///
/// As for the C library's function.
#[cfg_attr(zygote_library, unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_cond_wait(condition: *mut c_void, mutex: *mut c_void) -> i32 {
    if CHILD.load(Ordering::Relaxed) {
        // SAFETY: the type is that of the C library's function, and the rest is the caller's promise.
        return unsafe { WAIT.get::<Wait>()(condition, mutex) };
    }
    let own = current();
    let mark = |state: usize| {
        if let Some(own) = own {
            // SAFETY: the atomic fields of a static slot.
            let own = unsafe { &*own };
            own.condition.store(condition as usize, Ordering::SeqCst);
            own.state.store(state, Ordering::SeqCst);
        }
    };
    // SAFETY: the types are those of the C library's functions, and the caller holds the lock.
    unsafe {
        need::<Signal>(c"pthread_mutex_unlock")(mutex);
        mark(WAITS);
        nap();
        mark(RUNS);
        if let Some(own) = own
            && RESTS.load(Ordering::SeqCst)
        {
            rest(own);
        }
        need::<Signal>(c"pthread_mutex_lock")(mutex)
    }
}

/// Rests. Returns in a child, in the thread that continues this one.
unsafe fn rest(own: *mut Thread) {
    // SAFETY: saves what the compiler expects to be preserved. The thread is marked as resting only once its context is
    // saved.
    unsafe {
        asm!(
            "mov [rdi], rsp",
            "mov [rdi + 8], rbp",
            "mov [rdi + 16], rbx",
            "lea rax, [rip + 3f]",
            "mov [rdi + 24], rax",
            "mov qword ptr [rsi], {resting}",
            "2:",
            "mov eax, {pause}",
            "syscall",
            "jmp 2b",
            "3:",
            resting = const RESTING,
            pause = const SYS_PAUSE,
            in("rdi") &raw mut (*own).rest,
            in("rsi") (*own).state.as_ptr(),
            out("r12") _,
            out("r13") _,
            out("r14") _,
            out("r15") _,
            clobber_abi("C"),
        );
    }
}

/// The entry point of a thread that continues another: it saves its own context and takes the other's stack. It returns
/// here when the other has ended.
#[unsafe(naked)]
unsafe extern "C" fn go_on(own: *mut c_void) -> *mut c_void {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi + 32], rsp",
        "mov [rdi + 40], rbp",
        "mov [rdi + 48], rbx",
        "lea rax, [rip + 2f]",
        "mov [rdi + 56], rax",
        "mov rsp, [rdi]",
        "mov rbp, [rdi + 8]",
        "mov rbx, [rdi + 16]",
        "jmp [rdi + 24]",
        "2:",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}

/// Replaces the C library's function: revives a thread that rests.
///
/// # Safety
///
/// As for the C library's function.
#[cfg_attr(zygote_library, unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_cond_signal(condition: *mut c_void) -> i32 {
    if CHILD.load(Ordering::Relaxed) {
        for own in all() {
            // SAFETY: the atomic fields of a static slot.
            let parts = unsafe { &*own };
            if parts.condition.load(Ordering::SeqCst) == condition as usize
                && parts.state.compare_exchange(RESTING, REVIVED, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            {
                let mut heir = 0;
                // SAFETY: the types are those of the C library's functions.
                if unsafe { CREATE.get::<Create>()(&raw mut heir, core::ptr::null_mut(), go_on, own.cast()) } != 0 {
                    // Otherwise the pending work would never be done.
                    exit(126);
                }
                parts.heir.store(heir, Ordering::SeqCst);
            }
        }
    }
    // SAFETY: the type is that of the C library's function, and the rest is the caller's promise.
    unsafe { SIGNAL.get::<Signal>()(condition) }
}

/// The calling thread, if it is one of these; not the main thread.
fn current() -> Option<*mut Thread> {
    let id = plain(SYS_GETTID, []);
    if id == plain(SYS_GETPID, []) {
        return None;
    }
    // SAFETY: the atomic fields of a static slot.
    let known = all().find(|own| unsafe { &**own }.id.load(Ordering::SeqCst) == id as usize);
    known.or_else(|| {
        // SAFETY: the type is that of the C library's function.
        let name = unsafe { need::<unsafe extern "C" fn() -> usize>(c"pthread_self")() };
        // SAFETY: as above. The starter may not have stored the handle yet; then the thread is found next time.
        let own = all().find(|own| unsafe { &**own }.name.load(Ordering::SeqCst) == name)?;
        // SAFETY: as above.
        unsafe { &*own }.id.store(id as usize, Ordering::SeqCst);
        Some(own)
    })
}

/// Waits until the threads that wait for something rest.
pub(crate) fn bring_to_rest() {
    RESTS.store(true, Ordering::SeqCst);
    // SAFETY: the atomic fields of a static slot.
    let is_awake = |own: *mut Thread| unsafe {
        (*own).id.load(Ordering::SeqCst) != 0 && (*own).state.load(Ordering::SeqCst) != RESTING
    };
    while all().any(is_awake) {
        nap();
    }
    // Looked up now, and not in every child.
    // SAFETY: the types are those of the C library's functions.
    unsafe {
        let _ = (CREATE.get::<Create>(), JOIN.get::<Join>(), WAIT.get::<Wait>(), SIGNAL.get::<Signal>());
    }
}

/// Marks this process as a child.
pub(crate) fn in_child() {
    CHILD.store(true, Ordering::SeqCst);
}
