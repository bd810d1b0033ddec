//! The server's files are private: other users of the host cannot read them.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use sandbox_testing::needs;
use serde_json::json;

use crate::Server;

/// Everything directly in a directory, and itself, with its mode.
fn modes(dir: &Path) -> Vec<(String, u32)> {
    let mode = |path: &Path| path.symlink_metadata().unwrap().mode() & 0o7777;
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    let mut modes: Vec<_> =
        entries.map(|entry| (entry.file_name().into_string().unwrap(), mode(&entry.path()))).collect();
    modes.push((".".to_owned(), mode(dir)));
    modes.sort();
    modes
}

fn use_everything(server: &Server) {
    let (_, built) = server.post(&json!({"language": "c", "code": "int main(void) { return 5; }"}));
    assert_eq!(built["exit_code"], 5, "{built:#}");
    let (_, kept) = server.post(&json!({"code": "open('/v/x', 'w').write('x')", "volumes": ["v:/v:1m"]}));
    assert_eq!(kept["verdict"], "ok", "{kept:#}");
    assert_eq!(server.send_to("/v1/execute", &[], br#"{"code": "1"}"#).1.0, 202);
}

/// The modes of a directory that is private, or that users of cells can pass but not list.
fn wanted(dir: u32, names: &[&str]) -> Vec<(String, u32)> {
    let mode = |name: &str| match name {
        "backup.sock" | "jobs.redb" | "runtimes.json" => 0o600,
        "volumes" => 0o700,
        _ => dir,
    };
    names.iter().map(|name| ((*name).to_owned(), mode(name))).collect()
}

#[test]
fn the_data_directory_is_private() {
    let variables = [("SANDBOX_NAMED_VOLUMES", "yes")];
    let mut server = Server::start_with(&["--zygotes", "0"], &variables);
    use_everything(&server);
    let data = server.data.take().unwrap();
    let dir = data.path().join("data");
    let names = [".", "backup.sock", "builds", "jobs.redb", "runtimes.json", "volumes"];
    assert_eq!(modes(&dir), wanted(0o700, &names));
    drop(server);
    // As an older version has left it, and under another name.
    for name in names {
        let wide = if dir.join(name).is_dir() { 0o755 } else { 0o644 };
        std::fs::set_permissions(dir.join(name), PermissionsExt::from_mode(wide)).unwrap();
    }
    std::fs::rename(&dir, data.path().join("moved")).unwrap();
    symlink("moved", &dir).unwrap();
    let mut server = Server::start_in(data, &["--zygotes", "0"], &variables);
    use_everything(&server);
    let data = server.data.take().unwrap();
    assert_eq!(modes(&data.path().join("moved")), wanted(0o700, &names));
}

#[test]
fn data_directory_that_cells_traverse_cannot_be_listed() {
    if !needs::root() {
        return;
    }
    let server = Server::start_with(&[], &[("SANDBOX_NAMED_VOLUMES", "yes")]);
    use_everything(&server);
    let dir = server.data.as_ref().unwrap().path().join("data");
    let names = [".", "backup.sock", "builds", "environments", "jobs.redb", "runtimes.json", "volumes"];
    assert_eq!(modes(&dir), wanted(0o711, &names));
}

#[test]
fn a_directory_with_other_files_is_not_handed_over() {
    if !needs::root() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("letter.txt"), "mine").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox-server"));
    let output = command.env("SANDBOX_DATA_DIR", data.path()).args(["--http-port", "0"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && text.contains("SANDBOX_DATA_DIR"), "{text}");
    assert_eq!(data.path().join("letter.txt").metadata().unwrap().uid(), 0);
}
