//! The examples of the API document: a request for every operation, which a test sends to a server, and an answer.

use sandbox_executor::{RunResult, Status, Verdict};
use serde_json::{Value, json};

/// A request that works, in the order of the page: a later one may use the job of an earlier one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Example {
    /// The operation.
    pub(crate) operation: &'static str,
    /// What it does.
    pub(crate) title: &'static str,
    /// The path and query. `$ID` stands for the id of the job that the example of `create_job` has created.
    pub(crate) target: &'static str,
    /// The body, as JSON.
    pub(crate) body: Option<&'static str>,
    /// What the client accepts, if that matters.
    pub(crate) accept: Option<&'static str>,
}

const fn post(operation: &'static str, title: &'static str, target: &'static str, body: &'static str) -> Example {
    Example { operation, title, target, body: Some(body), accept: None }
}

const fn get(operation: &'static str, title: &'static str, target: &'static str) -> Example {
    Example { operation, title, target, body: None, accept: None }
}

const fn accepting(accept: &'static str, example: Example) -> Example {
    Example { accept: Some(accept), ..example }
}

/// The examples of the page.
pub(crate) const EXAMPLES: &[Example] = &[
    post("run_code", "Run a Python program", "/execute", r#"{"code": "print(2+2)"}"#),
    post(
        "run_code",
        "Choose a language and a time limit",
        "/execute",
        r#"{"language": "javascript", "code": "[1, 2, 3].map((n) => n * n)", "timeout": "5s"}"#,
    ),
    post(
        "run_code",
        "Send files, arguments and limits",
        "/execute",
        r#"{"code": "import sys; print(open('data.csv').read(), sys.argv[1])", "files": {"data.csv": "a,b\n"}, "args": ["x"], "limits": {"memory": "64m", "processes": 8}}"#,
    ),
    accepting(
        "text/event-stream",
        post("run_code", "Stream the output while the program runs", "/execute", r#"{"code": "print('one')"}"#),
    ),
    accepting(
        "application/json",
        post(
            "run_batch",
            "Run a program for each input",
            "/v1/batch",
            r#"{"request": {"code": "print(int(input()) ** 2)"}, "inputs": [{"stdin": "3"}, {"stdin": "4"}]}"#,
        ),
    ),
    post(
        "create_job",
        "Create a job and keep its id",
        "/v1/execute",
        r#"{"language": "bash", "code": "echo hello", "timeout": "2s"}"#,
    ),
    get("list_jobs", "List finished jobs", "/v1/execute?status=finished&limit=10"),
    get("get_job", "Wait for the result", "/v1/execute/$ID?wait=5s"),
    accepting("application/json", get("get_job_events", "Get the events so far", "/v1/execute/$ID/events")),
    get("cancel_job", "Cancel the job", "/v1/execute/$ID"),
    get("list_languages", "List languages", "/v1/languages"),
    get("get_health", "Get the state of the server", "/health"),
    get("get_liveness", "Check whether the server responds", "/livez"),
    get("get_readiness", "Check whether the server accepts work", "/readyz"),
    get("get_metrics", "Get metrics", "/metrics"),
    Example { operation: "drain_server", title: "Drain the server", target: "/admin/drain", body: None, accept: None },
];

/// The result of `print(2+2)`.
fn result() -> Value {
    let result = RunResult {
        status: Status::Success,
        verdict: Verdict::Ok,
        success: true,
        language: Some("python".to_owned()),
        version: Some("3.11.7".to_owned()),
        stdout: "4\n".to_owned(),
        exit_code: Some(0),
        result: Some("4".to_owned()),
        execution_time: 0.0031,
        memory_used: 9_437_184,
        ..RunResult::default()
    };
    json!(result)
}

/// The answer to the first example of an operation, if it is JSON.
pub(super) fn answer(operation: &str) -> Option<Value> {
    let id = "01932c07-209c-7d4e-8b2a-4f1f1f0c2a11";
    let created_at = 1_731_900_000.5;
    Some(match operation {
        "run_code" => result(),
        "run_batch" => json!([{ "index": 0, "result": result() }, { "index": 1, "result": result() }]),
        "create_job" => json!({ "id": id, "status": "queued", "created_at": created_at }),
        "list_jobs" => {
            let job = json!({ "id": id, "status": "finished", "language": "bash", "verdict": "ok",
                "created_at": created_at, "started_at": created_at, "finished_at": created_at });
            json!({ "jobs": [job], "next": null })
        }
        "get_job" | "cancel_job" => {
            json!({ "id": id, "status": "finished", "created_at": created_at, "started_at": created_at,
                "finished_at": created_at, "attempts": 1, "request": { "code": "print(2+2)" }, "result": result() })
        }
        "get_job_events" => {
            let start = json!({ "event": "start", "language": "bash", "version": "5.2.15" });
            let output = json!({ "event": "stdout", "data": "hello\n", "time": 0.002 });
            let events = [(1, "start", start), (2, "stdout", output)];
            let events = events.map(|(id, event, data)| json!({ "id": id, "event": event, "data": data }));
            json!({ "events": events, "next": 2, "ended": false })
        }
        "list_languages" => json!([{ "name": "python", "aliases": ["py", "python3"], "extensions": ["py"],
            "version": "3.11.7", "available": true, "toolchain": "ready", "missing": null, "packages": "requests==2.32.3" }]),
        "get_health" => {
            json!({ "status": "ok", "draining": false, "reasons": [], "capacity": 8, "load": 0, "uptime": 60.5 })
        }
        "drain_server" => json!({ "draining": true, "load": 0 }),
        _ => return None,
    })
}

/// A problem, as an example of all.
pub(super) fn problem() -> Value {
    let detail =
        "limits.memory: invalid memory limit \"lots\": expected bytes (1048576) or a size such as 64k, 256m, 1g";
    json!({ "type": "/docs#invalid_request", "title": "invalid request", "status": 422, "detail": detail,
        "code": "invalid_request", "field": "limits.memory" })
}
