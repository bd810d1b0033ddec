//! Parses settings. All errors are collected and reported together.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use sandbox_base::units::{parse_duration, parse_size};

use super::source::{Sourced, ValueSource};

/// The text of each setting with its source, and the errors in them.
pub(super) struct Values<'a> {
    pub(super) values: &'a BTreeMap<&'static str, Sourced>,
    pub(super) errors: &'a mut Vec<String>,
}

impl<'a> Values<'a> {
    pub(super) fn wrong(&mut self, flag: &str, why: impl Display) {
        let key = flag.replace('-', "_");
        let name = self.values.get(flag).map_or(key.clone(), |(_, source)| source.name(&key));
        self.errors.push(format!("{name}: {why}"));
    }

    pub(super) fn text(&self, flag: &str) -> &'a str {
        self.values.get(flag).map_or("", |(value, _)| value.trim())
    }

    /// Whether the operator has set it.
    pub(super) fn is_set(&self, flag: &str) -> bool {
        self.values.get(flag).is_some_and(|(value, source)| *source != ValueSource::Default && !value.trim().is_empty())
    }

    /// A text, if there is one.
    pub(super) fn optional(&self, flag: &str) -> Option<String> {
        Some(self.text(flag).to_owned()).filter(|text| !text.is_empty())
    }

    /// A value that is read from text, and the form that was expected.
    pub(super) fn parsed<T: FromStr>(&mut self, flag: &str, what: &str) -> Option<T> {
        let text = self.text(flag);
        let value = text.parse().ok();
        if value.is_none() {
            self.wrong(flag, format!("invalid value '{text}': expected {what}"));
        }
        value
    }

    pub(super) fn number<T: FromStr + PartialOrd + Display>(
        &mut self,
        flag: &str,
        range: RangeInclusive<T>,
    ) -> Option<T> {
        let text = self.text(flag);
        let value = text.parse().ok().filter(|value| range.contains(value));
        if value.is_none() {
            self.wrong(
                flag,
                format!("invalid value '{text}': expected a number from {} to {}", range.start(), range.end()),
            );
        }
        value
    }

    pub(super) fn rate(&mut self, flag: &str) -> Option<f64> {
        let rate = self.parsed::<f64>(flag, "a number of requests per second")?;
        if rate > 0.0 && rate.is_finite() {
            return Some(rate);
        }
        self.wrong(flag, format!("invalid value '{rate}': expected a number of requests per second"));
        None
    }

    pub(super) fn duration(&mut self, flag: &str) -> Duration {
        parse_duration(self.text(flag)).unwrap_or_else(|error| {
            self.wrong(flag, error);
            Duration::ZERO
        })
    }

    pub(super) fn size(&mut self, flag: &str) -> Option<usize> {
        let text = self.text(flag);
        match parse_size(text).map(usize::try_from) {
            Ok(Ok(size)) if size > 0 => return Some(size),
            Ok(_) => self.wrong(flag, format!("invalid size \"{text}\": it must not be zero")),
            Err(error) => self.wrong(flag, error),
        }
        None
    }

    /// What stands between commas.
    pub(super) fn list<T>(&mut self, flag: &str, read: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let mut list = vec![];
        for part in self.text(flag).split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match read(part) {
                Ok(value) => list.push(value),
                Err(why) => self.wrong(flag, why),
            }
        }
        list
    }
}
