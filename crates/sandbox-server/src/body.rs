//! Reads request bodies: bounded in size, within the memory budget, with a timeout, as typed JSON.

use std::fmt::Arguments;
use std::os::fd::AsFd;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, header};
use sandbox_executor::{CheckedRequest, JsonRequest};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tokio_stream::StreamExt;

use crate::auth::Client;
use crate::connections::allowance;
use crate::json_bounds::{ENTRY, Scan};
use crate::memory_budget::{ClientId, Reservation};
use crate::problem::{Code, Problem};
use crate::runs::{CancelHandle, CancelOnDrop};
use crate::state::App;

/// Up to this size, a body is worked on where it arrives; a larger one would hold others up.
const SMALL: usize = 64 << 10;

/// A body, and the memory that it takes.
#[derive(Debug)]
pub(crate) struct Body<T> {
    pub(crate) value: T,
    pub(crate) size: usize,
    pub(crate) held: Reservation,
}

/// Reads a body of some shape.
pub(crate) async fn read<T: DeserializeOwned + Send + 'static>(
    app: &Arc<App>,
    client_id: &ClientId,
    request: Request,
) -> Result<Body<T>, Problem> {
    require_json(request.headers())?;
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if let Some(length) = announced.filter(|length: &usize| *length > app.max_body) {
        return Err(too_large(format_args!("{length} bytes"), app.max_body));
    }
    let (bytes, held) = collect(app, client_id, request, announced.unwrap_or_default()).await?;
    let size = bytes.len();
    let parse = move || {
        // A list would be taken for the fields in their order.
        if bytes.trim_ascii_start().first().is_some_and(|byte| *byte != b'{') {
            return Err(Problem::new(Code::MalformedJson, "invalid body: it must be a JSON object"));
        }
        serde_json::from_slice(&bytes).map_err(|error| Problem::new(Code::MalformedJson, error.to_string()))
    };
    let value = if size <= SMALL { parse()? } else { elsewhere(app, parse).await? };
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
    let given = essence.map_or("missing Content-Type".to_owned(), |kind| format!("unsupported Content-Type '{kind}'"));
    Err(Problem::new(Code::UnsupportedMediaType, format!("{given}; send 'Content-Type: application/json'")))
}

fn too_large(size: Arguments<'_>, most: usize) -> Problem {
    let detail = format!("the request body has {size}, the maximum is {most} (SANDBOX_MAX_BODY)");
    Problem::new(Code::BodyTooLarge, detail)
}

/// Takes a body in, with room for it and for what will be made of it. The client has to send it at a certain pace, and
/// what has too many parts is not kept.
async fn collect(
    app: &App,
    client_id: &ClientId,
    request: Request,
    announced: usize,
) -> Result<(Vec<u8>, Reservation), Problem> {
    let began = Instant::now();
    let mut stream = request.into_body().into_data_stream();
    let (mut bytes, mut held) = (Vec::with_capacity(announced), Reservation::nothing());
    let (mut scan, mut received, mut refused) = (Scan::default(), 0, None);
    loop {
        // Not slower on the whole than it may be, and never silent for long.
        let until = (began + allowance(app.read_timeout, received)).min(Instant::now() + app.read_timeout);
        let next = tokio::time::timeout_at(until, stream.next()).await;
        let Some(chunk) =
            next.map_err(|_| Problem::new(Code::RequestTimeout, "the request body arrived too slowly"))?
        else {
            break;
        };
        let chunk = chunk
            .map_err(|error| Problem::new(Code::MalformedJson, format!("cannot read the request body: {error}")))?;
        received += chunk.len();
        if received > app.max_body {
            // Its length was not announced, so only the part that arrived is known.
            return Err(too_large(format_args!("more than {} bytes", app.max_body), app.max_body));
        }
        if refused.is_some() {
            // The rest is read and dropped, because many clients read no answer before they have sent everything.
            continue;
        }
        match reserve(app, client_id, &mut scan, &chunk) {
            Ok(more) => {
                held.and(more);
                bytes.extend_from_slice(&chunk);
            }
            Err(why) => {
                refused = Some(why);
                (bytes, held) = (vec![], Reservation::nothing());
            }
        }
    }
    refused.map_or(Ok((bytes, held)), Err)
}

/// Reserves memory for the next part of a body: twice its size, because while it is parsed, there are the body and
/// what comes of it.
fn reserve(app: &App, client_id: &ClientId, scan: &mut Scan, chunk: &[u8]) -> Result<Reservation, Problem> {
    let before = scan.entries();
    scan.read(chunk).map_err(|why| Problem::new(Code::TooManyEntries, why))?;
    app.bodies.take(client_id, 2 * chunk.len() + (scan.entries() - before) * ENTRY)
}

/// Does slow work on a blocking thread, a few pieces of it at a time.
async fn elsewhere<T: Send + 'static>(
    app: &App,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let mistake = || Problem::new(Code::Internal, "internal server error");
    let place = Arc::clone(&app.parsers).acquire_owned().await.map_err(|_| mistake())?;
    let done = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(place);
        done
    });
    done.await.unwrap_or_else(|_| Err(mistake()))
}

impl Body<JsonRequest> {
    /// Checks the request completely.
    pub(crate) async fn check(self, app: &Arc<App>, client: &Client) -> Result<(CheckedRequest, Reservation), Problem> {
        let Self { value, size, mut held } = self;
        let checked = check(app, client, value, size).await?;
        // The body is gone, and the run shares what came of it.
        held.release(size);
        Ok((checked, held))
    }
}

/// Checks a client's request of about this size.
pub(crate) async fn check(
    app: &Arc<App>,
    client: &Client,
    request: JsonRequest,
    size: usize,
) -> Result<CheckedRequest, Problem> {
    // The toolchain of an image may have to be looked for first.
    if size <= SMALL && request.image.is_none() {
        return Ok(app.service.check_json(request, client.name.as_deref(), &[])?);
    }
    let cancel = CancelHandle::new().map_err(|_| Problem::new(Code::Internal, "internal server error"))?;
    // If the client disconnects, this is dropped and the query of the image is cancelled.
    let _guard = CancelOnDrop(cancel.clone());
    let (own, owner) = (Arc::clone(app), client.name.clone());
    elsewhere(app, move || {
        Ok(own.service.check_json(request, owner.as_deref(), &[cancel.as_fd(), own.kill.as_fd()])?)
    })
    .await
}
