//! The tokenizer of a model, whatever file it came from.

use std::fmt;
use std::sync::Arc;

use crate::added::{AddedToken, Standing};
use crate::coverage::Coverage;
use crate::cuts::Cuts;
use crate::enclosure::Enclosure;
use crate::guard::{Guard, Prompt, StandIns};
use crate::pieces::Pieces;
use crate::pipeline::Pipeline;
use crate::sentencepiece::SentencePiece;
use crate::{StreamDecoder, TextError, Vocabulary, from_gguf, from_json};

/// Largest `tokenizer.json` that is read.
pub const MAX_TOKENIZER_JSON_BYTES: usize = 128 << 20;
/// Most tokens a vocabulary may have; token ids are below it.
pub const MAX_TOKENS: usize = 1 << 21;
/// Longest text of a single token.
pub const MAX_TOKEN_BYTES: usize = 8 << 10;
/// Longest text that is tokenised in one call.
pub const MAX_TEXT_BYTES: usize = 16 << 20;

/// Whether the names of special tokens inside a text become those tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecialTokens {
    /// `<|end|>` becomes the token of that name: for text whose author may write control tokens.
    Parse,
    /// `<|end|>` is seven ordinary characters: for text from users, who must not be able to forge control tokens.
    Plain,
}

/// Converts text to token ids and back.
///
/// Cloning is cheap: clones share one vocabulary.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
    guard: Arc<Guard>,
    coverage: Option<Coverage>,
    cuts: Cuts,
}

pub(crate) struct Inner {
    pub(crate) encoder: Encoder,
    pub(crate) pieces: Pieces,
    pub(crate) kind: &'static str,
    pub(crate) enclosure: Option<Enclosure>,
}

pub(crate) enum Encoder {
    Pipeline(Box<Pipeline>),
    SentencePiece(Box<SentencePiece>),
}

impl Tokenizer {
    /// Reads a Hugging Face `tokenizer.json`.
    pub fn from_json(json: &[u8]) -> Result<Tokenizer, TextError> {
        Tokenizer::from_inner(from_json::read(json)?)
    }

    /// Builds the tokenizer that a GGUF file describes.
    pub fn from_vocabulary(vocabulary: &Vocabulary) -> Result<Tokenizer, TextError> {
        Tokenizer::from_inner(from_gguf::build(vocabulary)?)
    }

    /// Token ids of a text. Nothing is added to it: a begin-of-text token is the caller's business.
    pub fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>, TextError> {
        self.encode_hidden(text, special, &StandIns::default())
    }

    /// Token ids of a rendered conversation: control tokens come from the template alone, never from messages.
    pub fn encode_prompt(&self, prompt: &Prompt) -> Result<Vec<u32>, TextError> {
        self.encode_hidden(&prompt.hidden, SpecialTokens::Parse, &prompt.stand_ins)
    }

    fn encode_hidden(&self, text: &str, special: SpecialTokens, stand_ins: &StandIns) -> Result<Vec<u32>, TextError> {
        if text.len() > MAX_TEXT_BYTES {
            let (what, size) = ("the text to tokenise", text.len());
            return Err(TextError::TooLarge { what, size, limit: MAX_TEXT_BYTES, unit: "bytes" });
        }
        let mut ids = Vec::new();
        for (index, part) in self.cuts.parts(text).enumerate() {
            ids.extend(match &self.inner.encoder {
                Encoder::Pipeline(pipeline) => pipeline.encode(part, special, stand_ins)?,
                Encoder::SentencePiece(model) if index == 0 => model.encode(part, special, stand_ins)?,
                Encoder::SentencePiece(model) => model.encode_rest(part, special, stand_ins)?,
            });
        }
        Ok(ids)
    }

    /// The most memory that it takes to tokenise a text, known without doing so.
    pub fn working_bytes(&self, text: &str) -> usize {
        self.cuts.working_bytes(text)
    }

    /// The same for a rendered conversation.
    pub fn prompt_working_bytes(&self, prompt: &Prompt) -> usize {
        self.cuts.working_bytes(&prompt.hidden)
    }

    /// A number of tokens that a text surely has, told from its length without tokenising it; zero where that says nothing.
    pub fn least_tokens(&self, text: &str) -> usize {
        self.coverage.map_or(0, |coverage| coverage.least_tokens(text))
    }

    /// Bytes of a token sequence, which may start or end inside a character. Special and unknown ids add nothing.
    pub fn decode(&self, ids: &[u32]) -> Vec<u8> {
        let mut leading = self.inner.pieces.leading();
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        for &id in ids {
            self.inner.pieces.append(id, &mut leading, &mut bytes);
        }
        bytes
    }

    /// A decoder for ids that arrive one by one.
    pub fn stream_decoder(&self) -> StreamDecoder {
        StreamDecoder::new(self)
    }

    /// The bytes of one token, special tokens included; `None` for an id without a token.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.inner.pieces.bytes(id)
    }

    /// The id of the token with exactly this name, as written in the vocabulary (`<|end|>`, `Ġthe`, `▁the`).
    pub fn token_id(&self, name: &str) -> Option<u32> {
        match &self.inner.encoder {
            Encoder::Pipeline(pipeline) => pipeline.token_id(name),
            Encoder::SentencePiece(model) => model.token_id(name),
        }
    }

    /// One more than the largest token id.
    pub fn vocabulary_size(&self) -> usize {
        self.inner.pieces.len()
    }

    /// The algorithm in words, such as `byte-level BPE`.
    pub fn kind(&self) -> &'static str {
        self.inner.kind
    }

    /// The special tokens that its file adds around texts, where it says so.
    pub fn enclosure(&self) -> Option<&Enclosure> {
        self.inner.enclosure.as_ref()
    }

    pub(crate) fn pieces(&self) -> &Pieces {
        &self.inner.pieces
    }

    /// Ids of control tokens and of markup, which text can only become by their names.
    pub(crate) fn reserved_tokens(&self) -> Vec<u32> {
        let named: Vec<&AddedToken> = match &self.inner.encoder {
            Encoder::Pipeline(pipeline) => pipeline.named_tokens().collect(),
            Encoder::SentencePiece(model) => model.named_tokens().collect(),
        };
        let named = named.into_iter().filter(|token| token.standing != Standing::Text).map(|token| token.id);
        let hidden = (0..self.vocabulary_size() as u32).filter(|&id| self.inner.pieces.is_hidden(id));
        let mut reserved: Vec<u32> = named.chain(hidden).collect();
        reserved.sort_unstable();
        reserved.dedup();
        reserved
    }

    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    fn from_inner(inner: Inner) -> Result<Tokenizer, TextError> {
        let guard = match &inner.encoder {
            Encoder::Pipeline(pipeline) => Guard::new(pipeline.named_tokens()),
            Encoder::SentencePiece(model) => Guard::new(model.named_tokens()),
        }?;
        let (coverage, cuts) = (Coverage::of(&inner.encoder, &inner.pieces), Cuts::of(&inner.encoder));
        Ok(Tokenizer { inner: Arc::new(inner), guard: Arc::new(guard), coverage, cuts })
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer").field("kind", &self.kind()).field("tokens", &self.vocabulary_size()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Texts of odd strings and plain words, in an order that only the seed decides.
    fn mixed(strings: &[String], seed: u64) -> String {
        let between = ["", " ", "\n", ". ", "\n\n", " a", "\nb", " c d ", "  ", "\r\n"];
        let (mut state, mut text) = (seed, String::new());
        let mut next = |count: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % count
        };
        for _ in 0..200 {
            text.push_str(&strings[next(strings.len())]);
            text.push_str(between[next(between.len())]);
        }
        text
    }

    #[test]
    fn a_text_in_parts_has_the_tokens_of_the_whole() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tokenizers");
        let read = |path: &Path| std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut strings: Vec<String> = serde_json::from_slice(&read(&folder.join("strings.json"))).unwrap();
        strings.extend(["plain words", "and (more)", "it's 1234", "中文", "<|im_end|>", "</s>"].map(str::to_owned));
        let mut cut = Vec::new();
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path().join("tokenizer.json");
            if !path.exists() {
                continue;
            }
            let tokenizer = Tokenizer::from_json(&read(&path)).unwrap();
            let whole = Tokenizer { cuts: Cuts::NOWHERE, ..tokenizer.clone() };
            let parts = Tokenizer { cuts: tokenizer.cuts.everywhere(), ..tokenizer };
            let mut count = 0;
            for seed in 0..40 {
                let text = mixed(&strings, seed);
                count += parts.cuts.parts(&text).count();
                for special in [SpecialTokens::Plain, SpecialTokens::Parse] {
                    let [one, other] = [&whole, &parts].map(|tokenizer| tokenizer.encode(&text, special).unwrap());
                    assert_eq!(one, other, "{}, seed {seed}, {special:?}", path.display());
                }
            }
            cut.extend((count > 40).then(|| entry.file_name().into_string().unwrap()));
        }
        for name in ["llama3", "qwen2", "gpt2", "gpt-oss", "tekken", "falcon", "bloom"] {
            assert!(cut.iter().any(|cut| cut == name), "{name} is not cut: {cut:?}");
        }
    }
}
