//! The allocator of the C library.

/// From this size on, memory is mapped when it is allocated and unmapped when it is freed.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 256 << 10;

/// Has large allocations returned to the kernel as soon as they are freed. By default glibc raises this bound to the size of
/// the largest allocation that was freed, up to 32 MiB, and keeps what is smaller: a process that handles large requests
/// would keep the memory of those that have ended.
pub fn return_large_allocations() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets a number in the allocator, under its lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
}
