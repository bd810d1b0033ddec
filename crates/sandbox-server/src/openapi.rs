//! The `OpenAPI` document, generated from types and routes, and the page at `/docs`.

use std::fmt::Write;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse};
use sandbox_executor::{JsonRequest, RunResult};
use sandbox_jobs::Job;
use serde_json::Value;
use utoipa::openapi::{Content, Ref, ResponseBuilder};
use utoipa::{Modify, OpenApi, ToSchema};

use crate::problem::{Code, Problem};
use crate::{batch, drain, execute, health, jobs, languages, metrics};

#[derive(OpenApi)]
#[openapi(
    info(title = "sandbox-server", description = "Run untrusted code in single-use Linux sandboxes, and get a precise account of what happened."),
    paths(
        execute::execute, batch::batch, jobs::create, jobs::list, jobs::get, jobs::cancel, jobs::events,
        drain::drain, health::health, health::ready, languages::languages, metrics::metrics
    ),
    components(schemas(JsonRequest, RunResult, Job, Problem, StreamEvent)),
    modifiers(&Refusals),
    tags(
        (name = "runs", description = "Synchronous runs"),
        (name = "jobs", description = "Asynchronous jobs"),
        (name = "server", description = "Server state"),
    )
)]
struct Document;

/// What is refused before a route is asked: the same for all.
struct Refusals;

impl Modify for Refusals {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        for (path, item) in &mut document.paths.paths {
            let operations = [&mut item.get, &mut item.post, &mut item.delete];
            for operation in operations.into_iter().flatten() {
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

// OpenAPI 3.1 has no word for streams: readers of it take the schema of `text/event-stream` for that of each event.
/// One event of a stream.
#[derive(ToSchema)]
#[allow(dead_code, reason = "it is a part of the document; events are written by axum")]
pub(crate) struct StreamEvent {
    /// What happened.
    event: String,
    /// The same and its particulars, as JSON.
    #[schema(content_media_type = "application/json")]
    data: String,
    /// The number of a job's event, for `Last-Event-ID`.
    id: Option<String>,
}

/// `GET /openapi.json`.
pub(crate) async fn json() -> impl IntoResponse {
    Json(Document::openapi())
}

/// Examples that work as they are, with the route they are for.
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

/// `GET /docs`: the document for people. No script, nothing from elsewhere.
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
