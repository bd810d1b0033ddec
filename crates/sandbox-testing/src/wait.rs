//! Waiting, with a deadline that only a hang exceeds, and processes that end with their test.

use std::ops::{Deref, DerefMut};
use std::process::Child;
use std::time::{Duration, Instant};

/// How long a test waits for anything: longer than the slowest host takes.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Waits for a condition to become true.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process that is killed when its test ends, however it ends.
#[derive(Debug)]
pub struct GuardedChild(pub Child);

impl Deref for GuardedChild {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for GuardedChild {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for GuardedChild {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
