//! `POST /v1/batch`: one program, many inputs. It is compiled once; each input has a cell and a verdict of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use sandbox_executor::{JsonFile, JsonInput, JsonRequest, bounded, own_size};
use serde::{Deserialize, Deserializer};
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;

use crate::auth::Client;
use crate::body::{Body, check, read};
use crate::execute::spend;
use crate::memory_budget::{ClientId, Reservation};
use crate::middleware::RequestId;
use crate::openapi::StreamEvent;
use crate::problem::{BadBody, Code, Problem};
use crate::runs::{Admission, start};
use crate::state::{App, refuse_if_closing};
use crate::streams::{self, Item, ServerEvent};

/// The most inputs of one program.
const MOST_INPUTS: usize = 1000;

/// A program and its inputs.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Batch {
    /// The request that all runs share.
    request: JsonRequest,
    /// The inputs: 1 to 1,000, one run for each.
    #[serde(deserialize_with = "bounded::list::<_, _, MOST_INPUTS>")]
    inputs: Vec<BatchInput>,
}

/// The input of one run of a batch.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BatchInput {
    /// Standard input of the program; replaces that of the shared request.
    stdin: Option<JsonInput>,
    /// Arguments of the program; replace those of the shared request.
    #[serde(deserialize_with = "some_args")]
    args: Option<Vec<String>>,
    /// Environment variables, in addition to those of the shared request.
    #[serde(deserialize_with = "bounded::map::<_, _, { bounded::VARIABLES }>")]
    env: BTreeMap<String, String>,
    /// Files, in addition to those of the shared request. With them, a compiled program is compiled again.
    #[serde(deserialize_with = "bounded::map::<_, _, { bounded::FILES }>")]
    files: BTreeMap<String, JsonFile>,
}

/// Reads arguments, of which there may be none.
fn some_args<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    struct Args(#[serde(deserialize_with = "bounded::list::<_, _, { bounded::ARGS }>")] Vec<String>);
    Ok(Option::<Args>::deserialize(deserializer)?.map(|args| args.0))
}

impl BatchInput {
    /// About how many bytes of its run the runs of other inputs do not share.
    fn own_size(&self) -> usize {
        let stdin = self.stdin.as_ref().map_or(0, JsonInput::own_size);
        stdin + own_size(self.args.as_deref().unwrap_or_default(), &self.env, &self.files)
    }

    /// Whether all that is its own is what it reads.
    fn is_plain(&self) -> bool {
        self.args.is_none() && self.env.is_empty() && self.files.is_empty()
    }
}

impl Batch {
    /// The request for an input.
    fn request(&self, input: &BatchInput) -> JsonRequest {
        let mut request = self.request.clone();
        if input.stdin.is_some() {
            request.stdin.clone_from(&input.stdin);
        }
        if let Some(args) = &input.args {
            request.args.clone_from(args);
        }
        request.env.extend(input.env.clone());
        request.files.extend(input.files.clone());
        request
    }
}

/// Run one program with many inputs.
///
/// The program is compiled once. Each input runs in its own cell and has its own result; results arrive in the order in
/// which the runs end.
#[utoipa::path(
    post, path = "/v1/batch", operation_id = "run_batch", tag = "jobs", request_body = Batch,
    responses(
        (status = 200, description = "Server-sent events: one result for each input, with its index, then `end`", content_type = "text/event-stream", body = StreamEvent),
        BadBody,
    )
)]
pub(crate) async fn batch(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Arc<Client>>,
    Extension(client_id): Extension<ClientId>,
    request: Request,
) -> Result<Response, Problem> {
    refuse_if_closing(&app)?;
    let id = request.extensions().get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
    let Body { value: batch, size, mut held } = read::<Batch>(&app, &client_id, request).await?;
    if !(1..=MOST_INPUTS).contains(&batch.inputs.len()) {
        return Err(Problem::new(Code::InvalidRequest, format!("inputs: expected 1 to {MOST_INPUTS}")));
    }
    let place = app.streams.take(&client_id, 1)?;
    // The body is gone. The runs share what came of it, and one of them is covered in any case.
    let most = batch.inputs.iter().map(BatchInput::own_size).max().unwrap_or_default() + batch.request.own_size();
    held.release(size.saturating_sub(most));
    let work = Work { client, client_id, id, batch, size };
    // Those that have only an input of their own are right if the first one is.
    let checked = |index: &usize| *index == 0 || !work.batch.inputs[*index].is_plain();
    for index in (0..work.batch.inputs.len()).filter(checked) {
        check(&app, &work.client, work.request(index), size).await.map_err(|problem| problem.of_input(index))?;
    }
    spend(&app, &work.client, work.batch.inputs.len()).await?;
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        drive(app, work, sender).await;
        drop(held);
    });
    Ok(streams::respond(ReceiverStream::new(receiver), place))
}

type Out = Sender<Item>;

/// What is to be done for a client.
struct Work {
    client: Arc<Client>,
    client_id: ClientId,
    id: String,
    batch: Batch,
    size: usize,
}

impl Work {
    fn request(&self, index: usize) -> JsonRequest {
        self.batch.request(&self.batch.inputs[index])
    }
}

/// Reserves memory for what the next run does not share with the batch, or waits until other runs of the batch have ended. A
/// run that is alone is covered by the reservation of the batch, so that a batch always proceeds.
async fn reserve(app: &App, work: &Work, index: usize, runs: &mut JoinSet<()>) -> Reservation {
    let own = work.batch.request.own_size() + work.batch.inputs[index].own_size();
    while !runs.is_empty() {
        if let Ok(reservation) = app.bodies.take(&work.client_id, own) {
            return reservation;
        }
        runs.join_next().await;
    }
    Reservation::nothing()
}

/// Runs all, as slots become free. When the client goes away, the runs in progress are dropped, which ends them.
async fn drive(app: Arc<App>, work: Work, out: Out) {
    let mut runs = JoinSet::new();
    for index in 0..work.batch.inputs.len() {
        let began = Instant::now();
        let memory = tokio::select! {
            memory = reserve(&app, &work, index, &mut runs) => memory,
            () = out.closed() => return,
        };
        tokio::select! {
            () = app.keeper.wait(&app.service) => {}
            () = out.closed() => return,
        }
        let slot = tokio::select! {
            slot = app.slots.batch(&work.client.name) => slot,
            () = out.closed() => return,
        };
        let Some(slot) = slot else { return };
        let queued = began.elapsed();
        let (app, results, id, client_id) = (Arc::clone(&app), out.clone(), work.id.clone(), work.client_id.clone());
        let (request, size, client) = (work.request(index), work.size, Arc::clone(&work.client));
        runs.spawn(async move {
            let ended = match check(&app, &client, request, size).await {
                Ok(checked) => {
                    let admission = Admission { id, client_id, slot, queued, request: memory };
                    match start(&app, checked, admission, false) {
                        Ok(run) => run.finish().await,
                        Err(problem) => Err(problem),
                    }
                }
                Err(problem) => Err(problem),
            };
            let item = match ended {
                Ok((result, held)) => ServerEvent::Result { index, result }.item(held),
                Err(problem) => ServerEvent::Error { index: Some(index), problem }.item(Reservation::nothing()),
            };
            let _ = results.send(item).await;
        });
        // The first one compiles; the others then find what it has made.
        if index == 0 {
            tokio::select! {
                _ = runs.join_next() => {}
                () = out.closed() => return,
            }
        }
    }
    loop {
        tokio::select! {
            ended = runs.join_next() => if ended.is_none() { break },
            () = out.closed() => return,
        }
    }
    let _ = out.send(ServerEvent::End.item(Reservation::nothing())).await;
}
