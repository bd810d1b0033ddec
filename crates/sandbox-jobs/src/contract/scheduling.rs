//! What every store must do about when and where a job starts: priorities, labels, delays and expiry.

use super::*;

fn labels(names: &[&str]) -> Labels {
    Labels::new(names.iter().map(|name| (*name).to_owned())).expect("labels")
}

async fn create_new(store: &JobStore, new: NewJob) -> JobId {
    match store.create(new, BOUNDS).await.expect("create") {
        Created::New(job) => job.id,
        other => panic!("{other:?}"),
    }
}

/// Takes jobs as long as there are some.
async fn take_all(store: &JobStore, offered: &Labels) -> Vec<JobId> {
    let mut taken = vec![];
    while let Some(job) = take_with(store, offered).await {
        taken.push(job.id);
    }
    taken
}

#[tokio::test]
async fn higher_priorities_start_first() {
    for place in Place::both().await {
        let store = &place.store;
        let mut ids = vec![];
        for priority in [0, -100, 100, 5, 100, 0] {
            ids.push(create_new(store, NewJob { priority, ..new_job("x", None) }).await);
        }
        let expected = [2, 4, 3, 0, 5, 1].map(|index: usize| ids[index]);
        assert_eq!(take_all(store, &Labels::default()).await, expected, "{}", store.name());
        assert_eq!(get(store, ids[2]).await.priority, 100);
    }
}

#[tokio::test]
async fn priorities_do_not_starve_other_owners() {
    for place in Place::both().await {
        let store = &place.store;
        for _ in 0..4 {
            create_new(store, NewJob { priority: 100, ..job_of("greedy", "x") }).await;
        }
        create_new(store, NewJob { priority: -100, ..job_of("modest", "x") }).await;
        let mut order = vec![];
        while let Some(job) = take(store).await {
            order.push(job.owner.unwrap_or_default());
        }
        assert_eq!(order, ["greedy", "modest", "greedy", "greedy", "greedy"], "{}", store.name());
    }
}

#[tokio::test]
async fn a_job_is_taken_only_by_a_worker_with_its_labels() {
    for place in Place::both().await {
        let store = &place.store;
        let mut ids = vec![];
        for wanted in [&["gpu", "java"][..], &["gpu"], &["java"], &[]] {
            ids.push(create_new(store, NewJob { labels: labels(wanted), ..new_job("x", None) }).await);
        }
        assert_eq!(take_all(store, &labels(&[])).await, [ids[3]], "{}", store.name());
        assert_eq!(take_all(store, &labels(&["arm", "java"])).await, [ids[2]]);
        assert_eq!(store.backlog().await.expect("count").waiting, 2);
        assert_eq!(take_all(store, &labels(&["java", "gpu", "arm"])).await, [ids[0], ids[1]]);
        assert_eq!(get(store, ids[0]).await.labels, labels(&["java", "gpu"]));
        assert_exact(store, "", "taken").await;
    }
}

#[tokio::test]
async fn a_suspect_keeps_its_labels() {
    for place in Place::both().await {
        let id = create_new(&place.store, NewJob { labels: labels(&["gpu"]), ..new_job("x", None) }).await;
        take_with(&place.store, &labels(&["gpu"])).await.expect("one");
        let place = place.after_a_kill().await;
        assert_eq!(take_all(&place.store, &labels(&["java"])).await, []);
        assert_eq!(take_all(&place.store, &labels(&["gpu"])).await, [id], "{}", place.store.name());
    }
}

#[tokio::test]
async fn a_delayed_job_starts_later() {
    for place in Place::both().await {
        let store = &place.store;
        let delay = Some(Duration::from_millis(300));
        let id = create_new(store, NewJob { delay, ..new_job("x", None) }).await;
        let other = create(store, "y").await.id;
        assert_eq!(take_all(store, &Labels::default()).await, [other], "{}", store.name());
        assert_eq!(store.backlog().await.expect("count").waiting, 1);
        assert_exact(store, "", "delayed").await;
        let due = store.sweep().await.expect("sweep").expect("it knows when");
        assert!(due <= Duration::from_millis(300));
        while take(store).await.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let job = get(store, id).await;
        assert_eq!(job.status, JobStatus::Running);
        assert!(job.not_before.is_some_and(|time| time > job.created_at));
        assert_exact(store, "", "started").await;
    }
}

#[tokio::test]
async fn a_delay_that_is_over_leaves_later_ones_alone() {
    for place in Place::both().await {
        let store = &place.store;
        let (short, long) = (Some(Duration::from_millis(50)), Some(Duration::from_secs(3600)));
        let due = create_new(store, NewJob { delay: short, ..new_job("due", None) }).await;
        let later = create_new(store, NewJob { delay: long, ..new_job("later", None) }).await;
        let expiring = NewJob { delay: long, expires_in: long, ..new_job("expires later", None) };
        let expiring = create_new(store, expiring).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(take_all(store, &Labels::default()).await, [due], "{}", store.name());
        for id in [later, expiring] {
            assert_eq!(get(store, id).await.status, JobStatus::Queued, "{}", store.name());
        }
    }
}

#[tokio::test]
async fn the_backlog_is_as_old_as_the_first_job_that_can_start() {
    const STEP: Duration = Duration::from_millis(300);
    const ROUNDING: Duration = Duration::from_millis(5);
    for place in Place::both().await {
        let (store, name) = (&place.store, place.store.name());
        let age = async || store.backlog().await.expect("count").age;
        let job = async |priority, delay| create_new(store, NewJob { priority, delay, ..new_job("x", None) }).await;
        assert_eq!(age().await, Duration::ZERO, "{name}: no job waits");
        // Delayed jobs count from the moment they can start.
        let delayed = job(0, Some(Duration::from_secs(3600))).await;
        tokio::time::sleep(STEP).await;
        assert_eq!(age().await, Duration::ZERO, "{name}: no job can start");
        let soon = Instant::now();
        let short = job(0, Some(STEP)).await;
        while store.sweep().await.expect("sweep").is_some_and(|left| left < Duration::from_secs(5)) {
            if !age().await.is_zero() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let since_ready = age().await;
        assert!(since_ready + STEP <= soon.elapsed() + ROUNDING, "{name}: {since_ready:?}");
        // The oldest counts, whatever starts first.
        let urgent = job(100, None).await;
        tokio::time::sleep(STEP).await;
        assert!(age().await + ROUNDING >= STEP, "{name}");
        assert_eq!(take(store).await.map(|job| job.id), Some(urgent), "{name}");
        assert!(age().await + ROUNDING >= STEP, "{name}: the older one still waits");
        let attempt = take(store).await.expect("one").attempt();
        assert_eq!((attempt.id, age().await), (short, Duration::ZERO), "{name}");
        // An interrupted job counts from the interruption.
        let interrupted = Instant::now();
        store.put_back(attempt).await.expect("put back");
        let since_interrupted = age().await;
        assert!(since_interrupted <= interrupted.elapsed() + ROUNDING, "{name}: {since_interrupted:?}");
        tokio::time::sleep(STEP).await;
        assert!(age().await + ROUNDING >= STEP, "{name}");
        store.cancel(short).await.expect("cancel");
        assert_eq!(age().await, Duration::ZERO, "{name}: it has ended");
        store.cancel(delayed).await.expect("cancel");
        assert_eq!(store.backlog().await.expect("count"), Backlog::default(), "{name}");
    }
}

#[tokio::test]
async fn the_backlog_keeps_its_age_when_a_server_dies() {
    for place in Place::both().await {
        create(&place.store, "x").await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let place = place.after_a_kill().await;
        let age = place.store.backlog().await.expect("count").age;
        assert!(age >= Duration::from_millis(290), "{}: {age:?}", place.store.name());
        take(&place.store).await.expect("one");
        let killed = Instant::now();
        let place = place.after_a_kill().await;
        place.store.sweep().await.expect("sweep");
        let Backlog { waiting, age } = place.store.backlog().await.expect("count");
        assert_eq!(waiting, 1, "{}", place.store.name());
        assert!(age <= killed.elapsed() + Duration::from_millis(10), "{}: {age:?}", place.store.name());
    }
}

#[tokio::test]
async fn a_job_that_was_not_started_in_time_expires_with_an_event_and_a_webhook() {
    for place in Place::both().await {
        let store = &place.store;
        let webhook = Some(Webhook::new("http://example.com/".to_owned(), "s".repeat(20)));
        let expires_in = Some(Duration::from_millis(100));
        let new = NewJob { webhook, expires_in, ..new_job("late", None) };
        let late = create_new(store, new).await;
        let delay = Some(Duration::from_secs(60));
        let delayed = create_new(store, NewJob { delay, expires_in, ..new_job("delayed", None) }).await;
        let started = NewJob { expires_in, priority: 1, ..new_job("started", None) };
        let started = create_new(store, started).await;
        let attempt = take(store).await.expect("one").attempt();
        assert_eq!(attempt.id, started);
        tokio::time::sleep(Duration::from_millis(200)).await;
        let first = store.take(None, &Offer::default()).await.expect("take");
        assert!(first.is_none(), "{}: it has expired, whether that was noticed or not", store.name());
        store.sweep().await.expect("sweep");
        assert!(take(store).await.is_none(), "{}", store.name());
        for id in [late, delayed] {
            let job = get(store, id).await;
            assert_eq!((job.status, job.result.is_none()), (JobStatus::Expired, true), "{}", store.name());
            assert!(job.finished_at.is_some());
            assert_eq!(store.events(id, 0, 10).await.expect("events")[0].what, RunEvent::Expired);
        }
        let due = store.take_delivery(Duration::from_secs(60), vec![]).await.expect("take");
        assert_eq!(due.map(|job| (job.id, job.status)), Some((late, JobStatus::Expired)));
        // A job that has started does not expire, not even after an interruption.
        store.put_back(attempt).await.expect("put back");
        assert_eq!(take(store).await.map(|job| job.id), Some(started));
        assert_exact(store, "", "expired").await;
    }
}

#[test]
fn labels_are_few_and_plain() {
    assert!(Labels::new(["gpu".to_owned(), "x86-64.v3_a".to_owned()]).is_ok());
    for wrong in ["", "GPU", "a b", "a,b", "!", "é", &"x".repeat(33)] {
        assert!(Labels::new([wrong.to_owned()]).is_err(), "{wrong:?}");
    }
    assert!(Labels::new((0..9).map(|number| format!("l{number}"))).is_err());
    assert!(Labels::new((0..9).map(|_| "same".to_owned())).is_ok());
}
