//! The queue: jobs are created, offered to workers by owner, taken, and kept by the heartbeats of their server.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::ScriptInvocation;

use super::events::AppendState;
use super::record::JobRecord;
use super::timers::{SWEEP, wait_past};
use super::{RedisStore, Result, decoded, json, parse, scripts, unexpected};
use crate::header::JobHeader;
use crate::idempotency::known_key;
use crate::model::{
    Attempt, Backlog, Created, Exceeded, HeartbeatReport, Job, JobId, Labels, NewJob, Offer, StoreLimits, Turns,
};

/// A request of at least so many bytes is read apart from the step that takes its job, which stops all of Redis.
const LARGE_REQUEST: u64 = 64 << 10;

/// The time for which the jobs of one owner are assumed to wait still.
const TURNS_HOLD: Duration = Duration::from_secs(1);

/// Owners, and owners of suspects, as scripts return them.
type WrittenTurns = (Vec<String>, Vec<String>);

fn named((owners, suspects): WrittenTurns) -> Turns {
    let named = |names: Vec<String>| names.into_iter().map(|name| Some(name).filter(|name| !name.is_empty())).collect();
    Turns { owners: named(owners), suspects: named(suspects) }
}

/// The parameters of a worker's question before it takes a job.
#[derive(Debug, Clone, Default, PartialEq)]
struct TurnsAsked {
    most_bytes: u64,
    labels: Labels,
}

impl TurnsAsked {
    fn add_to(&self, call: &mut ScriptInvocation<'_>) {
        let lanes = |alone| Offer { labels: self.labels.clone(), alone }.lanes();
        call.arg(self.most_bytes).arg(lanes(false).len()).arg(lanes(false)).arg(lanes(true));
    }
}

/// The next owners, as far as they are known from the last job that was taken, without another question. Only for jobs
/// of a single owner, where no order could have changed.
#[derive(Debug, Default)]
pub(super) struct KnownTurns {
    asked: Option<TurnsAsked>,
    /// With the notification of work that was known before, and the time.
    known: Option<(u64, Instant, Turns)>,
}

impl KnownTurns {
    fn known(&self, asked: &TurnsAsked, work: u64) -> Option<Turns> {
        let (known_work, at, turns) = self.known.as_ref()?;
        let holds = self.asked.as_ref() == Some(asked) && *known_work == work && at.elapsed() < TURNS_HOLD;
        holds.then(|| turns.clone())
    }

    fn note(&mut self, asked: TurnsAsked, work: u64, turns: Turns) {
        let is_one = turns.owners.len() == 1 && turns.suspects.is_empty();
        *self = Self { asked: Some(asked), known: is_one.then(|| (work, Instant::now(), turns)) };
    }
}

impl RedisStore {
    /// Creates a job and queues it, in this order: the idempotency key, the bounds of the queue, the quota.
    pub(crate) async fn create(&self, new: NewJob, bounds: StoreLimits) -> Result<Created> {
        let digest = sandbox_base::random::hex(&new.digest());
        let (id, call) = self.creation(&new, &digest, bounds);
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

    /// The call that creates a job, and the id that the job gets.
    pub(super) fn creation(
        &self,
        new: &NewJob,
        digest: &str,
        bounds: StoreLimits,
    ) -> (JobId, ScriptInvocation<'static>) {
        let (request, webhook) = (json(&new.request), new.webhook.as_ref().map(json).unwrap_or_default());
        let record = JobRecord::of(JobHeader::queued(new, (request.len() + webhook.len()) as u64, 0.0));
        let id = record.header.id;
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64().to_string()).unwrap_or_default();
        let mut call = self.call(&scripts::CREATE);
        call.key(self.of("request", id)).arg(id.to_string()).arg(record.encode()).arg(request).arg(webhook).arg(digest);
        // The clock of this server may differ, and so the delay that it has computed.
        call.arg(seconds(new.delay)).arg(new.not_before.map(|time| time.to_string()).unwrap_or_default());
        call.arg(seconds(new.expires_in));
        call.arg(bounds.waiting).arg(bounds.waiting_per_owner).arg(bounds.bytes_per_owner);
        call.arg(new.per_day.map(|most| most.to_string()).unwrap_or_default());
        (id, call)
    }

    /// How many jobs wait, and for how long, by the clock of Redis.
    pub(crate) async fn backlog(&self) -> Result<Backlog> {
        let call = self.call(&scripts::BACKLOG);
        let (waiting, age): (u64, f64) = call.invoke_async(&mut self.connection().await?).await?;
        Ok(Backlog { waiting, age: Duration::try_from_secs_f64(age).unwrap_or_default() })
    }

    /// The owners whose jobs wait for a worker with these labels. Owners with more bytes than this are left out.
    pub(crate) async fn next_owners(&self, most_bytes: u64, labels: &Labels) -> Result<Turns> {
        // What is queued from now on wakes those who wait for work, whether this call sees it or not.
        let work = *self.notices.work().borrow();
        self.looked.store(work, Ordering::Relaxed);
        let asked = TurnsAsked { most_bytes, labels: labels.clone() };
        if let Some(turns) = self.turns().known(&asked, work)
            && self.notices.are_heard()
        {
            return Ok(turns);
        }
        let mut call = self.call(&scripts::OWNERS);
        asked.add_to(&mut call);
        let turns = call.invoke_async(&mut self.connection().await?).await?;
        let turns = named(turns);
        *self.turns() = KnownTurns { asked: Some(asked), known: None };
        Ok(turns)
    }

    fn turns(&self) -> MutexGuard<'_, KnownTurns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the job of an owner with the highest priority that has waited longest.
    pub(crate) async fn take(&self, owner: Option<&str>, offer: &Offer) -> Result<Option<Job>> {
        let work = *self.notices.work().borrow();
        let asked = self.turns().asked.clone().unwrap_or_default();
        let (lanes, requests) = (offer.lanes(), format!("{}:request:", self.prefix));
        let mut call = self.call(&scripts::TAKE);
        call.arg(owner.unwrap_or_default()).arg(self.lease.as_secs_f64()).arg(u8::from(offer.alone));
        call.arg(requests).arg(LARGE_REQUEST).arg(lanes.len()).arg(lanes);
        asked.add_to(&mut call);
        let taken: Option<(String, String, String, String, WrittenTurns)> =
            call.invoke_async(&mut self.connection().await?).await?;
        let Some((id, text, request, webhook, turns)) = taken else {
            self.turns().known = None;
            return Ok(None);
        };
        self.turns().note(asked, work, named(turns));
        let id = id.parse().map_err(|_| unexpected("a queued job has no id"))?;
        let header = decoded(id, &text)?.header;
        let state = AppendState { attempt: header.attempts, last: header.last_event };
        let job = match parse(Some(&request)) {
            Some(request) => Some(header.job(request, None, parse(Some(&webhook)))),
            None => self.whole(header).await?,
        };
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
        for attempt in &attempts {
            call.arg(attempt.id.to_string()).arg(attempt.number);
        }
        let mut connection = self.heartbeats.connection().await?;
        let (cancelled, lost): (Vec<String>, Vec<String>) = call.invoke_async(&mut connection).await?;
        let ids = |names: Vec<String>| names.iter().filter_map(|id| id.parse().ok()).collect::<Vec<JobId>>();
        let report = HeartbeatReport { cancelled: ids(cancelled), lost: ids(lost) };
        for attempt in attempts.iter().filter(|attempt| report.lost.contains(&attempt.id)) {
            self.forget_appends(*attempt);
        }
        Ok(report)
    }
}
