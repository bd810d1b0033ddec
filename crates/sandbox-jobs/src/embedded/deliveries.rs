//! Webhook deliveries of the embedded store: which are due, and their outcome.

use std::time::Duration;

use redb::{ReadTransaction, ReadableTable, WriteTransaction};

use super::tables::{ACCOUNTS, DELIVERIES, DUE, WEBHOOKS, header, put_header};
use super::{Result, milliseconds};
use crate::header::JobHeader;
use crate::model::{JobId, Webhook, now};

/// A due delivery: owner, time and job.
pub(super) type DueDelivery = (String, u64, u128);

/// The delivery that has been due for longest, of any owner except these.
pub(super) fn first_due(transaction: &ReadTransaction, without: &[Option<String>]) -> Result<Option<DueDelivery>> {
    let (due, accounts) = (transaction.open_table(DUE)?, transaction.open_table(ACCOUNTS)?);
    let time = milliseconds(now());
    let mut first: Option<DueDelivery> = None;
    for entry in accounts.iter()? {
        let (owner, _) = entry?;
        let owner = owner.value();
        if without.iter().any(|other| other.as_deref().unwrap_or_default() == owner) {
            continue;
        }
        let Some(entry) = due.range((owner, 0, 0)..=(owner, time, u128::MAX))?.next() else { continue };
        let (_, at, id) = entry?.0.value();
        if first.as_ref().is_none_or(|(_, first, _)| at < *first) {
            first = Some((owner.to_owned(), at, id));
        }
    }
    Ok(first)
}

/// Leases a delivery that was due, unless another call was faster.
pub(super) fn lease(
    transaction: &WriteTransaction,
    (owner, at, id): &DueDelivery,
    lease: Duration,
) -> Result<Option<JobId>> {
    if transaction.open_table(DUE)?.get((owner.as_str(), *at, *id))?.is_none() {
        return Ok(None);
    }
    let id = JobId::from_number(*id);
    let known = header(transaction, id)?.is_some();
    let again = known.then(|| milliseconds(now() + lease.as_secs_f64()));
    set_delivery(transaction, id, owner, again)?;
    Ok(known.then_some(id))
}

/// Records the outcome of a delivery, and when to retry.
pub(super) fn note(
    transaction: &WriteTransaction,
    id: JobId,
    webhook: &Webhook,
    again: Option<Duration>,
) -> Result<()> {
    let Some(before) = header(transaction, id)? else { return Ok(()) };
    let again = again.map(|after| milliseconds(now() + after.as_secs_f64()));
    set_delivery(transaction, id, before.owner_name(), again)?;
    let bytes = serde_json::to_vec(webhook).unwrap_or_default();
    let replaced = {
        let mut webhooks = transaction.open_table(WEBHOOKS)?;
        let replaced = webhooks.insert(id.number(), bytes.as_slice())?;
        replaced.map_or(0, |replaced| replaced.value().len())
    };
    let request_bytes = before.request_bytes.saturating_sub(replaced as u64) + bytes.len() as u64;
    let after = JobHeader { request_bytes, ..before.clone() };
    put_header(transaction, Some(&before), Some(&after))
}

/// Sets when the webhook of a job is due, in milliseconds since 1970.
pub(super) fn set_delivery(transaction: &WriteTransaction, id: JobId, owner: &str, at: Option<u64>) -> Result<()> {
    let id = id.number();
    let (mut deliveries, mut due) = (transaction.open_table(DELIVERIES)?, transaction.open_table(DUE)?);
    let before = match at {
        Some(at) => deliveries.insert(id, at)?,
        None => deliveries.remove(id)?,
    };
    if let Some(before) = before {
        due.remove((owner, before.value(), id))?;
    }
    if let Some(at) = at {
        due.insert((owner, at, id), ())?;
    }
    Ok(())
}
