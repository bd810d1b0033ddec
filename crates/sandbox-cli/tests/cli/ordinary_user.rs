//! An ordinary user, without root and without a delegated cgroup: everything works, and weaker limits are reported.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use sandbox_testing::command::{as_ordinary_user, binary, fixture, group_parents, result};
use sandbox_testing::{eventually, needs};
use serde_json::Value;

fn python(code: &str, flags: &[&str]) -> Option<Value> {
    if !needs::root() {
        // The other tests already run as an ordinary user.
        return None;
    }
    let mut args = vec!["--lang", "python", "--json", "--code", code];
    args.extend_from_slice(flags);
    Some(result(&as_ordinary_user(&args).output().unwrap()))
}

#[test]
fn runs_with_every_layer_that_needs_no_privilege() {
    let Some(result) = python("import os; print(os.getuid(), sorted(os.listdir('/tmp')))", &[]) else { return };
    assert_eq!(result["result"], "1000 []", "{result:#}");
    let layers: Vec<_> = result["isolation"].as_array().unwrap().iter().map(|l| l.as_str().unwrap()).collect();
    assert_eq!(layers, ["user", "pid", "mount", "net", "ipc", "uts", "cgroup", "seccomp", "landlock"]);
}

#[test]
fn an_output_directory_of_another_user_is_refused_before_the_run() {
    if !needs::root() {
        return;
    }
    let dir = tempfile::Builder::new().permissions(PermissionsExt::from_mode(0o755)).tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let output = as_ordinary_user(&["--lang", "python", "--code", "print(1)", "--output-dir", path]).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{complaint}");
    // Where coverage is measured, a second line says that its counters cannot be written.
    let expected = format!("sandbox-run: cannot write to '{path}': permission denied");
    assert_eq!(complaint.lines().next(), Some(expected.as_str()), "{complaint}");
}

#[test]
fn memory_is_sampled() {
    let Some(result) =
        python("x = bytearray(400 << 20)\nimport time; time.sleep(5)", &["--memory", "64m", "-t", "20s"])
    else {
        return;
    };
    assert_eq!(
        (&result["verdict"], &result["limit"]["kind"]),
        (&"memory_limit".into(), &"memory".into()),
        "{result:#}"
    );
    let Some(fine) = python("x = bytearray(30 << 20)\nimport time; time.sleep(0.1)", &["--memory", "64m", "-t", "20s"])
    else {
        return;
    };
    assert_eq!(fine["verdict"], "ok");
    assert!(fine["memory_used"].as_u64().unwrap() > 30 << 20, "{fine:#}");
}

#[test]
fn processes_are_limited() {
    if !needs::root() {
        return;
    }
    // In a directory that the user can reach.
    let dir = tempfile::Builder::new().permissions(PermissionsExt::from_mode(0o755)).tempdir().unwrap();
    let path = dir.path().join("program");
    std::fs::copy(fixture(), &path).unwrap();
    let path = path.to_str().unwrap();
    let threads = |count: &str| {
        result(&as_ordinary_user(&["exec", "--json", "--pids", "20", "--", path, "threads", count]).output().unwrap())
    };
    let (fine, many) = (threads("18"), threads("40"));
    let bomb =
        as_ordinary_user(&["exec", "--json", "--pids", "20", "-t", "1s", "--", path, "fork-bomb"]).output().unwrap();
    assert_eq!(fine["verdict"], "ok", "{fine:#}");
    assert_eq!(many["success"], false, "{many:#}");
    assert_eq!(result(&bomb)["verdict"], "timeout");
}

#[test]
fn cpu_time_is_sampled() {
    let Some(result) = python("while True: pass", &["--cpu-time", "300ms", "-t", "20s"]) else { return };
    assert_eq!((&result["verdict"], &result["limit"]["kind"]), (&"timeout".into(), &"cpu_time".into()), "{result:#}");
}

#[test]
fn deadlines_disk_and_output_hold() {
    let Some(late) = python("import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(60)", &["-t", "300ms"])
    else {
        return;
    };
    assert_eq!(late["verdict"], "timeout");
    let Some(full) = python("open('/tmp/x', 'wb').write(b'x' * (20 << 20))", &["--disk", "8m"]) else { return };
    assert_eq!(full["verdict"], "disk_limit");
    let Some(loud) = python("while True: print('x' * 1000)", &["--output-limit", "10k"]) else { return };
    assert_eq!(loud["verdict"], "output_limit");
}

#[test]
fn limits_that_cannot_be_enforced_are_refused_with_the_fix() {
    if !needs::root() {
        return;
    }
    for flags in [["--require", "memory"], ["--cpus", "0.5"]] {
        let args = ["--lang", "python", "--code", "print(1)", flags[0], flags[1]];
        let output = as_ordinary_user(&args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{text}");
        assert!(text.contains("is required and not available on this host") && text.contains("Delegate=yes"), "{text}");
    }
}

#[test]
fn init_cannot_be_touched() {
    let code = "
import os, resource
def attempt(f):
    try: f(); return 'allowed'
    except OSError as error: return type(error).__name__
print(attempt(lambda: os.kill(1, 9)), attempt(lambda: open('/proc/1/mem', 'rb')), attempt(lambda: os.readlink('/proc/1/exe')),
      attempt(lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))))
";
    let Some(result) = python(code, &[]) else { return };
    // Before Landlock scoped signals (Linux 6.12), a signal to init of the same user is accepted and has no effect.
    let seen = result["result"].as_str().unwrap().replace("allowed ", "PermissionError ");
    assert_eq!(seen, "PermissionError FileNotFoundError FileNotFoundError PermissionError", "{result:#}");
}

/// Cgroups that belong to the ordinary user, as an administrator or systemd would delegate them.
struct Delegated(Vec<PathBuf>);

impl Delegated {
    fn new() -> Self {
        let mut groups = vec![];
        for parent in group_parents() {
            // On v2 the controllers must be enabled first; on v1 the file does not exist.
            let control = parent.join("cgroup.subtree_control");
            if control.exists() {
                std::fs::write(control, "+memory +pids +cpu").unwrap();
            }
            let group = parent.join(format!("delegated-{}", std::process::id()));
            std::fs::create_dir(&group).unwrap();
            for file in ["", "cgroup.procs", "tasks", "cgroup.threads", "cgroup.subtree_control"] {
                let file = group.join(file);
                if file.exists() {
                    std::os::unix::fs::chown(&file, Some(4321), Some(4321)).unwrap();
                }
            }
            groups.push(group);
        }
        Self(groups)
    }

    /// A command that joins the cgroups and then becomes the ordinary user.
    fn command(&self, args: &[&str]) -> std::process::Command {
        let user = as_ordinary_user(args);
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "for group in $GROUPS_TO_JOIN; do echo $$ > $group/cgroup.procs; done; exec \"$@\"", "sh"]);
        command.arg(user.get_program()).args(user.get_args()).current_dir("/").env_clear();
        command.envs(user.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let groups: Vec<_> = self.0.iter().map(|group| group.to_str().unwrap()).collect();
        command.env("GROUPS_TO_JOIN", groups.join(" ")).stdin(std::process::Stdio::null());
        command
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        for group in &self.0 {
            eventually("the delegated group is empty", || std::fs::remove_dir(group).is_ok() || !group.exists());
        }
    }
}

#[test]
fn with_delegated_cgroups_every_layer_works() {
    if !needs::root() {
        return;
    }
    let delegated = Delegated::new();
    let code = "import sys; x = bytearray(int(sys.argv[1]) << 20)";
    let run = |megabytes: &str| {
        let args = [
            "--lang",
            "python",
            "--json",
            "--require",
            "all",
            "--cpus",
            "0.5",
            "--memory",
            "64m",
            "-t",
            "30s",
            "--code",
            code,
            "--",
            megabytes,
        ];
        result(&delegated.command(&args).output().unwrap())
    };
    let (fine, large) = (run("10"), run("200"));
    assert_eq!(fine["verdict"], "ok", "{fine:#}");
    assert_eq!(fine["isolation"].as_array().unwrap().len(), 12);
    assert!(fine["memory_used"].as_u64().unwrap() > 10 << 20);
    assert_eq!((&large["verdict"], &large["limit"]["kind"]), (&"memory_limit".into(), &"memory".into()), "{large:#}");
}

#[test]
fn a_host_without_user_namespaces_is_refused_with_the_fix() {
    if !needs::root() {
        return;
    }
    // In a user namespace in which no further ones are allowed.
    let refused = |args: &[&str]| {
        let script = "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$0\" \"$@\"";
        std::process::Command::new("unshare").args(["-Urm", "sh", "-c", script, binary()]).args(args).output().unwrap()
    };
    let run = refused(&["--lang", "python", "--code", "print(1)"]);
    let text = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!((run.status.code(), run.stdout.len()), (Some(125), 0), "{text}");
    assert!(text.contains("isolation layer 'user' is required and not available on this host"), "{text}");
    assert!(text.contains("sysctl -w kernel.unprivileged_userns_clone=1"), "{text}");
    let doctor = refused(&["doctor", "--json"]);
    assert_eq!(doctor.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    assert_eq!((&report["policy_met"], &report["layers"][0]["works"]), (&false.into(), &false.into()), "{report:#}");
    assert!(report["layers"][0]["why"].as_str().unwrap().starts_with("the kernel refused it"));
}

#[test]
fn volumes_work() {
    if !needs::root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let path = dir.path().canonicalize().unwrap();
    let shared = format!("{}:/shared:rw", path.display());
    let code = "
import os
open('/kept/n', 'a').write('x')
open('/shared/made', 'w').write(open('/kept/n').read())
print(os.stat('/shared/made').st_uid)
";
    let allowed = path.to_str().unwrap();
    let args = [
        "--lang",
        "python",
        "--json",
        "--code",
        code,
        "--volume",
        "v:/kept",
        "--volume",
        &shared,
        "--allow-path",
        allowed,
    ];
    for expected in ["x", "xx"] {
        let output = as_ordinary_user(&args).env("SANDBOX_DATA_DIR", path.join("data")).output().unwrap();
        assert_eq!(result(&output)["stdout"], "1000\n", "{output:?}");
        assert_eq!(std::fs::read_to_string(path.join("made")).unwrap(), expected);
    }
}

#[test]
fn volumes_count_as_memory() {
    if !needs::root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let code = "import time\nfor n in range(4): open(f'/kept/{n}', 'wb').write(bytes(50 << 20))\ntime.sleep(5)";
    let args = ["--lang", "python", "--json", "--code", code, "--volume", "v:/kept:1g", "--memory", "64m", "-t", "20s"];
    let output = as_ordinary_user(&args).env("SANDBOX_DATA_DIR", dir.path().join("data")).output().unwrap();
    assert_eq!(result(&output)["verdict"], "memory_limit", "{output:?}");
}
