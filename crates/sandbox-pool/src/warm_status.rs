//! Which languages start warm, and why others do not.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::prestart::Prestart;

/// Whether programs of a language start warm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WarmStart {
    /// They do, if an interpreter is ready.
    On,
    /// Not yet: warm starts were not tested.
    Pending,
    /// They start cold, for this reason.
    Off(String),
    /// They start cold, because the operator wants no zygotes.
    Disabled,
}

impl std::fmt::Display for WarmStart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::On => "on",
            Self::Pending => "not tested yet",
            Self::Off(reason) => reason,
            Self::Disabled => "no interpreters are kept warm",
        })
    }
}

/// Why programs start cold after the end of a zygote.
const LOST: &str = "the zygote ended; another one is being started";

/// The results of the self-tests, by language.
#[derive(Debug, Default)]
pub(crate) struct WarmStarts(Mutex<BTreeMap<String, TestedLanguage>>);

#[derive(Debug)]
struct TestedLanguage {
    start: WarmStart,
    /// Whether no zygote of the language is to be used any more.
    is_refused: bool,
}

impl WarmStarts {
    /// Whether runs may wait for a prestarted process.
    pub(crate) fn allow(&self, prestart: &Prestart) -> bool {
        let languages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        languages.get(&prestart.language).is_none_or(|known| !known.is_refused)
    }

    /// Whether warm starts of a language are known to work.
    pub(crate) fn work(&self, language: &str) -> bool {
        let languages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        languages.get(language).is_some_and(|known| known.start == WarmStart::On)
    }

    /// Warm starts of a language work.
    pub(crate) fn accept(&self, language: &str) {
        self.note(language, WarmStart::On, false);
    }

    /// Programs of a language behave differently if they start warm. None does from now on.
    pub(crate) fn refuse(&self, language: &str, reason: String) {
        self.note(language, WarmStart::Off(reason), true);
    }

    /// A zygote could not be started. If others have worked, this one is a matter of its packages.
    pub(crate) fn fail(&self, language: &str, reason: String) {
        if !self.work(language) {
            self.note(language, WarmStart::Off(reason), false);
        }
    }

    /// The zygote of a language has ended. Another one is started.
    pub(crate) fn lose(&self, language: &str) {
        self.note(language, WarmStart::Off(LOST.to_owned()), false);
    }

    /// The keeper has ended, and all zygotes with it. What was refused stays so.
    pub(crate) fn begin_anew(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, known| known.is_refused);
    }

    fn note(&self, language: &str, start: WarmStart, is_refused: bool) {
        let mut languages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known =
            languages.entry(language.to_owned()).or_insert(TestedLanguage { start: WarmStart::Pending, is_refused });
        // What was refused once stays so.
        if !known.is_refused || is_refused {
            *known = TestedLanguage { start, is_refused };
        }
    }

    /// What is known about a language.
    pub(crate) fn of(&self, language: &str) -> WarmStart {
        let languages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        languages.get(language).map_or(WarmStart::Pending, |known| known.start.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_language_stays_refused() {
        let languages = WarmStarts::default();
        assert_eq!(languages.of("python"), WarmStart::Pending);
        languages.fail("python", "no memory".to_owned());
        assert_eq!(languages.of("python").to_string(), "no memory");
        languages.accept("python");
        languages.fail("python", "one set of packages".to_owned());
        assert!(languages.work("python"));
        languages.refuse("python", "it differs".to_owned());
        languages.accept("python");
        assert_eq!(languages.of("python"), WarmStart::Off("it differs".to_owned()));
        assert!(!languages.work("python"));
    }

    #[test]
    fn a_lost_zygote_turns_warm_starts_off_until_the_next_one() {
        let languages = WarmStarts::default();
        languages.accept("python");
        languages.refuse("javascript", "it differs".to_owned());
        languages.lose("python");
        assert_eq!(languages.of("python"), WarmStart::Off(LOST.to_owned()));
        languages.accept("python");
        assert_eq!(languages.of("python"), WarmStart::On);
        languages.begin_anew();
        assert_eq!(languages.of("python"), WarmStart::Pending);
        assert_eq!(languages.of("javascript"), WarmStart::Off("it differs".to_owned()));
    }
}
