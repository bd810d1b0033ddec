//! Files that go with a request, and files that come back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use base64::Engine;
use sandbox_base::RelativePath;
use sandbox_cell::archive::{Archive, Omission, Sink, read_volume};

use crate::request::RequestError;
use crate::result::{FileEncoding, OmittedFile, OutputFile};

/// The most files in a request.
pub(crate) const MOST_FILES: usize = 20_000;

/// The most bytes in all files of a request together.
const MOST_BYTES: usize = 512 << 20;

/// A file for the working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputFile {
    /// Where it goes.
    pub path: RelativePath,
    /// What is in it.
    pub content: Arc<Vec<u8>>,
    /// Whether it may be executed.
    pub executable: bool,
}

/// Checks files together: their number, their size, and that no two are in each other's way.
pub(crate) fn check(files: &[InputFile]) -> Result<(), RequestError> {
    if files.len() > MOST_FILES {
        return Err(RequestError::ManyFiles { count: files.len() });
    }
    let size: usize = files.iter().map(|file| file.content.len()).sum();
    if size > MOST_BYTES {
        return Err(RequestError::LongFiles { size });
    }
    let mut seen = BTreeSet::new();
    for file in files {
        if !seen.insert(file.path.as_str()) {
            return Err(RequestError::DuplicateFile { path: file.path.as_str().to_owned() });
        }
    }
    let conflict = files.iter().flat_map(|file| file.path.parents()).find(|dir| seen.contains(dir));
    match conflict {
        Some(path) => Err(RequestError::FileAndDirectory { path: path.to_owned() }),
        None => Ok(()),
    }
}

/// Packs files for a cell.
pub(crate) fn pack(files: &[InputFile]) -> io::Result<Archive> {
    let mut archive = Archive::new()?;
    for file in files {
        archive.add(file.path.clone(), file.executable, &file.content)?;
    }
    Ok(archive)
}

/// The most bytes that a runner's remarks may have.
const MOST_REMARKS: u64 = 1 << 20;

/// What came out of a run's cell.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) files: BTreeMap<String, OutputFile>,
    pub(crate) omitted: Vec<OmittedFile>,
    /// What the runner left: the value of the last expression, the reason of a failure.
    pub(crate) value: Option<String>,
    pub(crate) error: Option<String>,
    /// The number of the runner's volume, if there is one, and the files that take the other volumes' content.
    pub(crate) remarks: Option<u8>,
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
        if self.remarks != Some(number) {
            let Some(file) = self.volumes.get_mut(&number) else { return Ok(()) };
            // A host's disk that is full costs the volume, not the result.
            if !self.failed.contains_key(&number)
                && let Err(error) = io::copy(part, file)
            {
                self.failed.insert(number, error);
            }
            return Ok(());
        }
        read_volume(&mut part.take(MOST_REMARKS), &mut |path, file, content| {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Vec<InputFile> {
        let file = |path: &&str| InputFile {
            path: RelativePath::new(*path).expect("path"),
            content: Arc::default(),
            executable: false,
        };
        paths.iter().map(file).collect()
    }

    #[test]
    fn files_must_not_be_in_each_others_way() {
        assert!(check(&files(&["a", "b/c", "b/d"])).is_ok());
        assert_eq!(check(&files(&["a", "b", "a"])).expect_err("refused").to_string(), "there are two files named 'a'");
        let both = check(&files(&["a/b", "a"])).expect_err("refused").to_string();
        assert_eq!(both, "'a' is both a file and a directory");
    }
}
