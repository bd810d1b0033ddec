//! A real browser shows a page on another origin that tries everything a page can do to use the server.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use sandbox_testing::needs;
use serde_json::{Value, json};

use crate::Server;

const PAGE: &str = include_str!("browser_page.html");

/// A name that the attacker owns.
const NAME: &str = "evil.test";

/// What a page could read, by what it tried; nothing if the browser or the server kept it from reading.
type Report = BTreeMap<String, Option<String>>;

/// The attacker's own server. What is asked of the attacker's name, other than its page, goes to the server behind it,
/// byte by byte: that is what happens when DNS rebinding has made the name the server's address.
struct Attacker {
    port: u16,
    reports: Receiver<Value>,
}

impl Attacker {
    /// Serves a page that attacks these targets.
    fn start(targets: &[String], behind: &str) -> Self {
        Self::start_at(TcpListener::bind("127.0.0.1:0").unwrap(), targets, behind)
    }

    fn start_at(listener: TcpListener, targets: &[String], behind: &str) -> Self {
        let port = listener.local_addr().unwrap().port();
        let report = format!("http://127.0.0.1:{port}/attacker/report");
        let page = PAGE.replace("__TARGETS__", &json!(targets).to_string()).replace("__REPORT__", &report);
        let (behind, (sender, reports)) = (behind.to_owned(), channel());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (page, behind, sender) = (page.clone(), behind.clone(), sender.clone());
                std::thread::spawn(move || serve(stream, &page, &behind, &sender));
            }
        });
        Self { port, reports }
    }
}

/// Serves one connection of the browser.
fn serve(stream: TcpStream, page: &str, behind: &str, sender: &Sender<Value>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let start = head.len();
        (reader.read_line(&mut head).ok()? > 0).then_some(())?;
        let line = head[start..].to_ascii_lowercase();
        length = line.strip_prefix("content-length:").map_or(length, |value| value.trim().parse().unwrap());
    }
    let of_name = head.to_ascii_lowercase().contains(&format!("\r\nhost: {NAME}"));
    if of_name && !head.split(' ').nth(1)?.starts_with("/attacker/") {
        return forward(reader, &head, behind);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    if !body.is_empty() {
        let _ = sender.send(serde_json::from_slice(&body).unwrap());
    }
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n", page.len());
    write!(reader.get_mut(), "{answer}Connection: close\r\n\r\n{page}").ok()
}

/// Connects the browser with the server behind, having read the head of the first request.
fn forward(mut browser: BufReader<TcpStream>, head: &str, behind: &str) -> Option<()> {
    let mut server = TcpStream::connect(behind).ok()?;
    server.write_all(head.as_bytes()).ok()?;
    let (mut answers, mut to_browser) = (server.try_clone().ok()?, browser.get_ref().try_clone().ok()?);
    std::thread::spawn(move || std::io::copy(&mut answers, &mut to_browser));
    std::io::copy(&mut browser, &mut server).ok().map(drop)
}

/// A browser that ends with the test.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        // Its helpers end with it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Shows the attacker's page, as a page of this host, and waits for its report.
fn visit(attacker: &Attacker, host: &str) -> Report {
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new("chromium");
    // Root has no use for the browser's own sandbox, and the page is the test's.
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
    command.args(["--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0"]);
    command.arg(format!("--user-data-dir={}", profile.path().display()));
    command.arg(format!("--host-resolver-rules=MAP {NAME} 127.0.0.1"));
    command.arg(format!("http://{host}:{}/attacker/page", attacker.port));
    for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    let browser = Browser(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let report = attacker.reports.recv_timeout(Duration::from_secs(60)).expect("the page reports");
    drop(browser);
    let attempts = report.as_object().unwrap().iter();
    attempts.map(|(name, outcome)| (name.clone(), outcome["read"].as_str().map(str::to_owned))).collect()
}

impl Server {
    fn port(&self) -> &str {
        self.address.rsplit(':').next().unwrap()
    }

    /// How many programs ran, and how many jobs were made.
    fn traces(&self) -> (u64, usize) {
        let jobs = self.get("/v1/execute").1["jobs"].as_array().unwrap().len();
        (self.get("/health").1["runs"].as_u64().unwrap(), jobs)
    }

    /// The server under two names, of which the page's browser takes one for a page's own site.
    fn targets(&self) -> Vec<String> {
        ["127.0.0.1", "localhost"].iter().map(|host| format!("http://{host}:{}", self.port())).collect()
    }
}

#[test]
fn a_page_of_another_origin_runs_nothing_and_reads_nothing() {
    if !needs::program("chromium") {
        return;
    }
    let server = Server::start(&["--capacity", "8"]);
    let report = visit(&Attacker::start(&server.targets(), &server.address), "127.0.0.1");
    assert_eq!(report.len(), 2 * (2 * 12 + 6 * 6 + 3), "{report:#?}");
    for (attempt, read) in &report {
        // A style sheet that was refused counts as loaded in some versions, and tells nothing.
        assert!(read.is_none(), "{attempt} read {read:?}");
    }
    assert_eq!(server.traces(), (0, 0));
}

#[test]
fn a_page_whose_name_becomes_the_servers_address_is_refused() {
    if !needs::program("chromium") {
        return;
    }
    let server = Server::start(&["--capacity", "8"]);
    let report = visit(&Attacker::start(&[String::new()], &server.address), NAME);
    assert_eq!(report.len(), 2 * 12 + 6 * 6 + 3, "{report:#?}");
    let mut answers = 0;
    for (attempt, read) in report.iter().filter_map(|(attempt, read)| Some((attempt, read.as_ref()?))) {
        // Pages read answers of their own origin, and there is nothing in them.
        let answer = read.trim_start_matches("403 ");
        let problem: Value = serde_json::from_str(answer).unwrap_or_else(|_| panic!("{attempt} read {read}"));
        assert_eq!(problem["code"], "forbidden_host", "{attempt} read {read}");
        assert!(problem["detail"].as_str().unwrap().contains("SANDBOX_ALLOWED_HOSTS"), "{problem}");
        answers += 1;
    }
    assert!(answers >= 20, "the page reached the server: {report:#?}");
    assert_eq!(server.traces(), (0, 0));
}

/// What the operator lets in works: so what the tests above see is due to the server's checks.
#[test]
fn a_page_that_the_operator_lets_in_runs_and_reads() {
    if !needs::program("chromium") {
        return;
    }
    let server = Server::start_with(&["--capacity", "64"], &[("SANDBOX_ALLOWED_HOSTS", NAME)]);
    let report = visit(&Attacker::start(&[String::new()], &server.address), NAME);
    lets_in(&server, "", &report);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let server = Server::start_with(&["--capacity", "64"], &[("SANDBOX_CORS_ORIGINS", &origin)]);
    let report = visit(&Attacker::start_at(listener, &server.targets(), &server.address), "127.0.0.1");
    for target in server.targets() {
        lets_in(&server, &target, &report);
        for hidden in ["GET /health without CORS", "GET /v1/languages script", "GET /docs frame"] {
            assert_eq!(report[&format!("{hidden} {target}")], None, "{hidden}");
        }
    }
}

fn lets_in(server: &Server, target: &str, report: &Report) {
    let read = |attempt: &str| report[&format!("{attempt} {target}")].clone().unwrap_or_default();
    for (attempt, begin, part) in [
        ("POST /execute json", "200 ", "ran by"),
        ("POST /execute key", "200 ", "ran by"),
        ("POST /v1/execute json", "202 ", "id"),
        ("POST /execute text with CORS", "415 ", "Content-Type"),
        ("GET /health", "200 ", "uptime"),
        ("GET /v1/execute", "200 ", "jobs"),
        ("DELETE", "404 ", "not_found"),
    ] {
        let read = read(attempt);
        assert!(read.starts_with(begin) && read.contains(part), "{attempt}: {read}");
    }
    let (runs, jobs) = server.traces();
    assert!(runs > 0 && jobs > 0, "{runs} runs, {jobs} jobs");
}
