//! Templates: a file with placeholders around a snippet.
//!
//! A template, its variables and the snippet are part of a request, so they are not interpreted by the host: this
//! program runs itself in a locked cell ([`render`]), with little memory and little time, and gets a text back.
//!
//! In a template, `{{ code }}` is the snippet, `{{ name }}` a variable, and `{{ name | literal }}` the variable as a
//! literal of the language. Messages about lines of the rendered text are translated to lines of the snippet
//! ([`Translator`]). A template that reads `TEMPLATE_TOKEN` from its environment has to print it at its end ([`guard`]): a
//! snippet that ends the program before that has not passed.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use sandbox_base::limits::Caps;
use sandbox_base::{LimitKind, Limits};
use sandbox_cell::archive::Archive;
use sandbox_cell::{CellSpec, Command, Failure, LayerSet, Mount, RunStatus, StopReason};
use sandbox_network::AddressPolicy;
use sandbox_runtimes::{Definition, Literals};
use serde::{Deserialize, Serialize};

use crate::execute::Cells;
use crate::output_files::Collected;
use crate::stage::{BEGIN, Input, Stage, StageError, failure};

mod translate;

pub(crate) use translate::Translator;

/// The variable with the text that a template has to print at its end.
pub(crate) const TOKEN: &str = "TEMPLATE_TOKEN";

/// The argument with which this program renders its standard input.
pub const RENDER_COMMAND: &str = "render-template";

/// The path of the renderer in its cell.
const RENDERER_PATH: &str = "/opt/renderer";

/// The maximum number of instructions of a template.
const FUEL: u64 = 1_000_000;

/// Characters that mark the snippet's place in the rendered text, and that do not occur in practice.
const MARKS: [char; 2] = ['\u{10fffe}', '\u{10ffff}'];

/// A template with its variables.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TemplateRequest {
    /// Its name in messages.
    pub name: String,
    /// Its text.
    pub text: Arc<str>,
    /// Its variables.
    pub variables: Arc<BTreeMap<String, serde_json::Value>>,
}

/// A snippet in its template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rendered {
    pub(crate) code: Arc<str>,
    /// Where the snippet is.
    pub(crate) lines: Option<Lines>,
    /// Whether the template has to print a token at its end.
    pub(crate) guarded: bool,
}

/// The lines of a rendered text that are the snippet's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lines {
    /// How many lines are before it.
    before: usize,
    /// How many it has.
    count: usize,
}

/// The input of the renderer.
#[derive(Debug, Serialize, Deserialize)]
struct RenderTask {
    template: TemplateRequest,
    language: String,
    /// How the language writes values; none if its definition does not say.
    literals: Option<Literals>,
    code: Arc<str>,
}

impl TemplateRequest {
    /// Renders a snippet in a separate cell. `renderer` is a program that does it when it is called with
    /// [`RENDER_COMMAND`].
    pub(crate) fn render(
        &self,
        cells: &Cells,
        renderer: &std::path::Path,
        language: &Definition,
        code: &Arc<str>,
        required: LayerSet,
        cancel: &[BorrowedFd<'_>],
    ) -> Result<Rendered, StageError> {
        let refuse = |why: String| Failure::of_request(self.name.clone(), why);
        let internal = |why: &str| Failure { request: false, ..refuse(why.to_owned()) };
        let job = RenderTask {
            template: self.clone(),
            language: language.name.clone(),
            literals: language.literals.clone(),
            code: Arc::clone(code),
        };
        let job = serde_json::to_vec(&job).map_err(|error| refuse(error.to_string()))?;
        let mut limits = Limits::default();
        for (kind, value) in
            [(LimitKind::Memory, 128 << 20), (LimitKind::WallTime, 5_000_000), (LimitKind::Output, 32 << 20)]
        {
            let _ = limits.set(kind, value, &Caps::default());
        }
        let cell =
            CellSpec { limits, mounts: vec![Mount::read_only(renderer, RENDERER_PATH)], required, ..CellSpec::new() };
        let stage = Stage {
            cell: &cell,
            artifact_mounts: &[],
            prestart: None,
            command: &Command::new([RENDERER_PATH, RENDER_COMMAND]),
            files: &Archive::new().map_err(|error| failure("cannot render the template", &error))?,
            input: Input::Bytes(job.into()),
            collect: None,
            patience: std::time::Duration::ZERO,
            creation: BEGIN,
            address_policy: &AddressPolicy::default(),
            last: false,
        };
        let ended = stage.run(cells, cancel, &mut |_, _| {}, &mut Collected::default())?;
        match (ended.outcome.stopped, ended.outcome.status) {
            (None, RunStatus::Exited(0)) => {
                let answer: Result<Rendered, String> = serde_json::from_slice(&ended.stdout.kept)
                    .map_err(|_| internal("invalid response of the renderer"))?;
                Ok(answer.map_err(refuse)?)
            }
            (Some(StopReason::Cancelled), _) => Err(StageError::Cancelled),
            (Some(StopReason::Limit(kind)), _) => Err(refuse(format!(
                "rendering exceeds {} of {}",
                kind.format(cell.limits.get(kind).unwrap_or(0)),
                kind.info().name
            ))
            .into()),
            _ => Err(internal("the renderer failed").into()),
        }
    }
}

/// Renders a job and returns the answer. To be called in a cell.
#[must_use]
pub fn render(job: &[u8]) -> Vec<u8> {
    let answer =
        serde_json::from_slice(job).map_err(|error| error.to_string()).and_then(|job: RenderTask| fill_in(&job));
    serde_json::to_vec(&answer).unwrap_or_default()
}

fn fill_in(job: &RenderTask) -> Result<Rendered, String> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    let (language, literals) = (job.language.clone(), job.literals.clone());
    environment.add_filter("literal", move |value: Value| -> Result<String, Error> {
        let invalid = |why: String| Error::new(ErrorKind::InvalidOperation, why);
        let value = serde_json::to_value(&value).map_err(|error| invalid(error.to_string()))?;
        let literals = literals.as_ref().ok_or_else(|| invalid(format!("{language} defines no literals")))?;
        let written = literals.write(&unmarked(value));
        written.map_err(|what| invalid(format!("{language} has no literal for {what}")))
    });
    let mut variables: BTreeMap<String, Value> =
        job.template.variables.iter().map(|(name, value)| (name.clone(), Value::from(Serde(value)))).collect();
    let code = job.code.trim_end_matches('\n');
    variables.insert("code".to_owned(), Value::from(format!("{}{code}{}", MARKS[0], MARKS[1])));
    variables.insert("language".to_owned(), Value::from(job.language.clone()));
    let mut syntax = minijinja::syntax::SyntaxConfig::builder();
    let syntax = syntax.keep_trailing_newline(true).trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(|error| error.to_string())?);
    let text = environment
        .render_named_str(&job.template.name, &job.template.text, Value::from_pairs(variables))
        .map_err(|error| explain(&error))?;
    let lines = text.find(MARKS[0]).and_then(|start| {
        let end = text[start..].find(MARKS[1])? + start;
        let count = |part: &str| part.matches('\n').count();
        Some(Lines { before: count(&text[..start]), count: count(&text[start..end]) + 1 })
    });
    let code = text.replace(MARKS, "").into();
    Ok(Rendered { code, lines, guarded: job.template.text.contains(TOKEN) })
}

/// A value without marks in its strings: as a literal, the snippet is a text and nothing more.
fn unmarked(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::String(text) => Value::String(text.replace(MARKS, "")),
        Value::Array(items) => Value::Array(items.into_iter().map(unmarked).collect()),
        Value::Object(map) => {
            Value::Object(map.into_iter().map(|(key, value)| (key.replace(MARKS, ""), unmarked(value))).collect())
        }
        other => other,
    }
}

fn explain(error: &Error) -> String {
    let line = error.line().map(|line| format!(" (line {line})")).unwrap_or_default();
    let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    match error.kind() {
        ErrorKind::UndefinedError => format!("undefined variable{line}{detail}; set it with --var NAME=VALUE"),
        ErrorKind::OutOfFuel => format!("the template takes too long{line}; check it for an endless loop"),
        _ => format!("{}{line}{detail}", error.kind()),
    }
}

/// Looks for the token at the end of standard output, and removes it.
pub(crate) fn guard(stdout: &mut String, token: &str) -> bool {
    let trimmed = stdout.trim_end();
    let start = trimmed.rfind('\n').map_or(0, |at| at + 1);
    if trimmed[start..] == *token {
        stdout.truncate(start);
        return true;
    }
    false
}

/// An unguessable token.
pub(crate) fn new_token() -> std::io::Result<String> {
    Ok(sandbox_base::random::random_token::<16>()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fill(text: &str, code: &str, variables: serde_json::Value) -> Result<Rendered, String> {
        let variables = serde_json::from_value(variables).expect("a map");
        let template = TemplateRequest { name: "t".to_owned(), text: text.into(), variables };
        let registry = sandbox_runtimes::Registry::shipped().expect("valid");
        let literals = registry.by_name("python").expect("known").literals.clone();
        let job = RenderTask { template, language: "python".to_owned(), literals, code: code.into() };
        serde_json::from_slice(&render(&serde_json::to_vec(&job).expect("json"))).expect("an answer")
    }

    #[test]
    fn placeholders_are_filled_in() {
        let text = "# {{ title }}\n{{ code }}\nprint({{ text | literal }})\n";
        let rendered = fill(text, "a = 1\nb = 2\n", json!({"title": "x", "text": "it's \"q\""})).expect("rendered");
        assert_eq!(&*rendered.code, "# x\na = 1\nb = 2\nprint(\"it's \\\"q\\\"\")\n");
        assert_eq!(rendered.lines, Some(Lines { before: 1, count: 2 }));
        assert!(!rendered.guarded);
        let inside = fill("def f():\n    {{ code | indent(4) }}\n", "a\nb", json!({})).expect("rendered");
        assert_eq!(&*inside.code, "def f():\n    a\n    b\n");
        let quoted = fill("x = {{ code | literal }}", "a\nb", json!({})).expect("rendered");
        assert_eq!((&*quoted.code, quoted.lines), ("x = \"a\\nb\"", None));
        let nested = fill("x = {{ [code, {code: code}] | literal }}", "a", json!({})).expect("rendered");
        assert_eq!((&*nested.code, nested.lines), ("x = [\"a\", {\"a\": \"a\"}]", None));
    }

    #[test]
    fn mistakes_are_explained() {
        let missing = fill("a\n{{ nothing }}", "x", json!({})).expect_err("refused");
        assert!(missing.starts_with("undefined variable (line 2)"), "{missing}");
        let endless = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
        assert!(fill(endless, "x", json!({})).expect_err("refused").contains("takes too long"));
        assert!(fill("{% if %}", "x", json!({})).expect_err("refused").contains("syntax error"));
        assert!(fill("{{ code | nofilter }}", "x", json!({})).expect_err("refused").contains("nofilter"));
    }

    #[test]
    fn only_a_token_at_the_end_passes_the_guard() {
        let guarded = |text: &str| {
            let mut text = text.to_owned();
            (guard(&mut text, "T"), text)
        };
        assert_eq!(guarded("a\nT\n"), (true, "a\n".to_owned()));
        assert_eq!(guarded("T"), (true, String::new()));
        assert_eq!(guarded("T\na\n"), (false, "T\na\n".to_owned()));
        assert_eq!(guarded("a T\n"), (false, "a T\n".to_owned()));
        assert_ne!(new_token().expect("random"), new_token().expect("random"));
    }
}
