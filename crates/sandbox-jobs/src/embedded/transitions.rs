//! The transitions of jobs in the embedded store, as parts of a transaction.

use std::sync::Arc;

use redb::{ReadableTable, ReadableTableMetadata, TableDefinition, WriteTransaction};
use sandbox_executor::{RunEvent, RunResult};

use super::deliveries::set_delivery;
use super::tables::{
    DELAYED, ENDED, EVENTS, EXPIRING, KEYS, META, OwnerUsage, QUOTAS, READY, READY_SINCE, REQUESTS, RESULTS, WEBHOOKS,
    account, header, put_header, set_account,
};
use super::{AT_ONCE, Result, milliseconds};
use crate::header::{Interruption, JobHeader, Sequel, gave_up, restarted};
use crate::idempotency::known_key;
use crate::model::{Attempt, Created, Exceeded, JobId, JobStatus, NewJob, StoreLimits, now, today};

/// Starts an attempt of the first job of an owner in these queues, with a number after the job's `last`.
pub(super) fn take(
    transaction: &WriteTransaction,
    owner: &str,
    lanes: &[String],
    alone: bool,
    last: impl FnOnce(&JobId) -> u32,
) -> Result<Option<JobHeader>> {
    let mut first: Option<(u8, u128, &str)> = None;
    {
        let ready = transaction.open_table(READY)?;
        for lane in lanes {
            let lane = lane.as_str();
            let mut jobs = ready.range((lane, owner, 0, 0)..=(lane, owner, u8::MAX, u128::MAX))?;
            if let Some(entry) = jobs.next() {
                let (_, _, rank, id) = entry?.0.value();
                first = Some(first.map_or((rank, id, lane), |first| first.min((rank, id, lane))));
            }
        }
    }
    let Some((rank, id, lane)) = first else { return Ok(None) };
    let Some(before) = header(transaction, JobId::from_number(id))? else {
        // It would stay the first of its owner for ever.
        transaction.open_table(READY)?.remove((lane, owner, rank, id))?;
        transaction.open_table(READY_SINCE)?.retain(|(_, other), ()| other != id)?;
        return Ok(None);
    };
    // One that has expired is ended by the next sweep.
    if before.attempts == 0 && before.expires_at.is_some_and(|time| time <= now()) {
        return Ok(None);
    }
    let after = JobHeader {
        status: JobStatus::Running,
        started_at: Some(now()),
        attempts: before.attempts.max(last(&before.id)) + 1,
        alone,
        ..before.clone()
    };
    put_header(transaction, Some(&before), Some(&after))?;
    let turn = {
        let mut meta = transaction.open_table(META)?;
        let turn = meta.get("turn")?.map_or(0, |turn| turn.value()) + 1;
        meta.insert("turn", turn)?;
        turn
    };
    let account = account(transaction, owner)?;
    set_account(transaction, owner, OwnerUsage { turn, ..account })?;
    Ok(Some(after))
}

/// The header of a job if this is its current attempt.
pub(super) fn current(transaction: &WriteTransaction, attempt: Attempt) -> Result<Option<JobHeader>> {
    Ok(header(transaction, attempt.id)?.filter(|header| header.is_current(attempt)))
}

/// The job of a request whose idempotency key is known.
pub(super) fn find_key(transaction: &WriteTransaction, new: &NewJob, digest: &[u8]) -> Result<Option<Created>> {
    let Some(key) = &new.idempotency_key else { return Ok(None) };
    let keys = transaction.open_table(KEYS)?;
    let Some(entry) = keys.get(key.as_str())? else { return Ok(None) };
    let (number, stored) = entry.value();
    let id = JobId::from_number(number);
    Ok(Some(known_key(id, header(transaction, id)?, stored == digest)))
}

/// Forgets some jobs that ended before this time, and quotas of earlier days.
pub(super) fn forget_old(transaction: &WriteTransaction, before: u64) -> Result<usize> {
    let old = take_first(transaction, ENDED, before)?;
    for id in &old {
        forget(transaction, *id)?;
    }
    transaction.open_table(QUOTAS)?.retain(|(day, _), _| day >= today())?;
    Ok(old.len())
}

/// Removes some entries from before this time from an index, and returns their jobs. An entry whose job cannot be read, and
/// which would therefore stay, must not be found again and again.
fn take_first(
    transaction: &WriteTransaction,
    index: TableDefinition<'_, (u64, u128), ()>,
    before: u64,
) -> Result<Vec<JobId>> {
    let mut index = transaction.open_table(index)?;
    let first = index.range(..(before, 0))?.take(AT_ONCE);
    let first: Vec<(u64, u128)> = first.map(|entry| Ok(entry?.0.value())).collect::<Result<_>>()?;
    for key in &first {
        index.remove(key)?;
    }
    Ok(first.into_iter().map(|(_, id)| JobId::from_number(id)).collect())
}

/// Removes all that there is of a job.
fn forget(transaction: &WriteTransaction, id: JobId) -> Result<()> {
    remove_events(transaction, id)?;
    for table in [REQUESTS, RESULTS, WEBHOOKS] {
        transaction.open_table(table)?.remove(id.number())?;
    }
    let Some(header) = header(transaction, id)? else { return Ok(()) };
    if let Some(key) = &header.key {
        transaction.open_table(KEYS)?.remove(key.as_str())?;
    }
    set_delivery(transaction, id, header.owner_name(), None)?;
    put_header(transaction, Some(&header), None)
}

/// The bound that a new job of this size would exceed. If there is none, the job is charged.
pub(super) fn exceeded(
    transaction: &WriteTransaction,
    new: &NewJob,
    bytes: u64,
    bounds: &StoreLimits,
) -> Result<Option<Exceeded>> {
    let owner = new.owner.as_deref().unwrap_or_default();
    let account = account(transaction, owner)?;
    let waiting = transaction.open_table(READY)?.len()? + transaction.open_table(DELAYED)?.len()?;
    if waiting >= bounds.waiting {
        return Ok(Some(Exceeded::Waiting));
    }
    if account.waiting >= bounds.waiting_per_owner {
        return Ok(Some(Exceeded::WaitingPerOwner));
    }
    if account.bytes.saturating_add(bytes) > bounds.bytes_per_owner {
        return Ok(Some(Exceeded::BytesPerOwner));
    }
    match new.per_day {
        Some(most) if !spend(transaction, owner, 1, most)? => Ok(Some(Exceeded::PerDay)),
        _ => Ok(None),
    }
}

pub(super) fn spend(transaction: &WriteTransaction, who: &str, runs: u64, most: u64) -> Result<bool> {
    let key = (today(), who);
    let mut quotas = transaction.open_table(QUOTAS)?;
    let spent = quotas.get(key)?.map_or(0, |spent| spent.value()).saturating_add(runs);
    if spent > most {
        return Ok(false);
    }
    quotas.insert(key, spent)?;
    Ok(true)
}

/// Writes an event, and notes it in the header.
pub(super) fn add_event(transaction: &WriteTransaction, header: &mut JobHeader, event: &RunEvent) -> Result<()> {
    let bytes = serde_json::to_vec(event).unwrap_or_default();
    header.last_event += 1;
    header.event_bytes += bytes.len() as u64;
    transaction.open_table(EVENTS)?.insert((header.id.number(), header.last_event), bytes.as_slice())?;
    Ok(())
}

fn remove_events(transaction: &WriteTransaction, id: JobId) -> Result<()> {
    let mut events = transaction.open_table(EVENTS)?;
    Ok(events.retain_in((id.number(), 0)..=(id.number(), u64::MAX), |_, _| false)?)
}

/// Interrupts the attempt of a running job: its events are dropped, and the job is queued again or ends. The result is that
/// of a job that is given up.
pub(super) fn interrupt(
    transaction: &WriteTransaction,
    before: &JobHeader,
    why: Interruption,
    result: Option<&RunResult>,
) -> Result<JobHeader> {
    let mut after = before.clone();
    let sequel = why.note(&mut after);
    remove_events(transaction, before.id)?;
    after.event_bytes = 0;
    add_event(transaction, &mut after, &restarted(before))?;
    if let Sequel::Queued(pause) = sequel {
        after.status = JobStatus::Queued;
        after.delayed = pause > 0.0;
        after.not_before = Some(now() + pause);
    }
    put_header(transaction, Some(before), Some(&after))?;
    match sequel {
        Sequel::Queued(_) => Ok(after),
        Sequel::Cancelled => end(transaction, &after, JobStatus::Cancelled, &[], None),
        Sequel::GivenUp => {
            let given_up = gave_up(after.failures);
            end(transaction, &after, JobStatus::Finished, &[], Some(result.unwrap_or(&given_up)))
        }
    }
}

/// Writes a job's end: events of its attempt, then the event of the end itself.
pub(super) fn end(
    transaction: &WriteTransaction,
    before: &JobHeader,
    status: JobStatus,
    last: &[RunEvent],
    result: Option<&RunResult>,
) -> Result<JobHeader> {
    let mut after = JobHeader { status, finished_at: Some(now()), ..before.clone() };
    for event in last {
        add_event(transaction, &mut after, event)?;
    }
    let end = match result {
        Some(result) => {
            let bytes = serde_json::to_vec(result).unwrap_or_default();
            after.result_bytes = bytes.len() as u64;
            after.verdict = Some(result.verdict.name().to_owned());
            transaction.open_table(RESULTS)?.insert(before.id.number(), bytes.as_slice())?;
            RunEvent::Result { result: Arc::new(result.clone()) }
        }
        None if status == JobStatus::Expired => RunEvent::Expired,
        None => RunEvent::Cancelled,
    };
    add_event(transaction, &mut after, &end)?;
    if before.webhook {
        set_delivery(transaction, before.id, before.owner_name(), Some(milliseconds(now())))?;
    }
    put_header(transaction, Some(before), Some(&after))?;
    Ok(after)
}

/// Queues delayed jobs whose time has come, and ends jobs that were not started in time. Returns those that changed.
pub(super) fn sweep(transaction: &WriteTransaction, time: u64) -> Result<Vec<JobHeader>> {
    let mut changed = vec![];
    for id in take_first(transaction, EXPIRING, time + 1)? {
        if let Some(before) = header(transaction, id)?.filter(|header| header.status == JobStatus::Queued) {
            changed.push(end(transaction, &before, JobStatus::Expired, &[], None)?);
        }
    }
    for id in take_first(transaction, DELAYED, time + 1)? {
        if let Some(before) = header(transaction, id)?.filter(|header| header.delayed) {
            let after = JobHeader { delayed: false, ..before.clone() };
            put_header(transaction, Some(&before), Some(&after))?;
            changed.push(after);
        }
    }
    Ok(changed)
}
