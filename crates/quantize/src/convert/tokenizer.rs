//! A Hugging Face tokenizer as the `tokenizer.ggml.*` metadata that GGUF readers expect.

use std::collections::HashMap;

use cascadia_engine::{SpecialIds, chat_template};
use cascadia_text::{Tokenizer, Vocabulary};
use cascadia_weights::{MetadataArray, MetadataValue, ModelFiles, StringArray};
use serde_json::Value;

use super::Fields;
use super::pre_tokenizer::{agrees, find_name};
use crate::QuantizeError;

/// The numbers of `tokenizer.ggml.token_type`.
mod token_type {
    pub(super) const NORMAL: i32 = 1;
    pub(super) const UNKNOWN: i32 = 2;
    pub(super) const CONTROL: i32 = 3;
    pub(super) const USER_DEFINED: i32 = 4;
    pub(super) const UNUSED: i32 = 5;
    pub(super) const BYTE: i32 = 6;
}

/// Tokens that no merge produces rank below every one that a merge does.
const NEVER_MERGED: f32 = -1e9;

/// The metadata of the folder's tokenizer, padded to `vocabulary` tokens; nothing when the folder has no tokenizer.
pub(crate) fn tokenizer_fields(files: &ModelFiles, vocabulary: usize) -> Result<Fields, QuantizeError> {
    let Some(json) = files.json("tokenizer.json")? else { return Ok(Vec::new()) };
    let refuse = |what: &str, value: String, advice: &'static str| QuantizeError::Convert {
        path: files.path().join("tokenizer.json"),
        what: what.to_owned(),
        value,
        advice,
    };
    let model = &json["model"];
    if model["type"].as_str().unwrap_or("BPE") != "BPE" {
        return Err(refuse("model.type", model["type"].to_string(), "only BPE tokenizers can be converted so far"));
    }
    let table = TokenTable::read(&json, vocabulary).map_err(|id| {
        let value = format!("{id} for a model of {vocabulary} tokens");
        refuse("a token id", value, "use the tokenizer.json made for this model")
    })?;
    let merges = merges(model);
    let mut fields = if is_byte_level(&json) {
        let mut vocabulary = table.vocabulary(&merges);
        let pre = find_name(&json)?;
        vocabulary.pre = pre.map(str::to_owned);
        let original = Tokenizer::from_json(json.to_string().as_bytes())?;
        let Some(pre) = pre.filter(|_| agrees(&original, &vocabulary).unwrap_or(false)) else {
            let value = json["pre_tokenizer"].to_string();
            return Err(refuse("pre_tokenizer", value, "no GGUF reader knows this way of cutting text"));
        };
        let mut fields: Fields = vec![field("model", "gpt2"), field("pre", pre)];
        fields.extend(table.fields());
        fields.push(field("merges", vocabulary.merges.iter().collect::<StringArray>()));
        fields
    } else {
        let mut fields: Fields = vec![field("model", "llama")];
        fields.extend(table.fields());
        fields.push(field("scores", MetadataArray::from(table.scores(&merges))));
        fields.push(field("add_space_prefix", has_space_prefix(&json)));
        fields
    };
    let special = SpecialIds::read(files, &|text| table.ids.get(text).copied())?;
    fields.extend(special_fields(&special));
    if let Some(source) = chat_template(files)? {
        fields.push(("tokenizer.chat_template".into(), source.as_str().into()));
    }
    Ok(fields)
}

fn field(name: &str, value: impl Into<MetadataValue>) -> (String, MetadataValue) {
    (format!("tokenizer.ggml.{name}"), value.into())
}

/// The ids with a meaning. GGUF has one EOS but more than one way to end a turn, so the others go where readers look too.
fn special_fields(special: &SpecialIds) -> Fields {
    let mut others = special.stop.iter().copied().filter(|id| Some(*id) != special.eos);
    let ids = [
        ("bos_token_id", special.bos),
        ("eos_token_id", special.eos),
        ("eot_token_id", others.next()),
        ("eom_token_id", others.next()),
        ("unknown_token_id", special.unknown),
        ("padding_token_id", special.pad),
    ];
    let mut fields: Fields = ids.into_iter().filter_map(|(name, id)| Some(field(name, id?))).collect();
    fields.push(field("add_bos_token", special.add_bos));
    fields
}

/// Every token by id.
struct TokenTable {
    texts: Vec<String>,
    types: Vec<i32>,
    ids: HashMap<String, u32>,
}

impl TokenTable {
    /// The error is the first id beyond the model's vocabulary.
    fn read(json: &Value, vocabulary: usize) -> Result<TokenTable, u64> {
        let mut texts: Vec<String> = (0..vocabulary).map(|id| format!("[PAD{id}]")).collect();
        let mut types = vec![token_type::UNUSED; vocabulary];
        let unknown = json["model"]["unk_token"].as_str();
        let byte_level = is_byte_level(json);
        let kind = |text: &str| match text {
            _ if Some(text) == unknown => token_type::UNKNOWN,
            _ if !byte_level && is_byte(text) => token_type::BYTE,
            _ => token_type::NORMAL,
        };
        let ordinary = json["model"]["vocab"].as_object().into_iter().flatten();
        let ordinary = ordinary.map(|(text, id)| (text.as_str(), id, kind(text)));
        let added = json["added_tokens"].as_array().into_iter().flatten().map(|token| {
            let text = token["content"].as_str().unwrap_or_default();
            let special = token["special"] == true;
            let kind = match kind(text) {
                token_type::UNKNOWN => token_type::UNKNOWN,
                _ if special => token_type::CONTROL,
                _ => token_type::USER_DEFINED,
            };
            (text, &token["id"], kind)
        });
        let mut ids = HashMap::new();
        for (text, id, kind) in ordinary.chain(added) {
            let id = id.as_u64().unwrap_or(u64::MAX);
            let index = usize::try_from(id).ok().filter(|index| *index < vocabulary).ok_or(id)?;
            texts[index] = text.to_owned();
            types[index] = kind;
            ids.insert(text.to_owned(), index as u32);
        }
        Ok(TokenTable { texts, types, ids })
    }

    fn fields(&self) -> [(String, MetadataValue); 2] {
        let tokens: StringArray = self.texts.iter().collect();
        [field("tokens", tokens), field("token_type", MetadataArray::from(self.types.clone()))]
    }

    /// The same tokens as a byte-level vocabulary, to try them out.
    fn vocabulary(&self, merges: &[(&str, &str)]) -> Vocabulary {
        Vocabulary {
            model: "gpt2".into(),
            tokens: self.texts.iter().map(|text| text.clone().into_bytes()).collect(),
            types: self.types.clone(),
            merges: merges.iter().map(|(left, right)| format!("{left} {right}")).collect(),
            ..Vocabulary::default()
        }
    }

    /// Scores that rank tokens as the merges do: an earlier merge scores higher.
    fn scores(&self, merges: &[(&str, &str)]) -> Vec<f32> {
        let mut scores = vec![NEVER_MERGED; self.texts.len()];
        for (rank, (left, right)) in merges.iter().enumerate().rev() {
            if let Some(&id) = self.ids.get(&format!("{left}{right}")) {
                scores[id as usize] = -(rank as f32);
            }
        }
        scores
    }
}

/// Merges in order of priority, from either way of writing them.
fn merges(model: &Value) -> Vec<(&str, &str)> {
    let list = model["merges"].as_array().into_iter().flatten();
    list.filter_map(|merge| match merge {
        Value::String(pair) => pair.split_once(' '),
        pair => Some((pair[0].as_str()?, pair[1].as_str()?)),
    })
    .collect()
}

/// Steps of a part of the tokenizer that may be a sequence or a single step.
fn steps<'a>(part: &'a Value, list: &str) -> Vec<&'a Value> {
    match part[list].as_array() {
        Some(nested) => nested.iter().collect(),
        None => vec![part],
    }
}

fn is_byte_level(json: &Value) -> bool {
    steps(&json["pre_tokenizer"], "pretokenizers").iter().any(|step| step["type"] == "ByteLevel")
}

fn has_space_prefix(json: &Value) -> bool {
    let prepended = steps(&json["normalizer"], "normalizers").iter().any(|step| step["type"] == "Prepend");
    let metaspace = steps(&json["pre_tokenizer"], "pretokenizers").iter().any(|step| {
        let scheme = step["prepend_scheme"].as_str().unwrap_or("always");
        step["type"] == "Metaspace" && scheme != "never" && step["add_prefix_space"] != false
    });
    prepended || metaspace
}

fn is_byte(text: &str) -> bool {
    let digits = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    digits.is_some_and(|digits| digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tokens_are_ordered_typed_and_padded() {
        let json = json!({
            "pre_tokenizer": {"type": "ByteLevel"},
            "added_tokens": [{"id": 2, "content": "<|end|>", "special": true}, {"id": 3, "content": "<tool>"}],
            "model": {"vocab": {"b": 1, "a": 0, "<|end|>": 2}},
        });
        let table = TokenTable::read(&json, 5).unwrap();
        assert_eq!(table.texts, ["a", "b", "<|end|>", "<tool>", "[PAD4]"]);
        assert_eq!(table.types, [1, 1, 3, 4, 5]);
        assert_eq!(TokenTable::read(&json, 3).err(), Some(3));
    }

    #[test]
    fn merges_are_read_in_both_spellings_and_become_scores() {
        let model = json!({"merges": ["a b", ["ab", "c d"], 5, ["x"]], "vocab": {"a": 0, "b": 1, "ab": 2, "abc d": 3}});
        let merges = merges(&model);
        assert_eq!(merges, [("a", "b"), ("ab", "c d")]);
        let table = TokenTable::read(&json!({"model": model}), 4).unwrap();
        assert_eq!(table.scores(&merges), [NEVER_MERGED, NEVER_MERGED, 0.0, -1.0]);
    }
}
