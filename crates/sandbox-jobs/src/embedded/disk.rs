//! The file of the embedded store: opened once, and opened again after an error, since redb refuses everything after one.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use redb::{Database, ReadTransaction, StorageBackend, WriteTransaction};

use super::{FileError, Result};

/// Below this much free space, and four times what they add, new jobs are refused. Results and events may use it.
const RESERVE: u64 = 1 << 20;

/// The time for which a read waits for the file to be opened again.
const PATIENCE: Duration = Duration::from_secs(10);

/// Opens the backend of the database: once at the start, and again after an error.
pub(super) type OpenBackend = Box<dyn Fn() -> Result<Box<dyn StorageBackend>> + Send + Sync>;

/// The database, which may have to be opened again.
pub(super) struct Disk {
    database: RwLock<Option<Database>>,
    open: OpenBackend,
    /// A descriptor on the file system, if there is one, to see how much room it has.
    directory: Option<OwnedFd>,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").finish_non_exhaustive()
    }
}

impl Disk {
    pub(super) fn new(open: OpenBackend, directory: Option<OwnedFd>) -> Result<Self> {
        let disk = Self { database: RwLock::new(None), open, directory };
        let database = disk.open_database()?;
        *disk.database.write().unwrap_or_else(PoisonError::into_inner) = Some(database);
        Ok(disk)
    }

    fn open_database(&self) -> Result<Database> {
        Ok(Database::builder().create_with_backend(BoxedBackend((self.open)()?))?)
    }

    /// Whether there is room for so many more bytes.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let Some(directory) = &self.directory else { return true };
        match rustix::fs::fstatvfs(directory.as_fd()) {
            Ok(found) => {
                found.f_bavail.saturating_mul(found.f_frsize) >= RESERVE.saturating_add(bytes.saturating_mul(4))
            }
            Err(_) => true,
        }
    }

    /// Reads from the database. If it has failed, waits until it was opened again.
    pub(super) fn read<T>(&self, call: impl Fn(&ReadTransaction) -> Result<T>) -> Result<T> {
        let began = Instant::now();
        loop {
            let found = {
                let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
                database
                    .as_ref()
                    .map(|database| database.begin_read().map_err(FileError::from).and_then(|it| call(&it)))
            };
            match found {
                Some(Err(error)) if error.needs_reopening() && began.elapsed() < PATIENCE => {}
                Some(found) => return found,
                None if began.elapsed() >= PATIENCE => return Err(FileError::Closed),
                None => {}
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Writes to the database in one transaction, which is undone if the call fails.
    pub(super) fn write(&self, call: impl FnOnce(&mut WriteTransaction) -> Result<()>) -> Result<()> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let Some(database) = database.as_ref() else { return Err(FileError::Closed) };
        let mut transaction = database.begin_write()?;
        call(&mut transaction)?;
        Ok(transaction.commit()?)
    }

    /// Opens the database again after an error. If that fails, the next error tries again.
    pub(super) fn reopen(&self) {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        // The file is locked as long as the old one lives.
        drop(database.take());
        *database = self.open_database().ok();
    }
}

/// A backend behind a pointer.
#[derive(Debug)]
struct BoxedBackend(Box<dyn StorageBackend>);

impl StorageBackend for BoxedBackend {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, len: usize) -> std::io::Result<Vec<u8>> {
        self.0.read(offset, len)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self, eventual: bool) -> std::io::Result<()> {
        self.0.sync_data(eventual)
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write(offset, data)
    }
}
