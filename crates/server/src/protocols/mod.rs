//! What every protocol does with a request: parse, validate, prepare, submit, respond.
//!
//! A protocol that generates text implements [`Protocol`]; its handler is [`generate`].

pub(crate) mod anthropic;
pub(crate) mod ggml;
pub(crate) mod ollama;
pub(crate) mod openai;
mod tool_calls;

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::{Extension, Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use cascadia_engine::service::Tenant;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::answer::event_stream::{self, EventWriter, Framing, StreamSetup};
use crate::answer::resume::{self, LastEventId, ResumeToken};
use crate::answer::resume_log::StreamLog;
use crate::answer::{Answer, Usage};
use crate::app::App;
use crate::error::{ApiError, ErrorKind};
use crate::http::body::Received;
use crate::http::client_memory::MemoryShare;
use crate::http::held::holding;
use crate::model::frontend::{Caller, ModelFrontend, PreparedRequest};
use crate::protocols::openai::responses::store::ResponseStore;
use crate::request::validate::RawRequest;

/// The most bytes of an answer that are written between other work of a thread that serves connections.
const WRITTEN_AT_ONCE: usize = 64 << 10;

/// How a protocol asks for text and receives it; the value is what it remembers of one request.
pub(crate) trait Protocol: Sized + Send + 'static {
    /// The body, as its clients send it.
    type Body: DeserializeOwned + ToSchema;

    /// Translates a body; it is validated afterwards.
    fn read(body: Self::Body, context: &RequestContext) -> Result<(RawRequest, Self), ApiError>;

    /// The response where nothing is to be generated.
    fn at_once(&self) -> Option<Value> {
        None
    }

    /// Sets the id of the answer, which the protocol may prefix.
    fn set_id(&mut self, _id: &str) {}

    /// Shows it the tokens of each prompt before they are computed.
    fn see_prompts(&mut self, _prepared: &PreparedRequest) {}

    /// How the answer is streamed; `None` sends it at once.
    fn framing(&self) -> Option<Framing>;

    /// The body of a response that is sent at once.
    fn response(self, answers: Vec<Answer>, usage: Usage) -> Value;

    /// Writes a response that is streamed.
    fn event_writer(self) -> Box<dyn EventWriter>;
}

/// What a protocol may look at beside the body.
pub(crate) struct RequestContext {
    pub(crate) frontend: Arc<ModelFrontend>,
    pub(crate) caller: Caller,
    /// Responses that are kept for later requests.
    pub(crate) responses: Arc<ResponseStore>,
}

/// The handler of every protocol that generates text.
pub(crate) async fn generate<P: Protocol>(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let responses = Arc::clone(&app.responses);
    let (last_event, path) = (LastEventId::of(request.headers()), request.uri().path().to_owned());
    let (resume_log, shared) = (app.resume_log.clone(), Arc::clone(&app));
    let ((prepared, answering), memory) = prepare(&app, request, move |bytes, frontend| {
        let context = RequestContext { frontend: Arc::clone(&frontend), caller: caller.clone(), responses };
        let last = last_event.token()?;
        let seed = last.as_ref().map_or_else(|| frontend.random(), |last| last.seed);
        let (request, mut protocol) = P::read(parse(bytes)?, &context)?;
        let request = RawRequest { defaults: frontend.defaults(request.defaults), ..request };
        let adapter = frontend.select(request.model.as_deref(), &caller)?;
        if let Some(response) = protocol.at_once() {
            return Ok((Err(response), frontend));
        }
        let mut prepared = frontend.prepare(request.check(adapter)?, caller, seed)?;
        let digest = resume::digest(&frontend, &prepared, &path, bytes);
        let resume = ResumeToken::new(seed, digest).resume(last, prepared.answers())?;
        protocol.set_id(&resume.stream_id());
        protocol.see_prompts(&prepared);
        let report = shared.bodies.reserve(prepared.report_bytes())?;
        let is_logged = protocol.framing() == Some(Framing::Events) && prepared.is_replayable();
        let log = resume_log.filter(|_| is_logged).map(|log| log.stream(&resume.stream_id()));
        if let Some(log) = log.as_ref().filter(|_| resume.seen > 0) {
            prepared.set_known_tokens(&log.read());
        }
        let answers = frontend.submit(prepared, log.as_ref().map(StreamLog::recorder))?;
        Ok((Ok((protocol, answers, (resume, log), report)), frontend))
    })
    .await?;
    let (protocol, answers, (resume, log), report) = match prepared {
        Ok(prepared) => prepared,
        Err(response) => return Ok(json(&response)),
    };
    let numbers = answers.job_numbers();
    let mut response = match protocol.framing() {
        Some(framing) => {
            let setup = StreamSetup { framing, resume, log, metrics: Arc::clone(&app.metrics) };
            event_stream::respond(answers, protocol.event_writer(), setup)
        }
        None => {
            let mut collected = memory.another();
            let (answers, usage) = answers.collect(&mut collected).await?;
            send(collected, move || protocol.response(answers, usage)).await?
        }
    };
    // For the log line of the request.
    response.extensions_mut().insert(numbers);
    // Prompts, tools and fields that are returned are kept until then; and the model, which may be replaced meanwhile.
    Ok(holding(response, (memory, report, answering)))
}

/// Reads the body, then works on it with the model that it names, on a thread that may block.
pub(crate) async fn read_body<T: Send + 'static>(
    app: &App,
    request: Request,
    work: impl FnOnce(&[u8], Arc<ModelFrontend>) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    receive(app, request, |body, frontend| work(body.bytes(), frontend)).await
}

/// The same with the memory that the body took, for what is kept of it.
pub(crate) async fn prepare<T: Send + 'static>(
    app: &App,
    request: Request,
    work: impl FnOnce(&[u8], Arc<ModelFrontend>) -> Result<T, ApiError> + Send + 'static,
) -> Result<(T, MemoryShare), ApiError> {
    receive(app, request, |body, frontend| {
        let done = work(body.bytes(), frontend)?;
        Ok((done, body.into_memory()))
    })
    .await
}

/// Reads the body, and sends what is made of it there; its work may count what it needs.
pub(crate) async fn answer<T: Serialize>(
    app: &App,
    request: Request,
    work: impl FnOnce(&[u8], Arc<ModelFrontend>, &mut MemoryShare) -> Result<T, ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    receive(app, request, |body, frontend| {
        let (mut working, mut sent) = (body.another_share(), body.another_share());
        let bytes = sent.json(&work(body.bytes(), frontend, &mut working)?)?;
        Ok(holding(json_bytes(bytes), sent))
    })
    .await
}

/// Receives the body, then works on it when it is the tenant's turn.
async fn receive<T: Send + 'static>(
    app: &App,
    request: Request,
    work: impl FnOnce(Received, Arc<ModelFrontend>) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    // Before anything is read or tokenised for it.
    match &app.on_demand {
        Some(models) => models.check_memory()?,
        None => app.model.current().model.service.check_memory()?,
    }
    let tenant = request.extensions().get::<Caller>().map(|caller| caller.tenant).unwrap_or_default();
    let body = app.bodies.read(request.into_body()).await?;
    let (body, frontend) = match &app.on_demand {
        None => (body, app.model.current()),
        Some(models) => {
            let finder = Arc::clone(models);
            let find = in_turn(app, tenant, move || Ok((finder.find(named_model(body.bytes()).as_deref())?, body)));
            let (model, body) = find.await?;
            (body, models.get(model).await?)
        }
    };
    in_turn(app, tenant, move || work(body, frontend)).await
}

/// Does something on a thread that may block when it is the tenant's turn.
async fn in_turn<T: Send + 'static>(
    app: &App,
    tenant: Tenant,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let turn = app.workers.wait(tenant).await;
    let done = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        work()
    });
    done.await.unwrap_or_else(|_| {
        Err(ApiError::new(ErrorKind::Internal, "the request could not be prepared; see the server's log"))
    })
}

/// The model that a body names; `None` in one that names none or is wrong, which is reported when it is read as a whole.
fn named_model(bytes: &[u8]) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Naming<'a> {
        #[serde(borrow)]
        model: Option<Cow<'a, str>>,
    }
    serde_json::from_slice::<Naming>(bytes).ok()?.model
}

/// Sends an answer. `working` counts what it is made of until it is written, and what is sent counts until then. A large one
/// is not written on a thread that serves connections.
pub(crate) async fn send<T: Serialize>(
    working: MemoryShare,
    make: impl FnOnce() -> T + Send + 'static,
) -> Result<Response, ApiError> {
    let size = working.bytes();
    let write = move || {
        let mut sent = working.another();
        let bytes = sent.json(&make())?;
        drop(working);
        Ok(holding(json_bytes(bytes), sent))
    };
    if size <= WRITTEN_AT_ONCE {
        return write();
    }
    tokio::task::spawn_blocking(write).await.unwrap_or_else(|_| {
        Err(ApiError::new(ErrorKind::Internal, "the answer could not be written; see the server's log"))
    })
}

/// Parses a body; the error names the field.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let message = error.into_inner().to_string();
        match path.as_str() {
            "." | "" | "?" => {
                ApiError::new(ErrorKind::Invalid, format!("the body is not the expected JSON: {message}"))
            }
            path => ApiError::invalid(path, format!("{path}: {message}")),
        }
    })?;
    reader.end().map_err(|error| {
        ApiError::new(ErrorKind::Invalid, format!("the body has data after the JSON object: {error}"))
    })?;
    Ok(value)
}

/// A response with a JSON body.
pub(crate) fn json(value: &Value) -> Response {
    json_bytes(value.to_string().into_bytes())
}

fn json_bytes(bytes: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], bytes).into_response()
}

/// A setting as it was written, not as the nearest number with more digits.
pub(crate) fn shortest(number: f32) -> f64 {
    number.to_string().parse().unwrap_or_else(|_| f64::from(number))
}
