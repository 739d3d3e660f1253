//! What can go wrong between a model file and its forward pass.

use std::ops::Range;
use std::path::PathBuf;

use cascadia_weights::WeightsError;

/// A model that cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The files cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// An architecture that this version does not know.
    #[error("{}: architecture `{name}` is not supported; this version runs {supported}", path.display())]
    Architecture {
        /// The file or folder.
        path: PathBuf,
        /// What it says it is.
        name: String,
        /// The architectures there are.
        supported: String,
    },
    /// A setting of the model that is absent, out of range or not supported.
    #[error("{}: setting `{key}` {problem}", path.display())]
    Setting {
        /// The file or folder.
        path: PathBuf,
        /// The key in config.json or in the GGUF metadata.
        key: String,
        /// What is wrong with it and what would be right.
        problem: String,
    },
    /// A tensor whose shape contradicts the settings.
    #[error("{}: tensor `{name}` has shape {found:?} where the model's settings need {expected:?}; the file is damaged or was converted by a faulty tool", path.display())]
    Shape {
        /// The file or folder.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// What the settings say.
        expected: Vec<usize>,
        /// What the file has.
        found: Vec<u64>,
    },
    /// An adapter that cannot be used, or not with this model.
    #[error("{}: `{name}` {problem}", path.display())]
    Adapter {
        /// The file or folder.
        path: PathBuf,
        /// The tensor or the setting.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A range of layers that cannot run apart from the others.
    #[error(
        "layers {}–{} cannot be a stage of their own: layer {layer} reads the cache of layer {owner}; begin the stage at layer {owner} or before it",
        range.start, range.end - 1
    )]
    Stage {
        /// The layers asked for.
        range: Range<usize>,
        /// One of them.
        layer: usize,
        /// The layer that it reads from.
        owner: usize,
    },
    /// The limits asked for do not fit into memory.
    #[error(
        "a cache for {context} tokens needs {bytes} bytes, more than this machine can address; ask for a shorter context"
    )]
    CacheTooLarge {
        /// Tokens asked for.
        context: u32,
        /// Bytes they would need.
        bytes: u64,
    },
    /// A cap on memory below what the model needs even when its layers are read again in every step.
    #[error(
        "{:.2} GB of memory are not enough: with a context of {context} tokens this model needs at least {:.2} GB \
         even when its layers are streamed from disk; allow more memory or ask for a shorter context",
        *memory as f64 / 1e9, *least as f64 / 1e9
    )]
    MemoryTooSmall {
        /// Bytes allowed.
        memory: u64,
        /// Bytes needed.
        least: u64,
        /// Tokens of context.
        context: u32,
    },
    /// Weights that are streamed should be populated or locked.
    #[error(
        "weights that are streamed from disk cannot be populated or locked in memory; allow more memory, or do not ask \
         for it"
    )]
    PagesDoNotStay,
}

/// A step that a stage could not run.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The mapped model file changed underneath.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The stage is gone, and its cache with it; what it held must be computed again.
    #[error("layers {}–{} are lost: {problem}", layers.start, layers.end.saturating_sub(1))]
    Lost {
        /// The layers it ran.
        layers: Range<u32>,
        /// What happened, and on which machine.
        problem: String,
        /// Whether that was while it computed this very step, which may then be why; else it was gone before.
        while_computing: bool,
    },
    /// What the stage gave lately may be wrong, and so may everything be that was made of it.
    #[error("what layers {}–{} computed cannot be trusted: {problem}", layers.start, layers.end.saturating_sub(1))]
    Wrong {
        /// The layers it ran.
        layers: Range<u32>,
        /// Why, and on which machines.
        problem: String,
    },
    /// The plan asks for something this stage was not loaded for.
    #[error("the step cannot run here: {problem}")]
    Plan {
        /// What does not fit.
        problem: String,
    },
}
