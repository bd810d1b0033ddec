//! The next keeper sweeps what a killed one left.

use std::time::{Duration, SystemTime};

use sandbox_testing::command::{group_parents, groups, python};
use sandbox_testing::needs;

#[test]
fn groups_of_a_keeper_that_was_killed_are_swept() {
    if !needs::root() {
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
