//! The bridge's handling of messages from inside its container.

use std::io;

use super::Bridge;
use crate::frames::{FromGuest, WINDOW};
use crate::group::{OWN_MEMORY, OWN_PROCESSES};
use sandbox_base::limits::LimitKind;
use sandbox_cell::bridge::FromCell;
use sandbox_cell::{CellEnd, Failure, Outcome, RunStatus, StopReason, Usage};

impl Bridge<'_> {
    /// Receives messages from the guest. Returns false when the guest is gone.
    pub(super) fn receive_from_guest(&mut self) -> Result<bool, Failure> {
        let invalid = |error: io::Error| Failure::os("invalid message from the container", error);
        let more = match self.incoming.read(&mut self.from) {
            Ok(more) => more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(invalid(error)),
        };
        // One frame at a time: output that cannot be written blocks the frames after it.
        while let Some(message) = self.incoming.next().map_err(invalid)? {
            self.on_message(message)?;
            while self.running.as_ref().is_some_and(|run| run.blocked.is_some()) {
                self.wait_for_reader()?;
            }
        }
        Ok(more)
    }

    /// Waits until blocked output can continue, or until the caller sends a message.
    fn wait_for_reader(&mut self) -> Result<(), Failure> {
        let [caller, _, _] = self.wait()?;
        self.write();
        self.unblock();
        if caller
            && !self.receive_from_caller()?
            && let Some(run) = &mut self.running
        {
            run.blocked = None;
        }
        self.on_time()
    }

    fn on_message(&mut self, message: FromGuest) -> Result<(), Failure> {
        match (message, &mut self.running) {
            (FromGuest::Ready { isolation, .. }, _) if self.ready.is_none() => {
                let isolation = isolation.union(self.container.provides());
                if let Some(layer) = self.spec.required.without(isolation).iter().next() {
                    let why = "the backend does not provide it";
                    return Err(Failure::missing(layer, why));
                }
                self.ready = Some(isolation);
                let prepare = self.began.elapsed();
                self.tell(&FromCell::Ready {
                    isolation,
                    prepare,
                    zygote_namespace: None,
                    id: None,
                    key: None,
                    landlock: false,
                });
                self.take_command()
            }
            (FromGuest::Room(room), Some(run)) => {
                run.room = WINDOW.min(run.room + usize::try_from(room).unwrap_or(0));
                Ok(())
            }
            (FromGuest::Output { error, bytes }, Some(run)) if !run.ended => {
                run.blocked = Some((usize::from(error), bytes));
                self.unblock();
                Ok(())
            }
            (FromGuest::Ended(outcome), Some(run)) if !run.ended => {
                run.ended = true;
                let outcome = self.complete(*outcome);
                self.tell(&FromCell::Ended(Box::new(outcome)));
                Ok(())
            }
            (FromGuest::Collected(bytes), Some(run)) => {
                if bytes.is_empty() {
                    run.collect = None;
                } else if let Some(collect) = &mut run.collect
                    && io::Write::write_all(collect, &bytes).is_err()
                {
                    run.collect = None;
                }
                Ok(())
            }
            (FromGuest::Sample(usage), _) => {
                let usage = self.counted(usage);
                self.tell(&FromCell::Sample(usage));
                Ok(())
            }
            (FromGuest::Failed(failure), _) => {
                self.running = None;
                self.tell(&FromCell::Failed(failure));
                Ok(())
            }
            // The container is untrusted: ignore a message that does not fit the current state.
            _ => Ok(()),
        }
    }

    /// Resource usage, as counted by the container's cgroup.
    fn counted(&self, usage: Usage) -> Usage {
        let Some(now) = self.container.counters() else { return usage };
        let cpu = now.cpu.saturating_sub(self.before.cpu);
        let share = if usage.cpu.is_zero() { 1.0 } else { usage.cpu_user.as_secs_f64() / usage.cpu.as_secs_f64() };
        let cpu_user = cpu.mul_f64(share.clamp(0.0, 1.0));
        let processes_peak = usage.processes_peak.max(now.processes_peak.saturating_sub(OWN_PROCESSES));
        let memory_peak = now.memory_peak.saturating_sub(OWN_MEMORY.min(now.memory_peak / 2));
        Usage { cpu, cpu_user, cpu_system: cpu.saturating_sub(cpu_user), memory_peak, processes_peak, ..usage }
    }

    /// Adds to an outcome what can only be observed from outside.
    fn complete(&self, mut outcome: Outcome) -> Outcome {
        outcome.usage = self.counted(outcome.usage);
        if let Some(now) = self.container.counters() {
            if now.oom_kills > self.before.oom_kills {
                outcome.stopped = Some(StopReason::Limit(LimitKind::Memory));
            }
            let limit = self.spec.limits.processes();
            if now.processes_refused > self.before.processes_refused
                && !outcome.reached.iter().any(|(kind, _)| *kind == LimitKind::Processes)
            {
                outcome.reached.push((LimitKind::Processes, limit));
            }
        }
        outcome
    }

    /// The container is gone. If the bridge or a limit ended it, that is how the command ended.
    pub(super) fn on_gone(&mut self) -> Result<(), Failure> {
        let Some(run) = self.running.as_ref().filter(|_| self.ready.is_some()) else {
            return Err(self.failure("cannot start the container", "it ended at once"));
        };
        if run.ended {
            return Ok(());
        }
        let stopped = run.reason;
        let usage = Usage { wall: self.spec.limits.wall_time(), ..Usage::default() };
        let (status, end) = (RunStatus::Signaled(libc::SIGKILL), CellEnd::InitDied);
        let outcome = Outcome { status, stopped, reached: vec![], usage, end };
        let outcome = self.complete(outcome);
        if outcome.stopped.is_none() {
            return Err(self.failure("the container is gone", "it ended before the program"));
        }
        self.tell(&FromCell::Ended(Box::new(outcome)));
        Ok(())
    }
}
