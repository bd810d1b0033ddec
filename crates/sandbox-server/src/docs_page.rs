//! `GET /docs`: the API document as a page for people, without scripts or external resources.

use std::fmt::Write;
use std::sync::OnceLock;

use axum::http::{HeaderValue, header};
use axum::response::{Html, IntoResponse, Redirect};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::openapi::document;
use crate::openapi::examples::{EXAMPLES, Example};
use crate::problem::Code;

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
code,pre{font:14px/1.45 ui-monospace,monospace;background:#8882;border-radius:4px;padding:.1em .3em}\
pre{padding:.8em;overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere}\
h2{margin-top:2.5rem;border-bottom:1px solid #8884}h3{margin-top:2rem}b.method{text-transform:uppercase}\
table{border-collapse:collapse;width:100%}td,th{padding:.25em .8em .25em 0;vertical-align:top;text-align:left;border-bottom:1px solid #8883}\
nav a{display:inline-block;margin-right:1em}p.note{color:GrayText}";

/// The schemas that readers look for first. The others follow in alphabetical order.
const FIRST: [&str; 3] = ["JsonRequest", "RunResult", "Job"];

/// The address of the page for those who type only the server's.
pub(crate) async fn redirect() -> Redirect {
    Redirect::temporary("/docs")
}

/// The page.
pub(crate) async fn page() -> impl IntoResponse {
    static PAGE: OnceLock<(String, HeaderValue)> = OnceLock::new();
    let (page, policy) = PAGE.get_or_init(|| {
        let digest = STANDARD.encode(Sha256::digest(STYLE));
        let policy = format!(
            "default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        let policy = HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"));
        (render(document()), policy)
    });
    ([(header::CONTENT_SECURITY_POLICY, policy.clone())], Html(page.as_str()))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Text with `code` in backquotes and paragraphs.
fn prose(value: &Value) -> String {
    let mut out = String::new();
    for paragraph in value.as_str().unwrap_or_default().split("\n\n").filter(|text| !text.trim().is_empty()) {
        out.push_str("<p>");
        for (index, part) in paragraph.split('`').enumerate() {
            let part = escape(part);
            if index % 2 == 1 {
                let _ = write!(out, "<code>{part}</code>");
            } else {
                out.push_str(&part);
            }
        }
    }
    out
}

/// The same within a line.
fn phrase(value: &Value) -> String {
    prose(value).replacen("<p>", "", 1).replace("<p>", "<br>")
}

/// A command of the examples, quoted for a POSIX shell.
pub(crate) fn command(method: &str, example: &Example) -> String {
    let quote = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    let mut out = String::from(if example.accept == Some("text/event-stream") { "curl -sN" } else { "curl -s" });
    if !["get", "post"].contains(&method) || (method == "post" && example.body.is_none()) {
        let _ = write!(out, " -X {}", method.to_ascii_uppercase());
    }
    if let Some(accept) = example.accept {
        let _ = write!(out, " -H {}", quote(&format!("Accept: {accept}")));
    }
    let mark = if example.target.contains(['$', '?']) { "\"" } else { "" };
    let _ = write!(out, " {mark}localhost:8080{}{mark}", example.target);
    if let Some(body) = example.body {
        let _ = write!(out, " --json {}", quote(body));
    }
    if example.operation == "create_job" { format!("ID=$({out} | jq -r .id)") } else { out }
}

fn render(document: &Value) -> String {
    let mut out = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width,initial-scale=1'>\
         <title>sandbox-server</title><style>{STYLE}</style><h1>{}</h1>{}",
        escape(document["info"]["title"].as_str().unwrap_or_default()),
        prose(&document["info"]["description"])
    );
    out.push_str("<nav>");
    for (anchor, name) in
        [("auth", "Authentication"), ("routes", "Routes"), ("schemas", "Fields"), ("errors", "Errors")]
    {
        let _ = write!(out, "<a href=#{anchor}>{name}</a>");
    }
    out.push_str("<a href=/openapi.json>OpenAPI document</a></nav>");
    out.push_str(
        "<h2 id=auth>Authentication</h2><p>If the server has API keys, send one with every request: \
         <code>Authorization: Bearer KEY</code> or <code>X-API-Key: KEY</code>. With curl: \
         <code>-H &quot;Authorization: Bearer $KEY&quot;</code>. Only <code>/health</code>, <code>/livez</code>, \
         <code>/readyz</code>, this page and the OpenAPI document need no key.",
    );
    routes(document, &mut out);
    schemas(document, &mut out);
    out.push_str(
        "<h2 id=errors>Errors</h2><p>Errors are problem details (RFC 9457). Programs can rely on <code>code</code>.",
    );
    out.push_str("<table><tr><th>code<th>status<th>meaning");
    for code in Code::ALL {
        let (name, status, title) = code.describe();
        let _ = write!(out, "<tr id={name}><td><code>{name}</code><td>{}<td>{}", status.as_u16(), escape(title));
    }
    out.push_str("</table></html>");
    out
}

fn routes(document: &Value, out: &mut String) {
    out.push_str("<h2 id=routes>Routes</h2>");
    for tag in document["tags"].as_array().into_iter().flatten() {
        for (path, methods) in document["paths"].as_object().into_iter().flatten() {
            for (method, route) in methods.as_object().into_iter().flatten() {
                if route["tags"][0] == tag["name"] {
                    operation(method, path, route, out);
                }
            }
        }
    }
}

fn operation(method: &str, path: &str, route: &Value, out: &mut String) {
    let id = route["operationId"].as_str().unwrap_or_default();
    let summary = escape(route["summary"].as_str().unwrap_or_default());
    let _ = write!(out, "<h3 id={id}><b class=method>{method}</b> <code>{}</code></h3>", escape(path));
    let _ = write!(out, "<p><b>{summary}.</b>{}", prose(&route["description"]));
    let parameters = route["parameters"].as_array().into_iter().flatten();
    let rows = parameters.map(|parameter| {
        let place = parameter["in"].as_str().unwrap_or_default();
        let name = parameter["name"].as_str().unwrap_or_default();
        let meaning = phrase(&parameter["description"]);
        format!("<tr><td><code>{}</code><td>{}<td>{meaning}", escape(name), escape(place))
    });
    let rows: String = rows.collect();
    if !rows.is_empty() {
        let _ = write!(out, "<table><tr><th>parameter<th>in<th>meaning{rows}</table>");
    }
    let body = &route["requestBody"]["content"]["application/json"]["schema"];
    if !body.is_null() {
        let _ = write!(out, "<p>Body: {}", kind(body));
    }
    for example in EXAMPLES.iter().filter(|example| example.operation == id) {
        let _ = write!(out, "<p>{}:<pre>{}</pre>", escape(example.title), escape(&command(method, example)));
    }
    out.push_str("<table><tr><th>status<th>answer<th>meaning");
    for (status, response) in route["responses"].as_object().into_iter().flatten() {
        let schema = response["content"].as_object().and_then(|content| content.values().next());
        let schema = schema.map_or_else(String::new, |content| kind(&content["schema"]));
        let _ = write!(out, "<tr><td>{}<td>{schema}<td>{}", escape(status), phrase(&response["description"]));
    }
    out.push_str("</table>");
}

fn schemas(document: &Value, out: &mut String) {
    out.push_str("<h2 id=schemas>Fields</h2><p class=note>Fields marked with * are always there, or required.");
    let Some(all) = document["components"]["schemas"].as_object() else { return };
    let first = FIRST.iter().filter_map(|name| all.get_key_value(*name));
    for (name, schema) in first.chain(all.iter().filter(|(name, _)| !FIRST.contains(&name.as_str()))) {
        let _ = write!(out, "<h3 id=schema-{name}>{name}</h3>{}", prose(&schema["description"]));
        let variants = schema["oneOf"].as_array().into_iter().flatten();
        let variants: String = variants.map(|schema| format!("<li>{}", described(schema))).collect();
        if variants.is_empty() {
            out.push_str(&fields(schema, 0).unwrap_or_else(|| format!("<p>{}", kind(schema))));
        } else {
            let _ = write!(out, "<p>One of:<ul>{variants}</ul>");
        }
    }
}

/// A variant of a schema: its type or fields, and what it is for.
fn described(schema: &Value) -> String {
    let meaning = phrase(&schema["description"]);
    let parts = schema["allOf"].as_array().into_iter().flatten().chain([schema]);
    let fields: String = parts.filter_map(|part| fields(part, 0).or_else(|| named(part))).collect();
    if fields.is_empty() { format!("{} – {meaning}", kind(schema)) } else { format!("{meaning}{fields}") }
}

fn named(schema: &Value) -> Option<String> {
    schema["$ref"].as_str().map(|_| format!("<p>The fields of {}, and:", kind(schema)))
}

/// A table of the fields of an object, and of objects in it that have no name.
fn fields(schema: &Value, depth: usize) -> Option<String> {
    /// Schemas here nest no deeper.
    const DEEPEST: usize = 4;
    let properties = schema["properties"].as_object().filter(|_| depth < DEEPEST)?;
    let required = schema["required"].as_array();
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|known| known == name));
    let mut out = String::from("<table><tr><th>field<th>type<th>meaning");
    for (name, field) in properties {
        let mark = if is_required(name) { "*" } else { "" };
        let inner = fields(field, depth + 1).unwrap_or_default();
        let _ = write!(
            out,
            "<tr><td><code>{}</code>{mark}<td>{}<td>{}{inner}",
            escape(name),
            kind(field),
            phrase(&field["description"])
        );
    }
    out.push_str("</table>");
    Some(out)
}

/// The type that a schema describes, in a few words, with links to named schemas.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("<a href=#schema-{name}>{name}</a>");
    }
    for list in ["oneOf", "allOf"] {
        if let Some(variants) = schema[list].as_array() {
            let names: Vec<String> = variants.iter().map(kind).collect();
            return names.join(" or ");
        }
    }
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> =
            values.iter().filter_map(Value::as_str).map(|text| format!("<code>{}</code>", escape(text))).collect();
        return values.join(", ");
    }
    let name = |name: &str| match name {
        "array" => format!("list of {}", kind(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("object of {}", kind(&schema["additionalProperties"]))
        }
        other => escape(other),
    };
    match &schema["type"] {
        Value::String(one) => name(one),
        Value::Array(several) => several.iter().filter_map(Value::as_str).map(name).collect::<Vec<_>>().join(" or "),
        _ => "any value".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_quoted_for_the_shell() {
        let example = Example { operation: "x", title: "", target: "/a", body: Some(r#"{"a": "it's"}"#), accept: None };
        assert_eq!(command("post", &example), r#"curl -s localhost:8080/a --json '{"a": "it'\''s"}'"#);
        let example = Example { target: "/a?b&c", body: None, accept: Some("text/event-stream"), ..example };
        assert_eq!(
            command("delete", &example),
            r#"curl -sN -X DELETE -H 'Accept: text/event-stream' "localhost:8080/a?b&c""#
        );
    }

    #[test]
    fn every_operation_and_field_is_on_the_page() {
        let page = render(document());
        for (path, methods) in document()["paths"].as_object().expect("paths") {
            for (method, operation) in methods.as_object().expect("methods") {
                let id = operation["operationId"].as_str().expect("an id");
                assert!(page.contains(&format!("<h3 id={id}>")), "{method} {path}");
                assert!(EXAMPLES.iter().any(|example| example.operation == id), "{id} has no example");
            }
        }
        for (name, schema) in document()["components"]["schemas"].as_object().expect("schemas") {
            for field in schema["properties"].as_object().into_iter().flat_map(serde_json::Map::keys) {
                assert!(page.contains(&format!("<code>{field}</code>")), "{name}.{field}");
            }
        }
        assert!(page.contains("viewport") && page.contains("light dark") && !page.contains("<script"));
        assert!(!page.contains("http://") && !page.contains("https://"), "nothing is loaded from elsewhere");
    }
}
