//! What tests look at besides what the store says: leases, and what an owner really has.

use super::*;
use crate::header::OVERHEAD;
use crate::store::Usage;

impl RedisStore {
    /// Ends all leases, as if every server had been silent for long.
    pub(crate) async fn end_leases(&self) {
        let mut connection = self.connection().await.expect("connect");
        // And as if Redis had answered all the time.
        let mut answered = redis::cmd("HSET");
        answered.arg(self.key("counters")).arg("seen").arg(crate::model::now() + 3600.0).arg("grace").arg(0);
        let _: i64 = answered.query_async(&mut connection).await.expect("write");
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
