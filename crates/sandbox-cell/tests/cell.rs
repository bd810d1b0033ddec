//! The library without the command line: create, run, stop, metrics, delete.
//!
//! The keeper is this same program, started once more, so this file has a custom `main`.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

mod harness;

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::AsFd;
use std::time::Duration;

use harness::{Test, conclude, run, start};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sandbox_base::limits::{Caps, Limits};
use sandbox_base::{LimitKind, RelativePath};
use sandbox_cell::archive::{self, Archive, Omission, Sink};
use sandbox_cell::{
    Cell, CellSpec, Command, Keeper, Layer, Mount, Role, RunStatus, Sources, Start, Stdio, StopReason, Volume,
    WindowSize, null,
};
use sandbox_testing::{eventually, needs};

fn main() {
    sandbox_cell::keeper_main_if_asked(None);
    let tests: &[Test] = &[
        ("a_cell_runs_any_argv", a_cell_runs_any_argv),
        ("a_cell_runs_several_commands_one_after_the_other", several_commands),
        ("input_files_are_created_inside", input_files_are_created_inside),
        ("links_planted_by_a_program_are_not_followed", planted_links_are_not_followed),
        ("a_command_can_be_stopped", a_command_can_be_stopped),
        ("metrics_of_a_running_command_increase", metrics_of_a_running_command),
        ("dropping_a_cell_ends_it", dropping_a_cell_ends_it),
        ("concurrent_cells_are_isolated", concurrent_cells_are_isolated),
        ("mounts_are_read_only", mounts_are_read_only),
        ("new_and_changed_files_are_collected", new_and_changed_files_are_collected),
        ("output_files_are_capped_and_omissions_listed", output_files_are_capped),
        ("a_volume_carries_files_from_cell_to_cell", a_volume_carries_files_from_cell_to_cell),
        ("files_in_a_writable_mount_keep_their_owner", files_in_a_writable_mount_keep_their_owner),
        ("a_mount_is_not_redirected_by_links", a_mount_is_not_redirected_by_links),
        ("a_cell_reaches_only_its_gateway", a_cell_reaches_only_its_gateway),
        ("a_network_namespace_is_used_again_when_nothing_is_left_in_it", a_network_namespace_is_used_again),
        ("a_terminal_belongs_to_its_cell", a_terminal_belongs_to_its_cell),
        ("invalid_requests_are_refused", invalid_requests_are_refused),
        ("a_multithreaded_process_can_start_a_keeper", a_multithreaded_process_can_start_a_keeper),
        ("a_keeper_has_a_fixed_command_line_and_no_environment", a_keeper_has_a_fixed_command_line_and_no_environment),
        ("a_keeper_that_ends_is_replaced_by_one_as_confined", a_keeper_that_ends_is_replaced_by_one_as_confined),
    ];
    let mapped_ids = needs::mapped_ids(&std::env::temp_dir());
    let can_run = |name: &str| mapped_ids || name != "files_in_a_writable_mount_keep_their_owner";
    conclude(tests, can_run, ("a_confined_keeper_mounts_nothing_else", a_confined_keeper_mounts_nothing_else));
}

fn a_cell_runs_any_argv(keeper: &Keeper) {
    let mut cell = keeper.create(&patient()).unwrap();
    let ready = cell.ready().unwrap();
    assert!(ready.isolation.contains(Layer::Seccomp) && ready.prepare > Duration::ZERO);
    let (outcome, text) = run(&mut cell, &["sh", "-c", "echo $((6*7)); exit 3"], None);
    assert_eq!((outcome.status, text.as_str()), (RunStatus::Exited(3), "42\n"));
    assert_eq!(outcome.stopped, None);
    cell.delete().unwrap();
}

fn a_terminal_belongs_to_its_cell(keeper: &Keeper) {
    let terminal = Some(WindowSize { rows: 7, columns: 90 });
    let mut cell = keeper.create(&CellSpec { terminal, ..patient() }).unwrap();
    // The streams of the command are not used.
    start(&cell, &["sh", "-c", "tty; stty size; read -r line; echo \"<$line>\" >&2; ls /dev/pts"]);
    let mut master = std::fs::File::from(cell.take_terminal().unwrap().unwrap());
    assert!(cell.take_terminal().unwrap().is_none(), "there is one");
    std::io::Write::write_all(&mut master, b"typed\n").unwrap();
    assert_eq!(cell.wait().unwrap().status, RunStatus::Exited(0));
    let mut text = vec![0; 4096];
    let mut length = 0;
    while !text[..length].ends_with(b"ptmx\r\n") {
        length += master.read(&mut text[length..]).unwrap();
    }
    let text = String::from_utf8_lossy(&text[..length]).replace("typed\r\n", "");
    assert_eq!(text, "/dev/pts/0\r\n7 90\r\n<typed>\r\n0  ptmx\r\n");
    let zygote = CellSpec { role: Role::Zygote, terminal, ..patient() };
    let refused = keeper.create(&zygote).and_then(|mut cell| cell.ready()).unwrap_err();
    assert!(refused.request && refused.to_string().contains("cannot have a terminal"), "{refused}");
}

fn several_commands(keeper: &Keeper) {
    let mut cell = keeper.create(&patient()).unwrap();
    run(&mut cell, &["sh", "-c", "echo kept > note; sleep 60 & head -c 3000000 /dev/zero > /dev/null"], None);
    let (outcome, text) = run(&mut cell, &["sh", "-c", "cat note; ls /proc | grep -c '^[0-9]'"], None);
    assert_eq!(text.lines().next(), Some("kept"), "files stay between commands of one cell");
    assert!(text.lines().nth(1).unwrap().parse::<u32>().unwrap() <= 3, "processes do not stay: {text}");
    assert!(outcome.usage.io_read < 1_000_000, "each command is accounted separately: {:?}", outcome.usage);
}

fn input_files_are_created_inside(keeper: &Keeper) {
    let mut files = Archive::new().unwrap();
    files.add(RelativePath::new("data/deep/a.txt").unwrap(), false, b"A").unwrap();
    files
        .add(RelativePath::new("run.sh").unwrap(), true, b"#!/bin/sh\ncat data/deep/a.txt\nls -ld data/deep run.sh\n")
        .unwrap();
    let mut cell = keeper.create(&patient()).unwrap();
    let (outcome, text) = run(&mut cell, &["./run.sh"], Some(&files));
    assert_eq!(outcome.status, RunStatus::Exited(0), "{text}");
    assert!(text.starts_with('A') && text.matches("sandbox sandbox").count() == 2, "{text}");
}

fn planted_links_are_not_followed(keeper: &Keeper) {
    let mut cell = keeper.create(&patient()).unwrap();
    run(&mut cell, &["sh", "-c", "ln -s /tmp dir; ln -s /tmp/target file"], None);
    for path in ["dir/x", "file"] {
        let mut files = Archive::new().unwrap();
        files.add(RelativePath::new(path).unwrap(), false, b"x").unwrap();
        let null = null().unwrap();
        let stdio = Stdio { stdin: null.as_fd(), stdout: null.as_fd(), stderr: null.as_fd() };
        let failure = cell.run(&Command::new(["true"]), stdio, Some(&files)).expect_err(path);
        assert!(failure.to_string().contains("create the input files"), "{failure}");
    }
    let (_, text) = run(&mut cell, &["ls", "-A", "/tmp"], None);
    assert_eq!(text, "");
}

fn a_command_can_be_stopped(keeper: &Keeper) {
    let mut cell = keeper.create(&patient()).unwrap();
    for (reason, signal) in
        [(StopReason::Cancelled, libc::SIGTERM), (StopReason::Limit(LimitKind::Output), libc::SIGKILL)]
    {
        start(&cell, &["sleep", "60"]);
        // Before the command runs there is nothing to stop.
        eventually("it runs", || !cell.metrics().unwrap().wall.is_zero());
        cell.stop(reason).unwrap();
        let outcome = cell.wait().unwrap();
        assert_eq!((outcome.stopped, outcome.status), (Some(reason), RunStatus::Signaled(signal)));
    }
}

fn metrics_of_a_running_command(keeper: &Keeper) {
    let mut cell = keeper.create(&patient()).unwrap();
    assert_eq!(cell.metrics().unwrap().wall, Duration::ZERO);
    start(&cell, &["sh", "-c", "while true; do :; done"]);
    let counts_cpu = cell.ready().unwrap().isolation.contains(Layer::Cpu);
    let enough = Duration::from_millis(50);
    eventually("time is counted", || {
        let usage = cell.metrics().unwrap();
        usage.wall > enough && (!counts_cpu || usage.cpu > enough)
    });
    cell.stop(StopReason::Cancelled).unwrap();
    assert!(cell.wait().unwrap().usage.wall > Duration::from_millis(50));
}

fn dropping_a_cell_ends_it(keeper: &Keeper) {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let cell = keeper.create(&patient()).unwrap();
    let null = null().unwrap();
    let stdio = Stdio { stdin: null.as_fd(), stdout: writer.as_fd(), stderr: null.as_fd() };
    cell.start(&Start::new(&Command::new(["sh", "-c", "echo x; trap '' TERM; sleep 60"]), stdio)).unwrap();
    drop(writer);
    let mut first = [0; 2];
    reader.read_exact(&mut first).unwrap();
    drop(cell);
    // The pipe ends when its last writer is dead.
    assert_eq!(reader.read(&mut first).unwrap(), 0);
}

fn concurrent_cells_are_isolated(keeper: &Keeper) {
    std::thread::scope(|scope| {
        for n in 0..20 {
            scope.spawn(move || {
                let mut cell = keeper.create(&patient()).unwrap();
                let script = format!("echo {n} > /tmp/own; sleep 0.1; cat /tmp/*; ls /proc/self/fd | wc -l; exit {n}");
                let (outcome, text) = run(&mut cell, &["sh", "-c", &script], None);
                assert_eq!((outcome.status, text), (RunStatus::Exited(n), format!("{n}\n4\n")));
            });
        }
    });
}

fn mounts_are_read_only(keeper: &Keeper) {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::write(dir.path().join("file"), "from the host\n").unwrap();
    let mut spec = patient();
    spec.mounts.push(Mount::read_only(dir.path(), "/data/in"));
    spec.mounts.push(Mount::read_only(dir.path().join("file"), "/opt/one"));
    let mut cell = keeper.create(&spec).unwrap();
    let (outcome, text) =
        run(&mut cell, &["sh", "-c", "cat /data/in/file /opt/one; touch /data/in/x /data/in/file"], None);
    assert_eq!(text.matches("from the host").count(), 2, "{text}");
    assert_eq!(text.matches("cannot touch").count(), 2, "{text}");
    assert_ne!(outcome.status, RunStatus::Exited(0));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// The output of a cell.
#[derive(Default)]
struct Taken {
    files: BTreeMap<String, (bool, Vec<u8>)>,
    omitted: Vec<(String, Omission)>,
    volume: Vec<u8>,
}

impl Sink for Taken {
    fn file(&mut self, path: &RelativePath, executable: bool, _: u64, content: &mut dyn Read) -> std::io::Result<()> {
        let mut bytes = vec![];
        content.read_to_end(&mut bytes)?;
        self.files.insert(path.as_str().to_owned(), (executable, bytes));
        Ok(())
    }

    fn omitted(&mut self, path: &str, why: Omission) {
        self.omitted.push((path.to_owned(), why));
    }

    fn volume(&mut self, _: u8, part: &mut dyn Read) -> std::io::Result<()> {
        part.read_to_end(&mut self.volume).map(drop)
    }
}

/// Runs a script with these files and collects its output files.
fn collect(cell: &mut Cell, script: &str, files: Option<&Archive>, caps: archive::FileCaps) -> (Taken, u64) {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let null = null().unwrap();
    let stderr = std::io::stderr();
    let stdio = Stdio { stdin: null.as_fd(), stdout: null.as_fd(), stderr: stderr.as_fd() };
    let command = Command::new(["sh", "-c", script]);
    let start = Start { files, collect: Some((caps, writer.as_fd())), last: true, ..Start::new(&command, stdio) };
    cell.start(&start).unwrap();
    drop(writer);
    assert_eq!(cell.wait().unwrap().status, RunStatus::Exited(0), "{script}");
    let mut taken = Taken::default();
    let volume = archive::FileCaps { count: 1_000, bytes: 1 << 20 };
    let arrival = archive::read_all(&mut reader, caps, &[volume], &mut taken).unwrap();
    assert!(arrival.cut.is_none(), "{:?}", arrival.cut);
    (taken, arrival.omitted)
}

const CAPS: archive::FileCaps = archive::FileCaps { count: 10, bytes: 1 << 20 };

fn new_and_changed_files_are_collected(keeper: &Keeper) {
    let mut files = Archive::new().unwrap();
    for (name, content) in [("kept", "k"), ("changed", "c"), ("replaced", "r"), ("gone", "g"), ("moded", "m")] {
        files.add(RelativePath::new(name).unwrap(), false, content.as_bytes()).unwrap();
    }
    let script = "printf C > changed; cp -p replaced x; mv x replaced; rm gone; chmod +x moded; mkdir -p d/e; \
                  printf new > d/e/f; printf secret > d/e/closed; chmod 0 d/e/closed; chmod 0 d; sleep 60 &";
    let mut cell = keeper.create(&patient()).unwrap();
    let (taken, omitted) = collect(&mut cell, script, Some(&files), CAPS);
    let expected: BTreeMap<String, (bool, Vec<u8>)> = [
        ("changed", false, "C"),
        ("d/e/closed", false, "secret"),
        ("d/e/f", false, "new"),
        ("moded", true, "m"),
        ("replaced", false, "r"),
    ]
    .map(|(name, executable, content)| (name.to_owned(), (executable, content.as_bytes().to_vec())))
    .into();
    assert_eq!((taken.files, omitted), (expected, 0));
}

/// A cell with time enough for a slow machine that runs other tests meanwhile.
fn patient() -> CellSpec {
    let mut limits = Limits::default();
    limits.set(LimitKind::WallTime, 60_000_000, &Caps::default()).unwrap();
    CellSpec { limits, ..CellSpec::new() }
}

fn output_files_are_capped(keeper: &Keeper) {
    let script = "ln -s /etc/passwd a-link; mkfifo b-pipe; printf x > c; \
                  head -c 900000 /dev/zero > d-big; head -c 200000 /dev/zero > e-too-much; \
                  touch \"$(printf 'f-\\377')\"; truncate -s 60m g-sparse; \
                  n=0; p=h-deep; while [ $n -lt 40 ]; do mkdir $p; cd $p; p=x; n=$((n+1)); done; touch bottom; cd /sandbox; \
                  for n in 0 1 2 3 4 5 6 7 8 9; do touch i$n; done";
    let mut cell = keeper.create(&patient()).unwrap();
    let (taken, omitted) = collect(&mut cell, script, None, CAPS);
    assert_eq!(taken.files.len(), 10, "{:?}", taken.files.keys());
    let why = |path: &str| taken.omitted.iter().find(|(named, _)| named.starts_with(path)).map(|(_, why)| *why);
    assert_eq!(why("a-link"), Some(Omission::NotAFile));
    assert_eq!(why("b-pipe"), Some(Omission::NotAFile));
    assert_eq!(why("e-too-much"), Some(Omission::TooLarge));
    assert_eq!(why("f-"), Some(Omission::BadName));
    assert_eq!(why("g-sparse"), Some(Omission::TooLarge));
    assert_eq!(why("h-deep/x/x"), Some(Omission::TooDeep));
    assert_eq!(why("i8"), Some(Omission::TooMany));
    assert_eq!(omitted, taken.omitted.len() as u64);

    let mut cell = keeper.create(&patient()).unwrap();
    let (taken, omitted) =
        collect(&mut cell, "n=0; while [ $n -lt 300 ]; do ln -s x l$n; n=$((n+1)); done", None, CAPS);
    assert_eq!((taken.omitted.len(), omitted), (archive::MOST_NAMED, 300));
}

fn a_volume_carries_files_from_cell_to_cell(keeper: &Keeper) {
    let mut spec = patient();
    spec.volumes.push(Volume { target: "/data".into(), size: 1 << 20, inodes: 100 });
    let mut cell = keeper.create(&spec).unwrap();
    let script = "mkdir -p /data/d/empty; echo kept > /data/d/f; chmod +x /data/d/f; ln -s d/f /data/l; \
                  head -c 2000000 /dev/zero > /data/big && exit 1; rm /data/big";
    let (first, _) = collect(&mut cell, script, None, CAPS);
    assert!(first.files.is_empty());

    let mut content = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut content, &first.volume).unwrap();
    let mut files = Archive::new().unwrap();
    files.add_volume(0, &mut content).unwrap();
    files.add(RelativePath::new("note").unwrap(), false, b"x").unwrap();
    let mut cell = keeper.create(&spec).unwrap();
    let script = "set -e; test -d /data/d/empty; test -x /data/d/f; cat /data/l > out; test -O /data/d/f; \
                  echo more > /data/d/g; cat note";
    let (second, _) = collect(&mut cell, script, Some(&files), CAPS);
    assert_eq!(second.files["out"].1, b"kept\n");
    let mut names = vec![];
    archive::read_volume(&mut second.volume.as_slice(), &mut |path, _, _| {
        names.push(path.as_str().to_owned());
        Ok(())
    })
    .unwrap();
    assert_eq!(names, ["d", "d/empty", "d/f", "d/g"]);
}

fn files_in_a_writable_mount_keep_their_owner(keeper: &Keeper) {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().canonicalize().unwrap();
    std::fs::set_permissions(&source, PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::write(source.join("old"), "from the host\n").unwrap();
    std::fs::set_permissions(source.join("old"), PermissionsExt::from_mode(0o600)).unwrap();
    let mut spec = patient();
    spec.mounts.push(Mount { source: source.clone(), target: "/data".into(), writable: true, foreign: false });
    let mut cell = keeper.create(&spec).unwrap();
    let (outcome, text) = run(
        &mut cell,
        &[
            "sh",
            "-c",
            "cat /data/old && echo new > /data/new && chmod u+s /data/new; chmod 4755 /data/old; ls -l /data",
        ],
        None,
    );
    assert_eq!(outcome.status, RunStatus::Exited(0), "{text}");
    assert!(text.contains("from the host"), "{text}");
    assert_eq!(text.matches("Operation not permitted").count(), 2, "no set-user-id files: {text}");
    let made = source.join("new").metadata().unwrap();
    assert_eq!(made.uid(), source.metadata().unwrap().uid());
    assert_eq!(made.mode() & 0o7000, 0);
}

fn a_mount_is_not_redirected_by_links(keeper: &Keeper) {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().canonicalize().unwrap().join("link");
    std::os::unix::fs::symlink("/etc", &link).unwrap();
    for writable in [false, true] {
        let mut spec = patient();
        spec.mounts.push(Mount { source: link.clone(), target: "/data".into(), writable, foreign: false });
        let failure = keeper.create(&spec).and_then(|mut cell| cell.ready()).expect_err("refused");
        assert!(failure.to_string().contains("too many levels of symbolic links"), "{failure}");
    }
}

fn a_cell_reaches_only_its_gateway(keeper: &Keeper) {
    use std::io::Write;
    let gateway = sandbox_cell::Gateway { proxy: true, dns: true, ports: vec![80, 4321] };
    let spec = CellSpec { network: sandbox_cell::Network::Gateway(gateway.clone()), ..patient() };
    let mut cell = keeper.create(&spec).unwrap();
    let sockets = cell.take_gateway().unwrap().unwrap();
    let [web, other] = <[_; 2]>::try_from(sockets.ports).unwrap().map(std::net::TcpListener::from);
    let proxy = std::net::TcpListener::from(sockets.proxy.unwrap());
    let dns = std::net::UdpSocket::from(sockets.dns.unwrap());
    assert_eq!(dns.local_addr().unwrap().port(), 53);
    let server = std::thread::spawn(move || {
        for listener in [proxy, web, other] {
            let (mut connection, _) = listener.accept().unwrap();
            // Whatever address the program used.
            let local = connection.local_addr().unwrap();
            writeln!(connection, "hello from {local}").unwrap();
        }
    });
    let script = format!(
        "for place in 127.0.0.1/{} 192.0.2.1/80 203.0.113.7/4321; do exec 3<>/dev/tcp/$place; cat <&3; done; \
         for place in 127.0.0.1/9 192.0.2.1/81 8.8.8.8/53; do (exec 4<>/dev/tcp/$place) || echo not $place; done",
        sandbox_cell::PROXY_PORT
    );
    let (_, text) = run(&mut cell, &["bash", "-c", &script], None);
    server.join().unwrap();
    for part in ["127.0.0.1:3128", "192.0.2.1:80", "203.0.113.7:4321"] {
        assert!(text.contains(&format!("hello from {part}\n")), "{text}");
    }
    for place in ["127.0.0.1/9", "192.0.2.1/81", "8.8.8.8/53"] {
        assert!(text.contains(&format!("not {place}\n")), "{text}");
    }
    assert!(keeper.create(&patient()).unwrap().take_gateway().unwrap().is_none());
    for ports in [vec![0], vec![53], vec![80, 80], (1000..1010).collect()] {
        let network = sandbox_cell::Network::Gateway(sandbox_cell::Gateway { ports, ..gateway.clone() });
        let refused = keeper.create(&CellSpec { network, ..patient() }).and_then(|mut cell| cell.ready());
        assert!(refused.expect_err("refused").request);
    }
}

fn a_confined_keeper_mounts_nothing_else(keeper: &Keeper) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for name in ["readable", "writable", "other"] {
        std::fs::create_dir(root.join(name)).unwrap();
    }
    let sources = Sources { readable: vec![root.join("readable")], writable: vec![root.join("writable")] };
    keeper.confine(&sources).unwrap();
    // A second call cannot widen it.
    keeper.confine(&Sources { readable: vec!["/".into()], writable: vec!["/".into()] }).unwrap();
    let show = |source: &str, writable| {
        let mount = Mount { source: root.join(source), target: "/data".into(), writable, foreign: false };
        let spec = CellSpec { mounts: vec![mount], ..patient() };
        keeper.create(&spec).and_then(|mut cell| cell.ready()).map_err(|failure| failure.to_string())
    };
    assert!(show("readable", false).is_ok() && show("writable", false).is_ok());
    for (source, writable) in [("readable", true), ("other", false), ("readable/../other", false), ("/etc", false)] {
        let refused = show(source, writable).expect_err(source);
        assert!(refused.contains("outside the paths that the keeper may expose"), "{refused}");
    }
}

fn invalid_requests_are_refused(keeper: &Keeper) {
    let refused = |spec: &CellSpec| keeper.create(spec).and_then(|mut cell| cell.ready()).expect_err("refused");
    let mut spec = patient();
    spec.mounts = vec![Mount::read_only("/tmp", "/proc/x")];
    let failure = refused(&spec);
    assert!(failure.request && failure.to_string().contains("reserved for the cell"), "{failure}");
    spec.mounts = vec![Mount::read_only("/no/such/place", "/data")];
    for _ in 0..50 {
        // Init may fail before or after the handover.
        let failure = refused(&spec).to_string();
        assert!(failure.contains("mount /no/such/place at /data): no such file or directory"), "{failure}");
    }

    let mut cell = keeper.create(&patient()).unwrap();
    let null = null().unwrap();
    let stdio = Stdio { stdin: null.as_fd(), stdout: null.as_fd(), stderr: null.as_fd() };
    let failure = cell.run(&Command::new(["no-such-program"]), stdio, None).expect_err("refused");
    assert!(failure.request, "{failure}");
    let mut nowhere = Command::new(["true"]);
    nowhere.cwd = "/no/such/place".into();
    let failure = cell.run(&nowhere, stdio, None).expect_err("refused");
    assert!(failure.request && failure.to_string().contains("working directory"), "{failure}");
    let mut inside = Command::new(["true"]);
    inside.cwd = "/proc/self/fd/3".into();
    assert!(cell.run(&inside, stdio, None).is_err());
    // The cell is still usable.
    assert_eq!(cell.run(&Command::new(["true"]), stdio, None).unwrap().status, RunStatus::Exited(0));

    let mut files = Archive::new().unwrap();
    files.add(RelativePath::new("big").unwrap(), false, &vec![0; 1 << 20]).unwrap();
    let mut limits = Limits::default();
    limits.set(LimitKind::Disk, 64 << 10, &Caps::default()).unwrap();
    let mut small = keeper.create(&CellSpec { limits, ..CellSpec::new() }).unwrap();
    let failure = small.run(&Command::new(["true"]), stdio, Some(&files)).expect_err("refused");
    assert!(failure.request && failure.to_string().contains("exceed the disk limit"), "{failure}");
}

fn a_network_namespace_is_used_again(_: &Keeper) {
    let keeper = Keeper::start().unwrap();
    let namespace = || {
        let mut cell = keeper.create(&patient()).unwrap();
        let (outcome, text) = run(&mut cell, &["readlink", "/proc/self/ns/net"], None);
        assert_eq!(outcome.status, RunStatus::Exited(0), "{text}");
        (cell, text)
    };
    // That of the first cell is not kept, because many keepers have only one.
    let (only, of_only) = namespace();
    only.delete().unwrap();
    let (first, used) = namespace();
    assert_ne!(of_only, used);
    let (second, other) = namespace();
    assert_ne!(used, other, "not while a cell uses it");
    first.delete().unwrap();
    let (third, again) = namespace();
    assert_eq!(used, again);
    if !needs::root() {
        return;
    }
    // As if the kernel had not yet collected a socket that was left in flight.
    let namespaces = std::fs::read_dir("/proc").unwrap().flatten().map(|process| process.path().join("ns/net"));
    let is_used =
        |path: &std::path::PathBuf| std::fs::read_link(path).is_ok_and(|name| name.as_os_str() == used.trim());
    let namespace_file = std::fs::File::open(namespaces.into_iter().find(is_used).unwrap()).unwrap();
    let leave_socket = move || {
        move_into_link_name_space(namespace_file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        std::os::unix::net::UnixDatagram::unbound().unwrap()
    };
    let left = std::thread::spawn(leave_socket).join().unwrap();
    third.delete().unwrap();
    let (_fourth, other) = namespace();
    assert_ne!(used, other, "not while a socket is left in it");
    drop((left, second));
}

fn a_multithreaded_process_can_start_a_keeper(_: &Keeper) {
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || wait.recv());
    let keeper = Keeper::start().unwrap();
    let mut cell = keeper.create(&patient()).unwrap();
    let (outcome, output) = run(&mut cell, &["echo", "hello"], None);
    assert_eq!((outcome.status, output.as_str()), (RunStatus::Exited(0), "hello\n"));
    drop(done);
    let _ = thread.join();
}

fn a_keeper_has_a_fixed_command_line_and_no_environment(_: &Keeper) {
    let _keeper = Keeper::start().unwrap();
    let children = std::fs::read_to_string("/proc/thread-self/children").unwrap();
    let pid = children.split_ascii_whitespace().last().unwrap();
    eventually("it is a keeper", || {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"sandbox-keeper\0")
    });
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let names = environment.split(|byte| *byte == 0).filter_map(|variable| variable.split(|byte| *byte == b'=').next());
    for name in names.filter(|name| !name.is_empty()) {
        assert!([&b"TMPDIR"[..], b"LLVM_PROFILE_FILE"].contains(&name), "{}", String::from_utf8_lossy(name));
    }
}

fn a_keeper_that_ends_is_replaced_by_one_as_confined(_: &Keeper) {
    let keeper = Keeper::start_replaceable().unwrap();
    let child = |thread: &str, name: &str| -> String {
        let children = std::fs::read_to_string(format!("/proc/{thread}/children")).unwrap();
        let is_named = |pid: &&str| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap() == name.as_bytes();
        children.split_ascii_whitespace().find(is_named).unwrap().to_owned()
    };
    let launcher = child("thread-self", "sandbox-launcher\0");
    let refused = keeper.replace().unwrap_err();
    assert!(refused.to_string().contains("another one is running"), "{refused}");
    keeper.confine(&Sources::default()).unwrap();
    let shows = CellSpec { mounts: vec![Mount::read_only("/var/tmp", "/mnt")], ..patient() };
    for _ in 0..2 {
        let refused = keeper.create(&shows).unwrap().ready().unwrap_err();
        assert!(refused.request, "{refused}");
        let mut cell = keeper.create(&patient()).unwrap();
        assert_eq!(run(&mut cell, &["echo", "hello"], None).1, "hello\n");
        let end = keeper.end_notice().unwrap();
        let pid = child(&format!("{launcher}/task/{launcher}"), "sandbox-keeper\0").parse().unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL)
            .unwrap();
        let ended = cell.ready_unless(&[]).and_then(|_| cell.wait()).unwrap_err();
        assert!(ended.keeper_ended && ended.to_string() == "the cell is gone: the keeper ended", "{ended}");
        eventually("it is noticed", || sandbox_base::wait::is_readable(&[&end], Duration::ZERO));
        assert!(keeper.create(&patient()).unwrap_err().keeper_ended);
        assert!(!keeper.is_alive() && keeper.is_replaceable());
        keeper.replace().unwrap();
        // Too late: what the launcher remembers is sealed, as the keeper's confinement is.
        keeper.confine(&Sources { readable: vec!["/".into()], writable: vec!["/".into()] }).unwrap();
    }
    assert!(keeper.create(&shows).unwrap().ready().unwrap_err().request);
    drop(keeper);
    assert!(!std::path::Path::new(&format!("/proc/{launcher}")).exists(), "the launcher was waited for");
}
