//! What a test needs from its host. Without it, the test fails in CI and prints a `skipped:` line elsewhere.

use std::io::Write;
use std::path::Path;

/// Variables that forbid skipping a test.
const REQUIRED: [&str; 2] = ["CI", "SANDBOX_TEST_REQUIRE"];

/// Whether a test that needs root may continue.
#[must_use = "return from the test if this is false"]
pub fn root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    that("root", status.lines().any(|line| line.starts_with("Uid:\t0\t")))
}

/// Whether a test that needs a program of the host may continue.
#[must_use = "return from the test if this is false"]
pub fn program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = Path::new(name).is_absolute() && Path::new(name).exists()
        || std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    that(name, found)
}

/// Whether a test that needs a feature of the host may continue.
#[must_use = "return from the test if this is false"]
pub fn that(what: &str, there: bool) -> bool {
    if !there {
        let required = REQUIRED.iter().any(|name| std::env::var_os(name).is_some());
        assert!(!required, "this test needs {what}, and CI must not skip it");
        skipped(what);
    }
    there
}

/// Reports a test, or the rest of one, that some supported hosts cannot run. CI runs it on another host.
pub fn skipped(what: &str) {
    let thread = std::thread::current();
    // Not by a macro: the test harness would capture the line.
    let _ = writeln!(std::io::stderr(), "skipped: {} needs {what}", thread.name().unwrap_or("a test"));
}
