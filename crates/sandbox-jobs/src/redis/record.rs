//! The header of a job as Redis has it: JSON with short names, which scripts read and write too.
//!
//! Absent fields stand for the usual values. There are no arrays, because the JSON library of Redis cannot tell an empty one
//! from an empty object.

use serde::{Deserialize, Serialize};

use crate::header::JobHeader;
use crate::model::{JobId, JobStatus, Labels};

/// The header of a job, and what only this store knows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JobRecord {
    pub(super) header: JobHeader,
    /// The number of the last event that is not stored any more.
    pub(super) base: u64,
}

#[derive(Serialize, Deserialize)]
enum StatusLetter {
    #[serde(rename = "q")]
    Queued,
    #[serde(rename = "r")]
    Running,
    #[serde(rename = "f")]
    Finished,
    #[serde(rename = "c")]
    Cancelled,
    #[serde(rename = "x")]
    Expired,
}

/// The names that scripts use.
#[derive(Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "they are those of the header")]
struct RecordJson {
    #[serde(rename = "s")]
    status: StatusLetter,
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(rename = "a", default)]
    attempts: u32,
    #[serde(rename = "F", default, skip_serializing_if = "is_default")]
    failures: u32,
    #[serde(rename = "c", default)]
    created_at: f64,
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    started_at: Option<f64>,
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    finished_at: Option<f64>,
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    not_before: Option<f64>,
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<f64>,
    #[serde(rename = "p", default, skip_serializing_if = "is_default")]
    priority: i8,
    #[serde(rename = "L", default, skip_serializing_if = "is_default")]
    lane: String,
    #[serde(rename = "C", default, skip_serializing_if = "is_default")]
    cancel_requested: bool,
    #[serde(rename = "d", default, skip_serializing_if = "is_default")]
    delayed: bool,
    #[serde(rename = "S", default, skip_serializing_if = "is_default")]
    suspect: bool,
    #[serde(rename = "A", default, skip_serializing_if = "is_default")]
    alone: bool,
    #[serde(rename = "l", default, skip_serializing_if = "is_default")]
    language: String,
    #[serde(rename = "v", default, skip_serializing_if = "Option::is_none")]
    verdict: Option<String>,
    #[serde(rename = "k", default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(rename = "w", default, skip_serializing_if = "is_default")]
    webhook: bool,
    #[serde(rename = "E", default, skip_serializing_if = "is_default")]
    last_event: u64,
    #[serde(rename = "b", default, skip_serializing_if = "is_default")]
    base: u64,
    #[serde(rename = "q", default, skip_serializing_if = "is_default")]
    request_bytes: u64,
    #[serde(rename = "r", default, skip_serializing_if = "is_default")]
    result_bytes: u64,
    #[serde(rename = "m", default, skip_serializing_if = "is_default")]
    event_bytes: u64,
    /// In hexadecimal, because the numbers of scripts are not exact.
    #[serde(rename = "N", default, skip_serializing_if = "is_default")]
    nonce: String,
}

/// A nonce as scripts have it.
pub(super) fn written_nonce(nonce: u64) -> String {
    if nonce == 0 { String::new() } else { format!("{nonce:x}") }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl JobRecord {
    pub(super) fn of(header: JobHeader) -> Self {
        Self { header, base: 0 }
    }

    pub(super) fn encode(&self) -> String {
        let header = self.header.clone();
        let json = RecordJson {
            status: match header.status {
                JobStatus::Queued => StatusLetter::Queued,
                JobStatus::Running => StatusLetter::Running,
                JobStatus::Finished => StatusLetter::Finished,
                JobStatus::Cancelled => StatusLetter::Cancelled,
                JobStatus::Expired => StatusLetter::Expired,
            },
            owner: header.owner,
            attempts: header.attempts,
            failures: header.failures,
            created_at: header.created_at,
            started_at: header.started_at,
            finished_at: header.finished_at,
            not_before: header.not_before,
            expires_at: header.expires_at,
            priority: header.priority,
            lane: header.labels.lane(),
            cancel_requested: header.cancel_requested,
            delayed: header.delayed,
            suspect: header.suspect,
            alone: header.alone,
            language: header.language,
            verdict: header.verdict,
            key: header.key,
            webhook: header.webhook,
            last_event: header.last_event,
            base: self.base,
            request_bytes: header.request_bytes,
            result_bytes: header.result_bytes,
            event_bytes: header.event_bytes,
            nonce: written_nonce(header.nonce),
        };
        serde_json::to_string(&json).unwrap_or_default()
    }

    pub(super) fn decode(id: JobId, text: &str) -> Option<Self> {
        let json: RecordJson = serde_json::from_str(text).ok()?;
        let labels = json.lane.split(',').filter(|label| !label.is_empty()).map(str::to_owned);
        let header = JobHeader {
            id,
            status: match json.status {
                StatusLetter::Queued => JobStatus::Queued,
                StatusLetter::Running => JobStatus::Running,
                StatusLetter::Finished => JobStatus::Finished,
                StatusLetter::Cancelled => JobStatus::Cancelled,
                StatusLetter::Expired => JobStatus::Expired,
            },
            owner: json.owner,
            attempts: json.attempts,
            failures: json.failures,
            created_at: json.created_at,
            started_at: json.started_at,
            finished_at: json.finished_at,
            not_before: json.not_before,
            expires_at: json.expires_at,
            priority: json.priority,
            labels: Labels::new(labels).ok()?,
            cancel_requested: json.cancel_requested,
            delayed: json.delayed,
            suspect: json.suspect,
            alone: json.alone,
            language: json.language,
            verdict: json.verdict,
            key: json.key,
            webhook: json.webhook,
            last_event: json.last_event,
            request_bytes: json.request_bytes,
            result_bytes: json.result_bytes,
            event_bytes: json.event_bytes,
            nonce: if json.nonce.is_empty() { 0 } else { u64::from_str_radix(&json.nonce, 16).ok()? },
        };
        Some(Self { header, base: json.base })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::NewJob;

    #[test]
    fn records_can_be_read_back() {
        let labels = Labels::new(["gpu".to_owned(), "java".to_owned()]).expect("valid");
        let new = NewJob { labels, priority: -3, ..NewJob::of(sandbox_executor::JsonRequest::default()) };
        let header = JobHeader {
            suspect: true,
            last_event: 7,
            verdict: Some("ok".to_owned()),
            nonce: u64::MAX,
            ..JobHeader::queued(&new, 10, 1.8e9)
        };
        let record = JobRecord { base: 5, ..JobRecord::of(header) };
        assert_eq!(JobRecord::decode(record.header.id, &record.encode()), Some(record));
        assert_eq!(JobRecord::decode(JobId::new(), "{}"), None);
    }

    #[test]
    fn an_attempt_without_a_nonce_can_be_read() {
        let record = JobRecord::decode(JobId::new(), r#"{"s":"r","a":2}"#).expect("valid");
        let attempt = record.header.attempt();
        assert!(attempt.number == 2 && attempt.nonce == 0 && record.header.is_current(attempt));
    }
}
