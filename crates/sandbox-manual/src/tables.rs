//! The tables of documents, as the code has them. Only the test that writes them needs them.

use sandbox_base::LimitKind;
use sandbox_base::limits::{LimitInfo, TABLE as LIMITS};
use sandbox_executor::{VARIABLES, Verdict};
use sandbox_runtimes::{AllowedArguments, Definition, Registry};

use crate::definition_keys;
use crate::generated::{code_list, hold, table};

/// The width of prose.
const WIDTH: usize = 100;

/// The limited resource, without an article.
fn what(limit: &LimitInfo) -> &'static str {
    limit.help.strip_prefix("the ").unwrap_or(limit.help)
}

/// Prose, in lines of at most [`WIDTH`] characters.
fn wrap(text: &str) -> String {
    let mut lines: Vec<String> = vec![];
    for word in text.split(' ') {
        match lines.last_mut().filter(|line| line.chars().count() + word.chars().count() < WIDTH) {
            Some(line) => line.push_str(&format!(" {word}")),
            None => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// The variables that both programs read, and those of limits.
fn variables() -> String {
    let rows = VARIABLES
        .iter()
        .map(|variable| [format!("`{}`", variable.name), variable.default.text().to_owned(), variable.help.to_owned()]);
    let limits = LIMITS.iter().map(|limit| {
        let note = if limit.note.is_empty() { String::new() } else { format!(" ({})", limit.note) };
        [
            code_list([limit.flag].into_iter().chain(limit.flag_alias).map(|flag| format!("--{flag}"))),
            code_list(limit.default_variables()),
            code_list(limit.cap_variables()),
            limit.default_text(),
            format!("{}{note}", what(limit)),
        ]
    });
    let head = ["limit", "variable of the default", "variable of the cap", "default", "what is limited"];
    format!("{}\n\n{}", table(["variable", "default", "meaning"], rows), table(head, limits))
}

/// The limits of a run, with the verdict on a program that reaches one.
fn limits() -> String {
    let verdict = |kind: LimitKind| match (kind, Verdict::of_limit(kind)) {
        (LimitKind::Cpus, _) => "none: the program runs slower".to_owned(),
        (LimitKind::OutputSize, _) => "none: files beyond it are left out".to_owned(),
        (LimitKind::Stack, verdict) => format!("`{}`, usually killed by SIGSEGV", verdict.name()),
        (_, verdict @ Verdict::RuntimeError) => format!("`{}`; `limit` names the limit", verdict.name()),
        (_, verdict) => format!("`{}`", verdict.name()),
    };
    let rows = LIMITS.iter().map(|limit| {
        [what(limit).to_owned(), format!("`--{}`", limit.flag), limit.default_text(), verdict(limit.kind)]
    });
    table(["limit", "flag", "default", "verdict"], rows)
}

/// The default caps of a server.
fn caps() -> String {
    let rows = LIMITS.iter().map(|limit| {
        let names = code_list([limit.name].into_iter().chain(limit.alias));
        [names, format!("`{}`", limit.cap_variable), limit.server_cap_text()]
    });
    table(["limit", "variable", "default cap of a server"], rows)
}

/// The titles of the languages, in a sentence.
fn language_names(registry: &Registry) -> String {
    let titles: Vec<&str> = registry.all().map(Definition::title).collect();
    let (last, others) = titles.split_last().unwrap_or((&"", &[]));
    wrap(&format!("The languages are {} and {last}.", others.join(", ")))
}

/// The languages with their names, files and packages.
fn languages(registry: &Registry) -> String {
    let names = |names: &[String]| code_list(names.iter().map(String::as_str));
    let rows = registry.all().map(|language| {
        let packages = language.packages.as_ref();
        [
            language.title().to_owned(),
            code_list([&language.name].into_iter().chain(&language.aliases).map(String::as_str)),
            code_list(
                language
                    .extensions
                    .iter()
                    .map(|ending| format!(".{ending}"))
                    .collect::<Vec<_>>()
                    .iter()
                    .map(String::as_str),
            ),
            packages.map(|packages| format!("`{}`", packages.example)).unwrap_or_default(),
            packages.map(|packages| names(&packages.manifests)).unwrap_or_default(),
            packages.map(|packages| names(&packages.pass)).unwrap_or_default(),
        ]
    });
    table(["language", "names", "files", "package", "manifests", "variables of the package index"], rows)
}

/// The arguments that requests may set.
fn arguments(registry: &Registry) -> String {
    let shown = |allowed: &AllowedArguments| allowed.keys().cloned().collect::<Vec<_>>().join("; ");
    let rows = registry.all().map(|language| {
        let compile = language.compile.as_ref();
        let standards = compile.and_then(|compile| compile.standards.as_ref());
        [
            language.title().to_owned(),
            standards.map(|standards| standards.names.join(", ")).unwrap_or_default(),
            compile.map(|compile| shown(&compile.arguments)).unwrap_or_default(),
            shown(&language.run.arguments),
        ]
    });
    table(["language", "standards", "arguments of the compiler", "arguments of the interpreter"], rows)
}

#[test]
fn generated_parts_are_up_to_date() {
    let registry = Registry::shipped().expect("valid");
    for (document, part, expected) in [
        ("docs/REFERENCE.md", "variables", variables()),
        ("docs/SANDBOX_RUN.md", "limits", limits()),
        ("README.md", "languages", language_names(&registry)),
        ("docs/SERVER.md", "caps", caps()),
        ("docs/LANGUAGES.md", "languages", languages(&registry)),
        ("docs/LANGUAGES.md", "arguments", arguments(&registry)),
        ("docs/LANGUAGES.md", "keys", definition_keys::chapters()),
    ] {
        hold(document, part, &expected).expect("up to date");
    }
}

#[test]
fn prose_is_wrapped() {
    let text = vec!["word"; 40].join(" ");
    assert_eq!(wrap(&text).lines().map(str::len).collect::<Vec<_>>(), [99, 99]);
    assert_eq!(wrap(&text).replace('\n', " "), text);
}
