//! Taking over from 0.1.0, which had one hash for each job and one stream as a queue for all.
//!
//! Servers of both releases may share a Redis for a while: what the old ones queue is taken over from time to time, and what
//! they run is left to them until they are silent.

use std::collections::HashMap;

use redis::RedisError;

use super::link::RedisConnection;
use super::record::JobRecord;
use super::transitions::JobChange;
use super::{LEASE, RESULT_EVENT, RedisStore, Result, parse, scripts};
use crate::header::{Interruption, JobHeader};
use crate::model::{JobId, JobStatus, NewJob};

/// The maximum number of jobs that are moved in one step.
const AT_ONCE: usize = 100;

/// An entry of a stream: its id, and its fields.
type StreamEntry = (String, Vec<(String, String)>);

/// The idempotency keys of the old release by job: the key, and the digest of the request.
type OldKeys = HashMap<String, (String, String)>;

impl RedisStore {
    /// Takes over all that there is to take over now.
    pub(super) async fn adopt(&self) -> Result<()> {
        // The old release cannot use a cluster, and its keys would be on several nodes.
        if self.link.is_cluster() {
            return Ok(());
        }
        let mut connection = self.connection().await?;
        let any: bool = redis::cmd("EXISTS").arg(self.old("jobs")).query_async(&mut connection).await?;
        if !any {
            return Ok(());
        }
        let keys = self.old_keys(&mut connection).await?;
        while self.adopt_queue(&mut connection, &keys).await? {}
        self.adopt_ended(&mut connection, &keys).await
    }

    fn old(&self, kind: &str) -> String {
        format!("{}:{kind}", self.old_prefix)
    }

    async fn old_keys(&self, connection: &mut RedisConnection) -> Result<OldKeys> {
        let (mut cursor, mut keys, prefix) = (0_u64, OldKeys::new(), self.old("key:"));
        loop {
            let (next, names): (u64, Vec<String>) = redis::cmd("SCAN")
                .arg(cursor)
                .arg("MATCH")
                .arg(format!("{prefix}*"))
                .arg("COUNT")
                .arg(1000)
                .query_async(connection)
                .await?;
            for name in names {
                let value: Option<String> = redis::cmd("GET").arg(&name).query_async(connection).await?;
                let Some((id, digest)) = value.as_deref().and_then(|value| value.split_once(' ')) else { continue };
                let key = name.strip_prefix(&prefix).unwrap_or_default();
                keys.insert(id.to_owned(), (key.to_owned(), digest.to_owned()));
            }
            cursor = next;
            if cursor == 0 {
                return Ok(keys);
            }
        }
    }

    /// Moves some jobs out of the old queue: those that wait, and those whose server is silent. Returns whether there were
    /// any.
    async fn adopt_queue(&self, connection: &mut RedisConnection, keys: &OldKeys) -> Result<bool> {
        let (queue, consumer) = (self.old("queue"), JobId::new().to_string());
        let silent: Result<(String, Vec<StreamEntry>, Vec<String>)> = redis::cmd("XAUTOCLAIM")
            .arg(&queue)
            .arg("workers")
            .arg(&consumer)
            .arg(u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX))
            .arg("0")
            .arg("COUNT")
            .arg(AT_ONCE)
            .query_async(connection)
            .await;
        let Some((_, mut entries, _)) = if_there_is_a_group(silent)? else { return Ok(false) };
        let waiting: Option<Vec<(String, Vec<StreamEntry>)>> = redis::cmd("XREADGROUP")
            .arg("GROUP")
            .arg("workers")
            .arg(&consumer)
            .arg("COUNT")
            .arg(AT_ONCE)
            .arg("STREAMS")
            .arg(&queue)
            .arg(">")
            .query_async(connection)
            .await?;
        entries.extend(waiting.into_iter().flatten().flat_map(|(_, entries)| entries));
        let any = !entries.is_empty();
        for (entry, fields) in entries {
            let id = fields.into_iter().find(|(name, _)| name == "id").map(|(_, id)| id).unwrap_or_default();
            self.adopt_job(connection, &id, keys).await?;
            let () = redis::pipe()
                .cmd("XACK")
                .arg(&queue)
                .arg("workers")
                .arg(&entry)
                .ignore()
                .cmd("XDEL")
                .arg(&queue)
                .arg(&entry)
                .ignore()
                .query_async(connection)
                .await?;
        }
        let _: redis::Value = redis::cmd("XGROUP")
            .arg("DELCONSUMER")
            .arg(&queue)
            .arg("workers")
            .arg(&consumer)
            .query_async(connection)
            .await?;
        Ok(any)
    }

    /// Moves all jobs that have ended.
    async fn adopt_ended(&self, connection: &mut RedisConnection, keys: &OldKeys) -> Result<()> {
        let mut from = "-".to_owned();
        loop {
            let ids: Vec<String> = redis::cmd("ZRANGEBYLEX")
                .arg(self.old("jobs"))
                .arg(&from)
                .arg("+")
                .arg("LIMIT")
                .arg(0)
                .arg(AT_ONCE)
                .query_async(connection)
                .await?;
            let Some(last) = ids.last() else { return Ok(()) };
            from = format!("({last}");
            for id in &ids {
                let mut command = redis::cmd("HGET");
                let status: Option<String> =
                    command.arg(self.old(&format!("job:{id}"))).arg("status").query_async(connection).await?;
                if !matches!(status.as_deref(), Some("queued" | "running")) {
                    self.adopt_job(connection, id, keys).await?;
                }
            }
        }
    }

    /// Moves a job that no server of the old release runs.
    async fn adopt_job(&self, connection: &mut RedisConnection, id: &str, keys: &OldKeys) -> Result<()> {
        let old = |kind: &str| self.old(&format!("{kind}:{id}"));
        let (fields, events, due): (HashMap<String, String>, Vec<StreamEntry>, Option<f64>) = redis::pipe()
            .cmd("HGETALL")
            .arg(old("job"))
            .cmd("XRANGE")
            .arg(old("events"))
            .arg("-")
            .arg("+")
            .cmd("ZSCORE")
            .arg(self.old("deliveries"))
            .arg(id)
            .query_async(connection)
            .await?;
        let key = keys.get(id);
        if let Some((job, record)) = id.parse().ok().and_then(|job| Some((job, old_record(job, &fields, key)?))) {
            let text = |name: &str| fields.get(name).cloned().unwrap_or_default();
            let mut change = JobChange::to(record.clone());
            if record.header.status == JobStatus::Running {
                change = JobChange::interrupt(&record, Interruption::Death, None);
            } else if record.header.status != JobStatus::Queued {
                change.result = fields.get("result").cloned();
                for (place, (_, event)) in events.iter().enumerate() {
                    let is_result = place + 1 == events.len() && change.result.is_some();
                    let what = event.iter().find(|(name, _)| name == "what").map(|(_, what)| what.clone());
                    change.event(if is_result { RESULT_EVENT.to_owned() } else { what.unwrap_or_default() });
                }
            }
            let mut call = self.call(&scripts::ADOPT);
            for kind in ["request", "result", "events"] {
                call.key(self.of(kind, job));
            }
            for kind in ["job", "events", "cancel"] {
                call.key(old(kind));
            }
            if let Some((key, _)) = key {
                call.key(self.old(&format!("key:{key}")));
            }
            call.arg(id).arg(change.after.encode()).arg(text("request")).arg(change.result.unwrap_or_default());
            call.arg(text("webhook")).arg(due.map(|due| due.to_string()).unwrap_or_default());
            call.arg(key.map(|(_, digest)| digest.as_str()).unwrap_or_default()).arg(change.events);
            let _: i64 = call.invoke_async(connection).await?;
        }
        let () = redis::pipe()
            .cmd("ZREM")
            .arg(self.old("jobs"))
            .arg(id)
            .ignore()
            .cmd("ZREM")
            .arg(self.old("deliveries"))
            .arg(id)
            .ignore()
            .query_async(connection)
            .await?;
        Ok(())
    }
}

/// The header of a job of the old release, if it is one.
fn old_record(id: JobId, fields: &HashMap<String, String>, key: Option<&(String, String)>) -> Option<JobRecord> {
    let number = |name: &str| fields.get(name).and_then(|text| text.parse::<f64>().ok());
    let size = |name: &str| fields.get(name).map_or(0, String::len) as u64;
    let status = match fields.get("status")?.as_str() {
        "queued" => JobStatus::Queued,
        "running" => JobStatus::Running,
        "finished" => JobStatus::Finished,
        "cancelled" => JobStatus::Cancelled,
        _ => return None,
    };
    let new = NewJob {
        owner: fields.get("owner").cloned(),
        idempotency_key: key.map(|(key, _)| key.clone()),
        ..NewJob::of(parse(fields.get("request"))?)
    };
    let header = JobHeader {
        id,
        status,
        attempts: fields.get("attempts").and_then(|text| text.parse().ok()).unwrap_or_default(),
        started_at: number("started_at"),
        finished_at: number("finished_at"),
        verdict: fields.get("verdict").filter(|verdict| !verdict.is_empty()).cloned(),
        webhook: fields.contains_key("webhook"),
        result_bytes: if status == JobStatus::Running { 0 } else { size("result") },
        ..JobHeader::queued(&new, size("request") + size("webhook"), number("created_at").unwrap_or_default())
    };
    Some(JobRecord::of(header))
}

/// A queue without its group has nothing that could be taken.
fn if_there_is_a_group<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if RedisError::code(&error) == Some("NOGROUP") => Ok(None),
        Err(error) => Err(error),
    }
}
