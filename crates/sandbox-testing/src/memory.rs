//! Looks for secrets in the memory of other processes, which needs root.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufRead;
use std::os::unix::fs::FileExt;

use crate::command::processes;

/// The start of every marker: few other things begin like this.
const FIRST: u8 = b'~';

/// Text that is nowhere else in the world, to look for.
pub fn marker(name: &str) -> String {
    let mut random = [0; 16];
    File::open("/dev/urandom").and_then(|mut file| std::io::Read::read_exact(&mut file, &mut random)).unwrap();
    format!("~{name}-{:032x}", u128::from_ne_bytes(random))
}

/// Which of the secrets are in some bytes.
fn find<'a>(mut bytes: &[u8], secrets: &[&'a str]) -> Vec<&'a str> {
    let mut found = vec![];
    // This is as fast as the standard library's own search, in debug builds too.
    while bytes.skip_until(FIRST).unwrap() > 0 {
        found.extend(secrets.iter().filter(|secret| bytes.starts_with(&secret.as_bytes()[1..])));
    }
    found
}

/// The processes that descend from another, by their ids and names.
pub fn descendants(root: u32) -> BTreeMap<u32, String> {
    let all = processes();
    let parents: BTreeMap<u32, u32> = all.iter().map(|(pid, parent, ..)| (*pid, *parent)).collect();
    let is_below = |pid: u32| {
        let line = std::iter::successors(Some(pid), |pid| parents.get(pid).copied());
        line.skip(1).take(100).any(|parent| parent == root)
    };
    all.into_iter().filter(|(pid, ..)| is_below(*pid)).map(|(pid, _, name, _)| (pid, name)).collect()
}

/// The secrets that a process has in its memory, its environment or its command line; nothing if the process has ended.
pub fn known<'a>(pid: u32, secrets: &[&'a str]) -> Option<Vec<&'a str>> {
    const CHUNK: usize = 1 << 20;
    const OVERLAP: usize = 100;
    let mut found = vec![];
    for file in ["environ", "cmdline"] {
        found.extend(find(&std::fs::read(format!("/proc/{pid}/{file}")).ok()?, secrets));
    }
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok().filter(|maps| !maps.is_empty())?;
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut buffer = vec![0; CHUNK + OVERLAP];
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (range, rights) = (fields.next().unwrap(), fields.next().unwrap());
        if !rights.starts_with('r') || line.contains("[v") {
            continue;
        }
        let (from, to) = range.split_once('-').unwrap();
        let [from, to] = [from, to].map(|number| u64::from_str_radix(number, 16).unwrap());
        for at in (from..to).step_by(CHUNK) {
            let length = buffer.len().min(usize::try_from(to - at).unwrap());
            let read = memory.read_at(&mut buffer[..length], at).unwrap_or(0);
            found.extend(find(&buffer[..read], secrets));
        }
    }
    Some(found)
}
