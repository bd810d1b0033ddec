//! A language that is only a directory, on a server: listed, run in ready cells, with templates and jobs.

use sandbox_testing::eventually;
use sandbox_testing::features::LanguageDir;
use serde_json::{Value, json};

use crate::Server;

#[test]
fn an_added_language_is_a_language_like_any_other() {
    let languages = LanguageDir::added();
    let server = Server::start(&["--runtimes", languages.path().to_str().unwrap()]);
    let (_, list) = server.get("/v1/languages");
    let awk = list.as_array().unwrap().iter().find(|language| language["name"] == "awk").unwrap();
    assert_eq!((&awk["available"], &awk["extensions"]), (&true.into(), &json!(["awk"])), "{awk:#}");
    let run = |code: &str, stdin: &str| server.post(&json!({"language": "mawk", "code": code, "stdin": stdin})).1;
    let sum = run("{ sum += $1 } END { print sum }", "3\n4\n");
    assert_eq!((&sum["verdict"], &sum["stdout"], &sum["language"]), (&"ok".into(), &"7\n".into(), &"awk".into()));
    let failed = run("BEGIN { print > \"/no/such/file\" }", "");
    assert_eq!(failed["verdict"], "runtime_error", "{failed:#}");
    assert!(failed["error"].as_str().unwrap().starts_with("cannot open"), "{failed:#}");
    eventually("a program starts in a ready cell", || run("BEGIN { print 1 }", "")["metrics"]["start"] == "ready");
    let harness = |expected: Value| {
        let cases = json!([{"args": ["a\"b\\", 2], "expected": expected}]);
        let template = json!({"name": "harness", "variables": {"function": "join", "cases": cases}});
        server.post(&json!({"language": "awk", "code": "function join(a, b) { return a b }", "template": template})).1
    };
    assert_eq!(harness(json!("a\"b\\2"))["verdict"], "ok");
    assert_eq!(harness(json!("other"))["error"], "1 of 1 cases failed");
    let refused = harness(json!([1]));
    assert!(refused["detail"].as_str().unwrap().contains("awk has no literal for a list"), "{refused:#}");
}
