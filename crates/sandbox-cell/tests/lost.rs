//! Cells whose init does not respond: it was stopped, or frozen so that not even SIGKILL ends it. Callers get an
//! answer, and the keeper continues to serve others.
//!
//! The keeper is this same program, started once more, so this file has a custom `main`.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

#[allow(dead_code, reason = "each test binary uses its part")]
mod harness;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use harness::{Test, conclude, run, start};
use rustix::process::{Pid, Signal, kill_process};
use sandbox_base::LimitKind;
use sandbox_base::limits::{Caps, Limits};
use sandbox_cell::{Cell, CellEnd, CellSpec, Keeper, Role, RunStatus, StopReason};
use sandbox_testing::frozen::{Frozen, field, find};
use sandbox_testing::{eventually, needs};

fn main() {
    sandbox_cell::keeper_main_if_asked(None);
    let tests: &[Test] = &[
        ("an_init_that_was_stopped_is_killed_at_the_deadline", stopped_init),
        ("a_cell_that_survives_sigkill_is_given_up", frozen_cell),
        ("a_frozen_zygote_namespace_delays_no_other_cell", frozen_zygote_namespace),
    ];
    // Each needs root, to signal processes in a cell; all but the first freeze some.
    let (root, freezer) = (needs::root(), needs::freezer());
    let can_run = |name: &str| root && (freezer || name == tests[0].0);
    conclude(tests, can_run, ("a_killed_init_is_not_reported_as_success", killed_init));
}

/// Long enough for any answer on a busy host; only a hang takes longer.
const LONG: Duration = Duration::from_secs(30);

/// The result of an action, which must not hang.
fn in_time<T: Send + 'static>(what: &str, action: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(action()));
    receiver.recv_timeout(LONG).unwrap_or_else(|_| panic!("never returned: {what}"))
}

fn short() -> CellSpec {
    let mut limits = Limits::default();
    limits.set(LimitKind::WallTime, 500_000, &Caps::default()).unwrap();
    CellSpec { limits, ..CellSpec::new() }
}

/// Starts a program in a cell and returns the host ids of its process and of its init.
fn start_and_find(cell: &mut Cell) -> (u32, u32) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    cell.ready().unwrap();
    // These arguments are unique.
    let mark = format!("7{:03}{}", NEXT.fetch_add(1, Ordering::Relaxed), std::process::id());
    start(cell, &["sleep", &mark]);
    let found = find(&["sleep", &mark]);
    // If init is stopped before it has reported the start, it has a minute for that, not the program's time.
    eventually("the keeper knows that it runs", || cell.metrics().unwrap().wall > Duration::ZERO);
    found
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

/// Another cell works as usual.
fn others_go_on(keeper: &Keeper) {
    let keeper = keeper.clone();
    let status = in_time("another cell", move || {
        let mut cell = keeper.create(&CellSpec::new()).unwrap();
        run(&mut cell, &["true"], None).0.status
    });
    assert_eq!(status, RunStatus::Exited(0));
}

fn stopped_init(keeper: &Keeper) {
    let mut cell = keeper.create(&short()).unwrap();
    let (_, init) = start_and_find(&mut cell);
    signal(init, Signal::STOP);
    let outcome = in_time("the end of a cell whose init was stopped", move || cell.wait().unwrap());
    assert_eq!(outcome.stopped, Some(StopReason::Limit(LimitKind::WallTime)));
    assert_eq!(outcome.end, CellEnd::InitDied);
}

fn killed_init(keeper: &Keeper) {
    let mut cell = keeper.create(&CellSpec::new()).unwrap();
    let (_, init) = start_and_find(&mut cell);
    signal(init, Signal::KILL);
    let outcome = in_time("the end of a cell whose init was killed", move || cell.wait().unwrap());
    assert_eq!((outcome.stopped, outcome.end), (None, CellEnd::InitDied));
}

fn frozen_cell(keeper: &Keeper) {
    let mut cell = keeper.create(&short()).unwrap();
    let (program, init) = start_and_find(&mut cell);
    let owner = field(program, "Uid:");
    let frozen = Frozen::new(&[program, init]);
    let (outcome, cell) = in_time("the end of a cell that does not die", move || (cell.wait().unwrap(), cell));
    assert_eq!(outcome.stopped, Some(StopReason::Limit(LimitKind::WallTime)));
    assert_eq!(outcome.end, CellEnd::Lost);
    cell.abandon();
    assert_eq!(keeper.lost_cells(), 1);
    others_go_on(keeper);
    // Its ids are not reused while it lives.
    for _ in 0..5 {
        let mut other = keeper.create(&short()).unwrap();
        let (program, _) = start_and_find(&mut other);
        assert_ne!(field(program, "Uid:"), owner);
    }
    drop(frozen);
    eventually("it is gone", || keeper.lost_cells() == 0);
}

fn frozen_zygote_namespace(keeper: &Keeper) {
    let mut cell = keeper.create(&CellSpec { role: Role::Zygote, ..CellSpec::new() }).unwrap();
    let (program, init) = start_and_find(&mut cell);
    let frozen = Frozen::new(&[program, init]);
    drop(cell);
    others_go_on(keeper);
    drop(frozen);
    others_go_on(keeper);
}
