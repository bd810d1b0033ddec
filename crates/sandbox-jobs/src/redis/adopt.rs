//! Taking over from 0.1.0, which had one stream as a queue for all, and let Redis forget jobs by itself.
//!
//! Servers of both releases may share a Redis for a while: what the old ones queue is taken over from time to time, and what
//! they run is left to them until they die.

use redis::RedisError;

use super::scripts::{ADOPT, ADOPT_DELIVERIES, INDEX};
use super::{LEASE, RedisStore, Result, StreamEntry, give_up};
use crate::model::JobId;

/// How much is moved in one step.
const AT_ONCE: usize = 100;

impl RedisStore {
    /// Takes over all that there is to take over now.
    pub(super) async fn adopt(&self) -> Result<()> {
        self.index_jobs().await?;
        let left: usize = redis::cmd("XLEN").arg(self.key("queue")).query_async(&mut self.connection.clone()).await?;
        if left > 0 {
            while self.adopt_jobs().await? {}
        }
        while self.call(&ADOPT_DELIVERIES).invoke_async::<usize>(&mut self.connection.clone()).await? > 0 {}
        Ok(())
    }

    /// Gives all jobs their place in the indexes, once.
    async fn index_jobs(&self) -> Result<()> {
        let mut connection = self.connection.clone();
        let done: bool = redis::cmd("EXISTS").arg(self.key("indexed")).query_async(&mut connection).await?;
        if done {
            return Ok(());
        }
        let mut from = "-".to_owned();
        loop {
            let ids: Vec<String> = redis::cmd("ZRANGEBYLEX")
                .arg(self.key("jobs"))
                .arg(&from)
                .arg("+")
                .arg("LIMIT")
                .arg(0)
                .arg(AT_ONCE)
                .query_async(&mut connection)
                .await?;
            let Some(last) = ids.last() else { break };
            from = format!("({last}");
            let _: usize = self.call(&INDEX).arg(&ids).invoke_async(&mut connection).await?;
        }
        redis::cmd("SET").arg(self.key("indexed")).arg(1).query_async(&mut connection).await
    }

    /// Moves some jobs out of the old queue: those that wait, and those whose server is silent. Says whether there were any.
    async fn adopt_jobs(&self) -> Result<bool> {
        let (mut connection, consumer) = (self.connection.clone(), JobId::new().to_string());
        let silent: Result<(String, Vec<StreamEntry>, Vec<String>)> = redis::cmd("XAUTOCLAIM")
            .arg(self.key("queue"))
            .arg("workers")
            .arg(&consumer)
            .arg(u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX))
            .arg("0")
            .arg("COUNT")
            .arg(AT_ONCE)
            .query_async(&mut connection)
            .await;
        let Some((_, mut entries, _)) = if_there_is_a_group(silent)? else { return Ok(false) };
        let waiting: Option<Vec<(String, Vec<StreamEntry>)>> = redis::cmd("XREADGROUP")
            .arg("GROUP")
            .arg("workers")
            .arg(&consumer)
            .arg("COUNT")
            .arg(AT_ONCE)
            .arg("STREAMS")
            .arg(self.key("queue"))
            .arg(">")
            .query_async(&mut connection)
            .await?;
        entries.extend(waiting.into_iter().flatten().flat_map(|(_, entries)| entries));
        let any = !entries.is_empty();
        for (entry, fields) in entries {
            let id = fields.into_iter().find(|(name, _)| name == "id").map(|(_, id)| id).unwrap_or_default();
            let mut call = self.call(&ADOPT);
            give_up(call.arg(id).arg(entry));
            let _: i64 = call.invoke_async(&mut connection).await?;
        }
        let _: redis::Value = redis::cmd("XGROUP")
            .arg("DELCONSUMER")
            .arg(self.key("queue"))
            .arg("workers")
            .arg(&consumer)
            .query_async(&mut connection)
            .await?;
        Ok(any)
    }
}

/// A queue without its group has nothing that could be taken.
fn if_there_is_a_group<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if RedisError::code(&error) == Some("NOGROUP") => Ok(None),
        Err(error) => Err(error),
    }
}
