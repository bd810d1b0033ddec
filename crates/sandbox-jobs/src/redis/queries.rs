//! Reading jobs: one of them, or pages of them.

use std::time::Duration;

use super::link::within;
use super::record::JobRecord;
use super::{RedisStore, Result, decoded, parse};
use crate::embedded::MOST_SCANNED;
use crate::header::JobHeader;
use crate::model::{Filter, Job, JobId, Page, Progress, Summary};

/// The time that a probe may take.
const PROBE: Duration = Duration::from_millis(1400);

/// The number of headers that are read at once for a list.
const LISTED_AT_ONCE: usize = 200;

impl RedisStore {
    /// The header of a job, and as Redis has it.
    pub(super) async fn record(&self, id: JobId) -> Result<Option<(JobRecord, String)>> {
        let text: Option<String> = redis::cmd("HGET")
            .arg(self.key("jobs"))
            .arg(id.to_string())
            .query_async(&mut self.connection().await?)
            .await?;
        text.map(|text| Ok((decoded(id, &text)?, text))).transpose()
    }

    /// The header of a job.
    pub(crate) async fn header(&self, id: JobId) -> Result<Option<JobHeader>> {
        Ok(self.record(id).await?.map(|(record, _)| record.header))
    }

    /// A job.
    pub(crate) async fn get(&self, id: JobId) -> Result<Option<Job>> {
        let Some(header) = self.header(id).await? else { return Ok(None) };
        self.whole(header).await
    }

    /// The whole job of a header. Nothing if it was deleted meanwhile.
    pub(super) async fn whole(&self, header: JobHeader) -> Result<Option<Job>> {
        let id = header.id;
        let mut pipe = redis::pipe();
        pipe.cmd("GET").arg(self.of("request", id));
        pipe.cmd("HGET").arg(self.key("webhooks")).arg(id.to_string());
        if header.result_bytes > 0 {
            pipe.cmd("GET").arg(self.of("result", id));
        }
        let parts: Vec<Option<String>> = pipe.query_async(&mut self.connection().await?).await?;
        let part = |place: usize| parts.get(place).and_then(Option::as_ref);
        let Some(request) = parse(part(0)) else { return Ok(None) };
        Ok(Some(header.job(request, parse(part(2)), parse(part(1)))))
    }

    /// The state of a job.
    pub(crate) async fn progress(&self, id: JobId) -> Result<Option<Progress>> {
        Ok(self.header(id).await?.map(|header| header.progress()))
    }

    /// Fails if nothing can be written, within a second and a half.
    pub(crate) async fn probe(&self) -> Result<()> {
        within(PROBE, async {
            let mut connection = self.connection().await?;
            redis::cmd("SET").arg(self.key("probe")).arg(1).arg("EX").arg(60).query_async(&mut connection).await
        })
        .await
    }

    /// Jobs, newest first, from before `cursor` on.
    pub(crate) async fn list(&self, filter: Filter, limit: usize, cursor: Option<JobId>) -> Result<Page> {
        let (index, before) = match &filter.owner {
            Some(owner) => (self.key("owned"), format!("{owner}\0")),
            None => (self.key("index"), String::new()),
        };
        let mut connection = self.connection().await?;
        let mut jobs = vec![];
        let mut from = cursor.map_or_else(
            || if before.is_empty() { "+".to_owned() } else { format!("({}\u{1}", &before[..before.len() - 1]) },
            |id| format!("({before}{id}"),
        );
        let to = if before.is_empty() { "-".to_owned() } else { format!("[{before}") };
        let mut scanned = 0;
        loop {
            let members: Vec<String> = redis::cmd("ZREVRANGEBYLEX")
                .arg(&index)
                .arg(&from)
                .arg(&to)
                .arg("LIMIT")
                .arg(0)
                .arg(MOST_SCANNED.min(LISTED_AT_ONCE))
                .query_async(&mut connection)
                .await?;
            let Some(last) = members.last() else { return Ok(Page { jobs, next: None }) };
            from = format!("({last}");
            let ids: Vec<&str> = members.iter().map(|member| &member[before.len().min(member.len())..]).collect();
            let headers: Vec<Option<String>> =
                redis::cmd("HMGET").arg(self.key("jobs")).arg(&ids).query_async(&mut connection).await?;
            for (id, header) in ids.iter().zip(headers) {
                let header = id.parse().ok().zip(header).and_then(|(id, text)| JobRecord::decode(id, &text));
                let Some(JobRecord { header, .. }) = header else { continue };
                if !filter.fits(header.status, header.owner.as_deref()) {
                    continue;
                }
                if jobs.len() == limit {
                    let next = jobs.last().map(|job: &Summary| job.id);
                    return Ok(Page { jobs, next });
                }
                jobs.push(header.summary());
            }
            scanned += ids.len();
            if scanned >= MOST_SCANNED {
                return Ok(Page { jobs, next: ids.last().and_then(|id| id.parse().ok()) });
            }
        }
    }
}
