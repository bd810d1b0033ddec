//! The store for many servers: Redis.
//!
//! The queue is a stream with one consumer group: an entry is given to one server, which says from time to time that it
//! is alive ([`RedisStore::heartbeat`]); an entry whose server has been silent for [`LEASE`] is given to another, with a
//! new attempt number, and what the old one may still have to say is ignored. A job is a hash, its events are a stream of
//! their own, so that any server can show any job. Every transition is one script, and therefore one step.

mod scripts;

use std::time::Duration;

use redis::aio::ConnectionManager;
use redis::{Client, RedisError, Script};
use serde_json::Value;

use crate::embedded::MOST_ATTEMPTS;
use crate::model::{
    Created, Event, Filter, Job, JobId, JobStatus, NewJob, Page, RunOf, Summary, Webhook, now, today, verdict_in,
};

use scripts::{APPEND, CREATE, END, NOTE_DELIVERY, PUT_BACK, SPEND, START, TAKE_DELIVERY};

/// How long a server may be silent before its jobs are given to others.
pub(crate) const LEASE: Duration = Duration::from_secs(6);

const GROUP: &str = "workers";

type Result<T> = std::result::Result<T, RedisError>;

/// Jobs in Redis.
pub struct RedisStore {
    connection: ConnectionManager,
    /// This server, among those that share the queue.
    consumer: String,
    /// What all names begin with.
    prefix: String,
    retention: Duration,
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore").field("consumer", &self.consumer).finish_non_exhaustive()
    }
}

/// An entry of a stream: its id, and its fields.
type StreamEntry = (String, Vec<(String, String)>);

impl RedisStore {
    /// Connects, and makes the group that shares the queue.
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
        let mut connection = client.get_connection_manager().await?;
        let made: Result<()> = redis::cmd("XGROUP")
            .arg("CREATE")
            .arg(format!("{prefix}:queue"))
            .arg(GROUP)
            .arg("0")
            .arg("MKSTREAM")
            .query_async(&mut connection)
            .await;
        match made {
            Err(error) if error.code() != Some("BUSYGROUP") => return Err(error),
            _ => {}
        }
        Ok(Self { connection, consumer: JobId::new().to_string(), prefix: prefix.to_owned(), retention })
    }

    fn key(&self, kind: &str) -> String {
        format!("{}:{kind}", self.prefix)
    }

    fn of(&self, kind: &str, id: JobId) -> String {
        format!("{}:{kind}:{id}", self.prefix)
    }

    fn keep_seconds(&self) -> u64 {
        self.retention.as_secs().max(1)
    }

    pub(crate) async fn create(&self, new: &NewJob) -> Result<Created> {
        let id = JobId::new();
        let request = serde_json::to_string(&new.request).unwrap_or_default();
        let digest: String = new.digest().iter().map(|byte| format!("{byte:02x}")).collect();
        let webhook = new.webhook.as_ref().and_then(|webhook| serde_json::to_string(webhook).ok()).unwrap_or_default();
        let (key, value) = match &new.idempotency_key {
            Some(key) => (format!("{}:key:{key}", self.prefix), format!("{id} {digest}")),
            None => (self.key("no-key"), String::new()),
        };
        let known: String = Script::new(CREATE)
            .key(self.of("job", id))
            .key(self.key("queue"))
            .key(self.key("jobs"))
            .key(key)
            .arg(id.to_string())
            .arg(now())
            .arg(request)
            .arg(new.request.language())
            .arg(value)
            .arg(self.keep_seconds())
            .arg(new.owner.as_deref().unwrap_or_default())
            .arg(webhook)
            .invoke_async(&mut self.connection.clone())
            .await?;
        if known.is_empty() {
            let job = self.get(id).await?;
            return job.map(Created::New).ok_or_else(|| vanished("the new job"));
        }
        let (known_id, known_digest) = known.split_once(' ').unwrap_or((&known, ""));
        let id: JobId = known_id.parse().map_err(|_| vanished("the job of the key"))?;
        match self.get(id).await? {
            Some(job) if known_digest == digest => Ok(Created::Existing(job)),
            _ => Ok(Created::Conflict(id)),
        }
    }

    pub(crate) async fn get(&self, id: JobId) -> Result<Option<Job>> {
        let fields: std::collections::HashMap<String, String> =
            redis::cmd("HGETALL").arg(self.of("job", id)).query_async(&mut self.connection.clone()).await?;
        let number = |name: &str| fields.get(name).and_then(|text| text.parse::<f64>().ok());
        let json = |name: &str| fields.get(name).and_then(|text| serde_json::from_str(text).ok());
        let status = fields.get("status").and_then(|text| serde_json::from_value(Value::String(text.clone())).ok());
        let (Some(status), Some(request)) = (status, json("request")) else { return Ok(None) };
        Ok(Some(Job {
            id,
            status,
            created_at: number("created_at").unwrap_or_default(),
            started_at: number("started_at"),
            finished_at: number("finished_at"),
            attempts: fields.get("attempts").and_then(|text| text.parse().ok()).unwrap_or_default(),
            request: serde_json::from_value(request).unwrap_or_default(),
            result: json("result"),
            owner: fields.get("owner").cloned(),
            webhook: json("webhook").and_then(|webhook| serde_json::from_value(webhook).ok()),
        }))
    }

    /// A job without its large fields, and whose it is.
    async fn summary(&self, id: JobId) -> Result<Option<(Summary, Option<String>)>> {
        type Text = Option<String>;
        let (status, language, verdict, created, started, finished, owner): (Text, Text, Text, Text, Text, Text, Text) =
            redis::cmd("HMGET")
                .arg(self.of("job", id))
                .arg(&["status", "language", "verdict", "created_at", "started_at", "finished_at", "owner"])
                .query_async(&mut self.connection.clone())
                .await?;
        let number = |text: Text| text.and_then(|text| text.parse::<f64>().ok());
        let status = status.and_then(|text| serde_json::from_value(Value::String(text)).ok());
        let summary = status.map(|status| Summary {
            id,
            status,
            language: language.unwrap_or_default(),
            verdict: verdict.filter(|verdict| !verdict.is_empty()),
            created_at: number(created).unwrap_or_default(),
            started_at: number(started),
            finished_at: number(finished),
        });
        Ok(summary.map(|summary| (summary, owner)))
    }

    pub(crate) async fn list(&self, filter: &Filter, limit: usize, cursor: Option<JobId>) -> Result<Page> {
        let mut jobs: Vec<Summary> = vec![];
        let mut from = cursor.map_or("+".to_owned(), |id| format!("({id}"));
        loop {
            let ids: Vec<String> = redis::cmd("ZREVRANGEBYLEX")
                .arg(self.key("jobs"))
                .arg(&from)
                .arg("-")
                .arg("LIMIT")
                .arg(0)
                .arg(100)
                .query_async(&mut self.connection.clone())
                .await?;
            let Some(last) = ids.last() else { return Ok(Page { jobs, next: None }) };
            from = format!("({last}");
            for text in &ids {
                let job = match text.parse() {
                    Ok(id) => self.summary(id).await?,
                    Err(_) => None,
                };
                let Some((job, owner)) = job else {
                    // Its time was up; Redis has forgotten all but its name.
                    let mut connection = self.connection.clone();
                    let _: i64 =
                        redis::cmd("ZREM").arg(self.key("jobs")).arg(text).query_async(&mut connection).await?;
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
        }
    }

    /// Jobs that nobody has taken, and those whose server is silent.
    pub(crate) async fn waiting(&self) -> Result<u64> {
        let mut connection = self.connection.clone();
        let all: u64 = redis::cmd("XLEN").arg(self.key("queue")).query_async(&mut connection).await?;
        let pending: redis::Value = redis::cmd("XPENDING")
            .arg(self.key("queue"))
            .arg(GROUP)
            .arg("IDLE")
            .arg(0)
            .arg("-")
            .arg("+")
            .arg(10_000)
            .query_async(&mut connection)
            .await?;
        let pending: Vec<(String, String, u64, u64)> = redis::from_redis_value(pending).unwrap_or_default();
        let lease = u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX);
        let alive = pending.iter().filter(|(_, _, idle, _)| *idle < lease).count() as u64;
        Ok(all.saturating_sub(alive))
    }

    /// Takes a job: one whose server died, or the one that has waited longest.
    pub(crate) async fn take(&self) -> Result<Option<Job>> {
        let mut connection = self.connection.clone();
        loop {
            let (_, claimed, _): (String, Vec<StreamEntry>, Vec<String>) = redis::cmd("XAUTOCLAIM")
                .arg(self.key("queue"))
                .arg(GROUP)
                .arg(&self.consumer)
                .arg(u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX))
                .arg("0")
                .arg("COUNT")
                .arg(1)
                .query_async(&mut connection)
                .await?;
            let mut entries = claimed;
            if entries.is_empty() {
                let read: Option<Vec<(String, Vec<StreamEntry>)>> = redis::cmd("XREADGROUP")
                    .arg("GROUP")
                    .arg(GROUP)
                    .arg(&self.consumer)
                    .arg("COUNT")
                    .arg(1)
                    .arg("STREAMS")
                    .arg(self.key("queue"))
                    .arg(">")
                    .query_async(&mut connection)
                    .await?;
                entries = read.into_iter().flatten().flat_map(|(_, entries)| entries).collect();
            }
            let Some((entry, fields)) = entries.into_iter().next() else { return Ok(None) };
            let id = fields.iter().find(|(name, _)| name == "id").and_then(|(_, id)| id.parse::<JobId>().ok());
            let Some(id) = id else { continue };
            let attempt: i64 = Script::new(START)
                .key(self.of("job", id))
                .key(self.key("queue"))
                .key(self.of("events", id))
                .arg(id.to_string())
                .arg(entry)
                .arg(now())
                .arg(MOST_ATTEMPTS)
                .invoke_async(&mut connection)
                .await?;
            match attempt {
                0 => {}
                1.. => return self.get(id).await,
                _ => self.give_up(id).await?,
            }
        }
    }

    /// Ends a job that was started too often.
    async fn give_up(&self, id: JobId) -> Result<()> {
        let Some(job) = self.get(id).await? else { return Ok(()) };
        let error = format!("the server died {} times while it ran", job.attempts);
        let result = sandbox_executor::RunResult::internal_error(error);
        self.finish(job.run(), false, &serde_json::to_value(result).unwrap_or(Value::Null)).await
    }

    /// Says that this server is alive and still has these jobs; returns those that somebody wants cancelled.
    pub(crate) async fn heartbeat(&self, runs: &[RunOf]) -> Result<Vec<JobId>> {
        let mut connection = self.connection.clone();
        let mut cancelled = vec![];
        for run in runs {
            let (entry, attempts): (Option<String>, Option<u32>) = redis::cmd("HMGET")
                .arg(self.of("job", run.id))
                .arg("entry")
                .arg("attempts")
                .query_async(&mut connection)
                .await?;
            if let Some(entry) = entry.filter(|_| attempts == Some(run.attempt)) {
                let _: redis::Value = redis::cmd("XCLAIM")
                    .arg(self.key("queue"))
                    .arg(GROUP)
                    .arg(&self.consumer)
                    .arg(0)
                    .arg(entry)
                    .arg("JUSTID")
                    .query_async(&mut connection)
                    .await?;
            }
            if redis::cmd("EXISTS").arg(self.of("cancel", run.id)).query_async(&mut connection).await? {
                cancelled.push(run.id);
            }
        }
        Ok(cancelled)
    }

    pub(crate) async fn append(&self, run: RunOf, what: &Value) -> Result<()> {
        let _: i64 = Script::new(APPEND)
            .key(self.of("job", run.id))
            .key(self.of("events", run.id))
            .arg(run.attempt)
            .arg(what.to_string())
            .invoke_async(&mut self.connection.clone())
            .await?;
        Ok(())
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

    pub(crate) async fn finish(&self, run: RunOf, cancelled: bool, result: &Value) -> Result<()> {
        let status = if cancelled { "cancelled" } else { "finished" };
        let event = serde_json::json!({ "event": "result", "result": result });
        let verdict = verdict_in(result).unwrap_or_default();
        self.end(run, "running", status, (&result.to_string(), &verdict), &event).await.map(drop)
    }

    async fn end(
        &self,
        run: RunOf,
        from: &str,
        to: &str,
        (result, verdict): (&str, &str),
        event: &Value,
    ) -> Result<bool> {
        let ended: i64 = Script::new(END)
            .key(self.of("job", run.id))
            .key(self.of("events", run.id))
            .key(self.key("queue"))
            .key(self.of("cancel", run.id))
            .key(self.key("deliveries"))
            .arg(to)
            .arg(from)
            .arg(run.attempt)
            .arg(now())
            .arg(result)
            .arg(event.to_string())
            .arg(self.keep_seconds())
            .arg(verdict)
            .arg(run.id.to_string())
            .invoke_async(&mut self.connection.clone())
            .await?;
        Ok(ended == 1)
    }

    /// Cancels a job that waits, or asks the server that runs it to end it.
    pub(crate) async fn cancel(&self, id: JobId) -> Result<Option<Job>> {
        let Some(job) = self.get(id).await? else { return Ok(None) };
        if job.status == JobStatus::Queued {
            let event = serde_json::json!({ "event": "cancelled" });
            if self.end(job.run(), "queued", "cancelled", ("", ""), &event).await? {
                return self.get(id).await;
            }
        }
        if !job.status.is_final() {
            let mut connection = self.connection.clone();
            let _: () = redis::cmd("SET")
                .arg(self.of("cancel", id))
                .arg(1)
                .arg("EX")
                .arg(86_400)
                .query_async(&mut connection)
                .await?;
        }
        self.get(id).await
    }

    pub(crate) async fn put_back(&self, run: RunOf) -> Result<()> {
        let _: i64 = Script::new(PUT_BACK)
            .key(self.of("job", run.id))
            .key(self.of("events", run.id))
            .key(self.key("queue"))
            .arg(run.attempt)
            .arg(run.id.to_string())
            .invoke_async(&mut self.connection.clone())
            .await?;
        Ok(())
    }
}

impl RedisStore {
    pub(crate) async fn take_delivery(&self, lease: Duration) -> Result<Option<Job>> {
        let mut connection = self.connection.clone();
        let id: String = Script::new(TAKE_DELIVERY)
            .key(self.key("deliveries"))
            .arg(now())
            .arg(now() + lease.as_secs_f64())
            .invoke_async(&mut connection)
            .await?;
        let Ok(known) = id.parse() else { return Ok(None) };
        let job = self.get(known).await?;
        if job.is_none() {
            let _: i64 = redis::cmd("ZREM").arg(self.key("deliveries")).arg(id).query_async(&mut connection).await?;
        }
        Ok(job)
    }

    pub(crate) async fn note_delivery(&self, id: JobId, webhook: &Webhook, again: Option<Duration>) -> Result<()> {
        let again = again.map(|after| (now() + after.as_secs_f64()).to_string());
        let _: i64 = Script::new(NOTE_DELIVERY)
            .key(self.of("job", id))
            .key(self.key("deliveries"))
            .arg(serde_json::to_string(webhook).unwrap_or_default())
            .arg(id.to_string())
            .arg(again.unwrap_or_default())
            .invoke_async(&mut self.connection.clone())
            .await?;
        Ok(())
    }

    pub(crate) async fn spend(&self, who: &str, runs: u64, most: u64) -> Result<bool> {
        let spent: i64 = Script::new(SPEND)
            .key(format!("{}:quota:{}:{who}", self.prefix, today()))
            .arg(runs)
            .arg(most)
            .invoke_async(&mut self.connection.clone())
            .await?;
        Ok(spent == 1)
    }
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
