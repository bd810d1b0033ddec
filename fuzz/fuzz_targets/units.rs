//! Durations, sizes and limits: nothing overflows, and parsed values round-trip.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sandbox_base::Limits;
use sandbox_base::limits::{Caps, TABLE};
use sandbox_base::units::{format_duration, format_size, parse_duration, parse_size};

/// Written for people, a number keeps two digits at least: a value is near another if no more than that was lost.
fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 0.06 * a.max(b)
}

fuzz_target!(|text: &str| {
    if let Ok(duration) = parse_duration(text) {
        assert!(duration <= Duration::from_nanos(9_200_000_000_000_000_000));
        let written = format_duration(duration);
        let again = parse_duration(&written).expect(&written);
        let lost = duration.abs_diff(again);
        assert!(near(duration.as_secs_f64(), again.as_secs_f64()) || lost < Duration::from_micros(1), "{written}");
        assert_eq!(parse_duration(&format!("{}ns", duration.as_nanos())).map(near_nanos(duration)), Ok(true));
    }
    if let Ok(size) = parse_size(text) {
        assert!(size <= 9_000_000_000_000_000);
        assert_eq!(parse_size(&size.to_string()), Ok(size));
        let written = format_size(size);
        let again = parse_size(&written).expect(&written);
        assert!(near(size as f64, again as f64), "{written}");
    }
    for info in TABLE {
        match info.kind.parse(text) {
            Ok(value) => {
                let mut limits = Limits::default();
                let accepted = limits.set(info.kind, value, &Caps::default()).is_ok();
                assert_eq!(accepted, (info.least..=info.most).contains(&value));
                assert!(limits.is_valid());
                let written = info.kind.format(value);
                assert!(!accepted || info.kind.parse(&written).is_ok(), "{written}");
            }
            Err(error) => {
                let message = error.to_string();
                assert!(!message.contains(char::is_control) && message.len() < 400, "{message:?}");
            }
        }
    }
});

/// Nanoseconds are counted in doubles, which are exact to one part in 2^53.
fn near_nanos(duration: Duration) -> impl Fn(Duration) -> bool {
    move |again| again.abs_diff(duration).as_nanos() <= duration.as_nanos() >> 52
}
