//! Where mounts and volumes may appear in a cell.

use std::path::{Component, Path, PathBuf};

use super::SYSTEM_DIRS;
use crate::error::Failure;
use crate::spec::{Mount, Volume};

/// Checks the targets of mounts and volumes: each acceptable, none inside another.
pub(crate) fn check_targets(mounts: &[Mount], volumes: &[Volume], slots: &[PathBuf]) -> Result<(), Failure> {
    let mounts = mounts.iter().map(|mount| &mount.target);
    let targets = || mounts.clone().chain(volumes.iter().map(|volume| &volume.target)).chain(slots);
    targets().try_for_each(|target| check_target(target))?;
    for (n, target) in targets().enumerate() {
        if let Some(other) = targets().take(n).find(|other| other.starts_with(target) || target.starts_with(other)) {
            let what = format!("cannot mount at {}", target.display());
            return Err(Failure::of_request(what, format!("it overlaps with {}", other.display())));
        }
    }
    Ok(())
}

/// Checks the target of a mount: absolute, without `..`, and neither a path that the cell's isolation depends on nor
/// one where the program could place a link.
fn check_target(target: &Path) -> Result<(), Failure> {
    let refuse = |why: &str| Failure::of_request(format!("cannot mount at {}", target.display()), why);
    let Ok(relative) = target.strip_prefix("/") else { return Err(refuse("the path is not absolute")) };
    if relative.as_os_str().is_empty() || !relative.components().all(|c| matches!(c, Component::Normal(_))) {
        return Err(refuse("the path contains '..' or is the root"));
    }
    let reserved = ["proc", "dev", "sys", "tmp", "sandbox", "home", "etc/ssl"];
    let own = ["ld.so.cache", "alternatives", "passwd", "group", "hosts", "nsswitch.conf", "resolv.conf"];
    if relative == Path::new("etc") || own.iter().any(|name| relative.starts_with(Path::new("etc").join(name))) {
        return Err(refuse("the file is reserved for the cell"));
    }
    if reserved.iter().chain(&SYSTEM_DIRS).any(|name| relative.starts_with(name)) {
        return Err(refuse("the directory is reserved for the cell"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_cannot_shadow_the_cell() {
        for target in [
            "/",
            "relative",
            "/proc",
            "/proc/self",
            "/dev/shm",
            "/etc",
            "/etc/passwd",
            "/etc/ssl/certs",
            "/usr/bin",
            "/sandbox/x",
            "/a/../proc",
            "/tmp/x",
        ] {
            assert!(check_target(Path::new(target)).is_err(), "{target}");
        }
        for target in ["/opt/python", "/data", "/srv/a/b", "/etc/java-17"] {
            assert!(check_target(Path::new(target)).is_ok(), "{target}");
        }
    }

    #[test]
    fn mounts_cannot_cover_each_other() {
        let mount = |target: &str| Mount::read_only("/srv", target);
        let volume = |target: &str| Volume { target: target.into(), size: 1, inodes: 1 };
        assert!(check_targets(&[mount("/data/a"), mount("/data/b")], &[volume("/data/c")], &[]).is_ok());
        assert!(check_targets(&[mount("/data"), mount("/data/b")], &[], &[]).is_err());
        assert!(check_targets(&[mount("/data/b")], &[volume("/data")], &[]).is_err());
        assert!(check_targets(&[], &[volume("/data"), volume("/data")], &[]).is_err());
    }
}
