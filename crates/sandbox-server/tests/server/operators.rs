//! What operators do: check settings, reload them, start a second server by mistake, and stop a server behind a balancer.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use sandbox_testing::memory::descendants;
use sandbox_testing::{Gate, GuardedChild, TestServer, eventually, needs};
use serde_json::json;

use crate::Server;

const FIRST: &str = "first-key-0123456";
const SECOND: &str = "second-key-0123456";

impl Server {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap(), signal).unwrap();
    }

    fn run_with(&self, key: &str, body: &serde_json::Value) -> (u16, serde_json::Value) {
        self.send(&[("x-api-key", key)], body.to_string().as_bytes()).1
    }
}

/// A server, and the lines of its log so far.
fn logged(flags: &[&str], variables: &[(&str, &str)]) -> (Server, Arc<Mutex<Vec<String>>>) {
    let data = tempfile::tempdir().unwrap();
    std::fs::set_permissions(data.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let (server, log) = TestServer::launch_with_log(TestServer::command(), data, flags, variables);
    let lines = Arc::new(Mutex::new(vec![]));
    let kept = Arc::clone(&lines);
    std::thread::spawn(move || log.lines().map_while(Result::ok).for_each(|line| kept.lock().unwrap().push(line)));
    (Server(server), lines)
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    // The server reads it again as an ordinary user.
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o644)).unwrap();
}

#[test]
fn a_hangup_reloads_keys_and_limits_and_ends_nothing() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let (file, keys) = (dir.path().join("server.toml"), dir.path().join("keys"));
    let settings = |rest: &str| {
        // As editors do: in the place of the file there is another one.
        let next = dir.path().join("next");
        write(&next, &format!("api_keys_file = {:?}\n{rest}\n", keys.display().to_string()));
        std::fs::rename(next, &file).unwrap();
    };
    write(&keys, FIRST);
    settings("SANDBOX_MAX_PROCESSES = 100");
    let gate = Gate::closed();
    let (server, log) = logged(&["--config", file.to_str().unwrap()], &[gate.variable()]);
    let wait_for_log = |text: &str, times: usize| {
        eventually(text, || log.lock().unwrap().iter().filter(|line| line.contains(text)).count() == times);
    };
    let greedy = json!({"code": "print(1)", "limits": {"processes": 90}});
    assert_eq!(server.run_with(FIRST, &greedy).0, 200);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| server.run_with(FIRST, &gate.request("print('done')")));
        eventually("it runs", || server.get("/health").1["load"] == 1);
        write(&keys, &format!("{SECOND};name=second"));
        settings("SANDBOX_MAX_PROCESSES = 50");
        server.signal(Signal::HUP);
        eventually("the new key is known", || server.run_with(SECOND, &json!({"code": "1"})).0 == 200);
        assert_eq!(server.run_with(FIRST, &json!({"code": "1"})).0, 401, "the old one is not");
        let (status, problem) = server.run_with(SECOND, &greedy);
        let detail = problem["detail"].as_str().unwrap();
        assert!(status == 422 && detail.contains("maximum of 50"), "{problem:#}");
        gate.open();
        assert_eq!(slow.join().unwrap().1["stdout"], "done\n", "what runs is not disturbed");
    });
    // What is wrong changes nothing; nor does a file without keys, which would open the server to everyone.
    write(&keys, FIRST);
    settings("SANDBOX_MAX_PROCESSES = \"many\"");
    server.signal(Signal::HUP);
    wait_for_log("reload failed", 1);
    write(&keys, "");
    settings("");
    server.signal(Signal::HUP);
    wait_for_log("reload failed", 2);
    write(&keys, &format!("{SECOND};name=second\n{FIRST};name=first"));
    settings("SANDBOX_MAX_PROCESSES = 60");
    let statuses = [FIRST, SECOND].map(|key| server.run_with(key, &json!({"code": "1"})).0);
    assert_eq!(statuses, [401, 200]);
    server.signal(Signal::HUP);
    eventually("both keys are known", || server.run_with(FIRST, &json!({"code": "1"})).0 == 200);
    assert_eq!(server.run_with(SECOND, &json!({"code": "1"})).0, 200);
    wait_for_log("reloaded: api_keys: 1 before, 2 now", 1);
}

#[test]
fn settings_can_be_checked_without_serving() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("server.toml");
    let check = |text: &str, flags: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let mut command = TestServer::command();
        command.args(["--check-config", "--config", file.to_str().unwrap()]).args(flags);
        let output = command.env("SANDBOX_DATA_DIR", dir.path()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, errors) = check("capacity = 3\n", &[]);
    assert_eq!((code, out.as_str(), errors.as_str()), (Some(0), "the configuration is valid\n", ""));
    let (code, out, _) = check("", &["--api-keys", FIRST]);
    assert!(code == Some(0) && out.starts_with("warning: --api-keys: "), "{out}");
    let (code, _, errors) = check("\ncapacity = \"lots\"\nprepare = \"pyhton\"\n", &[]);
    assert!(code == Some(2) && errors.contains("server.toml:2: capacity: invalid value 'lots'"), "{errors}");
    let (code, _, errors) = check("prepare = \"pyhton\"\n", &[]);
    assert!(code == Some(2) && errors.contains("server.toml:1: prepare: unknown language 'pyhton'"), "{errors}");
}

#[test]
fn a_second_server_on_a_data_directory_names_the_file_and_the_cure() {
    let server = Server::start(&[]);
    let data = server.data.as_ref().unwrap().path().join("data");
    let mut command = TestServer::command();
    command.env("SANDBOX_DATA_DIR", &data).args(["--http-host", "127.0.0.1", "--http-port", "0"]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = format!("another server uses {}; set SANDBOX_DATA_DIR", data.join("jobs.redb").display());
    assert!(output.status.code() == Some(1) && text.contains(&expected) && text.contains("REDIS_URL"), "{text}");
    assert_eq!(server.post(&json!({"code": "1"})).0, 200, "the first one goes on");
}

#[test]
#[cfg(feature = "redis")]
fn a_redis_that_cannot_be_reached_is_reported_at_once() {
    // A port on which nothing listens while the listener is there, but is never accepted from.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let mut command: Command = TestServer::command();
    command.env("SANDBOX_DATA_DIR", dir.path().join("data")).env("SANDBOX_PREPARE", "none");
    command.args(["--http-host", "127.0.0.1", "--http-port", "0", "--redis-addr", &address]);
    let mut child = GuardedChild(command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let log = BufReader::new(child.stderr.take().unwrap());
    let expected = format!("cannot reach Redis at {address}; trying again");
    let told = log.lines().map_while(Result::ok).filter(|line| line.contains(&expected)).take(2).count();
    assert_eq!(told, 2);
}

#[test]
fn a_server_that_ends_says_so_to_new_connections_for_a_moment() {
    let server = Server::start(&[]);
    server.signal(Signal::TERM);
    let mut answers = vec![];
    eventually("the listener is closed", || {
        let url = format!("http://{}/readyz", server.address);
        let output = Command::new("curl").args(["-s", "-o", "/dev/null", "-w", "%{http_code}", &url]).output().unwrap();
        answers.push(String::from_utf8(output.stdout).unwrap());
        !output.status.success()
    });
    assert!(answers.contains(&"503".to_owned()), "{answers:?}");
}

#[test]
fn a_keeper_that_is_stuck_is_not_waited_for_without_end() {
    if !needs::root() {
        return;
    }
    let server = Server::start(&["--cold"]);
    assert_eq!(server.post(&json!({"code": "1"})).0, 200);
    let keeper = descendants(server.child.id()).into_iter().find(|(_, name)| name.starts_with("sandbox-keeper"));
    let keeper = Pid::from_raw(i32::try_from(keeper.expect("a keeper").0).unwrap()).unwrap();
    kill_process(keeper, Signal::STOP).unwrap();
    let (status, problem) = server.post(&json!({"code": "1"}));
    kill_process(keeper, Signal::CONT).unwrap();
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(status == 500 && detail.contains("no cell was ready within 20s"), "{problem:#}");
    eventually("it works again", || server.post(&json!({"code": "1"})).0 == 200);
}

#[test]
fn a_server_on_a_terminal_ends_when_the_terminal_is_closed() {
    if !needs::program("script") {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    std::fs::set_permissions(data.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = env!("CARGO_BIN_EXE_sandbox-server");
    let server = format!("exec {program} --http-host 127.0.0.1 --http-port 0 --cold");
    let mut command = Command::new("script");
    command.args(["-qec", &server, "/dev/null"]).env("SANDBOX_DATA_DIR", data.path().join("data"));
    command.env("SANDBOX_PREPARE", "none").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = GuardedChild(command.spawn().unwrap());
    let mut log = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(log.any(|line| line.contains("listening")), "it serves");
    let all = descendants(child.id());
    let server = all.iter().find(|(_, name)| name.starts_with("sandbox-server")).expect("the server");
    kill_process(Pid::from_raw(i32::try_from(*server.0).unwrap()).unwrap(), Signal::HUP).unwrap();
    assert!(log.any(|line| line.contains("shutting down")), "it ends in order");
    assert!(child.wait().unwrap().success());
}
