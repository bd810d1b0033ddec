//! Redis that is away, restarted, full, slow, or refuses the password.

use super::*;

/// Appends to a file before it answers.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

#[tokio::test]
async fn nothing_is_lost_when_redis_is_restarted_with_its_data() {
    let mut server = RedisServer::on_socket(&DURABLE);
    let store = store_in(&server).await;
    let (running, queued) = (create(&store).await, create(&store).await);
    let attempt = take(&store).await.expect("one").attempt();
    let mut watch = store.follow(running);
    server.kill();
    assert!(store.finish(attempt, vec![], printed("")).await.is_err());
    let began = Instant::now();
    for _ in 0..1000 {
        assert!(store.create(new_job("x"), BOUNDS).await.is_err());
    }
    assert!(began.elapsed() < LONG, "while Redis is away, calls fail at once");
    assert!(store.probe().await.is_err());
    server.start_again(&DURABLE);
    // The server retries to record the result; it does not run the job again.
    assert!(until_it_works(async || store.finish(attempt, vec![], printed("kept")).await).await);
    let job = store.get(running).await.expect("get").expect("there");
    assert_eq!((job.attempts, job.result.map(|result| result.stdout)), (1, Some("kept".to_owned())));
    tokio::time::timeout(LONG, watch.changed()).await.expect("woken");
    assert_eq!(take(&store).await.map(|job| job.id), Some(queued));
    store.probe().await.expect("ready");
}

#[tokio::test]
async fn servers_recover_when_redis_is_restarted_without_its_data() {
    let mut server = RedisServer::on_socket(&[]);
    let (store, other) = (store_in(&server).await, store_in(&server).await);
    create(&store).await;
    let gone = take(&store).await.expect("one").attempt();
    server.kill();
    assert!(store.probe().await.is_err());
    server.start_again(&[]);
    until_it_works(async || store.probe().await).await;
    assert!(!store.finish(gone, vec![], printed("")).await.expect("finish"), "Redis does not know it any more");
    assert_eq!(store.heartbeat(vec![gone]).await.expect("heartbeat").lost, [gone.id]);
    // Everything works as before, also notifications.
    let id = create(&store).await;
    let mut watch = until_it_works(async || Ok(other.follow(id))).await;
    let attempt = take(&store).await.expect("one").attempt();
    store.finish(attempt, vec![], printed("new")).await.expect("finish");
    while !until_it_works(async || other.progress(id).await).await.expect("there").status.is_final() {
        tokio::time::timeout(LONG, watch.changed()).await.expect("woken");
    }
    assert_eq!(other.get(id).await.expect("get").expect("there").status, JobStatus::Finished);
}

#[tokio::test]
async fn a_refused_password_is_tried_again() {
    let mut server = RedisServer::on_socket(&["--requirepass", "right"]);
    let settings = RedisSettings::from_url(&format!("{}?pass=right", server.socket_url())).expect("a URL");
    let store = RedisStore::connect(settings, RETENTION).await.expect("connect");
    server.kill();
    server.start_again(&["--requirepass", "wrong"]);
    let mut refused = false;
    for _ in 0..100 {
        let error = store.probe().await.expect_err("refused").to_string();
        assert!(!error.contains("right"), "{error}");
        refused |= error.contains("WRONGPASS") || error.to_lowercase().contains("password authentication failed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(refused);
    server.kill();
    server.start_again(&["--requirepass", "right"]);
    until_it_works(async || store.probe().await).await;
    create(&store).await;
}

#[tokio::test]
async fn a_full_redis_refuses_new_jobs_and_records_results() {
    let server = RedisServer::on_socket(&[]);
    let store = store_in(&server).await;
    let (running, doomed, queued) = (create(&store).await, create(&store).await, create(&store).await);
    let attempt = take(&store).await.expect("one").attempt();
    let failed = take(&store).await.expect("one").attempt();
    on(&server, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let error = store.create(new_job("x"), BOUNDS).await.expect_err("full");
    assert_eq!(error.code(), Some("OOM"), "{error}");
    assert!(is_full(&error) && store.probe().await.is_err());
    assert_eq!(store.heartbeat(vec![attempt]).await.expect("heartbeat"), HeartbeatReport::default());
    assert!(store.append(attempt, output("ke")).await.expect("append"));
    assert!(store.finish(attempt, output("pt"), printed("kept")).await.expect("finish"));
    assert_eq!(store.events(running, 0, 10).await.expect("events").len(), 3, "two of output and the result");
    assert_eq!(failed.id, doomed);
    assert!(store.put_back(failed).await.expect("put back"));
    assert_eq!(store.cancel(queued).await.expect("cancel").map(|job| job.status), Some(JobStatus::Cancelled));
    let job = store.get(running).await.expect("get").expect("there");
    assert_eq!(job.result.map(|result| result.stdout), Some("kept".to_owned()));
    on(&server, &["CONFIG", "SET", "maxmemory", "0"]).await;
    create(&store).await;
    store.probe().await.expect("ready");
}

#[tokio::test]
async fn a_probe_of_a_redis_that_hangs_fails_in_time() {
    let server = RedisServer::on_socket(&[]);
    let store = store_in(&server).await;
    let id = create(&store).await;
    let attempt = take(&store).await.expect("one").attempt();
    server.signal("-STOP");
    for _ in 0..3 {
        let began = Instant::now();
        assert!(store.probe().await.is_err());
        assert!(began.elapsed() < Duration::from_secs(10), "it is bounded, whatever the machine does besides");
    }
    server.signal("-CONT");
    until_it_works(async || store.probe().await).await;
    until_it_works(async || store.finish(attempt, vec![], printed("")).await).await;
    assert_eq!(store.get(id).await.expect("get").expect("there").status, JobStatus::Finished);
}

#[tokio::test]
async fn scripts_are_loaded_again_after_a_flush() {
    let server = RedisServer::on_socket(&[]);
    let store = store_in(&server).await;
    create(&store).await;
    on(&server, &["SCRIPT", "FLUSH"]).await;
    create(&store).await;
}

#[tokio::test]
async fn an_outage_longer_than_a_lease_interrupts_no_job() {
    let lease = Duration::from_secs(3);
    let mut server = RedisServer::on_socket(&DURABLE);
    let (store, other) = (store_with_lease(&server, lease).await, store_with_lease(&server, lease).await);
    create(&store).await;
    let attempt = take(&store).await.expect("one").attempt();
    server.kill();
    tokio::time::sleep(lease + Duration::from_millis(200)).await;
    server.start_again(&DURABLE);
    // The other server is the first to notice that Redis is back.
    until_it_works(async || other.sweep().await).await;
    assert_eq!(other.header(attempt.id).await.expect("header").map(|header| header.status), Some(JobStatus::Running));
    let report = until_it_works(async || store.heartbeat(vec![attempt]).await).await;
    assert_eq!(report, HeartbeatReport::default());
    assert!(store.finish(attempt, vec![], printed("once")).await.expect("finish"));
    // A server that stays silent loses its job all the same.
    create(&store).await;
    take(&store).await.expect("one");
    let began = Instant::now();
    while take(&other).await.is_none() {
        assert!(began.elapsed() < LONG);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_redis_that_hangs_longer_than_a_lease_interrupts_no_job() {
    let lease = Duration::from_secs(3);
    let server = RedisServer::on_socket(&[]);
    let (store, other) = (store_with_lease(&server, lease).await, store_with_lease(&server, lease).await);
    create(&store).await;
    let attempt = take(&store).await.expect("one").attempt();
    // Neither server has a command in flight, and both keep their connections.
    server.signal("-STOP");
    tokio::time::sleep(lease + Duration::from_millis(500)).await;
    server.signal("-CONT");
    until_it_works(async || other.sweep().await).await;
    assert_eq!(other.header(attempt.id).await.expect("header").map(|header| header.status), Some(JobStatus::Running));
    assert_eq!(store.heartbeat(vec![attempt]).await.expect("heartbeat"), HeartbeatReport::default());
    assert!(store.finish(attempt, vec![], printed("once")).await.expect("finish"));
}

#[tokio::test]
async fn an_attempt_whose_start_redis_has_lost_is_not_current() {
    let mut server = RedisServer::on_socket(&[]);
    let store = store_in(&server).await;
    let id = create(&store).await;
    // Redis goes back to its state before the job was taken, as after a failover.
    on(&server, &["SAVE"]).await;
    let lost = take(&store).await.expect("one").attempt();
    server.kill();
    server.start_again(&[]);
    let other = store_in(&server).await;
    let current = take(&other).await.expect("the same").attempt();
    assert_eq!((current.id, current.number), (lost.id, lost.number));
    assert!(!until_it_works(async || store.append(lost, output("lost")).await).await);
    let report = other.heartbeat(vec![lost]).await.expect("heartbeat");
    assert_eq!(report, HeartbeatReport { cancelled: vec![], lost: vec![id] });
    assert!(!store.finish(lost, vec![], printed("lost")).await.expect("finish"));
    assert!(!store.put_back(lost).await.expect("put back"));
    assert_eq!(other.heartbeat(vec![current]).await.expect("heartbeat"), HeartbeatReport::default());
    assert!(other.append(current, output("right")).await.expect("append"));
    assert_eq!(other.cancel(id).await.expect("cancel").map(|job| job.status), Some(JobStatus::Running));
    assert!(other.append(current, output("right")).await.expect("append"), "it is the same attempt");
    assert!(other.finish(current, vec![], printed("right")).await.expect("finish"));
    assert_eq!(store.events(id, 0, 10).await.expect("events").len(), 3);
}

#[tokio::test]
async fn a_job_is_taken_although_the_answer_was_lost() {
    let server = RedisServer::on_socket(&[]);
    let store = Arc::new(store_in(&server).await);
    let ids = [create(&store).await, create(&store).await];
    store.next_owners(u64::MAX >> 1, &Labels::default()).await.expect("owners");
    // Redis carries the command out, and its client does not hear of it.
    server.signal("-STOP");
    let taking = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.take(None, &Offer::default()).await }
    });
    tokio::time::sleep(Duration::from_millis(3500)).await;
    server.signal("-CONT");
    let job = taking.await.expect("no panic").expect("take").expect("one");
    assert_eq!((job.id, job.attempts), (ids[0], 1));
    let still = store.header(ids[1]).await.expect("header").expect("there");
    assert_eq!(still.status, JobStatus::Queued, "no job runs without a server");
    assert!(store.finish(job.attempt(), vec![], printed("")).await.expect("finish"));
    assert_eq!(take(&store).await.map(|job| job.id), Some(ids[1]), "the next call takes the next job");
}

#[tokio::test]
async fn a_job_whose_request_cannot_be_read_goes_back_to_the_queue() {
    let server = RedisServer::on_socket(&[]);
    let store = store_in(&server).await;
    let code = "x".repeat(100_000);
    let Created::New(header) = store.create(new_job(&code), BOUNDS).await.expect("create") else { panic!("new") };
    let request = format!("{{sandbox}}:request:{}", header.id);
    on(&server, &["RENAME", &request, "elsewhere"]).await;
    on(&server, &["RPUSH", &request, "not a request"]).await;
    store.next_owners(u64::MAX >> 1, &Labels::default()).await.expect("owners");
    store.take(None, &Offer::default()).await.expect_err("unreadable");
    on(&server, &["RENAME", "elsewhere", &request]).await;
    let job = take(&store).await.expect("it is queued");
    assert_eq!((job.id, job.attempts, job.request.code), (header.id, 2, Some(code.into())));
}

#[tokio::test]
async fn a_job_that_cannot_be_read_neither_seems_to_run_nor_blocks_others() {
    let server = RedisServer::on_socket(&[]);
    let store = store_in(&server).await;
    let (no_header, no_request, good) = (create(&store).await, create(&store).await, create(&store).await);
    on(&server, &["HDEL", "{sandbox}:jobs", &no_header.to_string()]).await;
    on(&server, &["DEL", &format!("{{sandbox}}:request:{no_request}")]).await;
    assert!(take(&store).await.is_none(), "the entry without a header goes");
    assert!(take(&store).await.is_none(), "the job without a request fails");
    let failed = store.header(no_request).await.expect("header").expect("there");
    assert_eq!((failed.status, failed.failures, failed.delayed), (JobStatus::Queued, 1, true));
    assert_eq!(take(&store).await.map(|job| job.id), Some(good));
    assert_eq!(store.backlog().await.expect("backlog").waiting, 1);
}
