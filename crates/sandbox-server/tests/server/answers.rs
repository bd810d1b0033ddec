//! Results stay results over HTTP: whatever a program does to its files or its init, every route answers with a verdict.

use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sandbox_testing::frozen::{Frozen, find};
use sandbox_testing::package_index::TestIndex;
use sandbox_testing::{eventually, needs};
use serde_json::{Value, json};

use crate::Server;

/// Fills the memory with names of files, so that little is left to collect them with.
fn long_names() -> Value {
    let code = "import os\nn = 0\nwhile True:\n    os.close(os.open(f'{n:06}' + 'n' * 240, os.O_CREAT | os.O_WRONLY))\n    n += 1";
    json!({"code": code, "timeout": 20, "limits": {"memory": "48m", "inodes": 262_144}})
}

/// The events of a run that is streamed.
fn stream(server: &Server, body: &Value) -> Vec<Value> {
    let stream = server.start_request("/execute?stream=true", &[("Connection", "close")], body);
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    lines.filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect()
}

/// A result on each of the routes that give one.
pub(crate) fn on_every_route(server: &Server, request: &Value) -> Vec<(&'static str, Value)> {
    let (status, answer) = server.post(request);
    assert_eq!(status, 200, "{answer:#}");
    let events = stream(server, request);
    let last = events.last().cloned().unwrap_or_default();
    let id = server.submit(request);
    eventually("the job has ended", || server.job(&id, "?wait=10")["result"].is_object());
    let job = server.job(&id, "");
    let batch = json!({"request": request, "inputs": [{}]}).to_string();
    let (_, (status, text)) = server.send_to("/v1/batch", &[], batch.as_bytes());
    assert_eq!(status, 200, "{text:#}");
    let events = text.as_str().unwrap().lines().filter_map(|line| line.strip_prefix("data: "));
    let mut events = events.map(|data| serde_json::from_str::<Value>(data).unwrap());
    let one = events.find(|event| event["index"] == 0).unwrap();
    vec![
        ("sync", answer),
        ("stream", last["result"].clone()),
        ("job", job["result"].clone()),
        ("batch", one["result"].clone()),
    ]
}

#[test]
fn names_that_fill_the_memory_leave_a_result_on_every_route() {
    let server = Server::start(&[]);
    for (route, result) in on_every_route(&server, &long_names()) {
        assert!(
            ["memory_limit", "runtime_error"].contains(&result["verdict"].as_str().unwrap_or_default()),
            "{route}: {result}"
        );
        assert!(result["files_omitted_count"].as_u64().unwrap_or_default() > 0, "{route}: {result}");
    }
}

/// A program that sleeps for a time which nothing else sleeps for, and how it can be found.
fn sleeper() -> (Value, [String; 2]) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mark = format!("8{:03}{}", NEXT.fetch_add(1, Ordering::Relaxed), std::process::id());
    let request = json!({"language": "bash", "code": format!("echo begun; exec sleep {mark}"), "timeout": 1});
    (request, ["sleep".to_owned(), mark])
}

#[test]
fn an_init_that_was_stopped_costs_a_run_nothing_but_its_files() {
    if !needs::root() {
        return;
    }
    let server = Server::start(&[]);
    let (request, [sleep, mark]) = sleeper();
    let (status, result) = std::thread::scope(|scope| {
        let run = scope.spawn(|| server.post(&request));
        let (_, init) = find(&[&sleep, &mark]);
        assert!(std::process::Command::new("kill").args(["-STOP", &init.to_string()]).status().unwrap().success());
        run.join().unwrap()
    });
    assert_eq!(
        (status, &result["verdict"], &result["stdout"]),
        (200, &"timeout".into(), &"begun\n".into()),
        "{result:#}"
    );
    assert_eq!(result["files_omitted"], json!([{"path": ".", "why": "not_collected"}]));
}

#[test]
fn a_cell_that_cannot_be_killed_is_reported_and_delays_no_run() {
    if !needs::root() || !needs::freezer() {
        return;
    }
    let server = Server::start(&[]);
    let (request, [sleep, mark]) = sleeper();
    let (frozen, (status, result)) = std::thread::scope(|scope| {
        let run = scope.spawn(|| server.post(&request));
        let (program, init) = find(&[&sleep, &mark]);
        (Frozen::new(&[program, init]), run.join().unwrap())
    });
    assert_eq!(
        (status, &result["verdict"], &result["stdout"]),
        (200, &"timeout".into(), &"begun\n".into()),
        "{result:#}"
    );
    assert!(result["error"].as_str().unwrap().contains("could not be killed and was abandoned"), "{result:#}");
    assert_eq!(server.get("/health").1["lost_cells"], 1);
    let (status, other) = server.post(&json!({"code": "print(1)"}));
    assert_eq!((status, &other["verdict"]), (200, &"ok".into()), "{other:#}");
    drop(frozen);
    eventually("it is gone", || server.get("/health").1["lost_cells"] == 0);
}

#[test]
fn a_script_lists_its_packages_itself() {
    let index = TestIndex::start();
    index.offer("demo", "");
    let server = Server::start_with(&[], &[("SANDBOX_PYTHON_INDEX", &index.address())]);
    let code = "# /// script\n# dependencies = [\"demo\"]\n# ///\nimport demo; demo.value";
    let (status, answer) = server.post(&json!({"code": code, "timeout": "20s"}));
    assert_eq!((status, &answer["result"]), (200, &"42".into()), "{answer:#}");
    let code = "# /// script\n# requires-python = \">=99\"\n# ///\n1";
    let (status, problem) = server.post(&json!({"code": code}));
    assert_eq!(status, 422, "{problem:#}");
    assert!(problem["detail"].as_str().unwrap().starts_with("main.py requires Python >=99"), "{problem:#}");
}
