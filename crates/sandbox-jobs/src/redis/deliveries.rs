//! Webhooks that are due: leased to one server at a time, and noted as delivered or to be tried again.

use std::time::{Duration, Instant};

use super::timers::wait_past;
use super::{RedisStore, Result, json, scripts};
use crate::model::{Job, JobId, Webhook};

/// The longest time between two looks for webhooks, in case a notification was lost.
const DELIVERIES: Duration = Duration::from_secs(30);

/// The pause before webhooks are looked for again if some owners were left out.
const DELIVERIES_LEFT_OUT: Duration = Duration::from_millis(250);

impl RedisStore {
    /// Takes a job whose webhook is due, of any owner except these. Its delivery is leased for this long.
    pub(crate) async fn take_delivery(&self, lease: Duration, without: Vec<Option<String>>) -> Result<Option<Job>> {
        let work = *self.notices.work().borrow();
        let mut call = self.call(&scripts::TAKE_DELIVERY);
        call.arg(lease.as_secs_f64());
        for owner in &without {
            call.arg(owner.as_deref().unwrap_or_default());
        }
        let (id, left): (String, String) = call.invoke_async(&mut self.connection().await?).await?;
        if let Ok(id) = id.parse() {
            return self.get(id).await;
        }
        let left = left.parse().ok().and_then(|left| Duration::try_from_secs_f64(left).ok()).unwrap_or(DELIVERIES);
        // What is due may be that of an owner that was left out.
        let least = if without.is_empty() { Duration::ZERO } else { DELIVERIES_LEFT_OUT };
        self.deliveries.note(work, left.clamp(least, DELIVERIES));
        Ok(None)
    }

    /// Records the outcome of a delivery, and when to retry.
    pub(crate) async fn note_delivery(&self, id: JobId, webhook: Webhook, again: Option<Duration>) -> Result<()> {
        let mut call = self.call(&scripts::NOTE_DELIVERY);
        call.arg(id.to_string()).arg(json(&webhook));
        call.arg(again.map(|after| after.as_secs_f64().to_string()).unwrap_or_default());
        call.invoke_async::<i64>(&mut self.connection().await?).await.map(drop)
    }

    /// Waits until a webhook may be due, or for this long; longer while there are notifications.
    pub(crate) async fn delivery_due(&self, most: Duration) {
        let Some((looked, due)) = self.deliveries.known() else { return };
        let left = due.saturating_duration_since(Instant::now());
        let most = if self.notices.are_heard() { left } else { most.min(left) };
        wait_past(self.notices.work(), looked, most).await;
    }
}
