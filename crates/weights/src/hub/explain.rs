//! Saying what a failed conversation with the hub means and what to do about it.

use std::io;

use hf_hub::api::sync::ApiError;

use super::HubModel;
use crate::WeightsError;

/// The model and the server that messages are about.
#[derive(Clone, Copy)]
pub(super) struct Explain<'a> {
    pub(super) model: &'a HubModel,
    pub(super) endpoint: &'a str,
}

impl Explain<'_> {
    /// A failed request, for `file` or, if `None`, for the list of files.
    pub(super) fn failure(&self, file: Option<&str>, error: &ApiError) -> WeightsError {
        let about = file.map(|file| format!(" for `{file}`")).unwrap_or_default();
        let (problem, advice) = match error {
            ApiError::RequestError(error) => request_failure(error),
            ApiError::IoError(error) => io_failure(error),
            ApiError::LockAcquisition(_) => {
                ("the file is locked".to_owned(), "another program is downloading it: wait until it is done")
            }
            ApiError::TooManyRetries(error) => return self.failure(file, error),
            other => (format!("the server's answer makes no sense ({other})"), CHECK_ENDPOINT),
        };
        self.error(format!("{problem}{about}"), advice)
    }

    /// An answer that came but cannot be used.
    pub(super) fn nonsense(&self, problem: String) -> WeightsError {
        self.error(format!("the server's answer makes no sense: {problem}"), CHECK_ENDPOINT)
    }

    /// A repository in which no model was found.
    pub(super) fn no_choice(&self, problem: String) -> WeightsError {
        self.error(problem, "name a file as `org/name/file.gguf` or `org/name:Q4_K_M`, or choose another repository")
    }

    fn error(&self, problem: String, advice: &str) -> WeightsError {
        let (model, endpoint) = (self.model.to_string(), self.endpoint.to_owned());
        WeightsError::Hub { model, endpoint, problem, advice: advice.to_owned() }
    }
}

/// Whether trying again at once may help: the transfer broke, nobody refused anything.
pub(super) fn is_worth_a_retry(error: &ApiError) -> bool {
    match error {
        ApiError::IoError(error) => error.kind() != io::ErrorKind::StorageFull,
        ApiError::RequestError(error) => match **error {
            ureq::Error::StatusCode(status) => status == 429 || status >= 500,
            ureq::Error::Io(_) | ureq::Error::Timeout(_) | ureq::Error::Protocol(_) => true,
            _ => false,
        },
        _ => false,
    }
}

const CHECK_ENDPOINT: &str = "check HF_ENDPOINT, or try again later";
const CHECK_NETWORK: &str =
    "check the network connection, the proxy settings and HF_ENDPOINT; run the command again to continue";

fn request_failure(error: &ureq::Error) -> (String, &'static str) {
    match error {
        ureq::Error::StatusCode(401) => (
            "the server wants to know who asks (status 401)".to_owned(),
            "check the spelling of the name, and set HF_TOKEN to an access token if the model is private or gated",
        ),
        ureq::Error::StatusCode(403) => (
            "the server refuses access (status 403)".to_owned(),
            "accept the model's licence on its web page and set HF_TOKEN to a token that may read it",
        ),
        ureq::Error::StatusCode(404) => {
            ("there is no such model or file (status 404)".to_owned(), "check the spelling of the name, `org/name`")
        }
        ureq::Error::StatusCode(status) => {
            (format!("the server answers with status {status}"), "try again in a few minutes")
        }
        ureq::Error::Io(error) => io_failure(error),
        ureq::Error::BadUri(_) => (error.to_string(), "HF_ENDPOINT should look like https://huggingface.co"),
        other => (format!("the server cannot be reached ({other})"), CHECK_NETWORK),
    }
}

fn io_failure(error: &io::Error) -> (String, &'static str) {
    match error.kind() {
        io::ErrorKind::StorageFull => {
            ("the disk is full".to_owned(), "free some space, or move the cache with HF_HOME")
        }
        io::ErrorKind::PermissionDenied => {
            ("the cache cannot be written".to_owned(), "make the folder writable, or move the cache with HF_HOME")
        }
        _ => (format!("the transfer failed ({error})"), CHECK_NETWORK),
    }
}
