//! The content of a result: the value of the last expression, the reason of a failure; and restricted Python.

use sandbox_testing::command::{python, run};
use serde_json::Value;

#[test]
fn python_sees_the_configuration_of_fonts() {
    // Without it, every chart of matplotlib prints an error of Fontconfig.
    let file = "/etc/fonts/fonts.conf";
    let seen = python(&format!("import os; print(os.path.exists('{file}'))"), &[]);
    let expected = if std::path::Path::new(file).exists() { "True\n" } else { "False\n" };
    assert_eq!(seen["stdout"], expected, "{seen:#}");
}

#[test]
fn the_result_is_the_value_of_the_last_expression() {
    for (code, expected) in [
        ("2 + 2", "4"),
        ("print('noise')\nx = [1, 'a']\nx", "[1, 'a']"),
        ("'text'", "'text'"),
        ("print(2 + 2)", "4"),
        ("x = 1", ""),
        ("def f():\n    return 5\nf()", "5"),
        ("import sys\nsys.stdout.write('a\\nb\\n')\nNone", "a\nb"),
        ("class A:\n    def __repr__(self): return 'mine'\nA()", "mine"),
        ("'x' * 100_000", &format!("'{}", "x".repeat(65_535))),
        // Lines that begin in the first column without beginning a statement.
        ("x = 1 \\\n+ 2\nx", "3"),
        ("x = 1 \\\r\n+ 2\r\nx", "3"),
        ("x = 1 \\\r\n+ 2\r\n", ""),
        ("'a' \\\n'b'", "'ab'"),
        ("'''a\nb\n'''", "'a\\nb\\n'"),
        ("[1,\n2]", "[1, 2]"),
        ("if True:\n    1\nelse:\n    2", ""),
        ("x = 5; x", "5"),
        ("# -*- coding: utf-8 -*-\n'ä'", "'ä'"),
    ] {
        let result = python(code, &[]);
        assert_eq!(result["result"], expected, "{code}");
    }
    assert_eq!(python("1\nraise ValueError('x')", &[])["result"], Value::Null);
}

#[test]
fn the_runner_is_invisible() {
    let code = "
import sys, os, inspect, traceback
def f(): pass
print(__name__, __file__, sys.argv, sys.path[0], 'RESULT' in os.environ)
print(sorted(name for name in globals() if not name.startswith('__')))
print(inspect.getsource(f).strip())
try:
    1 / 0
except ZeroDivisionError:
    print(len(traceback.extract_tb(sys.exc_info()[2])))
";
    let result = python(code, &["--", "a"]);
    let expected = "__main__ /sandbox/main.py ['main.py', 'a'] /sandbox False\n\
                    ['f', 'inspect', 'os', 'sys', 'traceback']\ndef f(): pass\n1\n";
    assert_eq!(result["stdout"], expected, "{result:#}");
    let failed = python("def f():\n    raise KeyError('k')\nf()", &[]);
    let expected = "Traceback (most recent call last):\n  File \"/sandbox/main.py\", line 3, in <module>\n    f()\n  \
                    File \"/sandbox/main.py\", line 2, in f\n    raise KeyError('k')\nKeyError: 'k'\n";
    assert_eq!(failed["stderr"], expected);
    // Without it, everything is the same.
    let plain = run(&["--lang", "python", "--code", code, "--", "a"]);
    assert_eq!(String::from_utf8(plain.stdout).unwrap(), result["stdout"].as_str().unwrap());
    let plain = run(&["--lang", "python", "--quiet", "--code", "def f():\n    raise KeyError('k')\nf()"]);
    assert_eq!(String::from_utf8(plain.stderr).unwrap(), expected);
}

#[test]
fn a_logged_traceback_is_not_the_reason() {
    let logged = "import os, sys, traceback\ntry: 1 / 0\nexcept Exception: traceback.print_exc()\n";
    let given_up = python(&format!("{logged}print('given up', file=sys.stderr)\nsys.exit(3)"), &[]);
    assert_eq!(given_up["error"], "given up");
    assert_eq!(python(&format!("{logged}os.abort()"), &[])["error"], "killed by SIGABRT (aborted)");
}

#[test]
fn reasons_are_one_line() {
    for (code, error) in [
        ("undefined_variable", "NameError: name 'undefined_variable' is not defined"),
        ("raise ValueError('first\\nsecond')", "ValueError: first"),
        (
            "import json; json.loads('{')",
            "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        ),
        ("class Own(Exception): pass\nraise Own", "Own"),
        ("x = (", "SyntaxError: '(' was never closed"),
        ("import sys; sys.exit('given up')", "given up"),
        ("import sys; sys.exit(7)", "exited with code 7"),
        ("import os; os.abort()", "killed by SIGABRT (aborted)"),
        ("assert 1 == 2, 'no'", "AssertionError: no"),
        ("raise ExceptionGroup('many', [ValueError(1)])", "ExceptionGroup: many (1 sub-exception)"),
        ("try:\n    1 / 0\nexcept Exception as e:\n    raise OSError('no') from e", "OSError: no"),
    ] {
        assert_eq!(python(code, &[])["error"], error, "{code}");
        // The text of the command has no value, so the program runs without the runner.
        let output = run(&["--lang", "python", "--code", code]);
        let text = String::from_utf8(output.stderr).unwrap();
        let summary = text.lines().last().unwrap();
        assert!(summary.contains(&format!(": {error} ")), "{code}: {text}");
    }
}

#[test]
fn restricted_python_allows_only_safe_operations() {
    let restricted = |code: &str| python(code, &["--restricted"]);
    let fine = restricted(
        "
def mean(xs):
    return sum(xs) / len(xs)
class Point:
    def __init__(self, x): self.x = x
try:
    [][1]
except IndexError as error:
    print(type(error) is IndexError, f'{Point(3).x:03}')
sorted({k: v for k, v in zip('ab', range(2))}), mean([1, 2])
",
    );
    assert_eq!(fine["verdict"], "ok", "{fine:#}");
    assert_eq!((&fine["stdout"], &fine["result"]), (&"True 003\n".into(), &"(['a', 'b'], 1.5)".into()));
    for (code, what) in [
        ("import os", "importing 'os' is not allowed in restricted mode (line 1)"),
        ("x = 1\nfrom os import path", "importing 'os' is not allowed in restricted mode (line 2)"),
        ("open('/etc/passwd')", "'open' is not allowed in restricted mode (line 1)"),
        ("eval('1')", "'eval' is not allowed in restricted mode (line 1)"),
        ("print(exec)", "'exec' is not allowed in restricted mode (line 1)"),
        ("__import__('os')", "'__import__' is not allowed in restricted mode (line 1)"),
        ("().__class__.__bases__", "the attribute '__class__' is not allowed in restricted mode (line 1)"),
        ("getattr(1, 'real')", "'getattr' is not allowed in restricted mode (line 1)"),
        ("globals()", "'globals' is not allowed in restricted mode (line 1)"),
        ("(x for x in []).gi_frame", "the attribute 'gi_frame' is not allowed in restricted mode (line 1)"),
    ] {
        let result = restricted(code);
        // Either attribute may be reported first.
        let error = result["error"].as_str().unwrap().replace("'__bases__'", "'__class__'");
        assert_eq!(error, format!("RestrictedError: {what}"), "{code}");
    }
    assert_eq!(restricted("missing")["error"], "NameError: name 'missing' is not defined");
    let own = restricted("def open(x):\n    return x\nopen(3)");
    assert_eq!(own["result"], "3", "the program's own names are allowed: {own:#}");
    let output = run(&["--lang", "bash", "--restricted", "--code", "ls"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("bash does not support restricted mode"));
}
