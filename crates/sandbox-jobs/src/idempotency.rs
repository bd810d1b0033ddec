//! Idempotency: a client that repeats a request with the same key gets the job of its first request.
//!
//! Stores keep the digest of the request beside the key, for as long as they keep the job. The key of another request is a
//! conflict.

use std::io;

use sha2::{Digest, Sha256};

use crate::header::JobHeader;
use crate::model::{Created, JobId, Labels, NewJob};

impl NewJob {
    /// A digest of the request, by which a repeated one is recognised.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let url = self.webhook.as_ref().map(|webhook| &webhook.url);
        let mut digest = DigestWriter(Sha256::new());
        // A digest of a request that cannot be written would be that of a part of it; none is known that cannot.
        let _ = serde_json::to_writer(&mut digest, &(&self.request, url));
        // Jobs of 0.1.0 had no schedule.
        let delay = self.delay.filter(|_| self.not_before.is_none());
        let schedule = (self.priority, &self.labels, self.not_before, delay, self.expires_in);
        if schedule != (0, &Labels::default(), None, None, None) {
            let _ = serde_json::to_writer(&mut digest, &schedule);
        }
        digest.0.finalize().into()
    }
}

/// Digests what is written, so that a request need not be in memory as JSON for it.
struct DigestWriter(Sha256);

impl io::Write for DigestWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The answer to a request whose key is known: it belongs to this job, whose request had the same digest or another.
pub(crate) fn known_key(id: JobId, job: Option<JobHeader>, same_digest: bool) -> Created {
    match job {
        Some(job) if same_digest => Created::Existing(job),
        _ => Created::Conflict(id),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sandbox_executor::JsonRequest;

    use super::*;

    #[test]
    fn the_schedule_is_a_part_of_the_request() {
        let plain = NewJob::of(JsonRequest::default());
        let urgent = NewJob { priority: 1, ..plain.clone() };
        assert_ne!(plain.digest(), urgent.digest());
        let at = |delay| NewJob { not_before: Some(2e9), delay: Some(Duration::from_secs(delay)), ..plain.clone() };
        assert_eq!(at(10).digest(), at(9).digest(), "a retry comes later");
        let after = |delay| NewJob { delay: Some(Duration::from_secs(delay)), ..plain.clone() };
        assert_ne!(after(10).digest(), after(9).digest());
    }
}
