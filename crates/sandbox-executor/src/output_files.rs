//! Output files: the files that are collected from a run's cell when the program has ended.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};

use base64::Engine;
use sandbox_base::RelativePath;
use sandbox_cell::archive::{Omission, Sink};

use crate::last_value::RunnerReport;
use crate::result::{FileEncoding, OmittedFile, OutputFile};

/// The files and omissions that were collected from a run's cell.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) files: BTreeMap<String, OutputFile>,
    pub(crate) omitted: Vec<OmittedFile>,
    /// The runner's report, and the number of its volume, if the language has a runner.
    pub(crate) report: RunnerReport,
    pub(crate) report_volume: Option<u8>,
    /// The files that take the other volumes' content.
    pub(crate) volumes: BTreeMap<u8, File>,
    /// Why volumes could not be written, by their number.
    pub(crate) failed: BTreeMap<u8, io::Error>,
}

impl Sink for Collected {
    fn file(&mut self, path: &RelativePath, executable: bool, size: u64, content: &mut dyn Read) -> io::Result<()> {
        let mut bytes = vec![];
        content.read_to_end(&mut bytes)?;
        let (content, encoding) = match String::from_utf8(bytes) {
            Ok(text) => (text, FileEncoding::Utf8),
            Err(error) => (base64::engine::general_purpose::STANDARD.encode(error.as_bytes()), FileEncoding::Base64),
        };
        self.files.insert(path.as_str().to_owned(), OutputFile { content, encoding, size, executable });
        Ok(())
    }

    fn omitted(&mut self, path: &str, why: Omission) {
        if self.omitted.len() < sandbox_cell::archive::MOST_NAMED {
            self.omitted.push(OmittedFile { path: path.to_owned(), why });
        }
    }

    fn volume(&mut self, number: u8, part: &mut dyn Read) -> io::Result<()> {
        if self.report_volume != Some(number) {
            let Some(file) = self.volumes.get_mut(&number) else { return Ok(()) };
            // A host's disk that is full costs the volume, not the result.
            if !self.failed.contains_key(&number)
                && let Err(error) = io::copy(part, file)
            {
                self.failed.insert(number, error);
            }
            return Ok(());
        }
        self.report.read(part)
    }
}
