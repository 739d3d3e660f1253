//! Splits text into words before byte-pair encoding.

use std::time::{Duration, Instant};

use fancy_regex::{Regex, RegexBuilder};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::punctuation::Punctuation;
use tokenizers::tokenizer::pattern::Pattern;
use tokenizers::{
    NormalizedString, Offsets, PreTokenizedString, PreTokenizer, PreTokenizerWrapper, SplitDelimiterBehavior,
};

use crate::presets::{Cut, PRESETS};

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
    /// The steps that a preset asks for.
    pub(crate) fn preset(cuts: &[Cut]) -> tokenizers::Result<PreTokenizers> {
        let bytes = |use_regex| Step::Other(PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, false, use_regex)));
        let digits = |individual| Step::Other(PreTokenizerWrapper::Digits(Digits::new(individual)));
        let steps = cuts.iter().map(|cut| {
            Ok(match cut {
                Cut::Split(pattern) => Step::Split(RegexSplit::new(pattern, SplitDelimiterBehavior::Isolated)?),
                Cut::Digits => digits(true),
                Cut::Numbers => digits(false),
                Cut::Punctuation => {
                    let runs = Punctuation::new(SplitDelimiterBehavior::Contiguous);
                    Step::Other(PreTokenizerWrapper::Punctuation(runs))
                }
                Cut::Bytes => bytes(false),
                Cut::WordsAndBytes => bytes(true),
            })
        });
        Ok(PreTokenizers(steps.collect::<tokenizers::Result<_>>()?))
    }

    /// Whether these are the steps of a preset.
    pub(crate) fn is_preset(&self) -> bool {
        let are = |cuts: &[Cut]| cuts.len() == self.0.len() && self.0.iter().zip(cuts).all(|(step, cut)| step.is(cut));
        PRESETS.iter().any(|preset| are(preset.cuts))
    }

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

impl Step {
    fn is(&self, cut: &Cut) -> bool {
        match (self, cut) {
            (Step::Split(split), Cut::Split(pattern)) => split.isolates(pattern),
            (Step::Other(PreTokenizerWrapper::ByteLevel(bytes)), Cut::Bytes) => {
                !bytes.add_prefix_space && !bytes.use_regex
            }
            (Step::Other(PreTokenizerWrapper::ByteLevel(bytes)), Cut::WordsAndBytes) => {
                !bytes.add_prefix_space && bytes.use_regex
            }
            (Step::Other(PreTokenizerWrapper::Digits(digits)), Cut::Digits) => digits.individual_digits,
            (Step::Other(PreTokenizerWrapper::Digits(digits)), Cut::Numbers) => !digits.individual_digits,
            (Step::Other(PreTokenizerWrapper::Punctuation(marks)), Cut::Punctuation) => {
                marks.behavior == SplitDelimiterBehavior::Contiguous
            }
            _ => false,
        }
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

    /// Whether every match of this expression becomes a word of its own, and so does what is between them.
    fn isolates(&self, pattern: &str) -> bool {
        self.behavior == SplitDelimiterBehavior::Isolated && self.regex.as_str() == pattern
    }

    /// Whether what it cuts at stays part of the text.
    pub(crate) fn keeps_everything(&self) -> bool {
        self.behavior != SplitDelimiterBehavior::Removed
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
