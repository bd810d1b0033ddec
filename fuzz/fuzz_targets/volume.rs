//! Volumes and working directories in requests.
#![no_main]

use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use sandbox_executor::VolumeRequest;
use sandbox_executor::fuzz::check_workdir;

fuzz_target!(|text: &str| {
    match VolumeRequest::parse(text) {
        Ok(VolumeRequest::Named { name, target, size }) => {
            assert!(target.is_absolute() && size >= 4096);
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            assert!((1..=64).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('.'), "{name:?}");
        }
        Ok(VolumeRequest::Host { source, target, .. }) => {
            assert!(target.is_absolute());
            assert!(!source.as_os_str().is_empty() && text.starts_with(source.to_str().expect("text")));
        }
        Err(error) => assert!(!error.contains(char::is_control) && error.len() < 600, "{error:?}"),
    }
    if check_workdir(Path::new(text)).is_ok() {
        let mut components = Path::new(text).components();
        assert!(components.all(|part| matches!(part, Component::Normal(_) | Component::RootDir)));
        assert!(!text.is_empty() && !text.split('/').any(|part| part == ".."));
    }
});
