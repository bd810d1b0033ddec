//! What is promised about jobs (docs/RELIABILITY.md), on real servers that are killed and asked to end.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use sandbox_testing::command::without_settings;
use sandbox_testing::{eventually, needs};
use serde_json::{Value, json};

use crate::Server;

/// The lines of an event stream that is still open.
fn stream(server: &Server, id: &str, after: Option<&str>) -> impl Iterator<Item = String> + use<> {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let resume = after.map(|number| format!("Last-Event-ID: {number}\r\n")).unwrap_or_default();
    let head = format!("GET /v1/execute/{id}/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{resume}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    BufReader::new(stream).lines().map_while(Result::ok)
}

/// The data of events.
fn data(lines: impl Iterator<Item = String>) -> Vec<Value> {
    lines.filter_map(|line| Some(serde_json::from_str(line.strip_prefix("data: ")?).unwrap())).collect()
}

fn status(server: &Server, id: &str) -> String {
    server.job(id, "")["status"].as_str().unwrap().to_owned()
}

#[test]
fn a_job_that_kills_its_server_takes_no_neighbour_with_it() {
    let flags = ["--capacity", "4", "--reserved-share", "0"];
    let mut server = Server::start(&flags);
    let sleeps =
        |seconds: u32| json!({"language": "bash", "code": format!("sleep {seconds}; echo fine"), "timeout": 100});
    let bomb = server.submit(&sleeps(90));
    let neighbours: Vec<String> = (0..2).map(|_| server.submit(&sleeps(1))).collect();
    eventually("all run", || neighbours.iter().chain([&bomb]).all(|id| status(&server, id) == "running"));
    // Whenever the bomb runs, its server dies.
    let mut deaths = 0;
    loop {
        eventually("the bomb runs or has ended", || ["running", "finished"].contains(&&*status(&server, &bomb)));
        if status(&server, &bomb) == "finished" {
            break;
        }
        if deaths > 0 {
            assert!(neighbours.iter().all(|id| status(&server, id) != "running"), "a suspect runs alone");
        }
        server = Server::start_in(server.end("-KILL"), &flags, &[]);
        deaths += 1;
        assert!(deaths <= 4, "it is not given up");
    }
    assert_eq!(deaths, 4, "three of its attempts were made alone");
    let job = server.job(&bomb, "");
    assert_eq!((&job["result"]["verdict"], &job["failures"]), (&"internal_error".into(), &3.into()), "{job:#}");
    assert!(job["result"]["error"].as_str().unwrap().contains("the server died"), "{job:#}");
    for id in neighbours {
        let job = server.job(&id, "?wait=30s");
        assert_eq!((&job["status"], &job["result"]["stdout"]), (&"finished".into(), &"fine\n".into()), "{job:#}");
        assert_eq!(job["failures"], Value::Null, "{job:#}");
    }
}

#[test]
fn an_acknowledged_cancellation_survives_a_kill() {
    let mut server = Server::start(&["--capacity", "2"]);
    for _ in 0..3 {
        let id = server.submit(&json!({"code": "import time; time.sleep(2); print('survived')", "timeout": 20}));
        eventually("it runs", || status(&server, &id) == "running");
        assert_eq!(server.delete(&format!("/v1/execute/{id}")).0, 200);
        server = Server::start_in(server.end("-KILL"), &["--capacity", "2"], &[]);
        let job = server.job(&id, "?wait=20s");
        assert_eq!(job["status"], "cancelled", "{job:#}");
    }
}

#[test]
fn a_resumed_stream_does_not_mix_attempts() {
    let flags = ["--capacity", "2"];
    let server = Server::start(&flags);
    let code = "import random, time\nfor _ in range(3):\n    print(random.random(), flush=True)\n    time.sleep(1)";
    let id = server.submit(&json!({"code": code, "timeout": 30}));
    let mut last = String::new();
    for line in stream(&server, &id, None) {
        if let Some(number) = line.strip_prefix("id: ") {
            number.clone_into(&mut last);
        }
        if line.contains("stdout") && line.starts_with("data: ") {
            break;
        }
    }
    let server = Server::start_in(server.end("-KILL"), &flags, &[]);
    let events = data(stream(&server, &id, Some(&last)));
    assert_eq!(events[0], json!({"event": "restarted", "attempt": 2}), "{events:#?}");
    let stdout: String =
        events.iter().filter(|event| event["event"] == "stdout").map(|event| event["data"].as_str().unwrap()).collect();
    let job = server.job(&id, "");
    assert_eq!(job["result"]["stdout"], stdout.as_str());
    assert_eq!(stdout.lines().count(), 3);
    assert_eq!(data(stream(&server, &id, None)), events, "the stored events are those of the last attempt");
}

#[test]
fn streams_say_that_the_server_shuts_down() {
    let server = Server::start(&["--http-shutdown-timeout", "300ms"]);
    // One write, and so one event.
    let code = "import os, time; os.write(1, b'here'); time.sleep(30)";
    let id = server.submit(&json!({"code": code, "timeout": 60}));
    let mut lines = stream(&server, &id, None);
    assert!(lines.any(|line| line.contains("here")));
    let _data = server.end("-TERM");
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().any(|line| line == "event: shutdown"), "{rest:?}");
    assert!(!rest.iter().any(|line| line.starts_with("id: ")), "it has no number: {rest:?}");
}

#[test]
fn a_batch_ends_when_its_client_goes_away_in_the_first_run() {
    let server = Server::start(&["--capacity", "2"]);
    let body = json!({"request": {"code": "import time; time.sleep(100)", "timeout": 200}, "inputs": [{}, {}]});
    let client = server.start_request("/v1/batch", &[], &body);
    let load = || server.get("/health").1["load"].as_u64().unwrap();
    eventually("the first run is in progress", || load() == 1);
    drop(client);
    eventually("it is cancelled", || load() == 0);
}

#[test]
fn a_job_can_be_delayed_prioritised_and_can_expire() {
    let server = Server::start(&["--capacity", "1"]);
    let busy = server.submit(&json!({"language": "bash", "code": "sleep 1"}));
    eventually("it runs", || status(&server, &busy) == "running");
    let low = server.submit(&json!({"language": "bash", "code": "echo low", "priority": -1}));
    let high = server.submit(&json!({"language": "bash", "code": "echo high", "priority": 1}));
    let delayed = server.submit(&json!({"language": "bash", "code": "echo later", "delay": "2500ms"}));
    let unwanted =
        server.submit(&json!({"code": "1", "labels": ["a-label-that-no-worker-has"], "expires_in": "300ms"}));
    let ended = |id: &str| server.job(id, "?wait=20s");
    let (low, high, delayed, unwanted) = (ended(&low), ended(&high), ended(&delayed), ended(&unwanted));
    assert!(high["started_at"].as_f64() < low["started_at"].as_f64(), "{high:#} {low:#}");
    let waited = delayed["started_at"].as_f64().unwrap() - delayed["created_at"].as_f64().unwrap();
    assert!(waited >= 2.4, "{delayed:#}");
    assert_eq!(unwanted["status"], "expired", "{unwanted:#}");
    let events = data(stream(&server, unwanted["id"].as_str().unwrap(), None));
    assert_eq!(events, [json!({"event": "expired"})]);
    let (_, list) = server.get("/v1/execute?status=expired");
    assert_eq!(list["jobs"][0]["id"], unwanted["id"]);
    let (code, problem) = server.send_to("/v1/execute", &[], br#"{"code": "1", "priority": 101}"#).1;
    assert_eq!((code, &problem["field"]), (422, &"priority".into()), "{problem:#}");
    let (code, problem) = server.post(&json!({"code": "1", "delay": "1s"}));
    assert_eq!((code, &problem["field"]), (422, &"delay".into()), "{problem:#}");
}

#[test]
fn a_full_disk_is_507_and_the_server_recovers() {
    if !needs::root() {
        return;
    }
    // A disk for this server alone, which goes with its mount namespace.
    let dir = tempfile::tempdir().unwrap();
    let mount = r#"mount -t tmpfs -o size=12m,mode=755 full "$0" && exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", mount]).arg(dir.path()).arg(env!("CARGO_BIN_EXE_sandbox-server"));
    without_settings(&mut command);
    let flags = ["--ready-cells", "0", "--zygotes", "0"];
    let server = Server(sandbox_testing::TestServer::launch(command, dir, &flags, &[]));
    let disk = format!("/proc/{}/root{}", server.child.id(), server.data.as_ref().unwrap().path().display());
    let ballast = format!("{disk}/ballast");
    std::fs::write(&ballast, vec![0; 5 << 20]).unwrap();
    let done = server.submit(&json!({"language": "bash", "code": "echo kept"}));
    assert_eq!(server.job(&done, "?wait=20s")["result"]["stdout"], "kept\n");
    let large = json!({"code": format!("# {}", "x".repeat(300_000)), "delay": "1h"}).to_string();
    let create = || server.send_to("/v1/execute", &[], large.as_bytes()).1;
    let mut created = 0;
    let refused = loop {
        match create() {
            (202, _) => created += 1,
            refused => break refused,
        }
        assert!(created < 100, "the disk is never full");
    };
    assert_eq!((refused.0, &refused.1["code"]), (507, &"disk_full".into()), "{:#}", refused.1);
    // Reads go on.
    assert_eq!(server.job(&done, "")["result"]["stdout"], "kept\n");
    assert_eq!(server.get("/v1/execute?status=queued&limit=200").1["jobs"].as_array().unwrap().len(), created);
    std::fs::remove_file(&ballast).unwrap();
    eventually("there is room again", || create().0 == 202);
    let again = server.submit(&json!({"language": "bash", "code": "echo again"}));
    assert_eq!(server.job(&again, "?wait=20s")["result"]["stdout"], "again\n");
}

#[test]
fn a_backup_can_be_made_and_restored() {
    let server = Server::start(&[]);
    let id = server.submit(&json!({"code": "print(6*7)"}));
    assert_eq!(server.job(&id, "?wait=20s")["result"]["stdout"], "42\n");
    let copies = tempfile::tempdir().unwrap();
    let backup = |data: &std::path::Path, name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox-server"));
        command.env("SANDBOX_DATA_DIR", data).arg("backup").arg(copies.path().join(name));
        command.output().unwrap()
    };
    let data = server.data.as_ref().unwrap().path().join("data");
    let made = backup(&data, "live.redb");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let twice = backup(&data, "live.redb");
    assert!(!twice.status.success() && String::from_utf8_lossy(&twice.stderr).contains("exists"), "{twice:?}");
    let data = server.end("-TERM");
    let made = backup(&data.path().join("data"), "still.redb");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    for name in ["live.redb", "still.redb"] {
        let restored = tempfile::tempdir().unwrap();
        std::fs::set_permissions(restored.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::create_dir(restored.path().join("data")).unwrap();
        std::fs::copy(copies.path().join(name), restored.path().join("data/jobs.redb")).unwrap();
        let server = Server::start_in(restored, &[], &[]);
        assert_eq!(server.job(&id, "")["result"]["stdout"], "42\n", "{name}");
    }
}
