//! Large pages for the code of the interpreter, and for data that few children write to.
//!
//! A fork copies the page tables of anonymous memory, but not those of mapped files. So every child would map the
//! interpreter's code again, sixteen pages with each fault, and unmap it page by page at its end. The zygote therefore
//! moves that code into anonymous memory that consists of large pages: children share it, and one entry of the page table
//! stands for 512. Where the kernel has no large pages to give, the code stays where it is.

use core::ffi::c_void;
use core::ptr::{copy_nonoverlapping, null_mut};

use crate::syscall::{SYS_MADVISE, SYS_MMAP, SYS_MPROTECT, SYS_MREMAP, SYS_MUNMAP, call, plain};

pub(crate) const LARGE: usize = 2 << 20;

pub(crate) const READ: usize = 1;
pub(crate) const WRITE: usize = 2;
const EXECUTE: usize = 4;

/// The C library's `Elf64_Phdr`: a part of a program that is loaded.
#[repr(C)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical_address: u64,
    file_size: u64,
    memory_size: u64,
    alignment: u64,
}

/// The beginning of the C library's `dl_phdr_info`: a program or a library.
#[repr(C)]
struct Loaded {
    base: usize,
    name: *const u8,
    segments: *const Segment,
    segment_count: u16,
}

unsafe extern "C" {
    fn dl_iterate_phdr(
        callback: unsafe extern "C" fn(*const Loaded, usize, *mut c_void) -> i32,
        data: *mut c_void,
    ) -> i32;
}

/// Moves the code of this process's program into large pages. Called by interpreters before they become zygotes. Other
/// threads may continue to execute it: at every moment the same bytes are at the same address.
#[cfg_attr(zygote_library, unsafe(no_mangle))]
pub extern "C" fn sandbox_use_large_pages() {
    // SAFETY: the types are those of the C library's function.
    unsafe { dl_iterate_phdr(visit, null_mut()) };
}

/// Visits the first of all that is loaded, which is the program.
unsafe extern "C" fn visit(loaded: *const Loaded, _: usize, _: *mut c_void) -> i32 {
    const LOAD: u32 = 1;
    const EXECUTABLE: u32 = 1;
    const WRITABLE: u32 = 2;
    const PAGE: usize = 4096;
    // Memory without gaps that is not written to, and whether there is code in it. Constants beside code come with it.
    let (mut start, mut end, mut has_code) = (0, 0, false);
    // SAFETY: the C library's values, which live as long as the program is loaded.
    unsafe {
        for index in 0..usize::from((*loaded).segment_count) {
            let segment = &*(*loaded).segments.add(index);
            if segment.kind != LOAD || segment.flags & WRITABLE != 0 {
                continue;
            }
            let address = (*loaded).base + segment.address as usize;
            if address - address % PAGE != end {
                move_region(start, end, has_code);
                (start, has_code) = (address - address % PAGE, false);
            }
            end = (address + segment.file_size as usize).next_multiple_of(PAGE);
            has_code |= segment.flags & EXECUTABLE != 0;
        }
        move_region(start, end, has_code);
    }
    1
}

/// Moves as much of a region as fills large pages, if there is code in it.
unsafe fn move_region(start: usize, end: usize, has_code: bool) {
    let (first, last) = (start.next_multiple_of(LARGE), end - end % LARGE);
    if has_code && first < last {
        // SAFETY: as the caller promises.
        unsafe { move_block(first, last - first, READ | EXECUTE) };
    }
}

/// Moves memory to other pages at the same address. Nothing else may write to it meanwhile.
unsafe fn move_block(start: usize, length: usize, protection: usize) {
    const PRIVATE_ANONYMOUS: usize = 0x22;
    const USE_LARGE_PAGES: usize = 14;
    const COLLAPSE: usize = 25;
    const MOVE_TO_ADDRESS: usize = 3;
    let whole = length + LARGE;
    let mapped = plain(SYS_MMAP, [0, whole, READ | WRITE, PRIVATE_ANONYMOUS, usize::MAX, 0]);
    if mapped < 0 {
        return;
    }
    let mapped = mapped as usize;
    let copy = mapped.next_multiple_of(LARGE);
    // SAFETY: the code is readable, and the copy lies in the new memory. What replaces the code has the same bytes.
    unsafe {
        call(SYS_MADVISE, [copy, length, USE_LARGE_PAGES, 0, 0, 0]);
        copy_nonoverlapping(start as *const u8, copy as *mut u8, length);
        // From here on, large pages are a condition: with small ones, every fork would copy the entries of all.
        let is_large = call(SYS_MADVISE, [copy, length, COLLAPSE, 0, 0, 0]) == 0;
        let is_moved = is_large
            && call(SYS_MPROTECT, [copy, length, protection, 0, 0, 0]) == 0
            && call(SYS_MREMAP, [copy, length, length, MOVE_TO_ADDRESS, start, 0]) >= 0;
        // What is left. Another thread may already have mapped something where the copy was.
        let (before, after) = (copy - mapped, mapped + LARGE - copy);
        if is_moved && before > 0 {
            call(SYS_MUNMAP, [mapped, before, 0, 0, 0, 0]);
        }
        if is_moved && after > 0 {
            call(SYS_MUNMAP, [copy + length, after, 0, 0, 0, 0]);
        }
        if !is_moved {
            call(SYS_MUNMAP, [mapped, whole, 0, 0, 0, 0]);
        }
    }
}

/// Moves as much data of a region as fills large pages. Where not all of it can be written to, it stays.
///
/// # Safety
///
/// No other thread may write to it.
pub(crate) unsafe fn move_data(start: usize, end: usize) {
    const POPULATE_WRITE: usize = 23;
    let mut block = start.next_multiple_of(LARGE);
    while block + LARGE <= end {
        if plain(SYS_MADVISE, [block, LARGE, POPULATE_WRITE]) == 0 {
            // SAFETY: as the caller promises. All of it exists, and can be read and written.
            unsafe { move_block(block, LARGE, READ | WRITE) };
        }
        block += LARGE;
    }
}
