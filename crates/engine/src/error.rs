//! What can go wrong between a model on disk and a finished request.

use std::path::PathBuf;

use cascadia_model::{ModelError, StageError};
use cascadia_text::TextError;
use cascadia_weights::WeightsError;

/// A model that cannot be opened, or a request that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The files cannot be read or written.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The model cannot be loaded.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A step failed.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// The tokenizer or the chat template cannot be used.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A setting of a request is outside its range.
    #[error("{name} is {value}; it must be {allowed}")]
    Setting {
        /// Which setting.
        name: &'static str,
        /// What was asked for.
        value: String,
        /// What would be accepted.
        allowed: &'static str,
    },
    /// The model produced numbers that cannot be ranked.
    #[error(
        "the model's logits cannot be ranked (first bad one: token {token} is NaN or infinite); \
         the weights are damaged or a logit bias is too large. Check the file with `cascadia inspect`"
    )]
    BrokenLogits {
        /// The first token without a usable logit.
        token: usize,
    },
    /// The sequence does not fit.
    #[error(
        "{used} tokens are in the context and {more} more do not fit into {context}; \
         use a larger context, a shorter prompt, or start afresh"
    )]
    ContextFull {
        /// Tokens already held.
        used: usize,
        /// Tokens that were to be added.
        more: usize,
        /// The most the session can hold.
        context: u32,
    },
    /// A bug broke off the work on a request.
    #[error(
        "a bug in the server broke off the work on this request; others were not affected. Send it again; if it fails \
         again, report it with the lines about a panic in the server's log"
    )]
    Panicked,
    /// The prompt is not made of tokens of this model.
    #[error(
        "token {token} is not in the model's vocabulary of {vocabulary}; was the text tokenised for another model?"
    )]
    UnknownToken {
        /// The token.
        token: u32,
        /// The size of the vocabulary.
        vocabulary: usize,
    },
    /// Pages of the KV cache cannot be spilled to disk.
    #[error("cannot spill the KV cache to {}: {problem}", folder.display())]
    Spill {
        /// The folder.
        folder: PathBuf,
        /// Why not, and what to do.
        problem: String,
    },
    /// An adapter that is not there, or cannot be used.
    #[error("adapter `{name}` {problem}")]
    Adapter {
        /// What it was called.
        name: String,
        /// Why not, and what to do.
        problem: String,
    },
    /// Something this request needs is not among the model's files.
    #[error("{} has no {what}; {advice}", path.display())]
    Missing {
        /// The model.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
        /// What to do next.
        advice: &'static str,
    },
}

impl EngineError {
    /// Whether a machine that runs a part of the model is gone, or wrong: it may work again once another has taken over.
    pub fn is_lost(&self) -> bool {
        matches!(self, EngineError::Stage(StageError::Lost { .. } | StageError::Wrong { .. }))
    }
}
