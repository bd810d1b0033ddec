//! What every store must do when attempts are interrupted: by a death, a shutdown, a failure of the host, or a client.

use super::*;

/// The events of a job, with their numbers.
async fn events(store: &JobStore, id: JobId, after: u64) -> Vec<(u64, RunEvent)> {
    let events = store.events(id, after, 100).await.expect("events");
    events.into_iter().map(|event| (event.number, event.what)).collect()
}

#[tokio::test]
async fn a_kill_loses_no_job() {
    for place in Place::both().await {
        let running = create(&place.store, "running").await.id;
        let queued = create(&place.store, "queued").await.id;
        let first = take(&place.store).await.expect("one").attempt();
        place.store.append(first, vec![stdout("")]).await.expect("append");
        let place = place.after_a_kill().await;
        let store = &place.store;
        let again = take(store).await.expect("one");
        assert_eq!((again.id, again.attempts), (running, 2), "{}", store.name());
        assert_eq!(take(store).await.expect("one").id, queued);
        // Reports of a server that was considered dead are ignored.
        assert!(!store.append(first, vec![stdout("late")]).await.expect("append"));
        assert!(!store.finish(first, vec![], Arc::new(succeeded("late"))).await.expect("finish"));
        assert!(!store.fail(first, Arc::new(succeeded("late"))).await.expect("fail"));
        assert!(!store.put_back(first).await.expect("put back"));
        let report = store.heartbeat(vec![first, again.attempt()]).await.expect("heartbeat");
        assert_eq!(report, HeartbeatReport { cancelled: vec![], lost: vec![running] });
        assert_eq!(get(store, running).await.status, JobStatus::Running);
        assert!(store.finish(again.attempt(), vec![], Arc::new(succeeded("right"))).await.expect("finish"));
        assert_eq!(get(store, running).await.result, Some(succeeded("right")));
    }
}

#[tokio::test]
async fn a_job_that_kills_its_servers_is_given_up_and_its_neighbours_are_not() {
    for mut place in Place::both().await {
        let bomb = create(&place.store, "bomb").await.id;
        let mut neighbours = vec![];
        for _ in 0..2 {
            neighbours.push(create(&place.store, "innocent").await.id);
        }
        for _ in 0..3 {
            take(&place.store).await.expect("one");
        }
        place = place.after_a_kill().await;
        // All three are suspects now. Each runs alone; the bomb kills its server every time.
        let mut ran = vec![];
        while let Some(job) = take(&place.store).await {
            assert!(place.store.header(job.id).await.expect("header").expect("there").alone, "{}", place.store.name());
            ran.push(job.id);
            if job.id == bomb {
                place = place.after_a_kill().await;
            } else {
                place.store.finish(job.attempt(), vec![], Arc::new(succeeded("fine"))).await.expect("finish");
            }
        }
        assert_eq!(ran, [bomb, bomb, bomb, neighbours[0], neighbours[1]], "{}", place.store.name());
        for id in neighbours {
            assert_eq!(get(&place.store, id).await.result, Some(succeeded("fine")));
        }
        let job = get(&place.store, bomb).await;
        assert_eq!((job.status, job.attempts, job.failures), (JobStatus::Finished, 4, MOST_FAILURES));
        let result = job.result.expect("a result");
        assert_eq!(result.verdict, Verdict::InternalError);
        assert!(result.error.expect("a reason").contains("the server died"));
    }
}

#[tokio::test]
async fn suspects_are_kept_apart_from_other_jobs() {
    for place in Place::both().await {
        let suspect = create_for(&place.store, "a").await;
        take(&place.store).await.expect("one");
        let place = place.after_a_kill().await;
        let store = &place.store;
        store.sweep().await.expect("sweep");
        let other = create_for(store, "b").await;
        let turns = store.next_owners(BOUNDS.bytes_per_owner, &Labels::default()).await.expect("owners");
        let named = |owner: &str| vec![Some(owner.to_owned())];
        assert_eq!(turns, Turns { owners: named("b"), suspects: named("a") }, "{}", store.name());
        let takes = async |owner, alone| {
            let offer = Offer { alone, ..Offer::default() };
            store.take(Some(owner), &offer).await.expect("take").map(|job| job.id)
        };
        assert_eq!((takes("a", false).await, takes("b", true).await), (None, None));
        assert_eq!((takes("a", true).await, takes("b", false).await), (Some(suspect), Some(other)));
    }
}

#[tokio::test]
async fn failures_of_the_host_are_retried_until_the_job_is_given_up() {
    for place in Place::both().await {
        let store = &place.store;
        let id = create(store, "x").await.id;
        for attempt in 1..=MOST_FAILURES {
            let job = loop {
                match take(store).await {
                    Some(job) => break job,
                    None => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            };
            assert_eq!((job.id, job.attempts), (id, attempt), "{}", store.name());
            let failed = RunResult::internal_error(format!("no keeper, attempt {attempt}"));
            assert!(store.fail(job.attempt(), Arc::new(failed)).await.expect("fail"));
            assert!(take(store).await.is_none(), "not at once");
        }
        let job = get(store, id).await;
        assert_eq!((job.status, job.failures), (JobStatus::Finished, MOST_FAILURES));
        assert_eq!(job.result.expect("a result").error.as_deref(), Some("no keeper, attempt 3"));
        assert_exact(store, "", "given up").await;
    }
}

#[tokio::test]
async fn a_job_whose_keeper_ended_runs_again_alone() {
    for place in Place::both().await {
        let store = &place.store;
        let id = create(store, "x").await.id;
        for attempt in 1..=MOST_FAILURES + 1 {
            let job = take(store).await.expect("one");
            assert_eq!(
                (job.id, job.attempts, job.failures),
                (id, attempt, attempt.saturating_sub(2)),
                "{}",
                store.name()
            );
            let alone = store.header(id).await.expect("header").expect("there").alone;
            assert_eq!(alone, attempt > 1, "{}", store.name());
            let ended = RunResult::internal_error("the keeper ended".to_owned());
            assert!(store.suspect(job.attempt(), Arc::new(ended)).await.expect("suspect"));
        }
        assert!(take(store).await.is_none());
        let job = get(store, id).await;
        assert_eq!((job.status, job.failures), (JobStatus::Finished, MOST_FAILURES));
        assert_eq!(job.result.expect("a result").error.as_deref(), Some("the keeper ended"));
        assert_exact(store, "", "given up").await;
    }
}

#[tokio::test]
async fn a_shutdown_does_not_count_as_a_failure() {
    for place in Place::both().await {
        let store = &place.store;
        let id = create(store, "x").await.id;
        for attempt in 1..=2 * MOST_FAILURES {
            let job = take(store).await.expect("one");
            assert_eq!((job.id, job.attempts, job.failures), (id, attempt, 0), "{}", store.name());
            assert!(!store.header(id).await.expect("header").expect("there").alone);
            assert!(store.put_back(job.attempt()).await.expect("put back"));
        }
    }
}

#[tokio::test]
async fn a_cancelled_job_never_starts() {
    for place in Place::both().await {
        let store = &place.store;
        let id = create(store, "x").await.id;
        assert_eq!(store.cancel(id).await.expect("cancel").map(|job| job.status), Some(JobStatus::Cancelled));
        assert!(take(store).await.is_none());
        assert_eq!(events(store, id, 0).await, [(1, RunEvent::Cancelled)]);
        assert!(store.cancel(JobId::new()).await.expect("cancel").is_none());
    }
}

/// The possible ends of a job that was cancelled while it was running.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Finishes,
    IsPutBack,
    Fails,
    LosesItsServer,
}

#[tokio::test]
async fn a_cancellation_holds_whatever_happens_next() {
    for fate in [Fate::Finishes, Fate::IsPutBack, Fate::Fails, Fate::LosesItsServer] {
        for mut place in Place::both().await {
            let id = create(&place.store, "x").await.id;
            let attempt = take(&place.store).await.expect("one").attempt();
            let cancelled = place.store.cancel(id).await.expect("cancel").expect("there");
            assert_eq!((cancelled.status, cancelled.cancel_requested), (JobStatus::Running, true));
            let report = place.store.heartbeat(vec![attempt]).await.expect("heartbeat");
            assert_eq!(report, HeartbeatReport { cancelled: vec![id], lost: vec![] }, "{}", place.store.name());
            match fate {
                Fate::Finishes => {
                    place.store.finish(attempt, vec![], Arc::new(succeeded("fast"))).await.expect("finish");
                }
                Fate::IsPutBack => drop(place.store.put_back(attempt).await.expect("put back")),
                Fate::Fails => drop(place.store.fail(attempt, Arc::new(succeeded(""))).await.expect("fail")),
                Fate::LosesItsServer => place = place.after_a_kill().await,
            }
            assert!(take(&place.store).await.is_none(), "{fate:?} {}", place.store.name());
            assert_eq!(get(&place.store, id).await.status, JobStatus::Cancelled, "{fate:?} {}", place.store.name());
            assert_exact(&place.store, "", "cancelled").await;
        }
    }
}

#[tokio::test]
async fn a_resumed_stream_never_mixes_two_attempts() {
    for place in Place::both().await {
        let id = create(&place.store, "x").await.id;
        let first = take(&place.store).await.expect("one").attempt();
        place.store.append(first, vec![stdout("1"), stdout("2"), stdout("3")]).await.expect("append");
        let seen = events(&place.store, id, 0).await;
        assert_eq!(seen.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2, 3], "{}", place.store.name());
        let place = place.after_a_kill().await;
        let store = &place.store;
        let second = take(store).await.expect("one").attempt();
        store.append(second, vec![stdout("a"), stdout("b")]).await.expect("append");
        store.put_back(second).await.expect("put back");
        let third = take(store).await.expect("one").attempt();
        store.append(third, vec![stdout("x")]).await.expect("append");
        store.finish(third, vec![], Arc::new(succeeded("x"))).await.expect("finish");
        // Wherever a client resumes, it hears that the job began anew before it hears of the last attempt.
        for after in 0..=3 {
            let resumed = events(store, id, after).await;
            let what: Vec<&str> = resumed.iter().map(|(_, what)| what.name()).collect();
            assert_eq!(what, ["restarted", "stdout", "result"], "{} after {after}", store.name());
            assert_eq!(resumed[0].1, RunEvent::Restarted { attempt: 3 });
            assert!(resumed[0].0 > 3 && resumed.is_sorted_by(|one, next| one.0 < next.0), "{}", store.name());
        }
        assert_exact(store, "", "finished").await;
    }
}
