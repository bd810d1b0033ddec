//! Many runs of one executor, in a row and at once, leave nothing behind: no process, group, mount or descriptor, here or
//! in the keeper.
//!
//! The keeper is this same program, started once more, so this file has a `main` of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should panic")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use sandbox_base::LimitKind;
use sandbox_base::limits::Caps;
use sandbox_cell::Mount;
use sandbox_executor::{Executor, HostVariables, Input, Request, RunResult, RunService, Settings, Source};
use sandbox_runtimes::Registry;
use sandbox_testing::command::{fixture, groups, processes};
use sandbox_testing::{data_dir, eventually};

/// How many runs follow each other, and how many take place at once.
const IN_A_ROW: i32 = 300;
const AT_ONCE: usize = 20;

/// The most descriptors for network namespaces that the keeper keeps for later cells: each has its count of sockets and its
/// last user.
const KEPT_NETWORKS: usize = 3 * 4;

/// Where the program is in its cell.
const PROGRAM: &str = "/opt/program";

fn main() {
    sandbox_cell::keeper_main_if_asked(None);
    let settings = Settings { data_dir: Some(data_dir()), ..Settings::default() };
    let executor = Executor::start().unwrap();
    let (registry, variables) = (Registry::default(), HostVariables::default());
    let service = Arc::new(RunService::new(executor, settings, registry, variables, PathBuf::new()));
    let inner = Arc::clone(&service);
    let trial = Trial::test("many_runs_of_one_executor_leave_nothing", move || {
        many_runs_leave_nothing(&inner);
        Ok(())
    });
    let conclusion = libtest_mimic::run(&Arguments::from_args(), vec![trial]);
    drop(service);
    conclusion.exit();
}

/// What this process and its keeper have.
#[derive(Debug)]
struct Holdings {
    processes: usize,
    groups: Vec<PathBuf>,
    mounts: usize,
    descriptors: [usize; 2],
}

impl Holdings {
    fn now() -> Self {
        let own = std::process::id();
        let all = processes();
        let keeper = all.iter().find(|(_, parent, name, _)| *parent == own && name == "sandbox-keeper").unwrap().0;
        let descriptors = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        Self {
            processes: all.iter().filter(|(_, parent, ..)| *parent == keeper).count(),
            groups: groups(&format!("-{keeper}-")),
            mounts: std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count(),
            descriptors: [descriptors(own), descriptors(keeper)],
        }
    }
}

impl Holdings {
    /// Whether there is nothing that was not there before. Others may have given something back meanwhile.
    fn is_within(&self, before: &Self) -> bool {
        let fewer = |now: &usize, then: &usize| now <= then;
        let [own, keeper] = before.descriptors;
        fewer(&self.processes, &before.processes)
            && self.groups.iter().all(|group| before.groups.contains(group))
            && fewer(&self.mounts, &before.mounts)
            && self.descriptors.iter().zip([own, keeper + KEPT_NETWORKS]).all(|(now, then)| fewer(now, &then))
    }
}

/// Runs the fixture with these words and limits.
fn run(service: &RunService, words: &[&str], limits: &[(LimitKind, &str)]) -> Arc<RunResult> {
    let settings = service.settings();
    let argv = [PROGRAM].iter().chain(words).map(Into::into).collect();
    let source = Source::Program { argv, mount: Some(Mount::read_only(fixture(), PROGRAM)) };
    let mut request = Request::new(source, settings.defaults.clone(), settings.required());
    for (kind, text) in limits {
        request.limits.set(*kind, kind.parse(text).unwrap(), &Caps::default()).unwrap();
    }
    let checked = service.check(request, None, Input::Empty, &[]).unwrap();
    service.run(checked, Duration::ZERO, &[], &mut ()).unwrap()
}

fn many_runs_leave_nothing(service: &RunService) {
    const MINUTE: (LimitKind, &str) = (LimitKind::WallTime, "60s");
    // The first two runs make what all of them share: the keeper expects more cells only after the first.
    for _ in 0..2 {
        assert_eq!(run(service, &["exit", "0"], &[MINUTE]).exit_code, Some(0));
    }
    eventually("the first cell is gone", || Holdings::now().processes == 0);
    let before = Holdings::now();
    for n in 0..IN_A_ROW {
        let result = run(service, &["exit", &(n % 7).to_string()], &[MINUTE]);
        let verdict = if n % 7 == 0 { "ok" } else { "runtime_error" };
        assert_eq!((result.exit_code, result.verdict.name()), (Some(n % 7), verdict), "run {n}: {:?}", result.error);
    }
    std::thread::scope(|scope| {
        for n in 0..AT_ONCE {
            scope.spawn(move || {
                let (words, limits, verdict): (&[&str], &[_], _) = match n % 4 {
                    0 => (&["hello"], &[MINUTE], "ok"),
                    1 => (&["spin", "1"], &[(LimitKind::WallTime, "500ms")], "timeout"),
                    2 => (&["memory", "100"], &[MINUTE, (LimitKind::Memory, "32m")], "memory_limit"),
                    _ => (&["threads", "99"], &[MINUTE, (LimitKind::Processes, "9")], "process_limit"),
                };
                let result = run(service, words, limits);
                assert_eq!(result.verdict.name(), verdict, "{words:?}: {:?}", result.error);
            });
        }
    });
    eventually("nothing is left", || Holdings::now().is_within(&before));
}
