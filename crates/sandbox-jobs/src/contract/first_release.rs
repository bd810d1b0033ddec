//! What every store must do with the data of release 0.1.0.

use super::*;

/// A job as 0.1.0 stored it.
fn old_job(id: JobId, status: &str, owner: &str) -> serde_json::Value {
    let result = if status == "finished" { json!({"verdict": "ok"}) } else { json!(null) };
    json!({
        "id": id, "status": status, "created_at": 1.7e9, "started_at": null,
        "finished_at": if status == "finished" { json!(crate::model::now()) } else { json!(null) },
        "attempts": u32::from(status != "queued"), "request": {"language": "python", "code": "print(1)"},
        "result": result, "owner": owner,
        "webhook": {"url": "http://example.com/", "secret": "s".repeat(20), "status": "pending", "attempts": 0}
    })
}

fn old_file(path: &std::path::Path, jobs: &[(JobId, &str)]) {
    use redb::{Database, TableDefinition};
    const JOBS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("jobs");
    const QUEUE: TableDefinition<'_, u128, ()> = TableDefinition::new("queue");
    const EVENTS: TableDefinition<'_, (u128, u64), &[u8]> = TableDefinition::new("events");
    const DELIVERIES: TableDefinition<'_, u128, u64> = TableDefinition::new("deliveries");
    let database = Database::create(path).expect("make");
    let transaction = database.begin_write().expect("begin");
    for (id, status) in jobs {
        let bytes = old_job(*id, status, "a").to_string();
        transaction.open_table(JOBS).expect("open").insert(id.number(), bytes.as_bytes()).expect("insert");
        match *status {
            "queued" => drop(transaction.open_table(QUEUE).expect("open").insert(id.number(), ()).expect("insert")),
            "finished" => {
                let mut events = transaction.open_table(EVENTS).expect("open");
                events.insert((id.number(), 1), br#"{"event": "result"}"#.as_slice()).expect("insert");
                transaction.open_table(DELIVERIES).expect("open").insert(id.number(), 0).expect("insert");
            }
            _ => {}
        }
    }
    transaction.commit().expect("commit");
}

/// Runs a Redis command.
async fn command(connection: &mut ::redis::aio::MultiplexedConnection, words: &[&str]) -> String {
    let (name, arguments) = words.split_first().expect("a name");
    let answer: ::redis::Value = ::redis::cmd(name).arg(arguments).query_async(connection).await.expect(name);
    ::redis::from_redis_value(answer).unwrap_or_default()
}

async fn old_redis(prefix: &str, jobs: &[(JobId, &str)]) {
    let client = ::redis::Client::open(format!("redis://{}/0", redis().address())).expect("address");
    let mut connection = client.get_multiplexed_async_connection().await.expect("connect");
    let (queue, all, due) = (format!("{prefix}:queue"), format!("{prefix}:jobs"), format!("{prefix}:deliveries"));
    command(&mut connection, &["XGROUP", "CREATE", &queue, "workers", "0", "MKSTREAM"]).await;
    for (id, status) in jobs {
        let (id, old) = (id.to_string(), old_job(*id, status, "a"));
        let (job, attempts) = (format!("{prefix}:job:{id}"), old["attempts"].to_string());
        let (request, webhook) = (old["request"].to_string(), old["webhook"].to_string());
        command(&mut connection, &["HSET", &job, "status", status, "attempts", &attempts, "created_at", "1.7e9"]).await;
        command(&mut connection, &["HSET", &job, "request", &request, "language", "python", "owner", "a"]).await;
        command(&mut connection, &["HSET", &job, "webhook", &webhook]).await;
        command(&mut connection, &["ZADD", &all, "0", &id]).await;
        if *status == "finished" {
            let (at, result) = (old["finished_at"].to_string(), old["result"].to_string());
            command(&mut connection, &["HSET", &job, "finished_at", &at, "result", &result, "verdict", "ok"]).await;
            let events = format!("{prefix}:events:{id}");
            command(&mut connection, &["XADD", &events, "1-0", "what", r#"{"event": "result"}"#]).await;
            command(&mut connection, &["ZADD", &due, "0", &id]).await;
            continue;
        }
        let entry = command(&mut connection, &["XADD", &queue, "*", "id", &id]).await;
        command(&mut connection, &["HSET", &job, "entry", &entry]).await;
        if *status == "running" {
            // By a server that has been silent for a minute.
            let read = ["XREADGROUP", "GROUP", "workers", "dead", "STREAMS", &queue, ">"];
            command(&mut connection, &read).await;
            let claim = ["XCLAIM", &queue, "workers", "dead", "0", &entry, "IDLE", "60000", "JUSTID"];
            command(&mut connection, &claim).await;
        }
    }
}

#[tokio::test]
async fn jobs_of_the_first_release_are_taken_over() {
    let jobs: Vec<(JobId, &str)> = ["finished", "running", "queued", "queued"].map(|s| (JobId::new(), s)).into();
    let dir = tempfile::tempdir().expect("tempdir");
    old_file(&dir.path().join("jobs.redb"), &jobs);
    let prefix = format!("test-{}", JobId::new());
    old_redis(&prefix, &jobs).await;
    for store in [Place::file(&dir), Place::redis_store(&prefix).await] {
        let usage = assert_exact(&store, "a", "taken over").await;
        assert_eq!((usage.waiting, usage.running), (3, 0), "{}", store.name());
        let list = store.list(Filter { status: None, owner: Some("a".to_owned()) }, 10, None).await.expect("list");
        assert_eq!(list.jobs.len(), 4);
        let due = store.take_delivery(Duration::from_secs(60), vec![]).await.expect("take").expect("one");
        assert_eq!(due.id, jobs[0].0);
        for (id, status) in &jobs[1..] {
            let job = take(&store).await.expect("one");
            let attempts = if *status == "running" { 2 } else { 1 };
            assert_eq!((job.id, job.attempts, job.owner.as_deref()), (*id, attempts, Some("a")), "{}", store.name());
            store.finish(job.attempt(), vec![], Arc::new(succeeded(""))).await.expect("finish");
        }
        assert!(take(&store).await.is_none());
        assert_exact(&store, "a", "finished").await;
    }
}

#[tokio::test]
async fn a_server_of_the_first_release_may_go_on_queueing() {
    let prefix = format!("test-{}", JobId::new());
    let store = Place::redis_store(&prefix).await;
    create_for(&store, "a").await;
    let late = JobId::new();
    old_redis(&prefix, &[(late, "queued")]).await;
    store.expire().await.expect("expire");
    let taken = [take(&store).await.expect("one").id, take(&store).await.expect("one").id];
    assert!(taken.contains(&late));
    assert_exact(&store, "a", "taken over").await;
}
