//! `sandbox-run man`: prints or writes man pages.

use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;

use crate::args::Arguments;
use crate::{exit_code, output};

/// The section of the manual for commands.
const SECTION: &str = "1";

/// Prints this program's page, or writes a page for each command into a directory. Returns the exit code.
pub(crate) fn manual(dir: Option<&Path>) -> u8 {
    let written = match dir {
        None => sandbox_manual::page(Arguments::command(), SECTION).and_then(|page| io::stdout().write_all(&page)),
        Some(dir) => write(dir),
    };
    match written {
        Ok(()) => 0,
        Err(error) => {
            output::print_error(&format!("cannot write the manual: {error}"));
            exit_code::INTERNAL
        }
    }
}

fn write(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    for (name, page) in sandbox_manual::pages(Arguments::command(), SECTION)? {
        std::fs::write(dir.join(name), page)?;
    }
    Ok(())
}
