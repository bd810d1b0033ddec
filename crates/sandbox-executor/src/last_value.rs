//! The value of a program's last expression: the language's runner leaves it in a small volume of the cell, from which it is
//! read after the run, with the reason of a failure.

use std::fs::File;
use std::io::{self, Read};

use sandbox_base::RelativePath;
use sandbox_cell::Volume;
use sandbox_cell::archive::{Archive, read_volume};
use sandbox_runtimes::{RESULT_DIR, RUNNER_FILE};

/// The maximum size and number of files of the runner's volume.
const VOLUME_BYTES: u64 = 512 << 10;
const VOLUME_FILES: u64 = 16;

/// The most bytes that are read of the volume.
const MOST_READ: u64 = 1 << 20;

/// The volume in which the runner leaves its report.
pub(crate) fn volume() -> Volume {
    Volume { target: RESULT_DIR.into(), size: VOLUME_BYTES, inodes: VOLUME_FILES }
}

/// The report of the language's runner about a program.
#[derive(Debug, Default)]
pub(crate) struct RunnerReport {
    /// The value of the last expression.
    pub(crate) value: Option<String>,
    /// The reason of a failure.
    pub(crate) error: Option<String>,
}

impl RunnerReport {
    /// Reads the volume's content.
    pub(crate) fn read(&mut self, part: &mut dyn Read) -> io::Result<()> {
        read_volume(&mut part.take(MOST_READ), &mut |path, file, content| {
            let slot = match (path.as_str(), file) {
                ("value", Some(_)) => &mut self.value,
                ("error", Some(_)) => &mut self.error,
                _ => return Ok(()),
            };
            let mut bytes = vec![];
            content.read_to_end(&mut bytes)?;
            *slot = Some(String::from_utf8_lossy(&bytes).into_owned());
            Ok(())
        })
    }
}

/// Puts the runner where the interpreter finds it.
pub(crate) fn add_runner(files: &mut Archive, runner: &str) -> io::Result<()> {
    let mut content = Archive::new()?;
    let path = RelativePath::new(RUNNER_FILE).map_err(io::Error::other)?;
    content.add(path, false, runner.as_bytes())?;
    let mut file: File = content.into_file();
    files.add_volume(0, &mut file)
}
