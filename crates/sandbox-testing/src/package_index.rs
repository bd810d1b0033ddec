//! A package index on loopback, with packages created for the test.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// An index that serves until it is dropped.
#[derive(Debug)]
pub struct TestIndex {
    shared: Arc<IndexState>,
    port: u16,
}

#[derive(Debug, Default)]
struct IndexState {
    /// Packages by name: an archive of version 1.0.
    packages: Mutex<HashMap<String, Vec<u8>>>,
    /// How often an archive was requested.
    downloads: AtomicUsize,
    /// Whether archives are announced but not sent.
    stalled: AtomicBool,
    /// The required header, and the URL prefix of links then.
    locked: Mutex<Option<(String, String)>>,
    /// How many requests came without it.
    refused: AtomicUsize,
    over: AtomicBool,
}

impl TestIndex {
    /// Starts an empty index.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(IndexState::default());
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                if serving.over.load(Ordering::Relaxed) {
                    return;
                }
                let (connection, shared) = (connection.unwrap(), Arc::clone(&serving));
                std::thread::spawn(move || shared.serve(connection));
            }
        });
        Self { shared, port }
    }

    /// Its address, for `SANDBOX_PYTHON_INDEX`.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/simple/", self.port)
    }

    /// Its port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on, requests need the password. Links are absolute URLs.
    pub fn lock(&self, user: &str, password: &str, origin: &str) {
        let header = format!("Authorization: Basic {}", STANDARD.encode(format!("{user}:{password}")));
        *self.shared.locked.lock().unwrap() = Some((header, origin.to_owned()));
    }

    /// How many requests came without the password.
    pub fn refused(&self) -> usize {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// How often an archive was requested.
    pub fn downloads(&self) -> usize {
        self.shared.downloads.load(Ordering::Relaxed)
    }

    /// From now on, archives are announced but not sent.
    pub fn stall(&self, stalled: bool) {
        self.shared.stalled.store(stalled, Ordering::Relaxed);
    }

    /// Offers a package whose build runs `build`, Python code that may add to `files`, the content of the package.
    pub fn offer(&self, name: &str, build: &str) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join(format!("{name}-1.0"));
        std::fs::create_dir(&root).unwrap();
        let project = format!(
            "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n\
             [project]\nname = \"{name}\"\nversion = \"1.0\"\n"
        );
        std::fs::write(root.join("pyproject.toml"), project).unwrap();
        let info = format!("Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n");
        std::fs::write(root.join("PKG-INFO"), &info).unwrap();
        std::fs::write(root.join("backend.py"), backend(name, build)).unwrap();
        let archive = dir.path().join("archive.tar.gz");
        let mut pack = Command::new("tar");
        pack.arg("czf").arg(&archive).arg("-C").arg(dir.path()).arg(format!("{name}-1.0"));
        assert!(pack.status().unwrap().success());
        self.shared.packages.lock().unwrap().insert(name.to_owned(), std::fs::read(archive).unwrap());
    }
}

impl Drop for TestIndex {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// A build backend without dependencies: it writes the wheel itself.
fn backend(name: &str, build: &str) -> String {
    let build: String = build.lines().map(|line| format!("    {line}\n")).collect();
    format!(
        r#"
import os, socket, sys, zipfile
def build_wheel(directory, config_settings=None, metadata_directory=None):
    files = {{"{name}.py": "value = 42\n"}}
{build}
    info = "{name}-1.0.dist-info"
    files[info + "/METADATA"] = "Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    files[info + "/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[info + "/RECORD"] = "".join(path + ",,\n" for path in files) + info + "/RECORD,,\n"
    wheel = "{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, wheel), "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return wheel
"#
    )
}

impl IndexState {
    fn serve(&self, mut connection: TcpStream) {
        let mut lines = BufReader::new(connection.try_clone().unwrap()).lines();
        let Some(Ok(first)) = lines.next() else { return };
        let headers: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let (header, origin) = self.locked.lock().unwrap().clone().unwrap_or_default();
        if !header.is_empty() && !headers.iter().any(|line| line.eq_ignore_ascii_case(&header)) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let _ =
                connection.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            return;
        }
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let packages = self.packages.lock().unwrap().clone();
        let name = path.trim_start_matches("/simple/").trim_end_matches('/').to_owned();
        let (status, kind, body) = if let Some(name) = path.strip_prefix("/files/") {
            self.downloads.fetch_add(1, Ordering::Relaxed);
            let name = name.trim_end_matches("-1.0.tar.gz");
            ("200 OK", "application/gzip", packages.get(name).cloned().unwrap_or_default())
        } else if packages.contains_key(&name) {
            let page = format!("<a href=\"{origin}/files/{name}-1.0.tar.gz\">{name}-1.0.tar.gz</a>");
            ("200 OK", "text/html", page.into_bytes())
        } else {
            ("404 Not Found", "text/plain", b"no such package".to_vec())
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        let _ = connection.write_all(head.as_bytes());
        if path.starts_with("/files/") {
            while self.stalled.load(Ordering::Relaxed) && !self.over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let _ = connection.write_all(&body);
    }
}

/// The names in a folder; none if it does not exist.
pub fn entries(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
