//! Input files: the files that a request brings, checked together and packed for the cell.

use std::collections::BTreeSet;
use std::io;

use sandbox_base::RelativePath;
use sandbox_cell::archive::Archive;

use crate::request::RequestError;
use crate::shared::SharedBytes;

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
    pub content: SharedBytes,
    /// Whether it may be executed.
    pub executable: bool,
}

impl InputFile {
    /// A file that is not executable.
    #[must_use]
    pub fn new(path: RelativePath, content: impl Into<SharedBytes>) -> Self {
        Self { path, content: content.into(), executable: false }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Vec<InputFile> {
        let file = |path: &&str| InputFile::new(RelativePath::new(*path).expect("path"), vec![]);
        paths.iter().map(file).collect()
    }

    #[test]
    fn files_must_not_be_in_each_others_way() {
        assert!(check(&files(&["a", "b/c", "b/d"])).is_ok());
        assert_eq!(check(&files(&["a", "b", "a"])).expect_err("refused").to_string(), "duplicate file 'a'");
        let both = check(&files(&["a/b", "a"])).expect_err("refused").to_string();
        assert_eq!(both, "'a' is both a file and a directory");
    }
}
