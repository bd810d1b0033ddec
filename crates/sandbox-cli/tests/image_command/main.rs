//! Images as root file systems: every supported format, runs in them, and hostile files.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod build;

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use tar::EntryType;

use build::{Packed, Tar, compress, docker_save, in_directory, in_one_file, oci_layout};
use sandbox_testing::command::{result, sandbox};

fn run(data: &Path, args: &[&str]) -> Output {
    sandbox(args).env("SANDBOX_DATA_DIR", data).output().unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Imports bytes as an image of this name.
fn import(data: &Path, name: &str, bytes: &[u8]) -> Output {
    let file = data.join(format!("{name}.tar"));
    std::fs::write(&file, bytes).unwrap();
    run(data, &["image", "import", file.to_str().unwrap(), "--name", name])
}

fn imported(data: &Path, name: &str, bytes: &[u8]) {
    let output = import(data, name, bytes);
    assert!(output.status.success(), "{}", printed(&output));
}

fn refused(bytes: &[u8], why: &str) {
    let data = tempfile::tempdir().unwrap();
    let output = import(data.path(), "bad", bytes);
    assert_eq!(output.status.code(), Some(2), "{}", printed(&output));
    assert_eq!(run(data.path(), &["image", "list"]).stdout, b"");
    assert!(!data.path().join("images/importing").exists(), "nothing is left");
    assert!(printed(&output).contains(why), "{}", printed(&output));
}

/// The output of a shell command in an image.
fn shell(data: &Path, image: &str, script: &str) -> String {
    let output = run(data, &["--image", image, "--quiet", "--", "/bin/sh", "-c", script]);
    assert!(output.status.success(), "{}", printed(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Two layers, of which the second removes, replaces and adds files.
fn layers() -> [Vec<u8>; 2] {
    let lower = Tar::new().busybox(&["sh", "ls", "cat", "env"]);
    let lower = lower.file("data/gone", 0o644, b"x").file("data/old", 0o644, b"old").file("dir/hidden", 0o644, b"");
    let upper =
        Tar::new().file("data/.wh.gone", 0o644, b"").file("data/old", 0o600, b"").file("data/old", 0o640, b"new");
    let upper = upper.file("dir/.wh..wh..opq", 0o644, b"").file("dir/shown", 0o4755, b"");
    [lower.bytes(), upper.bytes()]
}

#[test]
fn every_format_is_imported() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let [lower, upper] = layers();
    let settings = json!({"Env": ["GREETING=hello", "PATH=/bin"], "Entrypoint": ["/bin/sh", "-c"],
        "Cmd": ["echo $GREETING from $(pwd)"], "WorkingDir": "/data"});
    let layout = |packed| oci_layout(&[(lower.clone(), packed), (upper.clone(), packed)], &settings);
    in_directory(&layout(Packed::Gzip), &data.join("layout"));
    let from_directory = run(data, &["image", "import", data.join("layout").to_str().unwrap()]);
    assert!(from_directory.status.success(), "{}", printed(&from_directory));
    imported(data, "gzip", &in_one_file(&layout(Packed::Gzip)));
    imported(data, "zstd", &in_one_file(&layout(Packed::Zstd)));
    imported(data, "plain", &in_one_file(&layout(Packed::Plain)));
    let saved = in_one_file(&docker_save(&[lower.clone(), upper.clone()], &settings));
    imported(data, "saved", &saved);
    imported(data, "saved-gzip", &compress(&saved, Packed::Gzip));
    imported(data, "saved-zstd", &compress(&saved, Packed::Zstd));
    for image in ["from-layout:1", "gzip", "zstd", "plain", "saved", "saved-gzip", "saved-zstd"] {
        let script = "cat /data/old 2>&1; ls -l /data /dir | sed 's/ .* / /'";
        let shown = shell(data, image, &script.replace("sed", "/bin/busybox sed"));
        let expected = "cat: can't open '/data/old': Permission denied\n\
                        /data:\ntotal 4\n-rw-r----- old\n\n/dir:\ntotal 0\n-rwxr-xr-x shown\n";
        assert_eq!(shown, expected, "{image}");
        let own = run(data, &["exec", "--image", image, "--quiet"]);
        assert_eq!(String::from_utf8_lossy(&own.stdout), "hello from /data\n", "{image}: {}", printed(&own));
    }
    // The same content is stored once, whatever its format was.
    let list: Value = serde_json::from_slice(&run(data, &["image", "list", "--json"]).stdout).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 1, "{list:#}");
    assert_eq!(list[0]["config"]["WorkingDir"], "/data");
    assert_eq!(list[0]["names"].as_array().unwrap().len(), 7);
    // A root file system without metadata.
    imported(data, "root", &compress(&lower, Packed::Gzip));
    assert_eq!(shell(data, "root", "cat /data/old"), "old");
    for name in ["root", "gzip", "zstd"] {
        assert!(run(data, &["image", "rm", name]).status.success());
    }
    let gone = run(data, &["--image", "root", "--", "/bin/ls"]);
    assert!(printed(&gone).contains("no image 'root'"), "{}", printed(&gone));
    assert_eq!(shell(data, "plain", "echo $GREETING"), "hello\n");
}

#[test]
fn a_cell_with_an_image_sees_nothing_of_the_host() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let image = Tar::new().busybox(&["sh", "ls", "cat", "touch", "id", "mkdir"]);
    let image = image.file("etc/passwd", 0o644, b"root:x:0:0::/root:/bin/sh\napp:x:7:7::/:\n");
    let image = image.file("etc/own", 0o644, b"own\n").file("opt/app/x", 0o644, b"").link("etc/resolv.conf", "/proc/x");
    let image = image.file("home/app/.profile", 0o644, b"").file("proc/fake", 0o644, b"").file("dev/sda", 0o644, b"");
    imported(data, "i", &image.bytes());
    assert_eq!(shell(data, "i", "ls /"), "bin\ndev\netc\nhome\nmnt\nopt\nproc\nrun\nsandbox\ntmp\nvar\n");
    assert_eq!(shell(data, "i", "ls /dev /opt /home; id -un; cat /etc/own").lines().last(), Some("own"));
    assert!(!shell(data, "i", "ls /dev").contains("sda"));
    assert!(!shell(data, "i", "ls /proc").contains("fake"));
    assert_eq!(shell(data, "i", "id -un; ls /home"), "sandbox\napp\nsandbox\n");
    assert!(shell(data, "i", "cat /etc/passwd").contains("app:x:7:7"));
    assert_eq!(shell(data, "i", "cat /etc/resolv.conf").lines().next(), Some("nameserver 127.0.0.1"));
    for place in ["/", "/bin", "/etc", "/opt", "/opt/app", "/var", "/home", "/home/app"] {
        let shown = shell(data, "i", &format!("touch {place}/x 2>&1 || true; mkdir {place}/y 2>&1 || true"));
        assert_eq!(shown.matches("Read-only file system").count(), 2, "{place}: {shown}");
    }
    assert_eq!(shell(data, "i", "touch /tmp/a /var/tmp/b ~/c d && ls /tmp"), "a\nb\n");
    // The mounts of a run take precedence over the image.
    let shown = data.join("shown");
    std::fs::create_dir(&shown).unwrap();
    std::fs::write(shown.join("file"), "").unwrap();
    let volume = format!("{}:/opt/app/x:ro", shown.display());
    let allowed = ["--allow-path", shown.to_str().unwrap()];
    let mut args = vec!["--image", "i", "--quiet", "--volume", &volume];
    args.extend(allowed);
    args.extend(["--", "/bin/ls", "/opt/app/x"]);
    let listed = run(data, &args);
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "file\n", "{}", printed(&listed));
}

#[test]
fn links_of_an_image_do_not_redirect_mounts() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().to_str().unwrap();
    let image = Tar::new().busybox(&["sh", "ls"]).link("data", target).link("opt", "/proc").link("build", "/etc");
    imported(data, "i", &image.bytes());
    let output = run(data, &["--image", "i", "--quiet", "--volume", "v:/data/deep/er", "--", "/bin/ls", "/data/deep"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "er\n", "{}", printed(&output));
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn languages_use_the_toolchain_of_the_image() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let settings = json!({"Env": ["PATH=/opt/python/bin:/bin", "PYTHONHOME=/opt/python"]});
    imported(data, "python", &in_one_file(&oci_layout(&[(build::python(), Packed::Gzip)], &settings)));
    let code = "import sys, json\nprint(sys.executable, json.dumps([1]))\n6 * 7";
    for _ in 0..2 {
        let output = run(data, &["--image", "python", "--lang", "python", "--json", "--code", code]);
        let result = result(&output);
        assert_eq!(result["verdict"], "ok", "{result:#}");
        let stdout = result["stdout"].as_str().unwrap();
        assert!(stdout.starts_with("/opt/python/bin/python3") && stdout.ends_with(" [1]\n"), "{stdout}");
        assert_eq!(result["result"], "42");
        assert!(result["version"].as_str().unwrap().starts_with("3."));
    }
    for language in ["javascript", "go"] {
        let output = run(data, &["--image", "python", "--lang", language, "--code", "1"]);
        assert_eq!(output.status.code(), Some(2));
        let text = format!("a toolchain for {language} was not found in the image 'python'");
        assert!(printed(&output).contains(&text), "{}", printed(&output));
    }
    let package = ["--image", "python", "--lang", "python", "--package", "six", "--code", "1"];
    assert!(printed(&run(data, &package)).contains("'uv' was not found in the image"));
    // The version of a program in an image is determined in a cell.
    let liar =
        b"#!/bin/sh\necho x > /host-was-here 2>/dev/null\necho version=9.9\necho executable=$0\necho prefix=/usr\n";
    imported(data, "liar", &Tar::new().busybox(&["sh"]).file("usr/bin/python3", 0o755, liar).bytes());
    run(data, &["--image", "liar", "--lang", "python", "--code", "1"]);
    assert!(!Path::new("/host-was-here").exists());
}

#[test]
fn damaged_images_are_refused() {
    let [lower, upper] = layers();
    let mut files = oci_layout(&[(lower.clone(), Packed::Gzip), (upper, Packed::Plain)], &json!({}));
    let last = files[3].1.len() - 600;
    files[3].1[last] ^= 1;
    refused(&in_one_file(&files), "layer 2: ");
    let mut saved = docker_save(std::slice::from_ref(&lower), &json!({}));
    saved[0].1[4096] ^= 1;
    refused(&in_one_file(&saved), "should have the digest");
    let mut cut_off = oci_layout(&[(lower.clone(), Packed::Gzip)], &json!({}));
    cut_off.remove(2);
    refused(&in_one_file(&cut_off), "is missing");
    refused(b"hello", "not a tar file");
    refused(b"", "it is empty");
    refused(&[b'x'; 5000], "not a tar file");
    refused(&compress(&lower, Packed::Gzip)[..5000], "cannot import");
    let mut other = docker_save(&[lower], &json!({}));
    let text = String::from_utf8(other[1].1.clone()).unwrap().replace("amd64", "s390x").replace("arm64", "s390x");
    other[1] = ("x.json".to_owned(), text.into_bytes());
    let manifest = String::from_utf8(other[2].1.clone()).unwrap();
    let name = manifest.split('"').nth(3).unwrap();
    other[2].1 = manifest.replace(name, "x.json").into_bytes();
    refused(&in_one_file(&other), "it is for s390x");
}

#[test]
fn hostile_images_are_refused_or_harmless() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().to_str().unwrap();
    refused(&Tar::new().file("../../evil", 0o644, b"x").bytes(), "climbs");
    refused(&Tar::new().entry(EntryType::Link, "x", "../../../etc/passwd", 0, b"").bytes(), "climbs");
    refused(&Tar::new().entry(EntryType::Link, "x", "/etc/passwd", 0, b"").bytes(), "no such file");
    // Zeroes beyond the maximum size.
    let bomb = compress(&Tar::new().file("zeros", 0o644, &vec![0; 64 << 20]).bytes(), Packed::Gzip);
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("bomb.tar");
    std::fs::write(&file, &bomb).unwrap();
    let mut command = sandbox(&["image", "import", file.to_str().unwrap()]);
    let output = command.env("SANDBOX_DATA_DIR", data.path()).env("SANDBOX_IMAGE_SIZE", "4m").output().unwrap();
    assert!(printed(&output).contains("exceeds the maximum size of an unpacked image"), "{}", printed(&output));
    // Links, and then entries below or through them.
    let image = Tar::new()
        .busybox(&["sh", "ls"])
        .link("a", target)
        .file("a/evil", 0o644, b"x")
        .link("b", "../../../../../..")
        .file(&format!("b{target}/evil"), 0o644, b"x")
        .link("c", &format!("{target}/evil"))
        .file("c", 0o644, b"x")
        .entry(EntryType::Char, "dev/mem", "", 0o666, b"")
        .entry(EntryType::Fifo, "pipe", "", 0o666, b"")
        .file("bin/su", 0o4755, b"");
    let data = tempfile::tempdir().unwrap();
    imported(data.path(), "hostile", &image.bytes());
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    assert_eq!(shell(data.path(), "hostile", "ls -l /bin/su").get(..10), Some("-rwxr-xr-x"));
    let list: Value = serde_json::from_slice(&run(data.path(), &["image", "list", "--json"]).stdout).unwrap();
    assert_eq!(list[0]["skipped"], 2, "{list:#}");
}
