//! Helpers for the tests of the library. A keeper is the test program itself, started once more, so tests have a `main`
//! that can become one.

use std::io::{Read, Seek};
use std::os::fd::AsFd;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use sandbox_cell::archive::Archive;
use sandbox_cell::{Cell, Command, Keeper, Outcome, Start, Stdio, null};

/// A test's name and its function, which gets a keeper.
pub(crate) type Test = (&'static str, fn(&Keeper));

/// Runs tests with a shared keeper, unless this host cannot run them, and one test with a dedicated keeper, for settings
/// that can be made only once. Others are reported as ignored.
pub(crate) fn conclude(tests: &[Test], can_run: impl Fn(&str) -> bool, once: Test) -> ! {
    let arguments = Arguments::from_args();
    let shared = Arc::new(Keeper::start().unwrap());
    let own = Arc::new(Keeper::start().unwrap());
    let trial = |(name, test): Test, keeper: &Arc<Keeper>| {
        let keeper = Arc::clone(keeper);
        Trial::test(name, move || {
            test(&keeper);
            Ok(())
        })
    };
    let trials = tests.iter().map(|test| trial(*test, &shared).with_ignored_flag(!can_run(test.0)));
    let trials = trials.chain([trial(once, &own)]).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop((shared, own));
    conclusion.exit();
}

/// Runs a command in a cell and returns its output.
pub(crate) fn run(cell: &mut Cell, argv: &[&str], files: Option<&Archive>) -> (Outcome, String) {
    let mut output = tempfile::tempfile().unwrap();
    let null = null().unwrap();
    let stdio = Stdio { stdin: null.as_fd(), stdout: output.as_fd(), stderr: output.as_fd() };
    let outcome = cell.run(&Command::new(argv), stdio, files).unwrap();
    let mut text = String::new();
    output.rewind().unwrap();
    output.read_to_string(&mut text).unwrap();
    (outcome, text)
}

/// Starts a command without input or output.
pub(crate) fn start(cell: &Cell, argv: &[&str]) {
    let null = null().unwrap();
    let stdio = Stdio { stdin: null.as_fd(), stdout: null.as_fd(), stderr: null.as_fd() };
    cell.start(&Start::new(&Command::new(argv), stdio)).unwrap();
}
