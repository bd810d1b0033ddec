// Runs a function on cases: {{ function }}. Variables: function, cases (a list of {"args": [...], "expected": ...}).
{{ code }}

#[allow(dead_code)]
mod harness {
    pub fn text(value: &str) -> String {
        let mut out = String::from("\"");
        for c in value.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                c if (c as u32) < 32 => out.push_str(&format!("\\u{:04x}", c as u32)),
                c => out.push(c),
            }
        }
        out.push('"');
        out
    }

    pub fn case<T: std::fmt::Debug + PartialEq<E>, E: std::fmt::Debug>(
        number: usize,
        expected: E,
        call: impl FnOnce() -> T + std::panic::UnwindSafe,
    ) -> bool {
        let outcome = std::panic::catch_unwind(call);
        let (passed, actual, error) = match &outcome {
            Ok(actual) => (*actual == expected, text(&format!("{actual:?}")), "null".to_owned()),
            Err(problem) => {
                let said = problem.downcast_ref::<String>().cloned();
                let said = said.or_else(|| problem.downcast_ref::<&str>().map(|said| said.to_string()));
                (false, "null".to_owned(), text(&said.unwrap_or_else(|| "panic".to_owned())))
            }
        };
        let expected = text(&format!("{expected:?}"));
        let report = format!("\"case\":{number},\"passed\":{passed},\"expected\":{expected},\"actual\":{actual}");
        println!("{}{report},\"error\":{error}{}", '{', '}');
        passed
    }
}

fn main() {
    let token = std::env::var("TEMPLATE_TOKEN").unwrap_or_default();
    let passed = [
{% for case in cases %}
        harness::case({{ loop.index0 }}, {{ case.expected | literal }}, || {{ function }}({% for arg in case.args %}{{ arg | literal }}{% if not loop.last %}, {% endif %}{% endfor %})),
{% endfor %}
    ];
    let failed = passed.iter().filter(|passed| !**passed).count();
    if failed > 0 {
        eprintln!("{failed} of {} cases failed", passed.len());
    }
    println!("{token}");
    std::process::exit(if failed > 0 { 1 } else { 0 });
}
