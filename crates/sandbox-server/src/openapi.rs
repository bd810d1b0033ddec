//! The `OpenAPI` document, generated from types and routes.

pub(crate) mod examples;
mod finish;

use std::sync::OnceLock;

use axum::Json;
use axum::http::StatusCode;
use sandbox_executor::{JsonRequest, RunEvent, RunResult};
use sandbox_jobs::Job;
use serde_json::Value;
use utoipa::openapi::{Content, Ref, ResponseBuilder};
use utoipa::{Modify, OpenApi, ToSchema};

use self::finish::finish;
use crate::problem::Problem;
use crate::streams::ServerEvent;
use crate::{batch, drain, execute, health, job_events, jobs, languages, metrics};

#[derive(OpenApi)]
#[openapi(
    info(title = "sandbox-server", description = "Run untrusted code in single-use Linux sandboxes, and get a precise account of what happened."),
    paths(
        execute::execute, batch::batch, jobs::create, jobs::list, jobs::get, jobs::cancel, job_events::events,
        drain::drain, health::health, health::live, health::ready, languages::languages, metrics::metrics
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
                add(StatusCode::INTERNAL_SERVER_ERROR, "The server failed");
                if path.starts_with("/execute") || path.starts_with("/v1/") {
                    add(
                        StatusCode::SERVICE_UNAVAILABLE,
                        "The server is draining or shutting down, or the job store is unavailable",
                    );
                }
                if !["/health", "/livez", "/readyz"].contains(&path.as_str()) {
                    add(StatusCode::UNAUTHORIZED, "An API key is required");
                    add(StatusCode::TOO_MANY_REQUESTS, "Rate limit exceeded, or too many invalid API keys");
                }
            }
        }
    }
}

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

/// The document.
pub(crate) fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| finish(serde_json::to_value(Document::openapi()).unwrap_or_default()))
}

/// `GET /openapi.json`.
pub(crate) async fn json() -> Json<&'static Value> {
    Json(document())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write;

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
        super::document().clone()
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
        let mut ids = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().expect("paths") {
            for (method, operation) in methods.as_object().expect("methods") {
                let id = operation["operationId"].as_str().expect("an id").to_owned();
                assert!(id.contains('_') && ids.insert(id), "{method} {path}");
                let summary = operation["summary"].as_str().expect("a summary");
                assert!(!summary.is_empty() && !summary.ends_with('.'), "{method} {path}");
            }
        }
        assert!(document["components"]["schemas"]["RunEvent"].is_object());
    }

    /// Whether a value has the shape that a schema describes.
    fn fits(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
        if let Some(path) = schema["$ref"].as_str() {
            return fits(document, document.pointer(&path[1..]).ok_or(path)?, value);
        }
        if let Some(variants) = schema["oneOf"].as_array() {
            let fitting = variants.iter().any(|variant| fits(document, variant, value).is_ok());
            return if fitting { Ok(()) } else { Err(format!("{value} fits no variant")) };
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            fits(document, part, value)?;
        }
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let kinds = match &schema["type"] {
            Value::Array(kinds) => kinds.clone(),
            Value::Null => vec![kind.into()],
            one => vec![one.clone()],
        };
        if !kinds.iter().any(|known| known == kind || (known == "number" && kind == "integer")) {
            return Err(format!("{value} is no {kinds:?}"));
        }
        if schema["enum"].as_array().is_some_and(|values| !values.contains(value)) {
            return Err(format!("{value} is none of {}", schema["enum"]));
        }
        for item in value.as_array().into_iter().flatten() {
            fits(document, &schema["items"], item)?;
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            value.get(name).ok_or_else(|| format!("{name} is missing in {value}"))?;
        }
        for (name, field) in value.as_object().into_iter().flatten() {
            let known = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
            match known {
                Some(Value::Bool(false)) => return Err(format!("{name} is not in the schema")),
                Some(known) => fits(document, known, field).map_err(|why| format!("{name}: {why}"))?,
                None if schema["properties"].is_object() && schema["allOf"].is_null() => {
                    return Err(format!("{name} is not in the schema"));
                }
                None => {}
            }
        }
        Ok(())
    }

    #[test]
    fn every_operation_has_an_example_that_fits_its_schema() {
        let document = document();
        let mut checked = 0;
        for (path, methods) in document["paths"].as_object().expect("paths") {
            for (method, operation) in methods.as_object().expect("methods") {
                let body = &operation["requestBody"]["content"]["application/json"];
                assert!(body.is_null() || body["examples"].is_object(), "{method} {path}");
                for example in body["examples"].as_object().into_iter().flat_map(serde_json::Map::values) {
                    assert_eq!(fits(&document, &body["schema"], &example["value"]), Ok(()), "{method} {path}");
                    checked += 1;
                }
                for (status, response) in operation["responses"].as_object().expect("responses") {
                    let content = &response["content"]["application/json"];
                    if content.is_null() {
                        continue;
                    }
                    assert_eq!(
                        fits(&document, &content["schema"], &content["example"]),
                        Ok(()),
                        "{method} {path} {status}"
                    );
                    checked += 1;
                }
            }
        }
        let problem = &document["components"]["schemas"]["Problem"];
        assert_eq!(fits(&document, problem, &problem["examples"][0]), Ok(()));
        assert!(checked > 12, "{checked}");
    }

    /// Checks that no object below a value is without fields, and no field has a default.
    fn look(value: &Value, path: &str) {
        if let Value::Object(map) = value {
            let is_bare = map.get("type").is_some_and(|kind| kind == "object");
            let has_shape =
                ["properties", "additionalProperties", "allOf", "oneOf"].iter().any(|key| map.contains_key(*key));
            assert!(!is_bare || has_shape, "{path} is a bare object");
            assert!(!map.contains_key("default") || path.ends_with("/properties"), "{path} has a default");
        }
        match value {
            Value::Object(map) => map.iter().for_each(|(name, value)| look(value, &format!("{path}/{name}"))),
            Value::Array(list) => list.iter().for_each(|value| look(value, path)),
            _ => {}
        }
    }

    #[test]
    fn schemas_are_exact() {
        let document = document();
        let schemas = &document["components"]["schemas"];
        assert!(schemas["JsonRequest"]["required"].is_null(), "every field of a request is optional");
        assert!(schemas["RunResult"]["required"].as_array().expect("a list").contains(&"verdict".into()));
        assert_eq!(document["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
        look(schemas, "schemas");
        for (path, item) in document["paths"].as_object().expect("paths") {
            look(&item["post"]["responses"], path);
            look(&item["get"]["responses"], path);
        }
    }
}
