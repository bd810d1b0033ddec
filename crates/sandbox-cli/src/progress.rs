//! Progress of work that a person waits for: a spinner with the elapsed time on a terminal, a plain line elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use sandbox_base::printable;

use crate::output::{DIM, say};

/// Work in progress, shown on standard error until this is dropped.
pub(crate) struct StepProgress(Option<ProgressBar>);

impl StepProgress {
    /// Shows that work has begun. Parts of the description may be untrusted.
    pub(crate) fn begin(what: &str) -> Self {
        let what = printable(what);
        if !std::io::stderr().is_terminal() {
            say(&format!("{DIM}{what}{DIM:#}"));
            return Self(None);
        }
        let bar = ProgressBar::new_spinner().with_prefix(what);
        // The message takes what is left of the line, and is cut there.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} · {elapsed}{wide_msg:.dim}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(Some(bar))
    }

    /// Shows how far the work is, on a terminal. It may be untrusted.
    pub(crate) fn status(&self, line: &str) {
        if let Some(bar) = &self.0 {
            bar.set_message(format!(" · {}", printable(line)));
        }
    }
}

impl Drop for StepProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
