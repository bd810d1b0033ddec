//! Finds where this process may create cgroups.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The directories in which cgroups can be created.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CgroupLocation {
    V1(V1Location),
    V2(V2Location),
}

/// The directory of each relevant controller, in version 1 or hybrid set-ups.
pub(super) type V1Location = BTreeMap<&'static str, PathBuf>;

/// The position of this process in the version 2 tree.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct V2Location {
    /// The visible top of the tree.
    pub(super) top: PathBuf,
    /// The cgroup of this process.
    pub(super) own: PathBuf,
}

/// The controllers that cells use.
pub(super) const CONTROLLERS: [&str; 4] = ["memory", "pids", "cpu", "cpuacct"];

/// Determines the location from what /proc reports about this process.
pub(super) fn find() -> Result<CgroupLocation, String> {
    let read = |path: &str| read_whole(path).map_err(|e| format!("cannot read {path}: {e}"));
    let own = read("/proc/self/cgroup")?;
    let mounts = read("/proc/self/mountinfo")?;
    let controllers = |top: &Path| std::fs::read_to_string(top.join("cgroup.controllers")).unwrap_or_default();
    place(&mounts, &own, controllers)
}

/// Reads a file of /proc in large chunks, because the kernel regenerates the content for each read.
fn read_whole(path: &str) -> std::io::Result<String> {
    let mut text = Vec::with_capacity(64 * 1024);
    std::fs::File::open(path)?.read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A cgroup mount.
struct CgroupMount<'a> {
    /// The mounted part of the tree.
    root: PathBuf,
    point: PathBuf,
    version: u8,
    options: &'a str,
}

fn place(mounts: &str, own: &str, controllers: impl Fn(&Path) -> String) -> Result<CgroupLocation, String> {
    let mounts: Vec<CgroupMount<'_>> = mounts.lines().filter_map(parse_mount).collect();
    // One line for each hierarchy: number:controllers:path. Number 0 is version 2.
    let groups: Vec<(&str, &str)> = own
        .lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            Some((controllers, path))
        })
        .collect();

    if let Some(mount) = mounts.iter().find(|m| m.version == 2) {
        let has_memory = controllers(&mount.point).split_ascii_whitespace().any(|c| c == "memory");
        if let Some((_, path)) = groups.iter().find(|(controllers, _)| controllers.is_empty()).filter(|_| has_memory) {
            let own = visible(mount, path).ok_or_else(|| why_invisible(mount))?;
            return Ok(CgroupLocation::V2(V2Location { top: mount.point.clone(), own }));
        }
    }

    let mut found = V1Location::new();
    for controller in CONTROLLERS {
        let named = |list: &str| list.split(',').any(|c| c == controller);
        let mount = mounts.iter().find(|m| m.version == 1 && named(m.options));
        let group = groups.iter().find(|(controllers, _)| named(controllers));
        if let Some(dir) = mount.zip(group).and_then(|(mount, (_, path))| visible(mount, path)) {
            found.insert(controller, dir);
        }
    }
    if found.is_empty() {
        return Err("no cgroup hierarchy with a memory or pids controller is mounted".to_owned());
    }
    Ok(CgroupLocation::V1(found))
}

/// The path of a cgroup in the file system, if the mount shows it.
fn visible(mount: &CgroupMount<'_>, group: &str) -> Option<PathBuf> {
    let below = Path::new(group).strip_prefix(&mount.root).ok()?;
    Some(mount.point.join(below))
}

/// Why a mount does not show the cgroup of this process.
fn why_invisible(mount: &CgroupMount<'_>) -> String {
    // The kernel gives the root of a mount relative to the cgroup namespace of this process.
    if mount.root.starts_with("/..") {
        return format!(
            "{} is mounted from outside the cgroup namespace of this process; start the container with --cgroupns host",
            mount.point.display()
        );
    }
    "the cgroup of this process is not visible here".to_owned()
}

fn parse_mount(line: &str) -> Option<CgroupMount<'_>> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let mut filesystem = filesystem.split_ascii_whitespace();
    let version = match filesystem.next()? {
        "cgroup" => 1,
        "cgroup2" => 2,
        _ => return None,
    };
    let options = filesystem.nth(1)?;
    let mut fields = mount.split_ascii_whitespace().skip(3);
    let (root, point) = (unescape(fields.next()?), unescape(fields.next()?));
    Some(CgroupMount { root, point, version, options })
}

/// Decodes the kernel's octal escapes for blanks and backslashes.
fn unescape(text: &str) -> PathBuf {
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        result.push_str(&rest[..at]);
        let byte = rest.get(at + 1..at + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        result.push(byte.map_or('\\', char::from));
        rest = &rest[at + if byte.is_some() { 4 } else { 1 }..];
    }
    result.push_str(rest);
    PathBuf::from(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn finds_version_2() {
        let found = place(V2, "0::/user.slice/session-1.scope\n", |_| "cpu io memory pids\n".to_owned());
        let own = PathBuf::from("/sys/fs/cgroup/user.slice/session-1.scope");
        assert_eq!(found, Ok(CgroupLocation::V2(V2Location { top: "/sys/fs/cgroup".into(), own })));
    }

    #[test]
    fn finds_version_1_beside_an_empty_version_2() {
        let mounts = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      36 31 0:33 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let own = "4:memory:/jobs/a\n2:cpu,cpuacct:/\n0::/\n";
        let Ok(CgroupLocation::V1(found)) = place(mounts, own, |_| String::new()) else { panic!("not version 1") };
        assert_eq!(found["memory"], PathBuf::from("/sys/fs/cgroup/memory/jobs/a"));
        assert_eq!(found["cpu"], PathBuf::from("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(found["cpuacct"], found["cpu"]);
        assert!(!found.contains_key("pids"));
    }

    #[test]
    fn a_partly_mounted_tree_limits_what_is_visible() {
        let mounts = "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let all = |_: &Path| "memory pids".to_owned();
        let Ok(CgroupLocation::V2(found)) = place(mounts, "0::/docker/abc/x\n", all) else { panic!("not version 2") };
        assert_eq!(found.own, PathBuf::from("/sys/fs/cgroup/x"));
        assert!(place(mounts, "0::/elsewhere\n", all).is_err());
    }

    #[test]
    fn a_tree_from_outside_the_cgroup_namespace_is_explained() {
        let mounts = "30 23 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        let why = place(mounts, "0::/\n", |_| "memory pids".to_owned()).expect_err("not visible");
        assert!(why.starts_with("/sys/fs/cgroup is mounted from outside") && why.contains("--cgroupns host"), "{why}");
    }

    #[test]
    fn fails_without_a_cgroup_mount() {
        assert!(place("22 27 0:21 / /proc rw - proc proc rw\n", "0::/\n", |_| String::new()).is_err());
    }

    #[test]
    fn undoes_escapes() {
        assert_eq!(unescape("/a\\040b\\134c"), PathBuf::from("/a b\\c"));
    }
}
