//! Jobs: runs with an id, stored and queued.
//!
//! A [`Job`] is created, taken by a worker, and finished or cancelled; while it runs, what happens is appended to its
//! events, which can be followed before, during and after the run. There are two stores with one contract ([`JobStore`]):
//! one file for one server, and Redis for many. Neither loses a job when a server is killed: a job that was running then
//! is run again.

mod embedded;
mod header;
mod idempotency;
mod model;
#[cfg(feature = "redis")]
mod redis;
mod store;

pub use embedded::{Embedded, FileError, backup_file};
pub use header::{JobHeader, MOST_FAILURES};
pub use model::{
    Attempt, Backlog, Created, Delivery, Event, Exceeded, Filter, HeartbeatReport, Job, JobId, JobStatus, Labels,
    NewJob, Offer, Page, Progress, StoreLimits, Summary, Turns, Webhook, WrittenJob,
};
#[cfg(feature = "redis")]
pub use redis::{RedisSettings, RedisStore, RedisWatch};
pub use store::{JobStore, JobWatch, StoreError};

#[cfg(all(test, feature = "redis"))]
mod contract;
