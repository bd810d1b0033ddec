//! Jobs: created, followed, cancelled, and not lost.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine;
use sandbox_testing::{Gate, RedisServer, eventually};
use serde_json::{Value, json};

use crate::Server;

impl Server {
    pub(crate) fn submit(&self, body: &Value) -> String {
        let (headers, (status, answer)) = self.send_to("/v1/execute", &[], body.to_string().as_bytes());
        assert_eq!(status, 202, "{answer:#}");
        let id = answer["id"].as_str().unwrap().to_owned();
        assert_eq!(headers["location"], format!("/v1/execute/{id}"));
        assert!(answer["created_at"].as_f64().unwrap() > 1.7e9);
        id
    }

    pub(crate) fn job(&self, id: &str, query: &str) -> Value {
        let (status, job) = self.get(&format!("/v1/execute/{id}{query}"));
        assert_eq!(status, 200, "{job:#}");
        job
    }

    pub(crate) fn delete(&self, path: &str) -> (u16, Value) {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let mut response = agent.delete(format!("http://{}{path}", self.address)).call().unwrap();
        let text = response.body_mut().read_to_string().unwrap();
        (response.status().as_u16(), serde_json::from_str(&text).unwrap())
    }

    /// Follows a job to its end: the numbers and contents of its events.
    pub(crate) fn follow(&self, id: &str, after: Option<u64>) -> Vec<(u64, Value)> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let resume = after.map(|number| format!("Last-Event-ID: {number}\r\n")).unwrap_or_default();
        let head =
            format!("GET /v1/execute/{id}/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{resume}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut events = vec![];
        let mut number = 0;
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if let Some(id) = line.strip_prefix("id: ") {
                number = id.parse().unwrap();
            } else if let Some(data) = line.strip_prefix("data: ") {
                events.push((number, serde_json::from_str(data).unwrap()));
            }
        }
        events
    }

    /// Ends the server with a signal and returns its directory.
    pub(crate) fn end(mut self, signal: &str) -> tempfile::TempDir {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        self.child.wait().unwrap();
        self.data.take().unwrap()
    }
}

#[test]
fn a_job_is_queued_run_and_kept() {
    let server = Server::start(&[]);
    let id = server.submit(&json!({"language": "python", "code": "print(input())", "stdin": "hello", "timeout": "2s"}));
    let job = server.job(&id, "?wait=10s");
    assert_eq!((&job["status"], &job["result"]["stdout"]), (&"finished".into(), &"hello\n".into()), "{job:#}");
    assert_eq!((&job["attempts"], &job["request"]["language"]), (&1.into(), &"python".into()));
    assert!(job["finished_at"].as_f64() >= job["started_at"].as_f64());
    let (_, list) = server.get("/v1/execute?status=finished&limit=1");
    assert_eq!((&list["jobs"][0]["id"], &list["jobs"][0]["verdict"]), (&job["id"], &"ok".into()));
    let (_, health) = server.get("/health");
    assert_eq!((&health["queue"], &health["store"]), (&0.into(), &"embedded".into()));
    assert!(health["isolation"].as_array().unwrap().contains(&"seccomp".into()));
}

#[test]
fn events_before_during_and_after() {
    let server = Server::start(&[]);
    let code = "import time\nfor n in range(3):\n    print(n, flush=True)\n    time.sleep(0.2)";
    let id = server.submit(&json!({"code": code}));
    let live = server.follow(&id, None);
    let names: Vec<&str> = live.iter().map(|(_, event)| event["event"].as_str().unwrap()).collect();
    assert_eq!(names.last(), Some(&"result"), "{names:?}");
    let stdout: String =
        live.iter().filter(|(_, e)| e["event"] == "stdout").map(|(_, e)| e["data"].as_str().unwrap()).collect();
    assert_eq!(stdout, "0\n1\n2\n");
    assert_eq!(server.follow(&id, None), live, "afterwards it is the same");
    let (second, _) = live[1];
    assert_eq!(server.follow(&id, Some(second)), live[2..], "and it can be resumed anywhere");
}

/// The output in a job's events: as text, and with its exact bytes.
fn output(events: &[(u64, Value)], stream: &str) -> (String, Vec<u8>) {
    let chunks = events.iter().filter(|(_, event)| event["event"] == stream);
    let mut all = (String::new(), vec![]);
    for (_, event) in chunks {
        let data = event["data"].as_str().unwrap();
        all.0.push_str(data);
        match event["data_base64"].as_str() {
            Some(exact) => all.1.extend(base64::engine::general_purpose::STANDARD.decode(exact).unwrap()),
            None => all.1.extend(data.as_bytes()),
        }
    }
    all
}

#[test]
fn events_concatenate_to_exactly_the_output() {
    let server = Server::start(&[]);
    let id = server.submit(&json!({"code": "print('€' * 50000)"}));
    let live = server.follow(&id, None);
    let job = server.job(&id, "");
    assert_eq!(output(&live, "stdout").0, job["result"]["stdout"].as_str().unwrap());
    assert_eq!(output(&live, "stdout").0, "€".repeat(50_000) + "\n");
    let code = "import sys; sys.stdout.buffer.write(b'\\xff\\x00\\xe2\\x82' * 30000)";
    let id = server.submit(&json!({"code": code}));
    assert_eq!(output(&server.follow(&id, None), "stdout").1, b"\xff\x00\xe2\x82".repeat(30_000));
}

#[test]
fn queue_time_of_a_job_is_reported() {
    let server = Server::start(&["--capacity", "1"]);
    let submitted = Instant::now();
    let first = server.submit(&json!({"code": "import time; time.sleep(300)", "timeout": 300}));
    eventually("it runs", || server.job(&first, "")["status"] == "running");
    let seen = submitted.elapsed();
    let second = server.submit(&json!({"code": "1"}));
    std::thread::sleep(Duration::from_secs(1));
    server.delete(&format!("/v1/execute/{first}"));
    let queue = |id: &str| server.job(id, "?wait=60s")["result"]["metrics"]["phases"]["queue"].as_f64().unwrap();
    assert!(queue(&first) <= seen.as_secs_f64(), "{} within {seen:?}", queue(&first));
    assert!(queue(&second) >= 1.0, "{}", queue(&second));
}

#[test]
fn cancelled_jobs_end_or_never_start() {
    let server = Server::start(&["--capacity", "1"]);
    let running = server.submit(&json!({"code": "import time; time.sleep(60)", "timeout": 60}));
    eventually("it runs", || server.job(&running, "")["status"] == "running");
    let queued = server.submit(&json!({"code": "print('never')"}));
    let (status, job) = server.delete(&format!("/v1/execute/{queued}"));
    assert_eq!((status, &job["status"]), (200, &"cancelled".into()));
    server.delete(&format!("/v1/execute/{running}"));
    let job = server.job(&running, "?wait=20s");
    assert_eq!((&job["status"], &job["result"]["verdict"]), (&"cancelled".into(), &"cancelled".into()), "{job:#}");
    assert_eq!(server.job(&queued, "")["attempts"], 0);
    assert_eq!(server.follow(&queued, None)[0].1["event"], "cancelled");
}

#[test]
fn idempotency_key_creates_one_job() {
    let server = Server::start(&[]);
    let send = |code: &str| {
        let body = json!({"code": code}).to_string();
        server.send_to("/v1/execute", &[("idempotency-key", "k1")], body.as_bytes()).1
    };
    let (first, second) = (send("1"), send("1"));
    assert_eq!((first.0, &first.1["id"]), (202, &second.1["id"]));
    let (status, problem) = send("2");
    assert_eq!((status, &problem["code"]), (409, &"idempotency_conflict".into()));
}

#[test]
fn bad_requests_are_explained() {
    let server = Server::start(&["--queue", "1", "--capacity", "1"]);
    let (status, _) = server.get("/v1/execute/no-such-job");
    assert_eq!(status, 404);
    for path in
        ["/v1/execute/0197e4b2-0000-7000-8000-000000000000", "/v1/execute/0197e4b2-0000-7000-8000-000000000000/events"]
    {
        let (status, problem) = server.get(path);
        assert_eq!((status, &problem["code"]), (404, &"not_found".into()));
    }
    assert_eq!(server.delete("/v1/execute/nope").0, 404);
    let (_, (status, _)) = server.send_to("/v1/execute", &[], b"{\"code\": \"\"}");
    assert_eq!(status, 422);
    assert_eq!(server.get("/v1/execute?status=odd").0, 422);
    assert_eq!(server.get("/v1/execute?cursor=odd").0, 404);
    let slow = json!({"code": "import time; time.sleep(60)", "timeout": 60});
    let id = server.submit(&slow);
    eventually("it runs", || server.job(&id, "")["status"] == "running");
    assert_eq!(server.get(&format!("/v1/execute/{id}?wait=soon")).0, 422);
    server.submit(&slow);
    let (headers, (status, problem)) = server.send_to("/v1/execute", &[], slow.to_string().as_bytes());
    assert_eq!((status, &problem["code"]), (429, &"queue_full".into()));
    assert_eq!(headers["retry-after"], "5");
}

#[test]
fn ended_jobs_are_deleted_after_retention() {
    let server = Server::start(&["--job-retention", "500ms"]);
    let id = server.submit(&json!({"code": "1"}));
    assert_eq!(server.job(&id, "?wait=10s")["status"], "finished");
    eventually("it is forgotten", || server.get(&format!("/v1/execute/{id}")).0 == 404);
}

#[test]
fn no_job_is_lost_when_the_server_ends() {
    // Killed, and asked to end: either way the next server goes on.
    for signal in ["-KILL", "-TERM"] {
        let flags = ["--capacity", "1", "--http-shutdown-timeout", "300ms"];
        let gate = Gate::closed();
        let server = Server::start_with(&flags, &[gate.variable()]);
        let slow = server.submit(&gate.request("print('done')"));
        let queued = server.submit(&json!({"code": "print('also')"}));
        eventually("it runs", || server.job(&slow, "")["status"] == "running");
        let data = server.end(signal);
        gate.open();
        let server = Server::start_in(data, &flags, &[gate.variable()]);
        for (id, expected) in [(slow, "done\n"), (queued, "also\n")] {
            let job = server.job(&id, "?wait=60s");
            assert_eq!(
                (&job["status"], &job["result"]["stdout"]),
                (&"finished".into(), &expected.into()),
                "{signal}: {job:#}"
            );
        }
    }
}

#[test]
fn a_batch_is_compiled_once_and_each_input_has_its_verdict() {
    let server = Server::start(&["--capacity", "2"]);
    let code =
        "#include <stdio.h>\nint main(void) { int n; if (scanf(\"%d\", &n) != 1) return 3; printf(\"%d\\n\", n * n); }";
    let body = json!({
        "request": {"language": "c", "code": code, "timeout": "5s"},
        "inputs": [{"stdin": "2"}, {"stdin": "3"}, {"stdin": "x"}, {"stdin": "5"}]
    })
    .to_string();
    let (_, (status, text)) = server.send_to("/v1/batch", &[], body.as_bytes());
    assert_eq!(status, 200, "{text}");
    let events: Vec<Value> = text
        .as_str()
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    assert_eq!(events.last().unwrap()["event"], "end");
    let result = |index: u64| &events.iter().find(|event| event["index"] == index).unwrap()["result"];
    assert_eq!(
        (&result(0)["stdout"], &result(1)["stdout"], &result(3)["stdout"]),
        (&"4\n".into(), &"9\n".into(), &"25\n".into())
    );
    assert_eq!((&result(2)["verdict"], &result(2)["exit_code"]), (&"runtime_error".into(), &3.into()));
    let compiled = (0..4).filter(|index| result(*index)["compile"]["cached"] == false).count();
    assert_eq!(compiled, 1);
    let bad = json!({"request": {"code": "1"}, "inputs": [{}, {"files": {"../x": ""}}]}).to_string();
    let (_, (status, problem)) = server.send_to("/v1/batch", &[], bad.as_bytes());
    assert_eq!(status, 422);
    assert!(problem["detail"].as_str().unwrap().starts_with("inputs[1]: files.../x"), "{problem:#}");
    let (_, (status, _)) = server.send_to("/v1/batch", &[], br#"{"request": {"code": "1"}, "inputs": []}"#);
    assert_eq!(status, 422);
}

/// A Redis server that ends with the test.
pub(crate) struct Redis(RedisServer);

impl Redis {
    const PASSWORD: &str = "se cret/1";

    pub(crate) fn start() -> Self {
        Self(RedisServer::start(Some(Self::PASSWORD)))
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill();
    }

    pub(crate) fn server(&self, flags: &[&str]) -> Server {
        self.server_with(flags, ("REDIS_DB", "3"))
    }

    /// A server with one more variable.
    fn server_with(&self, flags: &[&str], variable: (&str, &str)) -> Server {
        let variables = [("REDIS_ADDR", &*self.0.address()), ("REDIS_PASSWORD", Self::PASSWORD), ("REDIS_DB", "3")];
        Server::start_with(flags, &[&variables[..], &[variable]].concat())
    }
}

#[test]
fn any_server_shows_and_cancels_any_job() {
    let redis = Redis::start();
    let (one, other) = (redis.server(&["--capacity", "1"]), redis.server(&["--capacity", "1"]));
    assert_eq!(one.get("/health").1["store"], "redis");
    let id = one.submit(&json!({"code": "import time\nfor n in range(3):\n    print(n)\n    time.sleep(0.2)"}));
    let live = other.follow(&id, None);
    assert_eq!(live.last().unwrap().1["event"], "result", "{live:?}");
    assert_eq!(one.follow(&id, None), live);
    assert_eq!(other.job(&id, "")["result"]["stdout"], "0\n1\n2\n");
    let ids: Vec<String> =
        (0..2).map(|_| one.submit(&json!({"code": "import time; time.sleep(60)", "timeout": 60}))).collect();
    for id in &ids {
        eventually("it runs", || one.job(id, "")["status"] == "running");
    }
    for id in &ids {
        assert_eq!(other.delete(&format!("/v1/execute/{id}")).0, 200);
        let job = one.job(id, "?wait=10s");
        assert_eq!(job["status"], "cancelled", "{job:#}");
    }
}

#[test]
fn jobs_in_redis_outlive_their_server() {
    // Asked to end it puts its job back; killed, its job is taken over when its lease is up.
    for signal in ["-TERM", "-KILL"] {
        let (redis, gate) = (Redis::start(), Gate::closed());
        let flags = ["--capacity", "1", "--http-shutdown-timeout", "300ms"];
        let server = redis.server_with(&flags, gate.variable());
        let slow = server.submit(&gate.request("print('done')"));
        let queued = server.submit(&json!({"code": "print('also')"}));
        eventually("it runs", || server.job(&slow, "")["status"] == "running");
        let _data = server.end(signal);
        gate.open();
        let server = redis.server_with(&flags, gate.variable());
        for (id, expected) in [(&slow, "done\n"), (&queued, "also\n")] {
            let job = server.job(id, "?wait=60s");
            assert_eq!(job["result"]["stdout"], expected, "{signal}: {job:#}");
        }
        let job = server.job(&slow, "");
        assert_eq!((&job["attempts"], &job["failures"]), (&2.into(), &serde_json::Value::Null), "{signal}");
    }
}

#[test]
fn two_servers_share_a_thousand_jobs_and_one_is_killed() {
    const JOBS: usize = 1000;
    let redis = Redis::start();
    let (doomed, survivor) = (redis.server(&["--capacity", "4"]), redis.server(&["--capacity", "4"]));
    let ids: Vec<String> = (0..JOBS)
        .map(|n| survivor.submit(&json!({"language": "bash", "code": format!("echo {n}"), "timeout": 20})))
        .collect();
    let finished = |server: &Server| {
        let (_, list) = server.get("/v1/execute?status=finished&limit=200");
        list["jobs"].as_array().unwrap().len()
    };
    eventually("a hundred are finished", || finished(&doomed) >= 100);
    let _data = doomed.end("-KILL");
    let mut again = 0;
    for (n, id) in ids.iter().enumerate() {
        let mut job = survivor.job(id, "?wait=60s");
        for _ in 0..3 {
            if job["status"] != "finished" {
                job = survivor.job(id, "?wait=60s");
            }
        }
        assert_eq!(
            (&job["status"], &job["result"]["stdout"]),
            (&"finished".into(), &format!("{n}\n").into()),
            "{job:#}"
        );
        let attempts = job["attempts"].as_u64().unwrap();
        again += usize::from(attempts > 1);
        let events = survivor.get(&format!("/v1/execute/{id}")).1;
        assert!(attempts <= 2, "{events:#}");
    }
    assert!(again <= 4, "only what the dead server was running is run again: {again}");
}
