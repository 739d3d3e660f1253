//! Keeps the text of messages from being read as control tokens after a chat template has mixed it with its own.

use std::collections::HashSet;

use aho_corasick::{AhoCorasick, Anchored, Input, MatchKind};
use serde_json::{Map, Value};

use crate::TextError;
use crate::added::{AddedToken, Standing};

/// Roles that templates write between brackets to make a control token of them (`<|user|>`).
const ROLES: [&str; 8] = ["system", "developer", "user", "assistant", "tool", "function", "ipython", "observation"];
/// Where the stand-ins come from: the last plane of private-use characters.
const PRIVATE: std::ops::RangeInclusive<char> = '\u{100000}'..='\u{10fffd}';
/// The one mark that joins with brackets into another character (`≮`); what it stands on begins no token.
const OVERLAY: char = '\u{338}';

/// A rendered conversation in which the template's text and the text of messages can still be told apart.
///
/// While the template worked, the characters of messages that could begin a control token were other, private
/// characters. So a template may cut, trim and join messages as it likes: what came from them never reads as control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    pub(crate) hidden: String,
    pub(crate) stand_ins: StandIns,
}

impl Prompt {
    /// The text as the template's author meant it.
    pub fn text(&self) -> String {
        self.stand_ins.reveal(&self.hidden)
    }
}

/// Private characters with the characters they stand for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StandIns(Vec<(char, char)>);

impl StandIns {
    pub(crate) fn pairs(&self) -> &[(char, char)] {
        &self.0
    }

    pub(crate) fn reveal(&self, text: &str) -> String {
        let original = |character| self.0.iter().find(|(private, _)| *private == character).map(|(_, shown)| *shown);
        text.chars().map(|character| original(character).unwrap_or(character)).collect()
    }

    /// Undoes what JSON in ASCII made of the private characters.
    pub(crate) fn unescape(&self, text: String) -> String {
        self.0.iter().fold(text, |text, (private, _)| {
            let escaped: String =
                private.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
            if text.contains(&escaped) { text.replace(&escaped, private.encode_utf8(&mut [0; 4])) } else { text }
        })
    }

    fn hide(&self, character: char) -> char {
        self.0.iter().find(|(_, shown)| *shown == character).map_or(character, |(private, _)| *private)
    }
}

/// What a vocabulary's reserved tokens look like.
pub(crate) struct Guard {
    /// Signs that reserved tokens begin with: hidden wherever they occur.
    signs: Vec<char>,
    /// Tokens that begin like ordinary words: only whole ones are hidden, by their first character.
    words: AhoCorasick,
    word_starts: Vec<char>,
    names: Vec<String>,
    control: HashSet<String>,
}

impl Guard {
    pub(crate) fn new<'a>(tokens: impl Iterator<Item = &'a AddedToken>) -> Result<Guard, TextError> {
        let reserved: Vec<&AddedToken> = tokens.filter(|token| token.standing != Standing::Text).collect();
        let first = |token: &&AddedToken| token.text.chars().next();
        let is_sign = |character: &char| !character.is_alphanumeric() && !character.is_whitespace();
        let starts: Vec<char> = reserved.iter().filter_map(first).collect();
        let (mut signs, mut word_starts): (Vec<char>, Vec<char>) = starts.into_iter().partition(is_sign);
        for list in [&mut signs, &mut word_starts] {
            list.sort_unstable();
            list.dedup();
        }
        let words = reserved.iter().filter(|token| first(token).is_some_and(|start| !is_sign(&start)));
        let words = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .start_kind(aho_corasick::StartKind::Anchored)
            .build(words.map(|token| &token.text))
            .map_err(|_| too_many(reserved.len()))?;
        let is_control = |token: &&&AddedToken| token.standing == Standing::Control;
        let control = reserved.iter().filter(is_control).map(|token| token.text.clone()).collect();
        let names = reserved.iter().map(|token| token.text.clone()).collect();
        Ok(Guard { signs, words, word_starts, names, control })
    }

    /// Private characters that occur in none of `texts`, one for each character to hide.
    pub(crate) fn stand_ins<'a>(&self, texts: impl Iterator<Item = &'a str>) -> Result<StandIns, TextError> {
        let mut used: HashSet<char> = self.names.iter().flat_map(|name| name.chars()).collect();
        used.extend(texts.flat_map(str::chars).filter(|character| PRIVATE.contains(character)));
        let mut free = PRIVATE.filter(|character| !used.contains(character));
        let shown = self.signs.iter().chain(&self.word_starts);
        shown.map(|&shown| Some((free.next()?, shown))).collect::<Option<_>>().map(StandIns).ok_or_else(|| {
            let reason = "the conversation uses up the private characters of Unicode that rendering needs".to_owned();
            TextError::TemplateRender { line: 1, reason }
        })
    }

    /// Messages with all text hidden, except the roles that templates know.
    pub(crate) fn hide_messages(&self, messages: &Value, stand_ins: &StandIns) -> Result<Value, TextError> {
        let Value::Array(messages) = messages else { return Ok(self.hide(messages, Author::Anyone, stand_ins)) };
        let hidden = messages.iter().map(|message| {
            let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
            let author = if role == "assistant" { Author::Model } else { Author::Anyone };
            let mut hidden = self.hide(message, author, stand_ins);
            if ROLES.contains(&role) {
                hidden["role"] = role.into();
            } else if !role.is_empty() && self.names.iter().any(|name| name.contains(role)) {
                let reason = format!("the role `{role}` is part of the name of a control token");
                return Err(TextError::TemplateRender { line: 1, reason });
            }
            Ok(hidden)
        });
        Ok(Value::Array(hidden.collect::<Result<_, _>>()?))
    }

    /// A value with the text in it hidden, names of fields included.
    pub(crate) fn hide(&self, value: &Value, author: Author, stand_ins: &StandIns) -> Value {
        match value {
            Value::String(text) => Value::String(self.hide_text(text, author, stand_ins)),
            Value::Array(items) => items.iter().map(|item| self.hide(item, author, stand_ins)).collect(),
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| {
                    (self.hide_text(name, author, stand_ins), self.hide(value, author, stand_ins))
                });
                Value::Object(fields.collect::<Map<_, _>>())
            }
            other => other.clone(),
        }
    }

    pub(crate) fn hide_text(&self, text: &str, author: Author, stand_ins: &StandIns) -> String {
        let mut hidden = String::with_capacity(text.len());
        let mut visible_until = 0;
        for (at, character) in text.char_indices() {
            if author == Author::Model && at >= visible_until {
                visible_until = at + self.tag_length(&text[at..]);
            }
            let starts_word = || self.words.is_match(Input::new(&text[at..]).anchored(Anchored::Yes));
            let hides = if self.signs.contains(&character) {
                at >= visible_until && !text[at + character.len_utf8()..].starts_with(OVERLAY)
            } else {
                self.word_starts.contains(&character) && starts_word()
            };
            hidden.push(if hides { stand_ins.hide(character) } else { character });
        }
        hidden
    }

    /// The length of `<tag>` or `</tag>` at the beginning of a text, unless it is a control token.
    ///
    /// The model itself writes these around reasoning and calls, and templates look for them in its messages.
    fn tag_length(&self, text: &str) -> usize {
        let Some(inner) = text.strip_prefix('<') else { return 0 };
        let inner = inner.strip_prefix('/').unwrap_or(inner);
        let name = inner.trim_start_matches(|character: char| character.is_ascii_alphanumeric() || character == '_');
        let length = text.len() - name.len() + 1;
        let is_tag = name.starts_with('>') && name.len() < inner.len();
        if is_tag && !self.control.contains(&text[..length]) { length } else { 0 }
    }
}

/// Who wrote a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Author {
    Model,
    Anyone,
}

/// Every text inside a value.
pub(crate) fn texts(value: &Value) -> Vec<&str> {
    let (mut texts, mut stack) = (Vec::new(), vec![value]);
    while let Some(value) = stack.pop() {
        match value {
            Value::String(text) => texts.push(text.as_str()),
            Value::Array(items) => stack.extend(items),
            Value::Object(fields) => {
                texts.extend(fields.keys().map(String::as_str));
                stack.extend(fields.values());
            }
            _ => {}
        }
    }
    texts
}

fn too_many(size: usize) -> TextError {
    TextError::TooLarge { what: "the list of control tokens", size, limit: 1 << 16, unit: "entries" }
}
