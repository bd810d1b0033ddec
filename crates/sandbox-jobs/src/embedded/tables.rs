//! The tables of the embedded store, and its indexes: by owner, by state and by time.
//!
//! Every change of a job goes through [`put_header`] in the transaction that changes it, so that counts and sizes are
//! exact whatever happens to the process.

use redb::{ReadableTable, TableDefinition, WriteTransaction};

use super::{Result, milliseconds};
use crate::header::JobHeader;
use crate::model::{JobId, JobStatus};

/// Numbers about the store itself: its format, and how many jobs were taken.
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// The headers of all jobs.
pub(super) const HEADERS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("headers");
/// Requests, as JSON.
pub(super) const REQUESTS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("requests");
/// Results, as JSON.
pub(super) const RESULTS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("results");
/// Webhooks and the state of their delivery, as JSON.
pub(super) const WEBHOOKS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("webhooks");
/// Events by job and number, as JSON.
pub(super) const EVENTS: TableDefinition<'_, (u128, u64), &[u8]> = TableDefinition::new("events");
/// Idempotency keys: the job, and the digest of its request.
pub(super) const KEYS: TableDefinition<'_, &str, (u128, &[u8])> = TableDefinition::new("idempotency");
/// The number of runs of an owner on a day.
pub(super) const QUOTAS: TableDefinition<'_, (u64, &str), u64> = TableDefinition::new("quotas");
/// The jobs of each owner.
pub(super) const OWNED: TableDefinition<'_, (&str, u128), ()> = TableDefinition::new("owned");
/// Jobs that can start: by lane, owner, rank and age.
pub(super) const READY: TableDefinition<'_, (&str, &str, u8, u128), ()> = TableDefinition::new("ready");
/// Jobs that can start, by the time since which they can. Made anew when the store is opened.
pub(super) const READY_SINCE: TableDefinition<'_, (u64, u128), ()> = TableDefinition::new("ready_since");
/// Jobs that can start later, by time.
pub(super) const DELAYED: TableDefinition<'_, (u64, u128), ()> = TableDefinition::new("delayed");
/// Queued jobs that expire, by time.
pub(super) const EXPIRING: TableDefinition<'_, (u64, u128), ()> = TableDefinition::new("expiring");
/// Jobs that run.
pub(super) const RUNNING: TableDefinition<'_, u128, ()> = TableDefinition::new("running");
/// Jobs by the time of their end.
pub(super) const ENDED: TableDefinition<'_, (u64, u128), ()> = TableDefinition::new("ended");
/// The accounts of each owner: waiting jobs, running jobs, bytes, and when it was last served.
pub(super) const ACCOUNTS: TableDefinition<'_, &str, (u64, u64, u64, u64)> = TableDefinition::new("accounts");
/// When the next attempt of a webhook is due.
pub(super) const DELIVERIES: TableDefinition<'_, u128, u64> = TableDefinition::new("deliveries");
/// Webhooks by owner and by the time when they are due.
pub(super) const DUE: TableDefinition<'_, (&str, u64, u128), ()> = TableDefinition::new("due");

/// Creates all tables: readers expect each of them.
pub(super) fn create_tables(transaction: &WriteTransaction) -> Result<()> {
    transaction.open_table(META)?;
    for table in [HEADERS, REQUESTS, RESULTS, WEBHOOKS] {
        transaction.open_table(table)?;
    }
    transaction.open_table(EVENTS)?;
    transaction.open_table(KEYS)?;
    transaction.open_table(QUOTAS)?;
    transaction.open_table(OWNED)?;
    transaction.open_table(READY)?;
    for table in [DELAYED, EXPIRING, ENDED] {
        transaction.open_table(table)?;
    }
    transaction.open_table(RUNNING)?;
    transaction.open_table(ACCOUNTS)?;
    transaction.open_table(DELIVERIES)?;
    transaction.open_table(DUE)?;
    Ok(())
}

/// The accounts of an owner.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
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
    let mut accounts = transaction.open_table(ACCOUNTS)?;
    if (waiting, running, bytes) == (0, 0, 0) {
        accounts.remove(owner)?;
    } else {
        accounts.insert(owner, (waiting, running, bytes, turn))?;
    }
    Ok(())
}

/// The header of a job.
pub(super) fn header(transaction: &WriteTransaction, id: JobId) -> Result<Option<JobHeader>> {
    let headers = transaction.open_table(HEADERS)?;
    let found = headers.get(id.number())?;
    Ok(found.and_then(|bytes| JobHeader::decode(bytes.value())))
}

/// The key of a job in the indexes by state.
#[derive(PartialEq)]
enum IndexPlace {
    Ready(String, u8, u64),
    Delayed(u64),
    Running,
    Ended(u64),
}

impl IndexPlace {
    fn of(header: &JobHeader) -> Self {
        match header.status {
            JobStatus::Queued if header.delayed => Self::Delayed(milliseconds(header.not_before.unwrap_or_default())),
            JobStatus::Queued => Self::Ready(header.lane(), header.rank(), milliseconds(header.ready_since())),
            JobStatus::Running => Self::Running,
            JobStatus::Finished | JobStatus::Cancelled | JobStatus::Expired => {
                Self::Ended(milliseconds(header.finished_at.unwrap_or_default()))
            }
        }
    }

    fn set(&self, transaction: &WriteTransaction, owner: &str, id: u128, present: bool) -> Result<()> {
        let by_time = |table, time| {
            let mut table = transaction.open_table(table)?;
            if present {
                table.insert((time, id), ())?
            } else {
                table.remove((time, id))?
            };
            Ok(())
        };
        match self {
            Self::Ready(lane, rank, since) => {
                by_time(READY_SINCE, *since)?;
                let (mut ready, key) = (transaction.open_table(READY)?, (lane.as_str(), owner, *rank, id));
                if present {
                    ready.insert(key, ())?
                } else {
                    ready.remove(key)?
                };
                Ok(())
            }
            Self::Delayed(time) => by_time(DELAYED, *time),
            Self::Running => {
                let mut running = transaction.open_table(RUNNING)?;
                if present {
                    running.insert(id, ())?
                } else {
                    running.remove(id)?
                };
                Ok(())
            }
            Self::Ended(time) => by_time(ENDED, *time),
        }
    }
}

/// When a job expires, in milliseconds since 1970, if it has not started.
fn expiry(header: &JobHeader) -> Option<u64> {
    let waits = header.status == JobStatus::Queued && header.attempts == 0;
    header.expires_at.filter(|_| waits).map(milliseconds)
}

/// Takes a job from one state to another: its header, and all indexes. A job's owner never changes.
pub(super) fn put_header(
    transaction: &WriteTransaction,
    before: Option<&JobHeader>,
    after: Option<&JobHeader>,
) -> Result<()> {
    let Some(any) = after.or(before) else { return Ok(()) };
    let (owner, id) = (any.owner_name(), any.id.number());
    let (was, is) = (before.map(IndexPlace::of), after.map(IndexPlace::of));
    if was != is {
        if let Some(was) = was {
            was.set(transaction, owner, id, false)?;
        }
        if let Some(is) = is {
            is.set(transaction, owner, id, true)?;
        }
    }
    let (expired, expires) = (before.and_then(expiry), after.and_then(expiry));
    if expired != expires {
        let mut expiring = transaction.open_table(EXPIRING)?;
        if let Some(time) = expired {
            expiring.remove((time, id))?;
        }
        if let Some(time) = expires {
            expiring.insert((time, id), ())?;
        }
    }
    match (before, after) {
        (None, Some(_)) => drop(transaction.open_table(OWNED)?.insert((owner, id), ())?),
        (Some(_), None) => drop(transaction.open_table(OWNED)?.remove((owner, id))?),
        _ => {}
    }
    match after {
        Some(after) => drop(transaction.open_table(HEADERS)?.insert(id, after.encode().as_slice())?),
        None => drop(transaction.open_table(HEADERS)?.remove(id)?),
    }
    let counts = |header: Option<&JobHeader>, status| u64::from(header.is_some_and(|header| header.status == status));
    let bytes = |header: Option<&JobHeader>| header.map_or(0, JobHeader::bytes);
    let change = |sum: u64, before, after| sum.saturating_sub(before).saturating_add(after);
    let sum = account(transaction, owner)?;
    let [queued, running] = [JobStatus::Queued, JobStatus::Running];
    let changed = OwnerUsage {
        waiting: change(sum.waiting, counts(before, queued), counts(after, queued)),
        running: change(sum.running, counts(before, running), counts(after, running)),
        bytes: change(sum.bytes, bytes(before), bytes(after)),
        turn: sum.turn,
    };
    if changed == sum { Ok(()) } else { set_account(transaction, owner, changed) }
}
