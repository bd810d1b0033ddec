//! Projects with manifests, and single files as people paste them.

use std::path::Path;

use sandbox_testing::command::{result, run_with_input_in};
use serde_json::Value;

/// The tests here.
pub(crate) const TESTS: &[(&str, fn())] = &[
    ("a_project_with_package_json_runs", a_project_with_package_json_runs),
    ("a_go_module_runs", a_go_module_runs),
    ("a_cargo_project_runs", a_cargo_project_runs),
    ("a_maven_project_runs", a_maven_project_runs),
    ("java_package_sets_share_the_maven_plugin", java_package_sets_share_the_maven_plugin),
    ("a_python_project_runs", a_python_project_runs),
    ("a_java_tree_with_packages_runs", a_java_tree_with_packages_runs),
    ("javascript_of_every_module_kind_runs", javascript_of_every_module_kind_runs),
    ("go_without_package_main_is_a_compile_error", go_without_package_main_is_a_compile_error),
    ("pasted_java_classes_run", pasted_java_classes_run),
    ("a_list_of_files_runs", a_list_of_files_runs),
    ("other_sources_may_have_any_name", other_sources_may_have_any_name),
    ("a_file_keeps_its_name", a_file_keeps_its_name),
    ("link_errors_are_reported", link_errors_are_reported),
    ("a_custom_language_definition_works", a_custom_language_definition_works),
];

fn write(dir: &Path, files: &[(&str, &str)]) {
    for (name, content) in files {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// Runs a project in a directory, with these flags.
fn run_files(files: &[(&str, &str)], flags: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), files);
    let mut args = vec!["--json", "--timeout", "20s"];
    args.extend_from_slice(flags);
    result(&run_with_input_in(dir.path(), &args, b""))
}

fn project(files: &[(&str, &str)]) -> Value {
    run_files(files, &["--file", "."])
}

fn stdout(result: &Value) -> &str {
    assert_eq!(result["verdict"], "ok", "{result:#}");
    result["stdout"].as_str().unwrap()
}

fn a_project_with_package_json_runs() {
    let result = project(&[
        (
            "package.json",
            r#"{"name": "x", "type": "module", "main": "src/start.js", "dependencies": {"is-number": "7.0.0"}}"#,
        ),
        (
            "src/start.js",
            "import isNumber from 'is-number';\nimport { two } from './two.js';\nconsole.log(isNumber(two));\n",
        ),
        ("src/two.js", "export const two = 2;\n"),
    ]);
    assert_eq!((stdout(&result), &result["language"]), ("true\n", &"javascript".into()));
}

fn a_go_module_runs() {
    let result = project(&[
        ("go.mod", "module example.org/app\n\ngo 1.20\n\nrequire github.com/google/uuid v1.6.0\n"),
        (
            "main.go",
            "package main\n\nimport (\n\t\"fmt\"\n\n\t\"example.org/app/names\"\n\t\"github.com/google/uuid\"\n)\n\n\
             func main() { fmt.Println(names.First, len(uuid.Nil)) }\n",
        ),
        ("names/names.go", "package names\n\nconst First = \"Ada\"\n"),
    ]);
    assert_eq!((stdout(&result), &result["language"]), ("Ada 16\n", &"go".into()));
}

fn a_cargo_project_runs() {
    let result = project(&[
        (
            "Cargo.toml",
            "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[dependencies]\nitoa = \"=1.0.11\"\n",
        ),
        ("src/main.rs", "mod numbers;\nfn main() { println!(\"{}\", itoa::Buffer::new().format(numbers::BIG)); }\n"),
        ("src/numbers.rs", "pub const BIG: u64 = 1 << 40;\n"),
    ]);
    assert_eq!((stdout(&result), &result["language"]), ("1099511627776\n", &"rust".into()));
}

fn a_maven_project_runs() {
    let result = project(&[
        (
            "pom.xml",
            "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
             <groupId>org.example</groupId><artifactId>app</artifactId><version>1</version><dependencies><dependency>\
             <groupId>org.apache.commons</groupId><artifactId>commons-lang3</artifactId><version>3.14.0</version>\
             </dependency></dependencies></project>",
        ),
        (
            "src/main/java/Main.java",
            "import org.apache.commons.lang3.StringUtils;\nimport org.example.Names;\n\npublic class Main {\n    \
             public static void main(String[] args) { System.out.println(StringUtils.reverse(Names.FIRST)); }\n}\n",
        ),
        (
            "src/main/java/org/example/Names.java",
            "package org.example;\n\npublic class Names { public static final String FIRST = \"Ada\"; }\n",
        ),
    ]);
    assert_eq!((stdout(&result), &result["language"]), ("adA\n", &"java".into()));
}

fn java_package_sets_share_the_maven_plugin() {
    let code = "public class Main { public static void main(String[] args) throws Exception { \
                System.out.println(Class.forName(\"com.google.gson.Gson\").getSimpleName()); } }";
    let with = |package: &str| run_files(&[], &["--lang", "java", "--package", package, "--code", code]);
    assert_eq!(stdout(&with("com.google.code.gson:gson:2.11.0")), "Gson\n");
    let next = with("com.google.code.gson:gson:2.10.1");
    assert_eq!(stdout(&next), "Gson\n");
    assert!(next["metrics"]["phases"]["toolchain"].is_null(), "nothing is prepared again: {next:#}");
}

fn a_python_project_runs() {
    let result = project(&[
        ("pyproject.toml", "[project]\nname = \"app\"\nversion = \"1\"\ndependencies = [\"six==1.16.0\"]\n"),
        ("app.py", "import six\nfrom lib import name\nprint(name, six.__version__)\n"),
        ("lib/__init__.py", "name = 'Ada'\n"),
    ]);
    assert_eq!(stdout(&result), "Ada 1.16.0\n");
}

fn a_java_tree_with_packages_runs() {
    let result = project(&[
        (
            "src/org/example/App.java",
            "package org.example;\n\nimport org.example.text.Upper;\n\npublic class App {\n    \
             public static void main(String[] args) { System.out.println(Upper.of(\"ada\")); }\n}\n",
        ),
        (
            "src/org/example/text/Upper.java",
            "package org.example.text;\n\npublic class Upper { public static String of(String s) { return s.toUpperCase(); } }\n",
        ),
    ]);
    assert_eq!((stdout(&result), &result["language"]), ("ADA\n", &"java".into()));
}

fn javascript_of_every_module_kind_runs() {
    for code in [
        "const path = require('path'); console.log(path.basename('/a/ok'))",
        "import path from 'path'; console.log(path.basename('/a/ok'))",
        "const path = await import('path'); console.log(path.basename('/a/ok'))",
        "#!/usr/bin/env node\nconsole.log(require.main === module ? 'ok' : 'not main')",
        "exports.x = 'ok'; console.log(this.x, ''.trim()) || console.log",
        "return console.log('ok')",
    ] {
        let result = run_files(&[], &["--lang", "js", "--code", code]);
        assert!(stdout(&result).starts_with("ok"), "{code}: {result:#}");
    }
    let value = run_files(&[], &["--lang", "js", "--code", "const f = async () => ({ a: [1, 2] }); f()"]);
    assert_eq!(value["result"], "{ a: [ 1, 2 ] }");
    // What awaits at its top level has a value too, where it is clear which expression is the last.
    let file = "#!/usr/bin/env node\nimport assert from 'assert'; console.log(await 1); 5";
    assert_eq!(run_files(&[], &["--lang", "js", "--code", file])["result"], "1", "not of a module with imports");
    for (code, value) in [
        ("const a = await 1; a + 1", "2"),
        ("await 5", "5"),
        (
            "const { basename } = require('path');\nconst a = await 'b';\n[basename('/x/y'), a]; // end\n// of it\n",
            "[ 'y', 'b' ]",
        ),
        ("const p = await import('path')\np.basename('/a/b')", "'b'"),
        ("const x = await 2\nx\n+ 1", "3"),
        ("foo(); // see x; y\nfunction foo() {}\nawait 1", "1"),
        ("const s = `a;\n${await 1}`\ns", "'a;\\n1'"),
        ("const f = async () => 7; await 1; f()", "7"),
        ("let o = await { a: 1 };\n({ ...o,\n  b: 2 })", "{ a: 1, b: 2 }"),
    ] {
        let result = run_files(&[], &["--lang", "js", "--code", code]);
        assert_eq!((stdout(&result), &result["result"]), ("", &value.into()), "{code}");
        if !code.contains("path") && !code.contains("x; y") {
            let result = run_files(&[], &["--lang", "ts", "--code", code]);
            assert_eq!((stdout(&result), &result["result"]), ("", &value.into()), "{code}");
        }
    }
    for code in ["await f();\nfunction f() {}", "if (await 1) 2", "const a = await 1"] {
        assert_eq!(run_files(&[], &["--lang", "js", "--code", code])["result"], "", "{code}");
    }
    let strict = run_files(&[], &["--lang", "js", "--code", "nowhere = await 1"]);
    assert_eq!(strict["error"], "ReferenceError: nowhere is not defined");
    let typed = run_files(&[], &["--lang", "ts", "--code", "for await (const x of [1, 2]) console.log(x as number)"]);
    assert_eq!(stdout(&typed), "1\n2\n");
    let wrong = run_files(&[], &["--lang", "ts", "--code", "const x: string = await 1;"]);
    assert_eq!(wrong["verdict"], "compile_error", "{wrong:#}");
    let module = run_files(&[("x.mjs", "export default 1; console.log(typeof require)")], &["--file", "x.mjs"]);
    assert_eq!(stdout(&module), "undefined\n");
}

fn go_without_package_main_is_a_compile_error() {
    let result = run_files(&[], &["--lang", "go", "--code", "package tools\n\nfunc main() {}\n"]);
    assert_eq!(result["verdict"], "compile_error", "{result:#}");
    assert!(result["metrics"]["phases"]["compile"].as_f64().unwrap() > 0.0, "{result:#}");
    assert_eq!(result["error"], "package command-line-arguments is not a main package");
    let none = run_files(&[], &["--lang", "go", "--code", "func main() {}"]);
    assert_eq!(none["verdict"], "compile_error", "{none:#}");
    assert!(none["error"].as_str().unwrap().contains("main.go:1:1: expected 'package', found 'func'"), "{none:#}");
}

fn pasted_java_classes_run() {
    for code in [
        "public final class Anything { public static void main(String[] a) { System.out.println(\"ok\"); } }",
        "class A {}\nclass B { public static void main(String... a) { System.out.println(\"ok\"); } }",
        "// public class Wrong\nenum E { X; public static void main(String[] a) { System.out.println(\"ok\"); } }",
        "package org.example.deep;\npublic class P { public static void main(String[] a) { System.out.println(\"ok\"); } }",
        "interface I { static void main(String[] a) { System.out.println(\"ok\"); } }",
    ] {
        let result = run_files(&[], &["--lang", "java", "--code", code]);
        assert_eq!(stdout(&result), "ok\n", "{code}");
    }
    // Names beyond ASCII, and declarations that are not at the start of a line.
    let main = "static void main(String[] a) { System.out.println(\"ok {\"); }";
    for code in [
        format!("public class Café {{ public {main} }}"),
        format!("import java.util.*; public class Solution {{ public {main} }}"),
        format!(
            "/* a comment */ @Deprecated @SuppressWarnings({{\"a)\", \"b\"}}) final public class 解答 {{ public {main} }}"
        ),
        format!(
            "class Helper {{ public static class Main {{ }} char c = '\\''; String s = \"\"\"\n public class No {{ \"\"\"; }} public class Π {{ public {main} }}"
        ),
        format!("record P(int x) {{ }} public interface Runs {{ {main} }}"),
    ] {
        let result = run_files(&[], &["--lang", "java", "--code", &code]);
        assert_eq!(stdout(&result), "ok {\n", "{code}");
    }
    let none = run_files(&[], &["--lang", "java", "--code", "class A { }"]);
    assert_eq!(none["verdict"], "compile_error", "{none:#}");
    assert!(none["error"].as_str().unwrap().contains("no class in Main.java has a method"), "{none:#}");
}

fn a_list_of_files_runs() {
    let files = [("app.py", "import helper\nprint(helper.x)\n"), ("lib/data.txt", "d"), ("helper.py", "x = 'ok'\n")];
    let result = run_files(&files, &["--file", "app.py", "--file", "helper.py", "--file", "lib/data.txt"]);
    assert_eq!(stdout(&result), "ok\n");
    let other = run_files(&files, &["--file", "app.py", "--file", "helper.py", "--entry", "helper.py"]);
    assert_eq!(stdout(&other), "");
    let unclear = tempfile::tempdir().unwrap();
    write(unclear.path(), &[("a.py", ""), ("b.py", "")]);
    let output = run_with_input_in(unclear.path(), &["--lang", "python", "--file", "."], b"");
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        complaint.contains("ambiguous entry: the program could start in a.py, b.py; choose one as the entry"),
        "{complaint}"
    );
}

fn other_sources_may_have_any_name() {
    let c = "int one(void) { return 1; }";
    let main =
        "#include <stdio.h>\nint one(void);\nint two(void);\nint main(void) { printf(\"%d\\n\", one() + two()); }";
    let files = [("main.c", main), ("-O3 @x.c", c), ("my dir/@zwei ü.c", "int two(void) { return 2; }")];
    assert_eq!(stdout(&project(&files)), "3\n");
    let cpp = files.map(|(name, code)| (format!("{name}pp"), code));
    let cpp: Vec<_> = cpp.iter().map(|(name, code)| (name.as_str(), *code)).collect();
    assert_eq!(stdout(&project(&cpp)), "3\n");
    let main = "package main\n\nfunc main() { println(\"\"); print(one) }\n";
    let go = run_files(
        &[("main.go", main), ("-race ü.go", "package main\n\nconst one = 1\n")],
        &["--file", ".", "--entry", "main.go"],
    );
    assert_eq!((stdout(&go), &go["stderr"]), ("", &"\n1".into()));
    let main = "class Main { public static void main(String[] a) { System.out.println(One.one); } }";
    let java = project(&[("Main.java", main), ("-d @x ü.java", "class One { static int one = 1; }")]);
    assert_eq!(stdout(&java), "1\n");
    let wrong = project(&[("main.c", "int main(void) { return 0; }"), ("-my prog.c", "int x = y;")]);
    assert_eq!(wrong["error"].as_str().unwrap(), "./-my prog.c:1:9: error: ‘y’ undeclared here (not in a function)");
}

fn a_file_keeps_its_name() {
    let wrong = "public class Tool { public static void main(String[] a) { int x = \"\"; } }";
    let java = run_files(&[("my_tool.java", wrong)], &["--file", "my_tool.java"]);
    assert!(java["error"].as_str().unwrap().starts_with("my_tool.java:1: error:"), "{java:#}");
    let rust = run_files(&[("odd-name.rs", "fn main() { x }")], &["--file", "odd-name.rs"]);
    assert!(rust["stderr"].as_str().unwrap().contains("--> odd-name.rs:1:13"), "{rust:#}");
    let c = run_files(&[("thing.c", "int main(void) { return x; }")], &["--file", "thing.c"]);
    assert!(c["error"].as_str().unwrap().starts_with("thing.c:1:25: error:"), "{c:#}");
}

fn link_errors_are_reported() {
    let wrong = "extern \"C\" { fn nowhere(); }\nfn main() { unsafe { nowhere() } }";
    let rust = run_files(&[("main.rs", wrong)], &["--file", "main.rs"]);
    assert_eq!(rust["verdict"], "compile_error", "{rust:#}");
    assert!(rust["error"].as_str().unwrap().starts_with("error: linking with `cc` failed"), "{rust:#}");
    // Other functions of the C library are found.
    let right = "extern \"C\" { fn abs(x: i32) -> i32; fn cos(x: f64) -> f64; }\n\
                 fn main() { unsafe { println!(\"{} {}\", abs(-3), cos(0.0)) } }";
    let rust = run_files(&[("main.rs", right)], &["--file", "main.rs"]);
    assert_eq!(stdout(&rust), "3 1\n", "{rust:#}");
}

fn a_custom_language_definition_works() {
    let definition = r#"
name = "awk"
extensions = ["awk"]
source = "main.awk"
[find]
commands = ["mawk", "gawk", "awk"]
describe = '''
echo version=1.0
echo executable=$(readlink -f "$1")
echo prefix=/usr
'''
missing = "install awk"
[run]
argv = ["{executable}", "-f", "{entry}"]
"#;
    let result = run_files(
        &[("defs/awk.toml", definition), ("sum.awk", "BEGIN { print 6 * 7 }")],
        &["--runtimes", "defs", "--file", "sum.awk"],
    );
    assert_eq!((stdout(&result), &result["language"]), ("42\n", &"awk".into()));
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[("awk.toml", &definition.replace("argv", "args"))]);
    let args = ["--runtimes", dir.path().to_str().unwrap(), "--lang", "awk", "--code", "x"];
    let output = run_with_input_in(dir.path(), &args, b"");
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint.contains("awk.toml") && complaint.contains("unknown field `args`"), "{complaint}");
}
