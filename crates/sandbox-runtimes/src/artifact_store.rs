//! The artifact store: package environments and compiled programs, made once for many runs and found by cache key.
//!
//! # Theory of operation
//!
//! An entry is a directory named by a key, the digest of all its inputs. It is filled under a temporary name and
//! renamed when it is complete, so a process that dies in the middle leaves no incomplete entry. Beside it is a lock
//! file: users of the entry hold a shared lock, the process that makes or removes it an exclusive one. Locks end with
//! their owners, which may be threads of one process or different processes.
//!
//! A crash of the host must not leave empty files under the name of a complete entry. Package environments, which take
//! long to make, are therefore written to the disk before the rename. Compiled programs are not: a run waits for them,
//! and flushing all pending writes of the host can take long. Their name contains the boot id of the host, so entries
//! from before a crash are never found afterwards.
//!
//! Contents come out of a cell as a stream of checked entries. The host creates the files, in a directory that no other
//! user can write to.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use sandbox_base::data_dir::{keep_private, make_dir};
use sandbox_base::lock_file::{LockKind, share, try_lock};
use sandbox_cell::archive::read_volume;
use serde::{Deserialize, Serialize};

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArtifactKind {
    /// Packages, or what was prepared for a toolchain.
    Environment,
    /// A compiled program.
    Build,
}

impl ArtifactKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Environment, Self::Build];

    /// Its name in lists, and of its directory.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Environment => "environments",
            Self::Build => "builds",
        }
    }
}

/// The polling interval while another process makes an entry.
const LOOK: Duration = Duration::from_millis(20);
const _: () = assert!(LOOK.as_millis() < 50, "a cancellation must be noticed within 50 ms");

/// A directory of entries.
#[derive(Debug)]
pub struct ArtifactStore {
    root: PathBuf,
    /// The directory of each kind, once it was needed.
    real: [OnceLock<PathBuf>; 2],
    /// The boot id of the kernel, if it can be read.
    boot: Option<String>,
    /// A directory that goes with the store.
    _temporary: Option<tempfile::TempDir>,
}

/// An entry that exists and stays as long as this does.
#[derive(Debug)]
pub struct Entry {
    /// The directory to mount.
    pub content: PathBuf,
    lock: File,
}

impl Entry {
    /// Another handle to the same entry.
    pub fn share(&self) -> io::Result<Self> {
        Ok(Self { content: self.content.clone(), lock: self.lock.try_clone()? })
    }
}

/// The answer to a request for an entry.
#[derive(Debug)]
pub enum Claim {
    /// The entry exists.
    Ready(Entry),
    /// It does not exist; the caller alone may make it.
    Vacant(Staging),
}

/// An entry in the making. Unless it is published, nothing is left of it.
#[derive(Debug)]
pub struct Staging {
    dir: PathBuf,
    temporary: PathBuf,
    lock: Option<File>,
    size: u64,
    /// Whether it outlives the host's next start.
    lasts: bool,
}

/// An entry in a list.
#[derive(Debug, Clone, Serialize)]
pub struct ListedArtifact {
    /// `environments` or `builds`.
    pub kind: &'static str,
    /// Its key.
    pub key: String,
    /// What it is, for people.
    pub label: String,
    /// The owner; none if it is shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// How many bytes it holds.
    pub size: u64,
    /// When it was last used, in seconds since 1970.
    pub used: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct EntryRecord {
    label: String,
    #[serde(default)]
    owner: Option<String>,
    size: u64,
}

impl ArtifactStore {
    /// The store in a data directory.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        Self { root: data_dir.to_owned(), real: Default::default(), boot: boot(), _temporary: None }
    }

    /// A store that is deleted with this value. With `passed`, the users of cells can traverse it.
    pub fn temporary(passed: bool) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("sandbox-run-").tempdir()?;
        keep_private(dir.path(), passed)?;
        let root = dir.path().canonicalize()?;
        Ok(Self { root, real: Default::default(), boot: boot(), _temporary: Some(dir) })
    }

    /// The directory that holds everything.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.root.clone()
    }

    fn dir(&self, kind: ArtifactKind) -> PathBuf {
        self.root.join(kind.name())
    }

    /// The same, which exists, as a real path: mounts take no other.
    fn real_dir(&self, kind: ArtifactKind) -> io::Result<PathBuf> {
        let real = &self.real[kind as usize];
        if let Some(known) = real.get().filter(|known| known.is_dir()) {
            return Ok(known.clone());
        }
        let dir = self.dir(kind);
        make_dir(&dir)?;
        let found = dir.canonicalize()?;
        let _ = real.set(found.clone());
        Ok(found)
    }

    /// Asks for an entry. If another process is making it, waits as long as `patient` returns true.
    pub fn claim(&self, kind: ArtifactKind, key: &str, mut patient: impl FnMut() -> bool) -> io::Result<Option<Claim>> {
        let boot = self.boot.as_ref().filter(|_| kind == ArtifactKind::Build);
        let name = boot.map_or_else(|| key.to_owned(), |boot| format!("{key}-{boot}"));
        let dir = self.real_dir(kind)?.join(name);
        let lock_file = dir.with_extension("lock");
        let entry = |lock: File| {
            let _ = lock.set_modified(SystemTime::now());
            Claim::Ready(Entry { content: dir.join("content"), lock })
        };
        loop {
            if let Some(lock) = try_lock(&lock_file, LockKind::Shared, 0o644)?
                && dir.is_dir()
            {
                return Ok(Some(entry(lock)));
            }
            if let Some(lock) = try_lock(&lock_file, LockKind::Exclusive, 0o644)? {
                if dir.is_dir() {
                    share(&lock)?;
                    return Ok(Some(entry(lock)));
                }
                let temporary = dir.with_extension("tmp");
                // Its maker died.
                remove_tree(&temporary)?;
                make_directory(&temporary)?;
                make_directory(&temporary.join("content"))?;
                return Ok(Some(Claim::Vacant(Staging {
                    dir,
                    temporary,
                    lock: Some(lock),
                    size: 0,
                    lasts: boot.is_none(),
                })));
            }
            if !patient() {
                return Ok(None);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// All entries, the last used first.
    #[must_use]
    pub fn list(&self) -> Vec<ListedArtifact> {
        let mut all: Vec<ListedArtifact> = ArtifactKind::ALL.iter().flat_map(|kind| self.list_kind(*kind)).collect();
        all.sort_by_key(|entry| std::cmp::Reverse(entry.used));
        all
    }

    fn list_kind(&self, kind: ArtifactKind) -> Vec<ListedArtifact> {
        let mut found = vec![];
        for entry in std::fs::read_dir(self.dir(kind)).into_iter().flatten().flatten() {
            let dir = entry.path();
            let Ok(text) = std::fs::read(dir.join("about.json")) else { continue };
            let (Some(key), Ok(about)) = (entry.file_name().to_str().map(str::to_owned), serde_json::from_slice(&text))
            else {
                continue;
            };
            // Being made is not being there.
            if dir.extension().is_some() {
                continue;
            }
            let EntryRecord { label, owner, size } = about;
            let used = dir.with_extension("lock").metadata().map_or(0, |meta| meta.mtime().unsigned_abs());
            found.push(ListedArtifact { kind: kind.name(), key, label, owner, size, used });
        }
        found
    }

    /// Removes an entry. False if it is in use or not there.
    pub fn remove(&self, kind: ArtifactKind, key: &str) -> io::Result<bool> {
        let dir = self.dir(kind).join(key);
        let lock_file = dir.with_extension("lock");
        if !lock_file.exists() {
            return Ok(false);
        }
        let Some(_lock) = try_lock(&lock_file, LockKind::Exclusive, 0o644)? else { return Ok(false) };
        let temporary = dir.with_extension("tmp");
        remove_tree(&temporary)?;
        let existed = match std::fs::rename(&dir, &temporary) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        remove_tree(&temporary)?;
        std::fs::remove_file(&lock_file)?;
        Ok(existed)
    }

    /// Removes entries of a kind that are not in use until no more than this is left: of the owner who has most bytes, the
    /// least recently used entry. So an owner who stays within an equal share never loses anything to another.
    pub fn shrink(&self, kind: ArtifactKind, most: u64) -> io::Result<()> {
        let mut entries = self.list_kind(kind);
        let mut total: u64 = entries.iter().map(|entry| entry.size).sum();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.used));
        let mut owners: BTreeMap<Option<String>, (u64, Vec<ListedArtifact>)> = BTreeMap::new();
        for entry in entries {
            let (size, of_owner) = owners.entry(entry.owner.clone()).or_default();
            *size += entry.size;
            of_owner.push(entry);
        }
        while total > most {
            let left = owners.values_mut().filter(|(_, entries)| !entries.is_empty());
            let Some((size, entries)) = left.max_by_key(|(size, _)| *size) else { break };
            let Some(entry) = entries.pop() else { break };
            if self.remove(kind, &entry.key)? {
                total = total.saturating_sub(entry.size);
                *size = size.saturating_sub(entry.size);
            }
        }
        Ok(())
    }
}

fn boot() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    id.split('-').next().filter(|id| id.len() == 8).map(str::to_owned)
}

/// A directory in the way of nothing.
fn remove_tree(dir: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Staging {
    /// Puts in what came out of a cell's volume.
    pub fn unpack(&mut self, volume: &mut impl Read) -> io::Result<()> {
        let content = self.temporary.join("content");
        read_volume(volume, &mut |path, file, from| {
            let target = content.join(path.as_str());
            path.parents().try_for_each(|parent| make_directory(&content.join(parent)))?;
            let Some((executable, size)) = file else {
                return make_directory(&target);
            };
            let mode = if executable { 0o755 } else { 0o644 };
            let mut to = OpenOptions::new().write(true).create_new(true).mode(mode).open(target)?;
            to.set_permissions(Permissions::from_mode(mode))?;
            self.size += size;
            io::copy(from, &mut to).map(drop)
        })
    }

    /// Makes the entry visible. It counts for an owner, if it does not belong to all.
    pub fn publish(mut self, label: &str, owner: Option<&str>) -> io::Result<Entry> {
        let about = EntryRecord { label: label.to_owned(), owner: owner.map(str::to_owned), size: self.size };
        std::fs::write(self.temporary.join("about.json"), serde_json::to_vec(&about)?)?;
        if self.lasts {
            rustix::fs::syncfs(File::open(&self.temporary)?)?;
        }
        std::fs::rename(&self.temporary, &self.dir)?;
        let lock = self.lock.take().ok_or(io::ErrorKind::NotFound)?;
        share(&lock)?;
        Ok(Entry { content: self.dir.join("content"), lock })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.lock.is_some() {
            let _ = remove_tree(&self.temporary);
            let _ = std::fs::remove_file(self.dir.with_extension("lock"));
        }
    }
}

/// Makes a directory, unless it exists. Cells have other users, so the caller's umask must not close the directories
/// that are mounted in them.
fn make_directory(dir: &Path) -> io::Result<()> {
    match std::fs::create_dir(dir) {
        Ok(()) => std::fs::set_permissions(dir, Permissions::from_mode(0o755)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn vacant(store: &ArtifactStore, key: &str) -> Staging {
        match store.claim(ArtifactKind::Build, key, || true).expect("claim") {
            Some(Claim::Vacant(staging)) => staging,
            other => panic!("not vacant: {other:?}"),
        }
    }

    fn ready(store: &ArtifactStore, key: &str) -> Entry {
        match store.claim(ArtifactKind::Build, key, || true).expect("claim") {
            Some(Claim::Ready(entry)) => entry,
            other => panic!("not ready: {other:?}"),
        }
    }

    #[test]
    fn builds_are_not_found_after_the_hosts_next_start() {
        let mut store = ArtifactStore::temporary(false).expect("tempdir");
        drop(vacant(&store, "k").publish("a label", None).expect("publish"));
        drop(ready(&store, "k"));
        store.boot = Some("00000000".to_owned());
        drop(vacant(&store, "k"));
        assert_eq!(store.list().len(), 1, "until it is the longest unused");
        // Nothing that takes long to make is lost.
        store.boot = boot();
        let Some(Claim::Vacant(staging)) = store.claim(ArtifactKind::Environment, "k", || true).expect("claim") else {
            panic!()
        };
        drop(staging.publish("a label", None).expect("publish"));
        store.boot = Some("00000000".to_owned());
        let found = store.claim(ArtifactKind::Environment, "k", || true).expect("claim");
        assert!(matches!(found, Some(Claim::Ready(_))), "{found:?}");
    }

    #[test]
    fn an_entry_is_made_once_and_found_afterwards() {
        let store = ArtifactStore::temporary(false).expect("tempdir");
        let staging = vacant(&store, "k");
        std::fs::write(staging.temporary.join("content/f"), "x").expect("write");
        assert!(store.list().is_empty(), "not before it is published");
        drop(staging.publish("a label", None).expect("publish"));
        let entry = ready(&store, "k");
        assert_eq!(std::fs::read(entry.content.join("f")).expect("read"), b"x");
        let list = store.list();
        assert_eq!((list[0].label.as_str(), list[0].kind), ("a label", "builds"));
        assert!(!store.remove(ArtifactKind::Build, &list[0].key).expect("remove"), "it is in use");
        drop(entry);
        assert!(store.remove(ArtifactKind::Build, &list[0].key).expect("remove"));
        assert!(!store.remove(ArtifactKind::Build, &list[0].key).expect("remove"), "it is gone");
        assert_eq!(std::fs::read_dir(store.dir(ArtifactKind::Build)).expect("dir").count(), 0);
    }

    #[test]
    fn abandoned_entry_leaves_nothing() {
        let store = ArtifactStore::temporary(false).expect("tempdir");
        drop(vacant(&store, "k"));
        assert_eq!(std::fs::read_dir(store.dir(ArtifactKind::Build)).expect("dir").count(), 0);
        // As after a kill in the middle.
        let staging = vacant(&store, "k");
        std::fs::write(staging.temporary.join("content/half"), "x").expect("write");
        let (temporary, mut staging) = (staging.temporary.clone(), staging);
        drop(staging.lock.take());
        drop(staging);
        assert!(temporary.exists());
        let entry = vacant(&store, "k").publish("whole", None).expect("publish");
        assert!(!entry.content.join("half").exists());
    }

    #[test]
    fn concurrent_claims_create_an_entry_once() {
        let store = ArtifactStore::temporary(false).expect("tempdir");
        let made = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| match store.claim(ArtifactKind::Environment, "k", || true).expect("claim") {
                    Some(Claim::Vacant(staging)) => {
                        std::thread::sleep(Duration::from_millis(50));
                        made.fetch_add(1, Ordering::Relaxed);
                        staging.publish("x", None).map(drop).expect("publish");
                    }
                    Some(Claim::Ready(_)) => {}
                    None => panic!("gave up"),
                });
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn waiting_for_an_entry_can_be_cancelled() {
        let store = ArtifactStore::temporary(false).expect("tempdir");
        let _staging = vacant(&store, "k");
        assert!(store.claim(ArtifactKind::Build, "k", || false).expect("claim").is_none());
    }

    #[test]
    fn least_recently_used_entries_are_evicted_first() {
        let store = ArtifactStore::temporary(false).expect("tempdir");
        for (key, age) in [("old", 100), ("new", 0), ("older", 200)] {
            keep(&store, key, None, age);
        }
        store.shrink(ArtifactKind::Build, 20).expect("shrink");
        assert_eq!(labels(&store), ["new", "old"]);
    }

    #[test]
    fn an_owner_cannot_evict_what_others_have_within_their_share() {
        let store = ArtifactStore::temporary(false).expect("tempdir");
        keep(&store, "theirs", Some("polite"), 1000);
        for (key, age) in [("a", 3), ("b", 2), ("c", 1), ("d", 0)] {
            keep(&store, key, Some("greedy"), age);
            store.shrink(ArtifactKind::Build, 30).expect("shrink");
        }
        assert_eq!(labels(&store), ["d", "c", "theirs"]);
        assert_eq!(store.list().pop().and_then(|entry| entry.owner).as_deref(), Some("polite"));
    }

    /// Keeps ten bytes that were last used some seconds ago.
    fn keep(store: &ArtifactStore, key: &str, owner: Option<&str>, age: u64) {
        let mut staging = vacant(store, key);
        staging.size = 10;
        let entry = staging.publish(key, owner).expect("publish");
        entry.lock.set_modified(SystemTime::now() - Duration::from_secs(age)).expect("touch");
    }

    fn labels(store: &ArtifactStore) -> Vec<String> {
        store.list().into_iter().map(|entry| entry.label).collect()
    }
}
