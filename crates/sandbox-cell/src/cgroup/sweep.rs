//! The sweep after a crash: a keeper removes the groups that killed keepers left behind.

use std::path::Path;
use std::time::Duration;

use super::{PREFIX, start_time};

/// How long a group whose keeper is gone is left alone: it may belong to a keeper that this process cannot see.
const SWEEP_AGE: Duration = Duration::from_secs(10);

/// Removes groups in `parent` whose keeper no longer lives.
pub(super) fn sweep(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(owner) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        let mut parts = owner.split('-');
        let (Some(pid), Some(start)) = (parts.next(), parts.next()) else { continue };
        let alive = start_time(pid).is_some_and(|ticks| ticks.to_string() == start);
        let age = entry.metadata().and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
        if !alive && age.is_some_and(|age| age > SWEEP_AGE) {
            remove_tree(&entry.path());
        }
    }
}

/// Removes groups in `parent` that a keeper with this name has left. It and its processes are dead.
pub(super) fn sweep_after(parent: &Path, keeper: &str) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(keeper));
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-')) {
            remove_tree(&entry.path());
        }
    }
}

/// Removes a group and those below it. Groups with processes in them stay.
pub(super) fn remove_tree(group: &Path) {
    if let Ok(entries) = std::fs::read_dir(group) {
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                remove_tree(&entry.path());
            }
        }
    }
    let _ = std::fs::remove_dir(group);
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::super::own_name;
    use super::*;

    #[test]
    fn sweeping_spares_the_living_the_young_and_the_foreign() {
        let dir = tempfile::tempdir().expect("tempdir");
        let old = std::time::SystemTime::now() - 2 * SWEEP_AGE;
        let own = own_name();
        for (name, aged) in [
            (own.as_str(), true),
            ("sandbox-run-999999999-1", true),
            ("sandbox-run-999999999-2-7", false),
            ("else", true),
        ] {
            let path = dir.path().join(name);
            std::fs::create_dir(&path).expect("mkdir");
            if aged {
                File::open(&path).and_then(|f| f.set_modified(old)).expect("age");
            }
        }
        sweep(dir.path());
        let exists = |name: &str| dir.path().join(name).exists();
        assert!(exists(&own));
        assert!(!exists("sandbox-run-999999999-1"));
        assert!(exists("sandbox-run-999999999-2-7"));
        assert!(exists("else"));
    }

    #[test]
    fn a_successor_removes_only_the_groups_of_its_predecessor() {
        let dir = tempfile::tempdir().expect("tempdir");
        let names = ["sandbox-run-7-1", "sandbox-run-7-1-3", "sandbox-run-7-12", "sandbox-run-71-1"];
        for name in names {
            std::fs::create_dir_all(dir.path().join(name).join("run")).expect("mkdir");
        }
        sweep_after(dir.path(), "sandbox-run-7-1");
        let left: Vec<_> = names.into_iter().filter(|name| dir.path().join(name).exists()).collect();
        assert_eq!(left, ["sandbox-run-7-12", "sandbox-run-71-1"]);
    }
}
