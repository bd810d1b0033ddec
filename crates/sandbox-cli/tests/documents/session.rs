//! Where a document's commands run: an empty directory, the programs that were built, and a server if one is talked to.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::harness;
use super::transcript::Example;

/// The server's address in documents.
const DOCUMENTED: &str = "localhost:8080";

pub(crate) struct Session {
    home: tempfile::TempDir,
    server: Option<Server>,
}

struct Server {
    child: Child,
    port: u16,
    _data: tempfile::TempDir,
}

impl Session {
    pub(crate) fn start(examples: &[Example]) -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::create_dir(home.path().join("work")).unwrap();
        let data = home.path().join("data");
        std::fs::create_dir(&data).unwrap();
        // Volumes and images are its own; toolchains are prepared once for all tests.
        for kept in ["builds", "environments"] {
            let shared = harness::data_dir().join(kept);
            std::fs::create_dir_all(&shared).unwrap();
            symlink(shared, data.join(kept)).unwrap();
        }
        let server = examples.iter().any(|example| example.command.contains(DOCUMENTED)).then(Server::start);
        Self { home, server }
    }

    /// Runs a command in a shell; returns everything it printed.
    pub(crate) fn run(&self, command: &str) -> String {
        let here = self.server.as_ref().map_or(DOCUMENTED.to_owned(), |server| format!("localhost:{}", server.port));
        let path = format!("{}:{}", programs().display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("bash");
        // One pipe for both streams, as in a terminal.
        shell.arg("-c").arg(format!("exec 2>&1\n{}", command.replace(DOCUMENTED, &here)));
        harness::without_settings(&mut shell);
        shell.env("PATH", path).env("SANDBOX_DATA_DIR", self.home.path().join("data"));
        let output = shell.current_dir(self.home.path().join("work")).stdin(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).replace(&here, DOCUMENTED)
    }
}

impl Server {
    fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        // The server gives root up: its directory must be where others can go.
        std::fs::set_permissions(data.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(server_program());
        harness::without_settings(&mut command);
        command.args(["--http-host", "127.0.0.1", "--http-port", "0", "--log-format", "json"]);
        command.env("SANDBOX_DATA_DIR", data.path().join("data"));
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let log: Value = serde_json::from_str(&line).ok()?;
            Some(log["fields"]["address"].as_str()?.to_owned())
        });
        std::thread::spawn(move || lines.for_each(drop));
        let port = address.expect("the server says where it listens").rsplit(':').next().unwrap().parse().unwrap();
        Self { child, port, _data: data }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where the programs are: those under test, or other builds of them whose figures are to be in the documents.
fn programs() -> PathBuf {
    let tested = || Path::new(harness::BINARY).parent().unwrap().to_owned();
    std::env::var_os("SANDBOX_PROGRAMS").map_or_else(tested, PathBuf::from)
}

/// The server belongs to another package, which is built already if all of them are tested.
fn server_program() -> PathBuf {
    let program = programs().join("sandbox-server");
    if !program.exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--locked", "--package", "sandbox-server", "--bin", "sandbox-server"]);
        assert!(build.status().unwrap().success());
    }
    program
}
