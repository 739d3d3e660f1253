//! Splits a streamed answer into text, reasoning and tool calls.

use serde_json::Value;

use super::arguments::Parameters;
use super::channels::Channels;
use super::formats::{CallFormat, List, ReasoningFormat, Shape, ToolCallFormat, is_control};
use super::json_calls::JsonCalls;
use super::tagged::{BareWordsCall, NamedCall, TaggedCall};
use super::{Piece, Pieces, Progress};

/// White space that is held back in case a call follows, which it would only separate from the text.
const MAX_HELD_SPACE: usize = 64;

/// How much text is looked at together: marks are searched in all of it for each mark that is found.
const STEP_BYTES: usize = 1 << 10;

/// The format of an answer, as far as it is known before it begins.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnswerFormat<'a> {
    /// How the model writes calls; `None` where it may not make any.
    pub calls: Option<ToolCallFormat>,
    /// How the model marks reasoning, if it does.
    pub reasoning: Option<ReasoningFormat>,
    /// The tools as the API has them, for the types of arguments that are written without them.
    pub tools: Option<&'a Value>,
    /// The prompt, or its end: it may already have opened the reasoning.
    pub prompt: &'a str,
}

/// Parses an answer while it streams.
///
/// Everything that the model writes comes out once, as text, reasoning or a tool call, without the markers between them.
/// Text that may become a marker is held back only that long, and what looks like a call but is not one is text. A call that
/// ends before the name of its function is nothing: its markers are not for readers.
#[derive(Debug, Clone)]
pub struct AnswerParser {
    calls: Option<&'static CallFormat>,
    reasoning: Option<ReasoningFormat>,
    parameters: Parameters,
    state: State,
    held: String,
    out: Pieces,
    /// Nothing but white space has come yet.
    fresh: bool,
    /// White space that comes now separates parts of the answer.
    trims: bool,
}

#[derive(Debug, Clone)]
enum State {
    Text,
    Reasoning,
    /// Behind this opening.
    Call(&'static str, Box<Reader>),
    AfterCall,
    Channels(Channels),
}

#[derive(Debug, Clone)]
enum Reader {
    Json(JsonCalls),
    Named(NamedCall),
    Tagged(TaggedCall),
    BareWords(BareWordsCall),
}

impl AnswerParser {
    /// A parser at the beginning of an answer.
    pub fn new(format: &AnswerFormat<'_>) -> AnswerParser {
        let calls = format.calls.map(|format| format.0);
        let begins_inside =
            format.reasoning.filter(|reasoning| format.prompt.trim_end().ends_with(reasoning.open.trim_end()));
        let state = match calls {
            Some(CallFormat { shape: Shape::Channels, .. }) => State::Channels(Channels::default()),
            _ if begins_inside.is_some() => State::Reasoning,
            _ => State::Text,
        };
        AnswerParser {
            calls,
            reasoning: format.reasoning,
            parameters: Parameters::new(format.tools),
            trims: matches!(state, State::Reasoning),
            state,
            held: String::new(),
            out: Pieces::default(),
            fresh: true,
        }
    }

    /// Takes the next text of the answer and returns what it completes.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        let mut rest = text;
        while !rest.is_empty() {
            let (step, after) = rest.split_at(rest.floor_char_boundary(STEP_BYTES));
            self.held.push_str(step);
            while self.advance() {}
            rest = after;
        }
        self.out.take()
    }

    /// The end of the answer: whatever was held back comes out.
    pub fn finish(&mut self) -> Vec<Piece> {
        let held = std::mem::take(&mut self.held);
        match std::mem::replace(&mut self.state, State::Text) {
            State::Reasoning => self.out.reasoning(held.trim_end()),
            State::Channels(mut channels) => channels.finish(&held, &mut self.out),
            State::Call(open, mut reader) => {
                reader.finish(&mut self.out);
                let raw = reader.take_raw();
                // Without a mark before it, it may be an answer in JSON.
                self.out.content(if open.is_empty() && !reader.has_started() { &raw } else { "" });
            }
            State::Text => {
                let held = self.without_cut_mark(&held).to_owned();
                let control = self.markers().into_iter().filter(|marker| is_control(marker));
                let held = control.fold(held, |text, marker| text.replace(marker, ""));
                self.out.content(if self.trims { held.trim_start() } else { &held });
            }
            State::AfterCall => {
                // Nearly always the mark that ends the call, or begins another.
                let is_cut = self.markers().iter().any(|marker| marker.starts_with(held.trim()));
                let held = if is_cut { "" } else { self.without_cut_mark(&held).trim() };
                self.out.content(held);
            }
        }
        self.out.take()
    }

    /// Does one thing with the text at hand; `false` when more of it is needed.
    fn advance(&mut self) -> bool {
        match std::mem::replace(&mut self.state, State::Text) {
            State::Channels(mut channels) => {
                channels.read(&mut self.held, &mut self.out);
                self.state = State::Channels(channels);
                false
            }
            State::Text => self.text(),
            State::Reasoning => self.reasoning(),
            State::Call(open, reader) => self.call(open, reader),
            State::AfterCall => self.after_call(),
        }
    }

    fn text(&mut self) -> bool {
        if self.trims || self.fresh {
            let start = self.held.trim_start();
            if self.is_bare() && start.starts_with('{') && self.fresh {
                self.held = start.to_owned();
                return self.begin_call("");
            }
            if start.is_empty() && self.held.len() <= MAX_HELD_SPACE {
                return false;
            }
            if self.trims {
                self.held = start.to_owned();
            }
        }
        match find(&self.held, &self.markers()) {
            Found::At(at, marker) => {
                self.emit_text(at, 0);
                self.held.drain(..marker.len());
                self.marker(marker)
            }
            Found::NotBefore(safe) => {
                let space = self.held[..safe].len() - self.held[..safe].trim_end().len();
                self.emit_text(safe, if space <= MAX_HELD_SPACE { space } else { 0 });
                false
            }
        }
    }

    /// Passes on the held text up to `end`, but for `kept` bytes at its end. In front of a mark, white space goes.
    fn emit_text(&mut self, end: usize, kept: usize) {
        let at_marker = kept == 0 && end < self.held.len();
        let text: String = self.held.drain(..end - kept).collect();
        let text = if at_marker { text.trim_end() } else { &text };
        if !text.is_empty() {
            (self.fresh, self.trims) = (false, false);
        }
        self.out.content(text);
    }

    fn marker(&mut self, marker: &'static str) -> bool {
        if self.calls.is_some_and(|format| format.open == marker) {
            return self.begin_call(marker);
        }
        let begins = self.reasoning.is_some_and(|format| format.open == marker);
        self.state = if begins { State::Reasoning } else { State::Text };
        self.trims = true;
        true
    }

    fn begin_call(&mut self, open: &'static str) -> bool {
        let Some(format) = self.calls else { return false };
        let reader = match &format.shape {
            Shape::Json { list, .. } => Reader::Json(JsonCalls::new(*list)),
            Shape::Named { separator, prefix } => Reader::Named(NamedCall::new(separator, prefix)),
            Shape::Tagged(tags) => Reader::Tagged(TaggedCall::new(*tags, self.parameters.clone())),
            Shape::BareWords { quote } => Reader::BareWords(BareWordsCall::new(quote, format.close)),
            Shape::Channels => return false,
        };
        self.fresh = false;
        self.state = State::Call(open, Box::new(reader));
        true
    }

    fn reasoning(&mut self) -> bool {
        let Some(format) = self.reasoning else { return false };
        if self.trims {
            self.held = self.held.trim_start().to_owned();
            self.trims = self.held.is_empty();
        }
        match find(&self.held, &[format.close]) {
            Found::At(at, marker) => {
                let reasoning: String = self.held.drain(..at + marker.len()).collect();
                self.out.reasoning(reasoning[..at].trim_end());
                self.trims = true;
                true
            }
            Found::NotBefore(safe) => {
                let space = self.held[..safe].len() - self.held[..safe].trim_end().len();
                let end = if space <= MAX_HELD_SPACE { safe - space } else { safe };
                let reasoning: String = self.held.drain(..end).collect();
                self.out.reasoning(&reasoning);
                self.state = State::Reasoning;
                false
            }
        }
    }

    fn call(&mut self, open: &'static str, mut reader: Box<Reader>) -> bool {
        let text = std::mem::take(&mut self.held);
        match reader.read(&text, &mut self.out) {
            Progress::Reading => {
                self.state = State::Call(open, reader);
                false
            }
            Progress::Ended(end) => {
                self.held = text[end..].to_owned();
                self.state = State::AfterCall;
                true
            }
            Progress::Broken(end) => {
                if !is_control(open) && !reader.has_started() {
                    self.out.content(open);
                }
                self.held = reader.take_raw() + &text[end..];
                self.trims = reader.has_started();
                true
            }
        }
    }

    /// Between calls there is white space, and marks that mean nothing more.
    fn after_call(&mut self) -> bool {
        let separators: &[char] = if self.is_bare() { &[';', ','] } else { &[] };
        let rest = self.held.trim_start_matches(|c: char| c.is_whitespace() || separators.contains(&c));
        self.held = rest.to_owned();
        match find(&self.held, &self.markers()) {
            _ if self.is_bare() && self.held.starts_with('{') => self.begin_call(""),
            Found::At(0, marker) => {
                self.held.drain(..marker.len());
                let means_nothing = self.calls.is_some_and(|format| format.open != marker)
                    && self.reasoning.is_none_or(|format| format.open != marker);
                if means_nothing {
                    self.state = State::AfterCall;
                    return true;
                }
                self.marker(marker)
            }
            Found::NotBefore(0) => {
                self.state = State::AfterCall;
                false
            }
            _ => true,
        }
    }

    /// A text without the beginning of a mark of calls at its end: the answer was cut off there. One sign alone is text.
    fn without_cut_mark<'a>(&self, text: &'a str) -> &'a str {
        let mark = self.calls.map_or("", |format| format.open);
        let beginnings = (2..mark.len()).rev().filter_map(|length| mark.get(..length));
        let cut = beginnings.into_iter().find(|beginning| text.ends_with(beginning));
        &text[..text.len() - cut.map_or(0, str::len)]
    }

    fn is_bare(&self) -> bool {
        matches!(self.calls, Some(CallFormat { shape: Shape::Json { list: List::Bare, .. }, .. }))
    }

    /// All that may interrupt text.
    fn markers(&self) -> Vec<&'static str> {
        let calls = self.calls.into_iter().flat_map(|format| {
            let around = [format.open, format.close, format.close.trim_start()].into_iter().chain(format.section);
            around.chain(format.fillers.iter().copied())
        });
        let reasoning = self.reasoning.into_iter().map(|format| format.open);
        calls.chain(reasoning).filter(|marker| !marker.is_empty()).collect()
    }
}

impl Reader {
    fn read(&mut self, text: &str, out: &mut Pieces) -> Progress {
        match self {
            Reader::Json(calls) => calls.read(text, out),
            Reader::Named(call) => call.read(text, out),
            Reader::Tagged(call) => call.read(text, out),
            Reader::BareWords(call) => call.read(text, out),
        }
    }

    fn finish(&mut self, out: &mut Pieces) {
        match self {
            Reader::Json(calls) => calls.finish(out),
            Reader::Tagged(call) => call.finish(out),
            Reader::BareWords(call) => call.finish(out),
            Reader::Named(_) => {}
        }
    }

    /// Whether part of this call is already out.
    fn has_started(&self) -> bool {
        match self {
            Reader::Json(calls) => calls.has_started(),
            Reader::Named(call) => call.has_started(),
            Reader::Tagged(call) => call.has_started(),
            Reader::BareWords(call) => call.has_started(),
        }
    }

    /// What was read and did not become part of a call.
    fn take_raw(&mut self) -> String {
        std::mem::take(match self {
            Reader::Json(calls) => &mut calls.raw,
            Reader::Named(call) => &mut call.raw,
            Reader::Tagged(call) => &mut call.raw,
            Reader::BareWords(call) => &mut call.raw,
        })
    }
}

/// Where the next marker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    At(usize, &'static str),
    /// Up to here there is none, and none begins.
    NotBefore(usize),
}

/// The first of some markers in a text; of those that begin together, the longest.
pub(super) fn find(text: &str, markers: &[&'static str]) -> Found {
    let found = markers.iter().filter_map(|marker| Some((text.find(marker)?, *marker)));
    let first = found.min_by_key(|(at, marker)| (*at, usize::MAX - marker.len()));
    let longest = markers.iter().map(|marker| marker.len()).max().unwrap_or(0);
    let may_grow = |rest: &str| markers.iter().any(|marker| marker.len() > rest.len() && marker.starts_with(rest));
    let ends = text.char_indices().map(|(at, _)| at).filter(|at| text.len() - at < longest);
    let open = ends.into_iter().find(|&at| may_grow(&text[at..])).unwrap_or(text.len());
    match first {
        Some((at, marker)) if at < open => Found::At(at, marker),
        _ => Found::NotBefore(open),
    }
}
