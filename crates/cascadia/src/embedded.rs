//! The small model inside this crate, for trying things out and for tests.

use crate::{Error, Model, ModelSource};

/// A model of 33 million parameters, which writes like the books it was trained on.
pub const EMBEDDED_MODEL: ModelSource = ModelSource::Embedded {
    file: "rainier-33m-q4_k_m.gguf",
    gguf: include_bytes!("../model/rainier-33m-q4_k_m.gguf"),
    note: "rainier-33m is a toy of 33 million parameters: it writes grammatical prose and knows nothing. For real answers \
           name a real model: cascadia run smollm2, or cascadia serve smollm2.",
};

impl Model {
    /// Opens the model inside this crate with the usual settings.
    pub fn embedded() -> Result<Model, Error> {
        Model::builder().open(EMBEDDED_MODEL)
    }
}
