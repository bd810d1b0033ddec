//! One client against the others: silence, floods of connections and streams, bodies with very many parts, and probes
//! that tell the truth.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::jobs::Redis;
use sandbox_testing::{PATIENCE, eventually};

use crate::Server;
use crate::faults::signal;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const EMPTY_SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

impl Server {
    /// A connection that has sent this and no more.
    fn connect(&self, sent: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(sent).unwrap();
        stream
    }

    /// Many connections that send nothing.
    fn silent(&self, count: usize) -> Vec<TcpStream> {
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
        (0..count).map(|_| self.connect(b"")).collect()
    }

    /// An event stream of a job, after the head of its answer.
    fn stream(&self, id: &str) -> (u16, BufReader<TcpStream>) {
        let stream =
            self.connect(format!("GET /v1/execute/{id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        while line != "\r\n" {
            line.clear();
            assert_ne!(reader.read_line(&mut line).unwrap(), 0);
        }
        (status, reader)
    }

    /// A field of what the kernel says about the server's memory, in bytes.
    fn memory_field(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() * 1024
    }
}

/// Reads to the end, and fails if the server does not close the connection.
fn closed(mut stream: TcpStream) -> Vec<u8> {
    let mut received = vec![];
    match stream.read_to_end(&mut received) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            panic!("the server has not closed the connection: {:?}", String::from_utf8_lossy(&received));
        }
        // Whether it is closed or reset is the same here.
        _ => received,
    }
}

#[test]
fn connections_without_a_request_are_closed() {
    let server = Server::start(&["--http-read-timeout", "500ms", "--http-idle-timeout", "700ms"]);
    let preface = [PREFACE, EMPTY_SETTINGS].concat();
    for sent in [b"".as_slice(), b"P", b"G", b"GET /livez HTTP/1.1\r\nHost", PREFACE, &preface] {
        closed(server.connect(sent));
    }
    let answer = closed(server.connect(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{:?}", String::from_utf8_lossy(&answer));
}

/// A request for `/livez` as HTTP/2 has it: method, scheme, path and host with names from the static table.
fn http2_request() -> Vec<u8> {
    let block = [&[0x82, 0x86, 0x04, 6], b"/livez".as_slice(), &[0x01, 9], b"localhost"].concat();
    [&[0, 0, u8::try_from(block.len()).unwrap(), 1, 5, 0, 0, 0, 1], block.as_slice()].concat()
}

/// Reads HTTP/2 frames to the end and answers pings, so that only silence can be held against this client. Returns the
/// kinds of frames that came.
fn closed_in_spite_of_pongs(mut stream: TcpStream) -> Vec<u8> {
    let until = Instant::now() + PATIENCE;
    let mut kinds = vec![];
    let mut head = [0; 9];
    while stream.read_exact(&mut head).is_ok() {
        assert!(Instant::now() < until, "the server has not closed the connection: {kinds:?}");
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        if stream.read_exact(&mut payload).is_err() {
            break;
        }
        kinds.push(head[3]);
        let is_ping = head[3..5] == [6, 0];
        if is_ping && stream.write_all(&[&[0, 0, 8, 6, 1, 0, 0, 0, 0], payload.as_slice()].concat()).is_err() {
            break;
        }
    }
    kinds
}

#[test]
fn idle_http2_connections_are_closed_though_they_answer_pings() {
    let server = Server::start(&["--http-read-timeout", "30s", "--http-idle-timeout", "500ms"]);
    let stream = server.connect(&[PREFACE, EMPTY_SETTINGS, &http2_request()].concat());
    let kinds = closed_in_spite_of_pongs(stream);
    assert!([0, 1, 7].iter().all(|kind| kinds.contains(kind)), "DATA, HEADERS, GOAWAY: {kinds:?}");
}

#[test]
fn http2_clients_that_do_not_read_are_disconnected() {
    let server = Server::start(&["--http-write-timeout", "500ms"]);
    let no_window = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
    let stream = server.connect(&[PREFACE, &no_window, &http2_request()].concat());
    let kinds = closed_in_spite_of_pongs(stream);
    assert!(kinds.contains(&1) && !kinds.contains(&0), "HEADERS, no DATA: {kinds:?}");
}

#[test]
fn bodies_that_trickle_time_out() {
    let server = Server::start(&["--http-read-timeout", "600ms"]);
    let head = "POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{";
    let stream = server.connect(head.as_bytes());
    let mut writer = stream.try_clone().unwrap();
    let trickle = std::thread::spawn(move || {
        let mut sent = 0;
        while sent < 600 && writer.write_all(b" ").is_ok() {
            sent += 1;
            std::thread::sleep(Duration::from_millis(100));
        }
        sent
    });
    let answer = String::from_utf8_lossy(&closed(stream)).into_owned();
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("request_timeout"), "{answer}");
    assert!(trickle.join().unwrap() < 600, "the server waited for the whole body");
}

#[test]
fn silent_connections_do_not_stop_a_polite_client() {
    // They may be silent for longer than the test takes: only eviction makes room.
    let server = Server::start(&["--max-connections", "1024", "--http-read-timeout", "10m"]);
    let silent = server.silent(1100);
    for _ in 0..3 {
        let (status, answer) = server.post(&json!({"code": "print(2+2)"}));
        assert_eq!((status, &answer["result"]), (200, &"4".into()), "{answer:#}");
    }
    let first = silent.into_iter().next().unwrap();
    assert!(closed(first).is_empty(), "the one that was idle longest made room");
}

#[test]
fn requests_in_flight_survive_a_flood_of_connections() {
    let server = Server::start(&["--max-connections", "8", "--http-read-timeout", "10m"]);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| server.post(&json!({"code": "import time; time.sleep(2); print('done')"})));
        eventually("it runs", || server.get("/health").1["load"] == 1);
        let _silent = server.silent(100);
        assert_eq!(slow.join().unwrap().1["stdout"], "done\n");
    });
}

#[test]
fn connections_beyond_the_bound_are_refused_when_none_is_idle() {
    let server = Server::start(&["--max-connections", "8", "--max-connections-per-address", "2", "--capacity", "4"]);
    let body = r#"{"code": "import time; time.sleep(60)", "timeout": 60}"#;
    // A stream's head says that its request is in flight; before that its connection could be evicted.
    let busy = [(); 2].map(|()| {
        let mut stream = server.start_request("/execute", &[("Accept", "text/event-stream")], body);
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        stream
    });
    eventually("the server is full", || {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let mut answer = String::new();
        let _ = stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let _ = stream.read_to_string(&mut answer);
        // A reset may overtake the answer.
        answer.is_empty() || answer.starts_with("HTTP/1.1 503")
    });
    drop(busy);
    eventually("there is room again", || {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        agent.get(format!("http://{}/livez", server.address)).call().is_ok_and(|answer| answer.status() == 200)
    });
}

#[test]
fn idle_streams_hold_no_budget_and_no_slot() {
    const STREAMS: usize = 300;
    let server = Server::start(&["--capacity", "2", "--max-held", "32m", "--max-body", "1m"]);
    let id = server.submit(&json!({"code": "import time; time.sleep(120)", "timeout": 120}));
    eventually("it runs", || server.job(&id, "")["status"] == "running");
    assert_eq!(server.post(&json!({"code": "1"})).0, 200);
    let before = server.memory_field("VmRSS:");
    let streams: Vec<_> = (0..STREAMS).map(|_| server.stream(&id)).collect();
    assert!(streams.iter().all(|(status, _)| *status == 200));
    let each = server.memory_field("VmRSS:").saturating_sub(before) / STREAMS as u64;
    assert!(each < 64 << 10, "{each} bytes for each idle stream");
    let (status, answer) = server.post(&json!({"code": "print('x' * 1_000_000)"}));
    assert_eq!((status, &answer["verdict"]), (200, &"ok".into()));
    assert_eq!(server.job(&id, "")["status"], "running");
    assert_eq!(server.get("/health").1["status"], "ok");
    // All of them are told of the end, and only once.
    assert_eq!(server.delete(&format!("/v1/execute/{id}")).0, 200);
    for (_, mut stream) in streams {
        let mut rest = vec![];
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            if line == "0\r\n" {
                break;
            }
            rest.push(line);
        }
        assert_eq!(rest.iter().filter(|line| line.starts_with("event: result")).count(), 1, "{rest:?}");
    }
}

#[test]
fn streams_are_bounded_for_each_client() {
    let keys = "alice-0123456789abcdef;name=alice,bob-0123456789abcdef;name=bob";
    let server = Server::start_with(&["--max-streams", "4", "--capacity", "1"], &[("SANDBOX_API_KEYS", keys)]);
    let open = |key: &str| {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let body = json!({"code": "import time; time.sleep(100)", "timeout": 120}).to_string();
        let post = agent.post(format!("http://{}/v1/execute", server.address)).header("x-api-key", key);
        let mut made = post.content_type("application/json").send(body.as_bytes()).unwrap();
        let job: serde_json::Value = serde_json::from_str(&made.body_mut().read_to_string().unwrap()).unwrap();
        let path = format!("http://{}/v1/execute/{}/events", server.address, job["id"].as_str().unwrap());
        agent.get(path).header("x-api-key", key).call().unwrap()
    };
    let (alice, bob) = ("alice-0123456789abcdef", "bob-0123456789abcdef");
    let mut streams = vec![open(alice), open(alice)];
    let mut refused = open(alice);
    assert_eq!(refused.status(), 429);
    let problem = refused.body_mut().read_to_string().unwrap();
    assert!(problem.contains("at_capacity") && problem.contains("SANDBOX_MAX_STREAMS"), "{problem}");
    streams.extend([open(bob), open(bob)]);
    assert!(streams.iter().all(|stream| stream.status() == 200));
    streams.remove(0);
    eventually("the place is free again", || open(alice).status() == 200);
}

#[test]
fn bodies_with_too_many_parts_are_refused_and_take_no_memory() {
    let server = Server::start(&[]);
    assert_eq!(server.post(&json!({"code": "1"})).0, 200);
    let before = server.memory_field("VmRSS:");
    let entries = |format: &dyn Fn(usize) -> String| (0..1_250_000).map(format).collect::<Vec<_>>().join(",");
    let bodies = [
        format!(r#"{{"code": "1", "env": {{{}}}}}"#, entries(&|n| format!("\"{n:x}\":\"\""))),
        format!(r#"{{"code": "1", "files": {{{}}}}}"#, entries(&|n| format!("\"{n:x}\":\"\""))),
        format!(r#"{{"code": "1", "args": [{}]}}"#, entries(&|_| "\"\"".to_owned())),
        format!(
            r#"{{"code": "1", "template": {{"text": "", "variables": {{"x": [{}]}}}}}}"#,
            entries(&|_| "{}".into())
        ),
    ];
    std::thread::scope(|scope| {
        let server = &server;
        let answers = bodies.each_ref().map(|body| scope.spawn(move || server.send(&[], body.as_bytes()).1));
        for answer in answers {
            let (status, problem) = answer.join().unwrap();
            assert_eq!((status, &problem["code"]), (413, &"too_many_entries".into()), "{problem:#}");
            assert!(problem["detail"].as_str().unwrap().contains("200000"), "{problem:#}");
        }
    });
    let grown = server.memory_field("VmHWM:").saturating_sub(before);
    assert!(grown < 64 << 20, "the server grew by {grown} bytes");
    assert_eq!(server.post(&json!({"code": "1"})).0, 200);
}

#[test]
fn malformed_requests_are_never_the_servers_fault() {
    let server = Server::start(&[]);
    let many = |count: usize| (0..count).map(|n| format!("\"{n}\":\"\"")).collect::<Vec<_>>().join(",");
    let nested = |open: &str, depth: usize| format!(r#"{{"code": {}"#, open.repeat(depth));
    for (body, status) in [
        (nested("[", 100_000), 413),
        (nested("{\"a\":", 65), 413),
        (nested("[", 20), 400),
        (format!(r#"{{"code": "1", "files": {{{}}}}}"#, many(20_001)), 400),
        (format!(r#"{{"code": "1", "env": {{{}}}}}"#, many(10_001)), 400),
        (format!(r#"{{"code": "1", "limits": {{{}}}}}"#, many(101)), 400),
        (format!(r#"{{"code": "1", "requirements": [{}]}}"#, vec!["\"a\""; 201].join(",")), 400),
        ("\u{feff}{}".to_owned(), 400),
        ("{\"code\": \"\\ud800\"}".to_owned(), 400),
        ("{\"code\": 1e999}".to_owned(), 400),
        (String::new(), 400),
    ] {
        let (_, (got, answer)) = server.send(&[], body.as_bytes());
        assert_eq!(got, status, "{body:.60}: {answer:#}");
    }
    assert_eq!(server.send(&[], b"{\"code\": \"\xff\"}").1.0, 400);
    let inputs = vec!["{}"; 1001].join(",");
    let batch = format!(r#"{{"request": {{"code": "1"}}, "inputs": [{inputs}]}}"#);
    assert_eq!(server.send_to("/v1/batch", &[], batch.as_bytes()).1.0, 400);
}

#[test]
fn readiness_fails_without_a_keeper() {
    let server = Server::start(&[]);
    assert_eq!(server.get("/readyz").0, 200);
    // Without its launcher, the keeper is not replaced.
    let launcher = server.find("sandbox-launche").unwrap();
    signal("-STOP", launcher);
    signal("-KILL", server.keeper_process());
    eventually("it is not ready", || server.get("/readyz").0 == 503);
    let (_, why) = server.get("/readyz");
    assert!(why.as_str().unwrap().contains("the keeper has ended"), "{why}");
    let (status, health) = server.get("/health");
    assert_eq!((status, &health["status"]), (200, &"not_ready".into()), "{health:#}");
    assert_eq!(health["reasons"][0], "the keeper has ended and is being replaced");
    let (_, (status, problem)) = server.send(&[], br#"{"code": "1"}"#);
    assert_eq!((status, &problem["code"]), (503, &"unavailable".into()), "{problem:#}");
    let id = server.submit(&json!({"code": "print(1)"}));
    assert_eq!(server.get("/livez").0, 200);
    let port = server.address.rsplit(':').next().unwrap();
    let asked = Command::new(env!("CARGO_BIN_EXE_sandbox-server"))
        .args(["--health", "--http-host", "127.0.0.1", "--http-port", port])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(asked.status.code() == Some(1) && errors.contains("the keeper has ended"), "{errors}");
    assert_eq!(server.job(&id, "")["status"], "queued", "no job is wasted");
    signal("-CONT", launcher);
    eventually("it is ready again", || server.get("/readyz").0 == 200);
    assert_eq!(server.job(&id, "?wait=30s")["result"]["stdout"], "1\n");
}

#[test]
fn readiness_fails_without_a_job_store() {
    let mut redis = Redis::start();
    let server = redis.server(&[]);
    assert_eq!(server.get("/readyz").0, 200);
    redis.kill();
    eventually("it is not ready", || server.get("/readyz").0 == 503);
    assert_eq!(server.get("/health").1["reasons"], json!(["the job store is unavailable"]));
    assert_eq!(server.post(&json!({"code": "1"})).0, 200, "runs need no store");
}
