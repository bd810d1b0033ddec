//! The data directory, the caches in it, and images.

use std::path::Path;

use rustix::fs::{Access, access, statvfs};
use rustix::io::Errno;
use sandbox_base::counted;
use sandbox_base::units::format_size;
use sandbox_executor::Settings;
use sandbox_images::ImageStore;
use sandbox_runtimes::{ArtifactKind, ArtifactStore};

use super::check::HostCheck;

/// Less free space than this may not suffice to prepare a toolchain or to install packages.
const LITTLE: u64 = 1 << 30;

const DATA: &str = "data directory";

pub(super) fn storage(settings: &Settings) -> Vec<HostCheck> {
    let Some(dir) = &settings.data_dir else {
        let cost = "nothing is cached between runs, and there are no images or named volumes";
        return vec![HostCheck::warning(
            DATA,
            "there is none".to_owned(),
            cost,
            "set HOME or SANDBOX_DATA_DIR".to_owned(),
        )];
    };
    let caches = [
        ("compiled programs", ArtifactKind::Build, settings.build_cache),
        ("packages, toolchains", ArtifactKind::Environment, settings.package_cache),
    ];
    let list = ArtifactStore::new(dir).list();
    let cache = |(name, kind, most): (&str, ArtifactKind, u64)| {
        let sizes: Vec<u64> = list.iter().filter(|entry| entry.kind == kind.name()).map(|entry| entry.size).collect();
        let (count, size) = (sizes.len(), format_size(sizes.iter().sum()));
        HostCheck::ok(name, format!("{count} cached, {size} of {}", format_size(most)))
    };
    let images = ImageStore::new(dir).list();
    let size = format_size(images.iter().map(|image| image.about.size).sum());
    let mut checks = vec![data_directory(dir)];
    checks.extend(caches.map(cache));
    checks.push(HostCheck::ok("images", format!("{}, {size}", counted(images.len(), "image"))));
    checks
}

/// The data directory, which the first run creates.
fn data_directory(dir: &Path) -> HostCheck {
    let exists = dir.is_dir();
    let shown = format!("{}{}", dir.display(), if exists { "" } else { " (not created yet)" });
    let nearest = dir.ancestors().find(|ancestor| ancestor.is_dir()).unwrap_or(Path::new("/"));
    let free = statvfs(nearest).ok().map(|about| about.f_bavail.saturating_mul(about.f_frsize));
    judge_directory(&shown, access(nearest, Access::WRITE_OK | Access::EXEC_OK), free)
}

fn judge_directory(shown: &str, writable: Result<(), Errno>, free: Option<u64>) -> HostCheck {
    if let Err(errno) = writable {
        let why = sandbox_base::reason(&errno.into());
        let cost = "compiled languages, packages, images and named volumes do not work";
        let fix = "change its owner, or set SANDBOX_DATA_DIR".to_owned();
        return HostCheck::missing(DATA, format!("{shown} cannot be written ({why})"), cost, fix);
    }
    match free {
        Some(free) if free < LITTLE => {
            let cost = "toolchains and packages may not fit";
            let fix = "sandbox-run cache prune, or set SANDBOX_DATA_DIR to a larger disk".to_owned();
            HostCheck::warning(DATA, format!("{shown}, only {} free", format_size(free)), cost, fix)
        }
        Some(free) => HostCheck::ok(DATA, format!("{shown}, {} free", format_size(free))),
        None => HostCheck::ok(DATA, shown.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::CheckState;

    #[test]
    fn the_data_directory_is_examined_before_it_exists() {
        let dir = tempfile::tempdir().expect("tempdir");
        let here = data_directory(dir.path());
        assert!(here.what.starts_with(&format!("{}, ", dir.path().display())), "{here:?}");
        let later = data_directory(&dir.path().join("a/b"));
        assert!(later.what.contains("a/b (not created yet), ") && later.what.ends_with(" free"), "{later:?}");
        assert!(!dir.path().join("a").exists());
    }

    #[test]
    fn little_space_is_a_warning() {
        let check = |free: Option<u64>| judge_directory("/data", Ok(()), free);
        assert_eq!(check(Some(LITTLE)), HostCheck::ok(DATA, "/data, 1 GiB free".to_owned()));
        assert_eq!(check(None), HostCheck::ok(DATA, "/data".to_owned()));
        let little = check(Some(LITTLE - 1));
        assert_eq!((little.state, little.fix.is_some()), (CheckState::Warning, true));
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_named() {
        let check = judge_directory("/data", Err(Errno::ACCESS), Some(u64::MAX));
        assert_eq!(check.state, CheckState::Missing);
        assert_eq!(check.what, "/data cannot be written (permission denied)");
    }

    #[test]
    fn without_a_home_nothing_is_kept() {
        let none = storage(&Settings { data_dir: None, ..Settings::default() });
        assert_eq!((none.len(), none[0].state), (1, CheckState::Warning));
        let dir = tempfile::tempdir().expect("tempdir");
        let some = storage(&Settings { data_dir: Some(dir.path().to_owned()), ..Settings::default() });
        let names: Vec<&str> = some.iter().map(|check| check.name.as_str()).collect();
        assert_eq!(names, [DATA, "compiled programs", "packages, toolchains", "images"]);
        assert_eq!(some[1].what, "0 cached, 0 B of 1 GiB");
        assert_eq!(some[3].what, "0 images, 0 B");
    }
}
