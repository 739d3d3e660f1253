//! What can go wrong between a model and the fleet that is to run it.

use std::io;
use std::path::{Path, PathBuf};

use cascadia_engine::EngineError;
use cascadia_fleet::FleetError;
use cascadia_model::ModelError;
use cascadia_quantize::QuantizeError;
use cascadia_weights::WeightsError;

/// A model that cannot be planned, exported or served on a fleet.
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    /// The fleet cannot do it.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// The engine cannot be opened, or a setting is wrong.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A shard cannot be written.
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
    /// The model cannot be read as one.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Its files cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
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
    /// A tensor has more numbers than can be counted.
    #[error("{tensor} has a size that cannot be")]
    Size {
        /// Its name.
        tensor: String,
    },
    /// A file of an export was changed.
    #[error("{} is not what the manifest describes; export the model again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A stage that should run in this process does not exist.
    #[error("there is no stage {stage} to run here; the export has {stages}")]
    NoStage {
        /// Its number.
        stage: u32,
        /// How many there are.
        stages: usize,
    },
    /// Nothing can be served yet.
    #[error("nothing was pushed to this fleet yet; use `cascadia fleet push` first")]
    NothingPushed,
    /// This machine was asked to compute, and has no stage.
    #[error(
        "no stage was kept here; push again with one of them, `cascadia fleet push {} here:stage-0 …`",
        folder.display()
    )]
    NoOwnStage {
        /// The export that was pushed.
        folder: PathBuf,
    },
    /// A push asks for something that a running server cannot do.
    #[error("{problem}")]
    Push {
        /// Why not, and what to do next.
        problem: String,
    },
}

impl CoordinatorError {
    /// Wraps what the system said.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CoordinatorError {
        let path = path.to_owned();
        move |source| CoordinatorError::Io { action, path, source }
    }
}
