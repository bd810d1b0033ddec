//! Requirements on the version of a Python interpreter, as in `requires-python`: `>=3.11,<4`.
//!
//! The rules are those of [PEP 440](https://peps.python.org/pep-0440/#version-specifiers), for interpreters that were
//! released: their versions are numbers.

use std::cmp::Ordering;
use std::fmt;

use regex_lite::Regex;
use sandbox_base::units::shorten;

/// A clause: an operator, numbers, `.*`, and the mark of a version before or after the release.
const CLAUSE: &str = r"(?i)^\s*(~=|===?|!=|<=|>=|<|>)\s*v?(\d{1,9}(?:\.\d{1,9})*)(\.\*)?((?:[-._]?(?:alpha|beta|preview|pre|post|dev|rc|a|b|c)[-._]?\d{0,9})*)\s*$";

/// A requirement on a version: all its clauses hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    text: String,
    clauses: Vec<Clause>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Clause {
    operator: String,
    numbers: Vec<u32>,
    /// Whether further numbers may follow: `3.11.*`.
    is_prefix: bool,
    /// How a release with these numbers compares to the stated version: it is later than `3.13rc1`.
    release: Ordering,
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Requirement {
    /// Reads a requirement.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let refuse =
            || format!("invalid version requirement '{}': expected one such as >=3.11 or >=3.9,<3.13", shorten(text));
        let pattern = Regex::new(CLAUSE).map_err(|error| error.to_string())?;
        let clauses = text.split(',').map(|clause| {
            let parts = pattern.captures(clause)?;
            let part = |group: usize| parts.get(group).map_or("", |found| found.as_str());
            let numbers = part(2).split('.').map(|number| number.parse().ok()).collect::<Option<Vec<u32>>>()?;
            let mark = part(4).trim_start_matches(['-', '.', '_']).to_ascii_lowercase();
            let release = match mark.as_str() {
                "" => Ordering::Equal,
                mark if mark.starts_with("post") => Ordering::Less,
                _ => Ordering::Greater,
            };
            let (operator, is_prefix) = (part(1).to_owned(), !part(3).is_empty());
            let fits = match operator.as_str() {
                "==" | "!=" => !is_prefix || release == Ordering::Equal,
                "~=" => !is_prefix && numbers.len() > 1,
                _ => !is_prefix,
            };
            fits.then_some(Clause { operator, numbers, is_prefix, release })
        });
        let clauses = clauses.collect::<Option<Vec<_>>>().filter(|_| text.len() <= 200).ok_or_else(refuse)?;
        Ok(Self { text: text.trim().to_owned(), clauses })
    }

    /// Whether a released version meets it.
    #[must_use]
    pub fn is_met_by(&self, version: &str) -> bool {
        let numbers: Vec<u32> = version.split('.').map_while(|number| number.parse().ok()).collect();
        self.clauses.iter().all(|clause| clause.is_met_by(&numbers))
    }
}

impl Clause {
    fn is_met_by(&self, version: &[u32]) -> bool {
        let order = compare(version, &self.numbers).then(self.release);
        let begins_with = |numbers: &[u32]| compare(&version[..version.len().min(numbers.len())], numbers).is_eq();
        match (self.operator.as_str(), self.is_prefix) {
            ("==", true) => begins_with(&self.numbers),
            ("!=", true) => !begins_with(&self.numbers),
            ("~=", _) => order.is_ge() && begins_with(&self.numbers[..self.numbers.len() - 1]),
            ("==" | "===", _) => order.is_eq(),
            ("!=", _) => order.is_ne(),
            ("<=", _) => order.is_le(),
            (">=", _) => order.is_ge(),
            ("<", _) => order.is_lt(),
            (">", _) => order.is_gt(),
            _ => false,
        }
    }
}

/// Compares versions number by number; a number that is missing is 0.
fn compare(a: &[u32], b: &[u32]) -> Ordering {
    let number = |of: &[u32], at: usize| of.get(at).copied().unwrap_or(0);
    (0..a.len().max(b.len()))
        .map(|at| number(a, at).cmp(&number(b, at)))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_meet_requirements() {
        for (requirement, met, unmet) in [
            (">=3.11", vec!["3.11.0", "3.12", "4.0"], vec!["3.10.14", "2.7.18"]),
            (" >= 3.9 , < 3.13", vec!["3.9.0", "3.12.9"], vec!["3.13.0", "3.8.1"]),
            ("==3.11.*", vec!["3.11.0", "3.11.9"], vec!["3.12.0", "3.1.1"]),
            ("==3.11", vec!["3.11.0"], vec!["3.11.2"]),
            ("!=3.11.*,>3", vec!["3.12.1"], vec!["3.11.4", "3.0.0"]),
            ("~=3.11", vec!["3.11.2", "3.13.0"], vec!["3.10.0", "4.0.0"]),
            ("~=3.11.4", vec!["3.11.4", "3.11.9"], vec!["3.11.3", "3.12.0"]),
            (">3.11", vec!["3.11.1"], vec!["3.11.0"]),
            (">=3.13.0rc1", vec!["3.13.0"], vec!["3.12.9"]),
            ("<3.13rc1", vec!["3.12.9"], vec!["3.13.0"]),
            ("<=3.11.post1", vec!["3.11.0"], vec!["3.11.1"]),
            ("===3.11.2", vec!["3.11.2"], vec!["3.11.3"]),
        ] {
            let requirement = Requirement::parse(requirement).expect(requirement);
            for (versions, expected) in [(met, true), (unmet, false)] {
                for version in versions {
                    assert_eq!(requirement.is_met_by(version), expected, "{version} {requirement}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_requirement_is_refused() {
        for text in ["", "3.11", ">=", ">=3.x", ">=3.11,", "~=3", ">=3.*", "=>3", "==3.1.*rc1", "> 3 4", "python>=3"] {
            assert!(Requirement::parse(text).is_err(), "{text:?}");
        }
        assert!(Requirement::parse(&format!(">=3{}", ".0".repeat(200))).is_err());
    }
}
