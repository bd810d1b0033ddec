//! Writes the syscall filter of every cell to standard output, for tools that take one (`bwrap --seccomp`).

use std::io::Write;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(&sandbox_cell::filter_bytes())
}
