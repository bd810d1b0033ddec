//! How often somebody may do something: a bucket for each, which fills steadily and is emptied by what they do.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::problem::{Code, Problem};

/// How many buckets are remembered. When so many are in use, those who have none yet share one.
const MOST_REMEMBERED: usize = 10_000;

/// The bucket of those for whom there is no room.
const OTHERS: &str = "others";

/// How often full buckets are looked for, which takes a while.
const SWEEP: Duration = Duration::from_secs(1);

/// Who an address stands for: networks give whole blocks of IPv6 addresses to one machine.
pub(crate) fn network(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

/// How a bucket fills.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) per_second: f64,
    /// What it holds when it is full, which it is at first.
    pub(crate) full: f64,
}

#[derive(Debug)]
struct Bucket {
    left: f64,
    since: Instant,
    full_at: Instant,
}

/// Buckets by who has them.
#[derive(Debug, Default)]
pub(crate) struct Buckets(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    buckets: HashMap<String, Bucket>,
    swept: Option<Instant>,
}

impl Table {
    /// Makes room for one more. False if there is none.
    fn make_room(&mut self, now: Instant) -> bool {
        let due = self.swept.is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP);
        if self.buckets.len() >= MOST_REMEMBERED && due {
            self.buckets.retain(|_, bucket| bucket.full_at > now);
            self.swept = Some(now);
        }
        self.buckets.len() < MOST_REMEMBERED
    }
}

impl Buckets {
    /// Takes this much from somebody's bucket, or nothing to only look. If less than one is left, tells how many seconds it
    /// takes until there is one.
    pub(crate) fn take(&self, who: &str, much: f64, pace: Pace, now: Instant) -> Result<(), u64> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let who = if table.buckets.contains_key(who) || table.make_room(now) { who } else { OTHERS };
        let left = table.buckets.get(who).map_or(pace.full, |bucket| {
            let filled = now.saturating_duration_since(bucket.since).as_secs_f64() * pace.per_second;
            (bucket.left + filled).min(pace.full)
        });
        let taken = if left < 1.0 { Err(()) } else { Ok(()) };
        let left = if taken.is_ok() { left - much } else { left };
        // A year is as good as never, and an instant cannot be put off for ever.
        let full_in = ((pace.full - left) / pace.per_second).clamp(0.0, 31e6);
        if full_in > 0.0 {
            let bucket = Bucket { left, since: now, full_at: now + Duration::from_secs_f64(full_in) };
            table.buckets.insert(who.to_owned(), bucket);
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive number")]
        taken.map_err(|()| ((1.0 - left) / pace.per_second).ceil().max(1.0) as u64)
    }
}

/// How many requests somebody may send: two seconds' worth at once.
#[derive(Debug)]
pub(crate) struct Rate {
    /// Requests a second for those who have no limit of their own; none if there is no limit.
    per_second: Option<f64>,
    buckets: Buckets,
}

impl Rate {
    pub(crate) fn new(per_second: Option<f64>) -> Self {
        Self { per_second, buckets: Buckets::default() }
    }

    /// Takes a request from somebody's bucket, which fills as fast as is said for them or for all.
    pub(crate) fn take(&self, who: &str, own: Option<f64>, now: Instant) -> Result<(), Problem> {
        let Some(per_second) = own.or(self.per_second) else { return Ok(()) };
        let pace = Pace { per_second, full: (2.0 * per_second).max(1.0) };
        self.buckets.take(who, 1.0, pace, now).map_err(|wait| {
            let detail = format!("{per_second} requests a second are allowed");
            Problem::new(Code::TooManyRequests, detail).retry_after(wait)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn the_number_of_buckets_is_bounded() {
        let (buckets, start) = (Buckets::default(), Instant::now());
        let pace = Pace { per_second: 1.0, full: 10.0 };
        let count = || buckets.0.lock().expect("whole").buckets.len();
        for n in 0..3 * MOST_REMEMBERED {
            let _ = buckets.take(&n.to_string(), 1.0, pace, start);
        }
        assert!(count() <= MOST_REMEMBERED + 1, "{}", count());
        assert!(buckets.take("one more", 1.0, pace, start).is_err(), "the shared bucket is empty");
        assert!(buckets.take("0", 1.0, pace, start).is_ok(), "who had a bucket still has it");
        let later = start + Duration::from_secs(60);
        assert!(buckets.take("one more", 1.0, pace, later).is_ok());
        assert!(count() <= 2, "full buckets are forgotten: {}", count());
    }

    #[test]
    fn a_block_of_addresses_is_one() {
        let network = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), network("2001:db8:1:2::1"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
    }
}
