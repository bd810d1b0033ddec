//! `POST /v1/batch`: one program, many inputs. It is compiled once; each input has a cell and a verdict of its own.
//!
//! The results are a stream of events in the order in which the runs end, or a JSON array in the order of the inputs.

mod ordered;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::response::Response;
use sandbox_executor::{JsonFile, JsonInput, JsonRequest, RunResult, Verdict, bounded, own_size};
use serde::{Deserialize, Deserializer};
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use self::ordered::ArrayProgress;
pub(crate) use self::ordered::BatchItem;
use crate::answer_form::{AnswerForm, FormOptions};
use crate::auth::Client;
use crate::body::{Body, check, read};
use crate::execute::spend;
use crate::memory_budget::{ClientId, Reservation};
use crate::middleware::RequestId;
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

/// The end of one run of a batch.
struct Ended {
    /// The index of its input.
    index: usize,
    /// The result with its memory, or why there is none.
    outcome: Result<(Arc<RunResult>, Reservation), Problem>,
}

/// A message of the runs of a batch to what answers the client.
enum Message {
    Ended(Ended),
    /// All runs have ended. Without it, the answer is incomplete.
    End,
}

impl Message {
    /// The server-sent event.
    fn item(self) -> Item {
        match self {
            Self::Ended(Ended { index, outcome: Ok((result, held)) }) => {
                ServerEvent::Result { index, result }.item(held)
            }
            Self::Ended(Ended { index, outcome: Err(problem) }) => {
                ServerEvent::Error { index: Some(index), problem }.item(Reservation::nothing())
            }
            Self::End => ServerEvent::End.item(Reservation::nothing()),
        }
    }
}

/// Run one program with many inputs.
///
/// The program is compiled once, also if that fails. Each input runs in its own cell and has its own result. With
/// `Accept: application/json` or `?stream=false`, the response is a JSON array in the order of the inputs. Otherwise it is
/// a stream of server-sent events: a `result` or an `error` with the index of its input as each run ends, then `end`.
#[utoipa::path(
    post, path = "/v1/batch", operation_id = "run_batch", tag = "runs", request_body = Batch,
    responses(
        (status = 200, description = "For each input, its result or the problem that prevented it", body = Vec<BatchItem>),
        BadBody,
    )
)]
pub(crate) async fn batch(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Arc<Client>>,
    Extension(client_id): Extension<ClientId>,
    options: Result<Query<FormOptions>, QueryRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let form = AnswerForm::of(options, request.headers(), AnswerForm::Stream)?;
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
    let messages = ReceiverStream::new(receiver);
    let (response, progress) = match form {
        AnswerForm::Stream => (streams::respond(messages.map(Message::item), place), ArrayProgress::unbounded()),
        AnswerForm::Json => ordered::respond(messages, place, 2 * app.slots.capacity()),
    };
    tokio::spawn(async move {
        drive(app, work, sender, progress).await;
        drop(held);
    });
    Ok(response)
}

type Out = Sender<Message>;

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

/// The result of compiling or installing, if that has failed: each further input without files would fail alike.
type BuildFailure = Arc<OnceLock<Arc<RunResult>>>;

/// Remembers a result if every input without files of its own would have the same.
fn remember(failure: &BuildFailure, input: &BatchInput, result: &Arc<RunResult>) {
    if input.files.is_empty() && matches!(result.verdict, Verdict::CompileError | Verdict::PackageError) {
        let mut copy = RunResult::clone(result);
        if let Some(compile) = &mut copy.compile {
            compile.cached = true;
        }
        let _ = failure.set(Arc::new(copy));
    }
}

/// Runs all, as slots become free. When the client goes away, the runs in progress are dropped, which ends them.
async fn drive(app: Arc<App>, work: Work, out: Out, mut progress: ArrayProgress) {
    let mut runs = JoinSet::new();
    let work = Arc::new(work);
    let failure = BuildFailure::default();
    for index in 0..work.batch.inputs.len() {
        let began = Instant::now();
        tokio::select! {
            () = progress.allows(index) => {}
            () = out.closed() => return,
        }
        if let Some(result) = failure.get().filter(|_| work.batch.inputs[index].files.is_empty()) {
            let held = tokio::select! {
                held = app.answers.wait(&work.client_id, result.size()) => held,
                () = out.closed() => return,
            };
            let _ = out.send(Message::Ended(Ended { index, outcome: Ok((Arc::clone(result), held)) })).await;
            continue;
        }
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
        let (app, results, work, failure) = (Arc::clone(&app), out.clone(), Arc::clone(&work), Arc::clone(&failure));
        runs.spawn(async move {
            let outcome = match check(&app, &work.client, work.request(index), work.size).await {
                Ok(checked) => {
                    let (id, client_id) = (work.id.clone(), work.client_id.clone());
                    let admission = Admission { id, client_id, slot, queued, request: memory };
                    match start(&app, checked, admission, false) {
                        Ok(run) => run.finish().await,
                        Err(problem) => Err(problem),
                    }
                }
                Err(problem) => Err(problem),
            };
            if let Ok((result, _)) = &outcome {
                remember(&failure, &work.batch.inputs[index], result);
            }
            let _ = results.send(Message::Ended(Ended { index, outcome })).await;
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
    let _ = out.send(Message::End).await;
}
