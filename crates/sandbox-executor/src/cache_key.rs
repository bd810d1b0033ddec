//! Keys of the compile cache and the package cache: an artifact is named by a digest of everything that goes into it.

use std::os::unix::ffi::OsStrExt;

use sandbox_cell::Command;
use sandbox_network::PackageIndex;
use sandbox_runtimes::Runtime;
use sha2::{Digest, Sha256};

use crate::input_files::InputFile;

/// A digest of everything that an artifact depends on. Each part is preceded by its length, so that different lists of parts
/// never have the same digest.
pub(crate) struct CacheKey(Sha256);

impl CacheKey {
    /// A key that starts from another one.
    #[cfg(feature = "canary")]
    pub(crate) fn from_key(key: &str) -> Self {
        let mut derived = Self(Sha256::new());
        derived.part(key.as_bytes());
        derived
    }

    /// With an owner, only requests of that owner find the entry, so that its existence reveals nothing to others.
    pub(crate) fn new(runtime: &Runtime, command: &Command, owner: Option<&str>) -> Self {
        let mut key = Self(Sha256::new());
        key.part(owner.unwrap_or_default().as_bytes());
        key.part(concat!("sandbox-run ", env!("CARGO_PKG_VERSION")).as_bytes());
        key.part(runtime.identity.as_bytes());
        for word in &command.argv {
            key.part(word.as_bytes());
        }
        for (name, value) in &command.env {
            key.part(name.as_bytes());
            key.part(value.as_bytes());
        }
        key
    }

    pub(crate) fn part(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    pub(crate) fn indexes(&mut self, indexes: &[PackageIndex]) {
        for index in indexes {
            self.part(index.identity().as_bytes());
        }
    }

    pub(crate) fn file(&mut self, file: &InputFile) {
        self.part(file.path.as_str().as_bytes());
        self.part(&[u8::from(file.executable) | u8::from(file.is_link) << 1]);
        self.part(&file.content);
    }

    pub(crate) fn finish(self) -> String {
        sandbox_base::random::hex(&self.0.finalize()[..20])
    }
}
