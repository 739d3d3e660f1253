//! How texts become single rows: the files that sentence-transformers keeps beside a model, or GGUF's keys.

use cascadia_weights::FileKind;
use cascadia_weights::hf_folder::is_plain_name;
use serde_json::Value;

use super::Source;
use super::keys::*;
use crate::ModelError;
use crate::settings::Key;
use crate::spec::{PooledRows, PoolingSpec};

/// The files of sentence-transformers: the parts of a model in order, the settings of one, and those of the first.
const MODULES: &str = "modules.json";
const MODULE: &str = "config.json";
const TRANSFORMER: &str = "sentence_bert_config.json";
const TOKENIZER: &str = "tokenizer_config.json";

const POOLING: Key = Key { json: &["pooling_mode"], gguf: &["pooling_type"] };

/// What the files say; the mean of all hidden states where they say nothing.
pub(super) fn pooling(source: &Source<'_>) -> Result<PoolingSpec, ModelError> {
    let mean = PoolingSpec { rows: PooledRows::Mean, normalised: true, most_tokens: None, classifier: None };
    match source.settings.files.kind() {
        FileKind::Gguf => Ok(PoolingSpec { rows: by_metadata(source)?, ..mean }),
        FileKind::HuggingFace => by_modules(source, mean),
    }
}

fn by_metadata(source: &Source<'_>) -> Result<PooledRows, ModelError> {
    let settings = &source.settings;
    match settings.files.metadata().value::<u32>(&settings.name(POOLING))? {
        None | Some(0 | 1) => Ok(PooledRows::Mean),
        Some(2 | 4) => Ok(PooledRows::First),
        Some(3) => Ok(PooledRows::Last),
        Some(other) => Err(settings.error(POOLING, format!("is {other}; this version knows 0 to 4"))),
    }
}

fn by_modules(source: &Source<'_>, mean: PoolingSpec) -> Result<PoolingSpec, ModelError> {
    let files = source.settings.files;
    let refuse = |problem: String| ModelError::Setting { path: files.path().to_owned(), key: MODULES.into(), problem };
    let Some(modules) = files.json(MODULES)? else { return Ok(mean) };
    let mut pooling = PoolingSpec { normalised: false, ..mean };
    for module in modules.as_array().into_iter().flatten() {
        let kind = module["type"].as_str().unwrap_or_default();
        match kind.rsplit('.').next().unwrap_or_default() {
            "Transformer" => pooling.most_tokens = most_tokens(source)?,
            "Pooling" => {
                let folder = module["path"].as_str().filter(|folder| is_plain_name(folder));
                let folder = folder.ok_or_else(|| refuse("names no folder for its pooling".into()))?;
                let config = files.json_in(folder, MODULE)?;
                let config = config.ok_or_else(|| refuse(format!("needs {folder}/{MODULE}, which is not there")))?;
                pooling.rows = pooled_rows(&config).map_err(refuse)?;
            }
            "Normalize" => pooling.normalised = true,
            other => {
                let other: String = other.chars().take(80).collect();
                let known = "this version computes Transformer, Pooling and Normalize";
                return Err(refuse(format!("has a module `{other}`; {known}")));
            }
        }
    }
    Ok(pooling)
}

/// Tokens that texts are cut to. Tokenizers that have no limit of their own name one that no text reaches.
fn most_tokens(source: &Source<'_>) -> Result<Option<u32>, ModelError> {
    let files = source.settings.files;
    let own = files.json(TRANSFORMER)?.unwrap_or_default()["max_seq_length"].as_u64();
    let most = match own {
        Some(own) => Some(own),
        None => files.json(TOKENIZER)?.unwrap_or_default()["model_max_length"].as_u64(),
    };
    Ok(most.filter(|most| (1..=u64::from(MOST_CONTEXT)).contains(most)).map(|most| most as u32))
}

/// The one way of pooling that is switched on, in the newer or the older form of the settings.
fn pooled_rows(config: &Value) -> Result<PooledRows, String> {
    let mut modes: Vec<&str> = match &config["pooling_mode"] {
        Value::String(mode) => vec![mode],
        Value::Array(modes) => modes.iter().filter_map(Value::as_str).collect(),
        _ => {
            let fields = config.as_object().into_iter().flatten();
            let on = fields.filter(|(_, value)| **value == true);
            on.filter_map(|(name, _)| name.strip_prefix("pooling_mode_")).collect()
        }
    };
    if modes.is_empty() {
        modes.push("mean");
    }
    match modes.as_slice() {
        ["mean" | "mean_tokens"] => Ok(PooledRows::Mean),
        ["cls" | "cls_token"] => Ok(PooledRows::First),
        ["lasttoken"] => Ok(PooledRows::Last),
        other => {
            let other: String = other.join(", ").chars().take(80).collect();
            Err(format!("pools by {other}; this version does by one of mean, cls and lasttoken"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_way_of_pooling_is_found_in_both_forms() {
        let old = json!({"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true, "include_prompt": true});
        assert_eq!(pooled_rows(&old), Ok(PooledRows::Mean));
        assert_eq!(pooled_rows(&json!({"pooling_mode": "cls"})), Ok(PooledRows::First));
        assert_eq!(pooled_rows(&json!({"pooling_mode_lasttoken": true})), Ok(PooledRows::Last));
        assert_eq!(pooled_rows(&json!({})), Ok(PooledRows::Mean));
        let both = json!({"pooling_mode_max_tokens": true, "pooling_mode_mean_tokens": true});
        assert!(pooled_rows(&both).unwrap_err().contains("max_tokens, mean_tokens"));
    }
}
