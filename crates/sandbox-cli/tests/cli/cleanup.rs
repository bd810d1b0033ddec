//! The sweep after a crash: the next keeper removes the cgroups of a killed one.

use std::time::{Duration, SystemTime};

use sandbox_testing::command::{group_parents, groups, python};
use sandbox_testing::needs;

#[test]
fn cgroups_of_a_killed_keeper_are_swept() {
    if !needs::root() {
        return;
    }
    // No process can have this id and start time: ids end at 4194304.
    let parents = group_parents();
    for parent in &parents {
        std::fs::create_dir(parent.join("sandbox-run-999999999-1-0")).unwrap();
    }
    python("print(1)", &[]);
    assert!(!groups("-999999999-").is_empty(), "a recent cgroup may belong to a keeper that is not visible");
    // The age is that of the directory, and cannot be set on every kernel; wait as long as the keeper does.
    let made = SystemTime::now();
    while made.elapsed().unwrap() < Duration::from_millis(10_500) {
        std::thread::sleep(Duration::from_millis(100));
    }
    python("print(1)", &[]);
    assert_eq!(groups("-999999999-"), Vec::<std::path::PathBuf>::new());
}
