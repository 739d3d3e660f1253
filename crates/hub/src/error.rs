//! What can go wrong between the name of a model and its files on this machine.

use cascadia_weights::WeightsError;

/// A model that could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The hub or the cache failed.
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
    },
    /// A file that arrived contradicts its own format.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}
