use std::sync::Arc;

use sandbox_base::limits::Caps;
use sandbox_cell::{CellSpec, Command};
use sandbox_network::{AddressPolicy, Refusal};
use sandbox_runtimes::Registry;

use super::*;
use crate::face::Face;
use crate::result::LimitHit;

const KILLED: RunStatus = RunStatus::Signaled(9);

fn plan(language: &str, face: Face) -> Plan {
    let registry = Registry::shipped().expect("valid");
    let definition = registry.by_name(language).expect("known").clone();
    let plan = Plan::of_program(CellSpec::new(), AddressPolicy::default(), Command::new(["x"]), vec![], None);
    Plan { definition: Some(Arc::new(definition)), face, ..plan }
}

fn failed(error: &str, limit: Option<LimitKind>) -> Judgement {
    let limit = limit.map(|kind| LimitHit { kind, cap: 1.0, used: 1.0 });
    let verdict = limit.map_or(Verdict::RuntimeError, |limit| Verdict::of_limit(limit.kind));
    Judgement { verdict, limit, error: Some(error.to_owned()) }
}

/// The hint of a plan for a program that ended like this.
fn after(plan: &Plan, settings: &Settings, status: RunStatus, stderr: &str, network: Option<&NetworkUse>) -> String {
    let judgement = failed(stderr.lines().last().unwrap_or_default(), None);
    let isolation = Layer::ALL.into_iter().collect();
    let stderr = stderr.as_bytes();
    let symptoms = Symptoms { judgement: &judgement, status, isolation, stderr, stdin_is_empty: true, network };
    Advisor { plan, settings }.after_run(&symptoms).unwrap_or_default()
}

/// The hints of both faces for a program that printed this and exited with code 1.
fn hints(language: &str, stderr: &str) -> [String; 2] {
    let hint = |face| after(&plan(language, face), &Settings::default(), RunStatus::Exited(1), stderr, None);
    [hint(Face::Command), hint(Face::Http)]
}

#[test]
fn each_face_names_what_its_users_can_change() {
    for (language, stderr, command, http) in [
        (
            "python",
            "ModuleNotFoundError: No module named 'PIL'",
            "install the missing package with --package pillow",
            r#"install the missing package with "packages": ["pillow"]"#,
        ),
        (
            "python",
            "ModuleNotFoundError: No module named 'helper'",
            "if 'helper' belongs to a package, install it with --package helper; if it is a file of yours, add it with \
             --input",
            r#"if 'helper' belongs to a package, install it with "packages": ["helper"]; if it is a file of yours, add it to "files""#,
        ),
        (
            "javascript",
            "Error: getaddrinfo EAI_AGAIN example.com",
            "programs have no network by default; allow it with --allow-host example.com",
            r#"programs have no network by default; allow it with "network": {"mode": "allowlist", "hosts": ["example.com"]}"#,
        ),
        (
            "python",
            "OSError: [Errno 101] Network is unreachable",
            "programs have no network by default; allow it with --allow-host HOST, or --network full",
            r#"programs have no network by default; allow it with "network": {"mode": "allowlist", "hosts": ["HOST"]}, or "network": "full""#,
        ),
        (
            "python",
            "EOFError: EOF when reading a line",
            "standard input is empty; pass a file with --stdin FILE, or the input of this command with --stdin -",
            r#"standard input is empty; set "stdin""#,
        ),
        (
            "go",
            "write x: no space left on device",
            "raise the disk limit, for example with --disk 128m",
            r#"raise the disk limit, for example with "limits": {"disk": "128m"}"#,
        ),
        (
            "bash",
            "x: File too large",
            "raise the file size limit, for example with --file-size 128m",
            r#"raise the file size limit, for example with "limits": {"file_size": "128m"}"#,
        ),
    ] {
        assert_eq!(hints(language, stderr), [command, http], "{language}: {stderr}");
    }
}

#[test]
fn failures_of_the_program_itself_get_no_hint() {
    for stderr in ["NameError: name 'x' is not defined", "", "ZeroDivisionError: division by zero"] {
        assert_eq!(hints("python", stderr), ["", ""], "{stderr}");
    }
    let judgement = Judgement { verdict: Verdict::Ok, limit: None, error: None };
    let stderr = b"ModuleNotFoundError: No module named 'PIL'";
    let symptoms = Symptoms {
        judgement: &judgement,
        status: RunStatus::Exited(0),
        isolation: LayerSet::default(),
        stderr,
        stdin_is_empty: true,
        network: None,
    };
    let plan = plan("python", Face::Command);
    assert_eq!(Advisor { plan: &plan, settings: &Settings::default() }.after_run(&symptoms), None);
}

#[test]
fn installed_packages_are_not_suggested_again() {
    let mut plan = plan("python", Face::Command);
    let settings = Settings::default();
    let hint = |plan: &Plan| {
        let stderr = "ModuleNotFoundError: No module named 'cv2'";
        after(plan, &settings, RunStatus::Exited(1), stderr, None)
    };
    for (package, is_it) in
        [("Opencv-Python==4.9", true), ("opencv-python[x]", true), ("opencv-python-headless", false)]
    {
        plan.packages = vec![package.to_owned()];
        assert_eq!(hint(&plan).is_empty(), is_it, "{package}");
    }
}

#[test]
fn limits_are_raised_up_to_the_maximum() {
    let mut settings = Settings::default();
    let hint = |settings: &Settings, kind| {
        let plan = plan("python", Face::Command);
        let judgement = failed("reached", Some(kind));
        let stderr = b"ModuleNotFoundError: No module named 'cv2'";
        let symptoms = Symptoms {
            judgement: &judgement,
            status: KILLED,
            isolation: LayerSet::default(),
            stderr,
            stdin_is_empty: true,
            network: None,
        };
        Advisor { plan: &plan, settings }.after_run(&symptoms).expect("a hint")
    };
    assert_eq!(hint(&settings, LimitKind::WallTime), "raise the time limit, for example with --timeout 6s");
    assert_eq!(hint(&settings, LimitKind::Processes), "raise the process limit, for example with --processes 128");
    settings.caps.lower(LimitKind::Memory, 300 << 20).expect("within bounds");
    assert_eq!(hint(&settings, LimitKind::Memory), "raise the memory limit, for example with --memory 300m");
    settings.caps.lower(LimitKind::Memory, 256 << 20).expect("within bounds");
    assert_eq!(hint(&settings, LimitKind::Memory), "the memory limit is at its maximum, which SANDBOX_MAX_MEMORY sets");
}

#[test]
fn killed_processes_may_need_memory() {
    let (plan, settings) = (plan("bash", Face::Command), Settings::default());
    let hint = |status| after(&plan, &settings, status, "", None);
    let memory = "a process was killed; if memory ran out, raise the memory limit, for example with --memory 512m";
    assert_eq!(hint(KILLED), memory);
    assert_eq!(hint(RunStatus::Exited(137)), memory);
    assert_eq!(hint(RunStatus::Signaled(25)), "raise the file size limit, for example with --file-size 128m");
    assert_eq!(hint(RunStatus::Signaled(11)), "");
    assert_eq!(hint(RunStatus::Exited(i32::MIN)), "");
}

#[test]
fn refused_hosts_are_facts_of_the_gateway() {
    let mut plan = plan("python", Face::Command);
    plan.network = NetworkMode::Allowlist;
    let hint = |host: &str, port, why: &str| {
        let refusals = vec![Refusal { host: host.to_owned(), port, why: why.to_owned() }];
        let used = NetworkUse { refusals, ..NetworkUse::default() };
        after(&plan, &Settings::default(), RunStatus::Exited(1), "URLError", Some(&used))
    };
    let not_allowed = format!("example.com:443 {NOT_ALLOWED}");
    assert_eq!(hint("example.com", Some(443), &not_allowed), "allow the host with --allow-host example.com");
    assert_eq!(hint("example.com", Some(5432), &not_allowed), "allow the host with --allow-host example.com:5432");
    assert_eq!(hint("example.com", None, NOT_ALLOWED), "allow the host with --allow-host example.com");
    assert_eq!(hint("10.0.0.1", Some(80), "its address is not public"), "");
    assert_eq!(hint("a b\u{1b}[2J", Some(80), NOT_ALLOWED), "");
}

#[test]
fn the_network_of_the_operator_and_of_the_request_count() {
    let stderr = "connect to https://example.com: Network is unreachable";
    let local = "connect to http://localhost:8000/: Connection refused";
    let mut plan = plan("python", Face::Command);
    let mut settings = Settings::default();
    let hint = |plan: &Plan, settings: &Settings, stderr| after(plan, settings, RunStatus::Exited(1), stderr, None);
    assert!(hint(&plan, &settings, local).ends_with("allow it with --network localhost"));
    settings.max_network = NetworkMode::Localhost;
    assert_eq!(
        hint(&plan, &settings, stderr),
        "programs can connect nowhere: the maximum network mode is 'localhost' (SANDBOX_MAX_NETWORK)"
    );
    let settings = Settings::default();
    plan.network = NetworkMode::Localhost;
    assert!(hint(&plan, &settings, stderr).ends_with("allow one with --allow-host example.com"));
    assert_eq!(hint(&plan, &settings, local), "", "the port is closed");
    plan.network = NetworkMode::Full;
    assert_eq!(hint(&plan, &settings, stderr), "");
}

#[test]
fn steps_name_flags_or_variables_of_the_operator() {
    let hint = |face, step, kind| {
        let plan = plan("rust", face);
        let (judgement, isolation) = (failed("reached", Some(kind)), LayerSet::default());
        Advisor { plan: &plan, settings: &Settings::default() }.after_step(step, &judgement, isolation, b"")
    };
    assert_eq!(
        hint(Face::Command, Step::Compile, LimitKind::WallTime).as_deref(),
        Some("raise the time limit for compiling with --compile-timeout")
    );
    assert_eq!(
        hint(Face::Http, Step::Install, LimitKind::WallTime).as_deref(),
        Some("the operator can raise the time limit for installing with SANDBOX_INSTALL_TIMEOUT")
    );
    assert_eq!(
        hint(Face::Command, Step::Prepare, LimitKind::Disk).as_deref(),
        Some("the operator can raise the disk limit for installing with SANDBOX_INSTALL_DISK")
    );
    let plan = plan("rust", Face::Command);
    let advisor = Advisor { plan: &plan, settings: &Settings::default() };
    let stderr =
        b"use of unresolved module or unlinked crate `rand`\nuse of unresolved module or unlinked crate `regex`";
    let hint = |isolation| advisor.after_step(Step::Compile, &failed("error", None), isolation, stderr);
    let all = Layer::ALL.into_iter().collect();
    assert_eq!(hint(all).as_deref(), Some("install the missing packages with --package rand --package regex"));
    assert_eq!(hint(LayerSet::default()), None, "without network namespaces nothing can be installed");
}

#[test]
fn omitted_files_name_the_limit() {
    let omitted = |why| [OmittedFile { path: "x".to_owned(), why }];
    let plan = plan("python", Face::Command);
    let settings = Settings::default();
    let hint = |why| Advisor { plan: &plan, settings: &settings }.after_collection(&omitted(why)).unwrap_or_default();
    assert_eq!(hint(Omission::TooLarge), "raise the output files limit, for example with --output-size 32m");
    assert_eq!(
        hint(Omission::TooMany),
        "a result has at most 1000 files; the operator can raise that with SANDBOX_FILES"
    );
    assert_eq!(hint(Omission::NotAFile), "");
}

#[test]
fn long_and_hostile_output_is_read_in_part() {
    let settings = Settings { caps: Caps::default(), ..Settings::default() };
    let plan = plan("python", Face::Command);
    let long = format!("ModuleNotFoundError: No module named 'cv2'\n{}", "x\n".repeat(MOST_READ));
    assert_eq!(after(&plan, &settings, RunStatus::Exited(1), &long, None), "");
    let split = format!("{}é\nModuleNotFoundError: No module named 'cv2'", "é".repeat(MOST_READ));
    assert_eq!(
        after(&plan, &settings, RunStatus::Exited(1), &split, None),
        "install the missing package with --package opencv-python"
    );
    for hostile in
        ["ModuleNotFoundError: No module named '\u{1b}[31m'", "lookup \u{1b}]0;x\u{7}: network is unreachable"]
    {
        let hint = after(&plan, &settings, RunStatus::Exited(1), hostile, None);
        assert!(!hint.contains(char::is_control), "{hint:?}");
    }
}
