//! The environment of the user is not in the memory of any process of a cell, which untrusted code could reach through
//! a bug. The keeper has no arguments either.

use std::process::Stdio;

use sandbox_testing::command::{processes, sandbox};
use sandbox_testing::memory::{descendants, known, marker};
use sandbox_testing::{GuardedChild, eventually, needs};

#[test]
fn no_process_of_a_cell_knows_the_variables_of_the_user_and_the_keeper_no_arguments() {
    if !needs::root() {
        return;
    }
    let [variable, argument] = ["variable", "argument"].map(marker);
    let own_variable = format!("K={argument}");
    let mut command = sandbox(&["--lang", "bash", "--quiet", "--env", &own_variable, "--code", "unset K; sleep 50"]);
    let child = GuardedChild(command.env("A_TOKEN", &variable).stdin(Stdio::null()).spawn().unwrap());
    let id = child.0.id();
    eventually("the program runs", || descendants(id).values().any(|name| name == "sleep"));
    let own = known(id, &[&variable, &argument]).unwrap();
    assert!([&variable, &argument].iter().all(|secret| own.contains(&secret.as_str())), "the search works: {own:?}");
    let mut searched = vec![];
    for (pid, name) in descendants(id) {
        // Init and the program get the variables that are meant for the program.
        let secrets = if name == "sandbox-keeper" { vec![&*variable, &*argument] } else { vec![&*variable] };
        let Some(found) = known(pid, &secrets) else { continue };
        assert!(found.is_empty(), "{name} ({pid}) knows {found:?}");
        searched.push(name);
    }
    for name in ["sandbox-keeper", "sandbox-init", "bash", "sleep"] {
        assert!(searched.iter().any(|searched| searched == name), "{name}: {searched:?}");
    }
    let keeper = processes().into_iter().find(|(_, parent, name, _)| *parent == id && name == "sandbox-keeper");
    assert_eq!(keeper.map(|(.., line)| line.trim().to_owned()).as_deref(), Some("sandbox-keeper"));
}
