//! How text is cut into words before byte-pair encoding.

use std::time::{Duration, Instant};

use fancy_regex::{Regex, RegexBuilder};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::tokenizer::pattern::Pattern;
use tokenizers::{
    NormalizedString, Offsets, PreTokenizedString, PreTokenizer, PreTokenizerWrapper, SplitDelimiterBehavior,
};

/// Llama 3: digits in groups of up to three.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 2: every digit alone.
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Mistral's Tekken: words also end where lower case turns into upper case.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Backtracking steps for one match; the expressions of real tokenizers need a few per character of a word.
const BACKTRACK_LIMIT: usize = 100_000;
/// Compiled size of one part of an expression.
const COMPILED_BYTES: usize = 1 << 20;
/// Time for one text: a regular expression so slow as to exceed it was made to hang its reader.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// The word-cutting steps of one tokenizer, applied in order.
pub(crate) struct PreTokenizers(pub(crate) Vec<Step>);

pub(crate) enum Step {
    Split(RegexSplit),
    Other(PreTokenizerWrapper),
}

impl PreTokenizers {
    pub(crate) fn apply(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        for step in &self.0 {
            match step {
                Step::Split(split) => split.apply(text)?,
                Step::Other(other) => other.pre_tokenize(text)?,
            }
        }
        Ok(())
    }
}

/// What the name in `tokenizer.ggml.pre` says about a byte-level tokenizer.
pub(crate) struct Preset {
    pub(crate) steps: Vec<Step>,
    /// Whether text is brought to Unicode normal form C first.
    pub(crate) compose: bool,
    /// Whether a word which is itself a token skips the merges.
    pub(crate) whole_words: bool,
}

impl Preset {
    /// Unknown names get GPT-2's rules, the ancestor of all others.
    pub(crate) fn named(name: &str) -> tokenizers::Result<Preset> {
        let bytes = |use_regex| Step::Other(PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, false, use_regex)));
        let split =
            |pattern| Ok::<_, tokenizers::Error>(vec![Step::Split(RegexSplit::isolated(pattern)?), bytes(false)]);
        Ok(match name {
            "llama3" | "llama-v3" | "llama-bpe" => Preset { steps: split(LLAMA3)?, compose: false, whole_words: true },
            "qwen2" | "deepseek-r1-qwen" => Preset { steps: split(QWEN2)?, compose: true, whole_words: false },
            "tekken" => Preset { steps: split(TEKKEN)?, compose: false, whole_words: true },
            "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" => {
                let digits = Step::Other(PreTokenizerWrapper::Digits(Digits::new(true)));
                Preset { steps: vec![digits, bytes(true)], compose: false, whole_words: false }
            }
            _ => Preset { steps: vec![bytes(true)], compose: false, whole_words: false },
        })
    }
}

/// Cuts at the matches of a regular expression, which may come from an untrusted file.
pub(crate) struct RegexSplit {
    regex: Regex,
    behavior: SplitDelimiterBehavior,
    invert: bool,
}

impl RegexSplit {
    pub(crate) fn new(pattern: &str, behavior: SplitDelimiterBehavior) -> tokenizers::Result<RegexSplit> {
        let regex =
            RegexBuilder::new(pattern).backtrack_limit(BACKTRACK_LIMIT).delegate_size_limit(COMPILED_BYTES).build()?;
        Ok(RegexSplit { regex, behavior, invert: false })
    }

    pub(crate) fn inverted(self) -> RegexSplit {
        RegexSplit { invert: !self.invert, ..self }
    }

    fn isolated(pattern: &str) -> tokenizers::Result<RegexSplit> {
        RegexSplit::new(pattern, SplitDelimiterBehavior::Isolated)
    }

    fn apply(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        let deadline = Instant::now() + TIME_LIMIT;
        text.split(|_, part: NormalizedString| part.split(Timed { split: self, deadline }, self.behavior))
    }
}

struct Timed<'a> {
    split: &'a RegexSplit,
    deadline: Instant,
}

impl Pattern for Timed<'_> {
    fn find_matches(&self, inside: &str) -> tokenizers::Result<Vec<(Offsets, bool)>> {
        let RegexSplit { regex, invert, .. } = self.split;
        let mut parts = Vec::new();
        let mut done = 0;
        for (count, found) in regex.find_iter(inside).enumerate() {
            let found = found?;
            if done < found.start() {
                parts.push(((done, found.start()), *invert));
            }
            parts.push(((found.start(), found.end()), !invert));
            done = found.end();
            if count % 64 == 0 && Instant::now() > self.deadline {
                return Err("a regular expression of its pre_tokenizer takes too long".into());
            }
        }
        if done < inside.len() || parts.is_empty() {
            parts.push(((done, inside.len()), *invert));
        }
        Ok(parts)
    }
}
