//! The session in which a document's commands run: an empty directory, the programs under test, and a server if one is
//! used.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use sandbox_testing::command::without_settings;
use sandbox_testing::{TestServer, build_dir, data_dir};

use super::transcript::Example;

/// The server's address in documents.
const DOCUMENTED: &str = "localhost:8080";

pub(crate) struct Session {
    home: tempfile::TempDir,
    server: Option<TestServer>,
}

impl Session {
    pub(crate) fn start(examples: &[Example]) -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::create_dir(home.path().join("work")).unwrap();
        let data = home.path().join("data");
        std::fs::create_dir(&data).unwrap();
        // Volumes and images are private to the session; toolchains are prepared once for all tests.
        for kept in ["builds", "environments"] {
            let shared = data_dir().join(kept);
            std::fs::create_dir_all(&shared).unwrap();
            symlink(shared, data.join(kept)).unwrap();
        }
        let server = examples.iter().any(|example| example.command.contains(DOCUMENTED)).then(start_server);
        Self { home, server }
    }

    /// Runs a command in a shell; returns everything it printed.
    pub(crate) fn run(&self, command: &str) -> String {
        let here = self
            .server
            .as_ref()
            .map_or(DOCUMENTED.to_owned(), |server| server.address.replace("127.0.0.1", "localhost"));
        let path = format!("{}:{}", programs().display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("bash");
        // One pipe for both streams, as in a terminal.
        shell.arg("-c").arg(format!("exec 2>&1\n{}", command.replace(DOCUMENTED, &here)));
        without_settings(&mut shell);
        shell.env("PATH", path).env("SANDBOX_DATA_DIR", self.home.path().join("data"));
        let output = shell.current_dir(self.home.path().join("work")).stdin(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).replace(&here, DOCUMENTED)
    }
}

/// Starts the server that the documents' commands use.
fn start_server() -> TestServer {
    let mut command = Command::new(server_program());
    without_settings(&mut command);
    let data = tempfile::tempdir().unwrap();
    // The server drops root privileges: others must be able to enter its directory.
    std::fs::set_permissions(data.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    TestServer::launch(command, data, &[], &[])
}

/// The directory of the programs: those under test, or other builds for fresh figures.
fn programs() -> PathBuf {
    let tested = || build_dir().to_owned();
    std::env::var_os("SANDBOX_PROGRAMS").map_or_else(tested, PathBuf::from)
}

/// The server belongs to another package, which is already built if all packages are tested.
fn server_program() -> PathBuf {
    let program = programs().join("sandbox-server");
    if !program.exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--locked", "--package", "sandbox-server", "--bin", "sandbox-server"]);
        assert!(build.status().unwrap().success());
    }
    program
}
