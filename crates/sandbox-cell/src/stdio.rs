//! Releasing standard streams: they are redirected to `/dev/null`, because programs expect them to be open.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

/// Releases standard input, output and error.
pub(crate) fn let_go_of_all() -> rustix::io::Result<()> {
    let_go_of_input_and_output()?;
    let_go_of_errors()
}

/// Releases standard input and output.
pub(crate) fn let_go_of_input_and_output() -> rustix::io::Result<()> {
    let null = open_null()?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)
}

/// Releases standard error.
pub(crate) fn let_go_of_errors() -> rustix::io::Result<()> {
    rustix::stdio::dup2_stderr(&open_null()?)
}

/// `/dev/null`.
pub(crate) fn open_null() -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}
