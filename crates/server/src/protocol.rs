//! What every door does with a request: read, check, render, submit, answer.

use std::sync::Arc;

use axum::extract::{Extension, Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde_json::Value;
use utoipa::ToSchema;

use crate::answer::{Answer, Usage};
use crate::app::App;
use crate::error::{ApiError, Kind};
use crate::model_frontend::{Caller, ModelFrontend};
use crate::resume::{self, LastEvent, ResumeToken};
use crate::resume_log::StreamLog;
use crate::stream::{self, EventWriter, Framing, StreamSetup};
use crate::validate::RawRequest;

/// A protocol's way to ask for text and to get it; the value is what it remembers of one request.
pub(crate) trait Protocol: Sized + Send + 'static {
    /// The body, as its clients send it.
    type Body: DeserializeOwned + ToSchema;

    /// Understands a body. The validator and the template come after this.
    fn read(body: Self::Body, desk: &Arc<ModelFrontend>) -> Result<(RawRequest, Self), ApiError>;

    /// Takes the rest of the answer's name, where the protocol has one that begins with a prefix of its own.
    fn take_name(&mut self, _name: &str) {}

    /// How the answer is to be streamed, if it is.
    fn framing(&self) -> Option<Framing>;

    /// The body of a response that comes at once.
    fn whole(self, answers: Vec<Answer>, usage: Usage) -> Value;

    /// Who tells the answer bit by bit.
    fn voice(self) -> Box<dyn EventWriter>;
}

/// The handler of every door.
pub(crate) async fn answer<D: Protocol>(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let desk = app.desk();
    let (last, path) = (LastEvent::of(request.headers()), request.uri().path().to_owned());
    let resume_log = app.resume_log.clone();
    let (door, teller, (ticket, log)) = read_body(&app, request, move |bytes| {
        let last = last.ticket()?;
        let seed = last.as_ref().map_or_else(|| desk.number(), |last| last.seed);
        let (wanted, mut door) = D::read(parse(bytes)?, &desk)?;
        desk.check_model(wanted.model.as_deref())?;
        let mut prepared = desk.prepare(wanted.check()?, caller, seed)?;
        let digest = resume::digest(&desk, &prepared, &path, bytes);
        let ticket = ResumeToken::new(seed, digest).after(last, prepared.answers())?;
        door.take_name(&ticket.name());
        let is_logged = door.framing() == Some(Framing::Events) && prepared.follows_from_tokens();
        let log = resume_log.filter(|_| is_logged).map(|log| log.stream(&ticket.name()));
        if let Some(log) = log.as_ref().filter(|_| ticket.seen > 0) {
            prepared.know(&log.read());
        }
        let teller = desk.submit(prepared, log.as_ref().map(StreamLog::recorder))?;
        Ok((door, teller, (ticket, log)))
    })
    .await?;
    match door.framing() {
        Some(framing) => {
            let telling = StreamSetup { framing, ticket, log, metrics: Arc::clone(&app.metrics) };
            Ok(stream::respond(teller, door.voice(), telling))
        }
        None => {
            let (answers, usage) = teller.whole().await?;
            Ok(json(&door.whole(answers, usage)))
        }
    }
}

/// Reads the body, then works on it on a thread where that may take time.
pub(crate) async fn read_body<T: Send + 'static>(
    app: &App,
    request: Request,
    work: impl FnOnce(&[u8]) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let body = app.bodies.read(request.into_body()).await?;
    let permit = Arc::clone(&app.workers).acquire_owned().await;
    let done = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work(body.bytes())
    });
    done.await.unwrap_or_else(|_| Err(ApiError::new(Kind::Internal, "the request could not be prepared")))
}

/// Reads a body; a wrong one gives an error that names the field.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let message = error.into_inner().to_string();
        match path.as_str() {
            "." | "" | "?" => {
                ApiError::new(Kind::Invalid, format!("the body is not the JSON expected here: {message}"))
            }
            path => ApiError::invalid(path, format!("{path}: {message}")),
        }
    })?;
    reader.end().map_err(|error| ApiError::new(Kind::Invalid, format!("the body is more than one object: {error}")))?;
    Ok(value)
}

/// A response with a JSON body.
pub(crate) fn json(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
