//! Input files: the files that a request brings, checked together and packed for the cell.

use std::collections::BTreeSet;
use std::io;

use sandbox_base::RelativePath;
use sandbox_base::units::shorten;
use sandbox_cell::archive::Archive;

use crate::request::RequestError;
use crate::shared::SharedBytes;

/// The most files in a request.
pub const MOST_FILES: usize = 20_000;

/// The most bytes in all files of a request together.
pub const MOST_BYTES: usize = 512 << 20;

/// A file for the working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputFile {
    /// Where it goes.
    pub path: RelativePath,
    /// What is in it.
    pub content: SharedBytes,
    /// Whether it may be executed.
    pub executable: bool,
    /// Whether it is a symbolic link, with its target as content. Only programs in the cell follow it.
    pub is_link: bool,
}

/// The most bytes in the target of a link.
const LONGEST_TARGET: usize = 1024;

impl InputFile {
    /// A file that is not executable.
    #[must_use]
    pub fn new(path: RelativePath, content: impl Into<SharedBytes>) -> Self {
        Self { path, content: content.into(), executable: false, is_link: false }
    }

    /// A symbolic link. Its target must be relative, and stay in the working directory by its words.
    pub fn link(path: RelativePath, target: String) -> Result<Self, RequestError> {
        let why = if target.is_empty() || target.len() > LONGEST_TARGET || target.contains('\0') {
            "expected 1 to 1024 bytes without NUL"
        } else if target.starts_with('/') {
            "it is absolute; expected a path relative to the link"
        } else if leads_out(&path, &target) {
            "it leads out of the working directory"
        } else {
            return Ok(Self { is_link: true, ..Self::new(path, target.into_bytes()) });
        };
        let (path, target) = (path.as_str().to_owned(), shorten(&target));
        Err(RequestError::Link { path, target, why })
    }
}

/// Whether the target of a link leads out of the working directory by its words. Where other links on its way lead is up to
/// the cell.
fn leads_out(path: &RelativePath, target: &str) -> bool {
    let mut depth = path.parents().count();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." if depth == 0 => return true,
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    false
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

/// Checks a file that is added to files that were checked.
pub(crate) fn check_added(files: &[InputFile], added: &InputFile) -> Result<(), RequestError> {
    if files.len() == MOST_FILES {
        return Err(RequestError::ManyFiles { count: files.len() + 1 });
    }
    let size = files.iter().map(|file| file.content.len()).sum::<usize>() + added.content.len();
    if size > MOST_BYTES {
        return Err(RequestError::LongFiles { size });
    }
    let path = added.path.as_str();
    for file in files {
        let other = file.path.as_str();
        if other == path {
            return Err(RequestError::DuplicateFile { path: path.to_owned() });
        }
        let is_in = |file: &InputFile, dir: &str| file.path.parents().any(|parent| parent == dir);
        if let Some(both) = [(added, other), (file, path)].into_iter().find(|(file, dir)| is_in(file, dir)) {
            return Err(RequestError::FileAndDirectory { path: both.1.to_owned() });
        }
    }
    Ok(())
}

/// Packs files for a cell.
pub(crate) fn pack(files: &[InputFile]) -> io::Result<Archive> {
    let mut archive = Archive::new()?;
    for file in files {
        if file.is_link {
            let target = std::str::from_utf8(&file.content).map_err(io::Error::other)?;
            archive.add_link(file.path.clone(), target.to_owned())?;
        } else {
            archive.add(file.path.clone(), file.executable, &file.content)?;
        }
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

    #[test]
    fn links_stay_in_the_working_directory() {
        let link = |path: &str, target: &str| {
            let path = RelativePath::new(path).expect("path");
            InputFile::link(path, target.to_owned()).map_err(|error| error.to_string())
        };
        for (path, target) in
            [("a", "b"), ("a", "b/../c"), ("a/b/c", "../../d"), ("a/b", ".."), ("a", "."), ("a", "b//c/"), ("a", "…")]
        {
            assert!(
                link(path, target).is_ok_and(|link| link.is_link && &*link.content == target.as_bytes()),
                "{target}"
            );
        }
        for (path, target, why) in [
            ("a", "/etc/passwd", "it is absolute; expected a path relative to the link"),
            ("a", "../b", "it leads out of the working directory"),
            ("a/b", "../../a", "it leads out of the working directory"),
            ("a/b", "c/../../../a", "it leads out of the working directory"),
            ("a", "b/../..", "it leads out of the working directory"),
            ("a", "", "expected 1 to 1024 bytes without NUL"),
        ] {
            assert_eq!(link(path, target), Err(format!("invalid target '{target}' of link '{path}': {why}")));
        }
        assert!(link("a", &"x".repeat(1025)).is_err() && link("a", "x\0").is_err());
        let through = [link("a", "b").expect("valid"), InputFile::new(RelativePath::new("a/x").expect("path"), vec![])];
        assert_eq!(check(&through).expect_err("refused").to_string(), "'a' is both a file and a directory");
    }

    #[test]
    fn a_file_that_is_added_is_checked_as_if_it_had_been_there() {
        for paths in [&["a", "b/c", "b/d"][..], &["a", "b", "a"], &["a/b", "a"], &["a", "a/b/c"], &["b/c", "a/b", "b"]]
        {
            let all = files(paths);
            let (added, before) = all.split_last().expect("some");
            assert_eq!(check_added(before, added), check(&all), "{paths:?}");
        }
        let many: Vec<String> = (0..=MOST_FILES).map(|number| number.to_string()).collect();
        let all = files(&many.iter().map(String::as_str).collect::<Vec<_>>());
        let (added, before) = all.split_last().expect("some");
        assert_eq!(check_added(before, added), Err(RequestError::ManyFiles { count: MOST_FILES + 1 }));
    }
}
