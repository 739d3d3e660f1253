//! What can go wrong between a path and the tensors behind it.

use std::io;
use std::path::{Path, PathBuf};

/// A model file that cannot be found, read, trusted or written.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb: "open", "map", "write".
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The reason the system gave.
        source: io::Error,
    },
    /// The path leads to something that is not a model.
    #[error("{} {problem}; {advice}", path.display())]
    NotAModel {
        /// The path that was opened.
        path: PathBuf,
        /// What was found there.
        problem: String,
        /// What to do next.
        advice: &'static str,
    },
    /// The content contradicts its own format.
    #[error("{}: {field}: {problem}; the file is damaged or was written by a faulty tool, so download or convert it again", path.display())]
    Malformed {
        /// The damaged file.
        path: PathBuf,
        /// The part of the file that was being read.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The content is valid but this version cannot use it.
    #[error("{}: {field}: {problem}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The part of the file that cannot be used.
        field: String,
        /// Why not, and what to do instead.
        problem: String,
    },
    /// A tensor is stored in a type that exists, or may exist one day, but that this version cannot compute with.
    #[error("{}: tensor {name} has type {kind}, which this version does not read; use a file of another type", path.display())]
    TensorType {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The name of the type, or its number where it has no name that we know.
        kind: String,
    },
    /// A metadata key is absent or holds something else than expected.
    #[error("{}: metadata key `{key}` {problem}; use a file made for this architecture or convert the model again", path.display())]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The key that was asked for.
        key: String,
        /// What is wrong with its value.
        problem: String,
    },
    /// A tensor that was asked for is not there.
    #[error("{}: tensor `{name}` is missing{hint}; use a complete file of a supported architecture", path.display())]
    MissingTensor {
        /// The file or folder.
        path: PathBuf,
        /// The tensor that was asked for.
        name: String,
        /// Names that look alike, ready to append to the sentence; empty when there are none.
        hint: String,
    },
    /// The file changed while it was mapped, so its bytes can no longer be trusted.
    #[error("{} was truncated or replaced while in use; restore it and start again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The system does not keep the file in memory.
    #[error("cannot lock the {bytes} bytes of {} in memory: {source}; {advice}", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// The reason the system gave.
        source: io::Error,
        /// The limit and how to raise it.
        advice: String,
    },
    /// A file was to be written from values that do not form a valid one.
    #[error("cannot write {}: {problem}", path.display())]
    Write {
        /// The target.
        path: PathBuf,
        /// What does not fit.
        problem: String,
    },
}

impl WeightsError {
    /// For `map_err`: an I/O failure while doing `action` on `path`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WeightsError {
        move |source| WeightsError::Io { action, path: path.to_owned(), source }
    }

    pub(crate) fn malformed(path: &Path, field: impl Into<String>, problem: impl Into<String>) -> WeightsError {
        WeightsError::Malformed { path: path.to_owned(), field: field.into(), problem: problem.into() }
    }

    pub(crate) fn unsupported(path: &Path, field: impl Into<String>, problem: impl Into<String>) -> WeightsError {
        WeightsError::Unsupported { path: path.to_owned(), field: field.into(), problem: problem.into() }
    }
}
