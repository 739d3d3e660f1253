//! Constraints on what a model may generate: the grammar compiler of its vocabulary, made when first needed.

use std::sync::OnceLock;

use cascadia_engine::ModelText;
use cascadia_text::{Constraint, GrammarCompiler, OutputFormat};

use crate::error::ApiError;

/// Makes constraints for one model.
#[derive(Default)]
pub(crate) struct OutputConstraints {
    /// Its tables take time and memory.
    compiler: OnceLock<Result<GrammarCompiler, String>>,
}

impl OutputConstraints {
    /// The initial state of an answer that must have this format.
    pub(crate) fn constraint(&self, format: &OutputFormat, text: &ModelText) -> Result<Constraint, ApiError> {
        let make = || GrammarCompiler::new(text.tokenizer(), &text.special().stop).map_err(|error| error.to_string());
        match self.compiler.get_or_init(make) {
            Ok(compiler) => Ok(compiler.compile(format)?),
            Err(problem) => Err(ApiError::unsupported("response_format", problem)),
        }
    }
}
