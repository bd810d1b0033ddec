//! The cache of discovered toolchains: versions and paths, kept between runs.
//!
//! An entry is valid for the same query as long as the files behind it have the same path, inode, size and change time.
//! A cache that cannot be read or written only costs time.

use std::collections::BTreeMap;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A toolchain's description of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ToolchainDescription {
    pub(crate) version: String,
    pub(crate) executable: PathBuf,
    pub(crate) prefix: PathBuf,
}

/// Identifies a file's content without reading it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fingerprint {
    inode: u64,
    size: u64,
    changed: i64,
    changed_nanos: i64,
}

impl Fingerprint {
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let meta = std::fs::metadata(path).ok()?;
        Some(Self { inode: meta.ino(), size: meta.size(), changed: meta.ctime(), changed_nanos: meta.ctime_nsec() })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CachedToolchain {
    /// The script that asked.
    question: String,
    /// Of the command that was found, of the executable that it turned out to be, and of files that have a say in that.
    fingerprints: Vec<Fingerprint>,
    description: ToolchainDescription,
}

/// A file of descriptions.
#[derive(Debug)]
pub struct ToolchainCache {
    file: Option<PathBuf>,
    entries: BTreeMap<PathBuf, CachedToolchain>,
}

impl ToolchainCache {
    /// The cache in a directory; without one, an empty cache that is not saved.
    #[must_use]
    pub fn open(directory: Option<&Path>) -> Self {
        let file = directory.map(|dir| dir.join("runtimes.json"));
        let text = file.as_ref().and_then(|file| std::fs::read(file).ok());
        let entries = text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Self { file, entries }
    }

    pub(crate) fn recall(&self, command: &Path, question: &str, watched: &[PathBuf]) -> Option<&ToolchainDescription> {
        let entry = self.entries.get(command).filter(|entry| entry.question == question)?;
        let now = fingerprints(command, &entry.description, watched)?;
        (entry.fingerprints == now).then_some(&entry.description)
    }

    /// The description of a toolchain in an image, which never changes.
    pub(crate) fn recall_in(&self, digest: &str, command: &Path, question: &str) -> Option<&ToolchainDescription> {
        let entry = self.entries.get(&image_entry(digest, command)).filter(|entry| entry.question == question)?;
        Some(&entry.description)
    }

    pub(crate) fn remember_in(
        &mut self,
        digest: &str,
        command: &Path,
        question: &str,
        description: &ToolchainDescription,
    ) {
        let Some(file) = &self.file else { return };
        let question = question.to_owned();
        let entry = CachedToolchain { question, fingerprints: vec![], description: description.clone() };
        self.entries.insert(image_entry(digest, command), entry);
        let _ = save(file, &self.entries);
    }

    pub(crate) fn remember(
        &mut self,
        command: &Path,
        question: &str,
        watched: &[PathBuf],
        description: &ToolchainDescription,
    ) {
        let (Some(fingerprints), Some(file)) = (fingerprints(command, description, watched), &self.file) else {
            return;
        };
        let entry = CachedToolchain { question: question.to_owned(), fingerprints, description: description.clone() };
        self.entries.insert(command.to_owned(), entry);
        let _ = save(file, &self.entries);
    }
}

/// The key of the entry for a command in an image.
fn image_entry(digest: &str, command: &Path) -> PathBuf {
    Path::new(digest).join(command.strip_prefix("/").unwrap_or(command))
}

fn fingerprints(command: &Path, description: &ToolchainDescription, watched: &[PathBuf]) -> Option<Vec<Fingerprint>> {
    let files = [command, description.executable.as_path()].into_iter();
    files.chain(watched.iter().map(PathBuf::as_path)).map(Fingerprint::of).collect()
}

/// Writes the file whole or not at all; others may be doing the same.
fn save(file: &Path, entries: &BTreeMap<PathBuf, CachedToolchain>) -> std::io::Result<()> {
    if let Some(dir) = file.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let temporary = file.with_extension(format!("{}.tmp", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    let out = options.write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = serde_json::to_writer(out, entries).map_err(std::io::Error::from);
    let saved = written.and_then(|()| std::fs::rename(&temporary, file));
    if saved.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    saved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_valid_until_a_file_changes() {
        let dir = tempfile::tempdir().expect("tempdir");
        let command = dir.path().join("tool");
        std::fs::write(&command, "1").expect("write");
        let description = ToolchainDescription {
            version: "1.2".to_owned(),
            executable: command.clone(),
            prefix: dir.path().to_owned(),
        };
        let watched = [dir.path().join("choice")];
        std::fs::write(&watched[0], "1").expect("write");
        ToolchainCache::open(Some(dir.path())).remember(&command, "version?", &watched, &description);
        let cache = || ToolchainCache::open(Some(dir.path()));
        assert_eq!(cache().recall(&command, "version?", &watched), Some(&description));
        assert_eq!(cache().recall(&command, "name?", &watched), None);
        assert_eq!(cache().recall(&command, "version?", &[]), None);
        std::fs::write(&watched[0], "22").expect("write");
        assert_eq!(cache().recall(&command, "version?", &watched), None);
        cache().remember(&command, "version?", &watched, &description);
        std::fs::write(&command, "22").expect("write");
        assert_eq!(cache().recall(&command, "version?", &watched), None);
    }

    #[test]
    fn a_damaged_or_missing_cache_is_empty() {
        let dir = tempfile::tempdir().expect("tempdir");
        std::fs::write(dir.path().join("runtimes.json"), "{not json").expect("write");
        assert!(ToolchainCache::open(Some(dir.path())).recall(Path::new("/bin/sh"), "?", &[]).is_none());
        assert!(ToolchainCache::open(None).recall(Path::new("/bin/sh"), "?", &[]).is_none());
    }
}
