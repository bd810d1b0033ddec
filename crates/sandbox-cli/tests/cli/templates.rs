//! Templates around snippets.

use sandbox_testing::command::{result, run};
use serde_json::Value;

struct Template(tempfile::TempDir);

impl Template {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("t.tmpl"), text).unwrap();
        Self(dir)
    }

    fn output(&self, code: &str, flags: &[&str]) -> std::process::Output {
        let path = self.0.path().join("t.tmpl");
        let mut args = vec!["--lang", "python", "--json", "--template", path.to_str().unwrap(), "--code", code];
        args.extend_from_slice(flags);
        run(&args)
    }

    fn run(&self, code: &str, flags: &[&str]) -> Value {
        result(&self.output(code, flags))
    }

    fn complaint(&self, flags: &[&str]) -> String {
        let output = self.output("pass", flags);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

#[test]
fn variables_come_from_flags_json_and_files() {
    let template =
        Template::new("{{ code }}\nprint({{ name | literal }}, {{ numbers | literal }}, {{ text | literal }}, n)\n");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("v.json"), r#"{"numbers": [1, 2.5, null], "name": "overridden"}"#).unwrap();
    std::fs::write(dir.path().join("text"), "it's \"quoted\"\n\\").unwrap();
    let vars = dir.path().join("v.json");
    let text = format!("text=@{}", dir.path().join("text").display());
    let flags = ["--vars", vars.to_str().unwrap(), "--var", "name=A'; import os #", "--var", &text];
    let result = template.run("n = 3", &flags);
    assert_eq!(result["stdout"], "A'; import os # [1, 2.5, None] it's \"quoted\"\n\\ 3\n", "{result:#}");
}

#[test]
fn errors_refer_to_lines_of_the_snippet() {
    let template = Template::new("import sys\n\n\n{{ code }}\n\ndef helper():\n    return snippet()\nhelper()\n");
    let result = template.run("def snippet():\n    return 1 / 0", &[]);
    assert_eq!(result["error"], "ZeroDivisionError: division by zero");
    let stderr = result["stderr"].as_str().unwrap();
    assert!(stderr.contains("main.py\", line 2, in snippet"), "{stderr}");
    assert!(stderr.contains("main.py (template)\", line 9, in <module>"), "{stderr}");
    let syntax = template.run("x = 1\ny = (", &[]);
    assert!(syntax["stderr"].as_str().unwrap().contains("main.py\", line 2"), "{syntax:#}");
}

#[test]
fn invalid_templates_are_explained() {
    let missing = Template::new("{{ code }}\n{{ nothing }}").complaint(&[]);
    assert!(missing.contains("undefined variable (line 2)") && missing.contains("--var NAME=VALUE"), "{missing}");
    let endless = "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}";
    assert!(Template::new(endless).complaint(&[]).contains("takes too long (line 1)"));
    let bomb = "{% set n = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}";
    assert!(Template::new(bomb).complaint(&[]).contains("rendering exceeds 128 MiB of memory"));
    let wide = "{{ code | indent(99999999999) }}";
    let complaint = Template::new(wide).output("a\nb", &[]);
    assert!(!complaint.status.success(), "{complaint:?}");
    assert!(Template::new("{% if %}").complaint(&[]).contains("syntax error (line 1)"));
    assert!(Template::new("x").complaint(&["--var", "a b=c"]).contains("invalid template variable name"));
    assert!(Template::new("x").complaint(&["--vars", "/no/such/file"]).contains("cannot read"));
    let without = run(&["--lang", "python", "--code", "1", "--var", "a=b"]);
    assert!(String::from_utf8_lossy(&without.stderr).contains("--var and --vars require --template"));
}

#[test]
fn a_template_can_require_that_its_end_is_reached() {
    let template = Template::new("import os\n{{ code }}\nprint('end')\nprint(os.environ['TEMPLATE_TOKEN'])\n");
    let whole = template.run("print('begin')", &[]);
    assert_eq!(
        (&whole["verdict"], &whole["stdout"]),
        (&"ok".into(), &"begin\nend\n".into()),
        "the token is not printed"
    );
    for cheat in ["os._exit(0)", "raise SystemExit", "print('x' * 32); os._exit(0)"] {
        let early = template.run(cheat, &[]);
        assert_eq!(early["verdict"], "runtime_error", "{cheat}: {early:#}");
        assert_eq!(early["error"], "the program ended before its template did");
    }
    // It is not part of streamed output either.
    let path = template.0.path().join("t.tmpl");
    let output = run(&["--lang", "python", "--template", path.to_str().unwrap(), "--code", "print('begin')"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "begin\nend\n");
    let args = ["--lang", "python", "--template", path.to_str().unwrap(), "--code", "os._exit(0)"];
    assert_eq!(run(&args).status.code(), Some(1));
}
