//! Recording a job's events: a buffer between the run and the job store, so that a slow store never delays a run.
//!
//! The run adds events to the buffer. A task writes them to the store in batches, and tries again with back-off while the
//! store fails. If the buffer is full, output is left out of it; at the end of the run the missing part is taken from the
//! result, so that the events are complete all the same.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandbox_executor::{EventEncoder, Observer, RunEvent, RunResult, Step, Stream};
use sandbox_jobs::{Attempt, JobStore, StoreError};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// The most bytes that wait to be recorded for one run.
const MOST_BUFFERED: usize = 4 << 20;

/// Output that waited longer than this is recorded late, with an event `late`.
const LATE: Duration = Duration::from_secs(1);

/// The size of an event for output that was missing.
const CHUNK: usize = 64 << 10;

/// How long to wait before the store is tried again: at first, and at most.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// Calls the store until it succeeds, with exponential back-off.
pub(crate) async fn persist<T, F: Future<Output = Result<T, StoreError>>>(
    what: &str,
    attempt: Attempt,
    call: impl Fn() -> F,
) -> T {
    let mut pause = BACK_OFF.0;
    loop {
        match call().await {
            Ok(value) => return value,
            Err(error) => tracing::error!(%error, id = %attempt.id, retry_in = ?pause, "cannot record {what} of a job"),
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(BACK_OFF.1);
    }
}

/// Events that wait to be recorded.
#[derive(Debug, Default)]
struct EventBuffer {
    waiting: Mutex<WaitingEvents>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct WaitingEvents {
    events: Vec<RunEvent>,
    bytes: usize,
    /// When the first of them came.
    since: Option<Instant>,
    /// Whether the run has ended.
    ended: bool,
}

impl EventBuffer {
    fn waiting(&self) -> MutexGuard<'_, WaitingEvents> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event, unless the buffer is full of output.
    fn add(&self, event: RunEvent) -> bool {
        let mut waiting = self.waiting();
        let size = event.size();
        if is_output(&event) && waiting.bytes + size > MOST_BUFFERED {
            return false;
        }
        waiting.bytes += size;
        waiting.since.get_or_insert_with(Instant::now);
        waiting.events.push(event);
        drop(waiting);
        self.changed.notify_one();
        true
    }

    fn end(&self) {
        self.waiting().ended = true;
        self.changed.notify_one();
    }
}

/// Writes what is in the buffer to the store until the run has ended. `late` is called when output is recorded late, `lost`
/// when the attempt is not the job's current one any more.
async fn write(store: JobStore, attempt: Attempt, buffer: Arc<EventBuffer>, late: impl Fn(), lost: impl Fn()) {
    loop {
        let (events, since, ended) = {
            let mut waiting = buffer.waiting();
            waiting.bytes = 0;
            (std::mem::take(&mut waiting.events), waiting.since.take(), waiting.ended)
        };
        if events.is_empty() {
            if ended {
                return;
            }
            buffer.changed.notified().await;
            continue;
        }
        let has_output = events.iter().any(is_output);
        let append = || {
            let mut batch = events.clone();
            let waited = since.map(|since| since.elapsed()).filter(|waited| has_output && *waited > LATE);
            if let Some(waited) = waited {
                batch.push(RunEvent::Late { seconds: (waited.as_secs_f64() * 1e3).round() / 1e3 });
            }
            let append = store.append(attempt, batch);
            async move { Ok((append.await?, waited.is_some())) }
        };
        let (current, was_late) = persist("events", attempt, append).await;
        if was_late {
            late();
        }
        if !current {
            lost();
            return;
        }
    }
}

fn is_output(event: &RunEvent) -> bool {
    matches!(event, RunEvent::Stdout(_) | RunEvent::Stderr(_))
}

/// Records the events of an attempt.
pub(crate) struct Recorder<'a> {
    store: &'a JobStore,
    handle: &'a Handle,
    attempt: Attempt,
    buffer: Arc<EventBuffer>,
    writer: Option<tokio::task::JoinHandle<()>>,
    encoder: EventEncoder,
    /// For each stream, how many bytes are recorded or in the buffer, and whether some are missing after them.
    recorded: [(usize, bool); 2],
}

impl<'a> Recorder<'a> {
    /// Begins to record an attempt. `late` is called when output is recorded late, `lost` when the attempt is not the job's
    /// current one any more.
    pub(crate) fn start(
        store: &'a JobStore,
        handle: &'a Handle,
        attempt: Attempt,
        late: impl Fn() + Send + 'static,
        lost: impl Fn() + Send + 'static,
    ) -> Self {
        let buffer = Arc::new(EventBuffer::default());
        let writer = handle.spawn(write(store.clone(), attempt, Arc::clone(&buffer), late, lost));
        let encoder = EventEncoder::default();
        Self { store, handle, attempt, buffer, writer: Some(writer), encoder, recorded: Default::default() }
    }

    /// Records everything that is left, after the run has ended. Blocks until the store has it.
    pub(crate) fn finish(mut self, result: Option<&RunResult>) {
        self.buffer.end();
        if let Some(writer) = self.writer.take() {
            let _ = self.handle.block_on(writer);
        }
        let Some(result) = result else { return };
        for stream in [Stream::Stdout, Stream::Stderr] {
            let (recorded, missing) = self.recorded[stream as usize];
            if !missing {
                continue;
            }
            let bytes = output_of(result, stream);
            for chunk in bytes.get(recorded..).unwrap_or_default().chunks(CHUNK) {
                if let Some(event) = self.encoder.output(stream, chunk) {
                    self.append_now(&event);
                }
            }
        }
        for event in self.encoder.finish() {
            self.append_now(&event);
        }
    }

    fn append_now(&self, event: &RunEvent) {
        let append = || self.store.append(self.attempt, vec![event.clone()]);
        self.handle.block_on(persist("events", self.attempt, append));
    }
}

/// The exact output of a run.
fn output_of(result: &RunResult, stream: Stream) -> Vec<u8> {
    let (text, exact) = match stream {
        Stream::Stdout => (&result.stdout, &result.stdout_base64),
        Stream::Stderr => (&result.stderr, &result.stderr_base64),
    };
    let exact = exact.as_ref().and_then(|exact| base64::Engine::decode(&base64::prelude::BASE64_STANDARD, exact).ok());
    exact.unwrap_or_else(|| text.clone().into_bytes())
}

impl Observer for Recorder<'_> {
    fn start(&mut self, language: Option<&str>, version: Option<&str>) {
        self.buffer.add(EventEncoder::start(language, version));
    }

    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        // What comes after a part that is missing is missing too, and taken from the result in order.
        if self.recorded[stream as usize].1 {
            return;
        }
        if let Some(event) = self.encoder.output(stream, bytes) {
            let size = exact_size(&event);
            if self.buffer.add(event) {
                self.recorded[stream as usize].0 += size;
            } else {
                self.recorded[stream as usize].1 = true;
                // The beginning of a character is in the result, too.
                self.encoder.forget(stream);
            }
        }
    }

    fn step(&mut self, step: Step, what: &str) {
        self.buffer.add(EventEncoder::step(step, what));
    }

    fn finish(&mut self, _: &Arc<RunResult>) {
        for event in self.encoder.finish() {
            let stream = if matches!(event, RunEvent::Stdout(_)) { Stream::Stdout } else { Stream::Stderr };
            let size = exact_size(&event);
            if self.buffer.add(event) {
                self.recorded[stream as usize].0 += size;
            } else {
                self.recorded[stream as usize].1 = true;
            }
        }
    }
}

/// How many bytes of output an event stands for.
fn exact_size(event: &RunEvent) -> usize {
    match event {
        RunEvent::Stdout(chunk) | RunEvent::Stderr(chunk) => match &chunk.data_base64 {
            Some(exact) => exact.len() / 4 * 3 - exact.bytes().rev().take_while(|byte| *byte == b'=').count(),
            None => chunk.data.len(),
        },
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use sandbox_executor::{JsonRequest, Verdict};
    use sandbox_jobs::{Created, Event, NewJob, Offer, StoreLimits};
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    struct Place {
        runtime: Runtime,
        store: JobStore,
        attempt: Attempt,
        _dir: tempfile::TempDir,
    }

    impl Place {
        /// A store with a job that runs. Its runtime has one thread, which tests can stop.
        fn new() -> Self {
            let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("runtime");
            let dir = tempfile::tempdir().expect("tempdir");
            let store = JobStore::embedded(&dir.path().join("jobs.redb"), Duration::from_secs(60)).expect("open");
            let limits = StoreLimits { waiting: 10, waiting_per_owner: 10, bytes_per_owner: 1 << 30 };
            let attempt = runtime.block_on(async {
                let new = NewJob::of(JsonRequest::default());
                assert!(matches!(store.create(new, limits).await.expect("create"), Created::New(_)));
                store.take(None, &Offer::default()).await.expect("take").expect("one").attempt()
            });
            Self { runtime, store, attempt, _dir: dir }
        }

        /// Keeps the runtime from doing anything until the sender is dropped.
        fn stall(&self) -> std::sync::mpsc::Sender<()> {
            let (sender, receiver) = channel::<()>();
            let (stalled, is_stalled) = channel();
            self.runtime.spawn(async move {
                let _ = stalled.send(());
                let _ = receiver.recv();
            });
            is_stalled.recv().expect("it runs");
            sender
        }

        fn events(&self) -> Vec<RunEvent> {
            let events = self.runtime.block_on(self.store.events(self.attempt.id, 0, 100_000)).expect("events");
            events.into_iter().map(|Event { what, .. }| what).collect()
        }
    }

    fn stdout_of(events: &[RunEvent]) -> Vec<u8> {
        let mut all = vec![];
        for event in events {
            if let RunEvent::Stdout(chunk) = event {
                let result = RunResult {
                    stdout: chunk.data.clone(),
                    stdout_base64: chunk.data_base64.clone(),
                    ..RunResult::default()
                };
                all.extend(output_of(&result, Stream::Stdout));
            }
        }
        all
    }

    #[test]
    fn a_stalled_store_delays_no_run_and_loses_no_output() {
        let place = Place::new();
        let stalled = place.stall();
        let handle = place.runtime.handle();
        let late = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&late);
        let count = move || {
            counter.fetch_add(1, Ordering::SeqCst);
        };
        let mut recorder = Recorder::start(&place.store, handle, place.attempt, count, || panic!("it is current"));
        // Characters of three bytes in chunks that cut them, more than the buffer holds.
        let text = "€".repeat(MOST_BUFFERED / 2);
        for chunk in text.as_bytes().chunks(40_000) {
            recorder.output(Stream::Stdout, chunk);
        }
        recorder.step(Step::Compile, "not output");
        // The run is over before the store has recorded anything.
        std::thread::sleep(LATE + Duration::from_millis(100));
        drop(stalled);
        let result = RunResult { verdict: Verdict::Ok, stdout: text.clone(), ..RunResult::default() };
        recorder.finish(Some(&result));
        let events = place.events();
        assert_eq!(stdout_of(&events), text.as_bytes());
        assert_eq!(events.iter().filter(|event| matches!(event, RunEvent::Step { .. })).count(), 1);
        assert!(events.iter().any(|event| matches!(event, RunEvent::Late { seconds } if *seconds > 1.0)));
        assert_eq!(late.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn bytes_that_are_not_text_survive_a_full_buffer() {
        let place = Place::new();
        let stalled = place.stall();
        let mut recorder = Recorder::start(&place.store, place.runtime.handle(), place.attempt, || (), || ());
        let bytes = b"\xff\x00\xe2\x82".repeat(MOST_BUFFERED / 4);
        for chunk in bytes.chunks(30_001) {
            recorder.output(Stream::Stdout, chunk);
        }
        drop(stalled);
        let exact = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, &bytes);
        let result = RunResult { stdout_base64: Some(exact), ..RunResult::default() };
        recorder.finish(Some(&result));
        assert!(stdout_of(&place.events()) == bytes);
    }

    #[test]
    fn an_attempt_that_is_not_current_is_reported() {
        let place = Place::new();
        place.runtime.block_on(place.store.put_back(place.attempt)).expect("put back");
        let lost = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&lost);
        let count = move || {
            counter.fetch_add(1, Ordering::SeqCst);
        };
        let mut recorder = Recorder::start(&place.store, place.runtime.handle(), place.attempt, || (), count);
        recorder.output(Stream::Stdout, b"late");
        recorder.finish(None);
        assert_eq!(lost.load(Ordering::SeqCst), 1);
        assert!(matches!(place.events()[..], [RunEvent::Restarted { attempt: 2 }]));
    }
}
