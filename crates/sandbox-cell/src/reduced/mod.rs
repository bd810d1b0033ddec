//! Cells where the host allows no namespaces, as in most containers: Landlock, the syscall filter and resource limits.
//!
//! # Theory of operation
//!
//! There is no root file system of the cell's own. The keeper makes a directory for it ([`directory`]) with a place each for
//! the working directory, the home directory, temporary files and volumes; programs can write there and nowhere else,
//! and of the host they can read the system's directories and what the cell was asked to show, where it is. Landlock
//! keeps them to that, so there are no such cells without it.
//!
//! Callers speak of paths as in any other cell: `/sandbox`, `/tmp`, the targets of mounts. [`CellLayout`] knows where these really
//! are, and rewrites a command's words, variables and working directory accordingly.
//!
//! Nothing limits the size of a directory, so init measures it from time to time ([`usage`]), as it does with memory. And
//! nothing makes it vanish with the cell: init empties it when its programs are dead, or else the keeper does
//! ([`mod@clear`]).

mod clear;
mod directory;
mod usage;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

pub(crate) use clear::clear;
pub(crate) use directory::{AbandonedDirectory, CellsDirectory, SWEEP_AGE};
pub(crate) use usage::measure;

use crate::spec::{CellSpec, Command, HOME_DIR, WORK_DIR};

/// The oldest Landlock that is wall enough by itself: before, it did not watch over files being cut off.
pub(crate) const LANDLOCK_ABI: u32 = 3;

/// The places that every cell has: the name in the cell, and in its directory.
const OWN: [(&str, &str); 3] = [(WORK_DIR, "work"), (HOME_DIR, "home"), ("/tmp", "tmp")];

/// Where things are that a cell knows by other names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CellLayout {
    /// The cell's directory.
    root: PathBuf,
    /// Its writable places: the name in the cell, and where it is. First those that every cell has, then its volumes.
    writable: Vec<(PathBuf, PathBuf)>,
    /// What it shows of the host, likewise.
    shown: Vec<(PathBuf, PathBuf)>,
    in_place: bool,
}

impl CellLayout {
    /// The layout of a cell whose directory is `root`.
    pub(crate) fn new(root: PathBuf, spec: &CellSpec) -> Self {
        let own = OWN.map(|(name, place)| (PathBuf::from(name), root.join(place)));
        let volumes = (0..).zip(&spec.volumes);
        let volumes =
            volumes.map(|(number, volume): (u32, _)| (volume.target.clone(), root.join(format!("volume-{number}"))));
        let shown = spec.mounts.iter().map(|mount| (mount.target.clone(), mount.source.clone()));
        let shown = shown.chain([(PathBuf::from("/var/tmp"), root.join("tmp"))]);
        Self { writable: own.into_iter().chain(volumes).collect(), shown: shown.collect(), root, in_place: false }
    }

    /// The layout of a cell in a container that was made for it: everything is where it is said to be.
    pub(crate) fn in_place(spec: &CellSpec) -> Self {
        let own = OWN.map(|(name, _)| PathBuf::from(name));
        let writable = own.into_iter().chain(spec.volumes.iter().map(|volume| volume.target.clone()));
        let writable = writable.map(|place| (place.clone(), place)).collect();
        let shown = spec.mounts.iter().map(|mount| (mount.target.clone(), mount.target.clone())).collect();
        Self { root: WORK_DIR.into(), writable, shown, in_place: true }
    }

    /// Whether the root file system was made for the cell.
    pub(crate) fn is_in_place(&self) -> bool {
        self.in_place
    }

    /// The cell's directory.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The directories that programs can write to.
    pub(crate) fn writable(&self) -> impl Iterator<Item = &Path> {
        self.writable.iter().map(|(_, place)| place.as_path())
    }

    /// Those of them that every cell has, and those that are volumes.
    pub(crate) fn own_and_volumes(&self) -> (impl Iterator<Item = &Path>, impl Iterator<Item = &Path>) {
        (self.writable().take(OWN.len()), self.writable().skip(OWN.len()))
    }

    /// Where a path of the cell's is, if it is one of its own and not the system's.
    pub(crate) fn find(&self, path: &Path) -> Option<PathBuf> {
        let mut places = self.writable.iter().chain(&self.shown);
        let found = places.find_map(|(name, place)| Some(place.join(path.strip_prefix(name).ok()?)))?;
        // Joining nothing leaves a slash at the end, which a file must not have.
        Some(found.components().collect())
    }

    /// A command that means the same where there is no root of the cell's own.
    pub(crate) fn translate(&self, command: Command) -> Command {
        let text = |text: OsString| OsString::from_vec(self.rewrite(text.as_bytes()));
        Command {
            argv: command.argv.into_iter().map(text).collect(),
            env: command.env.into_iter().map(|(name, value)| (name, text(value))).collect(),
            cwd: self.find(&command.cwd).unwrap_or(command.cwd),
        }
    }

    /// Replaces the cell's names by where things are, wherever one stands by itself or at the beginning of a path.
    fn rewrite(&self, text: &[u8]) -> Vec<u8> {
        let mut result = Vec::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            let begins = text[at] == b'/' && (at == 0 || !is_part_of_path(text[at - 1]));
            let found = self.writable.iter().chain(&self.shown).filter(|_| begins).find(|(name, _)| {
                let rest = text[at..].strip_prefix(name.as_os_str().as_bytes());
                rest.is_some_and(|rest| rest.first().is_none_or(|next| *next == b'/' || !is_part_of_path(*next)))
            });
            if let Some((name, place)) = found {
                result.extend_from_slice(place.as_os_str().as_bytes());
                at += name.as_os_str().len();
            } else {
                result.push(text[at]);
                at += 1;
            }
        }
        result
    }
}

/// Whether a character next to a path makes it part of a longer word.
fn is_part_of_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-+~%/".contains(&byte) || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Mount, Volume};

    fn layout() -> CellLayout {
        let mut spec = CellSpec::new();
        spec.mounts = vec![Mount::read_only("/home/u/py", "/opt/python"), Mount::read_only("/data/7", "/build")];
        spec.volumes = vec![Volume { target: "/run/result".into(), size: 1, inodes: 1 }];
        CellLayout::new("/tmp/ground/3".into(), &spec)
    }

    #[test]
    fn names_are_replaced_where_they_stand_for_places() {
        let layout = layout();
        let rewrite = |text: &str| String::from_utf8(layout.rewrite(text.as_bytes())).expect("text");
        for (text, expected) in [
            ("/sandbox", "/tmp/ground/3/work"),
            ("/sandbox/a b", "/tmp/ground/3/work/a b"),
            ("x=/tmp:/build/program;", "x=/tmp/ground/3/tmp:/data/7/program;"),
            ("@/build/arguments", "@/data/7/arguments"),
            ("cd \"/run/result\"", "cd \"/tmp/ground/3/volume-0\""),
            ("/opt/python/bin:/usr/bin", "/home/u/py/bin:/usr/bin"),
            ("/home/sandbox/.cache /home/sand", "/tmp/ground/3/home/.cache /home/sand"),
            ("/tmpfs /tmp-1 a/tmp //tmp http://h/tmp", "/tmpfs /tmp-1 a/tmp //tmp http://h/tmp"),
            ("", ""),
        ] {
            assert_eq!(rewrite(text), expected, "{text}");
        }
    }

    #[test]
    fn paths_are_found() {
        let layout = layout();
        let find = |path: &str| layout.find(Path::new(path));
        assert_eq!(find("/sandbox"), Some("/tmp/ground/3/work".into()));
        assert_eq!(find("/sandbox/x/y"), Some("/tmp/ground/3/work/x/y".into()));
        assert_eq!(find("/var/tmp/z"), Some("/tmp/ground/3/tmp/z".into()));
        assert_eq!(find("/build"), Some("/data/7".into()));
        assert_eq!(find("/usr/bin"), None);
        assert_eq!(layout.writable().count(), 4);
    }
}
