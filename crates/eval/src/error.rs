//! What can go wrong while measuring.

use std::path::PathBuf;

use cascadia_engine::EngineError;
use cascadia_text::TextError;
use cascadia_weights::WeightsError;

/// A measurement that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A file cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The text cannot be tokenised.
    #[error(transparent)]
    Text(#[from] TextError),
    /// There is not enough text for one window.
    #[error("the text has {tokens} tokens and one window needs {window}; use a longer text or a smaller window")]
    TextTooShort {
        /// Tokens of the whole text.
        tokens: usize,
        /// Tokens of one window.
        window: usize,
    },
    /// A number of the measurement is outside its range.
    #[error("{name} is {value}; it must be {allowed}")]
    Option {
        /// Which number.
        name: &'static str,
        /// What was asked for.
        value: usize,
        /// What would be accepted.
        allowed: &'static str,
    },
    /// The address of a server makes no sense.
    #[error("cannot use the address {url}: {problem}; give one such as http://127.0.0.1:8080")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong about it.
        problem: String,
    },
    /// Nobody answers at the address of a server.
    #[error("cannot connect to {address}: {source}; check that the server runs there")]
    Connect {
        /// The server.
        address: String,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// A file is no report, or none that can be compared.
    #[error("cannot use the report {}: {problem}; give one that `cascadia eval … --out` wrote", path.display())]
    Report {
        /// The file.
        path: PathBuf,
        /// What is wrong about it.
        problem: String,
    },
    /// The result cannot be written.
    #[error("cannot write {}: {source}; check that the folder exists and has space", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
}
