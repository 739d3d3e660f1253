//! Errors: their HTTP status, and the shape that each protocol gives them.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cascadia_engine::EngineError;
use cascadia_engine::service::SubmitError;
use cascadia_text::TextError;
use serde_json::{Value, json};

/// Why a server could not start or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another --host or --port")]
    Bind {
        /// The address.
        address: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Anybody on the network could use the server.
    #[error(
        "{address} can be reached by other machines and no keys are configured; make one with `cascadia keys new` and \
         pass the file with --keys, or pass --insecure if everybody on the network may use the model"
    )]
    Exposed {
        /// The address.
        address: String,
    },
    /// Anybody between a client and the server could read its key.
    #[error(
        "{address} can be reached by other machines and would receive keys and prompts in plain text; give --tls-cert \
         and --tls-key, listen on 127.0.0.1 behind a proxy that has TLS, or pass --insecure if nobody else can read the \
         network"
    )]
    PlainText {
        /// The address.
        address: String,
    },
    /// A file of keys, of certificates or of adapters cannot be used.
    #[error("cannot use {what} {}: {problem}", path.display())]
    File {
        /// What the file should hold.
        what: &'static str,
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// A model cannot be loaded.
    #[error("cannot serve the model `{name}`: {problem}")]
    Model {
        /// What clients call it.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The collector cannot be used.
    #[error("cannot send traces to `{url}`; give a collector such as http://localhost:4318, without TLS")]
    Collector {
        /// What was given.
        url: String,
    },
    /// The system refused threads, signals or sockets.
    #[error("cannot serve: {0}")]
    System(#[from] std::io::Error),
}

/// When to retry on a fleet that lost a machine.
const DEGRADED_RETRY: Duration = Duration::from_secs(5);

/// The kind of an error, which decides its status and names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// The request is wrong.
    Invalid,
    /// The request is valid, but this server does not support it.
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
    /// The request resumes a stream that it does not belong to.
    Conflict,
    /// Too many requests.
    Busy,
    /// The server is shutting down.
    Unavailable,
    /// A machine that runs layers of the model is gone, and no other can take over yet.
    Degraded,
    /// Our fault.
    Internal,
}

/// Status, then `type` and `code` as OpenAI names them, then `type` as Anthropic names it.
type Facts = (StatusCode, &'static str, Option<&'static str>, &'static str);

impl ErrorKind {
    fn facts(self) -> Facts {
        let wrong = "invalid_request_error";
        match self {
            ErrorKind::Invalid => (StatusCode::BAD_REQUEST, wrong, None, wrong),
            ErrorKind::Unsupported => (StatusCode::BAD_REQUEST, wrong, Some("unsupported"), wrong),
            ErrorKind::Conflict => (StatusCode::CONFLICT, wrong, Some("conflict"), wrong),
            ErrorKind::ContextLength => (StatusCode::BAD_REQUEST, wrong, Some("context_length_exceeded"), wrong),
            ErrorKind::NoKey => (StatusCode::UNAUTHORIZED, wrong, Some("invalid_api_key"), "authentication_error"),
            ErrorKind::Forbidden => (StatusCode::FORBIDDEN, "permission_error", None, "permission_error"),
            ErrorKind::NoRoute => (StatusCode::NOT_FOUND, wrong, Some("unknown_url"), "not_found_error"),
            ErrorKind::NoModel => (StatusCode::NOT_FOUND, wrong, Some("model_not_found"), "not_found_error"),
            ErrorKind::Method => (StatusCode::METHOD_NOT_ALLOWED, wrong, Some("method_not_allowed"), wrong),
            ErrorKind::Slow => (StatusCode::REQUEST_TIMEOUT, wrong, Some("request_timeout"), wrong),
            ErrorKind::TooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, wrong, Some("request_too_large"), "request_too_large")
            }
            ErrorKind::Busy => {
                (StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", Some("rate_limit_exceeded"), "rate_limit_error")
            }
            ErrorKind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "server_error", None, "overloaded_error"),
            ErrorKind::Degraded => {
                (StatusCode::SERVICE_UNAVAILABLE, "server_error", Some("fleet_degraded"), "overloaded_error")
            }
            ErrorKind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "server_error", None, "api_error"),
        }
    }
}

/// An error for the client.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ApiError {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    /// The field at fault.
    pub(crate) param: Option<String>,
    /// When to retry.
    pub(crate) retry_after: Option<Duration>,
}

impl ApiError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> ApiError {
        ApiError { kind, message: message.into(), param: None, retry_after: None }
    }

    /// A wrong value of a field.
    pub(crate) fn invalid(param: &str, message: impl Into<String>) -> ApiError {
        ApiError { param: Some(param.to_owned()), ..ApiError::new(ErrorKind::Invalid, message) }
    }

    /// A field that is known, and a value of it that this server does not support.
    pub(crate) fn unsupported(param: &str, message: impl Into<String>) -> ApiError {
        ApiError { kind: ErrorKind::Unsupported, ..ApiError::invalid(param, message) }
    }

    /// A model that is not here.
    pub(crate) fn no_model(message: impl Into<String>) -> ApiError {
        ApiError { param: Some("model".to_owned()), ..ApiError::new(ErrorKind::NoModel, message) }
    }

    /// Too many requests; to be retried later.
    pub(crate) fn busy(message: impl Into<String>, retry_after: Duration) -> ApiError {
        ApiError { retry_after: Some(retry_after), ..ApiError::new(ErrorKind::Busy, message) }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.kind.facts().0
    }

    /// The body in the shape that the clients of a protocol expect.
    pub(crate) fn body(&self, shape: ErrorShape) -> Value {
        let (_, kind, code, anthropic) = self.kind.facts();
        match shape {
            ErrorShape::OpenAi => {
                json!({"error": {"message": self.message, "type": kind, "param": self.param, "code": code}})
            }
            ErrorShape::Anthropic => json!({"type": "error", "error": {"type": anthropic, "message": self.message}}),
            ErrorShape::Ollama => json!({"error": self.message}),
        }
    }

    /// The response in the shape of a protocol.
    pub(crate) fn respond(&self, shape: ErrorShape) -> Response {
        let content_type = [(header::CONTENT_TYPE, "application/json")];
        let mut response = (self.status(), content_type, self.body(shape).to_string()).into_response();
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs_f64().ceil().max(1.0) as u64;
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.kind == ErrorKind::NoKey {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// The shape of error bodies, by protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorShape {
    OpenAi,
    Anthropic,
    Ollama,
}

impl ErrorShape {
    /// The protocol that a path belongs to.
    pub(crate) fn of_path(path: &str) -> ErrorShape {
        match path {
            _ if path.starts_with("/v1/messages") => ErrorShape::Anthropic,
            _ if path.starts_with("/api/") => ErrorShape::Ollama,
            _ => ErrorShape::OpenAi,
        }
    }
}

/// The error is passed on as an extension; the outermost layer, which knows the path, writes the body.
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
            // The limits of a template grow with the context: a conversation that exceeds them is too long.
            EngineError::ContextFull { .. } | EngineError::Text(TextError::TemplateLimit { .. }) => {
                ErrorKind::ContextLength
            }
            EngineError::Setting { .. } | EngineError::UnknownToken { .. } | EngineError::Text(_) => ErrorKind::Invalid,
            EngineError::Missing { .. } => ErrorKind::Unsupported,
            error if error.is_lost() => ErrorKind::Degraded,
            _ => ErrorKind::Internal,
        };
        let param = match &error {
            EngineError::Setting { name, .. } => Some((*name).to_owned()),
            _ => None,
        };
        let retry_after = (kind == ErrorKind::Degraded).then_some(DEGRADED_RETRY);
        ApiError { param, retry_after, ..ApiError::new(kind, error.to_string()) }
    }
}

impl From<TextError> for ApiError {
    fn from(error: TextError) -> ApiError {
        EngineError::Text(error).into()
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> ApiError {
        let message = error.to_string();
        match error {
            SubmitError::QueueFull { retry_after, .. } => ApiError::busy(message, retry_after),
            SubmitError::MemoryFull { retry_after, .. } => {
                ApiError { retry_after: Some(retry_after), ..ApiError::new(ErrorKind::Unavailable, message) }
            }
            SubmitError::ShuttingDown => ApiError::new(ErrorKind::Unavailable, message),
            SubmitError::Invalid(error) => error.into(),
        }
    }
}
