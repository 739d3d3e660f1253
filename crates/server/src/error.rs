//! What goes wrong with a request: one map from errors to statuses, and the shape each protocol gives them.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cascadia_engine::EngineError;
use cascadia_engine::service::SubmitError;
use serde_json::{Value, json};

/// Why a server could not start or had to end.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another --host or --port")]
    Bind {
        /// The address.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Anybody on the network could use the server.
    #[error(
        "{address} can be reached by other machines and no keys are configured; make one with `cascadia keys new`, \
         give the file with --keys, or say --insecure if everybody on the network may use the model"
    )]
    Exposed {
        /// The address.
        address: String,
    },
    /// A file of keys or certificates cannot be used.
    #[error("cannot use {what} {}: {problem}", path.display())]
    File {
        /// What the file should hold.
        what: &'static str,
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// Spans cannot go there.
    #[error("cannot send traces to `{url}`; give a collector such as http://localhost:4318, without TLS")]
    Collector {
        /// What was given.
        url: String,
    },
    /// The system refused threads, signals or sockets.
    #[error("cannot serve: {0}")]
    System(#[from] std::io::Error),
}

/// When it is worth asking a fleet again that lost a machine.
const DEGRADED_RETRY: Duration = Duration::from_secs(5);

/// What kind of error it is; decides status and names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The request is wrong.
    Invalid,
    /// The request is right, but asks for something this server does not do.
    Unsupported,
    /// Prompt and answer do not fit into the context.
    ContextLength,
    /// No key, or an unknown one.
    NoKey,
    /// The key is right, the request is still not allowed.
    Forbidden,
    /// There is no such route.
    NoRoute,
    /// There is no such model.
    NoModel,
    /// The route has no such method.
    Method,
    /// The body did not arrive in time.
    Slow,
    /// The body is larger than the limit.
    TooLarge,
    /// The request goes on with something that it does not belong to.
    Conflict,
    /// Too many requests.
    Busy,
    /// The server is ending.
    Unavailable,
    /// A machine that runs a part of the model is gone, and no other can take over yet.
    Degraded,
    /// Our fault.
    Internal,
}

/// Status, then `type` and `code` as OpenAI names them, then `type` as Anthropic names it.
type Facts = (StatusCode, &'static str, Option<&'static str>, &'static str);

impl Kind {
    fn facts(self) -> Facts {
        let wrong = "invalid_request_error";
        match self {
            Kind::Invalid => (StatusCode::BAD_REQUEST, wrong, None, wrong),
            Kind::Unsupported => (StatusCode::BAD_REQUEST, wrong, Some("unsupported"), wrong),
            Kind::Conflict => (StatusCode::CONFLICT, wrong, Some("conflict"), wrong),
            Kind::ContextLength => (StatusCode::BAD_REQUEST, wrong, Some("context_length_exceeded"), wrong),
            Kind::NoKey => (StatusCode::UNAUTHORIZED, wrong, Some("invalid_api_key"), "authentication_error"),
            Kind::Forbidden => (StatusCode::FORBIDDEN, "permission_error", None, "permission_error"),
            Kind::NoRoute => (StatusCode::NOT_FOUND, wrong, Some("unknown_url"), "not_found_error"),
            Kind::NoModel => (StatusCode::NOT_FOUND, wrong, Some("model_not_found"), "not_found_error"),
            Kind::Method => (StatusCode::METHOD_NOT_ALLOWED, wrong, Some("method_not_allowed"), wrong),
            Kind::Slow => (StatusCode::REQUEST_TIMEOUT, wrong, Some("request_timeout"), wrong),
            Kind::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, wrong, Some("request_too_large"), "request_too_large"),
            Kind::Busy => {
                (StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", Some("rate_limit_exceeded"), "rate_limit_error")
            }
            Kind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "server_error", None, "overloaded_error"),
            Kind::Degraded => {
                (StatusCode::SERVICE_UNAVAILABLE, "server_error", Some("fleet_degraded"), "overloaded_error")
            }
            Kind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "server_error", None, "api_error"),
        }
    }
}

/// An error on its way to the client.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ApiError {
    pub(crate) kind: Kind,
    pub(crate) message: String,
    /// The field at fault.
    pub(crate) param: Option<String>,
    /// When it is worth trying again.
    pub(crate) retry_after: Option<Duration>,
}

impl ApiError {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> ApiError {
        ApiError { kind, message: message.into(), param: None, retry_after: None }
    }

    /// A wrong value of a field.
    pub(crate) fn invalid(param: &str, message: impl Into<String>) -> ApiError {
        ApiError { param: Some(param.to_owned()), ..ApiError::new(Kind::Invalid, message) }
    }

    /// A field that is known, and a value of it that this server does not support.
    pub(crate) fn unsupported(param: &str, message: impl Into<String>) -> ApiError {
        ApiError { kind: Kind::Unsupported, ..ApiError::invalid(param, message) }
    }

    /// Too much at once; to be tried again after a while.
    pub(crate) fn busy(message: impl Into<String>, retry_after: Duration) -> ApiError {
        ApiError { retry_after: Some(retry_after), ..ApiError::new(Kind::Busy, message) }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.kind.facts().0
    }

    /// The body in the shape that the clients of a protocol expect.
    pub(crate) fn body(&self, shape: Shape) -> Value {
        let (_, kind, code, anthropic) = self.kind.facts();
        match shape {
            Shape::OpenAi => {
                json!({"error": {"message": self.message, "type": kind, "param": self.param, "code": code}})
            }
            Shape::Anthropic => json!({"type": "error", "error": {"type": anthropic, "message": self.message}}),
            Shape::Ollama => json!({"error": self.message}),
        }
    }

    /// The response in the shape of a protocol.
    pub(crate) fn respond(&self, shape: Shape) -> Response {
        let content_type = [(header::CONTENT_TYPE, "application/json")];
        let mut response = (self.status(), content_type, self.body(shape).to_string()).into_response();
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs_f64().ceil().max(1.0) as u64;
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.kind == Kind::NoKey {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Whose clients read the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    OpenAi,
    Anthropic,
    Ollama,
}

impl Shape {
    /// The protocol that a path belongs to.
    pub(crate) fn of_path(path: &str) -> Shape {
        match path {
            _ if path.starts_with("/v1/messages") => Shape::Anthropic,
            _ if path.starts_with("/api/") => Shape::Ollama,
            _ => Shape::OpenAi,
        }
    }
}

/// The error travels as an extension; the outermost layer, which knows the path, writes the body.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> ApiError {
        let kind = match &error {
            EngineError::Setting { .. } | EngineError::UnknownToken { .. } | EngineError::Text(_) => Kind::Invalid,
            EngineError::ContextFull { .. } => Kind::ContextLength,
            EngineError::Missing { .. } => Kind::Unsupported,
            error if error.is_lost() => Kind::Degraded,
            _ => Kind::Internal,
        };
        let param = match &error {
            EngineError::Setting { name, .. } => Some((*name).to_owned()),
            _ => None,
        };
        let retry_after = (kind == Kind::Degraded).then_some(DEGRADED_RETRY);
        ApiError { param, retry_after, ..ApiError::new(kind, error.to_string()) }
    }
}

impl From<cascadia_text::TextError> for ApiError {
    fn from(error: cascadia_text::TextError) -> ApiError {
        EngineError::Text(error).into()
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> ApiError {
        let message = error.to_string();
        match error {
            SubmitError::QueueFull { retry_after, .. } => ApiError::busy(message, retry_after),
            SubmitError::ShuttingDown => ApiError::new(Kind::Unavailable, message),
            SubmitError::Invalid(error) => error.into(),
        }
    }
}
