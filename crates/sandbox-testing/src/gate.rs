//! A gate for programs in cells: they wait until their test opens it. A test that uses one does not depend on how long
//! a program sleeps.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use tempfile::TempDir;

/// A host directory that programs mount, and in which they wait for a file.
#[derive(Debug)]
pub struct Gate(TempDir);

impl Gate {
    /// A closed gate.
    pub fn closed() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // The server drops root privileges: others must be able to enter the directory.
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        Self(dir)
    }

    /// The variable of a server that lets requests mount the gate.
    pub fn variable(&self) -> (&str, &str) {
        ("SANDBOX_VOLUME_PATHS", self.path())
    }

    /// A request whose Python program waits at the gate and then runs this code.
    pub fn request(&self, then: &str) -> Value {
        let code = format!("import os, time\nwhile not os.path.exists('/gate/open'):\n    time.sleep(0.02)\n{then}");
        json!({"code": code, "volumes": [format!("{}:/gate", self.path())], "timeout": 300})
    }

    /// Lets all programs continue.
    pub fn open(&self) {
        std::fs::write(self.0.path().join("open"), "").unwrap();
    }

    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }
}
