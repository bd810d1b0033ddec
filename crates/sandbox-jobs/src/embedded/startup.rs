//! Opening the embedded store: a private file, its format, and the jobs that a server was running when it died.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use redb::backends::FileBackend;
use redb::{ReadableTable, StorageBackend, TableDefinition, TableHandle, WriteTransaction};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::deliveries::set_delivery;
use super::disk::OpenBackend;
use super::tables::{
    ACCOUNTS, DELIVERIES, DUE, ENDED, EVENTS, KEYS, META, OWNED, READY, READY_SINCE, REQUESTS, RESULTS, RUNNING,
    WEBHOOKS, create_tables, header, put_header,
};
use super::transitions::interrupt;
use super::{FileError, Result, milliseconds};
use crate::header::{Interruption, JobHeader};
use crate::model::{JobId, JobStatus, NewJob};

/// The format of the file. Format 1 is that of release 0.1.0, which did not write a number.
const FORMAT: u64 = 2;

/// The jobs of format 1: one JSON document each.
const OLD_JOBS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("jobs");

/// The queue of format 1.
const OLD_QUEUE: TableDefinition<'_, u128, ()> = TableDefinition::new("queue");

/// Opens or creates the file, and its directory to see how much room there is.
pub(super) fn open_file(file: &Path) -> (OpenBackend, Option<OwnedFd>) {
    let directory = file.parent().and_then(|directory| File::open(directory).ok()).map(OwnedFd::from);
    let file = file.to_owned();
    let open = move || -> Result<Box<dyn StorageBackend>> {
        let opened = open_private(&file).map_err(redb::StorageError::from)?;
        Ok(Box::new(FileBackend::new(opened)?))
    };
    (Box::new(open), directory)
}

/// Opens or creates a file that only this user can read: jobs hold code, variables and the secrets of webhooks.
fn open_private(file: &Path) -> std::io::Result<File> {
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(file)?;
    if opened.metadata()?.mode() & 0o077 != 0 {
        opened.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(opened)
}

/// Brings the file to the current format, and queues the jobs that were running, or gives them up.
pub(super) fn prepare(transaction: &WriteTransaction) -> Result<()> {
    let format = transaction.open_table(META)?.get("format")?.map(|format| format.value());
    if let Some(found) = format.filter(|format| *format > FORMAT) {
        return Err(FileError::Newer { found, known: FORMAT });
    }
    if format.is_none() {
        upgrade(transaction)?;
    }
    create_tables(transaction)?;
    transaction.open_table(META)?.insert("format", FORMAT)?;
    index_ages(transaction)?;
    let running: Vec<u128> = {
        let running = transaction.open_table(RUNNING)?;
        running.iter()?.map(|entry| Ok(entry?.0.value())).collect::<Result<_>>()?
    };
    for id in running {
        if let Some(header) = header(transaction, JobId::from_number(id))? {
            interrupt(transaction, &header, Interruption::Death, None)?;
        }
    }
    Ok(())
}

/// Makes the index of the jobs that can start by age anew: a release without it may have used the file, and backups leave
/// it out.
fn index_ages(transaction: &WriteTransaction) -> Result<()> {
    transaction.delete_table(READY_SINCE)?;
    let mut since = transaction.open_table(READY_SINCE)?;
    for entry in transaction.open_table(READY)?.iter()? {
        let (_, _, _, id) = entry?.0.value();
        if let Some(header) = header(transaction, JobId::from_number(id))? {
            since.insert((milliseconds(header.ready_since()), id), ())?;
        }
    }
    Ok(())
}

/// A job of format 1. What is large is kept as it is written.
#[derive(Deserialize)]
struct OldJob<'a> {
    status: JobStatus,
    created_at: f64,
    started_at: Option<f64>,
    finished_at: Option<f64>,
    attempts: u32,
    #[serde(borrow)]
    request: &'a RawValue,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    owner: Option<String>,
    #[serde(borrow, default)]
    webhook: Option<&'a RawValue>,
}

/// The part of a result that a header has.
#[derive(Deserialize)]
struct OldVerdict {
    verdict: String,
}

/// Takes over the jobs of format 1, if there are any.
fn upgrade(transaction: &WriteTransaction) -> Result<()> {
    let old = transaction.list_tables()?.any(|table| table.name() == OLD_JOBS.name());
    if !old {
        return Ok(());
    }
    transaction.delete_table(OLD_QUEUE)?;
    // Between releases there were indexes, which are made anew.
    for name in ["records", "waiting"] {
        let leftover = transaction.list_tables()?.find(|table| table.name() == name);
        if let Some(leftover) = leftover {
            transaction.delete_table(leftover)?;
        }
    }
    transaction.delete_table(OWNED)?;
    transaction.delete_table(ENDED)?;
    transaction.delete_table(ACCOUNTS)?;
    transaction.delete_table(DUE)?;
    let ids: Vec<u128> = {
        let jobs = transaction.open_table(OLD_JOBS)?;
        jobs.iter()?.map(|entry| Ok(entry?.0.value())).collect::<Result<_>>()?
    };
    let keys: HashMap<u128, String> = {
        let keys = transaction.open_table(KEYS)?;
        let all = keys.iter()?.map(|entry| entry.map(|(key, of)| (of.value().0, key.value().to_owned())));
        all.collect::<std::result::Result<_, _>>()?
    };
    for id in ids {
        let bytes = {
            let jobs = transaction.open_table(OLD_JOBS)?;
            let found = jobs.get(id)?;
            found.map(|bytes| bytes.value().to_vec()).unwrap_or_default()
        };
        if let Ok(job) = serde_json::from_slice(&bytes) {
            upgrade_job(transaction, id, &job, keys.get(&id))?;
        }
    }
    transaction.delete_table(OLD_JOBS)?;
    let deliveries: Vec<(u128, u64)> = {
        let deliveries = transaction.open_table(DELIVERIES)?;
        deliveries.iter()?.map(|entry| Ok(entry.map(|(id, at)| (id.value(), at.value()))?)).collect::<Result<_>>()?
    };
    for (number, at) in deliveries {
        let id = JobId::from_number(number);
        match header(transaction, id)? {
            Some(header) => set_delivery(transaction, id, header.owner_name(), Some(at))?,
            None => drop(transaction.open_table(DELIVERIES)?.remove(number)?),
        }
    }
    Ok(())
}

fn upgrade_job(transaction: &WriteTransaction, id: u128, old: &OldJob<'_>, key: Option<&String>) -> Result<()> {
    let Ok(request) = serde_json::from_str(old.request.get()) else { return Ok(()) };
    let text = |raw: Option<&RawValue>| raw.map(RawValue::get).filter(|text| *text != "null").map(str::to_owned);
    let (result, webhook) = (text(old.result), text(old.webhook));
    let parts = [(REQUESTS, Some(old.request.get())), (RESULTS, result.as_deref()), (WEBHOOKS, webhook.as_deref())];
    for (table, part) in parts {
        if let Some(part) = part {
            transaction.open_table(table)?.insert(id, part.as_bytes())?;
        }
    }
    let (mut last_event, mut event_bytes) = (0, 0);
    for entry in transaction.open_table(EVENTS)?.range((id, 0)..=(id, u64::MAX))? {
        let (key, bytes) = entry?;
        (last_event, event_bytes) = (key.value().1, event_bytes + bytes.value().len() as u64);
    }
    let new = NewJob { owner: old.owner.clone(), idempotency_key: key.cloned(), ..NewJob::of(request) };
    let size = |part: &Option<String>| part.as_ref().map_or(0, String::len) as u64;
    let verdict = result.as_deref().and_then(|result| serde_json::from_str(result).ok());
    let header = JobHeader {
        id: JobId::from_number(id),
        status: old.status,
        created_at: old.created_at,
        started_at: old.started_at,
        finished_at: old.finished_at,
        attempts: old.attempts,
        webhook: webhook.is_some(),
        verdict: verdict.map(|OldVerdict { verdict }| verdict),
        last_event,
        result_bytes: size(&result),
        event_bytes,
        ..JobHeader::queued(&new, old.request.get().len() as u64 + size(&webhook), old.created_at)
    };
    put_header(transaction, None, Some(&header))
}
