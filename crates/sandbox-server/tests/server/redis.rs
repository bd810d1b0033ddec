//! Servers with jobs in Redis: what they do while Redis fails, and what they cost it.

use std::process::Command;
use std::time::Duration;

use sandbox_testing::{RedisServer, eventually};
use serde_json::json;

use crate::Server;

const PROGRAM: &str = env!("CARGO_BIN_EXE_sandbox-server");

/// Redis keeps its data over a restart.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

fn server_of(redis: &RedisServer) -> Server {
    Server::start_with(&["--capacity", "2"], &[("REDIS_URL", &redis.socket_url())])
}

#[test]
fn redis_may_be_away_and_restarted_during_a_run() {
    let mut redis = RedisServer::on_socket(&DURABLE);
    let server = server_of(&redis);
    let running = server.submit(&json!({"code": "import time; time.sleep(2); print('kept')", "timeout": 20}));
    eventually("it runs", || server.job(&running, "")["status"] == "running");
    redis.kill();
    eventually("it is not ready", || server.get("/readyz").0 == 503);
    let (headers, (status, problem)) = server.send_to("/v1/execute", &[], br#"{"code": "1"}"#);
    assert_eq!((status, &problem["code"]), (503, &"unavailable".into()), "{problem:#}");
    assert!(headers.contains_key("retry-after"), "{headers:?}");
    assert_eq!(server.get(&format!("/v1/execute/{running}")).0, 503);
    assert_eq!(server.post(&json!({"code": "1"})).0, 200, "runs need no store");
    // The run ends meanwhile, and its result waits.
    std::thread::sleep(Duration::from_secs(3));
    redis.start_again(&DURABLE);
    eventually("it is ready again", || server.get("/readyz").0 == 200);
    let job = server.job(&running, "?wait=30s");
    assert_eq!((&job["result"]["stdout"], &job["attempts"]), (&"kept\n".into(), &1.into()), "{job:#}");
    let new = server.submit(&json!({"code": "print('new')"}));
    assert_eq!(server.job(&new, "?wait=30s")["result"]["stdout"], "new\n");
}

#[test]
fn a_stream_waits_for_a_store_that_fails() {
    let redis = RedisServer::on_socket(&[]);
    let socket = redis.socket_url().replace("unix://", "");
    let rename = |from: &str, to: &str| {
        let renamed = Command::new("redis-cli").args(["-s", &socket, "RENAME", from, to]).output().unwrap();
        assert_eq!(renamed.stdout, b"OK\n");
    };
    let server = server_of(&redis);
    let id = server.submit(&json!({"code": "print('all')"}));
    server.job(&id, "?wait=30s");
    let all = server.follow(&id, None);
    assert_eq!(server.follow(&id, Some(u64::MAX)), [], "there are none after the last");
    // Reading the events fails for a while.
    let (events, result) = (format!("{{sandbox}}:events:{id}"), format!("{{sandbox}}:result:{id}"));
    rename(&events, "elsewhere");
    rename(&result, &events);
    std::thread::scope(|scope| {
        let following = scope.spawn(|| server.follow(&id, None));
        std::thread::sleep(Duration::from_secs(1));
        assert!(!following.is_finished(), "it waits");
        rename(&events, &result);
        rename("elsewhere", &events);
        assert_eq!(following.join().unwrap(), all);
    });
}

#[test]
fn redis_may_start_after_its_servers() {
    let mut redis = RedisServer::on_socket(&[]);
    redis.kill();
    let url = redis.socket_url();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| Server::start_with(&["--capacity", "2"], &[("REDIS_URL", &url)]));
        std::thread::sleep(Duration::from_secs(1));
        assert!(!server.is_finished(), "it waits");
        redis.start_again(&[]);
        let server = server.join().unwrap();
        let job = server.submit(&json!({"code": "print(1)"}));
        assert_eq!(server.job(&job, "?wait=30s")["result"]["stdout"], "1\n");
    });
}

#[test]
fn a_full_redis_loses_no_result() {
    let redis = RedisServer::on_socket(&[]);
    let socket = redis.socket_url().replace("unix://", "");
    let set = |bytes: &str| {
        let set = ["-s", &socket, "CONFIG", "SET", "maxmemory", bytes];
        assert!(Command::new("redis-cli").args(set).output().unwrap().status.success());
    };
    let server = server_of(&redis);
    let running = server.submit(&json!({"code": "import time; time.sleep(1); print('kept')", "timeout": 20}));
    eventually("it runs", || server.job(&running, "")["status"] == "running");
    set("1");
    let (_, (status, problem)) = server.send_to("/v1/execute", &[], br#"{"code": "1"}"#);
    assert_eq!(status, 507, "{problem:#}");
    eventually("it is not ready", || server.get("/readyz").0 == 503);
    let job = server.job(&running, "?wait=30s");
    assert_eq!((&job["result"]["stdout"], &job["attempts"]), (&"kept\n".into(), &1.into()), "{job:#}");
    set("0");
    eventually("it is ready again", || server.get("/readyz").0 == 200);
}

#[test]
fn an_idle_server_with_followers_sends_few_commands() {
    const SECONDS: u64 = 10;
    let redis = RedisServer::on_socket(&[]);
    let socket = redis.socket_url().replace("unix://", "");
    let commands = || -> u64 {
        let info = Command::new("redis-cli").args(["-s", &socket, "INFO", "stats"]).output().unwrap().stdout;
        let info = String::from_utf8(info).unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).unwrap();
        line.trim().parse().unwrap()
    };
    let server = server_of(&redis);
    let later = json!({"code": "1", "delay": "1h"});
    let ids: Vec<String> = (0..5).map(|_| server.submit(&later)).collect();
    std::thread::scope(|scope| {
        for id in &ids {
            scope.spawn(|| assert_eq!(server.job(id, "?wait=15s")["status"], "queued"));
        }
        std::thread::sleep(Duration::from_secs(2));
        let before = commands();
        std::thread::sleep(Duration::from_secs(SECONDS));
        let sent = commands() - before;
        // Those in scripts included, and what this test itself asks.
        assert!(sent <= SECONDS + 4, "{sent} commands in {SECONDS} seconds");
    });
}

#[test]
fn passwords_in_urls_are_not_shown() {
    let url = "rediss://ann:hunter2@redis.example/3";
    let printed = Command::new(PROGRAM).args(["--redis-url", url, "--print-config"]).output().unwrap();
    let text = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(text.contains("redis_url = \"rediss://…@redis.example/3\""), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    let wrong = Command::new(PROGRAM).args(["--redis-url", "redis://ann:hunter2@a:b"]).output().unwrap();
    let errors = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(wrong.status.code() == Some(2) && errors.contains("redis-url") && !errors.contains("hunter2"), "{errors}");
}
