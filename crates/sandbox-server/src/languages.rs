//! `GET /v1/languages`: the languages that this server knows, and their toolchains.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use sandbox_executor::PreparationState;
use serde_json::{Value, json};

use crate::state::App;

/// List languages and their toolchains.
#[utoipa::path(get, path = "/v1/languages", operation_id = "list_languages", tag = "server", responses((status = 200, description = "Languages and their toolchains", body = Vec<Object>)))]
pub(crate) async fn languages(State(app): State<Arc<App>>) -> Json<Value> {
    let preparations = app.service.preparations();
    let list: Vec<Value> = app
        .service
        .languages()
        .map(|(definition, runtime)| {
            json!({
                "name": definition.name,
                "aliases": definition.aliases,
                "extensions": definition.extensions,
                "version": runtime.as_ref().ok().map(|runtime| &runtime.version),
                "available": runtime.is_ok(),
                "toolchain": runtime.is_ok().then(|| preparations.get(&definition.name).map_or("ready", PreparationState::name)),
                "missing": runtime.as_ref().err().map(ToString::to_string),
                "packages": definition.packages.as_ref().map(|packages| &packages.example),
            })
        })
        .collect();
    Json(Value::Array(list))
}
