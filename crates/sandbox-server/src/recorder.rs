//! Recording a job's events: a buffer between the run and the job store, so that a slow store never delays a run.
//!
//! The run adds events to the buffer. A task writes them to the store in batches, and tries again with back-off while the
//! store fails. What is still in the buffer when the run ends is written with its result, in one step. If the buffer is full,
//! output is left out of it; at the end of the run the missing part is taken from the result, so that the events are complete
//! all the same.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandbox_executor::{EventEncoder, Observer, RunEvent, RunResult, Step, Stream};
use sandbox_jobs::{Attempt, JobStore, StoreError};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout_at;

use crate::follow::Followed;

/// The most bytes that wait to be recorded for one run.
const MOST_BUFFERED: usize = 4 << 20;

/// Output that waited longer than this is recorded late, with an event `late`.
const LATE: Duration = Duration::from_secs(1);

/// The size of an event for output that was missing.
const CHUNK: usize = 64 << 10;

/// How long the events of a run wait for others, and perhaps the result, to be written together with them: that of its start,
/// which says little, and others.
const LINGER: (Duration, Duration) = (Duration::from_millis(250), Duration::from_millis(10));

/// The same while a client of this server follows the job.
const LINGER_FOLLOWED: (Duration, Duration) = (Duration::from_millis(10), Duration::ZERO);

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
    batch: EventBatch,
    bytes: usize,
    /// Whether the run has ended.
    ended: bool,
}

/// Events that are written together.
#[derive(Debug, Default)]
pub(crate) struct EventBatch {
    events: Vec<RunEvent>,
    /// When the first of them came that is more than the run's start.
    since: Option<Instant>,
    /// When it is to be written.
    due: Option<Instant>,
}

impl EventBatch {
    fn add(&mut self, event: RunEvent, is_followed: bool) {
        let now = Instant::now();
        let linger = if is_followed { LINGER_FOLLOWED } else { LINGER };
        let due = if matches!(event, RunEvent::Start { .. }) {
            now + linger.0
        } else {
            self.since.get_or_insert(now);
            now + linger.1
        };
        self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
        self.events.push(event);
    }

    /// The events as they would be written now, and whether they are late, which is one more event.
    pub(crate) fn written_now(&self) -> (Vec<RunEvent>, bool) {
        let mut events = self.events.clone();
        let waited = self.since.map(|since| since.elapsed()).filter(|waited| *waited > LATE);
        let waited = waited.filter(|_| self.events.iter().any(is_output));
        if let Some(waited) = waited {
            events.push(RunEvent::Late { seconds: (waited.as_secs_f64() * 1e3).round() / 1e3 });
        }
        (events, waited.is_some())
    }
}

impl EventBuffer {
    fn waiting(&self) -> MutexGuard<'_, WaitingEvents> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event, unless the buffer is full of output.
    fn add(&self, event: RunEvent, is_followed: bool) -> bool {
        let mut waiting = self.waiting();
        let size = event.size();
        if is_output(&event) && waiting.bytes + size > MOST_BUFFERED {
            return false;
        }
        waiting.bytes += size;
        waiting.batch.add(event, is_followed);
        drop(waiting);
        self.changed.notify_one();
        true
    }

    /// Takes what waits.
    fn take(&self) -> EventBatch {
        let mut waiting = self.waiting();
        waiting.bytes = 0;
        std::mem::take(&mut waiting.batch)
    }

    fn end(&self) {
        self.waiting().ended = true;
        self.changed.notify_one();
    }
}

/// Called when output is recorded late.
type OnLate = Arc<dyn Fn() + Send + Sync>;

/// Writes events to the store. Returns whether the attempt is the job's current one.
async fn append(store: &JobStore, attempt: Attempt, batch: EventBatch, late: &OnLate) -> bool {
    let append = || {
        let (events, is_late) = batch.written_now();
        let append = store.append(attempt, events);
        async move { Ok((append.await?, is_late)) }
    };
    let (current, was_late) = persist("events", attempt, append).await;
    if was_late {
        late();
    }
    current
}

/// Writes what is in the buffer to the store until the run has ended. `late` is called when output is recorded late, `lost`
/// when the attempt is not the job's current one any more.
async fn write(store: JobStore, attempt: Attempt, buffer: Arc<EventBuffer>, late: OnLate, lost: impl Fn()) {
    loop {
        let (due, ended) = {
            let waiting = buffer.waiting();
            (waiting.batch.due, waiting.ended)
        };
        let changed = buffer.changed.notified();
        match due {
            _ if ended => return,
            None => {
                changed.await;
                continue;
            }
            Some(due) if due > Instant::now() && timeout_at(due.into(), changed).await.is_ok() => continue,
            Some(_) => {}
        }
        if !append(&store, attempt, buffer.take(), &late).await {
            lost();
            return;
        }
    }
}

fn is_output(event: &RunEvent) -> bool {
    matches!(event, RunEvent::Stdout(_) | RunEvent::Stderr(_))
}

/// Records the events of an attempt.
pub(crate) struct Recorder {
    store: JobStore,
    followed: Arc<Followed>,
    attempt: Attempt,
    buffer: Arc<EventBuffer>,
    writer: Option<tokio::task::JoinHandle<()>>,
    late: OnLate,
    encoder: EventEncoder,
    /// For each stream, how many bytes are recorded or in the buffer, and whether some are missing after them.
    recorded: [(usize, bool); 2],
}

impl Recorder {
    /// Begins to record an attempt. `late` is called when output is recorded late, `lost` when the attempt is not the job's
    /// current one any more.
    pub(crate) fn start(
        store: &JobStore,
        followed: &Arc<Followed>,
        handle: &Handle,
        attempt: Attempt,
        late: impl Fn() + Send + Sync + 'static,
        lost: impl Fn() + Send + 'static,
    ) -> Self {
        let buffer = Arc::new(EventBuffer::default());
        let late: OnLate = Arc::new(late);
        let writer = handle.spawn(write(store.clone(), attempt, Arc::clone(&buffer), Arc::clone(&late), lost));
        let encoder = EventEncoder::default();
        Self {
            store: store.clone(),
            followed: Arc::clone(followed),
            attempt,
            buffer,
            writer: Some(writer),
            late,
            encoder,
            recorded: Default::default(),
        }
    }

    fn add(&self, event: RunEvent) -> bool {
        self.buffer.add(event, self.followed.is_followed(self.attempt.id))
    }

    /// Ends the recording, after the run has ended, when the store has everything but the events that are returned, which are
    /// to be written with the result.
    pub(crate) async fn finish(mut self, result: Option<&RunResult>) -> EventBatch {
        self.buffer.end();
        if let Some(writer) = self.writer.take() {
            let _ = writer.await;
        }
        let mut last = self.buffer.take();
        let Some(result) = result else { return last };
        for stream in [Stream::Stdout, Stream::Stderr] {
            let (recorded, missing) = self.recorded[stream as usize];
            if !missing {
                continue;
            }
            let bytes = output_of(result, stream);
            for chunk in bytes.get(recorded..).unwrap_or_default().chunks(CHUNK) {
                if let Some(event) = self.encoder.output(stream, chunk) {
                    append(&self.store, self.attempt, last, &self.late).await;
                    last = EventBatch { events: vec![event], ..EventBatch::default() };
                }
            }
        }
        last.events.extend(self.encoder.finish());
        last
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

impl Observer for Recorder {
    fn start(&mut self, language: Option<&str>, version: Option<&str>) {
        self.add(EventEncoder::start(language, version));
    }

    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        // What comes after a part that is missing is missing too, and taken from the result in order.
        if self.recorded[stream as usize].1 {
            return;
        }
        if let Some(event) = self.encoder.output(stream, bytes) {
            let size = exact_size(&event);
            if self.add(event) {
                self.recorded[stream as usize].0 += size;
            } else {
                self.recorded[stream as usize].1 = true;
                // The beginning of a character is in the result, too.
                self.encoder.forget(stream);
            }
        }
    }

    fn step(&mut self, step: Step, what: &str, waiting: bool) {
        self.add(EventEncoder::step(step, what, waiting));
    }

    fn finish(&mut self, _: &Arc<RunResult>) {
        for event in self.encoder.finish() {
            let stream = if matches!(event, RunEvent::Stdout(_)) { Stream::Stdout } else { Stream::Stderr };
            let size = exact_size(&event);
            if self.add(event) {
                self.recorded[stream as usize].0 += size;
            } else {
                self.recorded[stream as usize].1 = true;
            }
        }
    }
}

/// The number of bytes of output in an event.
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
    use sandbox_testing::eventually;
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    struct Place {
        runtime: Runtime,
        store: JobStore,
        attempt: Attempt,
        followed: Arc<Followed>,
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
            Self { runtime, store, attempt, followed: Arc::default(), _dir: dir }
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

        /// Ends the job as the worker does.
        fn finish(&self, recorder: Recorder, result: RunResult) {
            let last = self.runtime.block_on(recorder.finish(Some(&result))).written_now().0;
            let finished = self.runtime.block_on(self.store.finish(self.attempt, last, Arc::new(result)));
            assert!(finished.expect("finish"), "it is current");
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
        let mut recorder =
            Recorder::start(&place.store, &place.followed, handle, place.attempt, count, || panic!("it is current"));
        // Characters of three bytes in chunks that cut them, more than the buffer holds.
        let text = "€".repeat(MOST_BUFFERED / 2);
        for chunk in text.as_bytes().chunks(40_000) {
            recorder.output(Stream::Stdout, chunk);
        }
        recorder.step(Step::Compile, "not output", false);
        // The run is over before the store has recorded anything.
        std::thread::sleep(LATE + Duration::from_millis(100));
        drop(stalled);
        let result = RunResult { verdict: Verdict::Ok, stdout: text.clone(), ..RunResult::default() };
        place.finish(recorder, result);
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
        let mut recorder =
            Recorder::start(&place.store, &place.followed, place.runtime.handle(), place.attempt, || (), || ());
        let bytes = b"\xff\x00\xe2\x82".repeat(MOST_BUFFERED / 4);
        for chunk in bytes.chunks(30_001) {
            recorder.output(Stream::Stdout, chunk);
        }
        drop(stalled);
        let exact = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, &bytes);
        let result = RunResult { stdout_base64: Some(exact), ..RunResult::default() };
        place.finish(recorder, result);
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
        let mut recorder =
            Recorder::start(&place.store, &place.followed, place.runtime.handle(), place.attempt, || (), count);
        recorder.output(Stream::Stdout, b"late");
        eventually("it is reported", || lost.load(Ordering::SeqCst) == 1);
        drop(place.runtime.block_on(recorder.finish(None)));
        assert!(matches!(place.events()[..], [RunEvent::Restarted { attempt: 2 }]));
    }
}
