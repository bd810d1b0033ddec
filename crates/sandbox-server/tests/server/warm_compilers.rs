//! Warm compilers: a program that the child of a zygote compiles is the same as one that a new compiler compiles.

use std::time::{Duration, Instant};

use sandbox_testing::{PATIENCE, eventually};
use serde_json::{Value, json};

use crate::Server;
use crate::warm::changed_language;

/// Requests that a compiler has something to decide about, each with a name for messages.
fn requests() -> Vec<(&'static str, Value)> {
    let java = |code: &str| json!({"language": "java", "code": code});
    let hello = "public static void main(String[] args) { System.out.println(\"hello \" + args.length); }";
    vec![
        ("a class of another name", java(&format!("public class Hello {{ {hello} }}"))),
        ("a package", java(&format!("package org.example;\npublic class Main {{ {hello} }}"))),
        ("no public class", java(&format!("class Helper {{ }}\nclass Start {{ {hello} }}"))),
        ("errors", java("public class Other {\n    int x = \"text\";\n    void f() { return 1; }\n}")),
        ("an error of syntax, not in ASCII", java("public class Main { void f() { String s = \"ä\" } }")),
        (
            "warnings",
            java(&format!("import java.util.*;\nclass A {{ List x = new ArrayList(); {{ x.add(1); }} {hello} }}")),
        ),
        ("nothing to start", java("class A { }")),
        ("enough code that the compiler collects garbage", java(&format!("class A {{ {} {hello} }}", methods(3_000)))),
        ("a program that fails", java("class A { public static void main(String[] a) { throw new Error(\"no\"); } }")),
        (
            "several files",
            json!({"language": "java", "entry": "src/main/java/Main.java", "files": {
                "src/main/java/Main.java": "import org.example.Names;\npublic class Main { public static void main(String[] args) \
                    throws Exception { System.out.println(Names.first() + new String(Main.class.getResourceAsStream(\
                    \"/words.txt\").readAllBytes())); } }",
                "src/main/java/org/example/Names.java": "package org.example;\npublic class Names { public static String \
                    first() { return \"Ada\"; } }",
                "src/main/resources/words.txt": "and others",
                "src/test/java/NamesTest.java": "this is not compiled",
            }}),
        ),
    ]
}

/// So many methods, each with something to infer.
fn methods(count: usize) -> String {
    let method = |number| {
        format!(
            "static java.util.List<String> m{number}(int x) {{ return java.util.stream.Stream.of(x, {number}).map(y -> \"v\" + y).toList(); }}\n"
        )
    };
    (0..count).map(method).collect()
}

/// What must not depend on how the compiler was started.
fn essence(answer: &Value) -> Value {
    let compile = &answer["compile"];
    json!({
        "verdict": answer["verdict"], "stdout": answer["stdout"], "stderr": answer["stderr"], "error": answer["error"],
        "exit_code": answer["exit_code"], "files": answer["files"], "isolation": answer["isolation"],
        "compile": [compile["success"], compile["exit_code"], compile["stdout"], compile["stderr"]],
    })
}

#[test]
fn a_warm_compiler_reports_and_produces_what_a_cold_one_does() {
    let limits = json!({"timeout_seconds": 60});
    let plain = Server::start_with(&[], &[("SANDBOX_ZYGOTES", "0")]);
    let warm = Server::start(&[]);
    for (name, mut request) in requests() {
        request.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
        let (_, expected) = plain.post(&request);
        assert!(["cold", "ready"].iter().any(|start| expected["compile"]["start"] == *start), "{name}: {expected:#}");
        // A compiler gets warm when one was missed; a comment makes that another program.
        let patience = Instant::now() + PATIENCE;
        let mut round = 0;
        let answer = loop {
            round += 1;
            let mut request = request.clone();
            request["files"][format!("note-{round}.txt")] = json!("another program");
            let (_, answer) = warm.post(&request);
            if answer["compile"]["start"] == "warm" {
                break answer;
            }
            assert!(Instant::now() < patience, "{name}: no compiler gets warm: {answer:#}");
            std::thread::sleep(Duration::from_millis(500));
        };
        assert_eq!(essence(&answer), essence(&expected), "{name}");
    }
}

#[test]
fn compilers_that_fail_the_self_test_start_cold() {
    let before = "script = '''\nexec java -XX:SharedArchiveFile=/opt/prepared/classes.jsa -XX:+UseSerialGC \
                  -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xlog:disable \\\n    -cp";
    let dir = changed_language("java", before, &before.replace("exec", "echo odd >&2\nexec"));
    let server = Server::start(&["--runtimes", dir.path().to_str().unwrap()]);
    let reason = || server.get("/health").1["warm_starts"]["java"].as_str().unwrap().to_owned();
    assert_eq!(reason(), "not tested yet");
    assert_eq!(server.post(&hello(0)).1["verdict"], "ok");
    eventually("the test is over", || reason().ends_with("warm and 'odd' cold"));
    let (_, answer) = server.post(&hello(1));
    assert!(answer["verdict"] == "ok" && answer["compile"]["start"] != "warm", "{answer:#}");
}

#[test]
fn untested_compilers_start_cold() {
    let dir = changed_language("java", "tested = { from = \"17\"", "tested = { from = \"16.99\"");
    let definition = dir.path().join("java/language.toml");
    let text = std::fs::read_to_string(&definition).unwrap().replace("to = \"17\"", "to = \"16.99\"");
    std::fs::write(definition, text).unwrap();
    let server = Server::start(&["--runtimes", dir.path().to_str().unwrap()]);
    let reason = server.get("/health").1["warm_starts"]["java"].as_str().unwrap().to_owned();
    assert!(reason.contains("is outside the tested versions 16.99 to 16.99"), "{reason}");
    for number in 0..3 {
        let (_, answer) = server.post(&hello(number));
        assert!(answer["verdict"] == "ok" && answer["compile"]["start"] != "warm", "{answer:#}");
    }
}

/// A program of its own for each number.
fn hello(number: usize) -> Value {
    json!({"language": "java", "timeout_seconds": 60, "code": format!(
        "public class Main {{ public static void main(String[] args) {{ System.out.println({number}); }} }}")})
}

#[test]
fn warm_compilers_keep_up_with_requests_that_follow_each_other() {
    let server = Server::start(&[]);
    let patience = Instant::now() + PATIENCE;
    let mut number = 0;
    while server.post(&hello(number)).1["compile"]["start"] != "warm" {
        assert!(Instant::now() < patience, "no compiler gets warm");
        number += 1;
        std::thread::sleep(Duration::from_millis(500));
    }
    let answers: Vec<Value> = (0..12).map(|next| server.post(&hello(1_000 + next)).1).collect();
    for (next, answer) in answers.iter().enumerate() {
        assert_eq!(answer["stdout"], format!("{}\n", 1_000 + next), "{answer:#}");
    }
    let warm = answers.iter().filter(|answer| answer["compile"]["start"] == "warm").count();
    assert!(warm >= 10, "{warm} of {} compilers were warm", answers.len());
}
