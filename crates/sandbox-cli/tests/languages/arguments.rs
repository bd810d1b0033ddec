//! Arguments of compilers and interpreters, and standards of languages.

use std::path::Path;

use sandbox_testing::command::{result, run_with_input_in};
use serde_json::Value;

/// The tests here.
pub(crate) const TESTS: &[(&str, fn())] = &[
    ("arguments_reach_the_compiler", arguments_reach_the_compiler),
    ("arguments_reach_the_interpreter", arguments_reach_the_interpreter),
    ("a_standard_can_be_chosen", a_standard_can_be_chosen),
    ("sanitizers_work", sanitizers_work),
    ("a_program_is_compiled_again_with_other_arguments", a_program_is_compiled_again_with_other_arguments),
    ("other_arguments_are_refused", other_arguments_are_refused),
];

fn run(language: &str, flags: &[&str], code: &str) -> Value {
    let args = [&["--json", "--timeout", "20s", "--lang", language, "--code", code], flags].concat();
    result(&run_with_input_in(Path::new("/"), &args, b""))
}

fn prints(language: &str, flags: &[&str], code: &str, expected: &str) {
    let result = run(language, flags, code);
    assert_eq!(result["verdict"], "ok", "{language} {flags:?}: {result:#}");
    assert_eq!(result["stdout"], format!("{expected}\n"), "{language} {flags:?}: {result:#}");
}

fn fails(language: &str, flags: &[&str], code: &str, verdict: &str, expected: &str) {
    let result = run(language, flags, code);
    assert_eq!(result["verdict"], verdict, "{language} {flags:?}: {result:#}");
    let said = format!("{} {}", result["error"].as_str().unwrap(), result["stderr"].as_str().unwrap());
    assert!(said.contains(expected), "{language} {flags:?}: {result:#}");
}

fn arguments_reach_the_compiler() {
    let c = "#include <stdio.h>\nint main(void) { puts(WORDS); return 0; }";
    prints("c", &["--compiler-arg", "-DWORDS=\"a 'b' $c\"", "--compiler-arg=-O3"], c, "a 'b' $c");
    prints("cpp", &["--compiler-arg=-DWORDS=\"x\""], c, "x");
    let unused = "int main() { int x; return 0; }";
    fails("cpp", &["--compiler-arg=-Werror"], unused, "compile_error", "unused variable");
    let omp = "#include <omp.h>\n#include <stdio.h>\nint main(void) { omp_set_num_threads(3); int n = 0;\n\
               #pragma omp parallel reduction(+:n)\nn += 1;\nprintf(\"%d\\n\", n); }";
    prints("c", &["--compiler-arg=-fopenmp"], omp, "3");
    let wraps = "fn main() { let x: u8 = std::env::args().count() as u8 + 254; println!(\"{}\", x + 2); }";
    fails("rust", &[], wraps, "runtime_error", "attempt to add with overflow");
    prints("rust", &["--compiler-arg=-Coverflow-checks=off"], wraps, "1");
    let java = "import java.util.*; class A { public static void main(String[] a) { List x = new ArrayList(); } }";
    fails("java", &["--compiler-arg=-Xlint:all", "--compiler-arg=-Werror"], java, "compile_error", "[rawtypes]");
    let go = [("main.go", "package main\n\nfunc main() { println(kind) }\n")];
    let dir = tempfile::tempdir().unwrap();
    for (name, code) in go.into_iter().chain([
        ("one.go", "//go:build !two\n\npackage main\n\nconst kind = 1\n"),
        ("two.go", "//go:build two\n\npackage main\n\nconst kind = 2\n"),
        ("go.mod", "module example\n\ngo 1.20\n"),
    ]) {
        std::fs::write(dir.path().join(name), code).unwrap();
    }
    let tagged = |flags: &[&str]| {
        let args = [&["--json", "--timeout", "20s", "--file", "."], flags].concat();
        result(&run_with_input_in(dir.path(), &args, b""))["stderr"].clone()
    };
    assert_eq!((tagged(&[]), tagged(&["--compiler-arg=-tags=two"])), ("1\n".into(), "2\n".into()));
    let typescript = "function f(x) { return x; }\nconsole.log(f(1));";
    fails(
        "typescript",
        &["--compiler-arg=--noImplicitAny"],
        typescript,
        "compile_error",
        "implicitly has an 'any' type",
    );
}

fn arguments_reach_the_interpreter() {
    prints(
        "python",
        &["--interpreter-arg=-O"],
        "assert False\nimport sys; print(sys.flags.optimize, __file__)",
        "1 /sandbox/main.py",
    );
    let warns = "import warnings; warnings.warn('x')";
    fails("python", &["--interpreter-arg", "-Werror"], warns, "runtime_error", "UserWarning: x");
    prints("python", &["--interpreter-arg=-Xutf8=0"], "import sys; print(sys.flags.utf8_mode)", "0");
    assert_eq!(run("python", &["--interpreter-arg=-O"], "6 * 7")["result"], "42");
    let deep = "const f = (n) => (n ? f(n - 1) + 1 : 0); console.log(f(20000))";
    fails("javascript", &[], deep, "runtime_error", "Maximum call stack size exceeded");
    prints("javascript", &["--interpreter-arg=--stack-size=4000", "--stack", "16m"], deep, "20000");
    assert_eq!(run("javascript", &["--interpreter-arg=--expose-gc"], "typeof gc")["result"], "'function'");
    prints("typescript", &["--interpreter-arg=--expose-gc"], "console.log(typeof (globalThis as any).gc)", "function");
    let java = "class A { static int f(int n) { return n == 0 ? 0 : f(n - 1) + 1; } public static void main(String[] a) {\n\
                boolean on = false; assert on = true; System.out.println(on + \" \" + f(100_000)); } }";
    prints("java", &["--interpreter-arg=-ea", "--interpreter-arg=-Xss256m"], java, "true 100000");
    fails("bash", &["--interpreter-arg=-eu"], "echo $missing", "runtime_error", "missing: unbound variable");
    fails("perl", &["--interpreter-arg=-Mstrict"], "$x = 1;", "runtime_error", "Global symbol \"$x\" requires");
}

fn a_standard_can_be_chosen() {
    prints(
        "cpp",
        &["--standard", "c++17"],
        "#include <cstdio>\nint main() { printf(\"%ld\\n\", __cplusplus); }",
        "201703",
    );
    prints(
        "c",
        &["--standard", "c99"],
        "#include <stdio.h>\nint main(void) { printf(\"%ld\\n\", __STDC_VERSION__); }",
        "199901",
    );
    let rust = "fn main() { let async = 1; println!(\"{async}\"); }";
    prints("rust", &["--standard", "2015"], rust, "1");
    fails("rust", &[], rust, "compile_error", "expected identifier, found keyword `async`");
    let java = "class A { public static void main(String[] a) { var x = \"\"\"\n  ok\"\"\"; System.out.println(x); } }";
    prints("java", &[], java, "ok");
    fails("java", &["--standard", "11"], java, "compile_error", "text blocks are not supported in -source 11");
    prints("typescript", &["--standard", "es2020"], "class A { x = 1 }\nconsole.log(new A().x)", "1");
}

fn sanitizers_work() {
    let wrong = "#include <stdlib.h>\nint main(void) { char *x = malloc(4); free(x); return x[1]; }";
    let flags = ["--compiler-arg=-fsanitize=address", "--memory", "512m"];
    fails("c", &flags, wrong, "runtime_error", "AddressSanitizer: heap-use-after-free");
    let right = "#include <stdio.h>\nint main(void) { puts(\"fine\"); }";
    prints("c", &flags, right, "fine");
    let races = "#include <pthread.h>\nint x;\nvoid *f(void *p) { x++; return p; }\n\
                 int main(void) { pthread_t t; pthread_create(&t, 0, f, 0); x++; pthread_join(t, 0); return 0; }";
    fails(
        "c",
        &["--compiler-arg=-fsanitize=thread", "--memory=512m"],
        races,
        "runtime_error",
        "ThreadSanitizer: data race",
    );
    let overflow = "#include <limits.h>\n#include <stdio.h>\nint main(int n, char **v) { int x = INT_MAX; x += n; printf(\"%d\\n\", x); }";
    fails(
        "cpp",
        &["--compiler-arg=-fsanitize=undefined", "--compiler-arg=-fno-sanitize-recover"],
        overflow,
        "runtime_error",
        "signed integer overflow",
    );
}

fn a_program_is_compiled_again_with_other_arguments() {
    let code = "#include <stdio.h>\nint main(void) { printf(\"%d\\n\", N); }";
    prints("c", &["--compiler-arg=-DN=1"], code, "1");
    prints("c", &["--compiler-arg=-DN=2"], code, "2");
    let again = run("c", &["--compiler-arg=-DN=1"], code);
    assert_eq!((&again["stdout"], &again["compile"]["cached"]), (&"1\n".into(), &true.into()), "{again:#}");
}

fn other_arguments_are_refused() {
    let refused = |language: &str, flags: &[&str]| {
        let result = run(language, flags, "1");
        assert_eq!(result["verdict"], "invalid_request", "{result:#}");
        result["error"].as_str().unwrap().to_owned()
    };
    let error = refused("c", &["--compiler-arg=-fplugin=/sandbox/x.so"]);
    assert!(
        error.starts_with("compiler argument '-fplugin=/sandbox/x.so' is not allowed for C; allowed are "),
        "{error}"
    );
    let error = refused("python", &["--interpreter-arg", "-c"]);
    assert!(error.starts_with("interpreter argument '-c' is not allowed for Python; allowed are "), "{error}");
    assert_eq!(refused("python", &["--compiler-arg=-O"]), "Python has no compiler arguments to set");
    assert_eq!(refused("bash", &["--standard=posix"]), "Bash has no standards to choose from");
    let error = refused("python", &["--restricted", "--interpreter-arg=-O"]);
    assert_eq!(error, "python does not support restricted mode with interpreter arguments");
}
