//! Artifacts of an owner: compiled programs, packages, and interpreters that have imported packages.

use std::collections::HashSet;

use sandbox_testing::eventually;
use sandbox_testing::package_index::TestIndex;
use serde_json::{Value, json};

use crate::Server;

const ALICE: (&str, &str) = ("x-api-key", "alice-0123456789abcdef");
const BOB: (&str, &str) = ("x-api-key", "bob-0123456789abcdef");

/// A server with two keys.
fn server(variables: &[(&str, &str)]) -> Server {
    let keys = ("SANDBOX_API_KEYS", "alice-0123456789abcdef;name=alice,bob-0123456789abcdef;name=bob");
    Server::start_with(&[], &[&[keys], variables].concat())
}

fn run(server: &Server, key: (&str, &str), request: &Value) -> Value {
    let (_, (status, answer)) = server.send(&[key], request.to_string().as_bytes());
    assert_eq!((status, &answer["verdict"]), (200, &"ok".into()), "{answer:#}");
    answer
}

/// Runs a request until enough runs were warm; what each of those printed, word by word.
fn warm_runs(server: &Server, key: (&str, &str), count: usize, request: &Value) -> Vec<Vec<String>> {
    let mut runs = vec![];
    eventually("enough warm runs", || {
        let answer = run(server, key, request);
        if answer["metrics"]["start"] == "warm" {
            let words = answer["stdout"].as_str().unwrap().split_whitespace();
            runs.push(words.map(str::to_owned).collect());
        }
        runs.len() >= count
    });
    runs
}

#[test]
fn a_compiled_program_is_cached_for_its_owner_only() {
    let request = json!({"language": "c", "code": "int main(void) { return 0; } /* pin 4711 */"});
    let is_cached = |server: &Server, key| run(server, key, &request)["compile"]["cached"] == true;
    let own = server(&[]);
    assert!(!is_cached(&own, ALICE) && is_cached(&own, ALICE));
    assert!(!is_cached(&own, BOB), "the cache told one owner what another compiled");
    assert!(is_cached(&own, BOB));
    // A job has the same owner as a run that its key waits for.
    let job = json!({"language": "c", "code": "int main(void) { return 0; } /* a job */"});
    let (_, (status, answer)) = own.send_to("/v1/execute", &[ALICE], job.to_string().as_bytes());
    assert_eq!(status, 202, "{answer:#}");
    let path = format!("/v1/execute/{}?wait=30s", answer["id"].as_str().unwrap());
    eventually("the job ends", || own.get_as(ALICE, &path).1["status"] == "finished");
    assert_eq!(run(&own, BOB, &job)["compile"]["cached"], false);
    assert_eq!(run(&own, ALICE, &job)["compile"]["cached"], true);
    let shared = server(&[("SANDBOX_SHARE", "all")]);
    assert!(!is_cached(&shared, ALICE) && is_cached(&shared, BOB), "the operator may share it");
}

/// An index with a package that makes state of all kinds at import.
fn index() -> TestIndex {
    let index = TestIndex::start();
    let module = "import random, secrets\ntoken = secrets.token_hex(8)\nsource = random.Random()\n";
    index.offer("tokens", &format!("files['tokens.py'] = {module:?}"));
    index
}

const USE: &str = "import tokens; print(tokens.token, tokens.source.random())";

#[test]
fn packages_are_installed_for_each_owner() {
    let index = index();
    let address = index.address();
    let request = json!({"code": USE, "requirements": ["tokens"]});
    let own = server(&[("SANDBOX_PYTHON_INDEX", &address)]);
    run(&own, ALICE, &request);
    let once = index.downloads();
    run(&own, ALICE, &request);
    assert_eq!(index.downloads(), once, "the second run of an owner finds the packages");
    run(&own, BOB, &request);
    assert_eq!(index.downloads(), 2 * once, "another owner's packages are not found");
    let shared = server(&[("SANDBOX_PYTHON_INDEX", &address), ("SANDBOX_SHARE", "packages")]);
    run(&shared, ALICE, &request);
    run(&shared, BOB, &request);
    assert_eq!(index.downloads(), 3 * once);
}

#[test]
fn state_that_a_package_makes_at_import_is_new_in_every_run() {
    let index = index();
    let address = index.address();
    let server = server(&[("SANDBOX_PYTHON_INDEX", &address)]);
    let request = json!({"code": USE, "requirements": ["tokens"]});
    let mut seen = HashSet::new();
    for words in [ALICE, BOB].into_iter().flat_map(|key| warm_runs(&server, key, 4, &request)) {
        for word in words {
            assert!(seen.insert(word.clone()), "two runs got {word}");
        }
    }
}

#[test]
fn owners_never_share_an_interpreter_that_has_imported_packages() {
    let index = index();
    let address = index.address();
    // The operator wants it imported ahead: its state then is the same in all runs of an owner, and shows whose it is.
    let variables = [("SANDBOX_PYTHON_INDEX", address.as_str()), ("SANDBOX_PRELOAD", "tokens")];
    let request = json!({"code": USE, "requirements": ["tokens"]});
    let tokens = |server: &Server, key| {
        let runs = warm_runs(server, key, 4, &request);
        let numbers: HashSet<_> = runs.iter().map(|words| words[1].clone()).collect();
        assert_eq!(numbers.len(), runs.len(), "a generator that was seeded before the fork: {runs:?}");
        runs.iter().map(|words| words[0].clone()).collect::<HashSet<_>>()
    };
    for share in ["none", "packages"] {
        let own = server(&[&variables[..], &[("SANDBOX_SHARE", share)]].concat());
        let (alice, bob) = (tokens(&own, ALICE), tokens(&own, BOB));
        assert_eq!(alice.len(), 1, "the package was not imported ahead: {alice:?}");
        assert!(alice.is_disjoint(&bob), "SANDBOX_SHARE={share}: {alice:?} {bob:?}");
    }
    let shared = server(&[&variables[..], &[("SANDBOX_SHARE", "all")]].concat());
    assert_eq!(tokens(&shared, ALICE), tokens(&shared, BOB), "the operator may share it");
}

#[test]
fn children_of_a_zygote_have_seeds_of_their_own() {
    let server = server(&[]);
    let code = "import ctypes\n\
                lookup = ctypes.CDLL(None).getauxval\n\
                lookup.restype = ctypes.c_void_p\n\
                print(ctypes.string_at(lookup(25), 16).hex())";
    let javascript = "const fs = require('fs');\n\
                const pairs = new BigUint64Array(new Uint8Array(fs.readFileSync('/proc/self/auxv')).buffer);\n\
                const at = pairs.findIndex((kind, index) => index % 2 === 0 && kind === 25n);\n\
                const bytes = Buffer.alloc(16);\n\
                fs.readSync(fs.openSync('/proc/self/mem'), bytes, 0, 16, pairs[at + 1]);\n\
                console.log(bytes.toString('hex'));";
    let mut seen = HashSet::new();
    for request in [json!({"code": code}), json!({"language": "javascript", "code": javascript})] {
        for words in [ALICE, BOB].into_iter().flat_map(|key| warm_runs(&server, key, 4, &request)) {
            assert!(words.len() == 1 && words[0].len() == 32, "{words:?}");
            assert!(seen.insert(words[0].clone()), "two runs got {words:?}");
        }
    }
}
