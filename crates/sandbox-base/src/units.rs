//! Durations and sizes as people write them: `1m30s`, `500ms`, `2.5`; `256m`, `64KiB`, `1048576`.
//!
//! Parsing refuses empty, negative and non-numeric values, unknown units and values that are too large. Each limit
//! decides itself whether zero or a large value is acceptable.

use std::time::Duration;

/// Why a duration or a size could not be parsed. The message contains the value and the expected form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what} \"{given}\": {constraint}")]
pub struct UnitError {
    what: &'static str,
    given: String,
    constraint: &'static str,
}

impl UnitError {
    /// The same error about a value with this name, such as a limit.
    #[must_use]
    pub fn about(self, what: &'static str) -> Self {
        Self { what, ..self }
    }
}

const DURATION_FORM: &str = "expected seconds (3, 0.5) or a duration such as 500ms, 3s, 1m30s";
const SIZE_FORM: &str = "expected bytes (1048576) or a size such as 64k, 256m, 1g";
const NEGATIVE: &str = "it must not be negative";

/// Parses a Go-style duration, or a plain number of seconds.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let fail = |constraint| UnitError { what: "duration", given: shorten(text), constraint };
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(fail(DURATION_FORM));
    }
    if trimmed.starts_with('-') {
        return Err(fail(NEGATIVE));
    }
    let mut nanos = 0_f64;
    let mut rest = trimmed;
    while !rest.is_empty() {
        let (number, after) = split_number(rest).ok_or_else(|| fail(DURATION_FORM))?;
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        let factor = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            // A bare number is seconds, but only if it is the whole text: "1m30" is a mistake.
            "" if rest.len() == trimmed.len() => 1e9,
            _ => return Err(fail(DURATION_FORM)),
        };
        nanos += number * factor;
        rest = next;
    }
    // Beyond this, whole nanoseconds no longer fit 64 bits (292 years).
    if nanos > 9.2e18 {
        return Err(fail("the maximum is 292 years"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: 0 <= nanos < 2^63")]
    Ok(Duration::from_nanos(nanos.round() as u64))
}

/// Parses a size in bytes. Units are binary: `k` is 1024.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let fail = |constraint| UnitError { what: "size", given: shorten(text), constraint };
    let trimmed = text.trim();
    if trimmed.starts_with('-') {
        return Err(fail(NEGATIVE));
    }
    let (number, unit) = split_number(trimmed).ok_or_else(|| fail(SIZE_FORM))?;
    let unit = unit.trim().to_ascii_lowercase();
    let factor: f64 = match unit.as_str() {
        "" | "b" => 1.0,
        "k" | "kb" | "kib" => 1024.0,
        "m" | "mb" | "mib" => 1_048_576.0,
        "g" | "gb" | "gib" => 1_073_741_824.0,
        "t" | "tb" | "tib" => 1_099_511_627_776.0,
        _ => return Err(fail(SIZE_FORM)),
    };
    let bytes = number * factor;
    // Doubles are exact up to 2^53 bytes (8 PiB), which is beyond any host.
    if bytes > 9e15 {
        return Err(fail("the maximum is 8 PiB"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: 0 <= bytes < 2^53")]
    Ok(bytes.round() as u64)
}

/// Splits off a leading decimal number. It has at least one digit and at most one point; no sign, no exponent.
fn split_number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    if !number.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    number.parse().ok().map(|n| (n, rest))
}

/// A value as it appears in messages: on one line, shortened, without control characters.
#[must_use]
pub fn shorten(text: &str) -> String {
    const MOST: usize = 40;
    let clean: String = text.chars().map(crate::visible).take(MOST).collect();
    if text.chars().count() > MOST { format!("{clean}…") } else { clean }
}

/// Formats a duration for people: `250ms`, `3s`, `1m30s`.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if duration.is_zero() {
        return "0s".to_owned();
    }
    if seconds < 0.001 {
        return format!("{}µs", trim(seconds * 1e6, 0));
    }
    if seconds < 1.0 {
        return format!("{}ms", trim(seconds * 1e3, usize::from(seconds < 0.1)));
    }
    if seconds < 60.0 {
        return format!("{}s", trim(seconds, 2));
    }
    let whole = duration.as_secs();
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    let parts = [(hours, "h"), (minutes, "m"), (seconds, "s")];
    let shown: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}")).collect();
    shown.concat()
}

/// Formats a size for people: `512 B`, `9.4 MiB`, `256 MiB`.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit < UNITS.len() - 1 {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", trim(value, usize::from(unit > 0 && value < 100.0)), UNITS[unit])
}

/// Writes a size as users write it: `512`, `64k`, `256m`. It is exact.
#[must_use]
pub fn write_size(bytes: u64) -> String {
    let units = [(40, "t"), (30, "g"), (20, "m"), (10, "k")];
    let fits = |(shift, _): &(u32, &str)| bytes > 0 && bytes.trailing_zeros() >= *shift;
    units.into_iter().find(fits).map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// A number with at most `digits` decimals, without trailing zeroes.
fn trim(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_durations() {
        for (text, millis) in
            [("3", 3000), ("0.5", 500), ("500ms", 500), ("1m30s", 90_000), ("1.5s", 1500), ("2h", 7_200_000), ("0", 0)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(parse_duration("10us"), Ok(Duration::from_micros(10)));
    }

    #[test]
    fn refuses_invalid_durations() {
        for text in
            ["", " ", "-1", "-1s", "nan", "NaN", "inf", "1e9", "1x", "s", "1m30", "1..2", "99999999999999h", "1 s 2"]
        {
            assert!(parse_duration(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn reads_sizes() {
        for (text, bytes) in [
            ("1048576", 1 << 20),
            ("64k", 65536),
            ("256m", 256 << 20),
            ("256MiB", 256 << 20),
            ("1.5g", 1_610_612_736),
            ("1 kb", 1024),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn refuses_invalid_sizes() {
        for text in ["", "-1", "-1m", "nan", "m", "1x", "1e3", "0x10", "99999999t", "12m34"] {
            assert!(parse_size(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn errors_name_the_value_and_the_form() {
        let error = parse_size("lots").unwrap_err().to_string();
        assert_eq!(error, "invalid size \"lots\": expected bytes (1048576) or a size such as 64k, 256m, 1g");
        assert!(!parse_duration("\x1b[31m").unwrap_err().to_string().contains('\x1b'));
    }

    #[test]
    fn formats_for_people() {
        assert_eq!(format_duration(Duration::from_micros(312)), "312µs");
        assert_eq!(format_duration(Duration::from_micros(3_120)), "3.1ms");
        assert_eq!(format_duration(Duration::from_millis(250)), "250ms");
        assert_eq!(format_duration(Duration::from_secs(3)), "3s");
        assert_eq!(format_duration(Duration::from_millis(3_050)), "3.05s");
        assert_eq!(format_duration(Duration::from_secs(90)), "1m30s");
        assert_eq!(format_size(512), "512 B");
        assert_eq!(format_size(9_856_614), "9.4 MiB");
        assert_eq!(format_size(256 << 20), "256 MiB");
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*") {
            let _ = parse_duration(&text);
            let _ = parse_size(&text);
        }

        #[test]
        fn whole_numbers_survive(n in 0_u64..1_000_000_000) {
            prop_assert_eq!(parse_size(&n.to_string()), Ok(n));
            prop_assert_eq!(parse_duration(&n.to_string()), Ok(Duration::from_secs(n)));
            prop_assert_eq!(parse_duration(&format!("{n}ms")), Ok(Duration::from_millis(n)));
        }
    }
}
