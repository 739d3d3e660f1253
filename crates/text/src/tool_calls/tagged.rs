//! Parses calls whose name and arguments are apart: after a separator, between tags, or as bare words.

use serde_json::Value;

use super::arguments::{JsonEnd, Parameters, bare_words_to_json, is_name};
use super::formats::Tags;
use super::{MAX_ARGUMENT_BYTES, MAX_HELD_BYTES, MAX_NAME_BYTES, Pieces, Progress};

/// A name, a separator, and the arguments as JSON.
#[derive(Debug, Clone)]
pub(crate) struct NamedCall {
    separator: &'static str,
    prefix: &'static str,
    name: Option<String>,
    arguments: Option<JsonEnd>,
    pub(crate) raw: String,
}

impl NamedCall {
    pub(crate) fn new(separator: &'static str, prefix: &'static str) -> NamedCall {
        NamedCall { separator, prefix, name: None, arguments: None, raw: String::new() }
    }

    pub(crate) fn has_started(&self) -> bool {
        self.arguments.is_some()
    }

    pub(crate) fn read(&mut self, text: &str, out: &mut Pieces) -> Progress {
        for (at, character) in text.char_indices() {
            let after = at + character.len_utf8();
            if let Some(end) = &mut self.arguments {
                out.arguments(character.encode_utf8(&mut [0; 4]));
                if end.feed(character) {
                    return Progress::Ended(after);
                }
                continue;
            }
            self.raw.push(character);
            match &self.name {
                Some(name) if character == '{' => {
                    out.start(name);
                    out.arguments("{");
                    self.raw.clear();
                    let end = self.arguments.insert(JsonEnd::default());
                    end.feed('{');
                }
                Some(_) if character.is_whitespace() => {}
                Some(_) => return Progress::Broken(after),
                None => {
                    if let Some(name) = self.raw.strip_suffix(self.separator) {
                        self.name = Some(self.bare_name(name)).filter(|name| is_name(name));
                        if self.name.is_none() {
                            return Progress::Broken(after);
                        }
                    } else if self.raw.len() > MAX_NAME_BYTES {
                        return Progress::Broken(after);
                    }
                }
            }
        }
        Progress::Reading
    }

    /// `get_weather` of `functions.get_weather:0` or `get_weather[CALL_ID]abc`.
    fn bare_name(&self, written: &str) -> String {
        let name = written.split('[').next().unwrap_or_default().trim();
        match name.strip_prefix(self.prefix) {
            Some(rest) if !self.prefix.is_empty() => rest.split(':').next().unwrap_or_default().to_owned(),
            _ => name.to_owned(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Name,
    KeyOrEnd,
    Key,
    BeforeValue,
    Value,
}

/// A name and arguments between tags.
#[derive(Debug, Clone)]
pub(crate) struct TaggedCall {
    tags: Tags,
    parameters: Parameters,
    part: Part,
    text: String,
    name: String,
    key: String,
    count: usize,
    pub(crate) raw: String,
}

impl TaggedCall {
    pub(crate) fn new(tags: Tags, parameters: Parameters) -> TaggedCall {
        let [text, name, key, raw] = [const { String::new() }; 4];
        TaggedCall { tags, parameters, part: Part::Name, text, name, key, count: 0, raw }
    }

    pub(crate) fn has_started(&self) -> bool {
        !self.name.is_empty()
    }

    pub(crate) fn read(&mut self, text: &str, out: &mut Pieces) -> Progress {
        for (at, character) in text.char_indices() {
            let after = at + character.len_utf8();
            if self.name.is_empty() {
                self.raw.push(character);
            }
            let skips =
                self.text.is_empty() && character.is_whitespace() && !matches!(self.part, Part::Key | Part::Value);
            if skips {
                continue;
            }
            self.text.push(character);
            match self.step(out) {
                Some(false) => {}
                Some(true) => return Progress::Ended(after),
                None => {
                    if !self.name.is_empty() {
                        self.close(out);
                        self.raw = std::mem::take(&mut self.text);
                    }
                    return Progress::Broken(after);
                }
            }
        }
        Progress::Reading
    }

    /// What there is of an argument whose end never came.
    pub(crate) fn finish(&mut self, out: &mut Pieces) {
        if self.part == Part::Value && !self.text.is_empty() {
            let text = Value::from(self.text.trim_start_matches('\n')).to_string();
            self.argument(text.strip_suffix('"').unwrap_or(&text), out);
        }
    }

    /// Whether the call has ended; `None` if this is none.
    fn step(&mut self, out: &mut Pieces) -> Option<bool> {
        let tags = self.tags;
        let is_within = |text: &str, limit: usize| (text.len() <= limit).then_some(false);
        let opens = |text: &str, mark: &str| mark.starts_with(text) || text.starts_with(mark);
        match self.part {
            Part::Name => {
                let [open, close] = tags.name;
                if !opens(&self.text, open) {
                    return None;
                }
                let inside = self.text.strip_prefix(open).unwrap_or_default();
                let is_cut = open.is_empty() && inside.ends_with('<');
                let Some(name) = inside.strip_suffix(if is_cut { "<" } else { close }) else {
                    return is_within(&self.text, MAX_NAME_BYTES);
                };
                self.name = Some(name.trim()).filter(|name| is_name(name))?.to_owned();
                out.start(&self.name);
                self.raw.clear();
                self.next(Part::KeyOrEnd);
                self.text.push_str(if is_cut { "<" } else { "" });
            }
            Part::KeyOrEnd if self.text == tags.key[0] => self.next(Part::Key),
            Part::KeyOrEnd if self.text == tags.end => {
                self.close(out);
                return Some(true);
            }
            Part::KeyOrEnd => {
                let may_be = tags.key[0].starts_with(&self.text) || tags.end.starts_with(&self.text);
                return may_be.then_some(false);
            }
            Part::Key => match self.text.strip_suffix(tags.key[1]) {
                Some(key) => {
                    self.key = key.trim().to_owned();
                    self.next(if tags.value[0].is_empty() { Part::Value } else { Part::BeforeValue });
                }
                None => return is_within(&self.text, MAX_HELD_BYTES),
            },
            Part::BeforeValue if self.text == tags.value[0] => self.next(Part::Value),
            Part::BeforeValue => return tags.value[0].starts_with(&self.text).then_some(false),
            Part::Value => match self.text.strip_suffix(tags.value[1]) {
                Some(value) => {
                    let value = if tags.value[0].is_empty() { without_lines_around(value) } else { value };
                    let json = self.parameters.to_json(&self.name, &self.key, value);
                    self.argument(&json, out);
                    self.next(Part::KeyOrEnd);
                }
                None => return is_within(&self.text, MAX_ARGUMENT_BYTES),
            },
        }
        Some(false)
    }

    fn next(&mut self, part: Part) {
        self.part = part;
        self.text.clear();
    }

    fn argument(&mut self, json: &str, out: &mut Pieces) {
        out.arguments(if self.count == 0 { "{" } else { ", " });
        out.arguments(&Value::from(self.key.as_str()).to_string());
        out.arguments(": ");
        out.arguments(json);
        self.count += 1;
    }

    fn close(&self, out: &mut Pieces) {
        out.arguments(if self.count == 0 { "{}" } else { "}" });
    }
}

/// Values stand on lines of their own.
fn without_lines_around(value: &str) -> &str {
    let value = value.strip_prefix('\n').unwrap_or(value);
    value.strip_suffix('\n').unwrap_or(value)
}

/// A name and an object with bare keys.
#[derive(Debug, Clone)]
pub(crate) struct BareWordsCall {
    quote: &'static str,
    close: &'static str,
    has_name: bool,
    pub(crate) raw: String,
}

impl BareWordsCall {
    pub(crate) fn new(quote: &'static str, close: &'static str) -> BareWordsCall {
        BareWordsCall { quote, close, has_name: false, raw: String::new() }
    }

    pub(crate) fn has_started(&self) -> bool {
        self.has_name
    }

    pub(crate) fn read(&mut self, text: &str, out: &mut Pieces) -> Progress {
        for (at, character) in text.char_indices() {
            let after = at + character.len_utf8();
            if character == '{' && !self.has_name {
                if !is_name(self.raw.trim()) {
                    return Progress::Broken(at);
                }
                out.start(self.raw.trim());
                self.has_name = true;
                self.raw.clear();
            }
            self.raw.push(character);
            let limit = if self.has_name { MAX_ARGUMENT_BYTES } else { MAX_NAME_BYTES };
            if self.has_name && self.raw.ends_with(self.close) {
                self.raw.truncate(self.raw.len() - self.close.len());
                self.finish(out);
                return Progress::Ended(after);
            }
            if self.raw.len() > limit {
                self.finish(out);
                return Progress::Broken(after);
            }
        }
        Progress::Reading
    }

    /// Passes on the arguments, as JSON if they are whole.
    pub(crate) fn finish(&mut self, out: &mut Pieces) {
        if self.has_name {
            let raw = std::mem::take(&mut self.raw);
            out.arguments(&bare_words_to_json(&raw, self.quote).unwrap_or(raw));
        }
    }
}
