//! Prepares toolchains in the background after the start, one after the other, so that the first request in a language does
//! not have to wait for that. No slot is taken, and nothing is begun while more than half of the slots are in use.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbox_executor::{Preparation, PreparePriority, RunService, Verdict};
use sandbox_runtimes::UnknownLanguage;

use crate::runs::{CancelHandle, CancelOnDrop};
use crate::state::App;
use crate::tasks::panic_text;

/// The interval at which the load is checked while it is too high to begin.
const LOOK: Duration = Duration::from_millis(200);

/// How often a toolchain is attempted whose preparation the end of a keeper interrupts.
const ATTEMPTS: usize = 2;

/// Which toolchains are prepared when the server starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PrepareChoice {
    /// All that are installed.
    All,
    /// Those of these languages; none if there are none.
    Named(Vec<String>),
}

impl PrepareChoice {
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "all" => Self::All,
            "none" => Self::Named(vec![]),
            list => {
                Self::Named(list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect())
            }
        }
    }

    /// The names of the languages to prepare. All of those that were named must exist.
    pub(crate) fn languages(&self, service: &RunService) -> Result<Vec<String>, UnknownLanguage> {
        match self {
            Self::All => Ok(service.preparations().into_keys().collect()),
            Self::Named(names) => names.iter().map(|name| Ok(service.language(name)?.name.clone())).collect(),
        }
    }
}

/// Prepares the toolchains that the operator has chosen.
pub(crate) async fn prepare(app: Arc<App>) {
    for language in &app.prepare {
        for attempt in 1..=ATTEMPTS {
            if !wait_for_turn(&app).await || !prepare_one(&app, language, attempt < ATTEMPTS).await {
                break;
            }
        }
    }
}

/// Waits until the load allows to begin. False if the server takes no more work.
async fn wait_for_turn(app: &App) -> bool {
    loop {
        app.keeper.wait(&app.service).await;
        if app.is_draining() {
            return false;
        }
        if 2 * app.load() <= app.capacity() {
            return true;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Prepares a toolchain, and logs what came of it. True if it has to be attempted once more, which it `may`.
async fn prepare_one(app: &Arc<App>, language: &str, may: bool) -> bool {
    let cancel = match CancelHandle::new() {
        Ok(cancel) => cancel,
        Err(error) => {
            tracing::warn!(language, %error, "cannot prepare a toolchain");
            return false;
        }
    };
    let (began, keeper, mut shutdown) = (Instant::now(), app.keeper.number(), app.shutdown.subscribe());
    let stop = CancelOnDrop(cancel.clone());
    let (own, name) = (Arc::clone(app), language.to_owned());
    let mut work = tokio::task::spawn_blocking(move || {
        let definition = own.service.language(&name)?;
        let cancel = [cancel.as_fd(), own.kill.as_fd()];
        own.service.prepare(definition, PreparePriority::Background, &cancel, &mut ())
    });
    let ended = tokio::select! {
        ended = &mut work => ended,
        () = async { drop(shutdown.wait_for(|over| *over).await) } => {
            drop(stop);
            work.await
        }
    };
    let seconds = began.elapsed().as_secs_f64();
    match ended {
        Ok(Ok(Preparation::Made)) => tracing::info!(language, seconds, "prepared the toolchain"),
        Ok(Ok(Preparation::Nothing | Preparation::Found { .. })) => {}
        Ok(Ok(Preparation::Failed(result))) if result.verdict == Verdict::Cancelled => {}
        Ok(Ok(Preparation::Failed(result))) => warn(language, result.error.as_deref().unwrap_or_default()),
        Ok(Err(refused)) if refused.is_keeper_end() && may => {
            app.keeper.wait_for_next(keeper).await;
            return true;
        }
        Ok(Err(refused)) => warn(language, &refused.to_string()),
        Err(error) => {
            app.metrics.panic();
            let why = error.try_into_panic().map_or_else(|error| error.to_string(), |panic| panic_text(panic.as_ref()));
            tracing::error!(language, why, "preparing a toolchain panicked");
        }
    }
    false
}

fn warn(language: &str, reason: &str) {
    tracing::warn!(language, reason, "cannot prepare the toolchain; the first run that needs it will try again");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_chosen_by_name() {
        assert_eq!(PrepareChoice::parse("all"), PrepareChoice::All);
        assert_eq!(PrepareChoice::parse("none"), PrepareChoice::Named(vec![]));
        assert_eq!(PrepareChoice::parse("go, java,"), PrepareChoice::Named(vec!["go".to_owned(), "java".to_owned()]));
    }
}
