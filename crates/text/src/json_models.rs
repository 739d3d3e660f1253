//! The part of a `tokenizer.json` that turns words into tokens, for each of its kinds.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::{ModelWrapper, PreTokenizerWrapper};

use crate::TextError;
use crate::from_json::malformed;
use crate::pre_tokenizer::Step;

/// Longest word that is looked up piece by piece; the time that takes grows with its square.
const MOST_WORD_CHARACTERS: usize = 1000;

/// The field `model` of one kind.
pub(crate) trait ModelEntry: DeserializeOwned {
    /// The algorithm in words.
    fn kind(&self, byte_level: bool) -> &'static str;

    /// Names of tokens with their ids.
    fn tokens(&self) -> impl Iterator<Item = (&str, u32)>;

    /// The model. Reserved names do not come out of text that was cut by these steps: they are tokens only where they are
    /// matched by name.
    fn build(self, reserved: &HashSet<&str>, steps: &[Step]) -> Result<ModelWrapper, TextError>;
}

/// Byte-pair encoding.
#[derive(Deserialize)]
pub(crate) struct BpeEntry {
    vocab: HashMap<String, u32>,
    merges: Vec<MergeEntry>,
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum MergeEntry {
    Pair(String, String),
    Line(String),
}

/// BERT's pieces: the longest beginning of a word, then the longest of what is left.
#[derive(Deserialize)]
pub(crate) struct WordPieceEntry {
    vocab: HashMap<String, u32>,
    unk_token: String,
    continuing_subword_prefix: String,
    max_input_chars_per_word: usize,
}

/// SentencePiece's other algorithm: of all ways to cut a text, the most likely one.
#[derive(Deserialize)]
pub(crate) struct UnigramEntry {
    vocab: Vec<(String, f64)>,
    unk_id: Option<usize>,
    #[serde(default)]
    byte_fallback: bool,
}

impl ModelEntry for BpeEntry {
    fn kind(&self, byte_level: bool) -> &'static str {
        match (byte_level, self.byte_fallback) {
            (true, _) => "byte-level BPE",
            (false, true) => "SentencePiece BPE",
            (false, false) => "BPE",
        }
    }

    fn tokens(&self) -> impl Iterator<Item = (&str, u32)> {
        self.vocab.iter().map(|(name, id)| (name.as_str(), *id))
    }

    fn build(self, reserved: &HashSet<&str>, _steps: &[Step]) -> Result<ModelWrapper, TextError> {
        for (field, value) in [
            ("model.continuing_subword_prefix", self.continuing_subword_prefix),
            ("model.end_of_word_suffix", self.end_of_word_suffix),
        ] {
            if let Some(found) = value.filter(|value| !value.is_empty()) {
                return Err(TextError::Unsupported { field, found, supported: "none" });
            }
        }
        if let Some(unknown) = self.unk_token.as_ref().filter(|name| !self.vocab.contains_key(*name)) {
            return Err(malformed("model.unk_token", format!("`{unknown}` is not in the vocabulary")));
        }
        let merges = self.merges.into_iter().enumerate().map(|(index, merge)| match merge {
            MergeEntry::Pair(left, right) => Ok((left, right)),
            MergeEntry::Line(line) => match line.split_once(' ') {
                Some((left, right)) if !right.contains(' ') => Ok((left.to_owned(), right.to_owned())),
                _ => Err(malformed(format!("model.merges[{index}]"), "must be two tokens and one space")),
            },
        });
        let merges = merges.collect::<Result<Vec<_>, _>>()?;
        // Only where whole words are looked up before merging could a control token in the vocabulary be typed.
        let is_kept = |name: &String| {
            !self.ignore_merges || !reserved.contains(name.as_str()) || self.unk_token.as_ref() == Some(name)
        };
        let vocabulary: Vocab = self.vocab.into_iter().filter(|(name, _)| is_kept(name)).collect();
        let mut builder = BPE::builder()
            .vocab_and_merges(vocabulary, merges)
            .fuse_unk(self.fuse_unk)
            .byte_fallback(self.byte_fallback)
            .ignore_merges(self.ignore_merges);
        if let Some(unknown) = self.unk_token {
            builder = builder.unk_token(unknown);
        }
        builder.build().map(ModelWrapper::BPE).map_err(|error| malformed("model.merges", error))
    }
}

impl ModelEntry for WordPieceEntry {
    fn kind(&self, _byte_level: bool) -> &'static str {
        "WordPiece"
    }

    fn tokens(&self) -> impl Iterator<Item = (&str, u32)> {
        self.vocab.iter().map(|(name, id)| (name.as_str(), *id))
    }

    fn build(self, reserved: &HashSet<&str>, _steps: &[Step]) -> Result<ModelWrapper, TextError> {
        if !self.vocab.contains_key(&self.unk_token) {
            return Err(malformed("model.unk_token", format!("`{}` is not in the vocabulary", self.unk_token)));
        }
        if self.max_input_chars_per_word > MOST_WORD_CHARACTERS {
            let (size, limit) = (self.max_input_chars_per_word, MOST_WORD_CHARACTERS);
            return Err(TextError::TooLarge {
                what: "model.max_input_chars_per_word",
                size,
                limit,
                unit: "characters",
            });
        }
        let is_kept = |name: &String| !reserved.contains(name.as_str()) || *name == self.unk_token;
        let vocabulary: Vocab = self.vocab.into_iter().filter(|(name, _)| is_kept(name)).collect();
        let builder = WordPiece::builder()
            .vocab(vocabulary)
            .unk_token(self.unk_token)
            .continuing_subword_prefix(self.continuing_subword_prefix)
            .max_input_chars_per_word(self.max_input_chars_per_word);
        builder.build().map(ModelWrapper::WordPiece).map_err(|error| malformed("model", error))
    }
}

impl ModelEntry for UnigramEntry {
    fn kind(&self, _byte_level: bool) -> &'static str {
        "SentencePiece unigram"
    }

    fn tokens(&self) -> impl Iterator<Item = (&str, u32)> {
        self.vocab.iter().zip(0..).map(|((name, _), id)| (name.as_str(), id))
    }

    fn build(mut self, reserved: &HashSet<&str>, steps: &[Step]) -> Result<ModelWrapper, TextError> {
        if !steps.iter().any(|step| matches!(step, Step::Other(PreTokenizerWrapper::Metaspace(_)))) {
            let (field, found) = ("pre_tokenizer", "none that replaces spaces".to_owned());
            return Err(TextError::Unsupported { field, found, supported: "Metaspace, for a model of type Unigram" });
        }
        for (index, (name, _)) in self.vocab.iter_mut().enumerate() {
            if name.is_empty() {
                return Err(malformed(format!("model.vocab[{index}]"), "is a token without text"));
            }
            // Every token keeps its place, and no text has a space once `Metaspace` has replaced them.
            if reserved.contains(name.as_str()) && Some(index) != self.unk_id {
                name.insert(0, ' ');
            }
        }
        let model = Unigram::from(self.vocab, self.unk_id, self.byte_fallback);
        model.map(ModelWrapper::Unigram).map_err(|error| malformed("model.unk_id", error))
    }
}
