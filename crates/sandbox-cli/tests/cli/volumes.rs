//! Volumes: host directories, and named volumes that persist.

use std::path::Path;
use std::process::{Command, Output};

use sandbox_testing::command::{result, run, sandbox};
use sandbox_testing::needs;
use serde_json::Value;

fn python(data: &Path, code: &str, flags: &[&str]) -> Value {
    let mut command = sandbox(&["--lang", "python", "--json", "--code", code]);
    result(&command.args(flags).env("SANDBOX_DATA_DIR", data).output().unwrap())
}

#[test]
fn a_named_volume_persists() {
    let data = tempfile::tempdir().unwrap();
    let volume = ["--volume", "db:/data"];
    let first = "
import os, sqlite3
db = sqlite3.connect('/data/x.db')
db.execute('create table t (n)')
db.execute('insert into t values (42)')
db.commit()
os.makedirs('/data/a/empty')
os.symlink('x.db', '/data/link')
";
    let result = python(data.path(), first, &volume);
    assert_eq!(result["verdict"], "ok", "{result:#}");
    assert_eq!(result["files"], serde_json::json!({}), "a volume is not the working directory");
    let second = "
import os, sqlite3
print(sqlite3.connect('/data/link').execute('select n from t').fetchone(), os.listdir('/data/a'))
";
    let result = python(data.path(), second, &volume);
    assert_eq!(result["stdout"], "(42,) ['empty']\n", "{result:#}");
    let other = python(data.path(), "import os; print(os.listdir('/data'))", &["--volume", "other:/data"]);
    assert_eq!(other["stdout"], "[]\n", "each name is a separate volume");
}

#[test]
fn a_named_volume_has_a_size() {
    let data = tempfile::tempdir().unwrap();
    let fill = "open('/data/f', 'wb').write(bytes(2_000_000))";
    let result = python(data.path(), fill, &["--volume", "small:/data:1m"]);
    assert_eq!(result["verdict"], "disk_limit", "{result:#}");
    let result = python(data.path(), fill, &["--volume", "large:/data:4m"]);
    assert_eq!(result["verdict"], "ok", "{result:#}");
}

#[test]
fn a_killed_run_keeps_its_changes_to_a_volume() {
    let data = tempfile::tempdir().unwrap();
    let volume = ["--volume", "v:/data", "--timeout", "500ms"];
    let killed = python(data.path(), "open('/data/f', 'w').write('kept')\nwhile True: pass", &volume);
    assert_eq!(killed["verdict"], "timeout");
    let next = python(data.path(), "print(open('/data/f').read())", &["--volume", "v:/data"]);
    assert_eq!(next["stdout"], "kept\n");
}

#[test]
fn runs_that_share_a_volume_are_serialised() {
    let data = tempfile::tempdir().unwrap();
    let code = "
import os, time
n = int(open('/data/n').read()) if os.path.exists('/data/n') else 0
time.sleep(0.1)
open('/data/n', 'w').write(str(n + 1))
";
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(python(data.path(), code, &["--volume", "n:/data"])["verdict"], "ok"));
        }
    });
    assert_eq!(python(data.path(), "print(open('/data/n').read())", &["--volume", "n:/data"])["stdout"], "4\n");
}

#[test]
fn host_directories_are_refused_unless_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    std::fs::write(path.join("f"), "from the host").unwrap();
    std::os::unix::fs::symlink("/etc", path.join("link")).unwrap();
    let volume = |source: &str, option: &str| format!("{source}:/data{option}");
    let plain = volume(path.to_str().unwrap(), "");
    let allowed = ["--allow-path", path.to_str().unwrap()];
    let shown = |source: &str, flags: &[&str]| {
        let mut args = vec!["exec", "--volume", source];
        args.extend_from_slice(flags);
        args.extend(["--", "sh", "-c", "cat /data/f; echo x > /data/g"]);
        run(&args)
    };
    let text = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let refused = shown(&plain, &[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused).contains("the path is not allowed; allow it with --allow-path"));
    let through_link = shown(&volume(path.join("link").to_str().unwrap(), ""), &allowed);
    assert!(text(&through_link).contains("is not allowed"), "{}", text(&through_link));

    make_readable(&path);
    let read_only = shown(&plain, &allowed);
    assert_eq!(String::from_utf8_lossy(&read_only.stdout), "from the host");
    assert!(text(&read_only).contains("Read-only file system"), "{}", text(&read_only));
    for target in ["/proc", "/etc/passwd", "/usr/lib", "/tmp/x", "/"] {
        let shadowed = shown(&format!("{}:{target}", path.display()), &allowed);
        assert_eq!(shadowed.status.code(), Some(2), "{target}");
    }
}

fn make_readable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn a_writable_host_directory_keeps_its_owner() {
    use std::os::unix::fs::MetadataExt;
    // The build directory is usually on a disk.
    if !needs::root() || !needs::mapped_ids(sandbox_testing::scratch_dir()) {
        return;
    }
    let dir = tempfile::tempdir_in(sandbox_testing::scratch_dir()).unwrap();
    let path = dir.path().canonicalize().unwrap();
    let owner = Command::new("chown").arg("4321:4321").arg(&path).status().unwrap();
    assert!(owner.success());
    let volume = format!("{}:/data:rw", path.display());
    let mut command = sandbox(&["exec", "--volume", &volume, "--", "sh", "-c", "echo made > /data/f; ls -ln /data"]);
    let output = command.env("SANDBOX_VOLUME_PATHS", &path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1000 1000"), "the cell's user owns it, inside");
    let made = path.join("f").metadata().unwrap();
    assert_eq!((made.uid(), made.gid()), (4321, 4321), "its owner owns it, outside");
}

#[test]
fn invalid_volumes_are_refused() {
    for volume in ["x", "x:y", "a/b", "db:/data:huge", "db:/data:ro", "/srv:/data:rx", "..:/data:xx"] {
        let output = run(&["--lang", "python", "--code", "1", "--volume", volume]);
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{volume}: {complaint}");
        assert!(complaint.contains(&format!("volume '{volume}'")), "{complaint}");
    }
    let twice = run(&["--lang", "python", "--code", "1", "--volume", "a:/data", "--volume", "b:/data/x"]);
    assert!(String::from_utf8_lossy(&twice.stderr).contains("it overlaps with /data"));
}
