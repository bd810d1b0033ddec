//! Webhook deliveries of the embedded store: which are due, and their outcome.

use std::time::Duration;

use redb::{ReadableTable, TableDefinition, WriteTransaction};

use super::index::{ACCOUNTS, DUE};
use super::{Embedded, Result, get, milliseconds, put};
use crate::model::{Job, JobId, Webhook, now};

/// When the next attempt is due, in milliseconds since 1970.
pub(super) const DELIVERIES: TableDefinition<'_, u128, u64> = TableDefinition::new("deliveries");
impl Embedded {
    /// Takes a job whose webhook is due, of any owner except these. Its delivery is leased for this long.
    pub fn take_delivery(&self, lease: Duration, without: &[Option<String>]) -> Result<Option<Job>> {
        // Usually nothing is due, and a read transaction blocks no other.
        if self.due(without)?.is_none() {
            return Ok(None);
        }
        let transaction = self.database.begin_write()?;
        // What was due may have been taken since; it is this one's if it still is.
        let Some((owner, at, id)) = self.due(without)? else { return Ok(None) };
        if transaction.open_table(DUE)?.get((owner.as_str(), at, id))?.is_none() {
            return Ok(None);
        }
        let id = JobId::from_number(id);
        let job = get(&transaction, id)?;
        let again = job.is_some().then(|| milliseconds(now() + lease.as_secs_f64()));
        set_delivery(&transaction, id, &owner, again)?;
        transaction.commit()?;
        Ok(job)
    }

    /// The delivery that has been due for longest: owner, time and job.
    fn due(&self, without: &[Option<String>]) -> Result<Option<(String, u64, u128)>> {
        let transaction = self.database.begin_read()?;
        let (due, accounts) = (transaction.open_table(DUE)?, transaction.open_table(ACCOUNTS)?);
        let time = milliseconds(now());
        let mut first: Option<(String, u64, u128)> = None;
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

    /// Records the outcome of a delivery, and when to retry.
    pub fn note_delivery(&self, id: JobId, webhook: &Webhook, again: Option<Duration>) -> Result<()> {
        let transaction = self.database.begin_write()?;
        let Some(mut job) = get(&transaction, id)? else { return Ok(()) };
        let again = again.map(|after| milliseconds(now() + after.as_secs_f64()));
        set_delivery(&transaction, id, job.owner.as_deref().unwrap_or_default(), again)?;
        job.webhook = Some(webhook.clone());
        put(&transaction, &job)?;
        transaction.commit()?;
        Ok(())
    }
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
