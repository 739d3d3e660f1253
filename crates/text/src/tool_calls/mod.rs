//! Tool calls and reasoning, separated from the text of an answer while it streams.

mod arguments;
mod channels;
mod cut_off;
mod formats;
mod json_calls;
mod parser;
mod required;
mod tagged;

pub(crate) use cut_off::completed;
pub use formats::{ReasoningFormat, ToolCallFormat};
pub use parser::{AnswerFormat, AnswerParser};
pub use required::{RequiredCalls, ToolChoice};

/// Longest name of a tool or of one of its parameters.
pub(crate) const MAX_NAME_BYTES: usize = 256;
/// How much of a call is held back before its name is known.
pub(crate) const MAX_HELD_BYTES: usize = 16 << 10;
/// Longest single argument that has to be whole before it can be passed on.
pub(crate) const MAX_ARGUMENT_BYTES: usize = 1 << 20;

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text for the reader.
    Content(String),
    /// The reasoning of the model before its answer.
    Reasoning(String),
    /// A call begins. Its arguments follow before the next call begins.
    ToolStart {
        /// Position of the call in the answer, from 0.
        index: usize,
        /// The function to call.
        name: String,
    },
    /// More of the arguments of the call that began last. All fragments together are JSON, if the model wrote JSON.
    ToolArguments {
        /// Position of the call in the answer.
        index: usize,
        /// The next characters.
        fragment: String,
    },
}

/// Pieces to be returned, in which neighbours of one kind are joined.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pieces {
    pieces: Vec<Piece>,
    /// Calls that have begun in the whole answer.
    pub(crate) calls: usize,
}

impl Pieces {
    pub(crate) fn take(&mut self) -> Vec<Piece> {
        std::mem::take(&mut self.pieces)
    }

    pub(crate) fn content(&mut self, text: &str) {
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Content(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Content(text.to_owned())),
        }
    }

    pub(crate) fn reasoning(&mut self, text: &str) {
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Reasoning(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Reasoning(text.to_owned())),
        }
    }

    pub(crate) fn start(&mut self, name: &str) {
        self.pieces.push(Piece::ToolStart { index: self.calls, name: name.to_owned() });
        self.calls += 1;
    }

    /// More arguments of the call that began last.
    pub(crate) fn arguments(&mut self, text: &str) {
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::ToolArguments { fragment, .. }) => fragment.push_str(text),
            _ => {
                let index = self.calls.saturating_sub(1);
                self.pieces.push(Piece::ToolArguments { index, fragment: text.to_owned() });
            }
        }
    }
}

/// What became of the text that a reader of calls was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All of it is read, and the call continues.
    Reading,
    /// The call ended after this many bytes.
    Ended(usize),
    /// What starts at this byte is no call.
    Broken(usize),
}
