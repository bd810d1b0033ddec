//! Reading the embedded store: jobs, pages, and whose turn it is.

use redb::ReadTransaction;

use super::tables::{ACCOUNTS, HEADERS, OWNED, OwnerUsage, READY, REQUESTS, RESULTS, WEBHOOKS};
use super::{MOST_SCANNED, Result};
use crate::header::JobHeader;
use crate::model::{Filter, Job, JobId, Page, Summary};

pub(super) fn read_header(transaction: &ReadTransaction, id: JobId) -> Result<Option<JobHeader>> {
    let headers = transaction.open_table(HEADERS)?;
    Ok(headers.get(id.number())?.and_then(|bytes| JobHeader::decode(bytes.value())))
}

/// The whole job of a header.
pub(super) fn whole(transaction: &ReadTransaction, header: JobHeader) -> Result<Option<Job>> {
    let id = header.id.number();
    let requests = transaction.open_table(REQUESTS)?;
    let Some(request) = requests.get(id)?.and_then(|bytes| serde_json::from_slice(bytes.value()).ok()) else {
        return Ok(None);
    };
    let result = transaction.open_table(RESULTS)?.get(id)?;
    let result = result.and_then(|bytes| serde_json::from_slice(bytes.value()).ok());
    let webhook = transaction.open_table(WEBHOOKS)?.get(id)?;
    let webhook = webhook.and_then(|bytes| serde_json::from_slice(bytes.value()).ok());
    Ok(Some(header.job(request, result, webhook)))
}

pub(super) fn list(
    transaction: &ReadTransaction,
    filter: &Filter,
    limit: usize,
    cursor: Option<JobId>,
) -> Result<Page> {
    let headers = transaction.open_table(HEADERS)?;
    let owned = transaction.open_table(OWNED)?;
    let end = cursor.map_or(u128::MAX, JobId::number);
    let ids: Box<dyn Iterator<Item = Result<u128>>> = match filter.owner.as_deref() {
        Some(owner) => Box::new(owned.range((owner, 0)..(owner, end))?.rev().map(|entry| Ok(entry?.0.value().1))),
        None => Box::new(headers.range(..end)?.rev().map(|entry| Ok(entry?.0.value()))),
    };
    let mut jobs: Vec<Summary> = vec![];
    for (scanned, id) in ids.enumerate() {
        let id = id?;
        if scanned == MOST_SCANNED {
            // The next page begins behind the last job that was looked at.
            return Ok(Page { jobs, next: Some(JobId::from_number(id.saturating_add(1))) });
        }
        let Some(header) = headers.get(id)?.and_then(|bytes| JobHeader::decode(bytes.value())) else { continue };
        if !filter.fits(header.status, Some(header.owner_name())) {
            continue;
        }
        if jobs.len() == limit {
            let next = jobs.last().map(|job| job.id);
            return Ok(Page { jobs, next });
        }
        jobs.push(header.summary());
    }
    Ok(Page { jobs, next: None })
}

/// The owners with jobs in these queues, in the order in which to serve them.
pub(super) fn next_owners(
    transaction: &ReadTransaction,
    most_bytes: u64,
    lanes: &[String],
) -> Result<Vec<Option<String>>> {
    let (ready, accounts) = (transaction.open_table(READY)?, transaction.open_table(ACCOUNTS)?);
    let mut owners: Vec<(u64, u64, String)> = vec![];
    for lane in lanes {
        let mut after = String::new();
        // From owner to owner, without looking at their jobs.
        while let Some(entry) = ready.range((lane.as_str(), after.as_str(), 0, 0)..)?.next() {
            let (key, _) = entry?;
            let (found, owner, _, _) = key.value();
            if found != lane {
                break;
            }
            let usage: OwnerUsage = accounts.get(owner)?.map(|account| account.value().into()).unwrap_or_default();
            if usage.bytes <= most_bytes && owners.iter().all(|(_, _, known)| known != owner) {
                owners.push((usage.running, usage.turn, owner.to_owned()));
            }
            after = format!("{owner}\0");
        }
    }
    owners.sort_unstable();
    Ok(owners.into_iter().map(|(_, _, owner)| Some(owner).filter(|owner| !owner.is_empty())).collect())
}
