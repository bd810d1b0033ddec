//! The store of unpacked images, by content, and their names.
//!
//! ```text
//! images/3a5f…/root        the root file system
//! images/3a5f…/image.json  its metadata
//! images/3a5f….lock        locked by users (shared) and by a removal (exclusive)
//! images/names/python:3    the digest that the name stands for
//! images/import.lock       locked during an import
//! ```
//!
//! An image is unpacked under a temporary name and renamed when it is complete. The next import removes what an
//! interrupted one left behind.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandbox_base::data_dir::make_dir;
use sandbox_base::lock_file::{LockKind, lock, try_lock_existing};
use sandbox_base::reason;
use serde::{Deserialize, Serialize};

use crate::ROOT;
use crate::name::ImageName;
use crate::source::is_digest;
use crate::unpack::{ImageConfig, Unpacked};

/// The name prefix of images that are being unpacked.
const STAGING: &str = "importing";

/// The minimum length of an abbreviated digest.
const LEAST_DIGEST: usize = 12;

/// Why the store refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// There is no such image.
    #[error("no image '{0}'; list images with `sandbox-run image list`, add one with `sandbox-run image import`")]
    Unknown(String),
    /// A run uses it.
    #[error("the image '{0}' is in use; try again when its runs have ended")]
    InUse(String),
    /// An invalid name.
    #[error("{0}")]
    Name(String),
    /// The store cannot be read or written.
    #[error("cannot {what}: {}", reason(.source))]
    Io {
        /// The operation that failed.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> ImageError {
    let what = what.into();
    move |source| ImageError::Io { what, source }
}

/// The images in a data directory.
#[derive(Debug, Clone)]
pub struct ImageStore {
    dir: PathBuf,
}

/// An image that cannot be removed while this exists.
#[derive(Debug, Clone)]
pub struct Image {
    /// The name or digest that was requested.
    pub name: String,
    /// `sha256:…`
    pub digest: String,
    /// Its root file system.
    pub root: PathBuf,
    /// Its default configuration for runs.
    pub config: ImageConfig,
    _lock: Arc<File>,
}

/// An image in a list.
#[derive(Debug, Clone, Serialize)]
pub struct ListedImage {
    /// Its names; none if an import was interrupted before it got a name.
    pub names: Vec<String>,
    /// Its metadata.
    #[serde(flatten)]
    pub about: ImageInfo,
}

/// The metadata of an image.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ImageInfo {
    /// `sha256:…`
    pub digest: String,
    /// The total size of its layers in bytes.
    pub size: u64,
    /// The total number of files, directories and links.
    pub entries: u64,
    /// The number of entries that were left out.
    pub skipped: u64,
    /// Its default configuration for runs.
    pub config: ImageConfig,
}

/// An image that is being unpacked. It is removed unless it is published.
#[derive(Debug)]
pub struct Import {
    store: ImageStore,
    dir: PathBuf,
    /// The import lock, which one process can hold at a time.
    _lock: File,
}

impl ImageStore {
    /// Opens the store in a data directory.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        Self { dir: data_dir.join("images") }
    }

    fn names_dir(&self) -> PathBuf {
        self.dir.join("names")
    }

    fn lock_file(&self, hex: &str) -> PathBuf {
        self.dir.join(format!("{hex}.lock"))
    }

    /// Creates a directory to unpack an image into. Waits for other imports.
    pub fn import(&self) -> Result<Import, ImageError> {
        let begin = || {
            make_dir(&self.dir)?;
            DirBuilder::new().mode(0o755).recursive(true).create(self.names_dir())?;
            let lock = lock(&self.dir.join("import.lock"), LockKind::Exclusive, 0o644)?;
            let dir = self.dir.join(STAGING);
            remove_tree(&dir)?;
            DirBuilder::new().mode(0o755).create(&dir)?;
            Ok(Import { store: self.clone(), dir: dir.canonicalize()?, _lock: lock })
        };
        begin().map_err(failed(format!("make {}", self.dir.display())))
    }

    /// The image with this name or digest.
    pub fn open(&self, name: &str) -> Result<Image, ImageError> {
        let hex = self.find(name)?;
        let unknown = || ImageError::Unknown(name.to_owned());
        let file = self.lock_file(&hex);
        let lock = match try_lock_existing(&file, LockKind::Shared) {
            Ok(Some(lock)) => lock,
            // Only a process that removes the image locks it exclusively.
            Ok(None) => return Err(unknown()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(unknown()),
            Err(error) => return Err(failed(format!("lock {}", file.display()))(error)),
        };
        let about = self.about(&hex).ok_or_else(unknown)?;
        let root = self.dir.join(&hex).join(ROOT).canonicalize().map_err(failed(format!("open the image '{name}'")))?;
        let ImageInfo { digest, config, .. } = about;
        Ok(Image { name: name.to_owned(), digest, root, config, _lock: Arc::new(lock) })
    }

    /// The digest that a name, or an abbreviated digest, stands for.
    fn find(&self, name: &str) -> Result<String, ImageError> {
        let unknown = || ImageError::Unknown(name.chars().filter(|c| !c.is_control()).take(200).collect());
        if let Ok(checked) = ImageName::new(name)
            && let Ok(text) = std::fs::read_to_string(self.names_dir().join(checked.file()))
            && is_digest(text.trim())
        {
            return Ok(text.trim().to_owned());
        }
        let hex = name.strip_prefix("sha256:").unwrap_or(name);
        let mut found =
            self.digests().into_iter().filter(|digest| hex.len() >= LEAST_DIGEST && digest.starts_with(hex));
        match (found.next(), found.next()) {
            (Some(digest), None) => Ok(digest),
            _ => Err(unknown()),
        }
    }

    fn digests(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let mut digests: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        digests.retain(|name| is_digest(name));
        digests.sort_unstable();
        digests
    }

    /// All names, each with its digest.
    fn names(&self) -> Vec<(ImageName, String)> {
        let entries = std::fs::read_dir(self.names_dir()).into_iter().flatten().flatten();
        let read = |entry: std::fs::DirEntry| {
            let name = ImageName::of_file(entry.file_name().to_str()?)?;
            Some((name, std::fs::read_to_string(entry.path()).ok()?.trim().to_owned()))
        };
        let mut names: Vec<_> = entries.filter_map(read).collect();
        names.sort_unstable();
        names
    }

    fn about(&self, hex: &str) -> Option<ImageInfo> {
        let text = std::fs::read(self.dir.join(hex).join("image.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// All images.
    #[must_use]
    pub fn list(&self) -> Vec<ListedImage> {
        let names = self.names();
        let listed = |hex: String| {
            let about = self.about(&hex)?;
            let own = names.iter().filter(|(_, digest)| *digest == hex).map(|(name, _)| name.to_string());
            Some(ListedImage { names: own.collect(), about })
        };
        self.digests().into_iter().filter_map(listed).collect()
    }

    /// Removes a name, and the image if it has no other. Given a digest, removes the image with all its names.
    pub fn remove(&self, name: &str) -> Result<(), ImageError> {
        let hex = self.find(name)?;
        let named = ImageName::new(name).ok().map(|name| self.names_dir().join(name.file())).filter(|f| f.exists());
        let names: Vec<_> = self.names().into_iter().filter(|(_, digest)| *digest == hex).collect();
        let remove_name =
            |file: &Path| std::fs::remove_file(file).map_err(failed(format!("remove {}", file.display())));
        if let (Some(file), true) = (&named, names.len() > 1) {
            return remove_name(file);
        }
        let lock_file = self.lock_file(&hex);
        let lock = try_lock_existing(&lock_file, LockKind::Exclusive);
        let lock = lock.map_err(failed(format!("lock {}", lock_file.display())))?;
        let _lock = lock.ok_or_else(|| ImageError::InUse(name.to_owned()))?;
        for (name, _) in names {
            remove_name(&self.names_dir().join(name.file()))?;
        }
        let remove = || {
            remove_tree(&self.dir.join(&hex))?;
            std::fs::remove_file(&lock_file)
        };
        remove().map_err(failed(format!("remove the image '{name}'")))
    }
}

impl Import {
    /// The directory to unpack into.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Publishes the image under a name: the given one, or its own, or one derived from `file`.
    pub fn publish(self, unpacked: Unpacked, name: Option<&ImageName>, file: &str) -> Result<Image, ImageError> {
        let Unpacked { digest, name: own, config, size, entries, skipped } = unpacked;
        let hex = digest.strip_prefix("sha256:").unwrap_or_default().to_owned();
        if !is_digest(&hex) {
            return Err(ImageError::Name(format!("'{digest}' is not a SHA-256 digest")));
        }
        let own = || own.and_then(|own| ImageName::new(&own).ok());
        let name = name.cloned().or_else(own).or_else(|| ImageName::like(file));
        let name = name.ok_or_else(|| ImageError::Name("give the image a name with --name".to_owned()))?;
        let store = self.store.clone();
        let about = ImageInfo { digest, size, entries, skipped, config };
        let publish = || {
            let target = store.dir.join(&hex);
            lock(&store.lock_file(&hex), LockKind::Shared, 0o644)?;
            if store.about(&hex).is_none() {
                std::fs::write(self.dir.join("image.json"), serde_json::to_vec_pretty(&about)?)?;
                // After a crash of the host, a published name must not lead to incomplete files.
                rustix::fs::syncfs(File::open(&self.dir)?)?;
                remove_tree(&target)?;
                std::fs::rename(&self.dir, &target)?;
            }
            let file = store.names_dir().join(name.file());
            let temporary = self.store.dir.join("name.tmp");
            std::fs::write(&temporary, format!("{hex}\n"))?;
            std::fs::rename(&temporary, file)
        };
        publish().map_err(failed(format!("keep the image '{name}'")))?;
        store.open(name.as_str())
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        let _ = remove_tree(&self.dir);
    }
}

fn remove_tree(dir: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(digit: &str, name: Option<&str>) -> Unpacked {
        let digest = format!("sha256:{}", digit.repeat(64));
        Unpacked {
            digest,
            name: name.map(str::to_owned),
            config: ImageConfig::default(),
            size: 5,
            entries: 1,
            skipped: 0,
        }
    }

    fn import(store: &ImageStore, digit: &str, own: Option<&str>, name: Option<&str>) -> Result<Image, ImageError> {
        let import = store.import()?;
        std::fs::create_dir(import.dir().join(ROOT)).expect("mkdir");
        let name = name.map(|name| ImageName::new(name).expect("name"));
        import.publish(unpacked(digit, own), name.as_ref(), "some file")
    }

    #[test]
    fn images_are_found_by_name_and_digest_and_removed_when_unused() {
        let dir = tempfile::tempdir().expect("tempdir");
        let store = ImageStore::new(dir.path());
        assert!(matches!(store.open("x"), Err(ImageError::Unknown(_))));
        let image = import(&store, "a", Some("team/x:1"), None).expect("imported");
        assert_eq!((image.name.as_str(), image.root.is_dir()), ("team/x:1", true));
        import(&store, "a", None, Some("y")).expect("again");
        import(&store, "b", None, None).expect("another");
        let names: Vec<_> = store.list().into_iter().map(|listed| listed.names).collect();
        assert_eq!(names, [vec!["team/x:1".to_owned(), "y".to_owned()], vec!["some-file".to_owned()]]);
        assert_eq!(store.open(&"a".repeat(12)).expect("by digest").digest, image.digest);
        assert!(store.open("aaa").is_err(), "too short");

        store.remove("y").expect("one of two names");
        assert!(matches!(store.remove("team/x:1"), Err(ImageError::InUse(_))));
        drop(image);
        store.remove("team/x:1").expect("the last name");
        assert!(store.open("team/x:1").is_err());
        assert_eq!(store.list().len(), 1);
    }

    #[test]
    fn an_abandoned_import_leaves_nothing() {
        let dir = tempfile::tempdir().expect("tempdir");
        let store = ImageStore::new(dir.path());
        let given_up = store.import().expect("begun");
        let path = given_up.dir().to_owned();
        std::fs::write(path.join("x"), "x").expect("write");
        drop(given_up);
        assert!(!path.exists());
        assert!(import(&store, "../../etc/passwd", None, None).is_err());
    }
}
