//! The sandbox under attack: nothing is breached as root and as an ordinary user, the absence of every layer is
//! noticed, and deadlines hold when fifty hostile programs run at once.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sandbox_testing::command::{binary, fixture, in_container, keep_report, result, sandbox};
use sandbox_testing::{GuardedChild, data_dir, eventually, needs};
use serde_json::Value;

/// Time is measured here, so the tests run one by one.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The attacks of a report with a certain outcome.
fn ended<'r>(report: &'r Value, outcome: &str) -> Vec<&'r Value> {
    report["attacks"].as_array().unwrap().iter().filter(|attack| attack["outcome"] == outcome).collect()
}

/// The files in the places where suites plant them.
fn planted() -> BTreeSet<OsString> {
    let names = ["/tmp", "/var/tmp", "/dev/shm"].map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten());
    names
        .into_iter()
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().starts_with("sandbox-attack-"))
        .collect()
}

#[test]
fn every_attack_is_stopped() {
    if !needs::root() {
        return;
    }
    let _alone = alone();
    let before = planted();
    let output = sandbox(&["attack", "--json"]).env("SANDBOX_DATA_DIR", data_dir()).output().unwrap();
    let report = result(&output);
    keep_report("root", &report);
    assert_eq!(ended(&report, "breached"), Vec::<&Value>::new());
    assert_eq!(ended(&report, "not_attempted"), Vec::<&Value>::new());
    assert_eq!((&report["left_behind"], planted().is_subset(&before)), (&serde_json::json!([]), true));
    assert_eq!((output.status.code(), &report["success"]), (Some(0), &true.into()));
    assert!(ended(&report, "stopped").len() > 100);
    // If an attack that is documented as a known limit is stopped, the documents are out of date.
    let known: Vec<_> = ended(&report, "known").iter().map(|attack| attack["name"].clone()).collect();
    assert_eq!(known, ["interfere/locks.c", "deceive/forged-checks.py"]);
}

/// Copies the artifacts that were prepared for Go, which take a minute to build, for another user, if they exist.
fn share_prepared(data: &Path, owner: &str) {
    let from = data_dir().join("environments");
    let to = data.join("environments");
    std::fs::create_dir_all(&to).unwrap();
    for entry in std::fs::read_dir(from).into_iter().flatten().flatten() {
        if entry.path().join("content/importcfg").exists() {
            let copied = Command::new("cp").arg("-r").arg(entry.path()).arg(&to).status().unwrap();
            assert!(copied.success());
        }
    }
    assert!(Command::new("chown").args(["-R", owner]).arg(&to).status().unwrap().success());
}

#[test]
fn every_attack_is_stopped_in_warm_cells() {
    if !needs::root() {
        return;
    }
    let _alone = alone();
    let output = sandbox(&["attack", "--warm", "--json"]).env("SANDBOX_DATA_DIR", data_dir()).output().unwrap();
    let report = result(&output);
    assert_eq!(ended(&report, "breached"), Vec::<&Value>::new());
    assert_eq!((output.status.code(), &report["left_behind"]), (Some(0), &serde_json::json!([])));
    let started = |how: &str| {
        let attacks = report["attacks"].as_array().unwrap();
        attacks.iter().filter(|attack| attack["start"] == how).count()
    };
    // Cells with a network or another disk size are created on demand, and so are those that are needed too early.
    assert!(started("warm") >= 5 && started("ready") >= 10, "{} warm, {} ready", started("warm"), started("ready"));
}

#[test]
fn every_attack_is_stopped_for_an_ordinary_user() {
    if !needs::root() {
        return;
    }
    let _alone = alone();
    // In a directory that the user can reach.
    let dir = tempfile::Builder::new().permissions(PermissionsExt::from_mode(0o755)).tempdir().unwrap();
    let (program, data) = (dir.path().join("sandbox-run"), dir.path().join("data"));
    std::fs::copy(binary(), &program).unwrap();
    std::fs::create_dir(&data).unwrap();
    chown(&data, Some(4321), Some(4321)).unwrap();
    share_prepared(&data, "4321:4321");
    let user = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "4321", "--regid", "4321", "--clear-groups", "--inh-caps=-all"]).arg(&program);
        command.args(args).stdin(Stdio::null()).current_dir("/").env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("SANDBOX_DATA_DIR", &data);
        command.output().unwrap()
    };
    let output = user(&["attack", "--json"]);
    let report = result(&output);
    keep_report("user", &report);
    assert_eq!(ended(&report, "breached"), Vec::<&Value>::new());
    assert_eq!((output.status.code(), &report["left_behind"]), (Some(0), &serde_json::json!([])));
    for attack in ended(&report, "not_attempted") {
        let why = attack["why"].as_str().unwrap();
        // Toolchains in root's home directory are not available to the user, nor are CPU shares.
        assert!(["needs root", "needs cpu"].contains(&why) || why.starts_with("needs a toolchain"), "{attack:#}");
    }
    assert!(ended(&report, "stopped").len() > 90);
    // The absence of layers that a user can disable is noticed; the others are reported as untested.
    #[cfg(feature = "canary")]
    {
        let canary = result(&user(&["attack", "--canary", "--json"]));
        assert_eq!(canary["success"], true, "{:#}", canary["layers"]);
        assert_eq!(
            (&canary["layers"]["pid"]["testable"], &canary["layers"]["mount"]["noticed"]),
            (&false.into(), &true.into())
        );
    }
}

/// The attacks that succeed without namespaces and cgroups, according to the headers of the programs.
const KNOWN_WITHOUT_NAMESPACES: [&str; 9] = [
    "secrets/home-directories.sh",
    "secrets/host-name.py",
    "secrets/owners.py",
    "exhaust/kernel-memory.c",
    "exhaust/memory-of-files.py",
    "exhaust/names-not-found.c",
    "interfere/locks.c",
    "interfere/see-processes.c",
    "deceive/forged-checks.py",
];

#[test]
fn every_attack_is_stopped_or_known_without_namespaces() {
    if !needs::root() {
        return;
    }
    let _alone = alone();
    for user in ["root", "user"] {
        let before = planted();
        let data = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::set_permissions(data.path(), PermissionsExt::from_mode(0o1777)).unwrap();
        share_prepared(data.path(), if user == "root" { "0:0" } else { "4322:4322" });
        let mut command = in_container(user, data.path(), &["attack", "--json"]);
        let output = command.env("SANDBOX_ISOLATION", "reduced").output().unwrap();
        let report = result(&output);
        keep_report(&format!("container-{user}"), &report);
        assert_eq!(ended(&report, "breached"), Vec::<&Value>::new(), "{user}");
        let names = std::fs::read_dir(data.path()).unwrap().flatten().map(|entry| entry.file_name());
        let left: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with("sandbox-")).collect();
        assert_eq!(
            (&report["left_behind"], planted().is_subset(&before), left),
            (&serde_json::json!([]), true, vec![]),
            "{user}"
        );
        assert_eq!((output.status.code(), &report["success"]), (Some(0), &true.into()), "{user}");
        for attack in ended(&report, "not_attempted") {
            let why = attack["why"].as_str().unwrap();
            let missing =
                ["needs root", "needs key", "needs sysv", "needs cpu", "needs x86_64", "needs terminal"].contains(&why);
            let no_network = why.contains("there is no network namespace");
            assert!(missing || no_network || why.starts_with("needs a toolchain"), "{user}: {attack:#}");
        }
        let stopped = ended(&report, "stopped").len();
        assert!(stopped > 90, "{user}: {stopped}");
        let known = ended(&report, "known");
        let names: Vec<_> = known.iter().map(|attack| attack["name"].as_str().unwrap()).collect();
        // Only root can change the owner of files.
        let there = |name: &&str| user == "root" || *name != "secrets/owners.py";
        let expected: Vec<_> = KNOWN_WITHOUT_NAMESPACES.into_iter().filter(there).collect();
        assert_eq!(names, expected, "{user}");
        // A known limit does not excuse a leaked secret or a change outside.
        for attack in known {
            for evidence in attack["evidence"].as_array().unwrap() {
                let evidence = evidence.as_str().unwrap();
                let is_weak = ["it reports that it got through", "it learnt the host name", "the verdict is"]
                    .iter()
                    .any(|words| evidence.starts_with(words))
                    || evidence == "it learnt a secret: the owner of a file";
                assert!(is_weak, "{user}: {attack:#}");
            }
        }
    }
}

#[cfg(not(feature = "canary"))]
#[test]
fn builds_without_the_feature_cannot_disable_layers() {
    let refused = sandbox(&["attack", "--canary"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("unexpected argument '--canary'"));
}

#[cfg(feature = "canary")]
#[test]
fn the_absence_of_every_layer_is_noticed() {
    if !needs::root() {
        return;
    }
    let _alone = alone();
    let before = planted();
    let output = sandbox(&["attack", "--canary", "--json"]).env("SANDBOX_DATA_DIR", data_dir()).output().unwrap();
    let report = result(&output);
    for (layer, found) in report["layers"].as_object().unwrap() {
        assert_eq!((&found["testable"], &found["noticed"]), (&true.into(), &true.into()), "{layer}: {report:#}");
    }
    // On this host every call that attacks try exists, so each of them must see the difference.
    let missed: Vec<_> = report["trials"].as_array().unwrap().iter().filter(|trial| trial["noticed"] != true).collect();
    assert!(missed.iter().all(|trial| trial["expected"] == "breached"), "{missed:#?}");
    assert_eq!(
        (output.status.code(), &report["left_behind"], planted().is_subset(&before)),
        (Some(0), &serde_json::json!([]), true)
    );
}

#[test]
fn an_interrupted_suite_leaves_nothing() {
    let _alone = alone();
    let before = planted();
    let mut command = sandbox(&["attack", "--only", "exhaust"]);
    command.env("SANDBOX_DATA_DIR", data_dir()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = GuardedChild(command.spawn().unwrap());
    eventually("the suite has planted something", || !planted().is_subset(&before));
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(planted().is_subset(&before));
}

#[test]
fn attacks_can_be_selected_and_listed() {
    let _alone = alone();
    let list = sandbox(&["attack", "--list", "--only", "network/"]).output().unwrap();
    let text = String::from_utf8(list.stdout).unwrap();
    assert!(text.contains("network/loopback.py") && !text.contains("escape/"), "{text}");
    let none = sandbox(&["attack", "--only", "there is no such attack"]).output().unwrap();
    assert_eq!(none.status.code(), Some(1), "nothing attempted is not a success");
    let one = sandbox(&["attack", "--only", "host-name"]).env("SANDBOX_DATA_DIR", data_dir()).output().unwrap();
    let text = String::from_utf8(one.stdout).unwrap();
    assert!(text.contains("✓ host-name.py  finds out the name of the host · stopped by uts"), "{text}");
    assert!(text.ends_with("\n1 stopped, 0 breached\n"), "{text}");
}

#[test]
fn deadlines_hold_for_fifty_hostile_programs_at_once() {
    if !needs::root() {
        return;
    }
    let _alone = alone();
    let path = fixture().to_str().unwrap();
    // None of them ends by itself within a minute, so each that ends was killed.
    let hang = 60.0;
    let hostile: [(&[&str], &[&str]); 5] = [
        (&[path, "fork-bomb"], &["process_limit", "timeout"]),
        (&[path, "spin", "8"], &["timeout"]),
        (&[path, "memory", "200"], &["memory_limit", "timeout"]),
        (&["sh", "-c", "yes & yes >&2"], &["output_limit", "timeout"]),
        (&["sh", "-c", "trap '' TERM HUP INT; while :; do sleep 9 & wait; done"], &["timeout"]),
    ];
    let limits = ["-t", "1s", "--memory", "64m", "--pids", "32", "--output-limit", "64k"];
    let run = |args: &[&str]| result(&sandbox(args).output().unwrap());
    std::thread::scope(|scope| {
        let attackers: Vec<_> = (0..50)
            .map(|n| {
                let (argv, expected) = hostile[n % hostile.len()];
                scope.spawn(move || (expected, run(&[&["exec", "--json"], &limits[..], &["--"], argv].concat())))
            })
            .collect();
        let innocents: Vec<_> =
            (0..10).map(|_| scope.spawn(|| run(&["exec", "--json", "-t", "2m", "--", path, "hello"]))).collect();
        for attacker in attackers {
            let (expected, result) = attacker.join().unwrap();
            let (verdict, wall) = (result["verdict"].as_str().unwrap(), result["execution_time"].as_f64().unwrap());
            assert!(expected.contains(&verdict), "{result:#}");
            assert!(wall < hang, "{verdict} after {wall} s");
        }
        for innocent in innocents {
            let result = innocent.join().unwrap();
            assert_eq!((&result["verdict"], &result["stdout"]), (&"ok".into(), &"hello\n".into()), "{result:#}");
        }
    });
}
