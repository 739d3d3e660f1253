//! A text split into windows of a model's tokens.

use std::path::Path;

use anyhow::Context;
use cascadia_engine::{EngineError, ModelText};
use cascadia_eval::TextWindows;
use cascadia_text::SpecialTokens;
use cascadia_weights::ModelFiles;

/// Tokens of a text and how they are split.
pub(crate) struct ScoredText {
    pub(crate) tokens: Vec<u32>,
    pub(crate) cut: TextWindows,
}

/// How many windows, and how long.
#[derive(Clone, Copy)]
pub(crate) struct WindowLimits {
    pub(crate) windows: u32,
    pub(crate) window: u32,
}

impl ScoredText {
    /// Reads a UTF-8 file with a model's tokenizer.
    pub(crate) fn read(path: &Path, files: &ModelFiles, limits: WindowLimits) -> anyhow::Result<ScoredText> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the text {}; give a UTF-8 file", path.display()))?;
        let model_text = ModelText::read(files)?;
        let special = model_text.special();
        let bos = special.bos.or(special.eos).ok_or(EngineError::Missing {
            path: files.path().to_path_buf(),
            what: "BOS token",
            advice: "the protocol puts one before each window; add bos_token_id to its configuration",
        })?;
        let tokens = model_text.tokenizer().encode(&text, SpecialTokens::Plain)?;
        let cut = TextWindows { windows: limits.windows as usize, window: limits.window as usize, bos };
        Ok(ScoredText { tokens, cut })
    }
}
