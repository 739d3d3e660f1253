//! Where a long text may be cut so that its parts give the tokens of the whole: to tokenise takes hundreds of times the memory of
//! what is tokenised at once.

use tokenizers::NormalizerWrapper;

use crate::added::AddedToken;
use crate::pipeline::Pipeline;
use crate::sentencepiece::{SPACE, SentencePiece};
use crate::tokenizer::Encoder;

/// The bytes from which on a part ends where it may.
const PART_BYTES: usize = 8 << 10;
/// What tokenising takes for each byte of a part, measured in `tests/tokenizing_memory.rs`.
const WORKING_BYTES: usize = 512;
/// What it takes for each byte of the text beside that: an id, in a vector that may be twice as long as what it holds.
const BYTES_OF_ID: usize = 2 * size_of::<u32>();

/// Where texts of a tokenizer are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cuts {
    places: Places,
    /// The bytes from which on a part ends where it may.
    length: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Places {
    /// There are none that are known to be safe.
    None,
    /// Before a space between two letters of English: no piece has a letter before a space, so nothing merges across it.
    Words,
    /// And after a line break before a letter: no expression matches both, or looks further than from one to the other.
    WordsAndLines,
}

impl Cuts {
    pub(crate) fn of(encoder: &Encoder) -> Cuts {
        let places = match encoder {
            Encoder::Pipeline(pipeline) => of_pipeline(pipeline),
            Encoder::SentencePiece(model) => of_sentencepiece(model),
        };
        Cuts { places, length: PART_BYTES }
    }

    /// A text in parts, each as long as it may be or a little longer.
    pub(crate) fn parts(self, text: &str) -> Parts<'_> {
        Parts { cuts: self, rest: Some(text) }
    }

    /// The most memory that it takes to tokenise a text.
    pub(crate) fn working_bytes(self, text: &str) -> usize {
        let longest = self.parts(text).map(str::len).max().unwrap_or_default();
        longest.saturating_mul(WORKING_BYTES).saturating_add(text.len().saturating_mul(BYTES_OF_ID))
    }

    /// The end of the first part.
    fn end(self, text: &str) -> Option<usize> {
        let bytes = text.as_bytes();
        let is_letter = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphabetic);
        let is_place = |at: usize| match bytes[at] {
            b' ' => self.places != Places::None && is_letter(at - 1) && is_letter(at + 1),
            b'\n' => self.places == Places::WordsAndLines && is_end_of_line(&text[..at]) && is_line(&text[at + 1..]),
            _ => false,
        };
        let at = (self.length.max(1)..bytes.len()).find(|at| is_place(*at))?;
        Some(if bytes[at] == b'\n' { at + 1 } else { at })
    }
}

/// Whether a line break after this is alone.
fn is_end_of_line(text: &str) -> bool {
    text.chars().next_back().is_some_and(|character| !character.is_whitespace())
}

/// Whether a text begins with a letter that every expression knows as one.
fn is_line(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || ('\u{4e00}'..='\u{9fa5}').contains(&first))
}

/// The parts of a text, which together are the whole.
pub(crate) struct Parts<'a> {
    cuts: Cuts,
    rest: Option<&'a str>,
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.rest.take()?;
        let Some(at) = self.cuts.end(rest) else { return Some(rest) };
        let (part, rest) = rest.split_at(at);
        self.rest = Some(rest);
        Some(part)
    }
}

/// The ways of cutting words that we know by name were read for this, one by one.
fn of_pipeline(pipeline: &Pipeline) -> Places {
    let composes_at_most = pipeline.normalizers.0.iter().all(|step| matches!(step, NormalizerWrapper::NFC(_)));
    match composes_at_most && pipeline.pre_tokenizers.is_preset() && pipeline.named_tokens().all(stays_whole) {
        true => Places::WordsAndLines,
        false => Places::None,
    }
}

fn of_sentencepiece(model: &SentencePiece) -> Places {
    let joins = |text: &str| text.trim_start_matches(SPACE).contains(SPACE);
    let is_safe = model.table.spells_every_byte()
        && model.table.pieces().all(|(text, piece)| !piece.unused && !joins(text))
        && model.named_tokens().all(|token| stays_whole(token) && !joins(&token.text));
    if is_safe { Places::Words } else { Places::None }
}

/// Whether a token depends on nothing beside it, and none of the places is inside it.
fn stays_whole(token: &AddedToken) -> bool {
    let changes =
        |pair: &[u8]| pair[0].is_ascii_alphabetic() && pair[1] == b' ' || pair[0] == b'\n' && pair[1] != b'\n';
    let text = token.text.as_bytes();
    !token.single_word && !token.strip_left && !token.strip_right && !text.windows(2).any(changes)
}

#[cfg(test)]
impl Cuts {
    pub(crate) const NOWHERE: Cuts = Cuts { places: Places::None, length: usize::MAX };

    /// The same in as many parts as there can be.
    pub(crate) fn everywhere(self) -> Cuts {
        Cuts { length: 1, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: Cuts = Cuts { places: Places::Words, length: PART_BYTES };
    const WORDS_AND_LINES: Cuts = Cuts { places: Places::WordsAndLines, length: PART_BYTES };

    #[test]
    fn a_text_is_cut_between_words_and_lines_only() {
        let check = |cuts: Cuts, text: &str, expected: &[&str]| {
            let parts: Vec<&str> = cuts.everywhere().parts(text).collect();
            assert_eq!(parts, expected, "{cuts:?}");
            assert_eq!(parts.concat(), text);
        };
        let text = "a bc  d. e 1 f\ng\n\nh.\ni\n 中\n中 x";
        check(Cuts::NOWHERE, text, &[text]);
        check(WORDS, text, &["a", " bc  d. e 1 f\ng\n\nh.\ni\n 中\n中 x"]);
        check(WORDS_AND_LINES, text, &["a", " bc  d. e 1 f\n", "g\n\nh.\n", "i\n 中\n", "中 x"]);
        check(WORDS_AND_LINES, "", &[""]);
        check(WORDS_AND_LINES, "\na", &["\na"]);
    }

    #[test]
    fn the_longest_part_counts() {
        let lines = "some words and a line\n".repeat(10_000);
        let whole = Cuts::NOWHERE.working_bytes(&lines);
        assert!(whole >= lines.len() * WORKING_BYTES);
        assert!(WORDS.working_bytes(&lines) < whole / 5);
        let word = "a".repeat(lines.len());
        assert_eq!(WORDS.working_bytes(&word), whole, "it cannot be cut");
    }
}
