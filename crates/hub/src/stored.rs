//! A model that is on this machine.

use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;

/// A model that is on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredModel {
    /// What to call it: `qwen3:4b-q4_k_m`, `org/name:Q4_K_M`.
    pub name: String,
    /// For [`cascadia_weights::ModelFiles::open`].
    pub path: PathBuf,
    /// Who keeps it.
    pub place: Place,
    /// What its publisher allows, where the catalogue says so.
    pub licence: Option<String>,
    /// All its files.
    pub(crate) files: Vec<PathBuf>,
    /// What its one file must have, if that is known.
    pub(crate) sha256: Option<String>,
}

/// Who keeps a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The cache that all Hugging Face tools share, as the repository `org/name`.
    HubCache(String),
    /// The folder of this program.
    Own,
    /// Ollama.
    Ollama,
}

impl StoredModel {
    /// How long its files are.
    pub fn bytes(&self) -> u64 {
        self.files.iter().filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
    }

    /// When the newest of its files was written.
    pub fn modified(&self) -> Option<SystemTime> {
        self.files.iter().filter_map(|file| file.metadata().ok()?.modified().ok()).max()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::HubCache(id) => write!(f, "hub {id}"),
            Place::Own => f.write_str("cascadia"),
            Place::Ollama => f.write_str("ollama"),
        }
    }
}
