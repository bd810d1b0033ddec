//! Figures: commands of idle servers, and, on demand, throughput and memory.
//!
//! `cargo test --release -p sandbox-jobs redis::tests::measured -- --ignored --nocapture`

#![expect(clippy::print_stdout, clippy::cast_precision_loss, reason = "figures for people")]

use super::*;

/// The work of an idle server: it sweeps, looks for jobs and webhooks, and waits.
async fn idle(store: Arc<RedisStore>) {
    let second = Duration::from_secs(1);
    let works = async {
        loop {
            store.next_owners(1 << 40, &Labels::default()).await.expect("owners");
            store.something_queued(second).await;
        }
    };
    let sweeps = async {
        loop {
            store.sweep().await.expect("sweep");
            tokio::time::sleep(second / 10).await;
        }
    };
    let delivers = async {
        loop {
            store.take_delivery(second, vec![]).await.expect("take");
            store.delivery_due(second / 4).await;
        }
    };
    tokio::join!(works, sweeps, delivers);
}

#[tokio::test]
async fn idle_servers_and_followers_send_few_commands() {
    const SECONDS: u64 = 13;
    let server = RedisServer::on_socket(&[]);
    let store = Arc::new(store_in(&server).await);
    let mut ids = vec![];
    for _ in 0..100 {
        let delayed = NewJob { delay: Some(Duration::from_secs(3600)), ..new_job("x") };
        let Created::New(header) = store.create(delayed, BOUNDS).await.expect("create") else { panic!("new") };
        ids.push(header.id);
    }
    let follow = |id| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let mut watch = store.follow(id);
            loop {
                store.progress(id).await.expect("progress");
                watch.changed().await;
            }
        })
    };
    let mut tasks: Vec<_> = ids.into_iter().map(follow).collect();
    tasks.push(tokio::spawn(idle(Arc::clone(&store))));
    // All have subscribed, and have had the time to look once more.
    while list_on(&server, &["PUBSUB", "CHANNELS"]).await.len() < 101 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let count = async || info(&server, "stats", "total_commands_processed").await;
    let before = count().await;
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    // The test itself connects and asks.
    let sent = count().await - before;
    assert!(sent <= SECONDS + 6, "{sent} commands in {SECONDS} seconds");
    println!("{sent} commands in {SECONDS} seconds, those in scripts included");
    for task in tasks {
        task.abort();
    }
}

/// The CPU time that this process has used, in seconds.
fn own_cpu_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("read");
    let after_name = stat.rsplit_once(')').expect("a name").1;
    // The fields utime and stime, in ticks of which there are 100 a second.
    let ticks = after_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().expect("a number"));
    ticks.sum::<f64>() / 100.0
}

/// The CPU time that a Redis has used, in seconds.
async fn redis_cpu_time(server: &RedisServer) -> f64 {
    let cpu = on(server, &["INFO", "cpu"]).await;
    let seconds = |name: &str| cpu.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    seconds("used_cpu_sys:").unwrap_or_default() + seconds("used_cpu_user:").unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn throughput_of_two_servers() {
    const JOBS: usize = 20_000;
    const CLIENTS: usize = 32;
    let server = RedisServer::on_socket(&[]);
    let stores = [Arc::new(store_in(&server).await), Arc::new(store_in(&server).await)];
    let began = Instant::now();
    let clients = (0..CLIENTS).map(|client| {
        let store = Arc::clone(&stores[client % 2]);
        tokio::spawn(async move {
            for _ in 0..JOBS / CLIENTS {
                create(&store).await;
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("created");
    }
    let (created, own_cpu, cpu) = (began.elapsed(), own_cpu_time(), redis_cpu_time(&server).await);
    let began = Instant::now();
    let workers = (0..CLIENTS).map(|worker| {
        let store = Arc::clone(&stores[worker % 2]);
        tokio::spawn(async move {
            while let Some(job) = take(&store).await {
                assert!(store.finish(job.attempt(), vec![], printed("x")).await.expect("finish"));
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.expect("worked");
    }
    let done = began.elapsed();
    let rate = |took: Duration| JOBS as f64 / took.as_secs_f64();
    println!("{:.0} jobs created a second, {:.0} taken and finished", rate(created), rate(done));
    let each = |seconds: f64| seconds * 1e6 / JOBS as f64;
    let in_all = redis_cpu_time(&server).await;
    // bench/scaling.py reads this line.
    println!("through one Redis: {:.0} jobs a second, {:.0} µs of Redis each", rate(created + done), each(in_all));
    println!("CPU time for each created job: {:.0} µs in Redis, {:.0} µs in the servers", each(cpu), each(own_cpu));
    assert_eq!(stores[0].backlog().await.expect("count").waiting, 0);
}

#[tokio::test]
#[ignore = "a measurement"]
async fn memory_of_finished_jobs() {
    const JOBS: u64 = 10_000;
    for (request, printed_bytes) in [(1024, 8), (1024, 1024)] {
        let server = RedisServer::on_socket(&[]);
        let store = store_in(&server).await;
        let before = info(&server, "memory", "used_memory").await;
        for _ in 0..JOBS {
            let new = NewJob { owner: Some("a-key".to_owned()), ..new_job(&"x".repeat(request)) };
            store.create(new, BOUNDS).await.expect("create");
            let attempt = take(&store).await.expect("one").attempt();
            store.append(attempt, output(&"y".repeat(printed_bytes))).await.expect("append");
            store.finish(attempt, vec![], printed(&"y".repeat(printed_bytes))).await.expect("finish");
        }
        let used = info(&server, "memory", "used_memory").await - before;
        let megabytes = used as f64 / 1e6;
        println!("{megabytes:.1} MB for {JOBS} jobs with {request} bytes of code and {printed_bytes} of output");
        assert!(used < 40_000_000 || printed_bytes > 8);
    }
}

#[tokio::test]
#[ignore = "a measurement"]
async fn many_cancelled_jobs_are_cancelled_and_forgotten_quickly() {
    const JOBS: usize = 10_000;
    let server = RedisServer::on_socket(&[]);
    let settings = RedisSettings::from_url(&server.socket_url()).expect("a URL");
    let store = RedisStore::connect_as(settings, Duration::ZERO, "sandbox", LEASE).await.expect("connect");
    let mut ids = vec![];
    for _ in 0..JOBS {
        ids.push(create(&store).await);
    }
    let began = Instant::now();
    for id in ids {
        store.cancel(id).await.expect("cancel");
    }
    let cancelled = began.elapsed();
    let began = Instant::now();
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(store.expire().await.expect("expire"), JOBS);
    println!("{JOBS} jobs cancelled in {cancelled:?}, forgotten in {:?}", began.elapsed());
    assert_eq!(store.list(Filter::default(), 10, None).await.expect("list").jobs, []);
}
