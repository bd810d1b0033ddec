//! Shares: of the capacity, of the queue and of the store. One client's backlog leaves room for the others.

use std::io::Read;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sandbox_testing::eventually;
use serde_json::{Value, json};

use crate::Server;

const ALICE: (&str, &str) = ("x-api-key", "alice-0123456789abcdef");
const BOB: (&str, &str) = ("x-api-key", "bob-0123456789abcdef");

fn with_keys(flags: &[&str], alice: &str, bob: &str) -> Server {
    let keys = format!("{};name=alice{alice},{};name=bob{bob}", ALICE.1, BOB.1);
    Server::start_with(flags, &[("SANDBOX_API_KEYS", &keys)])
}

impl Server {
    fn submit_as(&self, key: (&str, &str), body: &Value) -> String {
        let (status, answer) = self.send_as(key, "/v1/execute", body);
        assert_eq!(status, 202, "{answer:#}");
        answer["id"].as_str().unwrap().to_owned()
    }

    /// Waits for the end of a job.
    fn ended(&self, key: (&str, &str), id: &str) -> Value {
        let path = format!("/v1/execute/{id}");
        eventually(&format!("{id} ends"), || self.get_as(key, &path).1["status"] == "finished");
        self.get_as(key, &path).1
    }

    fn queue(&self) -> u64 {
        self.get("/health").1["queue"].as_u64().unwrap()
    }
}

#[test]
fn a_backlog_of_jobs_leaves_room_for_synchronous_runs() {
    // With one slot, each class has it in turn; with more, some are reserved.
    for (capacity, runs) in [("1", 3), ("2", 20), ("4", 20)] {
        let server = Server::start(&["--capacity", capacity]);
        for _ in 0..200 {
            server.submit(&json!({"language": "bash", "code": "sleep 1", "timeout": 20}));
        }
        for run in 0..runs {
            let (status, answer) = server.post(&json!({"language": "bash", "code": "echo hello"}));
            assert_eq!((status, &answer["stdout"]), (200, &"hello\n".into()), "{capacity}, {run}: {answer:#}");
        }
        assert!(server.queue() > 0, "the backlog was there all the time");
    }
}

#[test]
fn a_batch_leaves_room_for_jobs_and_runs() {
    let server = Server::start(&["--capacity", "2"]);
    let inputs = vec![json!({}); 40];
    // A run of the batch ends when this test ends its `sleep`.
    let batch = json!({"request": {"language": "bash", "code": "sleep 300 || true", "timeout": 300}, "inputs": inputs});
    std::thread::scope(|scope| {
        let all = scope.spawn(|| server.send_to("/v1/batch", &[], batch.to_string().as_bytes()).1);
        eventually("it runs", || server.find("sleep").is_some());
        let id = server.submit(&json!({"language": "bash", "code": "echo job"}));
        let run = scope.spawn(|| server.post(&json!({"language": "bash", "code": "echo run"})));
        eventually("the job and the run end", || {
            server.end_a_sleep();
            run.is_finished() && server.job(&id, "")["status"] == "finished"
        });
        assert!(!all.is_finished(), "they waited for the whole batch");
        let (status, answer) = run.join().unwrap();
        assert_eq!((status, &answer["stdout"]), (200, &"run\n".into()), "{answer:#}");
        eventually("the batch ends", || {
            server.end_a_sleep();
            all.is_finished()
        });
        assert_eq!(all.join().unwrap().0, 200);
    });
}

#[test]
fn a_key_does_not_wait_for_the_backlog_of_another() {
    let server = with_keys(&["--capacity", "2"], "", "");
    let job = json!({"language": "bash", "code": "sleep 0.3", "timeout": 20});
    for _ in 0..100 {
        server.submit_as(ALICE, &job);
    }
    let bob = server.submit_as(BOB, &job);
    let bob = server.ended(BOB, &bob);
    let (_, list) = server.get_as(ALICE, "/v1/execute?limit=200");
    let jobs = list["jobs"].as_array().unwrap();
    assert!(jobs.iter().any(|job| job["status"] == "queued"), "{list:#}");
    let between = |job: &&Value| {
        let started = job["started_at"].as_f64();
        started > bob["created_at"].as_f64() && started < bob["started_at"].as_f64()
    };
    let overtook: Vec<&Value> = jobs.iter().filter(between).collect();
    assert!(overtook.len() <= 1, "the next slot was for the other key: {overtook:#?}");
}

#[test]
fn the_runs_of_a_key_bind_its_jobs() {
    let server = with_keys(&["--capacity", "8"], ";runs=1", "");
    // The programs know when they run; a job's end is recorded later.
    let code = "echo $EPOCHREALTIME; sleep 0.2; echo $EPOCHREALTIME";
    let job = json!({"language": "bash", "code": code, "timeout": 20});
    let ids: Vec<String> = (0..6).map(|_| server.submit_as(ALICE, &job)).collect();
    // Its jobs and its synchronous runs have the only slot in turn.
    let (status, answer) = server.send_as(ALICE, "/execute", &json!({"language": "bash", "code": "echo hello"}));
    assert_eq!((status, &answer["stdout"]), (200, &"hello\n".into()), "{answer:#}");
    let (status, _) = server.send_as(ALICE, "/v1/batch", &json!({"request": job, "inputs": [{}, {}]}));
    assert_eq!(status, 200);
    let mut spans: Vec<(f64, f64)> = ids
        .iter()
        .map(|id| {
            let job = server.ended(ALICE, id);
            let (start, end) = job["result"]["stdout"].as_str().unwrap().split_once('\n').unwrap();
            (start.parse().unwrap(), end.trim().parse().unwrap())
        })
        .collect();
    spans.sort_by(|one, other| one.0.total_cmp(&other.0));
    for pair in spans.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two at a time: {spans:?}");
    }
}

#[test]
fn a_key_has_a_share_of_the_queue() {
    let server = with_keys(&["--capacity", "2", "--queue", "6"], ";per-day=10", ";per-day=1");
    let job = json!({"language": "bash", "code": "sleep 60", "timeout": 60});
    let running = server.submit_as(ALICE, &job);
    eventually("it runs", || server.get_as(ALICE, &format!("/v1/execute/{running}")).1["status"] == "running");
    let keyed = |key, name, body: &Value| {
        server.send_to("/v1/execute", &[key, ("idempotency-key", name)], body.to_string().as_bytes()).1
    };
    let (status, first) = keyed(ALICE, "k", &job);
    assert_eq!(status, 202);
    for _ in 0..2 {
        server.submit_as(ALICE, &job);
    }
    let (status, problem) = server.send_as(ALICE, "/v1/execute", &job);
    assert_eq!((status, &problem["code"]), (429, &"queue_full".into()));
    assert!(problem["detail"].as_str().unwrap().contains("SANDBOX_QUEUE_PER_KEY"), "{problem:#}");
    let (status, again) = keyed(ALICE, "k", &job);
    assert_eq!((status, &again["id"]), (202, &first["id"]), "a retry finds its job: {again:#}");
    // Another key has room, and is charged once for a job that it sends twice.
    let (status, first) = keyed(BOB, "k", &job);
    let (again, second) = keyed(BOB, "k", &job);
    assert_eq!((status, again, &first["id"]), (202, 202, &second["id"]), "{second:#}");
    let (status, problem) = server.send_as(BOB, "/v1/execute", &job);
    assert_eq!((status, &problem["code"]), (429, &"quota_exceeded".into()));
}

#[test]
fn a_key_has_a_share_of_the_store() {
    let server = with_keys(&["--capacity", "2", "--job-storage", "64k"], "", "");
    let large = json!({"code": "print('x' * 50_000)"});
    let id = server.submit_as(ALICE, &large);
    server.ended(ALICE, &id);
    let (status, problem) = server.send_as(ALICE, "/v1/execute", &json!({"code": "1"}));
    assert_eq!((status, &problem["code"]), (429, &"storage_full".into()));
    assert!(problem["detail"].as_str().unwrap().contains("SANDBOX_JOB_STORAGE"), "{problem:#}");
    let id = server.submit_as(BOB, &json!({"code": "print(1)"}));
    assert_eq!(server.ended(BOB, &id)["result"]["stdout"], "1\n");
}

/// Listens and never answers. Counts the connections.
fn silence() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, count) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            counter.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || stream.map(|mut stream| stream.read_to_end(&mut vec![])));
        }
    });
    (port, count)
}

#[test]
fn slow_receivers_of_one_key_do_not_delay_those_of_another() {
    const JOBS: usize = 40;
    let (slow, connections) = silence();
    let (quick, messages) = crate::webhooks::receiver(&["200 Yes"]);
    let allow = format!("127.0.0.1:{slow},127.0.0.1:{quick}");
    let server = with_keys(&["--capacity", "4", "--webhook-allow", &allow], "", "");
    let job = |port: u16| {
        let webhook = json!({"url": format!("http://127.0.0.1:{port}/"), "secret": "a secret of some length"});
        json!({"language": "bash", "code": "true", "webhook": webhook})
    };
    let ids: Vec<String> = (0..JOBS).map(|_| server.submit_as(ALICE, &job(slow))).collect();
    for id in &ids {
        server.ended(ALICE, id);
    }
    let id = server.submit_as(BOB, &job(quick));
    let message = messages.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    assert_eq!(message.header("webhook-id"), id);
    let before = connections.load(Ordering::SeqCst);
    assert!(before < JOBS, "it came before the {JOBS} unanswered ones, not after {before}");
}
