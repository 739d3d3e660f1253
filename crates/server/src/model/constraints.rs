//! Constraints on what a model may generate: the grammar compiler of its vocabulary, made when first needed.

use std::sync::OnceLock;
use std::time::Duration;

use cascadia_engine::ModelText;
use cascadia_text::{Constraint, FormatWork, GrammarCompiler, OutputFormat};

use crate::error::ApiError;

/// Makes constraints for one model.
pub(crate) struct OutputConstraints {
    /// Most bytes of compiled formats, remembered and in use.
    most_bytes: usize,
    /// Its tables take time and memory.
    compiler: OnceLock<Result<GrammarCompiler, String>>,
}

impl OutputConstraints {
    /// With at most so many bytes of compiled formats.
    pub(crate) fn new(most_bytes: usize) -> OutputConstraints {
        OutputConstraints { most_bytes, compiler: OnceLock::new() }
    }

    /// The initial state of an answer that must have this format.
    pub(crate) fn constraint(&self, format: &OutputFormat, text: &ModelText) -> Result<Constraint, ApiError> {
        let make = || {
            let compiler = GrammarCompiler::new(text.tokenizer(), &text.special().stop);
            // The other half is for those that are no longer remembered, and still wait.
            Ok(compiler.map_err(|error| error.to_string())?.with_cache_bytes(self.most_bytes / 2))
        };
        match self.compiler.get_or_init(make) {
            // What waits with a format of its own keeps it until its turn.
            Ok(compiler) if compiler.held_bytes() > self.most_bytes => Err(ApiError::busy(
                "too many requests with different large output formats at once; try again in 1 s",
                Duration::from_secs(1),
            )),
            Ok(compiler) => Ok(compiler.compile(format)?),
            Err(problem) => Err(ApiError::unsupported("response_format", problem)),
        }
    }

    /// How much work its formats have been.
    pub(crate) fn work(&self) -> FormatWork {
        let compiler = self.compiler.get().and_then(|compiler| compiler.as_ref().ok());
        compiler.map(GrammarCompiler::work).unwrap_or_default()
    }
}
