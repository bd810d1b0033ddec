//! A span for every run, as a collector gets it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::json;

use crate::Server;

#[test]
fn every_run_is_exported_as_a_span() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (sender, received) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(10) {
            let mut reader = BufReader::new(stream.unwrap());
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let _ = reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            if sender.send((head, body)).is_err() {
                return;
            }
        }
    });
    // A run in a ready cell has nothing to prepare, and a span only of what took time.
    let server = Server::start(&["--otlp-endpoint", &endpoint, "--cold"]);
    assert_eq!(server.post(&json!({"code": "1"})).0, 200);
    // What has not been sent yet is sent at the end.
    let _data = server.end("-TERM");
    let (head, body) = received.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
    let text = String::from_utf8_lossy(&body);
    for part in ["sandbox-server", "sandbox.verdict", "sandbox.language", "python", "prepare", "run"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
