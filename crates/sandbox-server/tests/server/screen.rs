//! Output of the server that users see: help, its log, and a problem document of each code, each in a file of
//! `snapshots`.
//!
//! `make bless` rewrites the files.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use sandbox_testing::redact::redact_text;
use sandbox_testing::{GuardedChild, TestServer, eventually, needs};
use serde_json::{Value, json};

use crate::Server;

/// Codes that depend on more than a request: the server has to fail or end, or a store to be full or away. The snapshot
/// `problem-codes`, a unit test of the server, has them too.
const NOT_SHOWN: [&str; 5] = ["disk_full", "internal_error", "shutting_down", "storage_full", "unavailable"];

/// A language whose package manager is not installed.
const BARE: &str = r#"
like = "bash"
name = "bare"
[packages]
example = "x"
pattern = "^x$"
target = "/opt/packages"
script = "true"
[packages.tools.fetch]
commands = ["no-such-fetcher"]
missing = "install it"
"#;

/// A language whose toolchain no host has.
const MISSING: &str = r#"
name = "missing"
extensions = []
source = "main"
entries = ["main"]
[find]
commands = ["there-is-no-such-command"]
describe = "true"
missing = "install nothing"
[run]
argv = ["/build/program"]
"#;

/// Keys that may not run anything, run once a day, and once a second.
const JOBS: &str = "the-key-of-sixteen-jobs";
const DAILY: &str = "the-key-of-every-single-day";
const SLOW: &str = "the-key-of-every-second";

/// How many requests of the last one are too many in a second, for certain.
const PATIENT: usize = 100;

/// Compares what was printed with the file of this name.
fn check(name: &str, printed: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, printed));
}

#[test]
fn help_of_the_server() {
    for flag in ["--help", "-h"] {
        let output = TestServer::command().arg(flag).env("COLUMNS", "100").env("NO_COLOR", "1").output().unwrap();
        assert!(output.status.success());
        check(&format!("server{flag}"), &String::from_utf8(output.stdout).unwrap());
    }
}

#[test]
fn log_of_a_start() {
    if !needs::root() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    // The server drops root privileges: others must be able to enter the directory.
    std::fs::set_permissions(data.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = TestServer::command();
    command.args(["--http-host", "127.0.0.1", "--http-port", "0", "--capacity", "2"]);
    command.env("SANDBOX_DATA_DIR", data.path().join("data")).env("SANDBOX_PREPARE", "none").env("NO_COLOR", "1");
    let mut server = GuardedChild(command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let mut log = String::new();
    for line in BufReader::new(server.stderr.take().unwrap()).lines().map_while(Result::ok) {
        // Warnings are about this host.
        if line.contains(" INFO ") {
            log += &format!("{line}\n");
        }
        if line.contains("try: ") {
            break;
        }
    }
    // The address, and which layers work, depend on the host.
    let field = |name: &str, end: char| log.split(name).nth(1).and_then(|rest| rest.split(end).next()).unwrap();
    let (address, layers) = (field("address=", ' '), field("isolation=\"", '"'));
    let log = log.replace(address, "ADDRESS").replace(layers, "LAYERS");
    check("server-log", &redact_text(&log));
}

#[test]
fn help_of_the_backup_command() {
    let output =
        TestServer::command().args(["backup", "--help"]).env("COLUMNS", "100").env("NO_COLOR", "1").output().unwrap();
    assert!(output.status.success());
    check("server-backup--help", &String::from_utf8(output.stdout).unwrap());
}

#[test]
fn errors_of_the_configuration() {
    let flags = ["--http-port", "x", "--capacity", "none", "--max-body", "lots"];
    let output = TestServer::command().args(flags).env("NO_COLOR", "1").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    check("server-bad-configuration", &String::from_utf8(output.stderr).unwrap());
    let output = TestServer::command().arg("--capasity").env("NO_COLOR", "1").output().unwrap();
    check("server-unknown-flag", &String::from_utf8(output.stderr).unwrap());
}

/// The problem in the response to a request that is sent as it is.
fn raw(server: &Server, request: &str) -> Value {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    let _ = stream.read_to_string(&mut response);
    let (_, body) = response.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{response}"));
    serde_json::from_str(body).unwrap_or_else(|_| panic!("{response}"))
}

fn post(server: &Server, path: &str, headers: &[(&str, &str)], body: &Value) -> Value {
    server.send_to(path, headers, body.to_string().as_bytes()).1.1
}

/// Problems of single requests to a server that has no keys.
fn problems_of_requests() -> Vec<Value> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("missing.toml"), MISSING).unwrap();
    std::fs::write(dir.path().join("bare.toml"), BARE).unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let server = Server::start(&["--max-body", "64k", "--runtimes", dir.path().to_str().unwrap()]);
    let plain = |method: &str, path: &str, headers: &str| {
        raw(&server, &format!("{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n"))
    };
    let key = [("idempotency-key", "one")];
    let job = post(&server, "/v1/execute", &key, &json!({"code": "print(1)"}));
    let conflict = post(&server, "/v1/execute", &key, &json!({"code": "1"})).to_string();
    let conflict = conflict.replace(job["id"].as_str().unwrap(), "ID");
    vec![
        server.send(&[], b"{").1.1,
        server.send(&[], br#"{"code": "1", "tiemout": 3}"#).1.1,
        post(&server, "/execute", &[], &json!({"code": ""})),
        post(&server, "/execute", &[], &json!({"code": "1", "limits": {"memory": "lots"}})),
        post(&server, "/execute", &[], &json!({"code": "1", "limits": {"wall_time": "24h"}})),
        post(&server, "/execute", &[], &json!({"code": "1", "network": {"mode": "some"}})),
        post(&server, "/execute", &[], &json!({"code": "1", "files": {"../x": ""}})),
        post(&server, "/execute", &[], &json!({"code": "1", "language": "pyhton"})),
        post(&server, "/execute", &[], &json!({"code": "1", "language": "missing"})),
        post(&server, "/execute", &[], &json!({"code": "1", "language": "bare", "requirements": ["x"]})),
        post(&server, "/execute", &[], &json!({"code": "x".repeat(100_000)})),
        server.send(&[], "[".repeat(100).as_bytes()).1.1,
        server.send(&[("content-type", "text/plain")], b"x").1.1,
        server.get("/nowhere").1,
        server.get("/execute").1,
        server.get("/v1/execute/none").1,
        plain("GET", "/health", "Host: a\r\nHost: b\r\n"),
        plain("GET", "/v1/languages", "Host: evil.example\r\n"),
        plain("POST", "/execute", "Host: localhost\r\nOrigin: http://evil.example\r\n"),
        serde_json::from_str(&conflict).unwrap(),
    ]
}

/// Problems of servers that are busy, and of those with keys.
fn problems_of_servers() -> Vec<Value> {
    let mut problems = vec![];
    let server = Server::start(&["--capacity", "1", "--queue", "1"]);
    let slow = json!({"code": "import time; time.sleep(300)", "timeout": 300});
    let events = server.streamed(&slow);
    eventually("it runs", || server.get("/health").1["load"] == 1);
    problems.push(server.post(&json!({"code": "1"})).1);
    post(&server, "/v1/execute", &[], &slow);
    problems.push(post(&server, "/v1/execute", &[], &slow));
    drop(events);

    let keys = format!("{JOBS};name=jobs;scopes=jobs,{DAILY};name=daily;per-day=1,{SLOW};name=slow;rate=0.1");
    let server = Server::start_with(&[], &[("SANDBOX_API_KEYS", &keys)]);
    let as_key = |key: &str| server.send(&[("authorization", &format!("Bearer {key}"))], br#"{"code": "1"}"#).1.1;
    problems.push(server.post(&json!({"code": "1"})).1);
    problems.push(as_key("wrong"));
    problems.push(as_key(JOBS));
    as_key(DAILY);
    problems.push(as_key(DAILY));
    let problem = (0..PATIENT).map(|_| as_key(SLOW)).find(|answer| answer["code"] == "too_many_requests");
    problems.push(problem.unwrap());

    let server = Server::start(&["--http-read-timeout", "1s"]);
    let head =
        "POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n";
    problems.push(raw(&server, head));
    let server = Server::start(&["--cold"]);
    post(&server, "/admin/drain", &[], &json!({}));
    problems.push(server.post(&json!({"code": "1"})).1);
    problems
}

#[test]
fn problems_of_every_code() {
    let server = Server::start(&[]);
    let (_, document) = server.get("/openapi.json");
    let codes = document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"].as_array().unwrap();
    let codes: BTreeSet<&str> = codes.iter().map(|code| code.as_str().unwrap()).collect();
    let problems = [problems_of_requests(), problems_of_servers()].concat();
    let shown: BTreeSet<&str> = problems.iter().map(|problem| problem["code"].as_str().unwrap_or_default()).collect();
    let missing: Vec<_> = codes.iter().filter(|code| !shown.contains(*code) && !NOT_SHOWN.contains(code)).collect();
    let text: Vec<String> = problems.iter().map(|problem| format!("{problem:#}\n")).collect();
    check("problems", &text.join("\n"));
    assert!(missing.is_empty(), "no problem document shows {missing:?}");
}
