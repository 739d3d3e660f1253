//! Finds, fetches and keeps models by name: a catalogue, the Hugging Face Hub, Python packages, Ollama's folder.
#![forbid(unsafe_code)]

mod cache;
mod catalogue;
mod choose;
mod client;
mod closest;
mod digest;
mod download;
mod error;
mod explain;
mod fetch;
mod hub_model;
mod ollama;
mod os;
mod outline;
mod package;
mod partial;
mod quantization;
mod running;
mod store;
mod stored;

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

pub use self::catalogue::Catalogue;
pub use self::error::HubError;
pub use self::fetch::fetch;
pub use self::hub_model::HubModel;
pub use self::os::PYTHON;
pub use self::outline::outline;
pub use self::running::{RunningModel, running};
pub use self::store::{Offer, Pulled, Store};
pub use self::stored::{Place, StoredModel};

/// The public hub.
pub const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// How long a server may be silent.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Where to fetch from and where to keep what was fetched.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// Address of the server, without a slash at the end; [`DEFAULT_ENDPOINT`] unless `HF_ENDPOINT` says otherwise.
    pub endpoint: String,
    /// Access token for models that need one; the value of `HF_TOKEN`. Only the server of `endpoint` gets to see it.
    pub token: Option<String>,
    /// How long the server may be silent before a request counts as failed; [`DEFAULT_TIMEOUT`].
    pub timeout: Duration,
    /// The cache folder that all Hugging Face tools share: `hub` inside `HF_HOME`.
    pub cache: PathBuf,
    /// Whether the network may be used for what is not stored; not so with `HF_HUB_OFFLINE`.
    pub network: Network,
}

/// Whether a model may be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// From wherever it is.
    Online,
    /// No: what is not stored is an error.
    Offline,
}

impl HubOptions {
    /// Fails where `model` would have to be fetched and must not be.
    pub(crate) fn check_online(&self, model: &dyn Display) -> Result<(), HubError> {
        match self.network {
            Network::Online => Ok(()),
            Network::Offline => Err(HubError::Offline { model: model.to_string() }),
        }
    }
}

/// How far the download of one file has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The file.
    pub file: &'a str,
    /// Bytes that are on disk, those of earlier interrupted runs included.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}
