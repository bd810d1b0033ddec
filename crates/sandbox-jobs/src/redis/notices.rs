//! Notifications: one connection, on which Redis says which jobs have changed and that work has been queued.
//!
//! It serves every follower of this server, so that waiting costs no commands. A notification can be lost with the connection;
//! therefore all who wait are woken when it is lost and when it is back, and look for themselves.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::RedisResult;
use redis::aio::PubSubSink;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio_stream::StreamExt;

use super::link::{Backoff, RedisLink, within};
use crate::model::JobId;

/// How often a silent connection is checked, and how long it has to answer.
const CHECK: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3));

/// The most channels in one command.
const AT_ONCE: usize = 500;

/// The name of the channel for work, after the prefix. Jobs have channels with their ids.
pub(super) const WORK: &str = "work";

/// Listens for notifications until it is dropped.
pub(super) struct Notices {
    board: Arc<NoticeBoard>,
    task: AbortHandle,
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The notifications that tasks wait for.
struct NoticeBoard {
    state: Mutex<BoardState>,
    /// The set of followed jobs has changed.
    reconcile: Notify,
    work: watch::Sender<u64>,
}

#[derive(Default)]
struct BoardState {
    jobs: HashMap<JobId, FollowedJob>,
    /// Jobs whose subscription may have to change; only while there is a connection.
    changed: HashSet<JobId>,
    connected: bool,
}

struct FollowedJob {
    changes: watch::Sender<u64>,
    followers: usize,
}

/// Waits for changes of a job.
pub struct RedisWatch {
    board: Arc<NoticeBoard>,
    id: JobId,
    changes: watch::Receiver<u64>,
}

impl std::fmt::Debug for RedisWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisWatch").field("id", &self.id).finish_non_exhaustive()
    }
}

impl RedisWatch {
    /// Waits until the job may have changed.
    pub(crate) async fn changed(&mut self) {
        if self.changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for RedisWatch {
    fn drop(&mut self) {
        let mut state = self.board.state();
        if let Some(job) = state.jobs.get_mut(&self.id) {
            job.followers -= 1;
            if job.followers == 0 {
                state.jobs.remove(&self.id);
                self.board.note(state, self.id);
            }
        }
    }
}

impl NoticeBoard {
    fn state(&self) -> MutexGuard<'_, BoardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The subscription of a job may have to change.
    fn note(&self, mut state: MutexGuard<'_, BoardState>, id: JobId) {
        if state.connected {
            state.changed.insert(id);
            self.reconcile.notify_one();
        }
    }

    fn wake(&self, id: JobId) {
        if let Some(job) = self.state().jobs.get(&id) {
            job.changes.send_modify(|count| *count += 1);
        }
    }

    fn wake_all(&self) {
        for job in self.state().jobs.values() {
            job.changes.send_modify(|count| *count += 1);
        }
        self.work.send_modify(|count| *count += 1);
    }
}

impl Notices {
    /// Begins to listen. All channels have this prefix.
    pub(super) fn listen(link: Arc<RedisLink>, prefix: String) -> Self {
        let board = NoticeBoard { state: Mutex::default(), reconcile: Notify::new(), work: watch::Sender::new(0) };
        let board = Arc::new(board);
        let task = tokio::spawn(keep_listening(Arc::clone(&board), link, prefix)).abort_handle();
        Self { board, task }
    }

    /// Follows a job.
    pub(super) fn follow(&self, id: JobId) -> RedisWatch {
        let mut state = self.board.state();
        let job = state.jobs.entry(id).or_insert_with(|| FollowedJob { changes: watch::Sender::new(0), followers: 0 });
        job.followers += 1;
        let (changes, is_new) = (job.changes.subscribe(), job.followers == 1);
        if is_new {
            self.board.note(state, id);
        }
        RedisWatch { board: Arc::clone(&self.board), id, changes }
    }

    /// Whether notifications arrive now. Otherwise it is better to look.
    pub(super) fn are_heard(&self) -> bool {
        self.board.state().connected
    }

    /// Wakes when there may be work.
    pub(super) fn work(&self) -> watch::Receiver<u64> {
        self.board.work.subscribe()
    }
}

async fn keep_listening(board: Arc<NoticeBoard>, link: Arc<RedisLink>, prefix: String) {
    let mut backoff = Backoff::default();
    loop {
        let heard = listen(&board, &link, &prefix, &mut backoff).await;
        {
            let mut state = board.state();
            state.connected = false;
            state.changed.clear();
        }
        if heard {
            // The other connection may well be lost too; a call should not have to find out.
            link.renew();
            board.wake_all();
        }
        tokio::time::sleep(backoff.next()).await;
    }
}

/// Listens until the connection is lost. Returns whether there was one.
async fn listen(board: &NoticeBoard, link: &RedisLink, prefix: &str, backoff: &mut Backoff) -> bool {
    let Ok(connection) = link.notifications().await else { return false };
    let (mut sink, mut messages) = connection.split();
    let mut subscribed = HashSet::new();
    if within(CHECK.1, sink.subscribe(format!("{prefix}:{WORK}"))).await.is_err() {
        return true;
    }
    {
        let mut state = board.state();
        state.connected = true;
        state.changed = state.jobs.keys().copied().collect();
    }
    if reconcile(board, &mut sink, &mut subscribed, prefix).await.is_err() {
        return true;
    }
    backoff.reset();
    board.wake_all();
    loop {
        tokio::select! {
            message = messages.next() => {
                let Some(message) = message else { return true };
                let channel = message.get_channel_name();
                match channel.rsplit(':').next() {
                    Some(WORK) => board.work.send_modify(|count| *count += 1),
                    Some(id) => {
                        if let Ok(id) = id.parse() {
                            board.wake(id);
                        }
                    }
                    None => {}
                }
            }
            () = board.reconcile.notified() => {
                if reconcile(board, &mut sink, &mut subscribed, prefix).await.is_err() {
                    return true;
                }
            }
            () = tokio::time::sleep(CHECK.0) => {
                if within::<redis::Value>(CHECK.1, sink.ping()).await.is_err() {
                    return true;
                }
            }
        }
    }
}

/// Subscribes to the channels of jobs that are followed now, and unsubscribes from the others.
async fn reconcile(
    board: &NoticeBoard,
    sink: &mut PubSubSink,
    subscribed: &mut HashSet<JobId>,
    prefix: &str,
) -> RedisResult<()> {
    let (mut more, mut less) = (vec![], vec![]);
    {
        let mut state = board.state();
        for id in std::mem::take(&mut state.changed) {
            match (state.jobs.contains_key(&id), subscribed.contains(&id)) {
                (true, false) => more.push(id),
                (false, true) => less.push(id),
                _ => {}
            }
        }
    }
    let channels = |ids: &[JobId]| ids.iter().map(|id| format!("{prefix}:{id}")).collect::<Vec<_>>();
    for ids in more.chunks(AT_ONCE) {
        within(CHECK.1, sink.subscribe(channels(ids))).await?;
        for id in ids {
            subscribed.insert(*id);
            // It may have changed before the subscription.
            board.wake(*id);
        }
    }
    for ids in less.chunks(AT_ONCE) {
        within(CHECK.1, sink.unsubscribe(channels(ids))).await?;
        for id in ids {
            subscribed.remove(id);
        }
    }
    Ok(())
}
