//! How much memory is available to this process and its cells: on the host, and below the limits of its cgroups.

use std::path::{Path, PathBuf};

/// The number of available bytes, if that is known.
pub(crate) fn available() -> Option<u64> {
    available_in(Path::new("/proc"), Path::new("/sys/fs/cgroup"))
}

fn available_in(proc: &Path, cgroups: &Path) -> Option<u64> {
    let meminfo = std::fs::read_to_string(proc.join("meminfo")).ok()?;
    let kibibytes = field(&meminfo, "MemAvailable:")?;
    let own = std::fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
    let below_limits = own.lines().filter_map(|line| place(line, cgroups)).flat_map(|(top, dir)| {
        let ancestors: Vec<PathBuf> =
            dir.ancestors().take_while(|dir| dir.starts_with(&top)).map(Path::to_owned).collect();
        ancestors.into_iter().filter_map(|dir| below_limit(&dir))
    });
    Some(below_limits.fold(kibibytes.saturating_mul(1024), u64::min))
}

/// The top of the hierarchy that limits memory and the cgroup in it, from a line of `/proc/self/cgroup`.
fn place(line: &str, cgroups: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let top = match controllers {
        "" => cgroups.to_owned(),
        list if list.split(',').any(|name| name == "memory") => cgroups.join("memory"),
        _ => return None,
    };
    let dir = top.join(path.trim_start_matches('/'));
    Some((top, dir))
}

/// The memory that is left below the limit of a cgroup. Cached files that were not used lately count as free.
fn below_limit(dir: &Path) -> Option<u64> {
    let read = |names: [&str; 2]| names.iter().find_map(|name| std::fs::read_to_string(dir.join(name)).ok());
    let limit: u64 = read(["memory.max", "memory.limit_in_bytes"])?.trim().parse().ok()?;
    let used: u64 = read(["memory.current", "memory.usage_in_bytes"])?.trim().parse().ok()?;
    let statistics = std::fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
    let cached = field(&statistics, "total_inactive_file").or_else(|| field(&statistics, "inactive_file"));
    Some(limit.saturating_sub(used.saturating_sub(cached.unwrap_or(0))))
}

/// The number after a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name).filter(|rest| rest.starts_with(' ')))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Available memory with these files, on a host with 1000 KiB.
    fn available_with(own: &str, files: &[(&str, &str)]) -> Option<u64> {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |path: PathBuf, text: &str| {
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        write(dir.path().join("proc/meminfo"), "MemTotal:  9000 kB\nMemAvailable:   1000 kB\n");
        write(dir.path().join("proc/self/cgroup"), own);
        for (name, text) in files {
            write(dir.path().join("sys").join(name), text);
        }
        available_in(&dir.path().join("proc"), &dir.path().join("sys"))
    }

    #[test]
    fn the_tightest_limit_counts() {
        assert_eq!(available_with("", &[]), Some(1_024_000));
        let unlimited = [("a/memory.max", "max\n"), ("a/memory.current", "5\n")];
        assert_eq!(available_with("0::/a\n", &unlimited), Some(1_024_000));
        let outer =
            [("a/memory.max", "1000\n"), ("a/memory.current", "700\n"), ("a/memory.stat", "inactive_file 100\n")];
        assert_eq!(available_with("0::/a/leaf\n", &outer), Some(400));
        let first = [
            ("memory/b/memory.limit_in_bytes", "900\n"),
            ("memory/b/memory.usage_in_bytes", "300\n"),
            ("memory/b/memory.stat", "inactive_file 1\ntotal_inactive_file 50\n"),
        ];
        assert_eq!(available_with("9:cpu:/x\n8:memory:/b\n0::/\n", &first), Some(650));
    }

    #[test]
    fn this_host_has_memory() {
        assert!(available().is_none_or(|bytes| bytes > 0));
    }
}
