//! The root file system of a container: the same as a native cell's, as a description instead of mounts.

use std::io;
use std::path::{Path, PathBuf};

use sandbox_cell::bridge::system_paths;
use sandbox_cell::{CellSpec, HOME_DIR, WORK_DIR};

/// The path of this program in a container.
pub(super) const PROGRAM: &str = "/.sandbox/run";

/// The maximum number of mounts for an image's directories.
const MOST_BINDS: usize = 500;

/// The description of a root file system.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct ContainerRoot {
    /// Directories and mount points that must exist before anything is mounted; paths without a leading slash.
    pub(super) dirs: Vec<PathBuf>,
    /// Files: path and content.
    pub(super) files: Vec<(PathBuf, &'static str)>,
    /// Symbolic links: path and target.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// Read-only mounts: host path and target.
    pub(super) binds: Vec<(PathBuf, PathBuf)>,
    /// Writable places.
    pub(super) tmpfs: Vec<Tmpfs>,
}

/// A writable place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tmpfs {
    pub(super) target: PathBuf,
    pub(super) size: u64,
    pub(super) inodes: u64,
    pub(super) mode: u32,
}

impl ContainerRoot {
    /// The root file system of a cell.
    pub(super) fn plan(spec: &CellSpec) -> io::Result<Self> {
        let mut root = Self::default();
        for (target, mode) in [(WORK_DIR, 0o755), (HOME_DIR, 0o755), ("/tmp", 0o1777), ("/dev/shm", 0o1777)] {
            let (size, inodes) = (spec.limits.disk(), spec.limits.inodes());
            root.tmpfs.push(Tmpfs { target: target.into(), size, inodes, mode });
        }
        for volume in &spec.volumes {
            let (target, size, inodes) = (volume.target.clone(), volume.size, volume.inodes + 1);
            root.tmpfs.push(Tmpfs { target, size, inodes, mode: 0o755 });
        }
        root.binds.push((std::env::current_exe()?, PROGRAM.into()));
        root.binds.extend(spec.mounts.iter().map(|mount| (mount.source.clone(), mount.target.clone())));
        match &spec.image {
            None => root.show_system(),
            Some(image) => root.show_image(image, Path::new("/"))?,
        }
        root.make_targets();
        Ok(root)
    }

    fn show_system(&mut self) {
        for path in system_paths() {
            match path.read_link() {
                Ok(target) => self.links.push((path, target)),
                Err(_) if path.exists() => self.binds.push((path.clone(), path)),
                Err(_) => {}
            }
        }
        self.files.extend(sandbox_cell::own_files().map(|(name, text)| (Path::new("/etc").join(name), text)));
        self.links.push(("/var/tmp".into(), "/tmp".into()));
        self.dirs.extend(["/opt", "/run"].map(PathBuf::from));
    }

    /// Mounts an image around the existing entries, as a native cell does.
    fn show_image(&mut self, image: &Path, dir: &Path) -> io::Result<()> {
        let own: Vec<PathBuf> = (self.binds.iter().map(|(_, target)| target.clone()))
            .chain(self.tmpfs.iter().map(|tmpfs| tmpfs.target.clone()))
            .chain(["/dev", "/proc", "/sys", "/run"].map(PathBuf::from))
            .collect();
        let mut names: Vec<_> =
            std::fs::read_dir(image)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
        names.sort();
        for name in names {
            let (source, target) = (image.join(&name), dir.join(&name));
            let kind = source.symlink_metadata()?.file_type();
            let shared = own.iter().any(|own| own.starts_with(&target));
            if own.contains(&target) || (shared && !kind.is_dir()) {
                continue;
            }
            if shared {
                self.show_image(&source, &target)?;
            } else if kind.is_symlink() {
                self.links.push((target, source.read_link()?));
            } else {
                self.binds.push((source, target));
            }
            if self.binds.len() > MOST_BINDS {
                return Err(io::Error::other("the image has too many top-level entries"));
            }
        }
        Ok(())
    }

    /// A mount point.
    fn make_targets(&mut self) {
        self.dirs.extend(["/dev", "/proc"].map(PathBuf::from));
        self.dirs.extend(self.tmpfs.iter().map(|tmpfs| tmpfs.target.clone()));
        for (source, target) in &self.binds {
            if source.is_dir() {
                self.dirs.push(target.clone());
            } else {
                self.files.push((target.clone(), ""));
            }
        }
        // Entries of /dev are created there when it is mounted.
        self.dirs.retain(|dir| dir == Path::new("/dev") || !dir.starts_with("/dev"));
    }

    /// Creates the mount points in a private directory. It contains no links yet that could lead elsewhere.
    pub(super) fn make(&self, at: &Path) -> io::Result<()> {
        let in_root = |path: &Path| at.join(path.strip_prefix("/").unwrap_or(path));
        let parents = self.files.iter().map(|(path, _)| path).chain(self.links.iter().map(|(path, _)| path));
        for dir in self.dirs.iter().map(PathBuf::as_path).chain(parents.filter_map(|path| path.parent())) {
            std::fs::create_dir_all(in_root(dir))?;
        }
        for (path, text) in &self.files {
            std::fs::write(in_root(path), text)?;
        }
        for (path, target) in &self.links {
            match std::os::unix::fs::symlink(target, in_root(path)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandbox_cell::{Mount, Volume};

    #[test]
    fn image_entries_are_mounted_around_the_requested_mounts() {
        let dir = tempfile::tempdir().expect("tempdir");
        for path in ["usr/bin", "opt/app", "etc", "proc", "tmp"] {
            std::fs::create_dir_all(dir.path().join(path)).expect("mkdir");
        }
        std::os::unix::fs::symlink("/proc", dir.path().join("data")).expect("link");
        std::os::unix::fs::symlink("usr/bin", dir.path().join("bin")).expect("link");
        let mut spec = CellSpec::new();
        spec.image = Some(dir.path().to_owned());
        spec.mounts = vec![Mount::read_only("/srv", "/opt/packages")];
        spec.volumes = vec![Volume { target: "/data/deep".into(), size: 1, inodes: 1 }];
        let root = ContainerRoot::plan(&spec).expect("planned");
        let targets: Vec<_> = root.binds.iter().map(|(_, target)| target.to_str().expect("utf-8")).collect();
        assert_eq!(targets, [PROGRAM, "/opt/packages", "/etc", "/opt/app", "/usr"]);
        assert_eq!(root.links, [(PathBuf::from("/bin"), PathBuf::from("usr/bin"))]);
        assert!(root.files.iter().all(|(path, _)| !path.starts_with("/etc")));
        let made = tempfile::tempdir().expect("tempdir");
        root.make(made.path()).expect("made");
        assert!(made.path().join("data/deep").is_dir() && made.path().join("bin").is_symlink());
    }
}
