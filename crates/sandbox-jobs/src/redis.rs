//! The store for many servers: Redis.
//!
//! A job is a small header in one hash, with its request, its result and its events in separate keys. Every change is one
//! script ([`scripts`]), and therefore one step. Steps that need decisions are [`transitions`].
//!
//! A running job has a lease by the clock of Redis, which its server renews ([`RedisStore::heartbeat`]). When the lease has
//! ended, any server interrupts the attempt: the next one has a new number, and reports of the old one are refused.
//!
//! Those who wait are notified ([`notices`]) and do not poll. The connection is made anew whenever it is lost ([`link`]).

mod adopt;
mod deliveries;
mod events;
mod link;
#[cfg(test)]
mod measure;
mod notices;
mod queries;
mod queue;
mod record;
mod scripts;
mod settings;
#[cfg(test)]
mod tests;
mod timers;
mod transitions;

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{RedisError, Script, ScriptInvocation};
use serde::de::DeserializeOwned;

use crate::model::JobId;

use events::AppendState;
use link::{RedisConnection, RedisLink};
use notices::Notices;
use queue::KnownTurns;
use record::JobRecord;
use scripts::SHARED;
use timers::NextLook;

pub use notices::RedisWatch;
pub use settings::RedisSettings;

/// The silence of a server after which its jobs are given to others.
pub(crate) const LEASE: Duration = Duration::from_secs(6);

/// Stands for the result in the list of events: results are stored once.
const RESULT_EVENT: &str = "=";

type Result<T> = std::result::Result<T, RedisError>;

/// Jobs in Redis.
pub struct RedisStore {
    link: Arc<RedisLink>,
    /// For heartbeats. `WAIT` blocks its connection, and leases must be renewed meanwhile.
    heartbeats: Arc<RedisLink>,
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
    turns: Mutex<KnownTurns>,
    deliveries: NextLook,
    sweeps: NextLook,
    appends: Mutex<HashMap<JobId, AppendState>>,
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore").field("prefix", &self.prefix).finish_non_exhaustive()
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
        let waits = settings.replicas > 0;
        let link = Arc::new(RedisLink::new(settings.clone(), prefix.clone()));
        link.connection().await?;
        let store = Self {
            notices: Notices::listen(Arc::clone(&link), channels.clone()),
            heartbeats: if waits { Arc::new(RedisLink::new(settings, prefix.clone())) } else { Arc::clone(&link) },
            link,
            prefix,
            old_prefix: name.to_owned(),
            channels,
            retention,
            lease,
            looked: AtomicU64::new(0),
            turns: Mutex::default(),
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

    /// Charges runs against a daily quota. Returns false, and charges nothing, if too few are left.
    pub(crate) async fn spend(&self, who: String, runs: u64, most: u64) -> Result<bool> {
        let mut call = self.call(&scripts::SPEND);
        call.arg(who).arg(runs).arg(most);
        let spent: i64 = call.invoke_async(&mut self.connection().await?).await?;
        Ok(spent == 1)
    }

    /// Follows a job.
    pub(crate) fn follow(&self, id: JobId) -> RedisWatch {
        self.notices.follow(id)
    }
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
