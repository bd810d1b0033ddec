//! The syscall policy as a seccomp profile for OCI runtimes.
//!
//! Profiles are weaker than the policy. Their rules have no order, so they cannot express an exception to an exception,
//! and a rule about bits cannot mean "any of these". The profile therefore never allows less than the policy and
//! sometimes a little more. The guest installs the exact policy itself before anything runs.

use serde_json::{Value, json};
use syscall_numbers::native::sys_call_name;

use sandbox_cell::bridge::{Exception, Rule, Sockets, SyscallAction, Test, policy};

/// Calls that the guest needs before it locks a cell: it installs filters, and opens mounts with a newer call.
const FOR_SETUP: [&str; 2] = ["seccomp", "openat2"];

/// The profile as it appears in a container's configuration.
pub(super) fn profile() -> Value {
    // Whether a cell has a network is decided later, when the guest creates it.
    let policy = policy(Sockets { internet: true, named: true });
    let mut calls = vec![allow(&FOR_SETUP, &[])];
    let mut plain = vec![];
    for (number, rule) in &policy.rules {
        let Some(name) = sys_call_name(i64::from(*number)) else { continue };
        match when_allowed(rule) {
            When::Always => plain.push(name),
            When::Never => {}
            When::Any(cases) => calls.extend(cases.iter().map(|case| allow(&[name], case))),
        }
    }
    calls.push(allow(&plain, &[]));
    let errno = match policy.unlisted {
        SyscallAction::Errno(errno) => errno,
        SyscallAction::Allow => 0,
    };
    // Older engines do not know this number and answer EPERM. Then no caller falls back to the older call, which the
    // guest relies on.
    calls.push(json!({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno}));
    // Only calls of the native architecture: the same numbers mean other calls elsewhere.
    let architecture = if cfg!(target_arch = "aarch64") { "SCMP_ARCH_AARCH64" } else { "SCMP_ARCH_X86_64" };
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": errno,
        "architectures": [architecture],
        "syscalls": calls,
    })
}

fn allow(names: &[&str], arguments: &[Value]) -> Value {
    let mut rule = json!({"names": names, "action": "SCMP_ACT_ALLOW"});
    if !arguments.is_empty() {
        rule["args"] = json!(arguments);
    }
    rule
}

/// When a call is allowed.
#[derive(Debug, PartialEq)]
enum When {
    Always,
    Never,
    /// In any of these cases; in each of them all tests hold.
    Any(Vec<Vec<Value>>),
}

fn when_allowed(rule: &Rule) -> When {
    let allows = |exception: &&Exception| exception.answer == SyscallAction::Allow;
    if rule.otherwise == SyscallAction::Allow {
        let refusals: Vec<_> = rule.exceptions.iter().filter(|exception| !allows(exception)).collect();
        // None of the tests may hold, as far as a profile can express that. What only two tests together refuse is left
        // to the policy.
        let negated = |exception: &&Exception| match exception.tests.as_slice() {
            [(index, test)] => not(*index, *test),
            _ => None,
        };
        let tests: Vec<Value> = refusals.iter().filter_map(negated).collect();
        let indexes: Vec<_> = tests.iter().map(|test| &test["index"]).collect();
        let once = (0..indexes.len()).all(|at| !indexes[..at].contains(&indexes[at]));
        // Runtimes accept one test for each argument.
        return if tests.is_empty() || !once { When::Always } else { When::Any(vec![tests]) };
    }
    let cases: Vec<Vec<Value>> = rule
        .exceptions
        .iter()
        .filter(allows)
        .map(|exception| exception.tests.iter().filter_map(|(i, t)| is(*i, *t)).collect())
        .collect();
    if cases.is_empty() {
        return When::Never;
    }
    if cases.iter().any(Vec::is_empty) { When::Always } else { When::Any(cases) }
}

const LOW: u64 = 0xffff_ffff;

/// A test that holds whenever the given one does, and possibly more often.
fn is(index: u8, test: Test) -> Option<Value> {
    match test {
        Test::Equals(value) => Some(masked(index, LOW, value.into())),
        Test::HighIsZero | Test::HighEquals(_) | Test::AnyBit(_) | Test::OneOf { .. } => None,
    }
}

/// A test that holds when the given one does not.
fn not(index: u8, test: Test) -> Option<Value> {
    match test {
        Test::Equals(value) => Some(json!({"index": index, "value": u64::from(value), "op": "SCMP_CMP_NE"})),
        Test::AnyBit(bits) => Some(masked(index, bits.into(), 0)),
        Test::HighIsZero | Test::HighEquals(_) | Test::OneOf { .. } => None,
    }
}

fn masked(index: u8, mask: u64, value: u64) -> Value {
    json!({"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(name: &str) -> Vec<Value> {
        let profile = profile();
        let rules = profile["syscalls"].as_array().expect("a list");
        rules
            .iter()
            .filter(|rule| rule["names"].as_array().is_some_and(|names| names.contains(&json!(name))))
            .cloned()
            .collect()
    }

    #[test]
    fn the_profile_allows_everything_that_the_policy_allows() {
        assert!(rules("read").iter().any(|rule| rule.get("args").is_none()));
        for refused in ["mount", "bpf", "io_uring_setup", "userfaultfd", "keyctl", "perf_event_open", "unshare"] {
            assert!(rules(refused).is_empty(), "{refused}");
        }
        let clone = rules("clone");
        assert_eq!(clone[0]["args"][0]["op"], "SCMP_CMP_MASKED_EQ", "{clone:?}");
        assert!(!rules("socket").is_empty());
        assert_eq!(profile()["defaultErrnoRet"], 38);
        for (number, _) in policy(Sockets { internet: true, named: true }).rules {
            assert!(sys_call_name(i64::from(number)).is_some(), "call {number} has no name");
        }
    }
}
