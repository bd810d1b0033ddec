//! Layers of images, one on another, and whole files that may be images: nothing is created outside the root.
#![no_main]

use std::io::Write;
use std::os::fd::OwnedFd;

use libfuzzer_sys::fuzz_target;
use sandbox_images::{ImageCaps, UnpackTask, unpack};

fuzz_target!(|layers: (&[u8], &[u8])| {
    let dir = tempfile::tempdir_in("/dev/shm").expect("tempdir");
    let root = dir.path().join("a/root");
    std::fs::create_dir_all(&root).expect("mkdir");
    std::fs::write(dir.path().join("secret"), "secret").expect("write");
    let fd = OwnedFd::from(std::fs::File::open(&root).expect("open"));
    let _ = sandbox_images::fuzz::layers(fd, &[layers.0, layers.1], 50, 1 << 20);
    let names = |path: std::path::PathBuf| std::fs::read_dir(path).expect("list").count();
    assert_eq!((names(dir.path().to_owned()), names(dir.path().join("a"))), (2, 1));
    assert_eq!(std::fs::read(dir.path().join("secret")).expect("there"), b"secret");

    let mut file = tempfile::tempfile_in("/dev/shm").expect("tempfile");
    file.write_all(layers.0).expect("write");
    let into = dir.path().join("b");
    std::fs::create_dir(&into).expect("mkdir");
    let answer = unpack(&file, &into, UnpackTask { caps: ImageCaps { entries: 50, bytes: 1 << 20 } });
    if let Err(why) = answer {
        assert!(why.len() < 1000, "{why}");
    }
    assert!(names(into) <= 1);
});
