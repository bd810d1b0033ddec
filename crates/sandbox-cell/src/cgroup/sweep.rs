//! The sweep after a crash: a keeper removes the cgroups of killed keepers.
//!
//! A live keeper has a cgroup for each of its cells in each hierarchy, and a keeper of a single command sweeps too. So
//! the sweep looks up each other keeper once, and the age only of cgroups whose keeper is missing.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use super::{PREFIX, start_time};

/// How long the cgroup of a missing keeper is left alone: the keeper may exist where this process cannot see it.
const SWEEP_AGE: Duration = Duration::from_secs(10);

/// Removes cgroups in these directories whose keeper no longer lives. `own` is the name of this process's cgroups.
pub(super) fn sweep<'a>(parents: impl IntoIterator<Item = &'a Path>, own: &str) {
    let mut keepers = LiveKeepers::new(own);
    for entry in parents.into_iter().flat_map(std::fs::read_dir).flatten().flatten() {
        let name = entry.file_name();
        let Some(keeper) = name.to_str().and_then(keeper_of) else { continue };
        if keepers.contains(keeper) {
            continue;
        }
        let age = entry.metadata().and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
        if age.is_some_and(|age| age > SWEEP_AGE) {
            remove_tree(&entry.path());
        }
    }
}

/// The process id and start time of a keeper.
type KeeperId = (u64, u64);

/// The keeper that a cgroup belongs to, from the cgroup's name.
fn keeper_of(group: &str) -> Option<KeeperId> {
    let mut parts = group.strip_prefix(PREFIX)?.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Which keepers live, looked up once each.
struct LiveKeepers(HashMap<KeeperId, bool>);

impl LiveKeepers {
    /// This process lives.
    fn new(own: &str) -> Self {
        Self(keeper_of(own).map(|keeper| (keeper, true)).into_iter().collect())
    }

    fn contains(&mut self, keeper: KeeperId) -> bool {
        let (pid, start) = keeper;
        *self.0.entry(keeper).or_insert_with(|| start_time(&pid.to_string()) == Some(start))
    }
}

/// Removes the cgroups in `parent` of a keeper with this name, of which no process is left.
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

/// Removes a cgroup and its descendants. Cgroups that contain processes stay.
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

    use super::super::{name_of, own_name};
    use super::*;

    #[test]
    fn sweep_keeps_cgroups_of_live_keepers_recent_ones_and_foreign_ones() {
        let dir = tempfile::tempdir().expect("tempdir");
        let old = std::time::SystemTime::now() - 2 * SWEEP_AGE;
        let own = own_name();
        let other = format!("{}-3", name_of(rustix::process::getppid().expect("a parent")));
        for (name, aged) in [
            (own.as_str(), true),
            (other.as_str(), true),
            ("sandbox-run-999999999-1", true),
            ("sandbox-run-999999999-2-7", false),
            ("sandbox-run-else", true),
            ("else", true),
        ] {
            let path = dir.path().join(name);
            std::fs::create_dir(&path).expect("mkdir");
            if aged {
                File::open(&path).and_then(|f| f.set_modified(old)).expect("age");
            }
        }
        sweep([dir.path()], &own);
        let exists = |name: &str| dir.path().join(name).exists();
        assert!(exists(&own));
        assert!(exists(&other));
        assert!(!exists("sandbox-run-999999999-1"));
        assert!(exists("sandbox-run-999999999-2-7"));
        assert!(exists("sandbox-run-else"));
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
