//! The tokenizer's part of a GGUF file's metadata as the plain data that the text crate checks and uses.

use cascadia_text::Vocabulary;
use cascadia_weights::{ModelFiles, StringArray};

use crate::EngineError;

/// Reads `tokenizer.ggml.*`; an error when the file has no vocabulary or one of its parts has another type.
pub(crate) fn vocabulary(files: &ModelFiles) -> Result<Vocabulary, EngineError> {
    let metadata = files.metadata();
    let Some(model) = metadata.value::<&str>("tokenizer.ggml.model")? else {
        return Err(EngineError::Missing {
            path: files.path().to_path_buf(),
            what: "tokenizer (metadata key `tokenizer.ggml.model`)",
            advice: "convert the model again together with its tokenizer",
        });
    };
    let tokens = metadata.require::<&StringArray>("tokenizer.ggml.tokens")?;
    let merges: Vec<&str> = metadata.value("tokenizer.ggml.merges")?.unwrap_or_default();
    Ok(Vocabulary {
        model: model.to_owned(),
        pre: metadata.value::<&str>("tokenizer.ggml.pre")?.map(str::to_owned),
        tokens: tokens.iter().map(<[u8]>::to_vec).collect(),
        scores: metadata.value("tokenizer.ggml.scores")?.unwrap_or_default(),
        types: metadata.value("tokenizer.ggml.token_type")?.unwrap_or_default(),
        merges: merges.into_iter().map(str::to_owned).collect(),
        add_space_prefix: metadata.value("tokenizer.ggml.add_space_prefix")?.unwrap_or(true),
        strip_right: metadata.value::<&str>("general.architecture")? == Some("phi3"),
        unknown_token: metadata.value("tokenizer.ggml.unknown_token_id")?,
    })
}
