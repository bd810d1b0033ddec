//! Clients with keys and quotas, and clients that send too much, read too little or stop half-way.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use sandbox_testing::memory::descendants;
use sandbox_testing::{Gate, RedisServer, eventually};
use serde_json::{Value, json};

use crate::Server;

const ALICE: (&str, &str) = ("x-api-key", "alice-0123456789abcdef");
const BOB: (&str, &str) = ("x-api-key", "bob-0123456789abcdef");
const OPERATOR: (&str, &str) = ("x-api-key", "operator-0123456789abcdef");
const MONITOR: (&str, &str) = ("x-api-key", "monitor-0123456789abcdef");

fn keys() -> String {
    [
        "alice-0123456789abcdef;name=alice;runs=1",
        "bob-0123456789abcdef;name=bob;per-day=3",
        "operator-0123456789abcdef;name=operator;scopes=jobs+admin",
        "monitor-0123456789abcdef;name=monitor;scopes=metrics;rate=1",
    ]
    .join(",")
}

impl Server {
    pub(crate) fn get_as(&self, key: (&str, &str), path: &str) -> (u16, Value) {
        self.call_as(key, "GET", path)
    }

    fn call_as(&self, key: (&str, &str), method: &str, path: &str) -> (u16, Value) {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let request = ureq::http::Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        let mut response = agent.run(request.header(key.0, key.1).body(()).unwrap()).unwrap();
        let text = response.body_mut().with_config().limit(64 << 20).read_to_string().unwrap();
        (response.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub(crate) fn send_as(&self, key: (&str, &str), path: &str, body: &Value) -> (u16, Value) {
        self.send_to(path, &[key], body.to_string().as_bytes()).1
    }

    /// The memory that the server has now, in bytes.
    fn memory(&self) -> u64 {
        self.memory_of("VmRSS:")
    }

    fn memory_of(&self, counter: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(counter)).unwrap();
        line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() * 1024
    }

    /// The most memory that the server has during a call, in bytes.
    fn most_memory(&self, call: impl FnOnce()) -> u64 {
        std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").unwrap();
        call();
        self.memory_of("VmHWM:")
    }

    /// Waits until so many programs sleep in cells of the server.
    fn wait_for_sleepers(&self, count: usize) {
        eventually(&format!("{count} programs sleep"), || {
            descendants(self.child.id()).values().filter(|name| *name == "sleep").count() == count
        });
    }
}

#[test]
fn scopes_restrict_keys_and_jobs_are_private() {
    let server = Server::start_with(&["--capacity", "4"], &[("SANDBOX_API_KEYS", &keys())]);
    let hello = json!({"code": "print(1)"});
    assert_eq!(server.send_as(ALICE, "/execute", &hello).0, 200);
    for (key, path) in [(OPERATOR, "/execute"), (MONITOR, "/v1/execute"), (MONITOR, "/execute")] {
        let (status, problem) = server.send_as(key, path, &hello);
        assert!(status == 403 && problem["code"] == "forbidden" || status == 429, "{path}: {problem:#}");
    }
    assert_eq!(server.get_as(OPERATOR, "/metrics").0, 403);
    // A job is visible to its owner, and to keys that may see all jobs.
    let (status, job) = server.send_as(ALICE, "/v1/execute", &hello);
    assert_eq!(status, 202, "{job:#}");
    let path = format!("/v1/execute/{}", job["id"].as_str().unwrap());
    assert_eq!(server.get_as(ALICE, &format!("{path}?wait=10s")).1["result"]["stdout"], "1\n");
    assert_eq!(server.get_as(OPERATOR, &path).1["owner"], "alice");
    for (method, path) in [("GET", path.clone()), ("DELETE", path.clone()), ("GET", format!("{path}/events"))] {
        assert_eq!(server.call_as(BOB, method, &path).0, 404, "{method} {path}");
    }
    let list = |key| server.get_as(key, "/v1/execute").1["jobs"].as_array().unwrap().len();
    assert_eq!((list(ALICE), list(BOB), list(OPERATOR)), (1, 0, 1));
    // Keys of idempotency do not meet.
    let idempotent = |key: (&str, &str), code: &str| {
        let body = json!({"code": code}).to_string();
        server.send_to("/v1/execute", &[key, ("idempotency-key", "same")], body.as_bytes()).1.0
    };
    assert_eq!((idempotent(ALICE, "1"), idempotent(OPERATOR, "2")), (202, 202));
}

#[test]
fn keys_have_quotas() {
    let gate = Gate::closed();
    let server = Server::start_with(&["--capacity", "4"], &[("SANDBOX_API_KEYS", &keys()), gate.variable()]);
    let hello = json!({"code": "1"});
    assert_eq!(server.send_as(BOB, "/execute", &hello).0, 200);
    assert_eq!(server.send_as(BOB, "/execute", &json!({"code": ""})).0, 422, "what is refused costs nothing");
    let batch = json!({"request": {"code": "1"}, "inputs": [{}, {}, {}]});
    let (status, problem) = server.send_as(BOB, "/v1/batch", &batch);
    assert_eq!((status, &problem["code"]), (429, &"quota_exceeded".into()));
    assert_eq!(server.send_as(BOB, "/v1/execute", &hello).0, 202);
    assert_eq!(server.send_as(BOB, "/execute", &hello).0, 200);
    let (headers, (status, _)) = server.send(&[BOB], br#"{"code": "1"}"#);
    let wait: u64 = headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(status == 429 && (1..=86_400).contains(&wait));
    assert_eq!(server.send_as(ALICE, "/execute", &hello).0, 200, "others are not concerned");
    // One at a time for her.
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| server.send_as(ALICE, "/execute", &gate.request("")));
        eventually("it runs", || server.get("/health").1["load"] == 1);
        let (status, problem) = server.send_as(ALICE, "/execute", &hello);
        assert_eq!((status, &problem["code"]), (429, &"at_capacity".into()));
        gate.open();
        assert_eq!(slow.join().unwrap().1["verdict"], "ok");
    });
    // Her own rate, where others have none.
    let answers: Vec<u16> = (0..4).map(|_| server.get_as(MONITOR, "/metrics").0).collect();
    assert!(answers.contains(&200) && answers.contains(&429), "{answers:?}");
}

#[test]
fn a_body_of_100_megabytes_is_refused_at_once() {
    let server = Server::start(&[]);
    let before = server.memory();
    // Announced, it is not even read; sent in pieces, it is read up to the limit.
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let length = 100 << 20;
    write!(
        stream,
        "POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
    .unwrap();
    let mut answer = [0; 12];
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(
        stream,
        "POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    .unwrap();
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, " ".repeat(1 << 20));
    let sent = (0..100).take_while(|_| stream.write_all(chunk.as_bytes()).is_ok()).count();
    let mut text = vec![];
    let _ = stream.read_to_end(&mut text);
    assert!(text.is_empty() || text.starts_with(b"HTTP/1.1 413"), "{}", String::from_utf8_lossy(&text));
    assert!(sent <= 100 && server.memory() < before + (48 << 20), "{} then {}", before, server.memory());
    assert_eq!(server.post(&json!({"code": "1"})).0, 200);
}

#[test]
fn a_client_may_close_its_side_first() {
    let server = Server::start(&[]);
    let body = r#"{"code": "print('heard')"}"#;
    let head = "POST /execute HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n";
    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    // A client that closes half of a connection may be gone; both responses are right, and neither is a server error.
    assert!(answer.is_empty() || answer.contains("heard"), "{answer}");
    // One that stops in the middle of its body has sent no request.
    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(stream, "{head}Content-Length: 1000\r\n\r\n{body}").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    eventually("nothing is left of them", || server.get("/health").1["load"] == 0);
}

#[test]
fn the_smallest_memory_budget_fits_the_largest_request() {
    let server = Server::start(&["--max-held", "10m", "--max-body", "1m"]);
    let file = "x".repeat((1 << 20) - 200);
    let program = json!({"language": "bash", "code": "wc -c < f", "files": {"f": file}});
    let (status, result) = server.post(&program);
    assert_eq!((status, &result["stdout"]), (200, &format!("{}\n", file.len()).into()), "{result:#}");
    // The runs of a batch take turns where there is no memory for several.
    let batch = json!({"request": program, "inputs": [{}, {}, {}, {}, {}]}).to_string();
    let (_, (status, text)) = server.send_to("/v1/batch", &[], batch.as_bytes());
    assert_eq!(status, 200, "{text}");
    let text = text.as_str().unwrap();
    assert_eq!(text.matches(r#""verdict":"ok""#).count(), 5, "{text}");
    assert!(text.contains("event: end"), "{text}");
}

#[test]
fn a_running_request_reserves_the_memory_that_it_takes() {
    const SIZE: usize = 16 << 20;
    // The share of one client is four and a half bodies: three that run, or two and one that is parsed.
    let held = (4 * 9 * SIZE / 2).to_string();
    let server = Server::start(&["--cold", "--capacity", "8", "--max-held", &held, "--max-body", "20m"]);
    assert_eq!(server.post(&json!({"language": "bash", "code": "true"})).0, 200);
    let before = server.memory();
    let limits = json!({"disk": "64m", "memory": "256m", "file_size": "64m"});
    let file = "x".repeat(SIZE - 300);
    let body =
        json!({"language": "bash", "code": "sleep 60", "timeout": "60s", "limits": limits, "files": {"f": file}});
    let mut running = vec![];
    for count in 1..=3 {
        running.push(server.start_request("/execute", &[], &body));
        server.wait_for_sleepers(count);
    }
    let grown = usize::try_from(server.memory().saturating_sub(before)).unwrap();
    assert!((SIZE * 12 / 5..SIZE * 18 / 5).contains(&grown), "{grown} bytes for three bodies of {SIZE}");
    assert_eq!(server.post(&body).0, 429, "a fourth does not fit while it is parsed");
    drop(running);
}

/// A request that sleeps and has so many bytes.
fn sleeper(size: usize) -> Value {
    let limits = json!({"disk": "64m", "memory": "256m", "file_size": "64m"});
    let file = "x".repeat(size - 300);
    let code = "[ \"$1\" = first ] || sleep 60";
    json!({"language": "bash", "code": code, "timeout": "60s", "limits": limits, "files": {"f": file}})
}

#[test]
fn the_runs_of_a_batch_share_its_memory() {
    const SIZE: usize = 16 << 20;
    // The share of one client is four and a half bodies: the batch and two that run, or one and one that is parsed.
    let held = (4 * 9 * SIZE / 2).to_string();
    let server = Server::start(&["--cold", "--capacity", "10", "--max-held", &held, "--max-body", "20m"]);
    assert_eq!(server.post(&json!({"language": "bash", "code": "true"})).0, 200);
    let before = server.memory();
    let body = sleeper(SIZE);
    let inputs = json!([{"args": ["first"]}, {}, {}, {}, {}, {}]);
    let batch = server.start_request("/v1/batch", &[], json!({"request": body, "inputs": inputs}));
    server.wait_for_sleepers(5);
    let grown = usize::try_from(server.memory().saturating_sub(before)).unwrap();
    assert!((SIZE * 4 / 5..SIZE * 6 / 5).contains(&grown), "{grown} bytes for a batch of {SIZE}");
    let mut running = vec![];
    for count in 6..=7 {
        running.push(server.start_request("/execute", &[], &body));
        server.wait_for_sleepers(count);
    }
    assert_eq!(server.post(&body).0, 429, "a third does not fit while it is parsed");
    drop((batch, running));
}

#[test]
fn a_job_takes_no_more_memory_than_its_request_reserves() {
    const SIZE: usize = 16 << 20;
    let server = Server::start(&["--cold", "--capacity", "4", "--max-body", "20m"]);
    let mut body = sleeper(SIZE);
    body["delay"] = "1h".into();
    let body = body.to_string();
    let create = || assert_eq!(server.send_to("/v1/execute", &[], body.as_bytes()).1.0, 202);
    create();
    for _ in 0..3 {
        let before = server.memory();
        let most = server.most_memory(create);
        let grown = usize::try_from(most.saturating_sub(before)).unwrap();
        assert!(grown < SIZE * 12 / 5, "{grown} bytes for a job of {SIZE}, which reserves twice that");
    }
}

#[test]
fn running_jobs_reserve_the_memory_that_they_take() {
    const SIZE: usize = 16 << 20;
    // Five bodies in all, and half of that for each client and for the jobs that run.
    let held = (10 * SIZE).to_string();
    // The embedded store has a cache of its own.
    let redis = RedisServer::start(None);
    let server = Server::start_with(
        &["--cold", "--capacity", "8", "--max-held", &held, "--max-body", "16m"],
        &[("SANDBOX_API_KEYS", &keys()), ("REDIS_ADDR", &redis.address())],
    );
    let body = sleeper(SIZE);
    let mut short = body.clone();
    short["args"] = json!(["first"]);
    // The buffers of the connections to Redis grow with the first ones.
    for count in 1..=2 {
        assert_eq!(server.send_as(OPERATOR, "/v1/execute", &short).0, 202);
        let ended = || server.get_as(OPERATOR, "/v1/execute?status=finished").1["jobs"].as_array().unwrap().len();
        eventually("it has ended", || ended() == count);
    }
    let (mut jobs, mut memory) = (vec![], vec![]);
    for count in 1..=3 {
        let (status, job) = server.send_as(OPERATOR, "/v1/execute", &body);
        assert_eq!(status, 202, "{job:#}");
        jobs.push(job["id"].as_str().unwrap().to_owned());
        server.wait_for_sleepers(count);
        memory.push(server.memory());
    }
    let grown = usize::try_from(memory[2].saturating_sub(memory[0])).unwrap();
    assert!((SIZE * 8 / 5..SIZE * 12 / 5).contains(&grown), "{grown} bytes for two more jobs of {SIZE}");
    let running = server.start_request("/execute", &[ALICE], &body);
    server.wait_for_sleepers(4);
    assert_eq!(server.send_as(BOB, "/execute", &body).0, 429, "it does not fit while it is parsed");
    for id in jobs {
        assert_eq!(server.call_as(OPERATOR, "DELETE", &format!("/v1/execute/{id}")).0, 200);
    }
    server.wait_for_sleepers(1);
    assert_eq!(server.send_as(BOB, "/execute", &short).0, 200, "the memory of the jobs was given back");
    drop(running);
}

#[test]
fn memory_for_a_job_is_reserved_before_it_is_read() {
    const SIZE: usize = 16 << 20;
    // The share of one client is two and a half jobs. A job takes two while it is written as JSON.
    let server = Server::start(&["--cold", "--max-held", "160m", "--max-body", "16m"]);
    let mut body = sleeper(SIZE);
    body["delay"] = "1h".into();
    let path = format!("/v1/execute/{}", server.submit(&body));
    let mut silent = TcpStream::connect(&server.address).unwrap();
    write!(silent, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    silent.read_exact(&mut [0; 12]).unwrap();
    let (status, problem) = server.get(&path);
    assert_eq!((status, &problem["code"]), (429, &"at_capacity".into()), "{problem:#}");
    drop(silent);
    eventually("there is room again", || server.call_as(ALICE, "GET", &path).0 == 200);
}

#[test]
fn memory_is_bounded_when_clients_do_not_read() {
    const CLIENTS: usize = 60;
    let server =
        Server::start(&["--capacity", "3", "--max-held", "32m", "--max-body", "2m", "--http-write-timeout", "60s"]);
    assert_eq!(server.post(&json!({"code": "1"})).0, 200);
    let before = server.memory();
    // Each answer is larger than what sockets hold; no client reads any.
    let body = json!({"code": "print('x' * 7_000_000)", "limits": {"output": "8m"}, "timeout": 20});
    let mut silent = vec![];
    let mut refused = 0;
    for _ in 0..CLIENTS {
        let mut stream = server.start_request("/execute", &[], &body);
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut first = [0; 12];
        if stream.read_exact(&mut first).is_ok() && &first == b"HTTP/1.1 429" {
            refused += 1;
        } else {
            silent.push(stream);
        }
    }
    let held = server.memory().saturating_sub(before);
    // Three runs with what they make of 7 MB, and 32 MB that are held; all sixty would be more than a gigabyte.
    assert!(held < 250 << 20, "{held} bytes for {} unread answers", silent.len());
    assert!(refused > 0, "others are told to come again");
    // The budget is released when the silent clients disconnect.
    drop(silent);
    eventually("there is room again", || server.post(&json!({"code": "1"})).0 == 200);
}
