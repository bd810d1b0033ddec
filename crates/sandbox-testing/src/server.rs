//! Starts the real server, and sends HTTP requests to it.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{ChildStderr, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use ureq::http::HeaderMap;

use crate::command::without_settings;
use crate::{GuardedChild, build_dir};

/// A server on a free port, which ends with the test.
#[derive(Debug)]
pub struct TestServer {
    /// The process.
    pub child: GuardedChild,
    /// The address that it listens on.
    pub address: String,
    /// Its data directory, unless it was taken for another server.
    pub data: Option<TempDir>,
}

impl TestServer {
    /// A command that starts the server, without settings from the environment.
    pub fn command() -> Command {
        let mut command = Command::new(build_dir().join("sandbox-server"));
        without_settings(&mut command);
        command
    }

    /// Starts a server with an empty data directory.
    pub fn start(flags: &[&str], variables: &[(&str, &str)]) -> Self {
        // The server drops root privileges: others must be able to enter its directory.
        let data = tempfile::tempdir().unwrap();
        std::fs::set_permissions(data.path(), PermissionsExt::from_mode(0o755)).unwrap();
        Self::start_in(data, flags, variables)
    }

    /// Starts a server with a data directory that another server may have used before.
    pub fn start_in(data: TempDir, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::launch(Self::command(), data, flags, variables)
    }

    /// Starts a server with a custom command.
    pub fn launch(command: Command, data: TempDir, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let (server, log) = Self::launch_with_log(command, data, flags, variables);
        std::thread::spawn(move || log.lines().for_each(drop));
        server
    }

    /// The same, and returns the rest of its log, which has to be read: a server whose log is not read stops.
    pub fn launch_with_log(
        mut command: Command,
        data: TempDir,
        flags: &[&str],
        variables: &[(&str, &str)],
    ) -> (Self, BufReader<ChildStderr>) {
        // Preparing toolchains in the background takes longer than most tests. Tests of it enable it.
        command.env("SANDBOX_DATA_DIR", data.path().join("data")).env("SANDBOX_PREPARE", "none");
        command.envs(variables.iter().copied());
        if !flags.contains(&"--http-host") {
            command.args(["--http-host", "127.0.0.1"]);
        }
        command.args(["--http-port", "0", "--log-format", "json"]).args(flags);
        let mut child = GuardedChild(command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let address = log.by_ref().lines().map_while(Result::ok).find_map(|line| {
            let log: Value = serde_json::from_str(&line).ok()?;
            Some(log["fields"]["address"].as_str()?.to_owned())
        });
        let address = address.expect("the server logs the address that it listens on");
        (Self { child, address, data: Some(data) }, log)
    }

    /// The status and the body, as JSON if it is.
    pub fn get(&self, path: &str) -> (u16, Value) {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let mut response = agent.get(format!("http://{}{path}", self.address)).call().unwrap();
        let text = response.body_mut().read_to_string().unwrap();
        (response.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Sends a request to `/execute`.
    pub fn post(&self, body: &Value) -> (u16, Value) {
        self.send(&[], body.to_string().as_bytes()).1
    }

    /// Sends a body to `/execute`; returns the headers of the response too.
    pub fn send(&self, headers: &[(&str, &str)], body: &[u8]) -> (HeaderMap, (u16, Value)) {
        self.send_to("/execute", headers, body)
    }

    /// Sends a body; returns the headers of the response too.
    pub fn send_to(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> (HeaderMap, (u16, Value)) {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let mut request = agent.post(format!("http://{}{path}", self.address));
        if !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.content_type("application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = request.send(body).unwrap();
        let text = response.body_mut().with_config().limit(64 << 20).read_to_string().unwrap();
        let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        (response.headers().clone(), (response.status().as_u16(), value))
    }

    /// Sends a request, and leaves the response on the connection.
    pub fn start_request(&self, path: &str, headers: &[(&str, &str)], body: impl Display) -> TcpStream {
        let body = body.to_string();
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{headers}",
            body.len()
        );
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
        stream
    }
}
