//! Tests with ordinary and with malicious layers.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;

/// A layer under construction; headers are written unchecked.
struct Layer(tar::Builder<Vec<u8>>);

impl Layer {
    fn new() -> Self {
        Self(tar::Builder::new(vec![]))
    }

    fn entry(mut self, kind: EntryType, path: &str, link: Option<&str>, mode: u32, content: &[u8]) -> Self {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(1000);
        header.set_size(content.len() as u64);
        // Bypasses the checks of the tar builder.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        if let Some(link) = link {
            header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        }
        header.set_cksum();
        self.0.append(&header, content).expect("append");
        self
    }

    fn file(self, path: &str, content: &str) -> Self {
        self.entry(EntryType::Regular, path, None, 0o644, content.as_bytes())
    }

    fn dir(self, path: &str) -> Self {
        self.entry(EntryType::Directory, path, None, 0o755, b"")
    }

    fn symlink(self, path: &str, target: &str) -> Self {
        self.entry(EntryType::Symlink, path, Some(target), 0o777, b"")
    }

    fn link(self, path: &str, target: &str) -> Self {
        self.entry(EntryType::Link, path, Some(target), 0o644, b"")
    }

    fn bytes(self) -> Vec<u8> {
        self.0.into_inner().expect("whole")
    }
}

const TALLY: Tally = Tally { entries: 100, bytes: 1000, skipped: 0 };

/// Applies layers in a directory `root` that has a file of the host beside it.
fn stack(layers: Vec<Layer>) -> (tempfile::TempDir, io::Result<Tally>) {
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::create_dir(dir.path().join("root")).expect("mkdir");
    std::fs::write(dir.path().join("secret"), "secret").expect("write");
    let root = rustix::fs::open(dir.path().join("root"), rustix::fs::OFlags::DIRECTORY, Mode::empty()).expect("open");
    let (tree, mut tally) = (Tree::new(root), TALLY);
    let applied = layers.into_iter().try_for_each(|layer| apply(&tree, layer.bytes().as_slice(), &mut tally));
    let beside: Vec<_> =
        std::fs::read_dir(&dir).expect("list").map(|entry| entry.expect("entry").file_name()).collect();
    assert_eq!(beside.len(), 2, "{beside:?}");
    assert_eq!(std::fs::read_to_string(dir.path().join("secret")).expect("there"), "secret");
    (dir, applied.map(|()| tally))
}

fn names(dir: &Path) -> Vec<String> {
    let mut found = vec![];
    let mut dirs = vec![dir.to_owned()];
    while let Some(next) = dirs.pop() {
        for entry in std::fs::read_dir(next).expect("list").flatten() {
            found.push(entry.path().strip_prefix(dir).expect("inside").to_string_lossy().into_owned());
            if entry.file_type().expect("type").is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

fn good(layers: Vec<Layer>) -> (tempfile::TempDir, Vec<String>) {
    let (dir, applied) = stack(layers);
    applied.expect("applied");
    let found = names(&dir.path().join("root"));
    (dir, found)
}

fn refused(layer: Layer) -> String {
    stack(vec![layer]).1.expect_err("refused").to_string()
}

#[test]
fn a_layer_replaces_existing_entries() {
    let lower = Layer::new().dir("a").file("a/x", "old").file("a/y", "y").file("b", "file").dir("c").file("c/d", "");
    let upper = Layer::new().file("a/x", "new").dir("b").file("b/z", "z").file("c", "file now");
    let (dir, found) = good(vec![lower, upper]);
    assert_eq!(found, ["a", "a/x", "a/y", "b", "b/z", "c"]);
    assert_eq!(std::fs::read_to_string(dir.path().join("root/a/x")).expect("read"), "new");
}

#[test]
fn whiteouts_remove_entries_of_lower_layers_only() {
    let lower =
        || Layer::new().dir("a").file("a/x", "").file("a/y", "").dir("b").file("b/old", "").file("b/deep/o", "");
    let (_dir, found) =
        good(vec![lower(), Layer::new().file("a/.wh.x", "").file("b/new", "").file("b/.wh..wh..opq", "")]);
    assert_eq!(found, ["a", "a/y", "b", "b/new"]);
    let (_dir, found) = good(vec![lower(), Layer::new().file(".wh.a", "").file("a/z", "").file("b/.wh..wh..plnk", "")]);
    assert_eq!(found, ["a", "a/z", "b", "b/deep", "b/deep/o", "b/old"]);
    let (_dir, found) = good(vec![lower(), Layer::new().file("a/z", "").file(".wh.a", "")]);
    assert_eq!(found, ["a", "a/z", "b", "b/deep", "b/deep/o", "b/old"]);
    for nothing in [".wh.", ".wh..", ".wh..."] {
        assert!(refused(Layer::new().file(nothing, "")).contains("a whiteout without a name"), "{nothing}");
    }
}

#[test]
fn modes_are_kept_without_set_id_bits() {
    let layer = Layer::new()
        .entry(EntryType::Regular, "setuid", None, 0o6755, b"")
        .entry(EntryType::Regular, "private", None, 0o000, b"")
        .entry(EntryType::Directory, "sticky", None, 0o3777, b"")
        .entry(EntryType::Directory, "closed", None, 0o000, b"")
        .file("closed/file", "x");
    let (dir, _) = good(vec![layer]);
    let mode = |name: &str| std::fs::metadata(dir.path().join("root").join(name)).expect("stat").permissions().mode();
    assert_eq!(mode("setuid") & 0o7777, 0o755);
    assert_eq!(mode("private") & 0o7777, 0o400);
    assert_eq!(mode("sticky") & 0o7777, 0o1777);
    assert_eq!(mode("closed") & 0o7777, 0o700);
}

#[test]
fn devices_and_pipes_are_left_out() {
    let layer = Layer::new()
        .entry(EntryType::Char, "null", None, 0o666, b"")
        .entry(EntryType::Block, "disk", None, 0o666, b"")
        .entry(EntryType::Fifo, "pipe", None, 0o666, b"")
        .file("file", "");
    let (dir, applied) = stack(vec![layer]);
    assert_eq!(applied.expect("applied").skipped, 3);
    assert_eq!(names(&dir.path().join("root")), ["file"]);
}

#[test]
fn parent_paths_are_refused_and_absolute_ones_start_at_the_root() {
    for path in ["../evil", "a/../../evil", "..", "/../evil", "a/b/../../../evil"] {
        assert!(refused(Layer::new().file(path, "x")).contains("climbs"), "{path}");
    }
    let (_dir, found) = good(vec![Layer::new().file("/etc/x", "").file("./y", "").file("//z", "").dir("./").dir("/")]);
    assert_eq!(found, ["etc", "etc/x", "y", "z"]);
}

#[test]
fn links_never_lead_out() {
    // A link to the host directory, and then a file below it.
    let (dir, found) = good(vec![Layer::new().symlink("out", "..").file("out/evil", "x")]);
    assert_eq!(found, ["evil", "out"], "the root's parent is the root");
    assert!(!dir.path().join("evil").exists());
    let host = tempfile::tempdir().expect("tempdir");
    let absolute = host.path().to_str().expect("utf-8");
    let (_dir, _) = good(vec![Layer::new().symlink("abs", absolute).dir(absolute).file("abs/evil", "x")]);
    assert_eq!(std::fs::read_dir(host.path()).expect("list").count(), 0);
    let (_dir, found) =
        good(vec![Layer::new().symlink("a", "b/c").symlink("b", "/d/../../..").dir("c").file("a/file", "x")]);
    assert_eq!(found, ["a", "b", "c", "c/file", "d"]);
    // A file replaces a link instead of being written through it.
    let (dir, _) = good(vec![Layer::new().symlink("secret", "../secret").file("secret", "changed")]);
    assert_eq!(std::fs::read_to_string(dir.path().join("root/secret")).expect("read"), "changed");
    assert!(refused(Layer::new().symlink("x", "y").symlink("y", "x").file("x/z", "")).contains("symbolic links"));
    // A file used as a directory.
    assert!(refused(Layer::new().file("f", "").file("f/x", "")).contains("not a directory"));
    // Removing through a link removes entries inside the image.
    let (_dir, found) =
        good(vec![Layer::new().symlink("up", "../..").file("keep", ""), Layer::new().file("up/.wh.secret", "")]);
    assert_eq!(found, ["keep", "up"]);
}

#[test]
fn hard_links_refer_to_files_of_the_image() {
    let (dir, found) = good(vec![Layer::new().file("a", "x").link("b", "/a").link("d/c", "./a").link("a", "a")]);
    assert_eq!(found, ["a", "b", "d", "d/c"]);
    let inode = |name: &str| {
        std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(dir.path().join("root").join(name)).expect("stat"))
    };
    assert_eq!(inode("a"), inode("d/c"));
    assert!(refused(Layer::new().link("x", "../secret")).contains("climbs"));
    assert!(refused(Layer::new().link("x", "/etc/passwd")).contains("no such file"));
    assert!(refused(Layer::new().symlink("up", "..").link("x", "up/secret")).contains("does not exist"));
    assert!(refused(Layer::new().dir("d").link("x", "d")).contains("not a file"));
    // A hard link to a symbolic link is a link; overwriting it changes neither the first name nor the target.
    let (dir, _) = good(vec![Layer::new().symlink("l", "../secret").link("m", "l").file("m", "changed")]);
    assert!(dir.path().join("root/l").is_symlink());
}

#[test]
fn limits_stop_unpacking() {
    let many = (0..200).fold(Layer::new(), |layer, number| layer.file(&format!("f{number}"), ""));
    assert!(refused(many).contains("maximum number of files"));
    let large = Layer::new().file("a", &"x".repeat(600)).file("b", &"x".repeat(600));
    assert!(refused(large).contains("maximum size"));
    let mut cut_off = Layer::new().file("a", &"x".repeat(600)).bytes();
    cut_off.truncate(800);
    let dir = tempfile::tempdir().expect("tempdir");
    let root = rustix::fs::open(dir.path(), rustix::fs::OFlags::DIRECTORY, Mode::empty()).expect("open");
    assert!(apply(&Tree::new(root), cut_off.as_slice(), &mut TALLY.clone()).is_err());
    let deep = "d/".repeat(49);
    let chain = (0..4).fold(Layer::new().dir(&deep), |layer, number| layer.symlink(&format!("{deep}d{number}"), "."));
    good(vec![chain]);
}
