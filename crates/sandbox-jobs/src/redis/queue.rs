//! The queue: jobs are created, offered to workers by owner, taken, and kept by the heartbeats of their server.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::events::AppendState;
use super::record::JobRecord;
use super::timers::{SWEEP, wait_past};
use super::{RedisStore, Result, decoded, json, scripts, unexpected};
use crate::header::JobHeader;
use crate::idempotency::known_key;
use crate::model::{
    Attempt, Backlog, Created, Exceeded, HeartbeatReport, Job, JobId, Labels, NewJob, Offer, StoreLimits, Turns,
};

impl RedisStore {
    /// Creates a job and queues it, in this order: the idempotency key, the bounds of the queue, the quota.
    pub(crate) async fn create(&self, new: NewJob, bounds: StoreLimits) -> Result<Created> {
        let (request, webhook) = (json(&new.request), new.webhook.as_ref().map(json).unwrap_or_default());
        let record = JobRecord::of(JobHeader::queued(&new, (request.len() + webhook.len()) as u64, 0.0));
        let (id, digest) = (record.header.id, sandbox_base::random::hex(&new.digest()));
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64().to_string()).unwrap_or_default();
        let mut call = self.call(&scripts::CREATE);
        call.key(self.of("request", id))
            .arg(id.to_string())
            .arg(record.encode())
            .arg(request)
            .arg(webhook)
            .arg(&digest);
        // The clock of this server may differ, and so the delay that it has computed.
        call.arg(seconds(new.delay)).arg(new.not_before.map(|time| time.to_string()).unwrap_or_default());
        call.arg(seconds(new.expires_in));
        call.arg(bounds.waiting).arg(bounds.waiting_per_owner).arg(bounds.bytes_per_owner);
        call.arg(new.per_day.map(|most| most.to_string()).unwrap_or_default());
        let mut connection = self.connection().await?;
        let answer: Vec<String> = call.invoke_async(&mut connection).await?;
        if new.delay.is_some() || new.expires_in.is_some() {
            self.sweeps.forget();
        }
        let text = answer.get(1).map(String::as_str).unwrap_or_default();
        let known = match answer.first().map(String::as_str) {
            Some("new") => {
                connection.wait_for_replicas().await?;
                return Ok(Created::New(decoded(id, text)?.header));
            }
            Some("waiting") => return Ok(Created::Refused(Exceeded::Waiting)),
            Some("waiting-per-owner") => return Ok(Created::Refused(Exceeded::WaitingPerOwner)),
            Some("bytes-per-owner") => return Ok(Created::Refused(Exceeded::BytesPerOwner)),
            Some("per-day") => return Ok(Created::Refused(Exceeded::PerDay)),
            _ => text,
        };
        let (known_id, known_digest) = known.split_once(' ').unwrap_or((known, ""));
        let id: JobId = known_id.parse().map_err(|_| unexpected("an idempotency key has no job"))?;
        let header = self.header(id).await?;
        // The first request may have been created, but its answer lost before its replicas had it.
        connection.wait_for_replicas().await?;
        Ok(known_key(id, header, known_digest == digest))
    }

    /// How many jobs wait, and for how long, by the clock of Redis.
    pub(crate) async fn backlog(&self) -> Result<Backlog> {
        let call = self.call(&scripts::BACKLOG);
        let (waiting, age): (u64, f64) = call.invoke_async(&mut self.connection().await?).await?;
        Ok(Backlog { waiting, age: Duration::try_from_secs_f64(age).unwrap_or_default() })
    }

    /// Whose jobs wait for a worker with these labels. Owners with more bytes than this are left out.
    pub(crate) async fn next_owners(&self, most_bytes: u64, labels: &Labels) -> Result<Turns> {
        // What is queued from now on wakes those who wait for work, whether this call sees it or not.
        self.looked.store(*self.notices.work().borrow(), Ordering::Relaxed);
        let lanes = |alone| Offer { labels: labels.clone(), alone }.lanes();
        let mut call = self.call(&scripts::OWNERS);
        call.arg(most_bytes).arg(lanes(false).len()).arg(lanes(false)).arg(lanes(true));
        let (owners, suspects): (Vec<String>, Vec<String>) = call.invoke_async(&mut self.connection().await?).await?;
        let named =
            |names: Vec<String>| names.into_iter().map(|name| Some(name).filter(|name| !name.is_empty())).collect();
        Ok(Turns { owners: named(owners), suspects: named(suspects) })
    }

    /// Takes the job of an owner with the highest priority that has waited longest.
    pub(crate) async fn take(&self, owner: Option<&str>, offer: &Offer) -> Result<Option<Job>> {
        let mut call = self.call(&scripts::TAKE);
        call.arg(owner.unwrap_or_default()).arg(self.lease.as_secs_f64()).arg(u8::from(offer.alone)).arg(offer.lanes());
        let taken: Vec<String> = call.invoke_async(&mut self.connection().await?).await?;
        let [id, text] = taken.as_slice() else { return Ok(None) };
        let id = id.parse().map_err(|_| unexpected("a queued job has no id"))?;
        let header = decoded(id, text)?.header;
        let state = AppendState { attempt: header.attempts, last: header.last_event };
        let job = self.whole(header).await?;
        self.appends().insert(id, state);
        Ok(job)
    }

    /// Waits until a job may have been queued since the last look, or for this long. While there are notifications, it waits
    /// longer: looking often would only cost commands.
    pub(crate) async fn something_queued(&self, most: Duration) {
        let looked = self.looked.load(Ordering::Relaxed);
        let most = if self.notices.are_heard() { most.max(SWEEP) } else { most };
        wait_past(self.notices.work(), looked, most).await;
    }

    /// Renews the leases of attempts. Returns which were cancelled, and which are not the job's current ones.
    pub(crate) async fn heartbeat(&self, attempts: Vec<Attempt>) -> Result<HeartbeatReport> {
        if attempts.is_empty() {
            return Ok(HeartbeatReport::default());
        }
        let mut call = self.call(&scripts::HEARTBEAT);
        call.arg(self.lease.as_secs_f64());
        for attempt in attempts {
            call.arg(attempt.id.to_string()).arg(attempt.number);
        }
        let (cancelled, lost): (Vec<String>, Vec<String>) = call.invoke_async(&mut self.connection().await?).await?;
        let ids = |names: Vec<String>| names.iter().filter_map(|id| id.parse().ok()).collect::<Vec<JobId>>();
        let report = HeartbeatReport { cancelled: ids(cancelled), lost: ids(lost) };
        self.appends().retain(|id, _| !report.lost.contains(id));
        Ok(report)
    }
}
