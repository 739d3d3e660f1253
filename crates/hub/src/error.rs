//! What can go wrong between the name of a model and its files on this machine.

use std::io;
use std::path::{Path, PathBuf};

use cascadia_weights::WeightsError;

/// A model that could not be found, fetched or removed.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The hub, another source or the folder for it failed.
    #[error("cannot fetch `{model}` from {endpoint}: {problem}; {advice}")]
    Fetch {
        /// The model as it was asked for.
        model: String,
        /// The server that was asked.
        endpoint: String,
        /// What happened.
        problem: String,
        /// What to do next.
        advice: &'static str,
        /// Whether there was no answer at all, so that the model may well be there.
        unreachable: bool,
    },
    /// None of the sources of a model in the catalogue works.
    #[error("cannot fetch `{model}`: {}", listed(problems))]
    Sources {
        /// Its full name.
        model: String,
        /// Why not, one for each source.
        problems: Vec<HubError>,
    },
    /// A model that is not stored, where the network may not be used.
    #[error(
        "`{model}` is not stored on this machine, and the network may not be used (--offline or HF_HUB_OFFLINE); \
         run `cascadia pull {model}` without them"
    )]
    Offline {
        /// The model as it was asked for.
        model: String,
    },
    /// A name that means nothing.
    #[error("{problem}; `cascadia list --catalogue` has the short names, and org/name is looked for on the hub")]
    Unknown {
        /// What it is not, and what is like it.
        problem: String,
    },
    /// A server that does not say what it has loaded.
    #[error(
        "no answer from {endpoint}: {problem}; start a server with `cascadia serve`, or name one with --url and --key"
    )]
    Server {
        /// Its address.
        endpoint: String,
        /// What happened.
        problem: String,
    },
    /// A model that another program keeps.
    #[error("`{model}` belongs to Ollama, which alone may delete it: `ollama rm {model}`")]
    NotOurs {
        /// What Ollama calls it.
        model: String,
    },
    /// A stored file that is not what was stored.
    #[error("{} is damaged: {problem}; `cascadia pull {model}` fetches it again", path.display())]
    Damaged {
        /// The model.
        model: String,
        /// Its file.
        path: PathBuf,
        /// What gives it away.
        problem: String,
    },
    /// A stored file that cannot be used.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The reason the system gave.
        source: io::Error,
    },
    /// A file that arrived contradicts its own format.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}

impl HubError {
    /// Wraps what the system said.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> HubError {
        let path = path.to_owned();
        move |source| HubError::Io { action, path, source }
    }

    /// What was asked for a model, if that failed.
    pub fn endpoint(&self) -> Option<&str> {
        match self {
            HubError::Fetch { endpoint, .. } => Some(endpoint),
            _ => None,
        }
    }

    /// Whether nobody could be asked: another try may work, and nothing was refused.
    pub fn is_unreachable(&self) -> bool {
        match self {
            HubError::Fetch { unreachable, .. } => *unreachable,
            HubError::Sources { problems, .. } => problems.iter().all(HubError::is_unreachable),
            _ => false,
        }
    }
}

fn listed(problems: &[HubError]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
