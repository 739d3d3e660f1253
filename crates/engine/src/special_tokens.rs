//! Which tokens begin a text, end it, and end a turn: facts gathered from a model's files.

use cascadia_weights::{FileKind, Metadata, ModelFiles};
use serde_json::Value;

use crate::EngineError;

/// Tokens that end a turn in files that do not say so, by the text they are known under.
const END_OF_TURN: [&str; 8] =
    ["<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "<EOT>"];

/// Token ids with a meaning for the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// Begins a text.
    pub bos: Option<u32>,
    /// Ends a text; its spelling is what chat templates know as `eos_token`.
    pub eos: Option<u32>,
    /// Fills up batches; kept so that a converted file has it too.
    pub pad: Option<u32>,
    /// Stands for text without a token.
    pub unknown: Option<u32>,
    /// Every token that ends an answer, `eos` included.
    pub stop: Vec<u32>,
    /// Whether a plain prompt starts with `bos`.
    pub add_bos: bool,
}

impl SpecialIds {
    /// Reads what the files say; `find` looks up a token by its text.
    pub fn read(files: &ModelFiles, find: &dyn Fn(&str) -> Option<u32>) -> Result<SpecialIds, EngineError> {
        let mut special = match files.kind() {
            FileKind::Gguf => from_metadata(files.metadata())?,
            _ => from_folder(files, find)?,
        };
        for text in END_OF_TURN {
            special.stop.extend(find(text));
        }
        special.stop.sort_unstable();
        special.stop.dedup();
        Ok(special)
    }
}

fn from_metadata(metadata: &Metadata) -> Result<SpecialIds, EngineError> {
    let id = |name: &str| metadata.value::<u32>(&format!("tokenizer.ggml.{name}_token_id"));
    let (bos, eos) = (id("bos")?, id("eos")?);
    let stop = [eos, id("eot")?, id("eom")?].into_iter().flatten().collect();
    let add_bos = metadata.value::<bool>("tokenizer.ggml.add_bos_token")?;
    Ok(SpecialIds {
        bos,
        eos,
        pad: id("padding")?,
        unknown: id("unknown")?,
        stop,
        // Files that do not say so expect it whenever they have a token made for it.
        add_bos: add_bos.unwrap_or(bos.is_some() && bos != eos),
    })
}

fn from_folder(files: &ModelFiles, find: &dyn Fn(&str) -> Option<u32>) -> Result<SpecialIds, EngineError> {
    let read = |name: &str| files.json(name).map(Option::unwrap_or_default);
    let (config, generation) = (read("config.json")?, read("generation_config.json")?);
    let tokenizer = read("tokenizer_config.json")?;
    let id = |name: &str| {
        let by_text = token_text(&tokenizer[format!("{name}_token")]).and_then(find);
        let key = format!("{name}_token_id");
        by_text.or_else(|| ids(&config[&key]).first().copied()).or_else(|| ids(&generation[&key]).first().copied())
    };
    let (bos, eos) = (id("bos"), id("eos"));
    let mut stop: Vec<u32> = eos.into_iter().collect();
    stop.extend(ids(&config["eos_token_id"]));
    stop.extend(ids(&generation["eos_token_id"]));
    let add_bos = match tokenizer["add_bos_token"].as_bool() {
        Some(said) => said,
        None => match files.json("tokenizer.json")? {
            Some(json) => bos.is_some() && first_of_template(&json["post_processor"]).and_then(find) == bos,
            None => bos.is_some(),
        },
    };
    Ok(SpecialIds { bos, eos, pad: id("pad"), unknown: id("unk"), stop, add_bos })
}

/// One id or a list of ids.
fn ids(value: &Value) -> Vec<u32> {
    let one = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Value::Array(list) => list.iter().filter_map(one).collect(),
        value => one(value).into_iter().collect(),
    }
}

/// A token named by its text or by an object with its `content`.
pub(crate) fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value["content"].as_str())
}

/// The special token that a `tokenizer.json` puts before every text, if it does.
fn first_of_template(processor: &Value) -> Option<&str> {
    let nested = processor["processors"].as_array().into_iter().flatten();
    nested.chain([processor]).find_map(|step| step["single"][0]["SpecialToken"]["id"].as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ids_come_alone_or_in_lists() {
        assert_eq!(ids(&json!(7)), [7]);
        assert_eq!(ids(&json!([1, 5])), [1, 5]);
        assert!(ids(&json!(null)).is_empty());
        assert!(ids(&json!([-1, "x", 5_000_000_000u64])).is_empty());
    }

    #[test]
    fn the_first_token_of_a_post_processor_is_found() {
        let template = json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}]});
        assert_eq!(first_of_template(&template), Some("<s>"));
        assert_eq!(first_of_template(&json!({"processors": [{"type": "ByteLevel"}, template]})), Some("<s>"));
        assert_eq!(first_of_template(&json!(null)), None);
    }
}
