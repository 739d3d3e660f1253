//! How many tokens a text has at least, by its length alone: a text that cannot fit need not be tokenised to refuse it.

use serde_json::Value;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{Model, ModelWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

use crate::added::AddedToken;
use crate::pieces::Pieces;
use crate::pipeline::{Normalizers, Pipeline};
use crate::pre_tokenizer::{PreTokenizers, Step};
use crate::sentencepiece::SentencePiece;
use crate::tokenizer::Encoder;

/// How much longer a text may be than its canonical composition (NFC), in bytes of UTF-8: a character has at most three
/// times the bytes of its canonical decomposition (`K`, once the Kelvin sign), and a decomposition three times those of
/// what it composes to (a Hangul syllable).
const COMPOSITION: usize = 9;
/// The most bytes that a space in a piece may be in a text: tokenizers write another character for it.
const SPACE_BYTES: usize = 4;

/// What one token can cover of a text. Tokenizers that may drop text without a token have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Coverage {
    /// The most bytes of the normalised text.
    longest: usize,
    /// The normaliser composes characters.
    composes: bool,
    /// White space may go without a token.
    drops_white_space: bool,
}

impl Coverage {
    pub(crate) fn of(encoder: &Encoder, pieces: &Pieces) -> Option<Coverage> {
        match encoder {
            Encoder::Pipeline(pipeline) => of_pipeline(pipeline, pieces),
            Encoder::SentencePiece(model) => of_sentencepiece(model),
        }
    }

    /// A text has no fewer tokens than this.
    pub(crate) fn least_tokens(&self, text: &str) -> usize {
        let bytes = match self.drops_white_space {
            true => text.chars().filter(|character| !character.is_whitespace()).map(char::len_utf8).sum(),
            false => text.len(),
        };
        let shorter = if self.composes && !text.is_ascii() { COMPOSITION } else { 1 };
        bytes / (self.longest * shorter)
    }

    /// Takes in the tokens that are matched by their names, which may swallow white space beside them.
    fn with_named<'a>(self, named: impl Iterator<Item = &'a AddedToken>) -> Coverage {
        named.fold(self, |coverage, token| Coverage {
            longest: coverage.longest.max(token.text.len()),
            drops_white_space: coverage.drops_white_space || token.strip_left || token.strip_right,
            ..coverage
        })
    }
}

/// Every character is a piece or is spelled in bytes.
fn of_sentencepiece(model: &SentencePiece) -> Option<Coverage> {
    let longest = model.table.spells_every_byte().then(|| model.table.longest().max(1))?;
    Some(Coverage { longest, composes: false, drops_white_space: false }.with_named(model.named_tokens()))
}

fn of_pipeline(pipeline: &Pipeline, pieces: &Pieces) -> Option<Coverage> {
    let normalized = normalizers(&pipeline.normalizers)?;
    let cut = pre_tokenizers(&pipeline.pre_tokenizers)?;
    if !spells_every_byte(&pipeline.model, cut.byte_level) {
        return None;
    }
    let length = |bytes: &[u8]| bytes.len() + (SPACE_BYTES - 1) * bytes.iter().filter(|byte| **byte == b' ').count();
    let longest = (0..pieces.len() as u32).filter_map(|id| pieces.bytes(id)).map(length).max().unwrap_or(1).max(1);
    let drops_white_space = normalized.drops_white_space || cut.drops_white_space;
    Some(Coverage { longest, composes: normalized.composes, drops_white_space }.with_named(pipeline.named_tokens()))
}

/// What normalisers do to the length of a text; `None` where they may shorten it in other ways.
struct Normalized {
    composes: bool,
    drops_white_space: bool,
}

fn normalizers(normalizers: &Normalizers) -> Option<Normalized> {
    let mut found = Normalized { composes: false, drops_white_space: false };
    for normalizer in &normalizers.0 {
        let value = serde_json::to_value(normalizer).ok()?;
        let length = |value: Option<&Value>| value.and_then(Value::as_str).map(str::len);
        match value.get("type").and_then(Value::as_str)? {
            "NFC" => found.composes = true,
            "Strip" => found.drops_white_space = true,
            "Prepend" => {}
            "Replace" => {
                let replaced = length(value.get("pattern").and_then(|pattern| pattern.get("String")))?;
                length(value.get("content")).filter(|content| *content >= replaced)?;
            }
            _ => return None,
        }
    }
    Some(found)
}

/// What cutting a text into words leaves of it; `None` where it may drop more than white space.
struct Cut {
    byte_level: bool,
    drops_white_space: bool,
}

fn pre_tokenizers(steps: &PreTokenizers) -> Option<Cut> {
    let mut cut = Cut { byte_level: false, drops_white_space: false };
    for step in &steps.0 {
        match step {
            Step::Split(split) if split.keeps_everything() => {}
            Step::Other(PreTokenizerWrapper::ByteLevel(_)) => cut.byte_level = true,
            Step::Other(PreTokenizerWrapper::Digits(_) | PreTokenizerWrapper::Metaspace(_)) => {}
            Step::Other(PreTokenizerWrapper::Punctuation(marks))
                if marks.behavior != SplitDelimiterBehavior::Removed => {}
            Step::Other(PreTokenizerWrapper::Whitespace(_) | PreTokenizerWrapper::WhitespaceSplit(_)) => {
                cut.drops_white_space = true;
            }
            Step::Split(_) | Step::Other(_) => return None,
        }
    }
    Some(cut)
}

/// Whether every character becomes a token: what a vocabulary cannot spell may vanish, or share one token with others.
fn spells_every_byte(model: &ModelWrapper, byte_level: bool) -> bool {
    let ModelWrapper::BPE(model) = model else { return false };
    if byte_level {
        return ByteLevel::alphabet().into_iter().all(|byte| model.token_to_id(&byte.to_string()).is_some());
    }
    model.byte_fallback && (0..=u8::MAX).all(|byte| model.token_to_id(&format!("<0x{byte:02X}>")).is_some())
}

#[cfg(test)]
mod tests {
    use tokenizers::NormalizedString;

    use super::*;

    #[test]
    fn composition_shortens_no_character_more_than_it_is_taken_to() {
        for character in (0..=u32::from(char::MAX)).filter_map(char::from_u32) {
            let mut decomposed = NormalizedString::from(character.to_string());
            decomposed.nfd();
            let (whole, parts) = (character.len_utf8(), decomposed.get().len());
            assert!(whole <= 3 * parts && parts <= 3 * whole, "{character:?}: {whole} bytes, {parts} decomposed");
        }
    }

    #[test]
    fn length_alone_bounds_the_tokens() {
        let plain = Coverage { longest: 10, composes: false, drops_white_space: false };
        let text = format!("{} {}", "a".repeat(50), " ".repeat(49));
        assert_eq!(plain.least_tokens(&text), 10);
        assert_eq!(Coverage { drops_white_space: true, ..plain }.least_tokens(&text), 5);
        assert_eq!(Coverage { composes: true, ..plain }.least_tokens(&text), 10);
        assert_eq!(Coverage { composes: true, ..plain }.least_tokens(&"é".repeat(90)), 2);
        assert_eq!(plain.least_tokens(""), 0);
    }
}
