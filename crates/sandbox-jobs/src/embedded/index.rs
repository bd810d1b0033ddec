//! What the embedded store knows of its jobs without reading them: by owner, by state and by size.
//!
//! Every change of a job goes through [`reindex`] in the transaction that changes it, so that counts and sizes are exact
//! whatever happens to the process. All of it can be made from the jobs, and is when the store is opened.

use redb::{ReadableTable, TableDefinition, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::{EVENTS, Result, milliseconds};
use crate::model::{Attempt, Job, JobId, JobStatus, Summary};

/// Small records of all jobs.
pub(super) const RECORDS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("records");
/// The jobs of each owner.
pub(super) const OWNED: TableDefinition<'_, (&str, u128), ()> = TableDefinition::new("owned");
/// The jobs of each owner that wait.
pub(super) const WAITING: TableDefinition<'_, (&str, u128), ()> = TableDefinition::new("waiting");
/// Jobs by the time of their end, in milliseconds since 1970.
pub(super) const ENDED: TableDefinition<'_, (u64, u128), ()> = TableDefinition::new("ended");
/// What each owner has: waiting jobs, running jobs, bytes, and when it was last served.
pub(super) const ACCOUNTS: TableDefinition<'_, &str, (u64, u64, u64, u64)> = TableDefinition::new("accounts");
/// Webhooks by owner and by the time when they are due.
pub(super) const DUE: TableDefinition<'_, (&str, u64, u128), ()> = TableDefinition::new("due");

/// A job as the indexes know it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) summary: Summary,
    pub(super) owner: String,
    pub(super) attempts: u32,
    /// The size of the job.
    pub(super) bytes: u64,
    /// The size of its events.
    pub(super) event_bytes: u64,
    /// Its idempotency key.
    pub(super) key: Option<String>,
}

impl Record {
    pub(super) fn of(job: &Job, bytes: usize) -> Self {
        Self {
            summary: job.summary(),
            owner: job.owner.clone().unwrap_or_default(),
            attempts: job.attempts,
            bytes: bytes as u64,
            event_bytes: 0,
            key: None,
        }
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub(super) fn has(&self, attempt: Attempt) -> bool {
        self.summary.status == JobStatus::Running && self.attempts == attempt.number
    }

    fn counts(&self, status: JobStatus) -> u64 {
        u64::from(self.summary.status == status)
    }
}

/// What an owner has.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OwnerUsage {
    pub(super) waiting: u64,
    pub(super) running: u64,
    pub(super) bytes: u64,
    pub(super) turn: u64,
}

impl From<(u64, u64, u64, u64)> for OwnerUsage {
    fn from((waiting, running, bytes, turn): (u64, u64, u64, u64)) -> Self {
        Self { waiting, running, bytes, turn }
    }
}

pub(super) fn account(transaction: &WriteTransaction, owner: &str) -> Result<OwnerUsage> {
    let accounts = transaction.open_table(ACCOUNTS)?;
    let found = accounts.get(owner)?;
    Ok(found.map(|found| found.value().into()).unwrap_or_default())
}

pub(super) fn set_account(transaction: &WriteTransaction, owner: &str, account: OwnerUsage) -> Result<()> {
    let OwnerUsage { waiting, running, bytes, turn } = account;
    transaction.open_table(ACCOUNTS)?.insert(owner, (waiting, running, bytes, turn))?;
    Ok(())
}

pub(super) fn record(transaction: &WriteTransaction, id: JobId) -> Result<Option<Record>> {
    let records = transaction.open_table(RECORDS)?;
    let found = records.get(id.number())?;
    Ok(found.and_then(|bytes| Record::read(bytes.value())))
}

/// Takes a job from one state to another, in all indexes. A job's owner never changes.
pub(super) fn reindex(
    transaction: &WriteTransaction,
    id: JobId,
    before: Option<&Record>,
    after: Option<&Record>,
) -> Result<()> {
    let Some(owner) = after.or(before).map(|record| record.owner.as_str()) else { return Ok(()) };
    let id = id.number();
    let status = |record: Option<&Record>| record.map(|record| record.summary.status);
    if status(before) != status(after) {
        let mut waiting = transaction.open_table(WAITING)?;
        if status(after) == Some(JobStatus::Queued) {
            waiting.insert((owner, id), ())?;
        } else {
            waiting.remove((owner, id))?;
        }
        let mut ended = transaction.open_table(ENDED)?;
        let time = |record: &Record| record.summary.finished_at.map(milliseconds);
        if let Some(time) = before.and_then(time) {
            ended.remove((time, id))?;
        }
        if let Some(time) = after.and_then(time) {
            ended.insert((time, id), ())?;
        }
    }
    match (before, after) {
        (None, Some(_)) => drop(transaction.open_table(OWNED)?.insert((owner, id), ())?),
        (Some(_), None) => drop(transaction.open_table(OWNED)?.remove((owner, id))?),
        _ => {}
    }
    match after {
        Some(after) => {
            let bytes = serde_json::to_vec(after).unwrap_or_default();
            transaction.open_table(RECORDS)?.insert(id, bytes.as_slice())?;
        }
        None => drop(transaction.open_table(RECORDS)?.remove(id)?),
    }
    let mut sum = account(transaction, owner)?;
    let change = |sum: &mut u64, of: &dyn Fn(&Record) -> u64| {
        *sum = sum.saturating_sub(before.map_or(0, of)).saturating_add(after.map_or(0, of));
    };
    change(&mut sum.waiting, &|record| record.counts(JobStatus::Queued));
    change(&mut sum.running, &|record| record.counts(JobStatus::Running));
    change(&mut sum.bytes, &|record| record.bytes + record.event_bytes);
    set_account(transaction, owner, sum)
}

/// The size of a job's events, read from all of them.
pub(super) fn measure_events(transaction: &WriteTransaction, id: JobId) -> Result<u64> {
    let events = transaction.open_table(EVENTS)?;
    let mut bytes = 0;
    for entry in events.range((id.number(), 0)..=(id.number(), u64::MAX))? {
        bytes += entry?.1.value().len() as u64;
    }
    Ok(bytes)
}
