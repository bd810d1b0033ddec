//! What every store must do for owners: their turns, limits, quotas and usage.

use super::*;

#[tokio::test]
async fn owners_are_served_in_turn() {
    for place in Place::both().await {
        let store = &place.store;
        for owner in ["a", "a", "a", "b", "c", "c"] {
            create_for(store, owner).await;
        }
        create(store, "without an owner").await;
        let mut order = vec![];
        while let Some(job) = take(store).await {
            order.push(job.owner.unwrap_or_default());
        }
        assert_eq!(order, ["", "a", "b", "c", "a", "c", "a"], "{}", store.name());
    }
}

#[tokio::test]
async fn the_owner_with_the_fewest_running_jobs_is_served_next() {
    for place in Place::both().await {
        let store = &place.store;
        for owner in ["slow", "slow", "slow", "quick", "quick", "quick"] {
            create_for(store, owner).await;
        }
        let mut order = vec![];
        while let Some(job) = take(store).await {
            order.push(job.owner.clone().unwrap_or_default());
            if job.owner.as_deref() == Some("quick") {
                store.finish(job.attempt(), vec![], Arc::new(succeeded(""))).await.expect("finish");
            }
        }
        assert_eq!(order, ["quick", "slow", "quick", "quick", "slow", "slow"], "{}", store.name());
        assert!(store.take(Some("quick"), &Offer::default()).await.expect("take").is_none(), "it has no more");
    }
}

#[tokio::test]
async fn a_job_beyond_a_bound_is_refused() {
    let refused = |exceeded| Created::Refused(exceeded);
    for place in Place::both().await {
        let store = &place.store;
        let try_for =
            async |owner: &str, code: &str, bounds| store.create(job_of(owner, code), bounds).await.expect("create");
        for _ in 0..2 {
            create_for(store, "a").await;
        }
        let few = StoreLimits { waiting: 3, waiting_per_owner: 2, ..BOUNDS };
        assert_eq!(try_for("a", "x", few).await, refused(Exceeded::WaitingPerOwner), "{}", store.name());
        assert!(matches!(try_for("b", "x", few).await, Created::New(_)));
        assert_eq!(try_for("b", "x", few).await, refused(Exceeded::Waiting));
        let small = StoreLimits { bytes_per_owner: 2000, ..BOUNDS };
        assert_eq!(try_for("a", &"x".repeat(2000), small).await, refused(Exceeded::BytesPerOwner));
        assert!(matches!(try_for("c", &"x".repeat(500), small).await, Created::New(_)));
        assert_eq!(store.backlog().await.expect("count").waiting, 4, "what is refused is not stored");
        let once = NewJob { per_day: Some(1), ..job_of("d", "x") };
        assert!(matches!(store.create(once.clone(), BOUNDS).await.expect("create"), Created::New(_)));
        assert_eq!(store.create(once, BOUNDS).await.expect("create"), refused(Exceeded::PerDay));
    }
}

#[tokio::test]
async fn a_retry_is_neither_refused_nor_charged() {
    for place in Place::both().await {
        let store = &place.store;
        let new = NewJob { idempotency_key: Some("a/k".to_owned()), per_day: Some(2), ..job_of("a", "x") };
        let Created::New(first) = store.create(new.clone(), BOUNDS).await.expect("create") else { panic!("new") };
        let full = StoreLimits { waiting: 0, waiting_per_owner: 0, bytes_per_owner: 0 };
        for _ in 0..3 {
            let again = store.create(new.clone(), full).await.expect("create");
            assert_eq!(again, Created::Existing(first.clone()), "{}", store.name());
        }
        assert!(store.spend("a", 1, 2).await.expect("spend"), "one of two is left");
        assert!(!store.spend("a", 1, 2).await.expect("spend"));
    }
}

#[tokio::test]
async fn an_owner_whose_results_exceed_its_bytes_starts_no_more_jobs() {
    for place in Place::both().await {
        let store = &place.store;
        for owner in ["a", "a", "b"] {
            create_for(store, owner).await;
        }
        let attempt = take(store).await.expect("one").attempt();
        store.finish(attempt, vec![], Arc::new(succeeded(&"x".repeat(10_000)))).await.expect("finish");
        let owners = async |most| store.next_owners(most, &Labels::default()).await.expect("owners").owners;
        let both = owners(100_000).await;
        assert_eq!(both, [Some("b".to_owned()), Some("a".to_owned())], "{}", store.name());
        assert_eq!(owners(10_000).await, [Some("b".to_owned())]);
    }
}

#[tokio::test]
async fn usage_is_exact_after_every_change() {
    for place in Place::both().await {
        let store = &place.store;
        let webhook = Webhook::new("http://example.com/".to_owned(), "s".repeat(20));
        let with_webhook = NewJob { webhook: Some(webhook.clone()), ..job_of("a", "told") };
        let Created::New(told) = store.create(with_webhook, BOUNDS).await.expect("create") else { panic!("new") };
        for _ in 0..5 {
            create_for(store, "a").await;
        }
        create_for(store, "b").await;
        let usage = assert_exact(store, "a", "created").await;
        assert_eq!((usage.waiting, usage.running), (6, 0));
        let takes = async || store.take(Some("a"), &Offer::default()).await.expect("take").expect("one").attempt();
        let (first, second, third) = (takes().await, takes().await, takes().await);
        for attempt in [first, second, third] {
            store.append(attempt, vec![stdout(&"é".repeat(100))]).await.expect("append");
        }
        let usage = assert_exact(store, "a", "running").await;
        assert_eq!((usage.waiting, usage.running), (3, 3));
        store.finish(first, vec![], Arc::new(succeeded(&"é".repeat(100)))).await.expect("finish");
        store.finish(first, vec![], Arc::new(succeeded("twice"))).await.expect("finish");
        assert_exact(store, "a", "finished").await;
        let failed = Webhook { attempts: 1, error: Some("why".to_owned()), ..webhook };
        store.note_delivery(told.id, failed, Some(Duration::from_secs(60))).await.expect("note");
        assert_exact(store, "a", "told").await;
        store.put_back(second).await.expect("put back");
        assert_exact(store, "a", "put back").await;
        let waiting = create_for(store, "a").await;
        store.cancel(waiting).await.expect("cancel");
        store.cancel(waiting).await.expect("cancel");
        let usage = assert_exact(store, "a", "cancelled").await;
        assert_eq!((usage.waiting, usage.running), (4, 1));
        let place = place.after_a_kill().await;
        let store = &place.store;
        store.sweep().await.expect("sweep");
        let usage = assert_exact(store, "a", "killed").await;
        assert_eq!((usage.waiting, usage.running), (5, 0), "{}", store.name());
        assert_eq!(assert_exact(store, "b", "killed").await.waiting, 1);
    }
}

#[tokio::test]
async fn nothing_is_left_of_an_owner_whose_jobs_are_forgotten() {
    let dir = tempfile::tempdir().expect("tempdir");
    let file = JobStore::embedded(&dir.path().join("jobs.redb"), Duration::ZERO).expect("open");
    let other = redis_store(&format!("test-{}", JobId::new()), Duration::ZERO).await;
    for store in [file, JobStore::Redis(other.into())] {
        let webhook = Some(Webhook::new("http://example.com/".to_owned(), "s".repeat(20)));
        let new = NewJob { webhook, idempotency_key: Some("k".to_owned()), ..job_of("a", "x") };
        let Created::New(first) = store.create(new.clone(), BOUNDS).await.expect("create") else { panic!("new") };
        let attempt = take(&store).await.expect("one").attempt();
        store.append(attempt, vec![stdout("")]).await.expect("append");
        store.finish(attempt, vec![], Arc::new(succeeded(&"x".repeat(1000)))).await.expect("finish");
        let second = create_for(&store, "a").await;
        store.cancel(second).await.expect("cancel");
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(store.expire().await.expect("expire"), 2, "{}", store.name());
        assert_eq!(store.usage("a").await, Usage::default(), "{}", store.name());
        assert!(store.take_delivery(Duration::ZERO, vec![]).await.expect("take").is_none());
        let Created::New(again) = store.create(new, BOUNDS).await.expect("create") else { panic!("its key is free") };
        assert_ne!(again.id, first.id);
        // A full store makes room by itself if there is something to forget.
        let attempt = take(&store).await.expect("one").attempt();
        store.finish(attempt, vec![], Arc::new(succeeded(&"x".repeat(2000)))).await.expect("finish");
        tokio::time::sleep(Duration::from_millis(20)).await;
        let small = StoreLimits { bytes_per_owner: 2000, ..BOUNDS };
        assert!(matches!(store.create(job_of("a", "x"), small).await.expect("create"), Created::New(_)));
    }
}

#[tokio::test]
async fn webhooks_of_some_owners_can_be_left_out() {
    for place in Place::both().await {
        let store = &place.store;
        for owner in ["a", "a", "b"] {
            let webhook = Some(Webhook::new("http://example.com/".to_owned(), "s".repeat(20)));
            store.create(NewJob { webhook, ..job_of(owner, "x") }, BOUNDS).await.expect("create");
        }
        while let Some(job) = take(store).await {
            store.finish(job.attempt(), vec![], Arc::new(succeeded(""))).await.expect("finish");
        }
        let due = async |without: &[&str]| {
            let without = without.iter().map(|owner| Some((*owner).to_owned())).collect();
            let job = store.take_delivery(Duration::from_secs(60), without).await.expect("take");
            job.and_then(|job| job.owner).unwrap_or_default()
        };
        assert_eq!(due(&["a"]).await, "b", "{}", store.name());
        assert_eq!((due(&["a"]).await, due(&[]).await, due(&["b"]).await), (String::new(), "a".into(), "a".into()));
        assert_eq!(due(&[]).await, "");
    }
}
