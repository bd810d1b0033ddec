//! The pseudo-terminal of a cell.
//!
//! Both ends belong to an instance of devpts that only this cell has, so there is no terminal of the host that its
//! programs could name. The program gets one end as its standard streams and as its controlling terminal. The other end
//! goes to the caller, which reads, writes and resizes it. Nothing of the caller's own terminal enters the cell.

use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MoveMountFlags, move_mount};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::rootfs;
use crate::spec::WindowSize;
use crate::step::{InitStep, StepError, at};

/// The two ends of a terminal.
pub(super) struct TerminalEnds {
    /// The end for the caller.
    pub(super) master: OwnedFd,
    /// The end for the program. Init keeps it open, so that the terminal does not hang up while no program has it open.
    pub(super) slave: OwnedFd,
}

impl TerminalEnds {
    /// Mounts the cell's devpts and opens a terminal in it. Called in the finished root, while init may still mount.
    pub(super) fn open(size: WindowSize, owner: (u32, u32)) -> Result<Self, StepError> {
        let mount = rootfs::new_devpts(owner).map_err(at(InitStep::MountTerminals))?;
        move_mount(&mount, c"", CWD, c"/dev/pts", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(at(InitStep::MountTerminals))?;
        let open = || {
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            let master = rustix::fs::openat(&mount, c"ptmx", flags, Mode::empty())?;
            unlockpt(&master)?;
            // By the descriptor and not by a path.
            let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
            let slave = ioctl_tiocgptpeer(&master, flags)?;
            tcsetwinsize(&master, window(size))?;
            Ok(Self { master, slave })
        };
        open().map_err(at(InitStep::OpenTerminal))
    }
}

/// A size in the kernel's format.
fn window(size: WindowSize) -> Winsize {
    Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 }
}
