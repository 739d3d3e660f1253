//! A text as a model's tokens, split into windows.

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

/// Turns texts into tokens of a model.
pub(crate) struct TextReader {
    text: ModelText,
    /// The token that comes before every scored text.
    pub(crate) bos: u32,
}

impl ScoredText {
    /// Reads a UTF-8 file with a model's tokenizer.
    pub(crate) fn read(path: &Path, files: &ModelFiles, limits: WindowLimits) -> anyhow::Result<ScoredText> {
        let reader = TextReader::new(files)?;
        let cut = TextWindows { windows: limits.windows as usize, window: limits.window as usize, bos: reader.bos };
        Ok(ScoredText { tokens: reader.tokens(path)?, cut })
    }
}

impl TextReader {
    /// With the tokenizer of a model.
    pub(crate) fn new(files: &ModelFiles) -> anyhow::Result<TextReader> {
        let text = ModelText::read(files)?;
        let special = text.special();
        let bos = special.bos.or(special.eos).ok_or(EngineError::Missing {
            path: files.path().to_path_buf(),
            what: "BOS token",
            advice: "the protocol puts one before each window; add bos_token_id to its configuration",
        })?;
        Ok(TextReader { text, bos })
    }

    /// The tokens of a UTF-8 file.
    pub(crate) fn tokens(&self, path: &Path) -> anyhow::Result<Vec<u32>> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the text {}; give a UTF-8 file", path.display()))?;
        Ok(self.text.tokenizer().encode(&text, SpecialTokens::Plain)?)
    }
}
