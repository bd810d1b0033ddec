//! Parts of the server that die or stop: the keeper, its launcher, a zygote, the server itself.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sandbox_testing::command::{processes, program_in_container};
use sandbox_testing::memory::descendants;
use sandbox_testing::{Gate, GuardedChild, RedisServer, TestServer, build_dir, eventually, needs};
use serde_json::{Value, json};

use crate::Server;

/// Sends a signal to a process of this test.
pub(crate) fn signal(signal: &str, pid: u32) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

fn exists(pid: u32) -> bool {
    // A process that has ended and was not reaped yet has no memory any more.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, fields)| !fields.trim_start().starts_with('Z')))
}

/// The groups of cells that belong to a keeper.
fn groups_of(keeper: u32) -> Vec<String> {
    fn find(dir: &Path, prefix: &str, depth: usize, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap_or_default();
            if name.starts_with(prefix) {
                found.push(name);
            } else if depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                find(&entry.path(), prefix, depth - 1, found);
            }
        }
    }
    let mut found = vec![];
    find(Path::new("/sys/fs/cgroup"), &format!("sandbox-run-{keeper}-"), 3, &mut found);
    found
}

impl Server {
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        let below = descendants(self.child.id());
        let mut all = processes().into_iter().filter(|(pid, ..)| below.contains_key(pid));
        // A process that it has just forked still has its name, and may have a lower number.
        let is_fork = |parent| below.get(&parent).is_some_and(|parent| parent == name);
        all.find(|(_, parent, other, _)| other == name && !is_fork(*parent)).map(|(pid, ..)| pid)
    }

    /// Ends a `sleep` in a cell, so that its program continues. Returns whether there was one.
    pub(crate) fn end_a_sleep(&self) -> bool {
        // It may have ended since it was found.
        let pid = self.find("sleep").and_then(|pid| Pid::from_raw(pid.cast_signed()));
        pid.is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok())
    }

    pub(crate) fn keeper_process(&self) -> u32 {
        self.find("sandbox-keeper").unwrap()
    }

    fn health(&self) -> Value {
        self.get("/health").1
    }

    /// A connection on which a run was asked for.
    fn begin(&self, body: &Value) -> TcpStream {
        let stream = self.start_request("/execute", &[], body);
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream
    }
}

/// Reads one answer from a connection: its head and its body.
fn answer(stream: &mut TcpStream) -> (String, Value) {
    let mut bytes = vec![];
    let end = loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
        if bytes.ends_with(b"\r\n\r\n") {
            break bytes.len();
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (head, serde_json::from_slice(&body).unwrap_or_default())
}

#[test]
fn a_killed_keeper_is_replaced_and_no_job_is_lost() {
    let server = Server::start(&["--capacity", "4", "--zygotes", "1", "--ready-cells", "4"]);
    let mut caller = server.begin(&json!({"language": "bash", "code": "sleep 300", "timeout": 300}));
    eventually("the program runs", || server.find("sleep").is_some());
    // Each ends when this test ends its `sleep`.
    let code = |number| format!("import subprocess; subprocess.run(['sleep', '300']); print({number})");
    let ids: Vec<String> =
        (0..12).map(|number| server.submit(&json!({"code": code(number), "timeout": 300}))).collect();
    eventually("the jobs run", || server.health()["load"] == 4);
    let (keeper, launcher) = (server.keeper_process(), server.find("sandbox-launche").unwrap());
    let below: Vec<u32> = descendants(keeper).into_keys().collect();
    assert!(below.len() > 4);
    signal("-KILL", keeper);

    let (head, problem) = answer(&mut caller);
    assert!(head.starts_with("http/1.1 500"), "{head}");
    assert_eq!(problem["code"], "internal_error", "{problem:#}");
    assert!(problem["detail"].as_str().unwrap().ends_with("the keeper ended"), "{problem:#}");
    eventually("the health tells", || server.health()["keeper_restarts"] == 1);
    assert!(!below.iter().any(|pid| exists(*pid)), "no process of the dead keeper is left");
    eventually("its groups are gone", || groups_of(keeper).is_empty());

    for (number, id) in ids.iter().enumerate() {
        eventually("the job ends", || {
            server.end_a_sleep();
            server.job(id, "")["status"] == "finished"
        });
        let job = server.job(id, "");
        assert_eq!(job["result"]["stdout"], format!("{number}\n"), "{job:#}");
    }
    assert_eq!(server.post(&json!({"code": "print(1)"})).1["stdout"], "1\n");
    let next = server.keeper_process();
    assert!(next != keeper && server.find("sandbox-launche") == Some(launcher));
    eventually("runs start warm again", || server.post(&json!({"code": "print(1)"})).1["metrics"]["start"] == "warm");
    let (_, metrics) = server.get("/metrics");
    for line in ["sandbox_keeper_restarts_total 1", "sandbox_keeper_up 1", "sandbox_ready 1"] {
        assert!(metrics.as_str().unwrap().lines().any(|other| other == line), "{line}: {metrics}");
    }
    server.end("-TERM");
    eventually("nothing is left", || !exists(next) && !exists(launcher) && groups_of(next).is_empty());
}

#[test]
fn the_next_keeper_is_as_confined_as_the_first() {
    let server = Server::start_with(&[], &[]);
    let filter = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        (field("Seccomp:"), field("NoNewPrivs:"), field("CapEff:"))
    };
    let keeper = server.keeper_process();
    eventually("the first is confined", || filter(keeper).0 == "2");
    let before = filter(keeper);
    signal("-KILL", keeper);
    eventually("another keeper runs", || server.health()["keeper_restarts"] == 1);
    assert_eq!(server.post(&json!({"code": "print(1)"})).1["stdout"], "1\n");
    assert_eq!(filter(server.keeper_process()), before);
    let environment = std::fs::read(format!("/proc/{}/environ", server.keeper_process())).unwrap();
    assert!(!environment.windows(13).any(|part| part == b"SANDBOX_DATA_"), "and knows as little");
}

/// Without namespaces, no kernel ends the processes of a keeper that is killed: the launcher does.
#[test]
fn a_killed_keeper_is_replaced_with_reduced_isolation() {
    if !needs::root() {
        return;
    }
    for user in ["root", "user"] {
        let data = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::set_permissions(data.path(), PermissionsExt::from_mode(0o1777)).unwrap();
        let command = program_in_container(user, data.path(), &build_dir().join("sandbox-server"));
        let variables = [("SANDBOX_ISOLATION", "reduced")];
        let server = Server(TestServer::launch(command, data, &["--user", "root"], &variables));
        let mut caller = server.begin(&json!({
            "language": "bash", "code": "(setsid sleep 78; true) & sleep 77", "timeout": "60s"
        }));
        eventually("the programs run", || {
            descendants(server.child.id()).values().filter(|name| *name == "sleep").count() == 2
        });
        let keeper = server.keeper_process();
        let below: Vec<u32> = descendants(keeper).into_keys().collect();
        signal("-KILL", keeper);
        assert!(answer(&mut caller).0.starts_with("http/1.1 500"));
        eventually("the keeper is replaced", || server.health()["keeper_restarts"] == 1);
        assert!(!below.iter().any(|pid| exists(*pid)), "{user}: no process of the dead keeper is left");
        let (_, result) = server.post(&json!({"code": "print(1)"}));
        assert_eq!(result["stdout"], "1\n", "{user}: {result:#}");
    }
}

#[test]
fn a_job_that_sees_three_keepers_end_while_it_runs_alone_is_given_up() {
    let server = Server::start(&["--capacity", "2", "--cold"]);
    let id = server.submit(&json!({"language": "bash", "code": "sleep 77", "timeout": "60s"}));
    // The first time, another job might have been the cause.
    for ends in 1..=4 {
        eventually("it runs", || server.find("sleep").is_some());
        signal("-KILL", server.keeper_process());
        eventually("the keeper is replaced", || server.health()["keeper_restarts"] == ends);
    }
    let job = server.job(&id, "?wait=30s");
    assert_eq!(job["result"]["verdict"], "internal_error", "{job:#}");
    assert!(job["result"]["error"].as_str().unwrap().ends_with("the keeper ended"), "{job:#}");
    assert_eq!((&job["attempts"], &job["failures"]), (&4.into(), &3.into()));
    let id = server.submit(&json!({"code": "print(1)"}));
    assert_eq!(server.job(&id, "?wait=30s")["result"]["stdout"], "1\n");
}

#[test]
fn a_server_whose_keeper_cannot_be_replaced_ends() {
    let mut server = Server::start(&["--cold"]);
    let (keeper, launcher) = (server.keeper_process(), server.find("sandbox-launche").unwrap());
    signal("-KILL", launcher);
    eventually("the launcher is gone", || !exists(launcher));
    assert_eq!(server.post(&json!({"code": "print(1)"})).1["stdout"], "1\n", "the keeper goes on");
    signal("-KILL", keeper);
    assert_eq!(server.child.wait().unwrap().code(), Some(1));
}

#[test]
fn a_killed_zygote_is_replaced() {
    let server = Server::start(&["--zygotes", "1", "--ready-cells", "2"]);
    let is_warm = || server.post(&json!({"code": "print(1)"})).1["metrics"]["start"] == "warm";
    eventually("runs start warm", is_warm);
    // The zygote is the oldest interpreter.
    let zygote = descendants(server.child.id()).into_iter().find(|(_, name)| name.starts_with("python")).unwrap().0;
    signal("-KILL", zygote);
    eventually("the health tells", || server.health()["lost_zygotes"].as_u64() >= Some(1));
    let (status, result) = server.post(&json!({"code": "print(1)"}));
    assert_eq!((status, &result["stdout"]), (200, &"1\n".into()), "{result:#}");
    eventually("runs start warm again", is_warm);
    assert_eq!(server.health()["warm_starts"]["python"], "on");
}

#[test]
fn a_zygote_that_ends_before_it_is_warm_is_started_again() {
    let server = Server::start(&[]);
    let interpreter = || descendants(server.child.id()).into_iter().find(|(_, name)| name.starts_with("python"));
    let mut killed = BTreeSet::new();
    eventually("two of them have started", || {
        if let Some((zygote, _)) = interpreter()
            && killed.insert(zygote)
        {
            signal("-KILL", zygote);
        }
        killed.len() == 2
    });
    let is_warm = || server.post(&json!({"code": "print(1)"})).1["metrics"]["start"] == "warm";
    eventually("runs start warm", is_warm);
    assert_eq!(server.health()["warm_starts"]["python"], "on");
}

#[test]
fn a_closed_log_does_not_stop_the_server() {
    let data = tempfile::tempdir().unwrap();
    std::fs::set_permissions(data.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let (server, log) =
        TestServer::launch_with_log(TestServer::command(), data, &["--cold", "--log-level", "debug"], &[]);
    drop(log);
    for _ in 0..3 {
        let (status, result) = server.post(&json!({"code": "print(1)"}));
        assert_eq!((status, &result["stdout"]), (200, &"1\n".into()), "{result:#}");
    }
}

#[test]
fn a_stopped_server_does_not_prolong_a_run() {
    let server = Server::start(&["--cold"]);
    // It fills its pipe, which is not read meanwhile, and leaves a file that is not collected.
    let code = "head -c 4000000 /dev/zero > file; (sleep 1; head -c 4000000 /dev/zero) & sleep 77";
    let body = json!({"language": "bash", "code": code, "timeout": "4s", "limits": {"output": "8m"}});
    let mut caller = server.begin(&body);
    eventually("the program runs", || server.find("sleep").is_some());
    signal("-STOP", server.child.id());
    eventually("the pipe is full", || server.find("head").is_some());
    eventually("the program is ended without the server", || {
        ["bash", "sleep", "head"].iter().all(|name| server.find(name).is_none())
    });
    signal("-CONT", server.child.id());
    let (head, result) = answer(&mut caller);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_eq!(result["verdict"], "timeout", "{}", result["error"]);
    assert!(result["stdout"].as_str().unwrap().len() < 4_000_000);
    assert_eq!(server.post(&json!({"code": "print(1)"})).1["stdout"], "1\n");
}

#[test]
fn a_killed_server_leaves_nothing() {
    let mut server = Server::start(&["--zygotes", "1", "--ready-cells", "2"]);
    let _caller = server.begin(&json!({"language": "bash", "code": "yes > /dev/null & sleep 77", "timeout": "60s"}));
    eventually("the program runs", || server.find("sleep").is_some());
    let all: BTreeSet<u32> = descendants(server.child.id()).into_keys().collect();
    let keeper = server.keeper_process();
    assert!(all.len() > 4, "{all:?}");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    eventually("keeper, launcher and cells are gone", || !all.iter().any(|pid| exists(*pid)));
    eventually("and their groups", || groups_of(keeper).is_empty());
}

#[test]
fn a_draining_server_finishes_its_runs_and_takes_no_more() {
    let key = "a-key-for-operators;name=ops;scopes=execute+jobs+admin+metrics,a-key-for-clients-x;name=app;scopes=execute+jobs";
    let gate = Gate::closed();
    let server = Server::start_with(&["--cold", "--capacity", "2"], &[("SANDBOX_API_KEYS", key), gate.variable()]);
    let (ops, app) = (("authorization", "Bearer a-key-for-operators"), ("authorization", "Bearer a-key-for-clients-x"));
    let job = gate.request("print('done')").to_string();
    let (_, (status, running)) = server.send_to("/v1/execute", &[app], job.as_bytes());
    assert_eq!(status, 202);
    eventually("it runs", || server.health()["load"] == 1);
    assert_eq!(server.send_to("/admin/drain", &[app], b"").1.0, 403);
    let (headers, (status, drained)) = server.send_to("/admin/drain", &[ops], b"");
    assert_eq!((status, &drained["draining"]), (202, &true.into()), "{drained:#}");
    assert_eq!(headers["connection"], "close");
    for path in ["/execute", "/v1/execute", "/v1/batch"] {
        let body = json!({"code": "1", "inputs": [{}]}).to_string();
        let (headers, (status, problem)) = server.send_to(path, &[app], body.as_bytes());
        assert_eq!((status, &problem["code"]), (503, &"draining".into()), "{path}: {problem:#}");
        assert!(headers.contains_key("retry-after"), "{path}");
    }
    assert_eq!(server.get("/readyz"), (503, "draining\n".into()));
    let health = server.health();
    assert_eq!((&health["status"], &health["draining"]), (&"draining".into(), &true.into()), "{health:#}");
    assert_eq!(server.get("/livez").0, 200);
    assert_eq!(health["load"], 1, "the job continues");
    gate.open();
    eventually("the job has finished", || server.health()["load"] == 0);
    let agent = ureq::Agent::new_with_defaults();
    let url = format!("http://{}/v1/execute/{}", server.address, running["id"].as_str().unwrap());
    let text = agent.get(url).header(app.0, app.1).call().unwrap().body_mut().read_to_string().unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["result"]["stdout"], "done\n", "{text}");
}

#[test]
fn kept_connections_are_answered_when_the_server_ends() {
    let gate = Gate::closed();
    let mut server = Server::start_with(&["--cold"], &[gate.variable()]);
    let get = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut kept = TcpStream::connect(&server.address).unwrap();
    kept.write_all(get).unwrap();
    assert!(!answer(&mut kept).0.contains("connection: close"));
    // A run that keeps the server from ending before the last answer.
    let mut busy = server.begin(&gate.request(""));
    eventually("it runs", || server.health()["load"] == 1);
    signal("-TERM", server.child.id());
    // It may not have seen the signal yet.
    loop {
        kept.write_all(get).unwrap();
        let (head, _) = answer(&mut kept);
        assert!(head.starts_with("http/1.1 200"), "{head}");
        if head.contains("connection: close") {
            break;
        }
    }
    gate.open();
    assert!(answer(&mut busy).0.starts_with("http/1.1 200"));
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn a_second_signal_ends_the_runs_and_says_why() {
    let mut server = Server::start(&["--cold", "--http-shutdown-timeout", "100s"]);
    let mut caller = server.begin(&json!({"language": "bash", "code": "sleep 77", "timeout": "90s"}));
    eventually("the program runs", || server.find("sleep").is_some());
    signal("-TERM", server.child.id());
    eventually("it does not listen any more", || TcpStream::connect(&server.address).is_err());
    signal("-TERM", server.child.id());
    let (_, result) = answer(&mut caller);
    assert_eq!((&result["verdict"], &result["error"]), (&"cancelled".into(), &"the server is shutting down".into()));
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn roles_need_a_shared_store() {
    for role in ["api", "worker"] {
        let refused = TestServer::command().args(["--role", role, "--print-config"]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        let text = String::from_utf8(refused.stderr).unwrap();
        assert!(text.contains("needs a job store that several servers share"), "{text}");
    }
}

/// What a server logs about itself when it starts: the line with its address, and the one after it.
fn greeting(role: &str, redis: &str) -> [Value; 2] {
    let data = tempfile::tempdir().unwrap();
    std::fs::set_permissions(data.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = TestServer::command();
    command.env("SANDBOX_DATA_DIR", data.path().join("data")).env("REDIS_ADDR", redis);
    command.args(["--http-host", "127.0.0.1", "--http-port", "0", "--log-format", "json", "--role", role]);
    command.args(["--capacity", "3"]);
    let mut child = GuardedChild(command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut logs = lines.filter_map(|line| Some(serde_json::from_str::<Value>(&line).ok()?["fields"].clone()));
    let listening = logs.find(|fields| fields["message"] == "listening").unwrap();
    let hint = logs.find(|fields| fields["message"].as_str().is_some_and(|text| text.contains("http://"))).unwrap();
    [listening, hint]
}

#[test]
fn a_server_says_what_is_true_for_its_role() {
    let redis = RedisServer::start(None);
    let (address, text) = (redis.address(), |value: &Value| value.as_str().unwrap_or_default().to_owned());
    let [all, hint] = greeting("all", &address);
    assert_eq!((&all["role"], &all["capacity"]), (&"all".into(), &3.into()));
    assert!(text(&hint["message"]).contains("/execute --json"), "{hint}");
    let [api, hint] = greeting("api", &address);
    assert_eq!((&api["role"], &api["capacity"], &api["isolation"]), (&"api".into(), &Value::Null, &Value::Null));
    assert!(text(&hint["message"]).contains("/v1/execute --json"), "{hint}");
    let [worker, hint] = greeting("worker", &address);
    assert_eq!((&worker["role"], &worker["capacity"]), (&"worker".into(), &3.into()));
    assert!(!text(&hint["message"]).contains("curl") && text(&hint["message"]).contains("/health"), "{hint}");
}

#[test]
fn an_api_server_leaves_jobs_to_workers() {
    let redis = RedisServer::start(None);
    let address = redis.address();
    let variables = [("REDIS_ADDR", address.as_str())];
    let api = Server::start_with(&["--role", "api"], &variables);
    let (status, problem) = api.post(&json!({"code": "print(1)"}));
    assert_eq!((status, &problem["code"]), (404, &"not_found".into()), "{problem:#}");
    assert!(problem["detail"].as_str().unwrap().contains("POST /v1/execute"), "{problem:#}");
    let id = api.submit(&json!({"code": "print(1)"}));
    let health = api.health();
    assert_eq!((&health["role"], &health["capacity"]), (&"api".into(), &0.into()), "it runs nothing");
    assert_eq!((&health["isolation"], &health["warm_starts"]), (&json!([]), &json!({})), "{health:#}");
    assert!(api.get("/metrics").1.as_str().unwrap().contains("sandbox_capacity 0"));
    assert_eq!(api.job(&id, "")["status"], "queued");
    let age = || {
        let text = api.get("/metrics").1.as_str().unwrap().to_owned();
        let line = text.lines().find_map(|line| line.strip_prefix("sandbox_queue_age_seconds ")).unwrap();
        line.parse::<f64>().unwrap()
    };
    eventually("the queue is as old as its job", || age() > 0.0);
    let worker = Server::start_with(&["--role", "worker", "--capacity", "3"], &variables);
    let health = worker.health();
    assert_eq!((&health["role"], &health["capacity"]), (&"worker".into(), &3.into()), "{health:#}");
    assert_eq!(worker.get("/readyz").0, 200);
    assert_eq!(worker.get("/metrics").0, 200);
    for path in ["/v1/languages", "/v1/execute", "/docs"] {
        assert_eq!(worker.get(path).0, 404, "{path}");
    }
    let job = api.job(&id, "?wait=30s");
    assert_eq!(job["result"]["stdout"], "1\n", "{job:#}");
    eventually("no job waits", || age() == 0.0);

    let special = api.submit(&json!({"code": "print(2)", "labels": ["gpu"]}));
    let plain = api.submit(&json!({"code": "print(3)"}));
    assert_eq!(api.job(&plain, "?wait=30s")["result"]["stdout"], "3\n");
    assert_eq!(api.job(&special, "")["status"], "queued", "the worker has no such label");
    let _labelled = Server::start_with(&["--role", "worker", "--labels", "java, gpu"], &variables);
    assert_eq!(api.job(&special, "?wait=30s")["result"]["stdout"], "2\n");

    // Servers should have the same caps: a worker refuses what is above its own, and says so.
    let strict = [variables[0], ("SANDBOX_MAX_TIMEOUT", "5s")];
    let _strict = Server::start_with(&["--role", "worker", "--labels", "strict"], &strict);
    let long = api.submit(&json!({"code": "print(4)", "timeout": 20, "labels": ["strict"]}));
    let job = api.job(&long, "?wait=30s");
    assert_eq!((&job["status"], &job["result"]["verdict"]), (&"finished".into(), &"invalid_request".into()), "{job:#}");
    assert!(job["result"]["error"].as_str().unwrap().contains("SANDBOX_MAX_TIMEOUT"), "{job:#}");
}

#[test]
fn labels_are_checked() {
    let refused = TestServer::command().args(["--labels", "GPU", "--print-config"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("labels: invalid label \"GPU\""), "{text}");
}
