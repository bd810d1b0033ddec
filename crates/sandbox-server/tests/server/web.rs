//! Host, origin and body of requests: the checks that keep web pages out, seen on the wire.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use serde_json::{Value, json};

use crate::Server;

const KEY: &str = "a-key-of-sixteen-letters";

impl Server {
    /// Sends these lines and reads the whole answer.
    fn say(&self, lines: &[&str]) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let end = if lines[0].ends_with("HTTP/1.1") { "Connection: close\r\n\r\n" } else { "\r\n" };
        stream.write_all(format!("{}\r\n{end}", lines.join("\r\n")).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

/// The status and the code of a problem in an answer.
fn refusal(answer: &str) -> (&str, String) {
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let problem: Value = serde_json::from_str(body).unwrap_or_default();
    (&answer[9..12], problem["code"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_request_must_be_addressed_to_the_server() {
    let server = Server::start_with(&[], &[("SANDBOX_ALLOWED_HOSTS", "sandbox.example.com")]);
    let get = |target: &str, lines: &[&str]| {
        let first = format!("GET {target} HTTP/1.1");
        server.say(&[&[first.as_str()], lines].concat())
    };
    for (target, lines) in [
        ("/health", &["Host: LOCALHOST:1234"][..]),
        ("/health", &["Host: [::1]"]),
        ("/health", &["Host: sandbox.example.com."]),
        ("http://localhost/health", &["Host: localhost"]),
    ] {
        assert!(get(target, lines).starts_with("HTTP/1.1 200"), "{target} {lines:?}");
    }
    for path in ["/health", "/v1/execute", "/v1/languages", "/metrics", "/docs", "/openapi.json", "/readyz", "/nowhere"]
    {
        let answer = get(path, &["Host: evil.test"]);
        assert_eq!(refusal(&answer), ("403", "forbidden_host".to_owned()), "{path}: {answer}");
        assert!(answer.contains("SANDBOX_ALLOWED_HOSTS"), "{answer}");
    }
    for (target, lines, refused) in [
        ("http://evil.test/health", &["Host: localhost"][..], ("403", "forbidden_host")),
        ("/health", &["Host: localhost", "Host: evil.test"], ("400", "invalid_host")),
        ("/health", &[], ("400", "invalid_host")),
    ] {
        let (status, code) = (refused.0, refused.1.to_owned());
        assert_eq!(refusal(&get(target, lines)), (status, code), "{target} {lines:?}");
    }
    assert!(server.say(&["GET /health HTTP/1.0"]).contains(" 200 "));
    assert!(server.say(&["GET /health HTTP/1.0", "Host: evil.test"]).contains(" 403 "));
    // HTTP/2 has no Host, but an authority.
    let curl = |host: &str| {
        let url = format!("http://{}/health", server.address);
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--http2-prior-knowledge", "--max-time", "20", "-o", "/dev/null", "-w", "%{http_code}"]);
        String::from_utf8(curl.args(["-H", &format!("Host: {host}"), &url]).output().unwrap().stdout).unwrap()
    };
    assert_eq!((curl("localhost").as_str(), curl("evil.test").as_str()), ("200", "403"));
}

#[test]
fn a_server_with_keys_answers_to_every_name() {
    let server = Server::start(&["--api-keys", KEY]);
    let key = format!("X-API-Key: {KEY}");
    for lines in [&["Host: any.example.com"][..], &["Host: any.example.com", "Origin: https://other.example.com"]] {
        let lines = [&["GET /v1/languages HTTP/1.1", &key], lines].concat();
        let answer = server.say(&lines);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(!answer.contains("access-control-"), "no CORS unless it is configured: {answer}");
    }
}

#[test]
fn bodies_that_are_not_json_return_415() {
    for flags in [&[][..], &["--api-keys", KEY]] {
        let server = Server::start(flags);
        let key = format!("X-API-Key: {KEY}");
        for (path, body) in [
            ("/execute", json!({"code": "print(1)"})),
            ("/v1/execute", json!({"code": "print(1)"})),
            ("/v1/batch", json!({"request": {"code": "print(1)"}, "inputs": [{}]})),
        ] {
            let send = |kinds: &[&str]| {
                let length = format!("Content-Length: {}", body.to_string().len());
                let post = format!("POST {path} HTTP/1.1");
                let kinds: Vec<String> = kinds.iter().map(|kind| format!("Content-Type: {kind}")).collect();
                let mut lines = vec![post.as_str(), "Host: localhost", &key, &length];
                lines.extend(kinds.iter().map(String::as_str));
                let mut stream = TcpStream::connect(&server.address).unwrap();
                // In one piece, so that nothing is unread when the server closes the connection.
                let request = format!("{}\r\nConnection: close\r\n\r\n{body}", lines.join("\r\n"));
                stream.write_all(request.as_bytes()).unwrap();
                let mut answer = String::new();
                let _ = stream.read_to_string(&mut answer);
                answer[9..12].to_owned()
            };
            for kinds in [&["application/json"][..], &["Application/JSON; charset=utf-8"]] {
                assert!(send(kinds).starts_with('2'), "{path} {kinds:?}");
            }
            for kinds in [
                &[][..],
                &["text/plain"],
                &["text/plain;application/json"],
                &["application/jsonp"],
                &["application/x-www-form-urlencoded"],
                &["multipart/form-data; boundary=application/json"],
                &["application/json", "text/plain"],
                &[""],
            ] {
                assert_eq!(send(kinds), "415", "{path} {kinds:?}");
            }
        }
    }
}

#[test]
fn responses_have_security_headers() {
    let server = Server::start(&[]);
    for path in ["/health", "/nowhere", "/docs"] {
        let answer = server.say(&[&format!("GET {path} HTTP/1.1"), "Host: localhost"]);
        for line in [
            "cross-origin-resource-policy: same-origin",
            "cross-origin-opener-policy: same-origin",
            "x-content-type-options: nosniff",
            "x-frame-options: DENY",
            "frame-ancestors 'none'",
        ] {
            assert!(answer.contains(line), "{path}: {line}\n{answer}");
        }
        assert!(!answer.contains("access-control-"), "{answer}");
    }
}

#[test]
fn cors_is_for_the_origins_that_are_listed() {
    let ask = |server: &Server, origin: &str| {
        let origin = format!("Origin: {origin}");
        let preflight = server.say(&[
            "OPTIONS /v1/execute HTTP/1.1",
            "Host: localhost",
            &origin,
            "Access-Control-Request-Method: POST",
            "Access-Control-Request-Headers: authorization, content-type, idempotency-key",
        ]);
        (preflight, server.say(&["GET /health HTTP/1.1", "Host: localhost", &origin]))
    };
    let server = Server::start_with(&[], &[("SANDBOX_CORS_ORIGINS", "https://app.example.com,http://localhost:3000")]);
    let (preflight, answer) = ask(&server, "https://app.example.com");
    for line in [
        "HTTP/1.1 200",
        "access-control-allow-origin: https://app.example.com\r\n",
        "access-control-allow-methods: GET,POST,DELETE\r\n",
        "access-control-allow-headers: accept,authorization,content-type,idempotency-key,last-event-id,x-api-key,x-request-id\r\n",
        "access-control-max-age: 600\r\n",
        "vary: origin",
    ] {
        assert!(preflight.contains(line), "{line}\n{preflight}");
    }
    for line in [
        "HTTP/1.1 200",
        "access-control-allow-origin: https://app.example.com\r\n",
        "access-control-expose-headers: location,retry-after,x-request-id\r\n",
        "vary: origin",
    ] {
        assert!(answer.contains(line), "{line}\n{answer}");
    }
    for origin in ["https://evil.test", "null", "https://app.example.com.evil.test", "http://app.example.com"] {
        let (preflight, answer) = ask(&server, origin);
        for refused in [preflight, answer] {
            assert_eq!(refusal(&refused), ("403", "forbidden_origin".to_owned()), "{origin}: {refused}");
            assert!(!refused.contains("access-control-") && refused.contains("SANDBOX_CORS_ORIGINS"), "{refused}");
        }
    }
    // Every origin may ask where it has to know a key.
    let server = Server::start_with(&["--api-keys", KEY], &[("SANDBOX_CORS_ORIGINS", "*")]);
    let (preflight, answer) = ask(&server, "https://any.example.com");
    for answer in [preflight, answer] {
        assert!(answer.contains("access-control-allow-origin: *\r\n"), "{answer}");
        assert!(!answer.contains("access-control-allow-credentials"), "{answer}");
    }
    let languages = ["GET /v1/languages HTTP/1.1", "Host: localhost", "Origin: https://any.example.com"];
    assert!(server.say(&languages).starts_with("HTTP/1.1 401"));
    let open =
        Command::new(env!("CARGO_BIN_EXE_sandbox-server")).args(["--print-config", "--cors-origins", "*"]).output();
    let open = open.unwrap();
    let text = String::from_utf8_lossy(&open.stderr);
    assert!(open.status.code() == Some(2) && text.contains("cors-origins: * requires api-keys"), "{text}");
}

#[test]
fn guessing_keys_is_slow() {
    let server = Server::start(&["--api-keys", KEY]);
    let languages = |key: &str| {
        let answer = server.say(&["GET /v1/languages HTTP/1.1", "Host: localhost", &format!("X-API-Key: {key}")]);
        (answer[9..12].to_owned(), answer.contains("retry-after: "))
    };
    assert_eq!(languages(KEY).0, "200");
    let answers: Vec<_> = (0..40).map(|guess| languages(&format!("wrong-key-number-{guess}"))).collect();
    assert_eq!(answers[..10], vec![("401".to_owned(), false); 10]);
    assert!(answers.contains(&("429".to_owned(), true)), "{answers:?}");
    assert_eq!(languages(KEY).0, "200", "the key's owner is not locked out");
}

#[test]
fn health_details_need_the_metrics_scope() {
    let keys = format!("{KEY};scopes=metrics,another-key-of-sixteen;scopes=jobs");
    let server = Server::start(&["--api-keys", &keys]);
    let keys = |key: &str| {
        let answer = server.say(&["GET /health HTTP/1.1", "Host: localhost", &format!("X-API-Key: {key}")]);
        let health: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        health.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
    };
    for key in ["", "wrong-key-of-sixteen", "another-key-of-sixteen"] {
        assert_eq!(keys(key), "capacity draining load reasons status uptime");
    }
    assert_eq!(
        keys(KEY),
        "capacity draining isolation keeper_restarts load lost_cells lost_zygotes panics queue reasons role runs \
         status store toolchains uptime version warm_starts warnings"
    );
}

#[test]
fn public_server_without_keys_has_a_warning() {
    for (flags, warns) in [
        (&["--http-host", "0.0.0.0"][..], true),
        (&["--http-host", "127.0.0.1"], false),
        (&["--http-host", "0.0.0.0", "--api-keys", KEY], false),
    ] {
        let mut server = Server::start(flags);
        server.address = server.address.replace("0.0.0.0", "127.0.0.1");
        let key = format!("X-API-Key: {KEY}");
        let answer = server.say(&["GET /health HTTP/1.1", "Host: localhost", &key]);
        let health: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let warnings = health["warnings"].to_string();
        assert_eq!(warnings.contains("set SANDBOX_API_KEYS"), warns, "{flags:?}: {warnings}");
    }
}
