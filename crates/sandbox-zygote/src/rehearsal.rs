//! Pages that every program changes.
//!
//! A page that a child shares with the zygote is copied when the child first writes to it, and each copy interrupts the
//! child. Which pages those are hardly depends on the program. So a zygote forks a *rehearsal* before it serves cells: a
//! child that stays in the zygote's own cell, runs a program that came with the zygote, and at its end reports which pages
//! it has copied. Every later child copies these, many with each call, while it waits for its command.
//!
//! Not before it waits: under load its command has arrived already, and the run may not need every one of these pages.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::entry::{Fork, fork};
use crate::syscall::{SYS_CLOSE, SYS_DUP2, SYS_MADVISE, SYS_OPEN, SYS_READ, SYS_WAIT4, SYS_WRITE, call, exit, plain};

const SYS_POLL: usize = 7;
const SYS_PREAD64: usize = 17;
const SYS_KILL: usize = 62;
const SYS_PIPE2: usize = 293;

const CLOSE_ON_EXEC: usize = 0x8_0000;
const PAGE: usize = 4096;

/// How long a rehearsal may take, in milliseconds. Without its report, children copy pages one by one.
const PATIENCE: usize = 10_000;

/// The most ranges of pages that are recorded. A report of this many fits into a pipe.
const MOST: usize = 2048;

/// Start and end of each range of pages, one after the other.
static RANGES: [AtomicUsize; 2 * MOST] = [const { AtomicUsize::new(0) }; 2 * MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The descriptor on which a rehearsal reports, in the rehearsal only.
static REPORT: AtomicUsize = AtomicUsize::new(0);

/// Forks a rehearsal, and waits for its end. Returns zero in the rehearsal, whose output goes into a pipe.
///
/// # Safety
///
/// The process must be able to fork: no other thread may hold a lock that a child needs.
#[cfg_attr(zygote_library, unsafe(no_mangle))]
pub unsafe extern "C" fn sandbox_rehearse() -> i32 {
    // SAFETY: as the caller promises.
    i32::from(!unsafe { rehearse(fork) })
}

/// Whether this is a rehearsal.
pub(crate) fn is_rehearsal() -> bool {
    REPORT.load(Ordering::Relaxed) != 0
}

/// Forks a rehearsal. Returns whether this is it.
pub(crate) unsafe fn rehearse(fork: Fork) -> bool {
    const KILL: usize = 9;
    const WALL: usize = 0x4000_0000;
    let (Some([report, write_end]), Some([output, output_end])) = (pipe(), pipe()) else { return false };
    // SAFETY: as the caller promises.
    let child = unsafe { fork() };
    if child == 0 {
        for stream in [1, 2] {
            plain(SYS_DUP2, [output_end, stream]);
        }
        REPORT.store(write_end, Ordering::Relaxed);
        return true;
    }
    for fd in [write_end, output, output_end] {
        plain(SYS_CLOSE, [fd]);
    }
    if child > 0 {
        if is_readable(report, PATIENCE) {
            receive(report);
        }
        plain(SYS_KILL, [child as usize, KILL]);
        plain(SYS_WAIT4, [child as usize, 0, WALL, 0]);
    }
    plain(SYS_CLOSE, [report]);
    false
}

fn pipe() -> Option<[usize; 2]> {
    let mut ends = [0_i32; 2];
    // SAFETY: the kernel writes two numbers.
    let made = unsafe { call(SYS_PIPE2, [&raw mut ends as usize, CLOSE_ON_EXEC, 0, 0, 0, 0]) };
    (made == 0).then(|| ends.map(|end| end as usize))
}

/// Whether there is something to read within so many milliseconds.
fn is_readable(fd: usize, milliseconds: usize) -> bool {
    const READABLE: u64 = 1 << 32;
    let mut poll = fd as u64 | READABLE;
    // SAFETY: the kernel reads and writes eight bytes: a number, and which events are wanted and have happened.
    (unsafe { call(SYS_POLL, [&raw mut poll as usize, 1, milliseconds, 0, 0, 0]) }) > 0
}

/// Takes the report. A range that does not exist in this process is left out.
fn receive(report: usize) {
    const POPULATE_READ: usize = 22;
    let mut count = 0;
    loop {
        let mut range = [0_usize; 2];
        // SAFETY: the kernel writes two words. The rehearsal writes no less at one time.
        let read = unsafe { call(SYS_READ, [report, &raw mut range as usize, size_of_val(&range), 0, 0, 0]) };
        if read != size_of_val(&range) as isize || count == MOST {
            break;
        }
        let [start, end] = range;
        if plain(SYS_MADVISE, [start, end - start, POPULATE_READ]) == 0 {
            RANGES[2 * count].store(start, Ordering::Relaxed);
            RANGES[2 * count + 1].store(end, Ordering::Relaxed);
            count += 1;
        }
    }
    COUNT.store(count, Ordering::Relaxed);
}

/// Copies the pages that the rehearsal has copied, unless there is soon something to read.
pub(crate) fn copy_pages_unless_readable(fd: usize) {
    /// In milliseconds: long enough for a run that has waited for this child.
    const SOON: usize = 3;
    if COUNT.load(Ordering::Relaxed) > 0 && !is_readable(fd, SOON) {
        copy_pages();
    }
}

fn copy_pages() {
    const POPULATE_WRITE: usize = 23;
    let used = &RANGES[..2 * COUNT.load(Ordering::Relaxed).min(MOST)];
    for range in used.chunks_exact(2) {
        let [start, end] = [&range[0], &range[1]].map(|value| value.load(Ordering::Relaxed));
        // Where it fails, the pages are copied one by one.
        plain(SYS_MADVISE, [start, end - start, POPULATE_WRITE]);
    }
}

/// Ends a rehearsal: reports which pages it has copied.
#[cfg_attr(zygote_library, unsafe(no_mangle))]
pub extern "C" fn sandbox_end_rehearsal() {
    let open = |path: &core::ffi::CStr| {
        // SAFETY: the path ends with a NUL.
        let fd = unsafe { call(SYS_OPEN, [path.as_ptr() as usize, CLOSE_ON_EXEC, 0, 0, 0, 0]) };
        usize::try_from(fd).ok()
    };
    if let (Some(maps), Some(pages)) = (open(c"/proc/self/maps"), open(c"/proc/self/pagemap")) {
        let mut map = MemoryMap::new(maps);
        let mut left = MOST;
        while let Some((start, end)) = map.next_writable() {
            each_copied(pages, start, end, |start, end| {
                if left > 0 {
                    left -= 1;
                    let range = [start, end];
                    let report = REPORT.load(Ordering::Relaxed);
                    // SAFETY: the kernel reads two words.
                    unsafe { call(SYS_WRITE, [report, &raw const range as usize, size_of_val(&range), 0, 0, 0]) };
                }
            });
        }
    }
    exit(0);
}

/// Calls a function with each range of pages between two addresses that belong to this process alone.
fn each_copied(pages: usize, start: usize, end: usize, mut found: impl FnMut(usize, usize)) {
    const PRESENT: u64 = 1 << 63;
    const FILE: u64 = 1 << 61;
    const EXCLUSIVE: u64 = 1 << 56;
    /// Memory that is only reserved can be large.
    const MOST_BYTES: usize = 1 << 30;
    let mut first = None;
    let mut entries = [0_u64; 256];
    let mut page = start / PAGE;
    let last = end.min(start + MOST_BYTES) / PAGE;
    while page < last {
        let wanted = entries.len().min(last - page);
        // SAFETY: the kernel writes at most the size of the buffer.
        let read = unsafe { call(SYS_PREAD64, [pages, entries.as_mut_ptr() as usize, wanted * 8, page * 8, 0, 0]) };
        let count = usize::try_from(read).unwrap_or_default() / 8;
        if count == 0 {
            break;
        }
        for entry in &entries[..count] {
            let is_copied = entry & (PRESENT | FILE | EXCLUSIVE) == PRESENT | EXCLUSIVE;
            match (is_copied, first) {
                (true, None) => first = Some(page),
                (false, Some(begin)) => {
                    found(begin * PAGE, page * PAGE);
                    first = None;
                }
                _ => {}
            }
            page += 1;
        }
    }
    if let Some(begin) = first {
        found(begin * PAGE, page * PAGE);
    }
}

/// The lines of `/proc/self/maps`: `START-END PERMISSIONS ...`.
struct MemoryMap {
    fd: usize,
    buffer: [u8; 1024],
    position: usize,
    length: usize,
}

impl MemoryMap {
    fn new(fd: usize) -> Self {
        Self { fd, buffer: [0; 1024], position: 0, length: 0 }
    }

    fn next_byte(&mut self) -> Option<u8> {
        if self.position == self.length {
            // SAFETY: the kernel writes at most the size of the buffer.
            let read =
                unsafe { call(SYS_READ, [self.fd, self.buffer.as_mut_ptr() as usize, self.buffer.len(), 0, 0, 0]) };
            self.length = usize::try_from(read).unwrap_or_default();
            self.position = 0;
        }
        let byte = *self.buffer[..self.length].get(self.position)?;
        self.position += 1;
        Some(byte)
    }

    /// A number in hexadecimal, up to a character that is no digit.
    fn next_number(&mut self) -> Option<usize> {
        let mut number = 0;
        loop {
            match (self.next_byte()? as char).to_digit(16) {
                Some(digit) => number = number * 16 + digit as usize,
                None => return Some(number),
            }
        }
    }

    /// Start and end of the next memory that is private and can be written to.
    fn next_writable(&mut self) -> Option<(usize, usize)> {
        loop {
            let (start, end) = (self.next_number()?, self.next_number()?);
            let [_, write, _, sharing] = [self.next_byte()?, self.next_byte()?, self.next_byte()?, self.next_byte()?];
            while self.next_byte()? != b'\n' {}
            if write == b'w' && sharing == b'p' {
                return Some((start, end));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn pages_that_were_written_to_are_found() {
        const PAGES: usize = 1000;
        let mut memory = Vec::<u8>::with_capacity((PAGES + 1) * PAGE);
        let start = (memory.as_ptr() as usize).next_multiple_of(PAGE);
        let offset = start - memory.as_ptr() as usize;
        for page in [2, 3, 400] {
            memory.spare_capacity_mut()[offset + page * PAGE].write(1);
        }
        let pages = std::fs::File::open("/proc/self/pagemap").expect("open");
        let mut found = Vec::new();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&pages) as usize;
        each_copied(fd, start, start + PAGES * PAGE, |from, to| {
            found.push(((from - start) / PAGE, (to - start) / PAGE));
        });
        assert_eq!(found, [(2, 4), (400, 401)]);
    }

    #[test]
    fn writable_memory_is_listed() {
        let value = std::boxed::Box::new(1_usize);
        let address = &raw const *value as usize;
        let maps = std::fs::File::open("/proc/self/maps").expect("open");
        let mut map = MemoryMap::new(std::os::fd::AsRawFd::as_raw_fd(&maps) as usize);
        let mut all = Vec::new();
        while let Some(range) = map.next_writable() {
            all.push(range);
        }
        let is_in = |address| all.iter().filter(|(start, end)| (*start..*end).contains(&address)).count();
        assert_eq!(is_in(address), 1);
        assert_eq!(is_in(writable_memory_is_listed as *const () as usize), 0, "code is not writable");
    }

    #[test]
    fn a_rehearsal_reports_the_pages_that_it_copies() {
        const PAGES: usize = 300;
        let mut memory = std::vec![1_u8; (PAGES + 1) * PAGE];
        let start = (memory.as_ptr() as usize).next_multiple_of(PAGE);
        let offset = start - memory.as_ptr() as usize;
        // SAFETY: the child only writes to memory and ends.
        if unsafe { rehearse(fork) } {
            for page in [5, 6, 200] {
                memory[offset + page * PAGE] = 2;
            }
            sandbox_end_rehearsal();
        }
        assert_eq!(memory[offset + 5 * PAGE], 1);
        let known = &RANGES[..2 * COUNT.load(Ordering::Relaxed)];
        let ranges =
            known.chunks_exact(2).map(|range| [&range[0], &range[1]].map(|value| value.load(Ordering::Relaxed)));
        let own: Vec<_> = ranges
            .filter(|[from, to]| *from < start + PAGES * PAGE && *to > start)
            .map(|[from, to]| ((from - start) / PAGE, (to - start) / PAGE))
            .collect();
        assert_eq!(own, [(5, 7), (200, 201)]);
        copy_pages();
        assert_eq!(memory[offset + 5 * PAGE], 1);
    }
}
