//! What can go wrong between machines of a fleet.

use std::io;
use std::path::{Path, PathBuf};

/// A fleet that cannot be set up, or a machine that cannot take part.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
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
    /// Layers cannot be cut like that.
    #[error("{asked} cannot be: {problem}; possible first layers of stages are {possible}")]
    Split {
        /// What was asked for.
        asked: String,
        /// Why not.
        problem: String,
        /// Where stages may begin.
        possible: String,
    },
    /// A shard cannot be read.
    #[error(transparent)]
    Weights(#[from] cascadia_weights::WeightsError),
    /// A shard cannot be loaded.
    #[error(transparent)]
    Model(#[from] cascadia_model::ModelError),
    /// A model does not fit.
    #[error("no plan for {machines} machine(s): {problem}")]
    Plan {
        /// How many there are.
        machines: usize,
        /// What is missing, and what to do next.
        problem: String,
    },
    /// A file did not get to another machine.
    #[error("{node} did not take {file}: {problem}")]
    Push {
        /// The machine.
        node: String,
        /// The file.
        file: String,
        /// Why not, and what to do next.
        problem: String,
    },
    /// A model cannot be served yet.
    #[error("{model} is not ready: {problem}")]
    NotReady {
        /// The model.
        model: String,
        /// What is missing, and which machine holds what.
        problem: String,
    },
    /// A machine cannot join.
    #[error("this invitation cannot be used: {problem}")]
    Invitation {
        /// Why not, and what to do next.
        problem: String,
    },
    /// A machine cannot join with a pairing code.
    #[error("{problem}")]
    Pairing {
        /// Why not, and what to do next.
        problem: String,
        /// Whether the code has to be typed again.
        is_mistyped: bool,
    },
    /// This worker was removed from its fleet.
    #[error(
        "this machine ({node}) was removed from its fleet; it stops. To let it take part again, run `cascadia leave` here, \
        then join once more"
    )]
    Revoked {
        /// What it was called there.
        node: String,
    },
    /// This machine has not been made a coordinator or a worker.
    #[error("{problem}")]
    NotSetUp {
        /// What is missing, and what to do next.
        problem: String,
    },
    /// Another process works with the same folder.
    #[error("{problem}")]
    InUse {
        /// What it does, and what to do next.
        problem: String,
    },
    /// A push did not come to its end.
    #[error("{problem}")]
    PushFailed {
        /// Why, for every machine that did not get its shard.
        problem: String,
    },
    /// A machine is not a member of the fleet.
    #[error("`{node}` is no machine of this fleet; there are {}", members.join(", "))]
    UnknownNode {
        /// The name that was given.
        node: String,
        /// The names of the members.
        members: Vec<String>,
    },
    /// What the owner of a machine asks for cannot be kept.
    #[error("{problem}")]
    Limits {
        /// What is wrong, and what to do next.
        problem: String,
    },
    /// A file of the fleet does not say what it should.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do next.
        problem: String,
    },
}

impl FleetError {
    /// Wraps what the system said.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FleetError {
        let path = path.to_owned();
        move |source| FleetError::Io { action, path, source }
    }

    pub(crate) fn pairing(problem: impl Into<String>) -> FleetError {
        FleetError::Pairing { problem: problem.into(), is_mistyped: false }
    }

    pub(crate) fn mistyped(problem: impl Into<String>) -> FleetError {
        FleetError::Pairing { problem: problem.into(), is_mistyped: true }
    }

    pub(crate) fn file(path: &Path, problem: impl Into<String>) -> FleetError {
        FleetError::File { path: path.to_owned(), problem: problem.into() }
    }
}
