//! A line of the report: the state of something that runs need, the cost of its absence, and the fix.

use anstyle::Style;
use serde::Serialize;

use super::{BAD, GOOD, WARN};

/// The state of something that runs need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CheckState {
    Ok,
    /// Runs work, but worse than they could.
    Warning,
    /// Some runs do not work.
    Missing,
}

/// A line of the report.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct HostCheck {
    pub(super) name: String,
    pub(super) state: CheckState,
    /// What was found, or what was not.
    pub(super) what: String,
    pub(super) without_it: Option<String>,
    pub(super) fix: Option<String>,
}

impl HostCheck {
    pub(super) fn ok(name: &str, what: String) -> Self {
        Self { name: name.to_owned(), state: CheckState::Ok, what, without_it: None, fix: None }
    }

    pub(super) fn warning(name: &str, what: String, without_it: &str, fix: String) -> Self {
        Self { state: CheckState::Warning, ..Self::missing(name, what, without_it, fix) }
    }

    pub(super) fn missing(name: &str, what: String, without_it: &str, fix: String) -> Self {
        let (name, without_it) = (name.to_owned(), Some(without_it.to_owned()));
        Self { name, state: CheckState::Missing, what, without_it, fix: Some(fix) }
    }

    /// The line, with its name in a column of this width.
    fn line(&self, width: usize) -> String {
        let (style, mark) = mark(self.state);
        let cost = self.without_it.iter().map(|cost| format!(": {cost}"));
        let fix = self.fix.iter().map(|fix| format!("; {fix}"));
        let rest: String = cost.chain(fix).collect();
        format!("  {style}{mark}{style:#} {:<width$}  {}{rest}\n", self.name, self.what)
    }
}

fn mark(state: CheckState) -> (Style, char) {
    match state {
        CheckState::Ok => (GOOD, '✓'),
        CheckState::Warning => (WARN, '!'),
        CheckState::Missing => (BAD, '✗'),
    }
}

/// Lines whose second column is aligned.
pub(super) fn lines(checks: &[HostCheck]) -> String {
    let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    checks.iter().map(|check| check.line(width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_state_the_cost_and_the_fix() {
        let checks = [
            HostCheck::ok("a", "/bin/a".to_owned()),
            HostCheck::missing("long", "b was not found".to_owned(), "nothing works", "install b".to_owned()),
            HostCheck::warning("c", "c is small".to_owned(), "runs are slow", "add some".to_owned()),
        ];
        let expected = "  ✓ a     /bin/a\n  ✗ long  b was not found: nothing works; install b\n  \
                        ! c     c is small: runs are slow; add some\n";
        assert_eq!(anstream::adapter::strip_str(&lines(&checks)).to_string(), expected);
    }
}
