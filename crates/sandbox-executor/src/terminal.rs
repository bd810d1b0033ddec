//! The caller's side of a program's terminal: what is typed, and the size of the window.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use sandbox_cell::WindowSize;

/// A terminal for a program: it becomes the program's standard streams and its controlling terminal.
#[derive(Debug)]
pub struct TerminalInput {
    /// The source of keyboard input, if there is any.
    pub keys: Option<OwnedFd>,
    /// The window that shows it.
    pub window: Arc<TerminalWindow>,
}

/// A window that shows a terminal. Its size can be changed at any time, from any thread.
///
/// As a descriptor it becomes readable when the size has changed.
#[derive(Debug)]
pub struct TerminalWindow {
    /// Rows in the high half, columns in the low half.
    size: AtomicU32,
    changed: OwnedFd,
}

impl TerminalWindow {
    /// A window of this size.
    pub fn new(size: WindowSize) -> std::io::Result<Self> {
        let changed = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { size: AtomicU32::new(packed(size)), changed })
    }

    /// Its size.
    #[must_use]
    pub fn size(&self) -> WindowSize {
        let size = self.size.load(Ordering::Acquire);
        let [rows_high, rows_low, columns_high, columns_low] = size.to_be_bytes();
        let (rows, columns) = ([rows_high, rows_low], [columns_high, columns_low]);
        WindowSize { rows: u16::from_be_bytes(rows), columns: u16::from_be_bytes(columns) }
    }

    /// Changes its size, of which the program is notified.
    pub fn resize(&self, size: WindowSize) {
        self.size.store(packed(size), Ordering::Release);
        // The counter cannot overflow: it is cleared whenever it is read.
        let _ = rustix::io::write(&self.changed, &1_u64.to_ne_bytes());
    }

    /// The size, if it has changed since this was last called.
    pub(crate) fn take_change(&self) -> Option<WindowSize> {
        let changed = rustix::io::read(&self.changed, &mut [0; 8][..]).is_ok();
        changed.then(|| self.size())
    }
}

impl AsFd for TerminalWindow {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.changed.as_fd()
    }
}

fn packed(size: WindowSize) -> u32 {
    u32::from(size.rows) << 16 | u32::from(size.columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_of_several_sizes_counts() {
        let size = |rows, columns| WindowSize { rows, columns };
        let window = TerminalWindow::new(size(24, 80)).expect("a window");
        assert_eq!((window.size(), window.take_change()), (size(24, 80), None));
        window.resize(size(50, 65_535));
        window.resize(size(0, 132));
        assert_eq!((window.take_change(), window.take_change()), (Some(size(0, 132)), None));
    }
}
