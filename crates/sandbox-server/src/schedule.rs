//! When and where a job starts: checks priority, labels, delay and expiry of a request.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sandbox_base::units::parse_duration;
use sandbox_executor::JsonSchedule;
use sandbox_jobs::{Labels, NewJob};

use crate::problem::{Code, Problem};

/// The highest priority; the lowest is its negative.
const HIGHEST_PRIORITY: i8 = 100;

/// The longest delay and the longest time to expiry.
const LONGEST: Duration = Duration::from_secs(30 * 86_400);

/// Checks a schedule and gives it to a job.
pub(crate) fn apply(schedule: JsonSchedule, new: NewJob) -> Result<NewJob, Problem> {
    let wrong = |field: &str, why: &str| Problem::new(Code::InvalidRequest, format!("{field}: {why}")).at(field);
    let JsonSchedule { priority, labels, not_before, delay, expires_in } = schedule;
    let priority = i8::try_from(priority.unwrap_or_default())
        .ok()
        .filter(|priority| (-HIGHEST_PRIORITY..=HIGHEST_PRIORITY).contains(priority))
        .ok_or_else(|| wrong("priority", &format!("expected -{HIGHEST_PRIORITY} to {HIGHEST_PRIORITY}")))?;
    let labels = Labels::new(labels).map_err(|why| wrong("labels", &why))?;
    let duration = |field: &str, text: Option<String>| {
        let parsed = text.map(|text| parse_duration(&text)).transpose();
        let parsed = parsed.map_err(|error| wrong(field, &error.to_string()))?;
        match parsed {
            Some(parsed) if parsed > LONGEST => Err(wrong(field, "expected at most 30 days")),
            parsed => Ok(parsed),
        }
    };
    let (delay, expires_in) = (duration("delay", delay)?, duration("expires_in", expires_in)?);
    if expires_in.is_some_and(|time| time.is_zero()) {
        return Err(wrong("expires_in", "expected more than 0 seconds"));
    }
    if delay.is_some() && not_before.is_some() {
        return Err(wrong("delay", "conflicts with not_before; give one of them"));
    }
    let until = |time: f64| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let delay = Duration::try_from_secs_f64((time - now).max(0.0)).ok().filter(|delay| *delay <= LONGEST);
        delay.ok_or_else(|| wrong("not_before", "expected seconds since 1970, at most 30 days from now"))
    };
    let delay = match not_before {
        Some(time) if time.is_finite() && time >= 0.0 => Some(until(time)?),
        Some(_) => return Err(wrong("not_before", "expected seconds since 1970")),
        None => delay,
    };
    if let (Some(delay), Some(expires_in)) = (delay, expires_in)
        && delay >= expires_in
    {
        return Err(wrong("expires_in", "the job would expire before it may start"));
    }
    Ok(NewJob { priority, labels, delay, not_before, expires_in, ..new })
}

#[cfg(test)]
mod tests {
    use sandbox_executor::JsonRequest;

    use super::*;

    fn check(json: &str) -> Result<NewJob, String> {
        let mut request: JsonRequest = serde_json::from_str(json).expect("a request");
        let schedule = request.take_schedule();
        apply(schedule, NewJob::of(request))
            .map_err(|problem| serde_json::to_value(&problem).expect("JSON")["field"].to_string())
    }

    #[test]
    fn a_schedule_is_checked() {
        let job = check(r#"{"priority": -100, "labels": ["gpu"], "delay": "1m", "expires_in": 3600}"#).expect("valid");
        assert_eq!((job.priority, job.labels.iter().collect::<Vec<_>>()), (-100, vec!["gpu"]));
        assert_eq!((job.delay, job.expires_in), (Some(Duration::from_secs(60)), Some(Duration::from_secs(3600))));
        let past = check(r#"{"not_before": 1}"#).expect("a time in the past is now");
        assert_eq!(past.delay, Some(Duration::ZERO));
        assert!(check("{}").expect("valid").delay.is_none());
        for (json, field) in [
            (r#"{"priority": 101}"#, "priority"),
            (r#"{"priority": -9223372036854775808}"#, "priority"),
            (r#"{"labels": ["GPU"]}"#, "labels"),
            (r#"{"delay": "soon"}"#, "delay"),
            (r#"{"delay": "721h"}"#, "delay"),
            (r#"{"delay": "1s", "not_before": 1}"#, "delay"),
            (r#"{"not_before": -1}"#, "not_before"),
            (r#"{"not_before": 1e300}"#, "not_before"),
            (r#"{"expires_in": 0}"#, "expires_in"),
            (r#"{"expires_in": "1m", "delay": "1m"}"#, "expires_in"),
        ] {
            assert_eq!(check(json).map(drop), Err(format!("{field:?}")), "{json}");
        }
    }
}
