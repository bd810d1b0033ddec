//! The store for many servers: Redis.
//!
//! A job is a small header in one hash, with its request, its result and its events in keys of their own. Every change is one
//! script ([`scripts`]), and therefore one step. Steps that need decisions read the header, decide here, and replace it if it
//! has not changed meanwhile.
//!
//! A running job has a lease by the clock of Redis, which its server renews ([`RedisStore::heartbeat`]). When the lease has
//! ended, any server interrupts the attempt: the next one has a new number, and reports of the old one are refused.
//!
//! Those who wait are notified ([`notices`]) and do not poll. The connection is made anew whenever it is lost ([`link`]).

mod adopt;
mod link;
mod notices;
mod record;
mod scripts;
mod settings;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::{RedisError, Script, ScriptInvocation};
use sandbox_executor::{RunEvent, RunResult};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::embedded::MOST_SCANNED;
use crate::header::{Interruption, JobHeader, Sequel, gave_up, restarted};
use crate::idempotency::known_key;
use crate::model::{
    Attempt, Backlog, Created, Event, Exceeded, Filter, HeartbeatReport, Job, JobId, JobStatus, Labels, NewJob, Offer,
    Page, Progress, StoreLimits, Turns, Webhook,
};

use link::{RedisConnection, RedisLink, within};
use notices::Notices;
use record::JobRecord;
use scripts::SHARED;

pub use notices::RedisWatch;
pub use settings::RedisSettings;

/// How long a server may be silent before its jobs are given to others.
pub(crate) const LEASE: Duration = Duration::from_secs(6);

/// The longest time between two sweeps. A lease that begins after one has not ended before the next.
const SWEEP: Duration = LEASE;

/// The longest time between two looks for webhooks, in case a notification was lost.
const DELIVERIES: Duration = Duration::from_secs(30);

/// How soon webhooks are looked for again if some owners were left out.
const DELIVERIES_LEFT_OUT: Duration = Duration::from_millis(250);

/// The time that a probe may take.
const PROBE: Duration = Duration::from_millis(1400);

/// How many jobs are deleted in one step.
const FORGOTTEN_AT_ONCE: usize = 100;

/// How many headers are read at once for a list.
const LISTED_AT_ONCE: usize = 200;

/// How often a step that another one has overtaken is tried.
const MOST_TRIES: usize = 50;

/// Stands for the result in the list of events: results are stored once.
const RESULT_EVENT: &str = "=";

type Result<T> = std::result::Result<T, RedisError>;

/// Jobs in Redis.
pub struct RedisStore {
    link: Arc<RedisLink>,
    notices: Notices,
    /// What all keys begin with. In a cluster, the part in braces decides which node has them.
    prefix: String,
    /// What all keys of 0.1.0 began with.
    old_prefix: String,
    /// What all channels begin with. Channels are the same in all databases, so the number of the database is part of it.
    channels: String,
    retention: Duration,
    lease: Duration,
    /// The notification of work that was known before the last look for it.
    looked: AtomicU64,
    deliveries: NextLook,
    sweeps: NextLook,
    appends: Mutex<HashMap<JobId, AppendState>>,
}

/// The events of an attempt that this server runs, so that a batch whose answer was lost is not appended twice.
#[derive(Debug, Clone, Copy)]
struct AppendState {
    attempt: u32,
    /// The number of the last event that is known to be stored.
    last: u64,
    /// How many events the last batch had, if it is not known whether it was stored.
    uncertain: usize,
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// When there is something to look for again: the notification of work that was known at the last look, and the time at which
/// something is due.
#[derive(Default)]
struct NextLook(Mutex<Option<(u64, Instant)>>);

/// A change of a job.
struct JobChange {
    after: JobRecord,
    /// Whether the events so far are dropped.
    drops_events: bool,
    /// After how many seconds it may start again.
    pause: Option<f64>,
    result: Option<String>,
    events: Vec<String>,
    /// Whether it is void if the job's lease has not ended.
    needs_lapse: bool,
}

impl JobChange {
    fn to(after: JobRecord) -> Self {
        Self { after, drops_events: false, pause: None, result: None, events: vec![], needs_lapse: false }
    }

    /// Adds an event.
    fn event(&mut self, written: String) {
        self.after.header.last_event += 1;
        self.after.header.event_bytes += written.len() as u64;
        self.events.push(written);
    }

    /// Ends the job.
    fn end(mut self, status: JobStatus, result: Option<&RunResult>) -> Self {
        self.after.header.status = status;
        if let Some(result) = result {
            let written = json(result);
            self.after.header.result_bytes = written.len() as u64;
            self.after.header.verdict = Some(result.verdict.name().to_owned());
            self.result = Some(written);
            self.event(RESULT_EVENT.to_owned());
        } else if status == JobStatus::Expired {
            self.event(json(&RunEvent::Expired));
        } else {
            self.event(json(&RunEvent::Cancelled));
        }
        self
    }

    /// Interrupts the attempt of a running job. The result is that of a job that is given up.
    fn interrupt(before: &JobRecord, why: Interruption, result: Option<&RunResult>) -> Self {
        let mut change = Self::to(before.clone());
        let header = &mut change.after.header;
        let sequel = why.note(header);
        header.event_bytes = 0;
        change.after.base = header.last_event;
        change.drops_events = true;
        change.event(json(&restarted(&before.header)));
        match sequel {
            Sequel::Queued(pause) => {
                change.after.header.status = JobStatus::Queued;
                change.pause = Some(pause).filter(|pause| *pause > 0.0);
                change
            }
            Sequel::Cancelled => change.end(JobStatus::Cancelled, None),
            Sequel::GivenUp => {
                let given_up = gave_up(change.after.header.failures);
                change.end(JobStatus::Finished, Some(result.unwrap_or(&given_up)))
            }
        }
    }
}

impl RedisStore {
    /// Connects, and takes over what 0.1.0 left there.
    pub async fn connect(settings: RedisSettings, retention: Duration) -> Result<Self> {
        Self::connect_as(settings, retention, "sandbox", LEASE).await
    }

    pub(crate) async fn connect_as(
        settings: RedisSettings,
        retention: Duration,
        name: &str,
        lease: Duration,
    ) -> Result<Self> {
        let prefix = format!("{{{name}}}");
        let channels = format!("{prefix}:{}", settings.database());
        let link = Arc::new(RedisLink::new(settings, prefix.clone()));
        link.connection().await?;
        let store = Self {
            notices: Notices::listen(Arc::clone(&link), channels.clone()),
            link,
            prefix,
            old_prefix: name.to_owned(),
            channels,
            retention,
            lease,
            looked: AtomicU64::new(0),
            deliveries: NextLook::default(),
            sweeps: NextLook::default(),
            appends: Mutex::default(),
        };
        store.adopt().await?;
        Ok(store)
    }

    async fn connection(&self) -> Result<RedisConnection> {
        self.link.connection().await
    }

    fn key(&self, kind: &str) -> String {
        format!("{}:{kind}", self.prefix)
    }

    fn of(&self, kind: &str, id: JobId) -> String {
        format!("{}:{kind}:{id}", self.prefix)
    }

    /// Begins a call of a script.
    fn call<'a>(&self, script: &'a Script) -> ScriptInvocation<'a> {
        let mut call = script.prepare_invoke();
        for name in SHARED {
            call.key(self.key(name));
        }
        call.arg(&self.channels);
        call
    }

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

    /// The header of a job, and as Redis has it.
    async fn record(&self, id: JobId) -> Result<Option<(JobRecord, String)>> {
        let text: Option<String> = redis::cmd("HGET")
            .arg(self.key("jobs"))
            .arg(id.to_string())
            .query_async(&mut self.connection().await?)
            .await?;
        text.map(|text| Ok((decoded(id, &text)?, text))).transpose()
    }

    /// The header of a job.
    pub(crate) async fn header(&self, id: JobId) -> Result<Option<JobHeader>> {
        Ok(self.record(id).await?.map(|(record, _)| record.header))
    }

    /// A job.
    pub(crate) async fn get(&self, id: JobId) -> Result<Option<Job>> {
        let Some(header) = self.header(id).await? else { return Ok(None) };
        self.whole(header).await
    }

    /// The whole job of a header. Nothing if it was deleted meanwhile.
    async fn whole(&self, header: JobHeader) -> Result<Option<Job>> {
        let id = header.id;
        let mut pipe = redis::pipe();
        pipe.cmd("GET").arg(self.of("request", id));
        pipe.cmd("HGET").arg(self.key("webhooks")).arg(id.to_string());
        if header.result_bytes > 0 {
            pipe.cmd("GET").arg(self.of("result", id));
        }
        let parts: Vec<Option<String>> = pipe.query_async(&mut self.connection().await?).await?;
        let part = |place: usize| parts.get(place).and_then(Option::as_ref);
        let Some(request) = parse(part(0)) else { return Ok(None) };
        Ok(Some(header.job(request, parse(part(2)), parse(part(1)))))
    }

    /// How far a job is.
    pub(crate) async fn progress(&self, id: JobId) -> Result<Option<Progress>> {
        Ok(self.header(id).await?.map(|header| header.progress()))
    }

    /// Fails if nothing can be written, within a second and a half.
    pub(crate) async fn probe(&self) -> Result<()> {
        within(PROBE, async {
            let mut connection = self.connection().await?;
            redis::cmd("SET").arg(self.key("probe")).arg(1).arg("EX").arg(60).query_async(&mut connection).await
        })
        .await
    }

    /// Jobs, newest first, from before `cursor` on.
    pub(crate) async fn list(&self, filter: Filter, limit: usize, cursor: Option<JobId>) -> Result<Page> {
        let (index, before) = match &filter.owner {
            Some(owner) => (self.key("owned"), format!("{owner}\0")),
            None => (self.key("index"), String::new()),
        };
        let mut connection = self.connection().await?;
        let mut jobs = vec![];
        let mut from = cursor.map_or_else(
            || if before.is_empty() { "+".to_owned() } else { format!("({}\u{1}", &before[..before.len() - 1]) },
            |id| format!("({before}{id}"),
        );
        let to = if before.is_empty() { "-".to_owned() } else { format!("[{before}") };
        let mut scanned = 0;
        loop {
            let members: Vec<String> = redis::cmd("ZREVRANGEBYLEX")
                .arg(&index)
                .arg(&from)
                .arg(&to)
                .arg("LIMIT")
                .arg(0)
                .arg(MOST_SCANNED.min(LISTED_AT_ONCE))
                .query_async(&mut connection)
                .await?;
            let Some(last) = members.last() else { return Ok(Page { jobs, next: None }) };
            from = format!("({last}");
            let ids: Vec<&str> = members.iter().map(|member| &member[before.len().min(member.len())..]).collect();
            let headers: Vec<Option<String>> =
                redis::cmd("HMGET").arg(self.key("jobs")).arg(&ids).query_async(&mut connection).await?;
            for (id, header) in ids.iter().zip(headers) {
                let header = id.parse().ok().zip(header).and_then(|(id, text)| JobRecord::decode(id, &text));
                let Some(JobRecord { header, .. }) = header else { continue };
                if !filter.fits(header.status, header.owner.as_deref()) {
                    continue;
                }
                if jobs.len() == limit {
                    let next = jobs.last().map(|job: &crate::model::Summary| job.id);
                    return Ok(Page { jobs, next });
                }
                jobs.push(header.summary());
            }
            scanned += ids.len();
            if scanned >= MOST_SCANNED {
                return Ok(Page { jobs, next: ids.last().and_then(|id| id.parse().ok()) });
            }
        }
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
        let state = AppendState { attempt: header.attempts, last: header.last_event, uncertain: 0 };
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

    /// Waits until a webhook may be due, or for this long; longer while there are notifications.
    pub(crate) async fn delivery_due(&self, most: Duration) {
        let Some((looked, due)) = self.deliveries.known() else { return };
        let left = due.saturating_duration_since(Instant::now());
        let most = if self.notices.are_heard() { left } else { most.min(left) };
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

    fn appends(&self) -> MutexGuard<'_, HashMap<JobId, AppendState>> {
        self.appends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records what happened in an attempt. Returns false if it is not the job's current one.
    ///
    /// After a failure the same events have to be passed again, and may be followed by more: those that were stored are not
    /// stored twice.
    pub(crate) async fn append(&self, attempt: Attempt, events: Vec<RunEvent>) -> Result<bool> {
        let state = self.appends().get(&attempt.id).copied().filter(|state| state.attempt == attempt.number);
        let mut call = self.call(&scripts::APPEND);
        call.key(self.of("events", attempt.id)).arg(attempt.id.to_string()).arg(attempt.number);
        let uncertain = state.filter(|state| state.uncertain > 0);
        call.arg(uncertain.map_or(0, |state| state.last)).arg(uncertain.map_or(0, |state| state.uncertain));
        for event in &events {
            call.arg(json(event));
        }
        let appended: Result<i64> = async { call.invoke_async(&mut self.connection().await?).await }.await;
        let mut appends = self.appends();
        match appended {
            Ok(last) => {
                let last = u64::try_from(last);
                if let Some(state) = appends.get_mut(&attempt.id) {
                    *state = AppendState { last: last.unwrap_or_default(), uncertain: 0, ..*state };
                }
                Ok(last.is_ok())
            }
            Err(error) => {
                // A batch that may have been stored before stays the one in question.
                if let Some(state) = appends.get_mut(&attempt.id).filter(|state| state.uncertain == 0) {
                    state.uncertain = events.len();
                }
                Err(error)
            }
        }
    }

    /// The next events of a job after one of them, at most this many.
    pub(crate) async fn events(&self, id: JobId, after: u64, most: usize) -> Result<Vec<Event>> {
        let mut call = self.call(&scripts::EVENTS);
        call.key(self.of("events", id)).arg(id.to_string()).arg(after).arg(most);
        let mut connection = self.connection().await?;
        let (first, written): (u64, Vec<String>) = call.invoke_async(&mut connection).await?;
        let mut events = vec![];
        for (number, text) in (first..).zip(written) {
            let what = if text == RESULT_EVENT {
                let mut command = redis::cmd("GET");
                let result: Option<String> = command.arg(self.of("result", id)).query_async(&mut connection).await?;
                parse(result.as_ref()).map(|result| RunEvent::Result { result: Arc::new(result) })
            } else {
                parse(Some(&text))
            };
            events.extend(what.map(|what| Event { number, what }));
        }
        Ok(events)
    }

    /// Changes a job, unless nothing is to be changed. Returns how it is then, if there is one.
    async fn change(
        &self,
        id: JobId,
        decide: impl Fn(&JobRecord) -> Option<JobChange>,
    ) -> Result<Option<(JobHeader, bool)>> {
        for _ in 0..MOST_TRIES {
            let Some((before, written)) = self.record(id).await? else { return Ok(None) };
            let Some(change) = decide(&before) else { return Ok(Some((before.header, false))) };
            let mut call = self.call(&scripts::SWAP);
            call.key(self.of("result", id)).key(self.of("events", id));
            call.arg(id.to_string()).arg(written).arg(change.after.encode()).arg(u8::from(change.drops_events));
            call.arg(change.pause.map(|pause| pause.to_string()).unwrap_or_default());
            call.arg(u8::from(change.needs_lapse)).arg(change.result.unwrap_or_default()).arg(change.events);
            let mut connection = self.connection().await?;
            let after: Option<String> = call.invoke_async(&mut connection).await?;
            if after.as_deref() == Some("") {
                return Ok(Some((before.header, false)));
            }
            if let Some(after) = after {
                connection.wait_for_replicas().await?;
                return Ok(Some((decoded(id, &after)?.header, true)));
            }
        }
        Err(unexpected("a job changes too often"))
    }

    /// Ends the current attempt of a job; returns whether it was the current one.
    async fn end_attempt(&self, attempt: Attempt, end: impl Fn(&JobRecord) -> JobChange) -> Result<bool> {
        let changed = self.change(attempt.id, |before| before.header.is_current(attempt).then(|| end(before))).await?;
        self.appends().remove(&attempt.id);
        Ok(changed.is_some_and(|(_, changed)| changed))
    }

    /// Ends a job with the result of its current attempt, which is its last event too. Returns false if the attempt is not
    /// the current one.
    pub(crate) async fn finish(&self, attempt: Attempt, result: Arc<RunResult>) -> Result<bool> {
        self.end_attempt(attempt, |before| {
            let status = if before.header.cancel_requested { JobStatus::Cancelled } else { JobStatus::Finished };
            JobChange::to(before.clone()).end(status, Some(&result))
        })
        .await
    }

    /// Puts a running job back into the queue, for a server that ends before it does.
    pub(crate) async fn put_back(&self, attempt: Attempt) -> Result<bool> {
        self.end_attempt(attempt, |before| JobChange::interrupt(before, Interruption::Shutdown, None)).await
    }

    /// Ends an attempt that failed for reasons of the host. The job is queued again, or ends with this result.
    pub(crate) async fn fail(&self, attempt: Attempt, result: Arc<RunResult>) -> Result<bool> {
        let interrupt = |before: &JobRecord| JobChange::interrupt(before, Interruption::HostFailure, Some(&result));
        let ended = self.end_attempt(attempt, interrupt).await;
        self.sweeps.forget();
        ended
    }

    /// Ends an attempt whose keeper ended. The job is queued again as a suspect, or ends with this result.
    pub(crate) async fn suspect(&self, attempt: Attempt, result: Arc<RunResult>) -> Result<bool> {
        let interrupt = |before: &JobRecord| JobChange::interrupt(before, Interruption::Death, Some(&result));
        self.end_attempt(attempt, interrupt).await
    }

    /// Cancels a job: one that waits ends, one that runs has to be ended by its server, whatever happens to it meanwhile.
    pub(crate) async fn cancel(&self, id: JobId) -> Result<Option<JobHeader>> {
        let changed = self.change(id, |before| match before.header.status {
            JobStatus::Queued => Some(JobChange::to(before.clone()).end(JobStatus::Cancelled, None)),
            JobStatus::Running if !before.header.cancel_requested => {
                let mut after = before.clone();
                after.header.cancel_requested = true;
                Some(JobChange::to(after))
            }
            _ => None,
        });
        Ok(changed.await?.map(|(header, _)| header))
    }

    /// Queues delayed jobs whose time has come, ends those that were not started in time, and interrupts those whose server
    /// is silent. Returns how long until the next sweep. Before that time, a sweep costs no command: an operation that makes something
    /// due earlier sends a notification.
    pub(crate) async fn sweep(&self) -> Result<Option<Duration>> {
        let work = *self.notices.work().borrow();
        if let Some((known, due)) = self.sweeps.known() {
            let left = due.saturating_duration_since(Instant::now());
            if known == work && self.notices.are_heard() && !left.is_zero() {
                return Ok(Some(left));
            }
        }
        for _ in 0..MOST_TRIES {
            let call = self.call(&scripts::SWEEP);
            let (lapsed, expired, left): (Vec<String>, Vec<String>, String) =
                call.invoke_async(&mut self.connection().await?).await?;
            for id in expired.iter().filter_map(|id| id.parse().ok()) {
                let expire = |before: &JobRecord| {
                    let waits = before.header.status == JobStatus::Queued && before.header.attempts == 0;
                    waits.then(|| JobChange::to(before.clone()).end(JobStatus::Expired, None))
                };
                self.change(id, expire).await?;
            }
            // After an outage, the servers that are alive have to have the time to renew their leases.
            let grace = self.lease.saturating_sub(self.link.age());
            if !lapsed.is_empty() && !grace.is_zero() {
                let left = grace.min(Duration::from_secs(1));
                self.sweeps.note(work, left);
                return Ok(Some(left));
            }
            for id in lapsed.iter().filter_map(|id| id.parse().ok()) {
                self.interrupt_lapsed(id).await?;
            }
            if let Some(left) = left.parse().ok().filter(|left| *left > 0.0) {
                let left = Duration::try_from_secs_f64(left).unwrap_or(SWEEP).min(SWEEP).min(self.lease);
                self.sweeps.note(work, left);
                return Ok(Some(left));
            }
        }
        Ok(Some(Duration::ZERO))
    }

    /// Interrupts the attempt of a job whose lease has ended, unless its server has renewed it meanwhile.
    async fn interrupt_lapsed(&self, id: JobId) -> Result<()> {
        let interrupt = |before: &JobRecord| {
            let runs = before.header.status == JobStatus::Running;
            runs.then(|| JobChange { needs_lapse: true, ..JobChange::interrupt(before, Interruption::Death, None) })
        };
        self.change(id, interrupt).await.map(drop)
    }

    /// Takes a job whose webhook is due, of any owner except these. Its delivery is leased for this long.
    pub(crate) async fn take_delivery(&self, lease: Duration, without: Vec<Option<String>>) -> Result<Option<Job>> {
        let work = *self.notices.work().borrow();
        let mut call = self.call(&scripts::TAKE_DELIVERY);
        call.arg(lease.as_secs_f64());
        for owner in &without {
            call.arg(owner.as_deref().unwrap_or_default());
        }
        let (id, left): (String, String) = call.invoke_async(&mut self.connection().await?).await?;
        if let Ok(id) = id.parse() {
            return self.get(id).await;
        }
        let left = left.parse().ok().and_then(|left| Duration::try_from_secs_f64(left).ok()).unwrap_or(DELIVERIES);
        // What is due may be that of an owner that was left out.
        let least = if without.is_empty() { Duration::ZERO } else { DELIVERIES_LEFT_OUT };
        self.deliveries.note(work, left.clamp(least, DELIVERIES));
        Ok(None)
    }

    /// Records the outcome of a delivery, and when to retry.
    pub(crate) async fn note_delivery(&self, id: JobId, webhook: Webhook, again: Option<Duration>) -> Result<()> {
        let mut call = self.call(&scripts::NOTE_DELIVERY);
        call.arg(id.to_string()).arg(json(&webhook));
        call.arg(again.map(|after| after.as_secs_f64().to_string()).unwrap_or_default());
        call.invoke_async::<i64>(&mut self.connection().await?).await.map(drop)
    }

    /// Charges runs against a daily quota. Returns false, and charges nothing, if too few are left.
    pub(crate) async fn spend(&self, who: String, runs: u64, most: u64) -> Result<bool> {
        let mut call = self.call(&scripts::SPEND);
        call.arg(who).arg(runs).arg(most);
        let spent: i64 = call.invoke_async(&mut self.connection().await?).await?;
        Ok(spent == 1)
    }

    /// Forgets jobs that ended too long ago, and takes over what a server of 0.1.0 has queued since. Returns how many were
    /// forgotten.
    pub(crate) async fn expire(&self) -> Result<usize> {
        self.adopt().await?;
        let retention = self.retention.as_secs_f64();
        let mut forgotten = 0;
        loop {
            let mut call = self.call(&scripts::OLD);
            call.arg(retention).arg(FORGOTTEN_AT_ONCE);
            let old: Vec<String> = call.invoke_async(&mut self.connection().await?).await?;
            if old.is_empty() {
                return Ok(forgotten);
            }
            let mut call = self.call(&scripts::FORGET);
            for id in &old {
                for kind in ["request", "result", "events"] {
                    call.key(format!("{}:{kind}:{id}", self.prefix));
                }
            }
            call.arg(retention).arg(&old);
            forgotten += call.invoke_async::<usize>(&mut self.connection().await?).await?;
        }
    }

    /// Follows a job.
    pub(crate) fn follow(&self, id: JobId) -> RedisWatch {
        self.notices.follow(id)
    }
}

impl NextLook {
    fn known(&self) -> Option<(u64, Instant)> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, work: u64, left: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((work, Instant::now() + left));
    }

    /// Something may be due earlier than was known.
    fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Waits until there is a later notification than this one, or for this long.
async fn wait_past(mut work: watch::Receiver<u64>, known: u64, most: Duration) {
    let _ = tokio::time::timeout(most, work.wait_for(|count| *count != known)).await;
}

fn decoded(id: JobId, text: &str) -> Result<JobRecord> {
    JobRecord::decode(id, text).ok_or_else(|| unexpected("the header of a job cannot be read"))
}

fn parse<T: DeserializeOwned>(text: Option<&String>) -> Option<T> {
    text.and_then(|text| serde_json::from_str(text).ok())
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Whether Redis has no memory for more jobs.
pub(crate) fn is_full(error: &RedisError) -> bool {
    error.code() == Some("OOM")
}

fn unexpected(what: &'static str) -> RedisError {
    RedisError::from((redis::ErrorKind::UnexpectedReturnType, what))
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod measure {
    use super::*;
    use crate::header::OVERHEAD;
    use crate::store::Usage;

    impl RedisStore {
        /// Ends all leases, as if every server had been silent for long.
        pub(crate) async fn end_leases(&self) {
            let mut connection = self.connection().await.expect("connect");
            self.link.make_older(self.lease);
            let timers: Vec<String> = redis::cmd("ZRANGE")
                .arg(self.key("timers"))
                .arg(0)
                .arg(-1)
                .query_async(&mut connection)
                .await
                .expect("read");
            for timer in timers.iter().filter(|timer| timer.starts_with('r')) {
                let mut command = redis::cmd("ZADD");
                command.arg(self.key("timers")).arg(0).arg(timer);
                let _: i64 = command.query_async(&mut connection).await.expect("write");
            }
        }

        pub(crate) async fn usage(&self, owner: &str) -> Usage {
            let mut pipe = redis::pipe();
            for kind in ["waiting", "running", "bytes"] {
                pipe.cmd("HGET").arg(self.key(kind)).arg(owner);
            }
            let mut connection = self.connection().await.expect("connect");
            let counts: [Option<u64>; 3] = pipe.query_async(&mut connection).await.expect("read");
            let [waiting, running, bytes] = counts.map(Option::unwrap_or_default);
            Usage { waiting, running, bytes }
        }

        /// What an owner has, found by reading everything.
        pub(crate) async fn measured(&self, owner: &str) -> Usage {
            let mut connection = self.connection().await.expect("connect");
            let ids: Vec<String> =
                redis::cmd("HKEYS").arg(self.key("jobs")).query_async(&mut connection).await.expect("ids");
            let mut usage = Usage::default();
            for id in ids.iter().map(|id| id.parse::<JobId>().expect("an id")) {
                let header = self.header(id).await.expect("read").expect("there");
                if header.owner_name() != owner {
                    continue;
                }
                let mut pipe = redis::pipe();
                pipe.cmd("STRLEN").arg(self.of("request", id)).cmd("STRLEN").arg(self.of("result", id));
                pipe.cmd("HSTRLEN").arg(self.key("webhooks")).arg(id.to_string());
                let sizes: Vec<u64> = pipe.query_async(&mut connection).await.expect("sizes");
                let mut list = redis::cmd("LRANGE");
                list.arg(self.of("events", id)).arg(0).arg(-1);
                let events: Vec<String> = list.query_async(&mut connection).await.expect("events");
                let events = events.iter().map(|event| event.len() as u64).sum::<u64>();
                usage.add(header.status, OVERHEAD + sizes.iter().sum::<u64>() + events);
            }
            usage
        }
    }
}
