//! Toolchains that a server prepares in the background, and requests that come meanwhile.

use std::process::Stdio;
use std::time::{Duration, Instant};

use sandbox_testing::{TestServer, eventually, staged_languages};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Server;

/// A server that prepares these languages, in this order, each with a script.
fn start(flags: &[&str], languages: &[(&str, &str)]) -> (Server, TempDir) {
    let dir = staged_languages(languages);
    let names: Vec<&str> = languages.iter().map(|(name, _)| *name).collect();
    let runtimes = dir.path().to_str().unwrap().to_owned();
    let variables = [("SANDBOX_PREPARE", names.join(",")), ("SANDBOX_RUNTIMES", runtimes)];
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    (Server::start_with(flags, &variables), dir)
}

fn state(server: &Server, language: &str) -> String {
    server.get("/health").1["toolchains"][language].as_str().unwrap().to_owned()
}

fn listed(server: &Server, language: &str) -> Value {
    let (_, list) = server.get("/v1/languages");
    list.as_array().unwrap().iter().find(|listed| listed["name"] == language).unwrap()["toolchain"].clone()
}

/// A preparation that continues when its test ends its `sleep`.
const GATED: &str = "sleep 300 || true; echo made > \"$OUT/state\"";

/// Lets such a preparation continue.
fn finish(server: &Server) {
    eventually("the preparation sleeps", || server.end_a_sleep());
}

/// The time limit of programs here.
const LIMIT: Duration = Duration::from_secs(5);

fn program(language: &str) -> Value {
    json!({"language": language, "code": "BEGIN { print 1 }", "timeout": LIMIT.as_secs()})
}

#[test]
fn toolchains_are_prepared_in_the_background() {
    let (server, _languages) = start(&["--capacity", "1"], &[("slow", GATED)]);
    eventually("it has begun", || state(&server, "slow") == "preparing");
    assert_eq!((server.get("/readyz").0, listed(&server, "slow")), (200, "preparing".into()));
    assert_eq!(server.get("/health").1["load"], 0, "it takes no slot");
    let (status, answer) = server.post(&json!({"code": "print(1)"}));
    assert_eq!((status, &answer["stdout"]), (200, &"1\n".into()), "{answer:#}");
    finish(&server);
    eventually("it is ready", || state(&server, "slow") == "ready");
    let (_, answer) = server.post(&program("slow"));
    assert_eq!(answer["verdict"], "ok", "{answer:#}");
    assert_eq!(answer["metrics"]["phases"].get("toolchain"), None, "{answer:#}");
    let (_, metrics) = server.get("/metrics");
    let ready = "sandbox_toolchains{language=\"slow\",state=\"ready\"} 1";
    assert!(metrics.as_str().unwrap().contains(ready), "{metrics}");
    assert_eq!((listed(&server, "slow"), listed(&server, "python")), ("ready".into(), "ready".into()));
}

#[test]
fn a_request_waits_for_the_preparation_and_its_time_limit_does_not_count_that() {
    let (server, _languages) = start(&[], &[("slow", GATED)]);
    eventually("it has begun", || state(&server, "slow") == "preparing");
    let id = server.submit(&json!({"language": "slow", "code": "BEGIN { print 2 }", "timeout": LIMIT.as_secs()}));
    let waits = |event: &Value| event["event"] == "step" && event["step"] == "prepare";
    let mut events = server.streamed(&program("slow"));
    let step = events.find(waits).expect("it waits");
    assert_eq!(step["waiting"], true, "{step}");
    assert_eq!(step["what"], "waiting for work in progress: preparing the tables of slow (once)");
    std::thread::sleep(LIMIT);
    finish(&server);
    let last = events.last().unwrap();
    let result = &last["result"];
    assert_eq!((&result["verdict"], &result["stdout"]), (&"ok".into(), &"1\n".into()), "{result:#}");
    assert!(result["metrics"]["phases"]["toolchain"].as_f64().unwrap() >= LIMIT.as_secs_f64(), "{result:#}");
    let job = server.job(&id, "?wait=60s");
    assert_eq!(job["result"]["stdout"], "2\n", "{job:#}");
    let recorded = server.follow(&id, None);
    assert!(recorded.iter().any(|(_, event)| waits(event) && event["waiting"] == true), "{recorded:?}");
}

#[test]
fn a_client_that_disconnects_while_it_waits_frees_its_slot() {
    let (server, _languages) = start(&["--capacity", "1"], &[("slow", "sleep 300")]);
    eventually("it has begun", || state(&server, "slow") == "preparing");
    let mut events = server.streamed(&program("slow"));
    assert!(events.any(|event| event["waiting"] == true));
    assert_eq!(server.get("/health").1["load"], 1);
    drop(events);
    eventually("its slot is free", || server.get("/health").1["load"] == 0);
    assert_eq!(state(&server, "slow"), "preparing", "the preparation goes on");
}

#[test]
fn a_server_that_ends_keeps_nothing_incomplete() {
    let (server, _languages) = start(&[], &[("slow", "echo half > \"$OUT/state\"; sleep 300")]);
    eventually("it has begun", || state(&server, "slow") == "preparing");
    let began = Instant::now();
    let data = server.end("-TERM");
    assert!(began.elapsed() < Duration::from_secs(60), "it does not wait for that: {:?}", began.elapsed());
    let kept: Vec<_> = std::fs::read_dir(data.path().join("data/environments")).unwrap().collect();
    assert!(kept.is_empty(), "{kept:?}");
}

#[test]
fn a_failure_is_reported_and_the_next_run_tries_again() {
    let script = "echo 'error: the mirror is away' >&2; exit 3";
    let (server, _languages) = start(&[], &[("broken", script), ("fine", "echo made > \"$OUT/state\"")]);
    eventually("the others are prepared", || state(&server, "fine") == "ready");
    let reported = state(&server, "broken");
    assert!(reported.starts_with("failed: ") && reported.contains("the mirror is away"), "{reported}");
    let (_, health) = server.get("/health");
    assert_eq!((&health["status"], server.get("/readyz").0), (&"ok".into(), 200), "{health:#}");
    assert_eq!(listed(&server, "broken"), "failed");
    let (_, answer) = server.post(&program("broken"));
    assert_eq!(answer["verdict"], "package_error", "{answer:#}");
}

#[test]
fn a_preparation_is_repeated_with_the_next_keeper() {
    let (server, _languages) = start(&[], &[("slow", GATED)]);
    eventually("it has begun", || state(&server, "slow") == "preparing");
    let keeper = rustix::process::Pid::from_raw(server.keeper_process().try_into().unwrap()).unwrap();
    rustix::process::kill_process(keeper, rustix::process::Signal::KILL).unwrap();
    eventually("there is another keeper", || server.get("/health").1["keeper_restarts"] == 1);
    finish(&server);
    eventually("it is ready", || state(&server, "slow") == "ready");
}

#[test]
fn preparing_yields_to_requests() {
    let languages = [("one", GATED), ("two", "echo made > \"$OUT/state\"")];
    let (server, _languages) = start(&["--capacity", "1"], &languages);
    eventually("the first has begun", || state(&server, "one") == "preparing");
    let run = server.streamed(&json!({"code": "import time; time.sleep(300)", "timeout": 300}));
    eventually("a run takes the slot", || server.get("/health").1["load"] == 1);
    finish(&server);
    eventually("the first is ready", || state(&server, "one") == "ready");
    // It would be prepared at once if it did not have to wait.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(state(&server, "two"), "pending");
    drop(run);
    eventually("the second is ready", || state(&server, "two") == "ready");
}

#[test]
fn nothing_is_prepared_unless_it_is_chosen() {
    let languages = staged_languages(&[("slow", "sleep 300")]);
    let runtimes = languages.path().to_str().unwrap();
    let server = Server::start_with(&[], &[("SANDBOX_PREPARE", "none"), ("SANDBOX_RUNTIMES", runtimes)]);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(state(&server, "slow"), "pending");
    let mut command = TestServer::command();
    let data = tempfile::tempdir().unwrap();
    command.args(["--http-port", "0", "--prepare", "pyhton"]).env("SANDBOX_DATA_DIR", data.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("prepare: unknown language 'pyhton'; did you mean 'python'?"), "{message}");
}
