//! Volumes: host directories that are mounted in a cell, and named volumes that persist between runs.
//!
//! The contents of a named volume are one file, the stream that came out of the last cell. The host never parses it:
//! the next cell unpacks it into a volume of fixed size, and the host replaces it when that cell has ended. While a run
//! uses a volume, other runs wait.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use sandbox_base::data_dir::make_dir;
use sandbox_base::lock_file::{LockKind, try_lock};
use sandbox_base::reason;
use sandbox_base::units::{parse_size, shorten};
use sandbox_cell::{Mount, Volume};

use crate::settings::Settings;

/// The default size of a named volume.
const DEFAULT_SIZE: u64 = 64 << 20;

/// A volume that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeRequest {
    /// A place that persists between runs under a name.
    Named {
        /// Its name.
        name: String,
        /// Where it appears.
        target: PathBuf,
        /// How many bytes it can hold.
        size: u64,
    },
    /// A host directory or file.
    Host {
        /// Where it is on the host.
        source: PathBuf,
        /// Where it appears.
        target: PathBuf,
        /// Whether the program can write to it.
        writable: bool,
    },
}

impl VolumeRequest {
    /// Reads `HOST:TARGET[:ro|rw]` or `NAME:TARGET[:SIZE]`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refuse = |why: &str| Err(format!("volume '{}': {why}", shorten(text)));
        let mut parts = text.split(':');
        let (Some(source), Some(target), option, None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return refuse("expected HOST:TARGET[:ro|rw] or NAME:TARGET[:SIZE]");
        };
        if !target.starts_with('/') {
            return refuse("the target is not an absolute path");
        }
        let target = PathBuf::from(target);
        if source.contains('/') || source == "." || source == ".." {
            let writable = match option {
                None | Some("ro") => false,
                Some("rw") => true,
                Some(_) => return refuse("the mode of a host directory must be ro or rw"),
            };
            return Ok(Self::Host { source: source.into(), target, writable });
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if source.is_empty() || source.len() > 64 || source.starts_with('.') || !source.chars().all(fits) {
            return refuse(
                "a volume name may contain letters, digits, '.', '_' and '-'; a host path must contain a '/'",
            );
        }
        let size = match option.map(parse_size) {
            None => DEFAULT_SIZE,
            Some(Ok(size)) if size >= 4096 => size,
            Some(Ok(_)) => return refuse("the minimum size is 4 KiB"),
            Some(Err(_)) if matches!(option, Some("ro" | "rw")) => {
                return refuse("a named volume is always writable; a host path must contain a '/'");
            }
            Some(Err(error)) => return refuse(&error.to_string()),
        };
        Ok(Self::Named { name: source.to_owned(), target, size })
    }

    /// The mount of a host directory, if the operator allows it.
    pub(crate) fn mount(&self, settings: &Settings) -> Option<Result<Mount, String>> {
        let Self::Host { source, target, writable } = self else { return None };
        let shown = source.display();
        // One answer for forbidden and for missing paths, so that it reveals nothing about the host.
        let forbidden = format!(
            "volume {shown}: the path is not allowed; allow it with --allow-path {shown} or \
             SANDBOX_VOLUME_PATHS={shown}"
        );
        let allowed: Vec<PathBuf> = settings.volume_paths.iter().filter_map(|path| path.canonicalize().ok()).collect();
        let real = match source.canonicalize() {
            Ok(real) => real,
            Err(error) if allowed.iter().any(|prefix| source.starts_with(prefix)) => {
                return Some(Err(format!("volume {shown}: {}", reason(&error))));
            }
            Err(_) => return Some(Err(forbidden)),
        };
        if !allowed.iter().any(|prefix| real.starts_with(prefix)) {
            return Some(Err(forbidden));
        }
        Some(Ok(Mount { source: real, target: target.clone(), writable: *writable, foreign: true }))
    }

    /// The place in the cell for a named volume.
    pub(crate) fn volume(&self) -> Option<(String, Volume)> {
        let Self::Named { name, target, size } = self else { return None };
        Some((name.clone(), Volume { target: target.clone(), size: *size, inodes: *size / 4096 + 64 }))
    }
}

/// Checks a working directory: relative to the usual one, or an absolute path.
pub(crate) fn check_workdir(path: &Path) -> Result<(), String> {
    let normal = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::RootDir);
    if path.as_os_str().is_empty() || !path.components().all(normal) {
        return Err(format!("invalid working directory '{}': expected a plain path", path.display()));
    }
    Ok(())
}

/// The polling interval while another run uses a volume.
const LOCK_POLL: Duration = Duration::from_millis(20);
const _: () = assert!(LOCK_POLL.as_millis() < 50, "a cancellation must be noticed within 50 ms");

/// A named volume that a run uses, locked.
#[derive(Debug)]
pub(crate) struct NamedVolume {
    file: PathBuf,
    _lock: File,
}

impl NamedVolume {
    /// Opens a volume in a data directory; waits for other runs as long as `patient` returns true.
    pub(crate) fn open(data_dir: &Path, name: &str, mut patient: impl FnMut() -> bool) -> io::Result<Option<Self>> {
        let dir = data_dir.join("volumes");
        make_dir(&dir)?;
        loop {
            match try_lock(&dir.join(format!("{name}.lock")), LockKind::Exclusive, 0o600)? {
                Some(lock) => return Ok(Some(Self { file: dir.join(format!("{name}.volume")), _lock: lock })),
                None if patient() => std::thread::sleep(LOCK_POLL),
                None => return Ok(None),
            }
        }
    }

    /// What it holds, if anything was ever put there.
    pub(crate) fn content(&self) -> io::Result<Option<File>> {
        match File::open(&self.file) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A file for the new content of the volume.
    pub(crate) fn next(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600).open(self.file.with_extension("next"))
    }

    /// Replaces the content of the volume by that file.
    pub(crate) fn replace(&self, next: &File) -> io::Result<()> {
        next.sync_data()?;
        std::fs::rename(self.file.with_extension("next"), &self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_paths_or_names() {
        let host = |source: &str, writable| {
            Ok(VolumeRequest::Host { source: source.into(), target: "/data".into(), writable })
        };
        assert_eq!(VolumeRequest::parse("./x:/data"), host("./x", false));
        assert_eq!(VolumeRequest::parse("/srv/x:/data:ro"), host("/srv/x", false));
        assert_eq!(VolumeRequest::parse("/srv/x:/data:rw"), host("/srv/x", true));
        let named = |size| Ok(VolumeRequest::Named { name: "db".into(), target: "/data".into(), size });
        assert_eq!(VolumeRequest::parse("db:/data"), named(DEFAULT_SIZE));
        assert_eq!(VolumeRequest::parse("db:/data:1m"), named(1 << 20));
        for bad in ["", "db", "db:data", "db:/data:rw", "db:/data:1", "d b:/data", ".x:/data", "a:/b:c:d", "/x:/y:z"] {
            assert!(VolumeRequest::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn host_paths_are_refused_unless_allowed() {
        let dir = tempfile::tempdir().expect("tempdir");
        let root = dir.path().canonicalize().expect("path");
        std::fs::create_dir_all(root.join("allowed/inner")).expect("mkdir");
        std::fs::create_dir(root.join("allowedother")).expect("mkdir");
        std::os::unix::fs::symlink("/etc", root.join("allowed/link")).expect("link");
        let settings = Settings { volume_paths: vec![root.join("allowed")], ..Settings::default() };
        let mount = |path: &str| {
            let request = VolumeRequest::Host { source: root.join(path), target: "/d".into(), writable: false };
            request.mount(&settings).expect("a host path")
        };
        assert!(mount("allowed").is_ok() && mount("allowed/inner").is_ok());
        for path in ["allowedother", "allowed/link", "allowed/../allowedother", "."] {
            assert!(mount(path).expect_err(path).contains("is not allowed"), "{path}");
        }
        assert!(mount("allowed/none").expect_err("missing").contains("no such file"));
        assert!(mount("none").expect_err("missing").contains("is not allowed"), "missing paths are not revealed");
    }

    #[test]
    fn a_named_volume_is_used_by_one_at_a_time() {
        use std::io::{Read, Write};
        let dir = tempfile::tempdir().expect("tempdir");
        let open = || NamedVolume::open(dir.path(), "db", || false).expect("open");
        let first = open().expect("free");
        assert!(open().is_none());
        assert!(first.content().expect("read").is_none());
        let mut next = first.next().expect("next");
        next.write_all(b"x").expect("write");
        assert!(first.content().expect("read").is_none(), "not before it is replaced");
        first.replace(&next).expect("replace");
        drop((first, next));
        let mut text = String::new();
        open().expect("free").content().expect("read").expect("some").read_to_string(&mut text).expect("read");
        assert_eq!(text, "x");
    }

    #[test]
    fn working_directories_are_plain() {
        for good in ["src", "a/b", "/data"] {
            assert!(check_workdir(Path::new(good)).is_ok(), "{good}");
        }
        for bad in ["", "..", "a/../..", "/data/../etc"] {
            assert!(check_workdir(Path::new(bad)).is_err(), "{bad}");
        }
    }
}
