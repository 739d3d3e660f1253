//! What can go wrong with a model, a server or a fleet.

use std::io;
use std::path::{Path, PathBuf};

use cascadia_engine::EngineError;
use cascadia_engine::service::SubmitError;
use cascadia_weights::WeightsError;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model's files cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The model cannot be opened, or a request cannot be served.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A request was refused.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The model ended while an answer was generated.
    #[error("the model was closed before the answer was complete")]
    Closed,
    /// The draft model cannot be opened.
    #[error("cannot open the draft model {name}: {source}")]
    Draft {
        /// What it is called.
        name: String,
        /// Why not.
        source: EngineError,
    },
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The reason the system gave.
        source: io::Error,
    },
    /// The server cannot start, or had to end.
    #[cfg(feature = "server")]
    #[error(transparent)]
    Server(#[from] cascadia_server::ServerError),
    /// The model cannot be quantised.
    #[cfg(feature = "quantize")]
    #[error(transparent)]
    Quantize(#[from] cascadia_quantize::QuantizeError),
    /// The fleet cannot do it.
    #[cfg(feature = "fleet")]
    #[error(transparent)]
    Fleet(#[from] cascadia_fleet::FleetError),
    /// The model cannot be planned, exported or served on the fleet.
    #[cfg(feature = "fleet")]
    #[error(transparent)]
    Coordinator(#[from] cascadia_coordinator::CoordinatorError),
}

impl Error {
    /// Wraps what the system said.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io { action, path, source }
    }
}
