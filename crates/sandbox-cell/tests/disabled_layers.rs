//! Disabled layers: the cell is created without them, reports that, and nothing outlives it.
//!
//! The keepers are this same program, started once more, so this file has a custom `main`.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

mod harness;

use std::os::fd::AsFd;
use std::time::Duration;

use harness::{Test, conclude, run, start};
use sandbox_base::LimitKind;
use sandbox_base::limits::{Caps, Limits};
use sandbox_cell::{
    CellSpec, Command, Failure, Keeper, Layer, LayerSet, Outcome, RunStatus, Sources, Stdio, StopReason, Volume, null,
};
use sandbox_testing::{eventually, needs};

fn main() {
    sandbox_cell::keeper_main_if_asked(None);
    let tests: &[Test] = &[
        ("every_layer_can_be_disabled", every_layer_can_be_disabled),
        ("all_layers_can_be_disabled_together", all_layers_can_be_disabled_together),
        ("without_a_namespace_the_cell_is_in_the_hosts", namespaces_are_the_hosts),
        ("without_user_programs_still_have_no_capabilities", without_user),
        ("without_mount_the_hosts_directories_are_visible", without_mount),
        ("without_seccomp_there_is_no_filter", without_seccomp),
        ("without_landlock_there_are_no_rules", without_landlock),
        ("without_memory_usage_is_unlimited", without_memory),
        ("without_pids_processes_are_unlimited", without_pids),
        ("without_cpu_the_share_is_unlimited", without_cpu),
        ("without_pid_nothing_outlives_its_command", without_pid_nothing_outlives_its_command),
        ("without_pid_nothing_outlives_its_cell", without_pid_nothing_outlives_its_cell),
        ("without_pid_only_the_cell_is_killed", without_pid_only_the_cell_is_killed),
        ("without_pid_a_process_that_keeps_forking_is_killed", without_pid_a_process_that_keeps_forking_is_killed),
    ];
    let root = needs::root();
    conclude(tests, |_| root, ("a_confined_keeper_disables_no_layer", a_confined_keeper_disables_no_layer));
}

fn a_confined_keeper_disables_no_layer(keeper: &Keeper) {
    keeper.confine(&Sources::default()).unwrap();
    for layer in Layer::ALL {
        let failure = ready(keeper, &omitting(&[layer])).expect_err("refused");
        assert!(failure.to_string().contains("the keeper is confined"), "{failure}");
    }
    assert!(ready(keeper, &CellSpec::new()).is_ok());
}

fn omitting(layers: &[Layer]) -> CellSpec {
    let mut limits = Limits::default();
    limits.set(LimitKind::WallTime, 20_000_000, &Caps::default()).unwrap();
    CellSpec { limits, disabled_layers: layers.iter().copied().collect(), ..CellSpec::new() }
}

fn ready(keeper: &Keeper, spec: &CellSpec) -> Result<LayerSet, Failure> {
    let mut cell = keeper.create(spec)?;
    let isolation = cell.ready()?.isolation;
    cell.delete()?;
    Ok(isolation)
}

/// Runs a script in a cell without these layers.
fn script(keeper: &Keeper, layers: &[Layer], script: &str) -> (Outcome, String) {
    let mut cell = keeper.create(&omitting(layers)).unwrap();
    let answer = run(&mut cell, &["/bin/sh", "-c", script], None);
    cell.delete().unwrap();
    answer
}

fn every_layer_can_be_disabled(keeper: &Keeper) {
    let all = ready(keeper, &CellSpec::new()).unwrap();
    for layer in Layer::ALL {
        let spec = omitting(&[layer]);
        let isolation = ready(keeper, &spec).unwrap_or_else(|failure| panic!("{}: {failure}", layer.name()));
        assert_eq!(isolation, all.without(spec.disabled_layers), "{}", layer.name());
        let (outcome, text) =
            script(keeper, &[layer], "echo here > note; cat note; pwd; : > $TMPDIR/note-$$ && rm $TMPDIR/note-$$");
        assert_eq!((outcome.status, text.as_str()), (RunStatus::Exited(0), "here\n/sandbox\n"), "{}", layer.name());
    }
}

fn all_layers_can_be_disabled_together(keeper: &Keeper) {
    assert!(ready(keeper, &omitting(&Layer::ALL)).unwrap().is_empty());
    let (outcome, text) = script(keeper, &Layer::ALL, "id -u; grep CapEff /proc/self/status; touch /etc/new /usr/new");
    assert_ne!(outcome.status, RunStatus::Exited(0), "{text}");
    assert!(text.contains("0000000000000000") && !text.starts_with("0\n"), "{text}");
    assert!(!std::path::Path::new("/etc/new").exists() && !std::path::Path::new("/usr/new").exists());
}

fn namespaces_are_the_hosts(keeper: &Keeper) {
    let namespaces = [
        (Layer::User, "user"),
        (Layer::Pid, "pid"),
        (Layer::Net, "net"),
        (Layer::Ipc, "ipc"),
        (Layer::Uts, "uts"),
        (Layer::Cgroup, "cgroup"),
    ];
    for (layer, name) in namespaces {
        let link = format!("/proc/self/ns/{name}");
        let host = std::fs::read_link(&link).unwrap();
        let read = |layers: &[Layer]| script(keeper, layers, &format!("readlink {link}")).1.trim().to_owned();
        assert_ne!(read(&[]), host.to_str().unwrap(), "{name}");
        assert_eq!(read(&[layer]), host.to_str().unwrap(), "{name}");
        // Of the mounts only the visible directories can be compared.
        assert_ne!(script(keeper, &[layer], "readlink /proc/self/ns/mnt").1.trim(), host.to_str().unwrap());
    }
    let host_name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_eq!(script(keeper, &[Layer::Uts], "uname -n").1.trim(), host_name);
    assert_eq!(script(keeper, &[], "uname -n").1.trim(), "sandbox");
    assert_eq!(rustix::system::uname().nodename().to_string_lossy(), host_name, "the host keeps its name");
    // Init's own cgroup is the root that programs see; on v1 the cgroups that only programs join are below it.
    let group = "grep -E ':(memory|):' /proc/self/cgroup | head -1";
    assert!(script(keeper, &[Layer::Cgroup], group).1.contains("/sandbox-run-") || !limits_memory(keeper));
    assert!(!script(keeper, &[], group).1.contains("/sandbox-run-"));
    let own = std::process::id();
    assert_eq!(script(keeper, &[Layer::Pid], &format!("cat /proc/{own}/comm")).0.status, RunStatus::Exited(0));
}

fn limits_memory(keeper: &Keeper) -> bool {
    ready(keeper, &CellSpec::new()).unwrap().contains(Layer::Memory)
}

fn without_user(keeper: &Keeper) {
    let nested = std::fs::read_to_string("/proc/sys/user/max_user_namespaces").unwrap();
    let (_, text) = script(
        keeper,
        &[Layer::User],
        "id -u; id -G; grep -E 'Cap(Eff|Prm|Bnd|Amb)' /proc/self/status; cat /proc/self/uid_map",
    );
    let uid: u32 = text.lines().next().unwrap().parse().unwrap();
    assert!(uid > 10_000, "a dedicated id: {text}");
    assert_eq!(text.matches("0000000000000000").count(), 4, "{text}");
    assert!(text.contains("4294967295"), "the host's ids: {text}");
    assert_eq!(std::fs::read_to_string("/proc/sys/user/max_user_namespaces").unwrap(), nested);
    // Input files belong to the program.
    let mut files = sandbox_cell::archive::Archive::new().unwrap();
    files.add(sandbox_base::RelativePath::new("in").unwrap(), false, b"x").unwrap();
    let mut cell = keeper.create(&omitting(&[Layer::User])).unwrap();
    let null = null().unwrap();
    let stdio = Stdio { stdin: null.as_fd(), stdout: null.as_fd(), stderr: null.as_fd() };
    let outcome = cell.run(&Command::new(["test", "-O", "in"]), stdio, Some(&files)).unwrap();
    assert_eq!(outcome.status, RunStatus::Exited(0));
}

fn without_mount(keeper: &Keeper) {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::write(dir.path().join("file"), "from the host\n").unwrap();
    let path = dir.path().display();
    let look = format!("cat {path}/file; echo more >> {path}/other; ls -A /home; head -1 /etc/passwd");
    let (_, text) = script(keeper, &[Layer::Mount], &look);
    assert!(text.contains("from the host"), "{text}");
    assert!(text.lines().any(|line| line == "sandbox"), "the cell's home still exists: {text}");
    assert!(text.contains(std::fs::read_to_string("/etc/passwd").unwrap().lines().next().unwrap()), "{text}");
    assert!(dir.path().join("other").exists(), "/tmp is the host's");
    assert!(!script(keeper, &[], &look).1.contains("from the host"));
    // A volume below a host directory belongs to the cell, and leaves nothing there.
    let mut spec = omitting(&[Layer::Mount]);
    spec.volumes.push(Volume { target: "/run/disabled_layers-test/result".into(), size: 1 << 20, inodes: 10 });
    let mut cell = keeper.create(&spec).unwrap();
    let (outcome, text) =
        run(&mut cell, &["/bin/sh", "-c", "echo x > /run/disabled_layers-test/result/x; ls /run"], None);
    assert_eq!(outcome.status, RunStatus::Exited(0), "{text}");
    assert!(!std::path::Path::new("/run/disabled_layers-test").exists());
    for entry in std::fs::read_dir("/run").unwrap().flatten().filter(|entry| entry.path().is_dir()) {
        assert!(text.contains(entry.file_name().to_str().unwrap()), "{text}");
    }
}

fn without_seccomp(keeper: &Keeper) {
    let state = "grep Seccomp: /proc/self/status";
    assert_eq!(script(keeper, &[Layer::Seccomp], state).1.trim(), "Seccomp:\t0");
    assert_eq!(script(keeper, &[], state).1.trim(), "Seccomp:\t2");
}

fn without_landlock(keeper: &Keeper) {
    let both = [Layer::Landlock, Layer::Mount];
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let write = format!("echo x > {}/x", dir.path().display());
    assert_ne!(script(keeper, &[Layer::Mount], &write).0.status, RunStatus::Exited(0), "the second wall");
    assert_eq!(script(keeper, &both, &write).0.status, RunStatus::Exited(0), "without it");
}

/// A cell that may use 32 MiB, two processes and a tenth of a CPU.
fn narrow(layers: &[Layer]) -> CellSpec {
    let mut spec = omitting(layers);
    for (kind, value) in [(LimitKind::Memory, 32 << 20), (LimitKind::Processes, 3), (LimitKind::Cpus, 100)] {
        spec.limits.set(kind, value, &Caps::default()).unwrap();
    }
    spec
}

fn in_narrow(keeper: &Keeper, layers: &[Layer], script: &str) -> (Outcome, String) {
    let mut cell = keeper.create(&narrow(layers)).unwrap();
    run(&mut cell, &["/bin/sh", "-c", script], None)
}

fn without_memory(keeper: &Keeper) {
    // tail keeps text without line ends in memory.
    let hungry = "head -c 80000000 /dev/zero | tail | wc -c";
    let (outcome, _) = in_narrow(keeper, &[Layer::Pids, Layer::Cpu], hungry);
    assert_eq!(outcome.stopped, Some(StopReason::Limit(LimitKind::Memory)));
    let (outcome, text) = in_narrow(keeper, &[Layer::Memory, Layer::Pids, Layer::Cpu], hungry);
    assert_eq!((outcome.status, text.trim(), outcome.stopped), (RunStatus::Exited(0), "80000000", None));
    assert!(outcome.usage.memory_peak > 64 << 20, "it is still counted: {:?}", outcome.usage);
}

fn without_pids(keeper: &Keeper) {
    let many = "for n in 1 2 3 4 5 6; do sleep 0.2 & done; wait; echo done";
    let (outcome, text) = in_narrow(keeper, &[Layer::Cpu], many);
    assert!(!text.contains("done") && outcome.reached.iter().any(|(kind, _)| *kind == LimitKind::Processes), "{text}");
    let (outcome, text) = in_narrow(keeper, &[Layer::Pids, Layer::Cpu], many);
    assert_eq!((outcome.status, text.trim(), outcome.reached.len()), (RunStatus::Exited(0), "done", 0));
}

fn without_cpu(keeper: &Keeper) {
    // Eight processes: on a busy host, a single one would not get a quarter of a CPU.
    let busy = "for p in 1 2 3 4 5 6 7 8; do (n=0; while [ $n -lt 20000 ]; do n=$((n+1)); done) & done; wait";
    let share = |outcome: &Outcome| outcome.usage.cpu.as_secs_f64() / outcome.usage.wall.as_secs_f64();
    assert!(share(&in_narrow(keeper, &[Layer::Pids], busy).0) < 0.25);
    let (outcome, _) = in_narrow(keeper, &[Layer::Pids, Layer::Cpu], busy);
    assert!(share(&outcome) > 0.25, "{:?}", outcome.usage);
}

/// Whether a process with this argument lives.
fn lives(argument: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|part| part == argument.as_bytes())
    })
}

/// Daemons: in separate sessions, orphaned, ignoring signals.
const DAEMONS: &str = "trap '' TERM HUP; setsid sh -c 'sleep NAP & sleep NAP & exec sleep NAP' & \
                       (setsid sh -c '(setsid sleep NAP &) &' &); sleep 0.3";

fn without_pid_nothing_outlives_its_command(keeper: &Keeper) {
    for layers in [&[Layer::Pid][..], &[Layer::Pid, Layer::User], &[Layer::Pid, Layer::Pids, Layer::Landlock]] {
        let mut cell = keeper.create(&omitting(layers)).unwrap();
        run(&mut cell, &["/bin/sh", "-c", &DAEMONS.replace("NAP", "7771")], None);
        assert!(!lives("7771"), "{layers:?}");
        let (outcome, text) = run(&mut cell, &["echo", "again"], None);
        assert_eq!((outcome.status, text.as_str()), (RunStatus::Exited(0), "again\n"));
    }
}

fn without_pid_nothing_outlives_its_cell(keeper: &Keeper) {
    let cell = keeper.create(&omitting(&[Layer::Pid])).unwrap();
    start(&cell, &["/bin/sh", "-c", &format!("{}; sleep 7772", DAEMONS.replace("NAP", "7772"))]);
    eventually("the daemons live", || lives("7772"));
    std::thread::sleep(Duration::from_millis(400));
    // The keeper kills init, and then the processes that init cannot kill any more.
    cell.delete().unwrap();
    assert!(!lives("7772"));
}

fn without_pid_only_the_cell_is_killed(keeper: &Keeper) {
    let mut bystander = std::process::Command::new("sleep").arg("7773").spawn().unwrap();
    let mut other = keeper.create(&omitting(&[Layer::Pid])).unwrap();
    start(&other, &["sh", "-c", "sleep 1; exit 5"]);
    for layers in [&[Layer::Pid][..], &[Layer::Pid, Layer::User], &Layer::ALL] {
        script(keeper, layers, "sleep 60 & sleep 0.05");
        drop(keeper.create(&omitting(layers)).unwrap());
    }
    assert_eq!(other.wait().unwrap().status, RunStatus::Exited(5));
    assert!(bystander.try_wait().unwrap().is_none());
    bystander.kill().and_then(|()| bystander.wait()).unwrap();
}

fn without_pid_a_process_that_keeps_forking_is_killed(keeper: &Keeper) {
    if !needs::program("/usr/bin/python3") {
        return;
    }
    // Each process lives just long enough to fork the next one.
    let forker = "import os\nwhile True:\n  if os.fork(): os._exit(0)\n  os.setsid()\n";
    let mut cell = keeper.create(&omitting(&[Layer::Pid])).unwrap();
    let (outcome, _) = run(&mut cell, &["/usr/bin/python3", "-c", forker, "7774"], None);
    assert_eq!(outcome.status, RunStatus::Exited(0));
    assert!(!lives("7774"));
}
