//! Backups of the embedded store: a consistent copy, made while jobs are created and run.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use redb::backends::FileBackend;
use redb::{Database, Key, ReadTransaction, TableDefinition, Value, WriteTransaction};

use super::tables::{
    ACCOUNTS, DELAYED, DELIVERIES, DUE, ENDED, EVENTS, EXPIRING, HEADERS, KEYS, META, OWNED, QUOTAS, READY, REQUESTS,
    RESULTS, RUNNING, WEBHOOKS,
};
use super::{Embedded, FileError, Result};

/// Creates a file that only this user can read. It must not exist.
fn create_private(file: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(file)
}

/// Copies a table.
fn copy<K: Key + 'static, V: Value + 'static>(
    (from, to): (&ReadTransaction, &WriteTransaction),
    table: TableDefinition<'_, K, V>,
) -> Result<()> {
    let (from, mut to) = (from.open_table(table)?, to.open_table(table)?);
    for entry in from.range::<K::SelfType<'_>>(..)? {
        let (key, value) = entry?;
        to.insert(key.value(), value.value())?;
    }
    Ok(())
}

impl Embedded {
    /// Copies the store to a file that must not exist. The copy is the state of one moment; changes continue meanwhile.
    pub async fn backup(&self, file: &Path) -> Result<()> {
        let copied = create_private(file).map_err(redb::StorageError::from)?;
        let copied = Database::builder().create_with_backend(FileBackend::new(copied)?)?;
        self.read(move |from| {
            let to = copied.begin_write()?;
            let both = (from, &to);
            copy(both, META)?;
            for table in [HEADERS, REQUESTS, RESULTS, WEBHOOKS] {
                copy(both, table)?;
            }
            copy(both, EVENTS)?;
            copy(both, KEYS)?;
            copy(both, QUOTAS)?;
            copy(both, OWNED)?;
            copy(both, READY)?;
            for table in [DELAYED, EXPIRING, ENDED] {
                copy(both, table)?;
            }
            copy(both, RUNNING)?;
            copy(both, ACCOUNTS)?;
            copy(both, DELIVERIES)?;
            copy(both, DUE)?;
            Ok(to.commit()?)
        })
        .await
    }
}

/// Copies the file of a store that no server has open. The copy must not exist.
pub fn backup_file(from: &Path, to: &Path) -> Result<()> {
    // This waits for no one: it fails if a server has the file. After a crash it also repairs the file.
    let _locked = Database::open(from).map_err(FileError::from)?;
    let copied = create_private(to).and_then(|mut to| {
        std::io::copy(&mut File::open(from)?, &mut to)?;
        to.sync_all()
    });
    Ok(copied.map_err(redb::StorageError::from)?)
}
