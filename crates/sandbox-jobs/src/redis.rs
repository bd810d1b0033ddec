//! The store for many servers: Redis.
//!
//! Every owner has a queue of its own, ordered by age. A job that runs has a lease, which its server renews from time to time
//! ([`RedisStore::heartbeat`]); a job whose lease has run out waits again, its next run has a new attempt number, and what
//! the old one may still have to say is ignored. A job is a hash, its events are a stream, so that any server can show any
//! job. Every transition is one script, and therefore one step.

mod adopt;
mod scripts;

use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionManager;
use redis::{Client, RedisError, Script, ScriptInvocation};
use sandbox_executor::{RunEvent, RunResult};
use serde::de::DeserializeOwned;

use crate::embedded::MOST_SCANNED;
use crate::header::{JobHeader, MOST_FAILURES, OVERHEAD, gave_up, pause_after};
use crate::idempotency::known_key;
use crate::model::{
    Attempt, Created, Event, Exceeded, Filter, HeartbeatReport, Job, JobId, JobStatus, Labels, NewJob, Offer, Page,
    Progress, StoreLimits, Summary, Turns, Webhook, now, today,
};

use scripts::{
    APPEND, CANCEL, CREATE, EXPIRE, FINISH, HEARTBEAT, INTERRUPT, NEXT_OWNERS, NOTE_DELIVERY, SPEND, SWEEP, TAKE,
    TAKE_DELIVERY, WAITING,
};

/// How long a server may be silent before its jobs are given to others.
pub(crate) const LEASE: Duration = Duration::from_secs(6);

/// How many jobs are forgotten in one step.
const FORGOTTEN_AT_ONCE: usize = 500;

type Result<T> = std::result::Result<T, RedisError>;

/// Jobs in Redis.
pub struct RedisStore {
    connection: ConnectionManager,
    /// What all names begin with.
    prefix: String,
    retention: Duration,
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// An entry of a stream: its id, and its fields.
type StreamEntry = (String, Vec<(String, String)>);

impl RedisStore {
    /// Connects, and takes over what 0.1.0 left there.
    pub async fn connect(address: &str, password: Option<&str>, database: i64, retention: Duration) -> Result<Self> {
        Self::connect_as(address, password, database, retention, "sandbox").await
    }

    pub(crate) async fn connect_as(
        address: &str,
        password: Option<&str>,
        database: i64,
        retention: Duration,
        prefix: &str,
    ) -> Result<Self> {
        let secret = password.map(|password| format!(":{}@", encode(password))).unwrap_or_default();
        let client = Client::open(format!("redis://{secret}{address}/{database}"))?;
        let connection = client.get_connection_manager().await?;
        let store = Self { connection, prefix: prefix.to_owned(), retention };
        store.adopt().await?;
        Ok(store)
    }

    /// Begins a call of a script.
    fn call<'a>(&self, script: &'a Script) -> ScriptInvocation<'a> {
        script.key(&self.prefix)
    }

    fn quota(&self, who: &str) -> String {
        format!("{}:quota:{}:{who}", self.prefix, today())
    }

    fn key(&self, kind: &str) -> String {
        format!("{}:{kind}", self.prefix)
    }

    fn of(&self, kind: &str, id: JobId) -> String {
        format!("{}:{kind}:{id}", self.prefix)
    }

    pub(crate) async fn create(&self, new: NewJob, bounds: StoreLimits) -> Result<Created> {
        let owner = new.owner.as_deref().unwrap_or_default();
        let digest = sandbox_base::random::hex(&new.digest());
        let request = serde_json::to_string(&new.request).unwrap_or_default();
        let webhook = new.webhook.as_ref().and_then(|webhook| serde_json::to_string(webhook).ok()).unwrap_or_default();
        let key = new.idempotency_key.as_ref().map(|key| format!("{}:key:{key}", self.prefix));
        let job = JobHeader::queued(&new, (request.len() + webhook.len()) as u64, now());
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64().to_string()).unwrap_or_default();
        let answer: Vec<String> = self
            .call(&CREATE)
            .arg(job.id.to_string())
            .arg(job.created_at)
            .arg(request)
            .arg(new.request.language())
            .arg(owner)
            .arg(webhook)
            .arg(key.unwrap_or_default())
            .arg(&digest)
            .arg(bounds.waiting)
            .arg(bounds.waiting_per_owner)
            .arg(bounds.bytes_per_owner)
            .arg(self.quota(owner))
            .arg(new.per_day.map(|most| most.to_string()).unwrap_or_default())
            .arg(new.priority)
            .arg(new.labels.lane())
            .arg(seconds(new.delay))
            .arg(seconds(new.expires_in))
            .arg(OVERHEAD)
            .invoke_async(&mut self.connection.clone())
            .await?;
        let known = match answer.first().map(String::as_str) {
            Some("new") => return Ok(Created::New(job)),
            Some("waiting") => return Ok(Created::Refused(Exceeded::Waiting)),
            Some("waiting-per-owner") => return Ok(Created::Refused(Exceeded::WaitingPerOwner)),
            Some("bytes-per-owner") => return Ok(Created::Refused(Exceeded::BytesPerOwner)),
            Some("per-day") => return Ok(Created::Refused(Exceeded::PerDay)),
            _ => answer.get(1).map(String::as_str).unwrap_or_default(),
        };
        let (known_id, known_digest) = known.split_once(' ').unwrap_or((known, ""));
        let id: JobId = known_id.parse().map_err(|_| vanished("the job of the key"))?;
        Ok(known_key(id, self.header(id).await?, known_digest == digest))
    }

    pub(crate) async fn get(&self, id: JobId) -> Result<Option<Job>> {
        let fields: Fields =
            redis::cmd("HGETALL").arg(self.of("job", id)).query_async(&mut self.connection.clone()).await?;
        let (Some(header), Some(request)) = (read_header(id, &fields), parse(fields.get("request"))) else {
            return Ok(None);
        };
        Ok(Some(header.job(request, parse(fields.get("result")), parse(fields.get("webhook")))))
    }

    /// The header of a job.
    pub(crate) async fn header(&self, id: JobId) -> Result<Option<JobHeader>> {
        let job = self.of("job", id);
        let mut connection = self.connection.clone();
        let mut pipe = redis::pipe();
        pipe.cmd("HMGET").arg(&job).arg(HEADER_FIELDS);
        for field in ["request", "webhook", "result"] {
            pipe.cmd("HSTRLEN").arg(&job).arg(field);
        }
        let (values, request, webhook, result): (Vec<Option<String>>, u64, u64, u64) =
            pipe.query_async(&mut connection).await?;
        let fields = HEADER_FIELDS.iter().zip(values).filter_map(|(name, value)| Some(((*name).to_owned(), value?)));
        let header = read_header(id, &fields.collect());
        Ok(header.map(|header| JobHeader { request_bytes: request + webhook, result_bytes: result, ..header }))
    }

    /// How far a job is.
    pub(crate) async fn progress(&self, id: JobId) -> Result<Option<Progress>> {
        Ok(self.header(id).await?.map(|header| header.progress()))
    }

    /// Fails if nothing can be written.
    pub(crate) async fn probe(&self) -> Result<()> {
        let mut connection = self.connection.clone();
        redis::cmd("SET").arg(self.key("probe")).arg(now()).arg("EX").arg(60).query_async(&mut connection).await
    }

    /// Jobs without their large fields, and whose they are. Some may be gone.
    async fn summaries(&self, ids: &[String]) -> Result<Vec<Option<(Summary, Option<String>)>>> {
        type Text = Option<String>;
        type Fields = (Text, Text, Text, Text, Text, Text, Text);
        let mut pipe = redis::pipe();
        for id in ids {
            pipe.cmd("HMGET").arg(format!("{}:job:{id}", self.prefix)).arg(&[
                "status",
                "language",
                "verdict",
                "created_at",
                "started_at",
                "finished_at",
                "owner",
            ]);
        }
        let all: Vec<Fields> = pipe.query_async(&mut self.connection.clone()).await?;
        let number = |text: Text| text.and_then(|text| text.parse::<f64>().ok());
        let read = |(id, fields): (&String, Fields)| {
            let (status, language, verdict, created, started, finished, owner) = fields;
            let summary = Summary {
                id: id.parse().ok()?,
                status: status_named(&status?)?,
                language: language.unwrap_or_default(),
                verdict: verdict.filter(|verdict| !verdict.is_empty()),
                created_at: number(created).unwrap_or_default(),
                started_at: number(started),
                finished_at: number(finished),
            };
            Some((summary, owner))
        };
        Ok(ids.iter().zip(all).map(read).collect())
    }

    pub(crate) async fn list(&self, filter: Filter, limit: usize, cursor: Option<JobId>) -> Result<Page> {
        let index = match &filter.owner {
            Some(owner) => format!("{}:jobs:{owner}", self.prefix),
            None => self.key("jobs"),
        };
        let mut connection = self.connection.clone();
        let mut jobs: Vec<Summary> = vec![];
        let (mut from, mut scanned) = (cursor.map_or("+".to_owned(), |id| format!("({id}")), 0);
        loop {
            let ids: Vec<String> = redis::cmd("ZREVRANGEBYLEX")
                .arg(&index)
                .arg(&from)
                .arg("-")
                .arg("LIMIT")
                .arg(0)
                .arg(MOST_SCANNED.min(100))
                .query_async(&mut connection)
                .await?;
            let Some(last) = ids.last() else { return Ok(Page { jobs, next: None }) };
            from = format!("({last}");
            for (text, job) in ids.iter().zip(self.summaries(&ids).await?) {
                let Some((job, owner)) = job else {
                    // Redis has forgotten a job of 0.1.0 by itself, all but its name.
                    let _: i64 = redis::cmd("ZREM").arg(&index).arg(text).query_async(&mut connection).await?;
                    continue;
                };
                if !filter.fits(job.status, owner.as_deref()) {
                    continue;
                }
                if jobs.len() == limit {
                    let next = jobs.last().map(|job| job.id);
                    return Ok(Page { jobs, next });
                }
                jobs.push(job);
            }
            scanned += ids.len();
            if scanned >= MOST_SCANNED {
                return Ok(Page { jobs, next: last.parse().ok() });
            }
        }
    }

    /// How many jobs wait.
    pub(crate) async fn waiting(&self) -> Result<u64> {
        self.call(&WAITING).invoke_async(&mut self.connection.clone()).await
    }

    /// Whose jobs wait, in the order in which to serve them.
    pub(crate) async fn next_owners(&self, most_bytes: u64, labels: &Labels) -> Result<Turns> {
        let lanes = labels.lanes();
        let mut call = self.call(&NEXT_OWNERS);
        call.arg(most_bytes).arg(&lanes);
        let (owners, suspects): (Vec<String>, Vec<String>) = call.invoke_async(&mut self.connection.clone()).await?;
        let named = |owners: Vec<String>| {
            owners.into_iter().map(|owner| Some(owner).filter(|owner| !owner.is_empty())).collect()
        };
        Ok(Turns { owners: named(owners), suspects: named(suspects) })
    }

    /// Takes the first job of an owner that fits the offer.
    pub(crate) async fn take(&self, owner: Option<&str>, offer: &Offer) -> Result<Option<Job>> {
        let id: String = self
            .call(&TAKE)
            .arg(owner.unwrap_or_default())
            .arg(now())
            .arg(LEASE.as_secs_f64())
            .arg(u8::from(offer.alone))
            .arg(offer.lanes())
            .invoke_async(&mut self.connection.clone())
            .await?;
        match id.parse() {
            Ok(id) => self.get(id).await,
            Err(_) => Ok(None),
        }
    }

    /// Waits until a job may have been queued.
    pub(crate) async fn something_queued(&self, most: Duration) {
        tokio::time::sleep(most.min(Duration::from_millis(25))).await;
    }

    /// Waits until a webhook may be due.
    pub(crate) async fn delivery_due(&self, most: Duration) {
        tokio::time::sleep(most.min(Duration::from_millis(250))).await;
    }

    /// Renews the leases of these attempts.
    pub(crate) async fn heartbeat(&self, attempts: Vec<Attempt>) -> Result<HeartbeatReport> {
        let mut call = self.call(&HEARTBEAT);
        call.arg(LEASE.as_secs_f64());
        for attempt in attempts {
            call.arg(attempt.id.to_string()).arg(attempt.number);
        }
        let (cancelled, lost): (Vec<String>, Vec<String>) = call.invoke_async(&mut self.connection.clone()).await?;
        let ids = |texts: Vec<String>| texts.iter().filter_map(|id| id.parse().ok()).collect();
        Ok(HeartbeatReport { cancelled: ids(cancelled), lost: ids(lost) })
    }

    pub(crate) async fn append(&self, attempt: Attempt, events: Vec<RunEvent>) -> Result<bool> {
        let mut call = self.call(&APPEND);
        call.arg(attempt.id.to_string()).arg(attempt.number);
        for event in &events {
            call.arg(json(event));
        }
        let current: i64 = call.invoke_async(&mut self.connection.clone()).await?;
        Ok(current == 1)
    }

    pub(crate) async fn events(&self, id: JobId, after: u64, most: usize) -> Result<Vec<Event>> {
        let entries: Vec<StreamEntry> = redis::cmd("XRANGE")
            .arg(self.of("events", id))
            .arg(format!("({after}-0"))
            .arg("+")
            .arg("COUNT")
            .arg(most)
            .query_async(&mut self.connection.clone())
            .await?;
        let read = |(entry, fields): StreamEntry| {
            let number = entry.split('-').next()?.parse().ok()?;
            let what = fields.iter().find(|(name, _)| name == "what")?;
            Some(Event { number, what: serde_json::from_str(&what.1).ok()? })
        };
        Ok(entries.into_iter().filter_map(read).collect())
    }

    pub(crate) async fn finish(&self, attempt: Attempt, result: Arc<RunResult>) -> Result<bool> {
        let mut call = self.call(&FINISH);
        call.arg(attempt.id.to_string()).arg(attempt.number);
        end_with(&mut call, result);
        let current: i64 = call.invoke_async(&mut self.connection.clone()).await?;
        Ok(current == 1)
    }

    pub(crate) async fn fail(&self, attempt: Attempt, result: Arc<RunResult>) -> Result<bool> {
        self.interrupt(attempt, "failure", result).await
    }

    pub(crate) async fn put_back(&self, attempt: Attempt) -> Result<bool> {
        self.interrupt(attempt, "shutdown", Arc::new(gave_up(MOST_FAILURES))).await
    }

    /// Queues a running job again, or ends it, with this result if it is given up.
    async fn interrupt(&self, attempt: Attempt, why: &str, result: Arc<RunResult>) -> Result<bool> {
        let mut call = self.call(&INTERRUPT);
        call.arg(attempt.id.to_string()).arg(attempt.number).arg(why);
        give_up_with(&mut call, result);
        let current: i64 = call.invoke_async(&mut self.connection.clone()).await?;
        Ok(current == 1)
    }

    /// Cancels a job that waits, or notes that the server that runs it is to end it.
    pub(crate) async fn cancel(&self, id: JobId) -> Result<Option<JobHeader>> {
        let _: i64 = self
            .call(&CANCEL)
            .arg(id.to_string())
            .arg(now())
            .arg(json(&RunEvent::Cancelled))
            .invoke_async(&mut self.connection.clone())
            .await?;
        self.header(id).await
    }

    /// Does what time has made due.
    pub(crate) async fn sweep(&self) -> Result<Option<Duration>> {
        let mut call = self.call(&SWEEP);
        give_up(call.arg(json(&RunEvent::Expired)));
        let next: Option<String> = call.invoke_async(&mut self.connection.clone()).await?;
        let next = next.and_then(|seconds| seconds.parse::<f64>().ok());
        Ok(next.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default()))
    }
}

impl RedisStore {
    pub(crate) async fn take_delivery(&self, lease: Duration, without: Vec<Option<String>>) -> Result<Option<Job>> {
        let mut call = self.call(&TAKE_DELIVERY);
        call.arg(lease.as_secs_f64());
        for owner in without {
            call.arg(owner.as_deref().unwrap_or_default());
        }
        let id: String = call.invoke_async(&mut self.connection.clone()).await?;
        match id.parse() {
            Ok(id) => self.get(id).await,
            Err(_) => Ok(None),
        }
    }

    pub(crate) async fn note_delivery(&self, id: JobId, webhook: Webhook, again: Option<Duration>) -> Result<()> {
        let _: i64 = self
            .call(&NOTE_DELIVERY)
            .arg(id.to_string())
            .arg(serde_json::to_string(&webhook).unwrap_or_default())
            .arg(again.map(|after| after.as_secs_f64().to_string()).unwrap_or_default())
            .invoke_async(&mut self.connection.clone())
            .await?;
        Ok(())
    }

    pub(crate) async fn spend(&self, who: String, runs: u64, most: u64) -> Result<bool> {
        let spent: i64 = self
            .call(&SPEND)
            .arg(self.quota(&who))
            .arg(runs)
            .arg(most)
            .invoke_async(&mut self.connection.clone())
            .await?;
        Ok(spent == 1)
    }

    /// Forgets jobs that ended longer ago than they are kept, and takes over what a server of 0.1.0 has queued since.
    pub(crate) async fn expire(&self) -> Result<usize> {
        self.adopt().await?;
        let mut forgotten = 0;
        loop {
            let some: usize = self
                .call(&EXPIRE)
                .arg(self.retention.as_secs_f64())
                .arg(FORGOTTEN_AT_ONCE)
                .invoke_async(&mut self.connection.clone())
                .await?;
            forgotten += some;
            if some < FORGOTTEN_AT_ONCE {
                return Ok(forgotten);
            }
        }
    }
}

/// The end of a job with a result, as arguments: the time, the result, the event, the verdict, and the event of a job that
/// was cancelled.
fn end_with(call: &mut ScriptInvocation<'_>, result: Arc<RunResult>) {
    let verdict = result.verdict.name();
    call.arg(now()).arg(json(&*result)).arg(json(&RunEvent::Result { result })).arg(verdict);
    call.arg(json(&RunEvent::Cancelled));
}

/// The end of a job whose attempts failed too often, as arguments: the limit, the pauses, and its end.
fn give_up_with(call: &mut ScriptInvocation<'_>, result: Arc<RunResult>) {
    call.arg(MOST_FAILURES).arg(pause_after(1)).arg(pause_after(2));
    end_with(call, result);
}

/// The same for a job that killed its servers.
fn give_up(call: &mut ScriptInvocation<'_>) {
    give_up_with(call, Arc::new(gave_up(MOST_FAILURES)));
}

type Fields = std::collections::HashMap<String, String>;

/// The fields of a job that make its header.
const HEADER_FIELDS: &[&str] = &[
    "status",
    "owner",
    "attempts",
    "failures",
    "created_at",
    "started_at",
    "finished_at",
    "not_before",
    "expires_at",
    "priority",
    "lane",
    "cancel_requested",
    "delayed",
    "suspect",
    "alone",
    "language",
    "verdict",
    "key",
    "has_webhook",
    "last_event",
    "event_size",
];

fn read_header(id: JobId, fields: &Fields) -> Option<JobHeader> {
    fn number<T: std::str::FromStr + Default>(fields: &Fields, name: &str) -> T {
        fields.get(name).and_then(|text| text.parse().ok()).unwrap_or_default()
    }
    let time = |name: &str| fields.get(name).and_then(|text| text.parse::<f64>().ok());
    let flag = |name: &str| fields.get(name).is_some_and(|text| text == "1");
    let size = |name: &str| fields.get(name).map_or(0, String::len) as u64;
    let labels =
        fields.get("lane").map(String::as_str).unwrap_or_default().split(',').filter(|label| !label.is_empty());
    Some(JobHeader {
        id,
        status: status_named(fields.get("status")?)?,
        owner: fields.get("owner").cloned(),
        attempts: number(fields, "attempts"),
        failures: number(fields, "failures"),
        created_at: time("created_at").unwrap_or_default(),
        started_at: time("started_at"),
        finished_at: time("finished_at"),
        not_before: time("not_before"),
        expires_at: time("expires_at"),
        priority: number(fields, "priority"),
        labels: Labels::new(labels.map(str::to_owned)).unwrap_or_default(),
        cancel_requested: flag("cancel_requested"),
        delayed: flag("delayed"),
        suspect: flag("suspect"),
        alone: flag("alone"),
        language: fields.get("language").cloned().unwrap_or_default(),
        verdict: fields.get("verdict").filter(|verdict| !verdict.is_empty()).cloned(),
        key: fields.get("key").and_then(|key| key.split_once(":key:")).map(|(_, key)| key.to_owned()),
        webhook: flag("has_webhook") || fields.contains_key("webhook"),
        last_event: number(fields, "last_event"),
        request_bytes: size("request") + size("webhook"),
        result_bytes: size("result"),
        event_bytes: number(fields, "event_size"),
    })
}

fn parse<T: DeserializeOwned>(text: Option<&String>) -> Option<T> {
    text.and_then(|text| serde_json::from_str(text).ok())
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The status of a job by its name.
fn status_named(name: &str) -> Option<JobStatus> {
    serde_json::from_value(serde_json::Value::String(name.to_owned())).ok()
}

fn vanished(what: &'static str) -> RedisError {
    RedisError::from((redis::ErrorKind::UnexpectedReturnType, "something vanished", what.to_owned()))
}

/// A password in an address.
fn encode(password: &str) -> String {
    password
        .bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod measure {
    use super::*;
    use crate::store::Usage;

    impl RedisStore {
        pub(crate) async fn usage(&self, owner: &str) -> Usage {
            let mut connection = self.connection.clone();
            let (waiting, running, bytes): (Option<u64>, Option<u64>, Option<u64>) = redis::pipe()
                .cmd("HGET")
                .arg(self.key("waiting-count"))
                .arg(owner)
                .cmd("HGET")
                .arg(self.key("running"))
                .arg(owner)
                .cmd("HGET")
                .arg(self.key("bytes"))
                .arg(owner)
                .query_async(&mut connection)
                .await
                .expect("read");
            let [waiting, running, bytes] = [waiting, running, bytes].map(Option::unwrap_or_default);
            Usage { waiting, running, bytes }
        }

        /// What an owner has, found by reading everything.
        pub(crate) async fn measured(&self, owner: &str) -> Usage {
            let mut connection = self.connection.clone();
            let ids: Vec<String> = redis::cmd("ZRANGE")
                .arg(self.key("jobs"))
                .arg(0)
                .arg(-1)
                .query_async(&mut connection)
                .await
                .expect("ids");
            let mut usage = Usage::default();
            for id in ids.iter().map(|id| id.parse::<JobId>().expect("an id")) {
                let job = self.get(id).await.expect("get").expect("there");
                if job.owner.as_deref().unwrap_or_default() != owner {
                    continue;
                }
                let mut bytes = OVERHEAD;
                for field in ["request", "result", "webhook"] {
                    let mut length = redis::cmd("HSTRLEN");
                    length.arg(self.of("job", id)).arg(field);
                    bytes += length.query_async::<u64>(&mut connection).await.expect("length");
                }
                let mut events = redis::cmd("XRANGE");
                events.arg(self.of("events", id)).arg("-").arg("+");
                let events: Vec<StreamEntry> = events.query_async(&mut connection).await.expect("events");
                bytes += events.iter().map(|(_, fields)| fields[0].1.len() as u64).sum::<u64>();
                usage.add(job.status, bytes);
            }
            usage
        }
    }
}
