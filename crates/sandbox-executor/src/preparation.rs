//! Preparing toolchains ahead of their first use: what came of it, and how far each toolchain of the host is.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sandbox_base::limits::Caps;
use sandbox_base::{LimitKind, Limits};

use crate::execute::Stopped;
use crate::result::{RunResult, Verdict};

/// The outcome of preparing a toolchain.
#[derive(Debug)]
pub enum Preparation {
    /// The language prepares nothing.
    Nothing,
    /// The toolchain is prepared already.
    Found {
        /// Whether another was preparing it, and was waited for.
        waited: bool,
    },
    /// The toolchain was prepared now.
    Made,
    /// The script failed or was cancelled; the result has the reason.
    Failed(Box<RunResult>),
}

/// The state of a toolchain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreparationState {
    /// Not prepared, as far as is known.
    Pending,
    /// This process is preparing it.
    Preparing,
    /// Prepared.
    Ready,
    /// The last attempt failed, for this reason. The next run that needs it tries again.
    Failed(String),
}

impl PreparationState {
    /// The name of every state.
    pub const NAMES: [&str; 4] = ["pending", "preparing", "ready", "failed"];

    /// Its name in lists.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Preparing => "preparing",
            Self::Ready => "ready",
            Self::Failed(_) => "failed",
        }
    }

    /// The state after an attempt that ended like this.
    pub(crate) fn of<T>(made: &Result<T, Stopped>) -> Self {
        match made {
            Ok(_) => Self::Ready,
            Err(Stopped::Failed(failure)) => Self::Failed(failure.to_string()),
            Err(Stopped::Ended(result)) if result.verdict == Verdict::Cancelled => Self::Pending,
            Err(Stopped::Ended(result)) => Self::Failed(result.error.clone().unwrap_or_default()),
        }
    }
}

impl fmt::Display for PreparationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let Self::Failed(why) = self { write!(f, ": {why}") } else { Ok(()) }
    }
}

/// The share of the host that preparing may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreparePriority {
    /// All CPUs, as when a run needs it.
    Foreground,
    /// Half of the CPUs, so that runs have the other half, and twice the time.
    Background,
}

impl PreparePriority {
    pub(crate) fn limit(self, limits: &mut Limits) {
        if self == Self::Background {
            let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            let share = 500 * u64::try_from(cpus).unwrap_or(1);
            let time = limits.get(LimitKind::WallTime).map(|time| time.saturating_mul(2));
            let values = [(LimitKind::Cpus, Some(share.min(limits.milli_cpus()))), (LimitKind::WallTime, time)];
            for (kind, value) in values {
                // What is more than a limit can be stays as it is.
                let _ = value.map(|value| limits.set(kind, value, &Caps::default()));
            }
        }
    }
}

/// The states of the toolchains of the host, by language.
#[derive(Debug, Default)]
pub(crate) struct Preparations(Mutex<BTreeMap<String, PreparationState>>);

impl Preparations {
    fn states(&self) -> MutexGuard<'_, BTreeMap<String, PreparationState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, language: &str, state: PreparationState) {
        self.states().insert(language.to_owned(), state);
    }

    /// The language, and how far its toolchain is.
    pub(crate) fn get(&self, language: &str) -> (String, PreparationState) {
        (language.to_owned(), self.states().get(language).cloned().unwrap_or(PreparationState::Pending))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_background_has_half_of_the_cpus_and_twice_the_time() {
        let usual = Limits::default();
        let limits = |priority: PreparePriority| {
            let mut limits = usual.clone();
            priority.limit(&mut limits);
            limits
        };
        assert_eq!(limits(PreparePriority::Foreground), usual);
        let background = limits(PreparePriority::Background);
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
        assert_eq!(background.milli_cpus(), usual.milli_cpus().min(500 * cpus));
        assert_eq!(background.wall_time(), 2 * usual.wall_time());
    }

    #[test]
    fn states_are_noted_by_language() {
        let preparations = Preparations::default();
        assert_eq!(preparations.get("go").1, PreparationState::Pending);
        let failed = PreparationState::Failed("no network".to_owned());
        preparations.note("go", failed.clone());
        assert_eq!(preparations.get("go"), ("go".to_owned(), failed.clone()));
        assert_eq!(failed.to_string(), "failed: no network");
        let all = [PreparationState::Pending, PreparationState::Preparing, PreparationState::Ready, failed];
        assert_eq!(all.each_ref().map(PreparationState::name), PreparationState::NAMES);
    }
}
