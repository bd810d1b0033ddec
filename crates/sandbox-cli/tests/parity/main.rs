//! The same programs with every backend of this host: verdicts, limits, output and files must be the same.
//!
//! Docker's engine takes a while to start, so it takes part only if `SANDBOX_TEST_DOCKER` is set (`make
//! test-backends`). With `SANDBOX_BLESS` set, the table in docs/EVALUATION.md is rewritten.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod engine;
mod samples;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use engine::Engine;
use samples::{SAMPLES, Sample};
use sandbox_testing::command::sandbox;
use sandbox_testing::{eventually, needs};

/// A backend, and its settings.
struct Candidate {
    name: &'static str,
    variables: Vec<(&'static str, String)>,
    shared: bool,
}

impl Candidate {
    fn new(name: &'static str, variables: &[(&'static str, &str)]) -> Self {
        let variables = variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Self { name, variables, shared: false }
    }

    fn command(&self, data: &Path, args: &[&str]) -> Command {
        let mut command = sandbox(args);
        // Only toolchains of the system: an existing container has no others.
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("SANDBOX_DATA_DIR", data).envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn run(&self, data: &Path, sample: &Sample) -> (Value, Duration) {
        let mut args = vec!["--lang", sample.language, "--code", sample.code, "--json", "--stdin", "-"];
        args.extend(sample.flags);
        let mut command = self.command(data, &args);
        let began = Instant::now();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(sample.stdin.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let result = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| json!({"verdict": String::from_utf8_lossy(&output.stderr)}));
        (result, began.elapsed())
    }
}

/// The parts of a result that must not depend on the backend. In a shared container the working directory differs, and
/// so do messages with it.
fn essence(result: &Value, sample: &Sample) -> Value {
    let text = result.to_string();
    let result = match text.split_once("/tmp/jobs/sandbox-run-cells-").and_then(|(_, rest)| rest.split_once("/work")) {
        Some((name, _)) => text.replace(&format!("/tmp/jobs/sandbox-run-cells-{name}/work"), "/sandbox"),
        None => text,
    };
    let result: Value = serde_json::from_str(&result).unwrap();
    let mut essence = json!({"verdict": result["verdict"], "limit": result["limit"]["kind"]});
    if sample.output {
        for field in ["stdout", "stderr", "exit_code", "signal", "result", "error", "files"] {
            essence[field] = result[field].clone();
        }
    }
    essence
}

#[test]
fn every_backend_gives_the_same_results() {
    if !needs::root() {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let data = sandbox_testing::data_dir();
    let native = Candidate::new("native", &[]);
    let mut candidates = vec![];
    let has = |program: &str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    assert!(has("runc"), "runc is installed by scripts/setup");
    candidates.push(Candidate::new("oci (runc)", &[("SANDBOX_BACKEND", "oci")]));
    for (name, runtime) in [("oci (crun)", "crun"), ("oci (youki)", "youki"), ("oci (runsc)", "runsc")] {
        if std::env::var("SANDBOX_TEST_RUNTIMES").is_ok_and(|names| names.split(',').any(|name| name == runtime)) {
            candidates.push(Candidate::new(name, &[("SANDBOX_BACKEND", "oci"), ("SANDBOX_OCI_RUNTIME", runtime)]));
        }
    }
    let engine = needs::docker().then(Engine::start);
    if let Some(engine) = &engine {
        let host = [("SANDBOX_BACKEND", "docker"), ("DOCKER_HOST", engine.host.as_str())];
        candidates.push(Candidate::new("docker run", &host));
        let runner = engine.runner();
        let exec = [host[0], host[1], ("SANDBOX_DOCKER_MODE", "exec"), ("SANDBOX_CONTAINER", runner.as_str())];
        candidates.push(Candidate { shared: true, ..Candidate::new("docker exec", &exec) });
    }
    let mut rows = vec![];
    let mut differences = vec![];
    for sample in SAMPLES {
        let (expected, _) = native.run(&data, sample);
        assert_eq!(expected["verdict"], sample.verdict, "{}: {expected:#}", sample.name);
        assert_eq!(expected["limit"]["kind"].as_str(), sample.limit, "{}: {expected:#}", sample.name);
        let mut row = format!("| {} | `{}` |", sample.name, sample.verdict);
        for candidate in &candidates {
            if candidate.shared && !sample.shared {
                row += " – |";
                continue;
            }
            let (result, _) = candidate.run(&data, sample);
            let (theirs, ours) = (essence(&result, sample), essence(&expected, sample));
            row += if theirs == ours { " same |" } else { " **differs** |" };
            if theirs != ours {
                differences.push(format!("{} with {}:\n{theirs:#}\ninstead of\n{ours:#}", sample.name, candidate.name));
            }
        }
        rows.push(row);
    }
    let table = table(&rows, &native, &candidates, &data);
    if std::env::var_os("SANDBOX_BLESS").is_some() {
        sandbox_manual::write("docs/EVALUATION.md", "parity", table.trim_end()).unwrap();
    }
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
    assert_eq!(left_behind(), Vec::<String>::new());
}

/// The directories and cgroups of containers that are left. Other tests here wait for theirs to be gone.
fn left_behind() -> Vec<String> {
    let places = [std::env::temp_dir(), "/sys/fs/cgroup".into(), "/sys/fs/cgroup/memory".into()];
    let entries = places.iter().filter_map(|place| std::fs::read_dir(place).ok()).flatten().flatten();
    let names = entries.map(|entry| entry.path().to_string_lossy().into_owned());
    names.filter(|name| name.contains("sandbox-cell-")).collect()
}

/// Every test here starts containers; one at a time, they can look for leftovers.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn a_container_ends_with_its_caller() {
    if !needs::root() {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let oci = Candidate::new("", &[("SANDBOX_BACKEND", "oci")]);
    let args =
        ["--lang", "python", "--timeout", "60s", "--code", "print('up', flush=True); import time; time.sleep(50)"];
    let mut child =
        oci.command(&sandbox_testing::data_dir(), &args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut word = [0; 2];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut word).unwrap();
    assert_eq!(&word, b"up");
    assert_ne!(left_behind(), Vec::<String>::new(), "the container exists");
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("nothing of the container is left", || left_behind().is_empty());
}

#[test]
fn containers_can_use_an_image() {
    if !needs::root() {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let data = tempfile::tempdir().unwrap();
    let root = data.path().join("root");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    std::fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    std::fs::write(root.join("own"), "the image's own").unwrap();
    let tar = data.path().join("image.tar");
    let packed = Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&tar).arg(".").status().unwrap();
    assert!(packed.success());
    let oci = Candidate::new("", &[("SANDBOX_BACKEND", "oci")]);
    assert!(oci.command(data.path(), &["image", "import", tar.to_str().unwrap()]).status().unwrap().success());
    let args = ["--image", "image", "--quiet", "--", "/bin/busybox", "cat", "/own"];
    let output = oci.command(data.path(), &args).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(stdout, "the image's own", "{stderr}");
}

fn table(rows: &[String], native: &Candidate, candidates: &[Candidate], data: &Path) -> String {
    let names: Vec<_> = candidates.iter().map(|candidate| candidate.name).collect();
    let mut text = format!("| program | verdict | {} |\n|---|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    text += &rows.join("\n");
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    text += &format!(
        "\n\n| backend | `print()` in Python, whole command, {build} build, median of 5 | layers |\n|---|---|---|\n"
    );
    for candidate in std::iter::once(native).chain(candidates) {
        let runs: Vec<_> = (0..5).map(|_| candidate.run(data, &SAMPLES[0])).collect();
        let mut times: Vec<_> = runs.iter().map(|(_, time)| *time).collect();
        times.sort();
        let layers: Vec<_> =
            runs[0].0["isolation"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        text += &format!("| {} | {} ms | {} |\n", candidate.name, times[2].as_millis(), layers.join(", "));
    }
    text
}

#[test]
fn a_missing_backend_is_reported() {
    let data = sandbox_testing::data_dir();
    let missing = Candidate::new("", &[("SANDBOX_BACKEND", "oci"), ("SANDBOX_OCI_RUNTIME", "/no/such/runtime")]);
    let output = missing.command(&data, &["--lang", "python", "--code", "1"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("cannot start /no/such/runtime: no such file or directory; install it"), "{errors}");
    let strange = Candidate::new("", &[("SANDBOX_BACKEND", "vm")]);
    let output = strange.command(&data, &["--lang", "python", "--code", "1"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("invalid value 'vm': expected native, oci or docker"));
}

#[test]
fn unsupported_requests_are_refused() {
    let data = sandbox_testing::data_dir();
    let oci = Candidate::new("", &[("SANDBOX_BACKEND", "oci")]);
    let code = ["--lang", "python", "--code", "1", "--network", "full"];
    let output = oci.command(&data, &code).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("it has no proxy"), "{errors}");
    assert_eq!(output.status.code(), Some(2));
}
