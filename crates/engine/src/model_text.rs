//! The text side of a model: tokenizer, special tokens and chat template, read from its files.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use cascadia_text::{
    ChatTemplate, Clock, Conversation, EnclosedPair, Prompt, SpecialTokens, TemplateLimits, Tokenizer,
};
use cascadia_weights::{FileKind, ModelFiles};
use serde_json::{Value, json};

use crate::embedding_text::EmbeddingText;
use crate::special_tokens::{SpecialIds, token_text};
use crate::vocabulary::vocabulary;
use crate::{EngineError, InfillTokens, SuggestedSampling};

/// Everything needed to turn text into tokens of this model and back.
pub struct ModelText {
    path: PathBuf,
    tokenizer: Tokenizer,
    special: SpecialIds,
    bos_text: Option<String>,
    eos_text: Option<String>,
    template: Option<String>,
    suggested: SuggestedSampling,
    infill: Option<InfillTokens>,
    embedding: EmbeddingText,
}

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: &'static str,
    /// What was said.
    pub content: String,
}

impl ModelText {
    /// Reads tokenizer and template; an error when the files have no tokenizer.
    pub fn read(files: &ModelFiles) -> Result<ModelText, EngineError> {
        let tokenizer = tokenizer(files)?;
        let special = SpecialIds::read(files, &|text| tokenizer.token_id(text))?;
        let config = files.json("tokenizer_config.json")?.unwrap_or_default();
        let text_of = |key: &str, id: Option<u32>| match token_text(&config[key]) {
            Some(text) => Some(text.to_owned()),
            None => id.and_then(|id| token_name(&tokenizer, id)),
        };
        Ok(ModelText {
            path: files.path().to_path_buf(),
            bos_text: text_of("bos_token", special.bos),
            eos_text: text_of("eos_token", special.eos),
            template: chat_template(files)?,
            suggested: SuggestedSampling::read(files)?,
            infill: InfillTokens::read(files, &|text| tokenizer.token_id(text)),
            embedding: EmbeddingText::read(files, &tokenizer)?,
            special,
            tokenizer,
        })
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The special tokens.
    pub fn special(&self) -> &SpecialIds {
        &self.special
    }

    /// How its authors want tokens to be chosen.
    pub fn suggested(&self) -> &SuggestedSampling {
        &self.suggested
    }

    /// The tokens with which it fills in the middle of a text, if it can.
    pub fn infill(&self) -> Option<&InfillTokens> {
        self.infill.as_ref()
    }

    /// The source of the chat template, when the model has one.
    pub fn template(&self) -> Option<&str> {
        self.template.as_deref()
    }

    /// Tokens of a prompt as it stands: special tokens in it are recognised, and BOS comes first where the model wants it.
    pub fn plain_prompt(&self, text: &str) -> Result<Vec<u32>, EngineError> {
        let mut tokens = Vec::new();
        let encoded = self.tokenizer.encode(text, SpecialTokens::Parse)?;
        tokens.extend(self.special.bos.filter(|bos| self.special.add_bos && encoded.first() != Some(bos)));
        tokens.extend(encoded);
        Ok(tokens)
    }

    /// Tokens of a text with a gap, ready for what fills it; `None` if this model does not fill in the middle. Nothing in the
    /// text becomes a control token.
    pub fn infill_prompt(&self, before: &str, after: &str) -> Result<Option<Vec<u32>>, EngineError> {
        let Some(InfillTokens { prefix, suffix, middle, .. }) = self.infill else { return Ok(None) };
        let mut tokens: Vec<u32> = self.special.bos.filter(|_| self.special.add_bos).into_iter().collect();
        for (mark, text) in [(prefix, before), (suffix, after)] {
            tokens.push(mark);
            tokens.extend(self.tokenizer.encode(text, SpecialTokens::Plain)?);
        }
        tokens.push(middle);
        Ok(Some(tokens))
    }

    /// Tokens of a text whose embedding is wanted, with those that the model wants around it. The model's own prompt of
    /// this name comes before it. Where it has more than `most` tokens it is cut.
    pub fn embedding_prompt(
        &self,
        text: &str,
        prompt: Option<&str>,
        most: Option<usize>,
    ) -> Result<Vec<u32>, EngineError> {
        let text = self.embedding.prompted(text, prompt)?;
        if let Some(tokens) = self.embedding.tokens(&self.tokenizer, &text, most)? {
            return Ok(tokens);
        }
        let mut tokens = self.plain_prompt(&text)?;
        tokens.truncate(most.unwrap_or(usize::MAX));
        Ok(tokens)
    }

    /// Tokens of two texts as one, of which the model says how well they fit. Where they have more than `most` tokens the
    /// longer one is cut.
    pub fn pair_prompt(&self, texts: [&str; 2], most: Option<usize>) -> Result<EnclosedPair, EngineError> {
        self.embedding.pair(&self.tokenizer, texts, most)?.ok_or_else(|| EngineError::Missing {
            path: self.path.clone(),
            what: "way to join two texts in its tokenizer.json",
            advice: "use a model that was trained to rank",
        })
    }

    /// Why an encoder answers no prompt.
    pub fn makes_no_text(&self) -> EngineError {
        EngineError::Missing {
            path: self.path.clone(),
            what: "output matrix",
            advice: "it is an encoder, which makes embeddings and no text: use `cascadia embed` or /v1/embeddings",
        }
    }

    /// Tokens of a conversation rendered by the model's template, ready for the assistant's next turn. Nothing in the
    /// messages becomes a control token.
    pub fn chat_prompt(&self, messages: &[Message]) -> Result<Vec<u32>, EngineError> {
        let list = messages.iter().map(|message| json!({"role": message.role, "content": message.content}));
        let messages = Value::Array(list.collect());
        let prompt = self.render(&self.conversation(&messages))?;
        Ok(self.tokenizer.encode_prompt(&prompt)?)
    }

    /// Messages with what this model adds to every conversation, as of now.
    pub fn conversation<'a>(&'a self, messages: &'a Value) -> Conversation<'a> {
        Conversation {
            messages,
            tools: None,
            documents: None,
            add_generation_prompt: true,
            prefill: None,
            bos_token: self.bos_text.as_deref(),
            eos_token: self.eos_text.as_deref(),
            extra: None,
            clock: now(),
        }
    }

    /// The conversation as the model's template writes it.
    pub fn render(&self, conversation: &Conversation<'_>) -> Result<Prompt, EngineError> {
        let Some(source) = &self.template else {
            let advice = "give a prompt with -p, which is then used as it stands, or use a chat model";
            return Err(EngineError::Missing { path: self.path.clone(), what: "chat template", advice });
        };
        let template = ChatTemplate::new(source, TemplateLimits::default())?;
        Ok(template.render_prompt(conversation, &self.tokenizer)?)
    }

    /// The same with another chat template.
    pub fn with_template(self, source: String) -> ModelText {
        ModelText { template: Some(source), ..self }
    }
}

fn tokenizer(files: &ModelFiles) -> Result<Tokenizer, EngineError> {
    if files.kind() == FileKind::Gguf {
        return Ok(Tokenizer::from_vocabulary(&vocabulary(files)?)?);
    }
    match files.text("tokenizer.json")? {
        Some(json) => Ok(Tokenizer::from_json(json.as_bytes())?),
        None => Err(EngineError::Missing {
            path: files.path().to_path_buf(),
            what: "tokenizer.json",
            advice: "put the model's tokenizer.json beside its weights",
        }),
    }
}

/// The time in UTC; what a template prints of it is the date.
fn now() -> Clock {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Clock { unix_seconds: passed.as_secs() as i64, utc_offset_seconds: 0 }
}

fn token_name(tokenizer: &Tokenizer, id: u32) -> Option<String> {
    tokenizer.token_bytes(id).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// The template, wherever the model's authors put it.
pub fn chat_template(files: &ModelFiles) -> Result<Option<String>, EngineError> {
    if files.kind() == FileKind::Gguf {
        return Ok(files.metadata().value::<&str>("tokenizer.chat_template")?.map(str::to_owned));
    }
    if let Some(source) = files.text("chat_template.jinja")? {
        return Ok(Some(source));
    }
    let config = files.json("tokenizer_config.json")?.unwrap_or_default();
    Ok(match &config["chat_template"] {
        Value::String(source) => Some(source.clone()),
        Value::Array(named) => {
            let default = named.iter().find(|entry| entry["name"] == "default").or(named.first());
            default.and_then(|entry| entry["template"].as_str()).map(str::to_owned)
        }
        _ => None,
    })
}
