//! Parses answers made of messages, each with a header that names its channel and recipient.

use super::Pieces;
use super::parser::{Found, find};

const MESSAGE: &str = "<|message|>";
const CONSTRAIN: &str = "<|constrain|>";
/// What begins the header of another message.
const HEADERS: [&str; 2] = ["<|start|>", "<|channel|>"];
/// What ends a message.
const ENDS: [&str; 3] = ["<|end|>", "<|call|>", "<|return|>"];
/// What a header at the very beginning may begin with.
const BEGINNINGS: [&str; 4] = ["<|start|>", "<|channel|>", "to=", "assistant"];
const MAX_HEADER_BYTES: usize = 512;

/// Where in an answer we are.
#[derive(Debug, Clone)]
pub(super) enum Channels {
    /// In a header, after the role that the prompt or an opening names.
    Header,
    /// In a message of this kind.
    Message(MessageKind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageKind {
    Content,
    Reasoning,
    Call,
}

impl Default for Channels {
    /// The prompt ends with the opening of a header.
    fn default() -> Channels {
        Channels::Header
    }
}

impl Channels {
    /// Reads what it can and leaves the rest.
    pub(super) fn read(&mut self, held: &mut String, out: &mut Pieces) {
        while match self {
            Channels::Header => self.header(held, out),
            Channels::Message(kind) => {
                let kind = *kind;
                self.message(kind, held, out)
            }
        } {}
    }

    /// The end of the answer.
    pub(super) fn finish(&mut self, held: &str, out: &mut Pieces) {
        match self {
            Channels::Header if may_be_header(held) => out.content(strip(held).trim()),
            Channels::Header => out.content(held),
            Channels::Message(kind) => emit(*kind, held, out),
        }
    }

    fn header(&mut self, held: &mut String, out: &mut Pieces) -> bool {
        let end = held.find(MESSAGE);
        let length = end.unwrap_or(held.len());
        let fits = if end.is_some() { is_header } else { may_be_header };
        if !fits(&held[..length]) || length > MAX_HEADER_BYTES {
            // Whatever begins a header would begin it again.
            let mark = HEADERS.iter().find(|mark| held.starts_with(**mark)).map_or(0, |mark| mark.len());
            held.drain(..mark);
            *self = Channels::Message(MessageKind::Content);
            return true;
        }
        let Some(end) = end else { return false };
        let header: String = held.drain(..end + MESSAGE.len()).collect();
        let header = &header[..end];
        let recipient = header.split_once("to=").map(|(_, rest)| {
            let end = rest.find(|character: char| character.is_whitespace() || character == '<').unwrap_or(rest.len());
            &rest[..end]
        });
        let kind = match recipient {
            Some(name) if !name.is_empty() => {
                out.start(name.strip_prefix("functions.").unwrap_or(name));
                MessageKind::Call
            }
            _ if header.contains("analysis") => MessageKind::Reasoning,
            _ => MessageKind::Content,
        };
        *self = Channels::Message(kind);
        true
    }

    fn message(&mut self, kind: MessageKind, held: &mut String, out: &mut Pieces) -> bool {
        let marks: Vec<&'static str> = HEADERS.into_iter().chain(ENDS).chain([MESSAGE, CONSTRAIN]).collect();
        match find(held, &marks) {
            Found::At(at, mark) => {
                emit(kind, &held[..at], out);
                held.drain(..at + mark.len());
                if HEADERS.contains(&mark) {
                    held.insert_str(0, mark);
                    *self = Channels::Header;
                } else if ENDS.contains(&mark) {
                    // What follows without a header of its own is text.
                    *self = Channels::Message(MessageKind::Content);
                }
                true
            }
            Found::NotBefore(safe) => {
                emit(kind, &held[..safe], out);
                held.drain(..safe);
                false
            }
        }
    }
}

fn emit(kind: MessageKind, text: &str, out: &mut Pieces) {
    match kind {
        MessageKind::Content => out.content(text),
        MessageKind::Reasoning => out.reasoning(text),
        MessageKind::Call => out.arguments(text),
    }
}

fn is_header(text: &str) -> bool {
    BEGINNINGS.iter().any(|beginning| text.trim_start().starts_with(beginning))
}

/// Whether a text is a header or may become one.
fn may_be_header(text: &str) -> bool {
    is_header(text) || BEGINNINGS.iter().any(|beginning| beginning.starts_with(text.trim_start()))
}

/// A text without marks.
fn strip(text: &str) -> String {
    [HEADERS.as_slice(), &[CONSTRAIN]].concat().iter().fold(text.to_owned(), |text, mark| text.replace(mark, ""))
}
