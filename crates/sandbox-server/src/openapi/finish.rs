//! Completes the generated document with what derives cannot express, so that generators of clients get exact types.

use sandbox_executor::{Metrics, Phases, RunResult};
use serde_json::{Map, Value, json};

use super::examples::{self, EXAMPLES};

/// Operations that can answer with server-sent events, and the schemas of the data of the events.
const STREAMS: [(&str, &[&str]); 3] = [
    ("run_code", &["RunEvent", "ServerEvent"]),
    ("run_batch", &["ServerEvent"]),
    ("get_job_events", &["RunEvent", "ServerEvent"]),
];

/// Completes the document.
pub(super) fn finish(mut document: Value) -> Value {
    document["servers"] = json!([{ "url": "/" }]);
    secure(&mut document);
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        finish_schemas(schemas);
    }
    for (path, item) in document["paths"].as_object_mut().into_iter().flatten() {
        for operation in item.as_object_mut().into_iter().flat_map(Map::values_mut) {
            describe_scope(path, operation);
            add_examples(operation);
            add_stream(operation);
        }
    }
    document
}

/// The ways to send an API key. Without keys a server needs none, and a client may leave it out.
fn secure(document: &mut Value) {
    document["components"]["securitySchemes"] = json!({
        "bearer": {
            "type": "http", "scheme": "bearer",
            "description": "An API key, if the server has any: `Authorization: Bearer KEY`.",
        },
        "api_key": {
            "type": "apiKey", "in": "header", "name": "X-API-Key",
            "description": "The same key in another header, for clients that cannot set `Authorization`.",
        },
    });
    document["security"] = json!([{}, { "bearer": [] }, { "api_key": [] }]);
}

fn finish_schemas(schemas: &mut Map<String, Value>) {
    for schema in schemas.values_mut() {
        remove_defaults(schema);
    }
    merge_details(schemas);
    rename_packages(&mut schemas["JsonRequest"]["properties"]);
    // Every field that a result always has: serde writes it even if it is empty.
    for (name, written) in [
        ("RunResult", json!(RunResult::default())),
        ("Metrics", json!(Metrics::default())),
        ("Phases", json!(Phases::default())),
    ] {
        schemas[name]["required"] = written.as_object().into_iter().flat_map(Map::keys).cloned().collect();
    }
    let named = schemas.clone();
    for name in ["RunEvent", "ServerEvent"] {
        for variant in schemas[name]["oneOf"].as_array_mut().into_iter().flatten() {
            merge_parts(variant, &named);
            if let Some(event) = variant["properties"]["event"]["enum"][0].as_str().map(str::to_owned) {
                variant["title"] = format!("{name}{}{}", event[..1].to_ascii_uppercase(), &event[1..]).into();
            }
        }
    }
    schemas["Problem"]["examples"] = json!([examples::problem()]);
}

/// Makes one object of the parts of a schema, which generators cannot tell apart in a list of variants.
fn merge_parts(schema: &mut Value, named: &Map<String, Value>) {
    let Some(Value::Array(parts)) = schema.as_object_mut().and_then(|schema| schema.remove("allOf")) else { return };
    let (mut properties, mut required) = (Map::new(), vec![]);
    for part in &parts {
        let name = part["$ref"].as_str().and_then(|path| path.rsplit('/').next());
        let part = name.and_then(|name| named.get(name)).unwrap_or(part);
        properties.extend(part["properties"].as_object().cloned().unwrap_or_default());
        required.extend(part["required"].as_array().cloned().unwrap_or_default());
    }
    schema["type"] = "object".into();
    schema["properties"] = properties.into();
    schema["required"] = required.into();
}

/// Removes the defaults of fields: generators take a field with a default for one that is always there.
fn remove_defaults(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            for (name, value) in map.iter_mut() {
                // The names of fields are not keywords.
                if name == "properties" {
                    for field in value.as_object_mut().into_iter().flat_map(Map::values_mut) {
                        field.as_object_mut().map(|field| field.remove("default"));
                        remove_defaults(field);
                    }
                } else {
                    remove_defaults(value);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(remove_defaults),
        _ => {}
    }
}

/// Makes the details of the server's state optional fields of it.
fn merge_details(schemas: &mut Map<String, Value>) {
    let Some(details) = schemas.remove("Details") else { return };
    let health = &mut schemas["Health"];
    let parts = health["allOf"].as_array().cloned().unwrap_or_default();
    let Some(mut merged) = parts.into_iter().find(|part| part["properties"].is_object()) else { return };
    merged["description"] = health["description"].take();
    for (name, field) in details["properties"].as_object().into_iter().flatten() {
        merged["properties"][name] = field.clone();
    }
    *health = merged;
}

/// Lists packages under their name and, as requests are stored and shown, under the older one.
fn rename_packages(fields: &mut Value) {
    let older = &mut fields["requirements"];
    let packages = older.clone();
    older["description"] = "Older name of `packages`.".into();
    older["deprecated"] = true.into();
    fields["packages"] = packages;
}

/// Names the scope that a key needs.
fn describe_scope(path: &str, operation: &mut Value) {
    let scope = match path {
        "/execute" | "/v1/batch" => "execute",
        "/metrics" => "metrics",
        "/admin/drain" => "admin",
        path if path.starts_with("/v1/execute") => "jobs",
        _ => return,
    };
    let before = operation["description"].as_str().map(|text| format!("{text}\n\n")).unwrap_or_default();
    operation["description"] = format!("{before}An API key needs the scope `{scope}`.").into();
}

fn add_examples(operation: &mut Value) {
    let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
    let bodies: Map<String, Value> = EXAMPLES
        .iter()
        .filter(|example| example.operation == id)
        .filter_map(|example| {
            let value: Value = serde_json::from_str(example.body?).ok()?;
            let name = example.title.to_ascii_lowercase().replace(' ', "-");
            Some((name, json!({ "summary": example.title, "value": value })))
        })
        .collect();
    if !bodies.is_empty() {
        operation["requestBody"]["content"]["application/json"]["examples"] = bodies.into();
    }
    for response in operation["responses"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        let content = response["content"].as_object_mut();
        if let Some(json) = content.and_then(|content| content.get_mut("application/json"))
            && let Some(answer) = examples::answer(&id)
        {
            json["example"] = answer;
        }
        // Reading has left nulls where there was nothing.
        if response["content"].is_null() {
            response.as_object_mut().map(|response| response.remove("content"));
        }
    }
}

/// Describes the stream apart from the response: generators take all media types of a response for forms of one value.
fn add_stream(operation: &mut Value) {
    let id = operation["operationId"].as_str().unwrap_or_default();
    let Some((_, schemas)) = STREAMS.iter().find(|(operation, _)| *operation == id) else { return };
    let data: Vec<Value> =
        schemas.iter().map(|name| json!({ "$ref": format!("#/components/schemas/{name}") })).collect();
    operation["responses"]["200"]["x-event-stream"] = json!({
        "mediaType": "text/event-stream",
        "itemSchema": { "$ref": "#/components/schemas/StreamEvent" },
        "data": { "oneOf": data },
    });
}
