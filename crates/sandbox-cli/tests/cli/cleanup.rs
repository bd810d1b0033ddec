//! The next keeper sweeps what a killed one left.

use std::path::Path;
use std::time::{Duration, SystemTime};

use super::harness::{groups, is_root, python};

/// Where the keeper makes its groups, found from a run's own view of itself.
fn group_parents() -> Vec<std::path::PathBuf> {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let mut parents = vec![];
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next(), parts.next().unwrap(), parts.next().unwrap());
        for controller in controllers.split(',').filter(|c| ["memory", "pids"].contains(c)) {
            parents.push(Path::new("/sys/fs/cgroup").join(controller).join(path.trim_start_matches('/')));
        }
    }
    if parents.is_empty() {
        parents.push("/sys/fs/cgroup".into());
    }
    parents
}

#[test]
fn groups_of_a_keeper_that_was_killed_are_swept() {
    if !is_root() {
        return;
    }
    // No process can have this id and start time: ids end at 4194304.
    let parents = group_parents();
    for parent in &parents {
        std::fs::create_dir(parent.join("sandbox-run-999999999-1-0")).unwrap();
    }
    python("print(1)", &[]);
    assert!(!groups("-999999999-").is_empty(), "a young group may belong to a keeper that cannot be seen");
    // The age is that of the directory, and cannot be set on every kernel; wait as long as the keeper does.
    let made = SystemTime::now();
    while made.elapsed().unwrap() < Duration::from_millis(10_500) {
        std::thread::sleep(Duration::from_millis(100));
    }
    python("print(1)", &[]);
    assert_eq!(groups("-999999999-"), Vec::<std::path::PathBuf>::new());
}
