//! V8's heap in one piece.
//!
//! V8 asks for its heap in parts of 256 KiB, each at a random address. Each is a mapping with page tables of its own,
//! which every fork copies and every exit frees. So the parts are placed side by side, where they form one mapping and
//! share page tables. Before the process becomes a zygote they are moved into large pages: a child copies one entry for 512
//! pages, and the kernel splits a large page only in the child that writes to it.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::large_pages::{LARGE, READ, WRITE, move_data};
use crate::syscall::{SYS_MMAP, call, plain};

/// The size of a part, to which it is aligned.
const PART: usize = 256 << 10;

/// Where the heap begins, and where its next part goes; zero until there is one.
static FIRST: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    fn __errno_location() -> *mut i32;
}

/// Replaces the C library's function: places the parts of V8's heap side by side. V8 accepts any other place, too.
///
/// # Safety
///
/// As for the C library's function.
#[must_use]
#[cfg_attr(zygote_library, unsafe(no_mangle))]
pub unsafe extern "C" fn mmap64(
    address: usize,
    length: usize,
    protection: i32,
    flags: i32,
    fd: i32,
    offset: usize,
) -> usize {
    const FAILED: usize = usize::MAX;
    let place = if is_part(address, length, protection, flags) { next_place(address) } else { address };
    // SAFETY: as the caller promises. A place is only a hint.
    let result = unsafe { call(SYS_MMAP, [place, length, protection as usize, flags as usize, fd as usize, offset]) };
    if result < 0 {
        // SAFETY: the C library's variable.
        unsafe { *__errno_location() = -result as i32 };
        return FAILED;
    }
    result as usize
}

/// Whether V8 asks for a part: for enough to align it, at an address that it has made up. It returns the rest.
fn is_part(address: usize, length: usize, protection: i32, flags: i32) -> bool {
    const NONE: i32 = 0;
    /// Private, anonymous, and not accounted before it is used.
    const RESERVED: i32 = 0x4022;
    const REQUEST: usize = 2 * PART - 4096;
    address != 0 && length == REQUEST && protection == NONE && flags == RESERVED
}

/// The place of the next part. The first request decides where the heap begins.
fn next_place(address: usize) -> usize {
    const GIBIBYTE: usize = 1 << 30;
    // The first part becomes read-only. Those that follow it fill large pages.
    let first = address - address % GIBIBYTE + LARGE - PART;
    if NEXT.compare_exchange(0, first, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        FIRST.store(first, Ordering::Relaxed);
    }
    NEXT.fetch_add(PART, Ordering::Relaxed)
}

/// Moves the heap into large pages. V8 has returned the ends of some parts, and the last large page is not full: the gaps
/// become memory that is not used.
///
/// # Safety
///
/// No other thread may write to the heap.
pub(crate) unsafe fn use_large_pages() {
    /// Private, anonymous, and only where there is nothing yet.
    const FILL: usize = 0x10_0022;
    const PAGE: usize = 4096;
    let (first, next) = (FIRST.load(Ordering::Relaxed), NEXT.load(Ordering::Relaxed));
    let (start, end) = (first.next_multiple_of(LARGE), next.next_multiple_of(LARGE));
    NEXT.store(end, Ordering::Relaxed);
    for page in (start..end).step_by(PAGE) {
        plain(SYS_MMAP, [page, PAGE, READ | WRITE, FILL, usize::MAX, 0]);
    }
    // SAFETY: as the caller promises.
    unsafe { move_data(start, end) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_placed_side_by_side_before_a_large_page() {
        let first = next_place(0x1234_5678_0000);
        assert_eq!((first + PART) % LARGE, 0);
        assert_eq!(next_place(0x2345_6789_0000), first + PART);
        assert_eq!(next_place(0x3456_789a_0000), first + 2 * PART);
    }

    #[test]
    fn only_requests_of_v8_are_placed() {
        let (length, reserved) = (2 * PART - 4096, 0x4022);
        assert!(is_part(1 << 40, length, 0, reserved));
        assert!(!is_part(0, length, 0, reserved), "no address");
        assert!(!is_part(1 << 40, PART, 0, reserved), "another size");
        assert!(!is_part(1 << 40, length, 3, reserved), "accessible");
        assert!(!is_part(1 << 40, length, 0, reserved | 0x10), "a fixed address");
    }
}
