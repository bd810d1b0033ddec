//! Background tasks that must not end: one that panics is logged, counted and started again.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::state::App;

/// The pause before a task that has panicked begins again.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts a task of the server, and starts it again whenever it panics.
pub(crate) fn keep_running<F>(app: &Arc<App>, name: &'static str, task: impl Fn(Arc<App>) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let app = Arc::clone(app);
    let count = Arc::clone(&app);
    tokio::spawn(restart_on_panic(
        move || task(Arc::clone(&app)),
        PAUSE,
        move |why| {
            count.metrics.panic();
            tracing::error!(task = name, why, "a background task panicked; starting it again");
        },
    ));
}

/// Runs a task to its end, again after each panic.
pub(crate) async fn restart_on_panic<F>(task: impl Fn() -> F, pause: Duration, report: impl Fn(&str))
where
    F: Future<Output = ()> + Send + 'static,
{
    while let Err(error) = tokio::spawn(task()).await {
        let Ok(panic) = error.try_into_panic() else { return };
        report(&panic_text(panic.as_ref()));
        tokio::time::sleep(pause).await;
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "unknown reason".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_reported_and_started_again() {
        let (runs, reports) = (Arc::new(AtomicU32::new(0)), Mutex::new(vec![]));
        let task = || {
            let runs = Arc::clone(&runs);
            async move {
                let run = runs.fetch_add(1, Ordering::SeqCst);
                assert!(run >= 2, "attempt {run}");
            }
        };
        restart_on_panic(task, Duration::ZERO, |why| reports.lock().expect("lock").push(why.to_owned())).await;
        assert_eq!(runs.load(Ordering::SeqCst), 3);
        assert_eq!(*reports.lock().expect("lock"), ["attempt 0", "attempt 1"]);
    }
}
