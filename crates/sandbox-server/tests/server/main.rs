//! The real server, started and talked to over HTTP.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::{Deref, DerefMut};
use std::process::Command;
use std::time::Duration;

use sandbox_testing::{Gate, TestServer, eventually, needs};
use serde_json::{Value, json};

mod added_language;
mod answers;
mod api;
mod backends;
mod browser;
mod clients;
mod data;
mod fairness;
mod faults;
mod gateway;
mod hints;
mod images;
mod inputs;
mod jobs;
mod operators;
#[cfg(feature = "otlp")]
mod otlp;
mod owners;
mod prepare;
mod redis;
mod reliability;
mod screen;
mod secrets;
mod shares;
mod warm;
mod warm_compilers;
mod warm_javascript;
mod web;
mod webhooks;

/// A server, with methods for each group of tests.
struct Server(TestServer);

impl Server {
    fn start(flags: &[&str]) -> Self {
        Self::start_with(flags, &[])
    }

    fn start_with(flags: &[&str], variables: &[(&str, &str)]) -> Self {
        Self(TestServer::start(flags, variables))
    }

    /// A server with a directory that may have been another's before.
    fn start_in(data: tempfile::TempDir, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        Self(TestServer::start_in(data, flags, variables))
    }

    /// The events of a run that is streamed.
    fn streamed(&self, body: &Value) -> impl Iterator<Item = Value> + use<> {
        let headers = [("Accept", "text/event-stream"), ("Connection", "close")];
        let stream = self.start_request("/execute", &headers, body);
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        lines.filter_map(|line| Some(serde_json::from_str(line.strip_prefix("data: ")?).unwrap()))
    }
}

impl Deref for Server {
    type Target = TestServer;

    fn deref(&self) -> &TestServer {
        &self.0
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut TestServer {
        &mut self.0
    }
}

#[test]
fn the_older_dialects_are_served() {
    let server = Server::start(&[]);
    let (status, answer) = server.post(&json!({"code": "print(2+2)"}));
    assert_eq!(status, 200);
    assert_eq!(
        (&answer["status"], &answer["result"], &answer["error"]),
        (&"success".into(), &"4".into(), &Value::Null)
    );
    let (status, answer) = server.post(&json!({"code": "undefined_variable"}));
    assert_eq!(status, 200);
    assert_eq!((&answer["status"], &answer["result"]), (&"error".into(), &Value::Null));
    assert_eq!(answer["error"], "NameError: name 'undefined_variable' is not defined");
    let (_, answer) = server.post(&json!({
        "code": "open('out.txt', 'w').write(open('in.txt').read().upper())",
        "files": {"in.txt": "text"}, "timeout_seconds": 5
    }));
    assert_eq!(answer["files"]["out.txt"]["content"], "TEXT", "{answer:#}");
    // What comes out can be sent back in.
    let (_, answer) = server.post(&json!({"code": "print(open('out.txt').read())", "files": answer["files"]}));
    assert_eq!(answer["stdout"], "TEXT\n", "{answer:#}");
}

#[test]
fn requests_have_all_that_the_command_line_has() {
    let server = Server::start(&[]);
    let (_, answer) = server.post(&json!({
        "language": "js", "code": "process.stdin.on('data', d => console.log(String(d), process.argv[2], process.env.K))",
        "stdin": "in", "args": ["arg"], "env": {"K": "V"}, "limits": {"wall_time": "10s", "memory": "128m"}
    }));
    assert_eq!(answer["stdout"], "in arg V\n", "{answer:#}");
    let (_, answer) = server.post(&json!({"code": "import os", "restricted": true}));
    assert!(answer["error"].as_str().unwrap().starts_with("RestrictedError"), "{answer:#}");
    let cases = json!([{"args": [1, 2], "expected": 3}]);
    let (_, answer) = server.post(&json!({
        "code": "def add(a, b): return a + b",
        "template": {"name": "harness", "variables": {"function": "add", "cases": cases}}
    }));
    assert_eq!(answer["verdict"], "ok", "{answer:#}");
    let (_, answer) = server.post(&json!({"code": "while True: pass", "timeout": "300ms"}));
    assert_eq!(answer["verdict"], "timeout");
}

#[test]
fn bad_requests_are_explained() {
    let server = Server::start(&["--max-body", "64k"]);
    let problem = |body: &str| server.send(&[], body.as_bytes()).1;
    for (body, status, code, detail) in [
        ("{", 400, "malformed_json", "EOF"),
        ("[]", 400, "malformed_json", "invalid"),
        (r#"{"code": 1}"#, 400, "malformed_json", "invalid type"),
        (r#"{"code": "1", "tiemout": 3}"#, 400, "malformed_json", "unknown field `tiemout`"),
        (r#"{"code": ""}"#, 422, "invalid_request", "the code is empty"),
        ("{}", 422, "invalid_request", "code: is missing"),
        (r#"{"code": "1", "language": "pyhton"}"#, 422, "unknown_language", "did you mean 'python'"),
        (r#"{"code": "1", "timeout": "soon"}"#, 422, "invalid_request", "timeout: "),
        (r#"{"code": "1", "files": {"../x": ""}}"#, 422, "invalid_request", "climbs"),
        (r#"{"code": "1", "files": {"x": {"content": "?", "encoding": "base64"}}}"#, 422, "invalid_request", "base64"),
        (r#"{"code": "1", "volumes": ["/etc:/data"]}"#, 422, "invalid_request", "is not allowed"),
        (r#"{"code": "1", "requirements": ["--evil"]}"#, 422, "invalid_request", "expected one such as"),
    ] {
        let (got, answer) = problem(body);
        assert_eq!((got, &answer["code"]), (status, &code.into()), "{body}: {answer:#}");
        assert!(answer["detail"].as_str().unwrap().contains(detail), "{body}: {answer:#}");
        assert_eq!(answer["status"], status);
    }
    let large = format!("{{\"code\": \"{}\"}}", "x".repeat(100_000));
    assert_eq!(problem(&large).0, 413);
    let (_, (status, answer)) = server.send(&[("content-type", "text/plain")], b"x");
    assert_eq!((status, &answer["code"]), (415, &"unsupported_media_type".into()));
    assert_eq!(server.get("/nowhere").0, 404);
    assert_eq!(server.get("/execute").0, 405);
    assert_eq!(server.post(&json!({"code": "print(1)"})).0, 200, "the server lives on");
}

#[test]
fn requests_with_templates_are_checked_before_they_are_accepted() {
    let server = Server::start_with(&[], &[("SANDBOX_NAMED_VOLUMES", "yes")]);
    let wrong = [
        ("requirements", json!(["--evil"]), "expected one such as"),
        ("volumes", json!(["v:/a", "v:/b"]), "duplicate volume 'v'"),
        ("network", json!("allowlist"), "network: "),
        ("entry", json!("a/../../b"), "entry: path "),
        ("files", json!({"main.py": ""}), "duplicate file 'main.py'"),
    ];
    for (field, value, detail) in wrong {
        let body = json!({"code": "1", "template": {"text": "{{ code }}"}, field: value}).to_string();
        for path in ["/execute", "/v1/execute"] {
            let (_, (status, problem)) = server.send_to(path, &[], body.as_bytes());
            assert_eq!((status, &problem["code"]), (422, &"invalid_request".into()), "{path} {body}: {problem:#}");
            assert!(problem["detail"].as_str().unwrap().contains(detail), "{path} {body}: {problem:#}");
        }
    }
}

#[test]
fn a_template_whose_fault_shows_when_it_is_rendered_is_an_invalid_request() {
    let server = Server::start(&[]);
    let long = "{% for n in range(100) %}{{ text }}{% endfor %}";
    for (template, why) in [
        (json!({"text": "{{ missing }}"}), "undefined variable"),
        (json!({"text": long, "variables": {"text": "x".repeat(50_000)}}), "the code has 5000000 bytes"),
    ] {
        let body = json!({"code": "1", "template": template});
        let (status, problem) = server.post(&body);
        assert_eq!((status, &problem["code"]), (422, &"invalid_request".into()), "{problem:#}");
        assert!(problem["detail"].as_str().unwrap().contains(why), "{problem:#}");
        let result = &server.job(&server.submit(&body), "?wait=30s")["result"];
        assert_eq!(result["verdict"], "invalid_request", "{result:#}");
        assert!(result["error"].as_str().unwrap().contains(why), "{result:#}");
    }
}

#[test]
fn every_limit_has_a_cap() {
    let server = Server::start_with(&[], &[("SANDBOX_MAX_INODES", "unlimited"), ("SANDBOX_MAX_PROCESSES", "100")]);
    for (limit, value, setting) in [
        ("wall_time", "24h", "SANDBOX_MAX_TIMEOUT"),
        ("cpu_time", "24h", "SANDBOX_MAX_CPU_TIME"),
        ("memory", "1t", "SANDBOX_MAX_MEMORY"),
        ("cpus", "1024", "SANDBOX_MAX_CPUS"),
        ("processes", "101", "SANDBOX_MAX_PROCESSES"),
        ("disk", "1t", "SANDBOX_MAX_DISK"),
        ("output", "1g", "SANDBOX_MAX_OUTPUT_LIMIT"),
        ("open_files", "1048576", "SANDBOX_MAX_OPEN_FILES"),
        ("file_size", "1t", "SANDBOX_MAX_FILE_SIZE"),
        ("stack", "1t", "SANDBOX_MAX_STACK"),
    ] {
        for path in ["/execute", "/v1/execute"] {
            let body = json!({"code": "1", "limits": {limit: value}}).to_string();
            let (_, (status, problem)) = server.send_to(path, &[], body.as_bytes());
            let detail = problem["detail"].as_str().unwrap_or_default();
            assert!(status == 422 && detail.contains(setting), "{limit}: {problem:#}");
        }
    }
    let (status, answer) = server.post(&json!({"code": "print(1)", "limits": {"inodes": 1_000_000, "processes": 100}}));
    assert_eq!((status, &answer["verdict"]), (200, &"ok".into()), "{answer:#}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox-server"));
    let printed = command.arg("--print-config").env("SANDBOX_MAX_DISK", "unlimited").output().unwrap();
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    for line in
        ["SANDBOX_MAX_TIMEOUT = \"5m\" # default", "SANDBOX_MAX_DISK = \"unlimited\" # variable SANDBOX_MAX_DISK"]
    {
        assert!(printed.contains(line), "{printed}");
    }
}

#[test]
fn output_streams_as_it_happens() {
    let server = Server::start(&[]);
    let body = json!({
        "code": "print('one', flush=True)\nprint('two')\nimport sys; print('é', file=sys.stderr)"
    });
    let seen: Vec<Value> = server.streamed(&body).collect();
    let names: Vec<&str> = seen.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!((names.first(), names.last()), (Some(&"start"), Some(&"result")), "{names:?}");
    assert_eq!(seen[0]["language"], "python");
    let all: String = seen.iter().filter(|e| e["event"] == "stdout").map(|e| e["data"].as_str().unwrap()).collect();
    assert_eq!(all, "one\ntwo\n");
    assert_eq!(seen.last().unwrap()["result"]["stdout"], "one\ntwo\n");
    // The first line arrives while the program still runs.
    let body = json!({"code": "import time; print('one', flush=True); time.sleep(300)", "timeout": 300});
    let mut events = server.streamed(&body);
    let mut seen = vec![];
    // The line and its end may come as two events.
    let is_first_line = |event: &Value| {
        event["event"] == "stdout" && event["data"].as_str().is_some_and(|data| data.starts_with("one"))
    };
    let arrived = events.by_ref().inspect(|event| seen.push(event.clone())).any(|event| is_first_line(&event));
    assert!(arrived, "{seen:#?}");
    assert_eq!(server.get("/health").1["load"], 1, "the run is over");
}

#[test]
fn requests_over_capacity_return_429() {
    let gate = Gate::closed();
    let server = Server::start_with(&["--capacity", "1"], &[gate.variable()]);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| server.post(&gate.request("")));
        eventually("it runs", || server.get("/health").1["load"] == 1);
        let (headers, (status, answer)) = server.send(&[], br#"{"code": "1"}"#);
        assert_eq!((status, &answer["code"]), (429, &"at_capacity".into()));
        assert_eq!(headers["retry-after"], "1");
        gate.open();
        assert_eq!(slow.join().unwrap().1["verdict"], "ok");
    });
    assert_eq!(server.post(&json!({"code": "1"})).0, 200);
    let (_, health) = server.get("/health");
    assert_eq!((&health["status"], &health["capacity"], &health["load"]), (&"ok".into(), &1.into(), &0.into()));
    assert_eq!(health["runs"], 2);
}

#[test]
fn a_client_that_goes_away_cancels_its_run() {
    let server = Server::start(&["--capacity", "1"]);
    let body = r#"{"code": "import time; time.sleep(60)", "timeout": 60}"#;
    for accept in ["application/json", "text/event-stream"] {
        let stream = server.start_request("/execute", &[("Accept", accept)], body);
        let wait = |load: u64| {
            eventually(&format!("{accept}: the load is {load}"), || server.get("/health").1["load"] == load);
        };
        wait(1);
        drop(stream);
        wait(0);
    }
}

#[test]
fn requests_without_a_key_return_401() {
    let server = Server::start_with(&[], &[("SANDBOX_API_KEYS", "a-key-of-sixteen-letters")]);
    let (headers, (status, answer)) = server.send(&[], br#"{"code": "1"}"#);
    assert_eq!((status, &answer["code"]), (401, &"unauthorized".into()));
    assert_eq!(headers["www-authenticate"], "Bearer");
    let key = ("authorization", "Bearer a-key-of-sixteen-letters");
    let (headers, (status, _)) = server.send(&[key, ("x-request-id", "mine")], br#"{"code": "1"}"#);
    assert_eq!(
        (status, &headers["x-request-id"], &headers["x-content-type-options"]),
        (200, &"mine".parse().unwrap(), &"nosniff".parse().unwrap())
    );
    assert_eq!(server.get("/health").0, 200, "health needs no key");
    assert_eq!(server.get("/v1/languages").0, 401);
}

#[test]
fn slow_clients_are_disconnected() {
    let server = Server::start(&["--http-read-timeout", "300ms"]);
    for start in [
        "POST /execute HTT",
        "POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
    ] {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(start.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    let mut flood = "GET /health HTTP/1.1\r\nHost: localhost\r\n".to_owned();
    for n in 0..500 {
        flood.push_str(&format!("X-Header-{n}: {}\r\n", "x".repeat(100)));
    }
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let _ = stream.write_all(format!("{flood}\r\n").as_bytes());
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert_eq!(server.get("/livez").0, 200);
}

#[test]
fn shutdown_lets_runs_end_and_ends_those_that_do_not() {
    for (opens, patience, verdict) in [(true, "300s", "ok"), (false, "500ms", "cancelled")] {
        let gate = Gate::closed();
        let mut server = Server::start_with(&["--http-shutdown-timeout", patience], &[gate.variable()]);
        let id = server.child.id().to_string();
        std::thread::scope(|scope| {
            let run = scope.spawn(|| server.post(&gate.request("")));
            eventually("it runs", || server.get("/health").1["load"] == 1);
            assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
            if opens {
                eventually("it does not listen any more", || TcpStream::connect(&server.address).is_err());
                gate.open();
            }
            let (status, answer) = run.join().unwrap();
            assert_eq!((status, &answer["verdict"]), (200, &verdict.into()), "{answer:#}");
        });
        assert!(server.child.wait().unwrap().success());
    }
}

#[test]
fn network_requests_are_capped_by_the_operator() {
    let server = Server::start_with(&[], &[("SANDBOX_MAX_NETWORK", "allowlist")]);
    let refused = |network: Value| {
        let (status, problem) = server.post(&json!({"code": "1", "network": network}));
        assert_eq!(status, 422, "{problem:#}");
        problem["detail"].as_str().unwrap().to_owned()
    };
    assert!(refused(json!("full")).contains("SANDBOX_MAX_NETWORK"));
    assert!(refused(json!({"mode": "none", "dns": true})).contains("SANDBOX_MAX_NETWORK"));
    assert!(refused(json!({"mode": "allowlist"})).contains("at least one host"));
    assert!(refused(json!({"mode": "allowlist", "hosts": ["a b"]})).starts_with("network.hosts: "));
    let code = "import socket\ntry:\n    socket.create_connection(('10.0.0.1', 443), 5).recv(1)\nexcept OSError as error:\n    print(type(error).__name__)";
    let network = json!({"mode": "allowlist", "hosts": ["10.0.0.1"], "dns": false});
    let (_, answer) = server.post(&json!({"code": code, "network": network}));
    assert_eq!(answer["stdout"], "ConnectionResetError\n", "{answer:#}");
    assert_eq!(answer["metrics"]["network"]["refusals"][0]["why"], "10.0.0.1: its address is not public");
}

#[test]
fn curl_understands_it() {
    let server = Server::start(&[]);
    let curl = |args: &[&str], path: &str| {
        let url = format!("http://{}{path}", server.address);
        let output = Command::new("curl").args(["-sS", "--no-buffer", "--max-time", "20"]).args(args).arg(url).output();
        let output = output.expect("run curl");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let json = ["-H", "content-type: application/json", "-d", r#"{"code": "print(2+2)"}"#];
    assert!(curl(&json, "/execute").contains(r#""stdout":"4\n""#));
    let streamed = curl(&json, "/execute?stream=true");
    assert!(streamed.contains("event: stdout\ndata: {\"event\":\"stdout\",\"data\":\"4"), "{streamed}");
    assert!(streamed.contains("event: result\ndata: {"), "{streamed}");
    assert!(curl(&[&["--http2-prior-knowledge"], &json[..]].concat(), "/execute").contains(r#""verdict":"ok""#));
    assert!(curl(&["-i"], "/nowhere").contains("content-type: application/problem+json"));
}

#[test]
fn a_bad_configuration_stops_the_start() {
    let output = Command::new(env!("CARGO_BIN_EXE_sandbox-server"))
        .args(["--http-port", "x", "--capacity", "none", "--max-body", "lots"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), text.lines().count()), (Some(2), 4), "{text}");
    let printed =
        Command::new(env!("CARGO_BIN_EXE_sandbox-server")).args(["--print-config", "--capacity", "3"]).output();
    assert!(String::from_utf8_lossy(&printed.unwrap().stdout).contains("capacity = \"3\" # flag"));
}

#[test]
fn a_health_check_needs_no_other_program() {
    let server = Server::start(&["--api-keys", "sixteen-characters-and-more"]);
    let port = server.address.rsplit(':').next().unwrap().to_owned();
    // As the health check of a container does: with the address that the server listens on.
    let ask = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox-server"));
        command.args(["--health", "--http-host", "0.0.0.0", "--http-port", &port]).output().unwrap()
    };
    let output = ask();
    let health: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &health["status"]), (Some(0), &Value::from("ok")));
    drop(server);
    let output = ask();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot query the server"), "{text}");
}

#[test]
fn the_server_holds_no_privilege() {
    let server = Server::start(&[]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    if needs::root() {
        assert!(!field("Uid:").contains("0\t0"), "{}", field("Uid:"));
    }
    assert_eq!(field("CapEff:"), "0000000000000000");
    assert_eq!(field("CapPrm:"), "0000000000000000");
    // It still compiles, keeps and runs.
    let request = json!({"language": "c", "code": "int main(void) { return 5; }"});
    let (_, answer) = server.post(&request);
    assert_eq!((&answer["exit_code"], &answer["compile"]["cached"]), (&5.into(), &false.into()), "{answer:#}");
    assert_eq!(server.post(&request).1["compile"]["cached"], true);
}

#[test]
fn every_process_of_the_server_is_confined() {
    let server = Server::start(&[]);
    assert_eq!(server.post(&json!({"code": "1"})).0, 200);
    let field = |pid: u32, name: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned()
    };
    let server_pid = server.child.id();
    let pids: Vec<u32> =
        std::iter::once(server_pid).chain(sandbox_testing::memory::descendants(server_pid).into_keys()).collect();
    assert!(pids.len() > 3, "server, launcher, keeper, and what it made: {pids:?}");
    for pid in pids {
        // A process that has ended meanwhile says nothing.
        let seen = (field(pid, "Seccomp:"), field(pid, "NoNewPrivs:"));
        assert!(seen == ("2".into(), "1".into()) || seen == (String::new(), String::new()), "{pid}: {seen:?}");
    }
}

#[test]
fn metrics_count_what_happened() {
    let server = Server::start(&["--capacity", "3"]);
    server.post(&json!({"code": "print(1)"}));
    server.post(&json!({"code": "1/0"}));
    server.post(&json!({}));
    let (status, text) = server.get("/metrics");
    let text = text.as_str().unwrap();
    assert_eq!(status, 200);
    for line in [
        "sandbox_runs_total{language=\"python\",verdict=\"ok\"} 1",
        "sandbox_runs_total{language=\"python\",verdict=\"runtime_error\"} 1",
        "sandbox_http_answers_total{status=\"422\"} 1",
        "sandbox_phase_seconds_count{phase=\"run\"} 2",
        "sandbox_capacity 3",
        "sandbox_load 0",
        "sandbox_queue 0",
        "sandbox_queue_age_seconds 0.0",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn rate_limit_returns_429() {
    let server = Server::start(&["--rate-limit", "1"]);
    let answers: Vec<u16> = (0..4).map(|_| server.get("/v1/languages").0).collect();
    assert_eq!(answers[..2], [200, 200]);
    assert!(answers[2..].contains(&429), "{answers:?}");
    let (headers, (status, problem)) = server.send(&[], br#"{"code": "1"}"#);
    assert_eq!((status, &problem["code"]), (429, &"too_many_requests".into()));
    assert_eq!(headers["retry-after"], "1");
    assert_eq!(server.get("/health").0, 200, "health is not rate limited");
}

#[test]
fn languages_are_listed() {
    let server = Server::start(&[]);
    let (status, list) = server.get("/v1/languages");
    let python = list.as_array().unwrap().iter().find(|language| language["name"] == "python").unwrap();
    assert_eq!((status, &python["available"]), (200, &true.into()));
    assert!(python["aliases"].as_array().unwrap().contains(&"py".into()));
}
