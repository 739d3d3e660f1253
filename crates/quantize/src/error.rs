//! What can go wrong while a model is written in other formats.

use std::io;
use std::path::PathBuf;

use cascadia_engine::EngineError;
use cascadia_kernels::quantize::QuantizeError as NumbersError;
use cascadia_model::ModelError;
use cascadia_text::TextError;
use cascadia_weights::WeightsError;

/// A model that cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum QuantizeError {
    /// The files cannot be read or written.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The architecture cannot be read.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The tokenizer cannot be read.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The special tokens or the chat template cannot be read.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A setting is outside its range.
    #[error("{name} is {value}; it must be {allowed}")]
    Setting {
        /// Which setting.
        name: &'static str,
        /// What was asked for.
        value: String,
        /// What would be accepted.
        allowed: &'static str,
    },
    /// The numbers of a tensor cannot be stored in the wanted format.
    #[error("tensor `{tensor}`: {source}")]
    Numbers {
        /// The tensor.
        tensor: String,
        /// What is wrong with its numbers.
        source: NumbersError,
    },
    /// Importances cannot be used.
    #[error("cannot use the importances of {}: {problem}", path.display())]
    Importance {
        /// The file, or the text they were measured on.
        path: PathBuf,
        /// What is wrong, and what to do next.
        problem: String,
    },
    /// A quantised model cannot be kept.
    #[error(
        "cannot keep the quantised model in {}: cannot {action} {}: {source}; make room there, or write it elsewhere \
         once with `cascadia quantize`", folder.display(), path.display()
    )]
    Cache {
        /// The folder of all of them.
        folder: PathBuf,
        /// What was tried, as a verb.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The reason the system gave.
        source: io::Error,
    },
    /// The model cannot be written as GGUF.
    #[error("cannot convert {}: {what} is {value}; {advice}", path.display())]
    Convert {
        /// The model.
        path: PathBuf,
        /// Which tensor or field.
        what: String,
        /// What it says.
        value: String,
        /// What to do next.
        advice: &'static str,
    },
}
