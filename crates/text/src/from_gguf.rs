//! Builds tokenizers from the vocabulary of a GGUF file.

use std::collections::HashMap;
use std::sync::LazyLock;

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::replace::Replace;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::{ModelWrapper, NormalizerWrapper};

use crate::added::{AddedToken, AddedTokens, Standing};
use crate::pieces::{Leading, Pieces, Visibility};
use crate::pipeline::{Normalizers, Pipeline};
use crate::pre_tokenizer::PreTokenizers;
use crate::presets;
use crate::sentencepiece::{Piece, PieceTable, SPACE, SentencePiece};
use crate::tokenizer::{Encoder, Inner};
use crate::vocabulary::{TokenType, byte_of_token};
use crate::{MAX_TOKEN_BYTES, MAX_TOKENS, TextError, Vocabulary};

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";
const MERGES: &str = "tokenizer.ggml.merges";
/// Control tokens that leave white space alone even where the others swallow it.
const NEVER_STRIPPING: [&str; 3] = ["<unk>", "<s>", "<|endoftext|>"];

/// Checks a vocabulary and builds its tokenizer.
pub(crate) fn build(vocabulary: &Vocabulary) -> Result<Inner, TextError> {
    let entries = entries(vocabulary)?;
    match vocabulary.model.as_str() {
        "llama" => sentencepiece(vocabulary, &entries),
        "gpt2" => byte_level(vocabulary, &entries),
        "gemma4" => merged_pieces(vocabulary, &entries),
        other => {
            let found = other.chars().take(80).collect();
            Err(TextError::Unsupported { field: "tokenizer.ggml.model", found, supported: "llama, gpt2, gemma4" })
        }
    }
}

/// A checked entry: its id fits, its text is short enough and its type is known.
struct Entry<'a> {
    id: u32,
    bytes: &'a [u8],
    /// `None` when the token is not text; it can be decoded but never matched.
    text: Option<&'a str>,
    kind: TokenType,
}

impl Entry<'_> {
    /// The byte that a byte token stands for.
    fn byte(&self) -> Result<u8, TextError> {
        self.text.and_then(byte_of_token).ok_or_else(|| {
            let name: String = String::from_utf8_lossy(self.bytes).chars().take(40).collect();
            let reason = format!("is marked as a byte but named `{name}` instead of `<0x00>` to `<0xFF>`");
            TextError::Vocabulary { field: TOKENS, index: self.id as usize, reason }
        })
    }

    fn visibility(&self) -> Visibility {
        if self.is_special() { Visibility::Hidden } else { Visibility::Shown }
    }

    fn is_special(&self) -> bool {
        matches!(self.kind, TokenType::Control | TokenType::Unknown)
    }
}

fn entries(vocabulary: &Vocabulary) -> Result<Vec<Entry<'_>>, TextError> {
    let count = vocabulary.tokens.len();
    if count > MAX_TOKENS {
        let what = "the vocabulary";
        return Err(TextError::TooLarge { what, size: count, limit: MAX_TOKENS, unit: "tokens" });
    }
    if count == 0 {
        return Err(TextError::Vocabulary { field: TOKENS, index: 0, reason: "the vocabulary is empty".into() });
    }
    check_length(TYPES, vocabulary.types.len(), count)?;
    check_length(SCORES, vocabulary.scores.len(), count)?;
    vocabulary.tokens.iter().enumerate().map(|(index, bytes)| entry(vocabulary, index, bytes)).collect()
}

fn entry<'a>(vocabulary: &Vocabulary, index: usize, bytes: &'a [u8]) -> Result<Entry<'a>, TextError> {
    if bytes.len() > MAX_TOKEN_BYTES {
        let (what, size, limit) = ("the text of a token", bytes.len(), MAX_TOKEN_BYTES);
        return Err(TextError::TooLarge { what, size, limit, unit: "bytes" });
    }
    let text = std::str::from_utf8(bytes).ok();
    let kind = match vocabulary.types.get(index) {
        Some(&number) => TokenType::from_gguf(number).ok_or_else(|| TextError::Vocabulary {
            field: TYPES,
            index,
            reason: format!("{number} is not a token type (1 to 6)"),
        })?,
        None if text.and_then(byte_of_token).is_some() => TokenType::Byte,
        None => TokenType::Normal,
    };
    Ok(Entry { id: index as u32, bytes, text, kind })
}

fn check_length(field: &'static str, length: usize, tokens: usize) -> Result<(), TextError> {
    if length != 0 && length != tokens {
        let reason = format!("the array has {length} entries for {tokens} tokens");
        return Err(TextError::Vocabulary { field, index: length.min(tokens), reason });
    }
    Ok(())
}

/// The chosen entries as tokens that are cut out of a text by name.
fn added_tokens(entries: &[Entry<'_>], chosen: fn(&Entry<'_>) -> bool) -> Vec<AddedToken> {
    let added = entries.iter().filter(|entry| chosen(entry)).filter_map(|entry| {
        let text = entry.text?;
        Some(AddedToken::named(entry.id, text, Standing::of(text, entry.is_special())))
    });
    added.collect()
}

fn sentencepiece(vocabulary: &Vocabulary, entries: &[Entry<'_>]) -> Result<Inner, TextError> {
    if vocabulary.scores.is_empty() {
        let reason = "the array is missing, but it decides the order of merges".into();
        return Err(TextError::Vocabulary { field: SCORES, index: 0, reason });
    }
    let leading = if vocabulary.add_space_prefix { Leading::StripOne } else { Leading::Keep };
    let mut pieces = Pieces::new(leading);
    let mut table = PieceTable::default();
    let mut unknown = vocabulary.unknown_token.filter(|&id| (id as usize) < entries.len());
    for (entry, &score) in entries.iter().zip(&vocabulary.scores) {
        if !score.is_finite() {
            let (index, reason) = (entry.id as usize, format!("{score} is not a number"));
            return Err(TextError::Vocabulary { field: SCORES, index, reason });
        }
        let mut shown = entry.text.map_or_else(|| entry.bytes.to_vec(), |text| text.replace(SPACE, " ").into_bytes());
        let text = entry.text.unwrap_or_default();
        match entry.kind {
            TokenType::Byte => {
                let byte = entry.byte()?;
                table.add_byte(byte, entry.id);
                shown = vec![byte];
            }
            TokenType::Unknown => unknown = unknown.or(Some(entry.id)),
            TokenType::Normal => table.add(text, Piece { id: entry.id, score, unused: false }),
            TokenType::Unused => table.add(text, Piece { id: entry.id, score, unused: true }),
            TokenType::Control | TokenType::UserDefined => {}
        }
        pieces.set(entry.id, &shown, entry.visibility())?;
    }
    let mut control = added_tokens(entries, |entry| entry.is_special());
    for token in control.iter_mut().filter(|token| !NEVER_STRIPPING.contains(&token.text.as_str())) {
        token.strip_right = vocabulary.strip_right;
    }
    let control = AddedTokens::new(control)?;
    let mut user_defined = added_tokens(entries, |entry| entry.kind == TokenType::UserDefined);
    user_defined.iter_mut().for_each(|token| token.text = token.text.replace(' ', SPACE));
    let user_defined = AddedTokens::new(user_defined)?;
    let add_space_prefix = vocabulary.add_space_prefix;
    let model = SentencePiece { table, unknown, add_space_prefix, control, user_defined };
    Ok(Inner { encoder: Encoder::SentencePiece(Box::new(model)), pieces, kind: "SentencePiece BPE", enclosure: None })
}

fn byte_level(vocabulary: &Vocabulary, entries: &[Entry<'_>]) -> Result<Inner, TextError> {
    let mut pieces = Pieces::new(Leading::Keep);
    let mut ids = Vocab::default();
    for entry in entries {
        let mapped = match entry.kind {
            TokenType::Control | TokenType::Unknown | TokenType::UserDefined => None,
            TokenType::Byte => Some(vec![entry.byte()?]),
            TokenType::Normal | TokenType::Unused => entry.text.and_then(byte_level_bytes),
        };
        pieces.set(entry.id, mapped.as_deref().unwrap_or(entry.bytes), entry.visibility())?;
        let Some(text) = entry.text else { continue };
        let typeable = match entry.kind {
            TokenType::Normal => true,
            TokenType::UserDefined => Standing::of(text, false) == Standing::Text,
            _ => false,
        };
        if typeable {
            ids.entry(text.to_owned()).or_insert(entry.id);
        }
    }
    let preset = presets::find(vocabulary.pre.as_deref())?;
    let pre_tokenizers = PreTokenizers::preset(preset.cuts)
        .map_err(|error| TextError::Encode { bytes: 0, reason: error.to_string() })?;
    let normalizers = if preset.compose { vec![NormalizerWrapper::NFC(NFC)] } else { Vec::new() };
    let merges = merges(vocabulary, &ids)?;
    let model = BPE::builder()
        .vocab_and_merges(ids, merges)
        .ignore_merges(preset.whole_words)
        .build()
        .map_err(|error| TextError::Vocabulary { field: MERGES, index: 0, reason: error.to_string() })?;
    let added = added_tokens(entries, |entry| entry.is_special() || entry.kind == TokenType::UserDefined);
    let pipeline = Pipeline {
        added: AddedTokens::new(added)?,
        added_normalized: AddedTokens::new(Vec::new())?,
        normalizers: Normalizers(normalizers),
        pre_tokenizers,
        model: ModelWrapper::BPE(model),
    };
    Ok(Inner { encoder: Encoder::Pipeline(Box::new(pipeline)), pieces, kind: "byte-level BPE", enclosure: None })
}

/// SentencePiece's spelling of spaces and bytes, but merges in the order of a list.
fn merged_pieces(vocabulary: &Vocabulary, entries: &[Entry<'_>]) -> Result<Inner, TextError> {
    let mut pieces = Pieces::new(Leading::Keep);
    let mut ids = Vocab::default();
    for entry in entries {
        let shown = match (entry.kind, entry.text) {
            (TokenType::Byte, _) => vec![entry.byte()?],
            (_, Some(text)) => text.replace(SPACE, " ").into_bytes(),
            (_, None) => entry.bytes.to_vec(),
        };
        pieces.set(entry.id, &shown, entry.visibility())?;
        let is_named = !matches!(entry.kind, TokenType::Control | TokenType::Unused);
        if let Some(text) = entry.text.filter(|_| is_named) {
            ids.entry(text.to_owned()).or_insert(entry.id);
        }
    }
    let unknown = entries.iter().find(|entry| entry.kind == TokenType::Unknown).and_then(|entry| entry.text);
    let merges = merges(vocabulary, &ids)?;
    let mut builder = BPE::builder().vocab_and_merges(ids, merges).byte_fallback(true).fuse_unk(true);
    if let Some(unknown) = unknown {
        builder = builder.unk_token(unknown.to_owned());
    }
    let refuse =
        |error: tokenizers::Error| TextError::Vocabulary { field: MERGES, index: 0, reason: error.to_string() };
    let spaces = Replace::new(" ", SPACE).map_err(refuse)?;
    let added = added_tokens(entries, |entry| entry.is_special() || entry.kind == TokenType::UserDefined);
    let pipeline = Pipeline {
        added: AddedTokens::new(added)?,
        added_normalized: AddedTokens::new(Vec::new())?,
        normalizers: Normalizers(vec![NormalizerWrapper::Replace(spaces)]),
        pre_tokenizers: PreTokenizers(Vec::new()),
        model: ModelWrapper::BPE(builder.build().map_err(refuse)?),
    };
    Ok(Inner { encoder: Encoder::Pipeline(Box::new(pipeline)), pieces, kind: "SentencePiece BPE", enclosure: None })
}

fn merges(vocabulary: &Vocabulary, ids: &Vocab) -> Result<Vec<(String, String)>, TextError> {
    let pairs = vocabulary.merges.iter().enumerate().map(|(index, merge)| {
        let refuse = |reason: String| TextError::Vocabulary { field: MERGES, index, reason };
        // A token may itself begin with a space, so the first character never separates.
        let separator = merge.char_indices().skip(1).find(|(_, character)| *character == ' ');
        let Some((position, _)) = separator else {
            return Err(refuse("is not two tokens with a space between them".into()));
        };
        let (left, right) = (&merge[..position], &merge[position + 1..]);
        for name in [left, right, &[left, right].concat()] {
            if !ids.contains_key(name) {
                let name: String = name.chars().take(40).collect();
                return Err(refuse(format!("`{name}` is not in the vocabulary")));
            }
        }
        Ok((left.to_owned(), right.to_owned()))
    });
    pairs.collect()
}

/// Undoes GPT-2's spelling of bytes as printable characters; `None` when a character is not one of those 256.
pub(crate) fn byte_level_bytes(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|character| BYTES.get(&character).copied()).collect()
}

/// Printable Latin-1 bytes stand for themselves; the others are, in order, the characters from U+0100 on.
static BYTES: LazyLock<HashMap<char, u8>> = LazyLock::new(|| {
    let mut next_substitute = 0x100..;
    let spelled = (0..=255_u8).map(|byte| {
        let is_printable = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        let code = if is_printable { Some(u32::from(byte)) } else { next_substitute.next() };
        (code.and_then(char::from_u32).unwrap_or_default(), byte)
    });
    spelled.collect()
});
