//! Compilers that wait in ready cells: what they make of a program is what any compiler makes of it.

use std::time::{Duration, Instant};

use sandbox_testing::PATIENCE;
use serde_json::{Value, json};

use crate::Server;

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
fn a_compiler_that_waits_says_and_makes_what_any_other_does() {
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
