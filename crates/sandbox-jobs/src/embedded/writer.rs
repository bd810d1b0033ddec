//! The one thread that writes: it takes all operations that wait, carries them out in one transaction, and answers them
//! after one commit. So many concurrent operations share one synchronisation with the disk (group commit).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use redb::{Durability, WriteTransaction};
use tokio::sync::oneshot;

use super::disk::Disk;
use super::{FileError, Result};

/// The most operations in one transaction.
const BATCH: usize = 512;

/// The durability that an operation needs before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// That others see it. A durable commit follows at once.
    Soon,
    /// That it is on the disk.
    Durable,
}

/// An operation that waits for the writer.
trait Operation: Send {
    /// Carries it out.
    fn run(&mut self, transaction: &WriteTransaction) -> Result<()>;

    /// Answers its caller.
    fn answer(self: Box<Self>, outcome: Result<()>);
}

struct PendingCall<T, F> {
    call: Option<F>,
    value: Option<T>,
    answer: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: FnOnce(&WriteTransaction) -> Result<T> + Send> Operation for PendingCall<T, F> {
    fn run(&mut self, transaction: &WriteTransaction) -> Result<()> {
        if let Some(call) = self.call.take() {
            self.value = Some(call(transaction)?);
        }
        Ok(())
    }

    fn answer(self: Box<Self>, outcome: Result<()>) {
        let Self { value, answer, .. } = *self;
        let _ = answer.send(outcome.and_then(|()| value.ok_or(FileError::Closed)));
    }
}

struct Queued {
    need: Need,
    /// About how many bytes it adds, if it is an operation that is refused while the disk is nearly full.
    adds: Option<u64>,
    operation: Box<dyn Operation>,
}

/// Hands operations to the thread. When this is dropped, the thread completes what it was given and ends.
#[derive(Debug)]
pub(super) struct Writer {
    operations: Option<Sender<Queued>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.operations.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(disk: Arc<Disk>) -> std::io::Result<Self> {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("job-store".to_owned());
        let thread = thread.spawn(move || write(&disk, &receiver))?;
        Ok(Self { operations: Some(sender), thread: Some(thread) })
    }

    /// Carries out an operation in a transaction that it shares with others. An error undoes all of them, so an operation
    /// fails only if the disk does.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        need: Need,
        call: impl FnOnce(&WriteTransaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.submit(need, None, call).await
    }

    /// The same, for an operation that adds about so many bytes and is refused if the disk is nearly full.
    pub(super) async fn add<T: Send + 'static>(
        &self,
        bytes: u64,
        call: impl FnOnce(&WriteTransaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.submit(Need::Durable, Some(bytes), call).await
    }

    async fn submit<T: Send + 'static>(
        &self,
        need: Need,
        adds: Option<u64>,
        call: impl FnOnce(&WriteTransaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let operation = Box::new(PendingCall { call: Some(call), value: None, answer });
        let sent = self.operations.as_ref().map(|operations| operations.send(Queued { need, adds, operation }));
        sent.and_then(std::result::Result::ok).ok_or(FileError::Closed)?;
        answered.await.map_err(|_| FileError::Closed)?
    }
}

fn write(disk: &Disk, waiting: &Receiver<Queued>) {
    // Whether there are changes that are not on the disk.
    let mut unwritten = false;
    loop {
        let first = if unwritten {
            match waiting.try_recv() {
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => break,
                Ok(queued) => Some(queued),
            }
        } else {
            let Ok(queued) = waiting.recv() else { break };
            Some(queued)
        };
        let mut batch: Vec<Queued> = first.into_iter().collect();
        batch.extend(waiting.try_iter().take(BATCH.saturating_sub(batch.len())));
        let batch = refuse_if_full(disk, batch);
        let asked = batch.iter().map(|queued| queued.need).max();
        // What was promised to follow at once follows with this batch.
        let need = if unwritten { Some(Need::Durable) } else { asked };
        let Some(need) = need else { continue };
        // After a durable commit they are on the disk; after a failed one they are lost, because it was opened again.
        unwritten = commit(disk, batch, need) && need != Need::Durable;
    }
    // The last commit makes everything durable.
    if unwritten {
        commit(disk, vec![], Need::Durable);
    }
}

/// Refuses operations for which the disk has no room, and returns the others.
fn refuse_if_full(disk: &Disk, batch: Vec<Queued>) -> Vec<Queued> {
    let added: u64 = batch.iter().filter_map(|queued| queued.adds).sum();
    if batch.iter().all(|queued| queued.adds.is_none()) || disk.has_room(added) {
        return batch;
    }
    let (refused, kept): (Vec<_>, Vec<_>) = batch.into_iter().partition(|queued| queued.adds.is_some());
    for queued in refused {
        queued.operation.answer(Err(FileError::Full));
    }
    kept
}

/// Carries out operations in one transaction and answers them. Returns whether that succeeded.
fn commit(disk: &Disk, mut batch: Vec<Queued>, need: Need) -> bool {
    let write = || {
        disk.write(|transaction| {
            transaction.set_durability(if need == Need::Durable { Durability::Immediate } else { Durability::None });
            batch.iter_mut().try_for_each(|queued| queued.operation.run(transaction))
        })
    };
    // The thread outlives an operation that panics: the transaction is undone, and those who wait are answered.
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(write)).unwrap_or(Err(FileError::Panicked));
    if outcome.is_err() {
        disk.reopen();
    }
    let succeeded = outcome.is_ok();
    for queued in batch {
        queued.operation.answer(outcome.clone());
    }
    succeeded
}
