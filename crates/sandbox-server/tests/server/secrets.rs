//! Secrets of the server, and of earlier runs, are in no memory that untrusted code could one day get hold of: not in the
//! keeper's, not in an init's, not in a zygote's.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufRead;
use std::os::unix::fs::FileExt;

use serde_json::json;

use crate::{Server, eventually};

/// What every secret of this test begins with: few other things do.
const FIRST: u8 = b'~';

/// Text that is nowhere else in the world.
fn marker(name: &str) -> String {
    format!("~{name}-{}", uuid::Uuid::now_v7().simple())
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

/// Name, parent and command line of every process.
fn processes() -> BTreeMap<u32, (String, u32, Vec<u8>)> {
    let read = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (before, after) = stat.rsplit_once(')')?;
        let name = before.split_once('(')?.1.to_owned();
        let parent = after.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some((pid, (name, parent, std::fs::read(format!("/proc/{pid}/cmdline")).ok()?)))
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// The processes that descend from another, by their ids and names.
pub(crate) fn descendants(root: u32) -> BTreeMap<u32, String> {
    let all = processes();
    let is_below = |pid: u32| {
        let parents = std::iter::successors(Some(pid), |pid| all.get(pid).map(|(_, parent, _)| *parent));
        parents.skip(1).take(100).any(|parent| parent == root)
    };
    all.iter().filter(|(pid, _)| is_below(**pid)).map(|(pid, (name, _, _))| (*pid, name.clone())).collect()
}

/// Which of the secrets are in what a process can read of its own memory, in its environment or in its command line;
/// nothing if the process has ended.
fn known<'a>(pid: u32, secrets: &[&'a str]) -> Option<Vec<&'a str>> {
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

#[test]
fn no_process_of_a_cell_knows_a_secret_of_the_server_or_of_another_run() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "this test needs root, and CI must not skip it");
        return;
    }
    let [key, password, other, tenant] = ["key", "password", "other", "tenant"].map(marker);
    let variables = [("SANDBOX_API_KEYS", &*key), ("REDIS_PASSWORD", &*password), ("A_WEBHOOK_SECRET", &*other)];
    let server = Server::start_with(&["--zygotes", "4", "--ready-cells", "8"], &variables);
    let authorization = format!("Bearer {key}");
    let post =
        |body: serde_json::Value| server.send(&[("authorization", &authorization)], body.to_string().as_bytes()).1;
    // An earlier run of another tenant, warm and cold.
    for language in ["python", "bash"] {
        let code = if language == "python" { "import os; print(os.environ['K'])" } else { "echo $K" };
        let (status, answer) =
            post(json!({"language": language, "code": code, "env": {"K": tenant}, "args": [tenant]}));
        assert_eq!((status, &answer["stdout"]), (200, &json!(format!("{tenant}\n"))), "{answer:#}");
    }
    // Two runs that go on until their clients have gone, at the end of this function.
    let _clients = [("python", "import time; time.sleep(50)"), ("bash", "sleep 50")].map(|(language, code)| {
        let body = json!({"language": language, "code": code, "timeout": 60});
        server.start_request("/execute", &[("Authorization", &authorization)], body)
    });
    let id = server.child.id();
    let named = |name: &str| descendants(id).values().filter(|other| other.starts_with(name)).count();
    eventually("programs run, and a zygote is warm", || {
        named("sleep") > 0 && named("python") > 1 && named("sandbox-init") > 1 && named("sandbox-zygotes") > 0
    });
    let in_server = known(id, &[&key, &password, &other]).unwrap();
    assert!([&key, &password, &other].iter().all(|secret| in_server.contains(&secret.as_str())), "the search works");
    let mut searched = vec![];
    for (pid, name) in descendants(id) {
        let Some(found) = known(pid, &[&key, &password, &other, &tenant]) else { continue };
        assert!(found.is_empty(), "{name} ({pid}) knows {found:?}");
        searched.push(name);
    }
    for name in ["sandbox-launche", "sandbox-keeper", "sandbox-init", "sandbox-zygotes", "python", "sleep"] {
        assert!(searched.iter().any(|searched| searched.starts_with(name)), "{name}: {searched:?}");
    }
    let all = processes();
    let child = |parent: u32, line: &[u8]| {
        let mut found = all.iter().filter(|(_, (_, its, its_line))| *its == parent && its_line == line);
        (found.next().map(|(pid, _)| *pid), found.count())
    };
    let (launcher, others) = child(id, b"sandbox-launcher\0");
    assert_eq!(others, 0, "the launcher is a child with a fixed command line");
    let (keeper, others) = child(launcher.unwrap(), b"sandbox-keeper\0");
    assert!(keeper.is_some() && others == 0, "and the keeper is a child of the launcher");
}
