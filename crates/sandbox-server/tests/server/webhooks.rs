//! Webhooks: notifications of the end of a job.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64::Engine;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use sandbox_testing::eventually;

use crate::Server;

const SECRET: &str = "a secret of this test";

/// A message that was received.
pub(crate) struct Message {
    headers: Vec<(String, String)>,
    body: String,
}

impl Message {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    fn assert_signed(&self) {
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
        mac.update(
            format!("{}.{}.{}", self.header("webhook-id"), self.header("webhook-timestamp"), self.body).as_bytes(),
        );
        let expected = base64::engine::general_purpose::STANDARD.encode(mac.finalize().into_bytes());
        assert_eq!(self.header("webhook-signature"), format!("v1,{expected}"));
    }
}

/// A receiver on loopback that answers with these statuses in turn, and then always with the last one.
pub(crate) fn receiver(statuses: &'static [&'static str]) -> (u16, Receiver<Message>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, messages) = channel();
    std::thread::spawn(move || {
        for (count, stream) in listener.incoming().take(20).enumerate() {
            let Ok(stream) = stream else { return };
            let mut reader = BufReader::new(stream);
            let mut headers = vec![];
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
                    break;
                }
                if let Some((name, value)) = line.split_once(':') {
                    headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
                }
            }
            let length = headers.iter().find(|(name, _)| name == "content-length");
            let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
            let mut body = vec![0; length];
            let _ = reader.read_exact(&mut body);
            let status = statuses.get(count).or(statuses.last()).unwrap();
            let _ = write!(reader.get_mut(), "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            if sender.send(Message { headers, body: String::from_utf8(body).unwrap() }).is_err() {
                return;
            }
        }
    });
    (port, messages)
}

fn wait_for(server: &Server, id: &str, status: &str) -> Value {
    eventually(&format!("telling about {id} is {status}"), || server.job(id, "")["webhook"]["status"] == status);
    server.job(id, "")
}

#[test]
fn delivery_is_retried_until_it_succeeds() {
    let (port, messages) = receiver(&["500 No", "302 Found\r\nLocation: http://127.0.0.1:1/", "204 Yes"]);
    let allow = format!("localhost:{port}");
    let server = Server::start(&["--webhook-allow", &allow, "--webhook-retry", "50ms"]);
    let webhook = json!({"url": format!("http://{allow}/done"), "secret": SECRET});
    let id = server.submit(&json!({"code": "print(6*7)", "webhook": webhook}));
    let all: Vec<Message> = (0..3).map(|_| messages.recv_timeout(Duration::from_secs(60)).unwrap()).collect();
    for message in &all {
        message.assert_signed();
        assert_eq!(message.header("webhook-id"), id);
        let body: Value = serde_json::from_str(&message.body).unwrap();
        assert_eq!((&body["type"], &body["data"]["result"]["stdout"]), (&"job.ended".into(), &"42\n".into()));
        assert!(!message.body.contains(SECRET));
    }
    let job = wait_for(&server, &id, "delivered");
    assert_eq!((&job["webhook"]["attempts"], &job["webhook"]["error"]), (&3.into(), &Value::Null));
    assert!(!job.to_string().contains(SECRET) && job["request"].get("webhook").is_none(), "{job:#}");
}

#[test]
fn delivery_fails_after_six_attempts() {
    let (port, messages) = receiver(&["404 Not Found"]);
    let allow = format!("127.0.0.1:{port}");
    let server = Server::start(&["--webhook-allow", &allow, "--webhook-retry", "1ms"]);
    let webhook = json!({"url": format!("http://{allow}/"), "secret": SECRET});
    let id = server.submit(&json!({"code": "1", "webhook": webhook}));
    let job = wait_for(&server, &id, "failed");
    assert_eq!((&job["webhook"]["attempts"], messages.iter().take(6).count()), (&6.into(), 6));
    assert_eq!(job["webhook"]["error"], "the response was 404 Not Found");
}

#[test]
fn delivery_continues_after_a_restart() {
    let (port, messages) = receiver(&["503 Not now", "200 Yes"]);
    let allow = format!("127.0.0.1:{port}");
    let flags = ["--webhook-allow", &allow, "--webhook-retry", "2s"];
    let server = Server::start(&flags);
    let webhook = json!({"url": format!("http://{allow}/"), "secret": SECRET});
    let id = server.submit(&json!({"code": "1", "webhook": webhook}));
    messages.recv_timeout(Duration::from_secs(60)).unwrap();
    eventually("one attempt is counted", || server.job(&id, "")["webhook"]["attempts"] == 1);
    let data = server.end("-KILL");
    let server = Server::start_in(data, &flags, &[]);
    messages.recv_timeout(Duration::from_secs(60)).unwrap().assert_signed();
    wait_for(&server, &id, "delivered");
}

#[test]
fn webhooks_to_private_addresses_are_refused() {
    let (port, messages) = receiver(&["200 Yes"]);
    let server = Server::start(&["--webhook-retry", "1ms"]);
    let refused = |url: &str, why: &str| {
        let body = json!({"code": "1", "webhook": {"url": url, "secret": SECRET}}).to_string();
        let (_, (status, problem)) = server.send_to("/v1/execute", &[], body.as_bytes());
        assert_eq!((status, &problem["field"]), (422, &"webhook".into()), "{url}: {problem:#}");
        assert!(problem["detail"].as_str().unwrap().contains(why), "{url}: {problem:#}");
    };
    for url in ["http://127.0.0.1/", "http://[::1]/", "http://169.254.169.254/latest", "http://10.0.0.1:6379/"] {
        refused(url, "is not public; the operator can allow it with SANDBOX_WEBHOOK_ALLOW=");
    }
    for url in
        ["http://2130706433/", "http://0x7f.1/", "ftp://example.com/", "http://u:p@example.com/", "/x", "http://"]
    {
        refused(url, "url:");
    }
    // A name shows what it means only when it is used.
    let webhook = json!({"url": format!("http://localhost:{port}/"), "secret": SECRET});
    let id = server.submit(&json!({"code": "1", "webhook": webhook}));
    let job = wait_for(&server, &id, "failed");
    assert!(job["webhook"]["error"].as_str().unwrap().contains("cannot be resolved to a public address"), "{job:#}");
    assert!(messages.try_recv().is_err());
    let body = json!({"code": "1", "webhook": {"url": "https://example.com/", "secret": "short"}}).to_string();
    assert_eq!(server.send_to("/v1/execute", &[], body.as_bytes()).1.0, 422);
    let (status, problem) = server.post(&json!({"code": "1", "webhook": webhook}));
    assert_eq!((status, &problem["field"]), (422, &"webhook".into()));
}

#[test]
fn certificates_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args([
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-keyout",
            &path("key"),
            "-out",
            &path("cert"),
        ])
        .output()
        .expect("run openssl");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let script = "import http.server, ssl, sys\n\
        class H(http.server.BaseHTTPRequestHandler):\n    \
            def do_POST(self):\n        self.rfile.read(int(self.headers['content-length']))\n        self.send_response(200)\n        self.end_headers()\n\
        s = http.server.HTTPServer(('127.0.0.1', 0), H)\n\
        c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n\
        c.load_cert_chain(sys.argv[1], sys.argv[2])\n\
        s.socket = c.wrap_socket(s.socket, server_side=True)\n\
        print(s.server_address[1], flush=True)\n\
        s.serve_forever()\n";
    let mut https = Ended(
        std::process::Command::new("python3")
            .args(["-c", script, &path("cert"), &path("key")])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut port = String::new();
    BufReader::new(https.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let allow = format!("localhost:{}", port.trim());
    let webhook = json!({"url": format!("https://{allow}/"), "secret": SECRET});
    let body = json!({"code": "1", "webhook": webhook});
    let flags = ["--webhook-allow", allow.as_str(), "--webhook-retry", "1ms"];
    let trusting = Server::start_with(&flags, &[("SSL_CERT_FILE", &path("cert"))]);
    let id = trusting.submit(&body);
    wait_for(&trusting, &id, "delivered");
    let careful = Server::start(&flags);
    let id = careful.submit(&body);
    let job = wait_for(&careful, &id, "failed");
    assert!(job["webhook"]["error"].as_str().unwrap().to_lowercase().contains("certificate"), "{job:#}");
}

/// A process that ends with the test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
