//! Every way to connect: users, TLS, replicas, Sentinel, clusters.

use super::*;

/// Runs a command on a server on a port.
async fn ask(server: &RedisServer, words: &[&str]) -> String {
    command(&format!("redis://{}", server.address()), words).await.expect("a command")
}

/// Waits until the answer to a command contains a text.
async fn wait_for(server: &RedisServer, words: &[&str], text: &str) {
    let (began, url) = (Instant::now(), format!("redis://{}", server.address()));
    // A server closes its connections when it changes its role.
    while !command(&url, words).await.unwrap_or_default().contains(text) {
        assert!(began.elapsed() < LONG, "{words:?} never contains {text}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Runs a job from its creation to its end, with events, a cancellation and expiry.
async fn run_a_job(url: &str) {
    let settings = RedisSettings::from_url(url).expect("a URL");
    run_a_job_with(settings).await;
}

async fn run_a_job_with(settings: RedisSettings) {
    let store = RedisStore::connect_as(settings, Duration::ZERO, "sandbox", LEASE).await.expect("connect");
    let new = NewJob {
        owner: Some("ann".to_owned()),
        idempotency_key: Some("k".to_owned()),
        webhook: Some(Webhook::new("http://example.com/".to_owned(), "s".repeat(20))),
        per_day: Some(10),
        ..new_job("x")
    };
    let Created::New(header) = store.create(new, BOUNDS).await.expect("create") else { panic!("new") };
    let mut watch = store.follow(header.id);
    let attempt = take(&store).await.expect("one").attempt();
    assert_eq!(store.heartbeat(vec![attempt]).await.expect("heartbeat"), HeartbeatReport::default());
    assert!(store.append(attempt, output("x")).await.expect("append"));
    store.put_back(attempt).await.expect("put back");
    let attempt = take(&store).await.expect("one").attempt();
    assert!(store.finish(attempt, vec![], printed("x")).await.expect("finish"));
    while !store.progress(header.id).await.expect("progress").expect("there").status.is_final() {
        tokio::time::timeout(LONG, watch.changed()).await.expect("woken");
    }
    assert_eq!(store.events(header.id, 0, 10).await.expect("events").len(), 2);
    assert_eq!(store.list(Filter::default(), 10, None).await.expect("list").jobs.len(), 1);
    let due = store.take_delivery(LONG, vec![]).await.expect("take").expect("due");
    store.note_delivery(due.id, due.webhook.expect("a webhook"), None).await.expect("note");
    let cancelled = create(&store).await;
    store.cancel(cancelled).await.expect("cancel");
    store.probe().await.expect("ready");
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(store.expire().await.expect("expire"), 2);
}

#[tokio::test]
async fn users_need_no_more_than_their_own_keys_and_channels() {
    let user = "ann on >secret ~{sandbox}:* ~sandbox:* &{sandbox}:* +@all -@dangerous +info -@admin";
    let mut arguments = vec!["--user"];
    arguments.extend(user.split(' '));
    let server = RedisServer::on_socket(&arguments);
    run_a_job(&format!("{}?user=ann&pass=secret", server.socket_url())).await;
    let settings = RedisSettings::from_url(&format!("{}?user=ann&pass=guess", server.socket_url())).expect("a URL");
    let error = RedisStore::connect(settings, RETENTION).await.expect_err("refused").to_string();
    assert!(!error.contains("guess"), "{error}");
}

/// Makes a certificate authority, and certificates for a server on loopback and for a client.
fn make_certificates(dir: &Path) {
    let openssl = |arguments: &str| {
        let made = Command::new("openssl").args(arguments.split(' ')).current_dir(dir).output().expect("openssl");
        assert!(made.status.success(), "{arguments}: {}", String::from_utf8_lossy(&made.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=test-ca"));
    std::fs::write(dir.join("server.ext"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n").expect("write");
    std::fs::write(dir.join("client.ext"), "subjectAltName=DNS:client\n").expect("write");
    for name in ["server", "client"] {
        openssl(&format!("req {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem -days 2 -extfile {name}.ext"
        ));
    }
}

#[tokio::test]
async fn tls_checks_the_server_and_presents_a_certificate() {
    let dir = tempfile::tempdir().expect("tempdir");
    make_certificates(dir.path());
    let file = |name: &str| dir.path().join(name);
    let text = |name: &str| file(name).to_str().expect("utf-8").to_owned();
    let (certificate, key, ca) = (text("server.pem"), text("server.key"), text("ca.pem"));
    let tls = ["--port", "0", "--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
    let server = RedisServer::on_port("--tls-port", &[&tls[..], &["--tls-auth-clients", "yes"]].concat());
    let settings = |host: &str| RedisSettings::from_url(&format!("rediss://{host}:{}", server.port())).expect("a URL");
    let identity = Some((file("client.pem"), file("client.key")));
    let identity = identity.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()));
    let (ca, client_key) = (file("ca.pem"), file("client.key"));
    for host in ["127.0.0.1", "localhost"] {
        run_a_job_with(settings(host).with_tls_files(Some(&ca), identity).expect("files")).await;
    }
    let untrusted = settings("127.0.0.1").with_tls_files(None, identity).expect("files");
    RedisStore::connect(untrusted, RETENTION).await.expect_err("an unknown authority");
    let nameless = settings("127.0.0.1").with_tls_files(Some(&ca), None).expect("files");
    RedisStore::connect(nameless, RETENTION).await.expect_err("no certificate");
    let missing = settings("127.0.0.1").with_tls_files(Some(Path::new("/nonexistent/ca.pem")), None);
    assert!(missing.expect_err("no file").contains("/nonexistent/ca.pem"));
    let plain = RedisSettings::from_address("127.0.0.1:1").expect("an address");
    assert!(plain.with_tls_files(None, Some((&ca, &client_key))).is_err(), "certificates without TLS");
}

#[tokio::test]
async fn jobs_are_acknowledged_when_replicas_have_them() {
    let primary = RedisServer::on_port("--port", &[]);
    let port = primary.port().to_string();
    let replica = RedisServer::on_port("--port", &["--replicaof", "127.0.0.1", &port]);
    wait_for(&primary, &["INFO", "replication"], "state=online").await;
    let settings = RedisSettings::from_address(&format!("127.0.0.1:{port}")).expect("an address").with_replicas(1);
    let store = RedisStore::connect(settings, RETENTION).await.expect("connect");
    let id = create(&store).await;
    let headers = ask(&replica, &["HGET", "{sandbox}:jobs", &id.to_string()]).await;
    assert!(headers.starts_with('{'), "{headers}");
    drop(replica);
    let new = NewJob { idempotency_key: Some("k".to_owned()), ..new_job("x") };
    let error = store.create(new, BOUNDS).await.expect_err("no replica").to_string();
    assert!(error.contains("0 of 1 replicas"), "{error}");
    // Creations wait for the replica one after the other; the worker does not wait for them.
    let attempt = take(&store).await.expect("the first").attempt();
    let create = || store.create(new_job("x"), BOUNDS);
    let creations = async { tokio::join!(create(), create(), create(), create()) };
    let works = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(store.heartbeat(vec![attempt]).await.expect("heartbeat"), HeartbeatReport::default());
        store.probe().await.expect("ready");
        assert!(take(&store).await.is_some(), "a job is there before its creation is acknowledged");
    };
    tokio::select! {
        () = works => {}
        _ = creations => panic!("the worker waited for all creations"),
    }
}

#[tokio::test]
async fn sentinels_name_the_primary_and_its_successor() {
    let first = RedisServer::on_port("--port", &[]);
    let port = first.port().to_string();
    let second = RedisServer::on_port("--port", &["--replicaof", "127.0.0.1", &port]);
    wait_for(&first, &["INFO", "replication"], "state=online").await;
    let configure = |dir: &Path, own: u16| {
        let text = format!(
            "port {own}\nsentinel monitor main 127.0.0.1 {port} 1\nsentinel down-after-milliseconds main 1000\n\
             sentinel failover-timeout main 5000\n"
        );
        std::fs::write(dir.join("sentinel.conf"), text).expect("write");
    };
    let sentinel = RedisServer::on_port_with("--port", &["sentinel.conf", "--sentinel"], configure);
    wait_for(&sentinel, &["INFO", "sentinel"], "slaves=1").await;
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port());
    run_a_job(&url).await;
    let store = RedisStore::connect(RedisSettings::from_url(&url).expect("a URL"), RETENTION).await.expect("connect");
    let id = create(&store).await;
    // A failover that was asked for loses nothing that the replica has. The Sentinel has to know the replica for some time
    // before.
    wait_for(&second, &["HGET", "{sandbox}:jobs", &id.to_string()], "{").await;
    let sentinel_url = format!("redis://{}", sentinel.address());
    until_it_works(async || command(&sentinel_url, &["SENTINEL", "FAILOVER", "main"]).await).await;
    wait_for(&second, &["INFO", "replication"], "role:master").await;
    wait_for(&first, &["INFO", "replication"], "role:slave").await;
    until_it_works(async || store.probe().await).await;
    assert_eq!(take(&store).await.map(|job| job.id), Some(id));
    let unknown = RedisSettings::from_url(&format!("redis+sentinel://127.0.0.1:{}/other", sentinel.port()));
    RedisStore::connect(unknown.expect("a URL"), RETENTION).await.expect_err("unknown primary");
}

#[tokio::test]
async fn a_cluster_keeps_all_keys_on_one_node() {
    let start = || RedisServer::on_port("--port", &["--cluster-enabled", "yes"]);
    let (one, other) = (start(), start());
    ask(&one, &["CLUSTER", "ADDSLOTSRANGE", "0", "8191"]).await;
    ask(&other, &["CLUSTER", "ADDSLOTSRANGE", "8192", "16383"]).await;
    ask(&one, &["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()]).await;
    for node in [&one, &other] {
        wait_for(node, &["CLUSTER", "INFO"], "cluster_state:ok").await;
        wait_for(node, &["CLUSTER", "INFO"], "cluster_known_nodes:2").await;
    }
    // Whichever node is asked first.
    for node in [&one, &other] {
        run_a_job(&format!("redis+cluster://127.0.0.1:{}", node.port())).await;
    }
}
