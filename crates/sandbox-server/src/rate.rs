//! How often somebody may ask: a bucket for each, which fills steadily and holds two seconds' worth.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::problem::{Code, Problem};

/// How many are remembered; those with a full bucket are forgotten first.
const MOST_REMEMBERED: usize = 10_000;

/// Buckets by who asks.
#[derive(Debug)]
pub(crate) struct Rate {
    /// Requests a second for those who have no limit of their own; none if there is no limit.
    per_second: Option<f64>,
    buckets: Mutex<HashMap<String, (f64, Instant)>>,
}

impl Rate {
    pub(crate) fn new(per_second: Option<f64>) -> Self {
        Self { per_second, buckets: Mutex::default() }
    }

    /// Takes a request from somebody's bucket, which fills as fast as is said for them or for all.
    pub(crate) fn take(&self, who: &str, own: Option<f64>, now: Instant) -> Result<(), Problem> {
        let Some(per_second) = own.or(self.per_second) else { return Ok(()) };
        let full = (2.0 * per_second).max(1.0);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let filled = |(left, since): (f64, Instant)| {
            (left + now.saturating_duration_since(since).as_secs_f64() * per_second).min(full)
        };
        if buckets.len() >= MOST_REMEMBERED {
            // Those that would be full by now; a bucket that fills more slowly than this one may be forgotten too early.
            buckets.retain(|_, bucket| filled(*bucket) < full);
        }
        let left = buckets.get(who).map_or(full, |bucket| filled(*bucket));
        if left < 1.0 {
            buckets.insert(who.to_owned(), (left, now));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
            let wait = ((1.0 - left) / per_second).ceil().max(1.0) as u64;
            let detail = format!("{per_second} requests a second are allowed");
            return Err(Problem::new(Code::TooManyRequests, detail).retry_after(wait));
        }
        buckets.insert(who.to_owned(), (left - 1.0, now));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn buckets_empty_and_fill() {
        let (rate, start) = (Rate::new(Some(2.0)), Instant::now());
        let taken = |who: &str, at: u64| rate.take(who, None, start + Duration::from_millis(at)).is_ok();
        assert_eq!([0; 6].map(|at| taken("a", at)), [true, true, true, true, false, false]);
        assert!(taken("b", 0), "another has a bucket of its own");
        assert!(taken("a", 500) && !taken("a", 500));
        assert_eq!([60_000; 5].map(|at| taken("a", at)), [true, true, true, true, false]);
        let own = |at: u64| rate.take("c", Some(0.5), start + Duration::from_millis(at)).is_ok();
        assert_eq!([own(0), own(0), own(1900), own(2100)], [true, false, false, true]);
        assert!((0..1000).all(|_| Rate::new(None).take("a", None, start).is_ok()));
    }
}
