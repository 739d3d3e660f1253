//! Added tokens: literals that are split off a text before the tokenizer sees the rest.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::{SpecialTokens, TextError};

const MAX_ADDED_TOKENS: usize = 1 << 16;
/// The automaton needs tens of bytes per byte of name, so this bounds it to some 25 MB.
const MAX_ADDED_BYTES: usize = 512 << 10;

/// A token that is matched by its name.
#[derive(Debug, Clone)]
pub(crate) struct AddedToken {
    pub(crate) id: u32,
    pub(crate) text: String,
    pub(crate) standing: Standing,
    /// Matched only when not part of a longer word.
    pub(crate) single_word: bool,
    /// Swallows white space on its left.
    pub(crate) strip_left: bool,
    /// Swallows white space on its right.
    pub(crate) strip_right: bool,
}

impl AddedToken {
    /// A token that matches its name wherever it stands.
    pub(crate) fn named(id: u32, text: &str, standing: Standing) -> AddedToken {
        let text = text.to_owned();
        AddedToken { id, text, standing, single_word: false, strip_left: false, strip_right: false }
    }
}

/// Elements of web pages, which some vocabularies have as tokens: text like any other.
const HTML: [&str; 25] = [
    "table",
    "caption",
    "thead",
    "tbody",
    "tfoot",
    "tr",
    "th",
    "td",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "blockquote",
    "strong",
    "em",
    "b",
    "i",
    "u",
    "s",
    "sub",
    "sup",
    "code",
    "br",
];

/// What matching a token in a text means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Ordinary text (runs of spaces, of line breaks) which the model has always seen as one token.
    Text,
    /// Not marked as special, but structure all the same: `<tool_call>`, `[INST]`. Never matched in plain text.
    Markup,
    /// Marked as special. Never matched in plain text, where it would let a user forge the structure of a conversation.
    Control,
}

impl Standing {
    /// The standing of a token of this name.
    pub(crate) fn of(text: &str, is_special: bool) -> Standing {
        let inside = |open, close| text.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
        let is_element = |name: &str| HTML.contains(&name.trim_start_matches('/'));
        let is_markup = inside('<', '>').is_some_and(|name| !is_element(name)) || inside('[', ']').is_some();
        match (is_special, is_markup) {
            (true, _) => Standing::Control,
            (false, true) => Standing::Markup,
            (false, false) => Standing::Text,
        }
    }
}

/// A set of added tokens with one automaton per way of reading a text.
pub(crate) struct AddedTokens {
    all: Matcher,
    unreserved: Matcher,
    ids: HashMap<String, u32>,
}

impl AddedTokens {
    pub(crate) fn new(tokens: Vec<AddedToken>) -> Result<AddedTokens, TextError> {
        check_limit("the list of added tokens", tokens.len(), MAX_ADDED_TOKENS, "entries")?;
        let bytes = tokens.iter().map(|token| token.text.len()).sum();
        check_limit("the text of all added tokens", bytes, MAX_ADDED_BYTES, "bytes")?;
        let tokens: Vec<_> = tokens.into_iter().filter(|token| !token.text.is_empty()).collect();
        let unreserved = tokens.iter().filter(|token| token.standing == Standing::Text).cloned().collect();
        let ids = tokens.iter().map(|token| (token.text.clone(), token.id)).collect();
        Ok(AddedTokens { all: Matcher::new(tokens)?, unreserved: Matcher::new(unreserved)?, ids })
    }

    pub(crate) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// The tokens.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &AddedToken> {
        self.all.tokens.iter()
    }

    /// Cuts a text into added tokens and the stretches between them, which together cover it.
    pub(crate) fn split(&self, text: &str, special: SpecialTokens) -> Vec<Part> {
        match special {
            SpecialTokens::Parse => self.all.split(text),
            SpecialTokens::Plain => self.unreserved.split(text),
        }
    }
}

/// A stretch of text, with the id of the added token that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) token: Option<u32>,
}

struct Matcher {
    automaton: AhoCorasick,
    tokens: Vec<AddedToken>,
}

impl Matcher {
    fn new(tokens: Vec<AddedToken>) -> Result<Matcher, TextError> {
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|token| &token.text))
            .map_err(|_| too_large("the list of added tokens", tokens.len(), MAX_ADDED_TOKENS, "entries"))?;
        Ok(Matcher { automaton, tokens })
    }

    fn split(&self, text: &str) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut done = 0;
        for found in self.automaton.find_iter(text) {
            let token = &self.tokens[found.pattern().as_usize()];
            let (mut start, mut end) = (found.start(), found.end());
            if start < done || (token.single_word && inside_word(text, start, end)) {
                continue;
            }
            if token.strip_left {
                start = text[..start].trim_end().len().max(done);
            }
            if token.strip_right {
                end = text.len() - text[end..].trim_start().len();
            }
            if done < start {
                parts.push(Part { start: done, end: start, token: None });
            }
            parts.push(Part { start, end, token: Some(token.id) });
            done = end;
        }
        if done < text.len() {
            parts.push(Part { start: done, end: text.len(), token: None });
        }
        parts
    }
}

fn inside_word(text: &str, start: usize, end: usize) -> bool {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    text[..start].ends_with(is_word) || text[end..].starts_with(is_word)
}

fn check_limit(what: &'static str, size: usize, limit: usize, unit: &'static str) -> Result<(), TextError> {
    if size > limit { Err(too_large(what, size, limit, unit)) } else { Ok(()) }
}

fn too_large(what: &'static str, size: usize, limit: usize, unit: &'static str) -> TextError {
    TextError::TooLarge { what, size, limit, unit }
}
