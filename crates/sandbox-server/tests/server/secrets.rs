//! Secrets of the server and of earlier runs are not in the memory of keeper, init or zygote, which untrusted code
//! could reach through a bug.

use sandbox_testing::command::processes;
use sandbox_testing::memory::{descendants, known, marker};
use sandbox_testing::needs;
use serde_json::json;

use crate::{Server, eventually};

#[test]
fn no_process_of_a_cell_knows_a_secret_of_the_server_or_of_another_run() {
    if !needs::root() {
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
    let child = |parent: u32, line: &str| {
        let mut found = all.iter().filter(|(_, its, _, its_line)| *its == parent && its_line.trim() == line);
        (found.next().map(|(pid, ..)| *pid), found.count())
    };
    let (launcher, others) = child(id, "sandbox-launcher");
    assert_eq!(others, 0, "the launcher is a child with a fixed command line");
    let (keeper, others) = child(launcher.unwrap(), "sandbox-keeper");
    assert!(keeper.is_some() && others == 0, "and the keeper is a child of the launcher");
}
