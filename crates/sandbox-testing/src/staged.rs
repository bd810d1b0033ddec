//! Languages whose toolchain has to be prepared once, for tests of that: the added language with a script of the test's.

use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use crate::repository;

/// A directory of languages that are awk in all but their names, each prepared by a script that fills `$OUT`.
pub fn staged_languages(languages: &[(&str, &str)]) -> TempDir {
    let fixture = repository().join("crates/sandbox-testing/fixtures/languages/awk");
    let definition = std::fs::read_to_string(fixture.join("language.toml")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    // The server drops root privileges: others must be able to enter the directory.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    for (name, script) in languages {
        let own = dir.path().join(name);
        std::fs::create_dir(&own).unwrap();
        std::fs::copy(fixture.join("harness.awk"), own.join("harness.awk")).unwrap();
        let named = definition
            .replace("name = \"awk\"", &format!("name = \"{name}\""))
            .replace("aliases = [\"mawk\"]", "aliases = []")
            .replace("[errors]\n", "[errors]\ninstall = ['(?m)^error: (.*)$']\n");
        let stages = format!(
            "[prepare]\nwhat = \"the tables of {name}\"\nstages = [\"compile\"]\ntarget = \"/opt/prepared\"\n\
             script = '''\n{script}\n'''\n\
             [compile]\nscript = 'cp -r /opt/prepared/. \"$OUT\"'\n"
        );
        std::fs::write(own.join("language.toml"), format!("{named}\n{stages}")).unwrap();
    }
    dir
}
