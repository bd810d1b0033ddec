//! Jobs: runs with an id, stored and queued.
//!
//! A [`Job`] is created, taken by a worker, and finished or cancelled; while it runs, what happens is appended to its
//! events, which can be followed before, during and after the run. [`Store`] keeps all of that in one file and survives
//! being killed at any moment: a job that was running then is queued again.

mod model;
mod store;

pub use model::{Event, Job, JobId, JobStatus, NewJob};
pub use store::{Created, Page, Store, StoreError};
