//! Opening the embedded store: a private file, its indexes, and the jobs that a server was running when it died.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use redb::{ReadableTable, TableDefinition, WriteTransaction};
use sandbox_executor::RunResult;

use super::deliveries::{DELIVERIES, set_delivery};
use super::index::{ACCOUNTS, DUE, ENDED, OWNED, RECORDS, Record, WAITING, measure_events, record, reindex};
use super::{EVENTS, JOBS, KEYS, MOST_ATTEMPTS, QUOTAS, Result, drop_events, end, put, read_job};
use crate::model::{Job, JobId, JobStatus};

/// The queue of 0.1.0, which did not know owners.
const OLD_QUEUE: TableDefinition<'_, u128, ()> = TableDefinition::new("queue");

/// Opens or creates a file that only this user can read: jobs hold code, variables and the secrets of webhooks.
pub(super) fn open_private(file: &Path) -> std::io::Result<File> {
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(file)?;
    if opened.metadata()?.mode() & 0o077 != 0 {
        opened.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(opened)
}

/// Makes the indexes from what is stored, by this release or by one that had none. Jobs that were running are queued again,
/// or given up.
pub(super) fn make_indexes(transaction: &WriteTransaction) -> Result<()> {
    transaction.delete_table(OLD_QUEUE)?;
    transaction.delete_table(RECORDS)?;
    transaction.delete_table(OWNED)?;
    transaction.delete_table(WAITING)?;
    transaction.delete_table(ENDED)?;
    transaction.delete_table(ACCOUNTS)?;
    transaction.delete_table(DUE)?;
    transaction.open_table(EVENTS)?;
    transaction.open_table(QUOTAS)?;
    // Readers expect every table to be there.
    transaction.open_table(RECORDS)?;
    transaction.open_table(OWNED)?;
    transaction.open_table(WAITING)?;
    transaction.open_table(ENDED)?;
    transaction.open_table(ACCOUNTS)?;
    transaction.open_table(DUE)?;
    let ids: Vec<u128> = {
        let jobs = transaction.open_table(JOBS)?;
        jobs.iter()?.map(|entry| Ok(entry?.0.value())).collect::<Result<_>>()?
    };
    let keys: HashMap<u128, String> = {
        let keys = transaction.open_table(KEYS)?;
        let all = keys.iter()?.map(|entry| entry.map(|(key, of)| (of.value().0, key.value().to_owned())));
        all.collect::<std::result::Result<_, _>>()?
    };
    for number in ids {
        let id = JobId::from_number(number);
        let stored = {
            let jobs = transaction.open_table(JOBS)?;
            let found = jobs.get(number)?;
            found.and_then(|bytes| Some((read_job(bytes.value())?, bytes.value().len())))
        };
        let Some((job, bytes)) = stored else { continue };
        let event_bytes = measure_events(transaction, id)?;
        let found = Record { event_bytes, key: keys.get(&number).cloned(), ..Record::of(&job, bytes) };
        reindex(transaction, id, None, Some(&found))?;
        if job.status == JobStatus::Running {
            interrupted(transaction, job)?;
        }
    }
    let deliveries: Vec<(u128, u64)> = {
        let deliveries = transaction.open_table(DELIVERIES)?;
        deliveries.iter()?.map(|entry| Ok(entry.map(|(id, at)| (id.value(), at.value()))?)).collect::<Result<_>>()?
    };
    for (number, at) in deliveries {
        let id = JobId::from_number(number);
        match record(transaction, id)? {
            Some(record) => set_delivery(transaction, id, &record.owner, Some(at))?,
            None => drop(transaction.open_table(DELIVERIES)?.remove(number)?),
        }
    }
    Ok(())
}

/// Queues a job again whose server died, or gives it up.
fn interrupted(transaction: &WriteTransaction, mut job: Job) -> Result<()> {
    drop_events(transaction, job.id)?;
    if job.attempts >= MOST_ATTEMPTS {
        let error = format!("the server died {} times while running this job", job.attempts);
        let result = RunResult::internal_error(error);
        end(transaction, &mut job, JobStatus::Finished, Some(result))?;
        return Ok(());
    }
    job.status = JobStatus::Queued;
    put(transaction, &job)
}
