//! `GET /v1/languages`: the languages that this server knows, and their toolchains.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use sandbox_executor::PreparationState;
use serde::Serialize;
use utoipa::ToSchema;

use crate::state::App;

/// A language that this server knows.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Language)]
pub(crate) struct ServedLanguage {
    /// The name of the language.
    name: String,
    /// Other names of the language.
    aliases: Vec<String>,
    /// The file extensions of the language, without the dot.
    extensions: Vec<String>,
    /// The version of the toolchain; none if the toolchain is missing.
    version: Option<String>,
    /// Whether programs in the language can run.
    available: bool,
    /// The state of the toolchain: `ready`, or `pending`, `preparing` or `failed` if it has to be prepared once. None if the
    /// toolchain is missing.
    toolchain: Option<&'static str>,
    /// Why the toolchain is missing; none if it is not.
    missing: Option<String>,
    /// An example of a package; none if packages cannot be installed.
    packages: Option<String>,
}

/// List languages and their toolchains.
#[utoipa::path(
    get, path = "/v1/languages", operation_id = "list_languages", tag = "server",
    responses((status = 200, description = "Languages and their toolchains", body = Vec<ServedLanguage>))
)]
pub(crate) async fn languages(State(app): State<Arc<App>>) -> Json<Vec<ServedLanguage>> {
    let preparations = app.service.preparations();
    let state = |name: &str| preparations.get(name).map_or("ready", PreparationState::name);
    let list = app.service.languages().map(|(definition, runtime)| ServedLanguage {
        name: definition.name.clone(),
        aliases: definition.aliases.clone(),
        extensions: definition.extensions.clone(),
        version: runtime.as_ref().ok().map(|runtime| runtime.version.clone()),
        available: runtime.is_ok(),
        toolchain: runtime.is_ok().then(|| state(&definition.name)),
        missing: runtime.as_ref().err().map(ToString::to_string),
        packages: definition.packages.as_ref().map(|packages| packages.example.clone()),
    });
    Json(list.collect())
}
