//! Idempotency: a client that repeats a request with the same key gets the job of its first request.
//!
//! Stores keep the digest of the request beside the key, for as long as they keep the job. The key of another request is a
//! conflict.

use sha2::{Digest, Sha256};

use crate::header::JobHeader;
use crate::model::{Created, JobId, NewJob};

impl NewJob {
    /// A digest of the request, by which a repeated one is recognised.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let url = self.webhook.as_ref().map(|webhook| &webhook.url);
        Sha256::digest(serde_json::to_vec(&(&self.request, url)).unwrap_or_default()).into()
    }
}

/// The answer to a request whose key is known: it belongs to this job, whose request had the same digest or another.
pub(crate) fn known_key(id: JobId, job: Option<JobHeader>, same_digest: bool) -> Created {
    match job {
        Some(job) if same_digest => Created::Existing(job),
        _ => Created::Conflict(id),
    }
}
