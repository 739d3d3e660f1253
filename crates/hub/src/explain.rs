//! What a failed request to the hub means, and what to do about it.

use std::io;

use crate::{HubError, HubModel};

/// Why a request to the hub failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server answered with an error.
    Status(u16),
    /// No answer, or only a part of one.
    Transport(ureq::Error),
    /// The cache cannot be read or written.
    Disk(io::Error),
    /// Another program holds the file.
    Busy,
    /// An answer that cannot be used.
    Invalid(String),
}

impl From<ureq::Error> for Failure {
    fn from(error: ureq::Error) -> Failure {
        Failure::Transport(error)
    }
}

impl Failure {
    /// Whether trying again at once may help: the transfer broke, nobody refused anything.
    pub(crate) fn is_worth_a_retry(&self) -> bool {
        match self {
            Failure::Status(status) => *status == 429 || *status >= 500,
            Failure::Transport(error) => {
                matches!(error, ureq::Error::Io(_) | ureq::Error::Timeout(_) | ureq::Error::Protocol(_))
            }
            Failure::Disk(_) | Failure::Busy | Failure::Invalid(_) => false,
        }
    }
}

/// The model and the server that messages are about.
#[derive(Clone, Copy)]
pub(crate) struct Explain<'a> {
    pub(crate) model: &'a HubModel,
    pub(crate) endpoint: &'a str,
}

impl Explain<'_> {
    /// A failed request for `file` or, if `None`, about the list of files.
    pub(crate) fn failure(&self, file: Option<&str>, failure: &Failure) -> HubError {
        let about = file.map(|file| format!(" for `{file}`")).unwrap_or_default();
        let (problem, advice) = match failure {
            Failure::Status(status) => refusal(*status),
            Failure::Transport(error) => broken(error),
            Failure::Disk(error) => disk_failure(error),
            Failure::Busy => {
                ("the file is locked".to_owned(), "another program is downloading it: wait until it is done")
            }
            Failure::Invalid(problem) => (format!("the server's answer is invalid: {problem}"), CHECK_ENDPOINT),
        };
        self.error(format!("{problem}{about}"), advice)
    }

    /// A repository in which no model was found.
    pub(crate) fn no_choice(&self, problem: String) -> HubError {
        self.error(problem, "name a file as `org/name/file.gguf` or `org/name:Q4_K_M`, or choose another repository")
    }

    fn error(&self, problem: String, advice: &'static str) -> HubError {
        let (model, endpoint) = (self.model.to_string(), self.endpoint.to_owned());
        HubError::Fetch { model, endpoint, problem, advice }
    }
}

const CHECK_ENDPOINT: &str = "check HF_ENDPOINT, or try again later";
const CHECK_NETWORK: &str =
    "check the network connection, the proxy settings and HF_ENDPOINT; run the command again to continue";

fn refusal(status: u16) -> (String, &'static str) {
    match status {
        401 => (
            "the server requires authentication (status 401)".to_owned(),
            "check the spelling of the name, and set HF_TOKEN to an access token if the model is private or gated",
        ),
        403 => (
            "the server refuses access (status 403)".to_owned(),
            "accept the model's licence on its web page and set HF_TOKEN to a token that may read it",
        ),
        404 => ("there is no such model or file (status 404)".to_owned(), "check the spelling of the name, `org/name`"),
        _ => (format!("the server answers with status {status}"), "try again in a few minutes"),
    }
}

fn broken(error: &ureq::Error) -> (String, &'static str) {
    match error {
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
            (error.to_string(), "HF_ENDPOINT should look like https://huggingface.co")
        }
        ureq::Error::Timeout(_) => ("the server does not answer in time".to_owned(), CHECK_NETWORK),
        ureq::Error::Io(error) => (format!("the transfer failed ({error})"), CHECK_NETWORK),
        other => (format!("the server cannot be reached ({other})"), CHECK_NETWORK),
    }
}

fn disk_failure(error: &io::Error) -> (String, &'static str) {
    match error.kind() {
        io::ErrorKind::StorageFull => {
            ("the disk is full".to_owned(), "free some space, or move the cache with HF_HOME")
        }
        io::ErrorKind::PermissionDenied => {
            ("the cache cannot be written".to_owned(), "make the folder writable, or move the cache with HF_HOME")
        }
        _ => (format!("the cache cannot be used ({error})"), "make room for it elsewhere with HF_HOME"),
    }
}
