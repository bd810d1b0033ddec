//! Reading what a client sends: no more than it may send, no more than there is room for, and as JSON of some shape.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, header};
use sandbox_executor::{Checked, JsonRequest};
use serde::de::DeserializeOwned;
use tokio_stream::StreamExt;

use crate::app::App;
use crate::auth::Client;
use crate::held::Held;
use crate::problem::{Code, Problem};

/// Up to this size, a body is worked on where it arrives; a larger one would hold others up.
const SMALL: usize = 64 << 10;

/// A body, and what it takes.
#[derive(Debug)]
pub(crate) struct Body<T> {
    pub(crate) value: T,
    pub(crate) size: usize,
    pub(crate) held: Held,
}

/// Reads a body of some shape.
pub(crate) async fn read<T: DeserializeOwned + Send + 'static>(
    app: &Arc<App>,
    request: Request,
) -> Result<Body<T>, Problem> {
    require_json(request.headers())?;
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: usize| length > app.max_body) {
        return Err(too_large());
    }
    let (bytes, held) = collect(app, request).await?;
    let size = bytes.len();
    let parse = move || {
        // A list would be taken for the fields in their order.
        if bytes.trim_ascii_start().first().is_some_and(|byte| *byte != b'{') {
            return Err(Problem::new(Code::MalformedJson, "invalid body: it must be a JSON object"));
        }
        serde_json::from_slice(&bytes).map_err(|error| Problem::new(Code::MalformedJson, error.to_string()))
    };
    let value = if size <= SMALL { parse()? } else { elsewhere(parse).await? };
    Ok(Body { value, size, held })
}

/// Web pages may send bodies of other types, or of none, to any server without asking it first.
fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    let mut kinds = headers.get_all(header::CONTENT_TYPE).iter();
    let kind = kinds.next().map(|kind| String::from_utf8_lossy(kind.as_bytes()));
    let essence = kind.as_deref().map(|kind| kind.split(';').next().unwrap_or_default().trim());
    if essence.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) && kinds.next().is_none() {
        return Ok(());
    }
    let given = essence.map_or("there is no Content-Type".to_owned(), |kind| format!("the Content-Type is '{kind}'"));
    Err(Problem::new(Code::UnsupportedMediaType, format!("{given}; send 'Content-Type: application/json'")))
}

fn too_large() -> Problem {
    Problem::new(Code::BodyTooLarge, "send less, or ask the operator to raise SANDBOX_MAX_BODY")
}

async fn collect(app: &App, request: Request) -> Result<(Vec<u8>, Held), Problem> {
    let mut stream = request.into_body().into_data_stream();
    let (mut bytes, mut held) = (vec![], Held::nothing());
    while let Some(chunk) = stream.next().await {
        let chunk =
            chunk.map_err(|error| Problem::new(Code::MalformedJson, format!("cannot read the body: {error}")))?;
        if bytes.len() + chunk.len() > app.max_body {
            return Err(too_large());
        }
        held.and(app.bodies.take(chunk.len())?);
        bytes.extend_from_slice(&chunk);
    }
    Ok((bytes, held))
}

/// Does work that takes a while where it holds nobody up.
async fn elsewhere<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Problem::new(Code::Internal, "the server made a mistake")))
}

impl Body<JsonRequest> {
    /// Checks the request completely.
    pub(crate) async fn check(self, app: &Arc<App>, client: &Client) -> Result<(Checked, Held), Problem> {
        let Self { value, size, held } = self;
        Ok((check(app, client, value, size).await?, held))
    }
}

/// Checks a client's request of about this size.
pub(crate) async fn check(
    app: &Arc<App>,
    client: &Client,
    request: JsonRequest,
    size: usize,
) -> Result<Checked, Problem> {
    // An image may have to be asked what is in it.
    if size <= SMALL && request.image.is_none() {
        return Ok(app.engine.check(&request, client.name.as_deref())?);
    }
    let (app, owner) = (Arc::clone(app), client.name.clone());
    elsewhere(move || Ok(app.engine.check(&request, owner.as_deref())?)).await
}
