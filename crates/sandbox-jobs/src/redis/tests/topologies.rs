//! Every way to connect: users, TLS, replicas, Sentinel, clusters.

use std::hash::{BuildHasher, RandomState};

use super::*;

/// Ports below those that the kernel gives to clients. A cluster node takes a second one, 10,000 above.
const PORTS: std::ops::Range<u16> = 12_000..22_000;

/// Redis servers on loopback ports, which end when this is dropped.
struct PortServer {
    dir: tempfile::TempDir,
    _child: GuardedChild,
    port: u16,
}

impl PortServer {
    /// Starts a server. The option for its port may be another one.
    fn start(port_option: &str, arguments: &[&str]) -> Self {
        Self::start_in(|_| tempfile::tempdir().expect("tempdir"), port_option, arguments)
    }

    fn start_in(dir: impl Fn(u16) -> tempfile::TempDir, port_option: &str, arguments: &[&str]) -> Self {
        for _ in 0..50 {
            let random = RandomState::new().hash_one(std::process::id());
            let port = PORTS.start + u16::try_from(random % u64::from(PORTS.end - PORTS.start)).expect("small");
            let (dir, text) = (dir(port), port.to_string());
            let mut all = arguments.to_vec();
            all.extend([port_option, &text, "--bind", "127.0.0.1"]);
            if let Some(child) = start_redis(dir.path(), &all) {
                return Self { dir, _child: child, port };
            }
        }
        panic!("redis-server finds no free port");
    }

    async fn connection(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).expect("a URL");
        client.get_multiplexed_async_connection().await.expect("connect")
    }

    async fn command(&self, words: &[&str]) -> String {
        let (name, arguments) = words.split_first().expect("a name");
        let mut connection = self.connection().await;
        let answer: redis::Value = redis::cmd(name).arg(arguments).query_async(&mut connection).await.expect(name);
        redis::from_redis_value(answer).unwrap_or_default()
    }

    /// Waits until the answer to a command contains a text.
    async fn wait_for(&self, words: &[&str], text: &str) {
        let began = Instant::now();
        while !self.command(words).await.contains(text) {
            assert!(began.elapsed() < LONG, "{words:?}: {}", self.command(words).await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
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
    assert!(store.finish(attempt, printed("x")).await.expect("finish"));
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
    let server = SocketServer::start(&arguments);
    run_a_job(&format!("{}?user=ann&pass=secret", server.url())).await;
    let settings = RedisSettings::from_url(&format!("{}?user=ann&pass=guess", server.url())).expect("a URL");
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
    let server = PortServer::start("--tls-port", &[&tls[..], &["--tls-auth-clients", "yes"]].concat());
    let settings = |host: &str| RedisSettings::from_url(&format!("rediss://{host}:{}", server.port)).expect("a URL");
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
    let primary = PortServer::start("--port", &[]);
    let port = primary.port.to_string();
    let replica = PortServer::start("--port", &["--replicaof", "127.0.0.1", &port]);
    primary.wait_for(&["INFO", "replication"], "state=online").await;
    let settings = RedisSettings::from_address(&format!("127.0.0.1:{port}")).expect("an address").with_replicas(1);
    let store = RedisStore::connect(settings, RETENTION).await.expect("connect");
    let id = create(&store).await;
    let known: i64 = {
        let mut connection = replica.connection().await;
        let mut command = redis::cmd("HEXISTS");
        command.arg("{sandbox}:jobs").arg(id.to_string()).query_async(&mut connection).await.expect("read")
    };
    assert_eq!(known, 1);
    drop(replica);
    let new = NewJob { idempotency_key: Some("k".to_owned()), ..new_job("x") };
    let error = store.create(new, BOUNDS).await.expect_err("no replica").to_string();
    assert!(error.contains("0 of 1 replicas"), "{error}");
}

#[tokio::test]
async fn sentinels_name_the_primary_and_its_successor() {
    let first = PortServer::start("--port", &[]);
    let port = first.port.to_string();
    let second = PortServer::start("--port", &["--replicaof", "127.0.0.1", &port]);
    first.wait_for(&["INFO", "replication"], "state=online").await;
    let config = |own: u16| {
        let dir = tempfile::tempdir().expect("tempdir");
        let text = format!(
            "port {own}\nsentinel monitor main 127.0.0.1 {port} 1\nsentinel down-after-milliseconds main 1000\n\
             sentinel failover-timeout main 5000\n"
        );
        std::fs::write(dir.path().join("sentinel.conf"), text).expect("write");
        dir
    };
    let sentinel = PortServer::start_in(config, "--port", &["sentinel.conf", "--sentinel"]);
    sentinel.wait_for(&["INFO", "sentinel"], "slaves=1").await;
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
    run_a_job(&url).await;
    let store = RedisStore::connect(RedisSettings::from_url(&url).expect("a URL"), RETENTION).await.expect("connect");
    let id = create(&store).await;
    // A failover that was asked for loses nothing. The Sentinel has to know the replica for some time before.
    until_it_works(async || {
        let mut connection = sentinel.connection().await;
        redis::cmd("SENTINEL").arg("FAILOVER").arg("main").query_async::<()>(&mut connection).await
    })
    .await;
    second.wait_for(&["INFO", "replication"], "role:master").await;
    first.wait_for(&["INFO", "replication"], "role:slave").await;
    until_it_works(async || store.probe().await).await;
    assert_eq!(take(&store).await.map(|job| job.id), Some(id));
    let unknown = RedisSettings::from_url(&format!("redis+sentinel://127.0.0.1:{}/other", sentinel.port));
    RedisStore::connect(unknown.expect("a URL"), RETENTION).await.expect_err("unknown primary");
}

#[tokio::test]
async fn a_cluster_keeps_all_keys_on_one_node() {
    let start = || PortServer::start("--port", &["--cluster-enabled", "yes"]);
    let (one, other) = (start(), start());
    one.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "8191"]).await;
    other.command(&["CLUSTER", "ADDSLOTSRANGE", "8192", "16383"]).await;
    one.command(&["CLUSTER", "MEET", "127.0.0.1", &other.port.to_string()]).await;
    for node in [&one, &other] {
        node.wait_for(&["CLUSTER", "INFO"], "cluster_state:ok").await;
        node.wait_for(&["CLUSTER", "INFO"], "cluster_known_nodes:2").await;
    }
    // Whichever node is asked first.
    for node in [&one, &other] {
        run_a_job(&format!("redis+cluster://127.0.0.1:{}", node.port)).await;
    }
    assert!(one.dir.path().join("nodes.conf").exists());
}
