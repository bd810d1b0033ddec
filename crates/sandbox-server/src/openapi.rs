//! The `OpenAPI` document, generated from types and routes, and the page at `/docs`.

use std::fmt::Write;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse};
use sandbox_executor::{JsonRequest, RunEvent, RunResult};
use sandbox_jobs::Job;
use serde_json::Value;
use utoipa::openapi::{Content, Ref, ResponseBuilder};
use utoipa::{Modify, OpenApi, ToSchema};

use crate::problem::{Code, Problem};
use crate::streams::ServerEvent;
use crate::{batch, drain, execute, health, jobs, languages, metrics};

#[derive(OpenApi)]
#[openapi(
    info(title = "sandbox-server", description = "Run untrusted code in single-use Linux sandboxes, and get a precise account of what happened."),
    paths(
        execute::execute, batch::batch, jobs::create, jobs::list, jobs::get, jobs::cancel, jobs::events,
        drain::drain, health::health, health::ready, languages::languages, metrics::metrics
    ),
    components(schemas(JsonRequest, RunResult, RunEvent, ServerEvent, Job, Problem, StreamEvent)),
    modifiers(&MiddlewareResponses),
    tags(
        (name = "runs", description = "Synchronous runs"),
        (name = "jobs", description = "Asynchronous jobs"),
        (name = "server", description = "Server state"),
    )
)]
struct Document;

/// Adds the responses of the middleware to every operation.
struct MiddlewareResponses;

impl Modify for MiddlewareResponses {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        for (path, item) in &mut document.paths.paths {
            let operations = [&mut item.get, &mut item.post, &mut item.delete];
            for operation in operations.into_iter().flatten() {
                // A doc comment is a sentence, a summary is a title.
                if let Some(summary) = &mut operation.summary {
                    summary.truncate(summary.trim_end_matches('.').len());
                }
                let mut add = |status: StatusCode, description: &str| {
                    let problem = Content::new(Some(Ref::from_schema_name("Problem")));
                    let response = ResponseBuilder::new().description(description);
                    let response = response.content("application/problem+json", problem).build();
                    operation.responses.responses.entry(status.as_str().to_owned()).or_insert(response.into());
                };
                add(StatusCode::BAD_REQUEST, "The request does not name exactly one host");
                add(StatusCode::FORBIDDEN, "The host, the origin or the scope of the key is not allowed");
                if !["/health", "/readyz"].contains(&path.as_str()) {
                    add(StatusCode::UNAUTHORIZED, "An API key is required");
                    add(StatusCode::TOO_MANY_REQUESTS, "Rate limit exceeded, or too many invalid API keys");
                }
            }
        }
    }
}

// OpenAPI 3.1 cannot describe streams: its readers take the schema of `text/event-stream` for that of each event.
/// A server-sent event.
#[derive(ToSchema)]
#[allow(dead_code, reason = "it is a part of the document; events are written by axum")]
pub(crate) struct StreamEvent {
    /// The name of the event.
    event: String,
    /// The event as JSON: a `RunEvent` or a `ServerEvent`.
    #[schema(content_media_type = "application/json")]
    data: String,
    /// The number of the event, for `Last-Event-ID`; only for jobs.
    id: Option<String>,
}

/// `GET /openapi.json`.
pub(crate) async fn json() -> impl IntoResponse {
    Json(Document::openapi())
}

/// Examples that can be run unchanged: method, path and body.
pub(crate) const EXAMPLES: &[(&str, &str, &str)] = &[
    ("post", "/execute", r#"{"code": "print(2+2)"}"#),
    ("post", "/execute", r#"{"language": "javascript", "code": "[1, 2, 3].map((n) => n * n)", "timeout": "5s"}"#),
    (
        "post",
        "/execute",
        r#"{"code": "print(open('data.csv').read())", "files": {"data.csv": "a,b\n"}, "limits": {"memory": "64m"}}"#,
    ),
    ("post", "/v1/execute", r#"{"language": "bash", "code": "echo hello", "timeout": "2s"}"#),
];

/// `GET /docs`: the document as a page, without scripts or external resources.
pub(crate) async fn page() -> Html<String> {
    Html(render(&serde_json::to_value(Document::openapi()).unwrap_or(Value::Null)))
}

fn render(document: &Value) -> String {
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let text = |value: &Value| escape(value.as_str().unwrap_or_default());
    let mut out = String::from(
        "<!doctype html><meta charset=utf-8><title>sandbox-server</title><style>body{font:16px/1.5 system-ui,sans-serif;\
         max-width:52rem;margin:2rem auto;padding:0 1rem}code,pre{font-family:ui-monospace,monospace;background:#8881;\
         border-radius:4px;padding:.1em .3em}pre{padding:.8em;overflow:auto}b{text-transform:uppercase}td{padding:.1em .8em \
         .1em 0;vertical-align:top}</style>",
    );
    let _ =
        write!(out, "<h1>{}</h1><p>{}</p>", text(&document["info"]["title"]), text(&document["info"]["description"]));
    let _ = write!(out, "<p>The same for programs: <a href=/openapi.json>/openapi.json</a></p>");
    for (path, methods) in document["paths"].as_object().into_iter().flatten() {
        for (method, route) in methods.as_object().into_iter().flatten() {
            let _ = write!(out, "<h2><b>{}</b> <code>{}</code></h2>", escape(method), escape(path));
            let _ = write!(out, "<p>{}. {}</p>", text(&route["summary"]), text(&route["description"]));
            for parameter in route["parameters"].as_array().into_iter().flatten() {
                let _ = write!(
                    out,
                    "<p><code>{}</code> ({}): {}</p>",
                    text(&parameter["name"]),
                    text(&parameter["in"]),
                    text(&parameter["description"])
                );
            }
            for (_, _, body) in EXAMPLES.iter().filter(|(m, p, _)| m == method && p == path) {
                let _ = write!(out, "<pre>curl -s localhost:8080{} --json '{}'</pre>", escape(path), escape(body));
            }
            let _ = write!(out, "<table>");
            for (status, response) in route["responses"].as_object().into_iter().flatten() {
                let _ = write!(out, "<tr><td>{}<td>{}", escape(status), text(&response["description"]));
            }
            let _ = write!(out, "</table>");
        }
    }
    let _ = write!(out, "<h2>Problems</h2><table>");
    for code in Code::ALL {
        let (name, status, title) = code.describe();
        let _ = write!(out, "<tr id={name}><td><code>{name}</code><td>{}<td>{}", status.as_u16(), escape(title));
    }
    out.push_str("</table>");
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Lists the texts for people below a value, each with the names that lead to it.
    fn texts(value: &Value, path: &str, out: &mut String) {
        match value {
            Value::Object(map) => {
                for name in ["operationId", "summary", "title", "description"] {
                    if let Some(text) = map.get(name).and_then(Value::as_str) {
                        let _ = writeln!(out, "{path} {name}: {text}");
                    }
                }
                for (name, value) in map {
                    texts(value, &format!("{path}{}{name}", if name.starts_with('/') { " " } else { "/" }), out);
                }
            }
            Value::Array(list) => {
                for (index, value) in list.iter().enumerate() {
                    let name = value["name"].as_str().map_or_else(|| index.to_string(), str::to_owned);
                    texts(value, &format!("{path}/{name}"), out);
                }
            }
            _ => {}
        }
    }

    fn document() -> Value {
        serde_json::to_value(Document::openapi()).expect("JSON")
    }

    #[test]
    fn summaries_and_descriptions_match() {
        let document = document();
        let mut shown = String::new();
        for part in ["info", "tags", "paths", "components"] {
            texts(&document[part], part, &mut shown);
        }
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("../tests/server/snapshots");
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!("openapi-texts", shown));
    }

    #[test]
    fn every_operation_has_a_summary_and_a_unique_id() {
        let document = document();
        let page = render(&document);
        let mut ids = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().expect("paths") {
            for (method, operation) in methods.as_object().expect("methods") {
                let id = operation["operationId"].as_str().expect("an id").to_owned();
                assert!(id.contains('_') && ids.insert(id), "{method} {path}");
                let summary = operation["summary"].as_str().expect("a summary");
                assert!(!summary.is_empty() && !summary.ends_with('.') && page.contains(summary), "{method} {path}");
            }
        }
        assert!(document["components"]["schemas"]["RunEvent"].is_object());
    }
}
