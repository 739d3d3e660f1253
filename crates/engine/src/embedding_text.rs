//! Texts as a model reads them whose embeddings it makes: prompts before them, special tokens around them, a length.

use std::collections::BTreeMap;

use cascadia_text::{EnclosedPair, Enclosure, SpecialTokens, Tokenizer};
use cascadia_weights::ModelFiles;
use serde_json::Value;

use crate::EngineError;

/// What a model's authors put before and around texts.
#[derive(Debug, Default)]
pub(crate) struct EmbeddingText {
    enclosure: Option<Enclosure>,
    prompts: BTreeMap<String, String>,
    default_prompt: Option<String>,
    lowercase: bool,
}

impl EmbeddingText {
    /// Reads the files of sentence-transformers beside the weights, and what the tokenizer's file says.
    pub(crate) fn read(files: &ModelFiles, tokenizer: &Tokenizer) -> Result<EmbeddingText, EngineError> {
        let config = files.json("config_sentence_transformers.json")?.unwrap_or_default();
        let transformer = files.json("sentence_bert_config.json")?.unwrap_or_default();
        let prompts = config["prompts"].as_object().into_iter().flatten();
        let text = |(name, text): (&String, &Value)| Some((name.clone(), text.as_str()?.to_owned()));
        Ok(EmbeddingText {
            enclosure: tokenizer.enclosure().cloned(),
            prompts: prompts.filter_map(text).collect(),
            default_prompt: config["default_prompt_name"].as_str().map(str::to_owned),
            lowercase: transformer["do_lower_case"] == true,
        })
    }

    /// A text after the prompt of this name; without a name, after the model's usual one, if any.
    pub(crate) fn prompted(&self, text: &str, name: Option<&str>) -> Result<String, EngineError> {
        let prompt = match name.or(self.default_prompt.as_deref()) {
            None => "",
            Some(name) => self.prompts.get(name).ok_or_else(|| EngineError::Setting {
                name: "the prompt's name",
                value: format!("`{}`", name.chars().take(80).collect::<String>()),
                allowed: "one of those in the model's config_sentence_transformers.json, or left out",
            })?,
        };
        let whole = format!("{prompt}{text}");
        Ok(if self.lowercase { whole.to_lowercase() } else { whole })
    }

    /// Tokens of a text with those around it; of a text that has more than `most`, the first.
    pub(crate) fn tokens(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        most: Option<usize>,
    ) -> Result<Option<Vec<u32>>, EngineError> {
        let Some(enclosure) = &self.enclosure else { return Ok(None) };
        let mut tokens = tokenizer.encode(text, SpecialTokens::Parse)?;
        tokens.truncate(most.map_or(usize::MAX, |most| most.saturating_sub(enclosure.added())));
        Ok(Some(enclosure.around(&tokens)))
    }

    /// Tokens of two texts with those around and between them; where there are more than `most`, the longer text loses
    /// some of its last, and in the end both.
    pub(crate) fn pair(
        &self,
        tokenizer: &Tokenizer,
        texts: [&str; 2],
        most: Option<usize>,
    ) -> Result<Option<EnclosedPair>, EngineError> {
        let Some((enclosure, added)) = self.enclosure.as_ref().and_then(|found| Some((found, found.added_to_two()?)))
        else {
            return Ok(None);
        };
        let [mut first, mut second] = [Vec::new(), Vec::new()];
        for (text, tokens) in texts.into_iter().zip([&mut first, &mut second]) {
            let text = if self.lowercase { text.to_lowercase() } else { text.to_owned() };
            *tokens = tokenizer.encode(&text, SpecialTokens::Parse)?;
        }
        let room = most.map_or(usize::MAX, |most| most.saturating_sub(added));
        while first.len() + second.len() > room {
            if first.len() > second.len() { &mut first } else { &mut second }.pop();
        }
        Ok(enclosure.around_two(&first, &second))
    }
}
