//! A request for text and what comes back while it runs.

use crate::service::{Generation, NewToken};

/// What to generate.
#[derive(Clone, Debug)]
pub struct Request {
    /// The whole prompt; the part that the session already holds is not computed again.
    pub prompt: Vec<u32>,
    /// How it is answered.
    pub generation: Generation,
    /// The most draft tokens of a step; zero turns speculation off, which changes the speed and no token.
    pub draft_tokens: u32,
}

/// Something that happened while a request runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// Part of the prompt is computed.
    Prompt {
        /// Tokens of the prompt done so far, reused ones included.
        done: usize,
        /// Tokens of the whole prompt.
        total: usize,
    },
    /// The answer has one more token.
    Token(&'a NewToken),
    /// The answer has ended, and this text was held back until now.
    Rest(&'a str),
}

impl Event<'_> {
    /// More of the answer: whole characters, never part of a stop text.
    pub fn text(&self) -> &str {
        match self {
            Event::Prompt { .. } => "",
            Event::Token(token) => &token.text,
            Event::Rest(text) => text,
        }
    }
}

/// What the receiver of an event wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Continue.
    Continue,
    /// End the request here; what was produced stays valid.
    Stop,
}

/// Receives the events of a request, in order.
pub type Sink<'a> = dyn FnMut(Event<'_>) -> Flow + 'a;

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it, or a stop text did.
    Stop,
    /// The most tokens asked for were produced, or the context is full.
    Length,
    /// The receiver asked to stop.
    Cancelled,
    /// Its time was over.
    Deadline,
}

impl FinishReason {
    /// The word used in machine-readable output.
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Cancelled => "cancelled",
            FinishReason::Deadline => "deadline",
        }
    }
}

/// How a request went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Why it ended.
    pub finish: FinishReason,
    /// The generated tokens; a token that ended the answer is not among them.
    pub tokens: Vec<u32>,
    /// What it cost.
    pub stats: Stats,
}

/// What a request cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt whose cache was still there.
    pub reused_tokens: usize,
    /// Time from the request to the logits after the prompt.
    pub prefill_seconds: f64,
    /// Tokens after the first.
    pub decoded_tokens: usize,
    /// Time those took, sampling included.
    pub decode_seconds: f64,
}

impl Stats {
    /// Prompt tokens computed per second; 0 when none were.
    pub fn prefill_rate(&self) -> f64 {
        rate(self.prompt_tokens.saturating_sub(self.reused_tokens), self.prefill_seconds)
    }

    /// Tokens generated per second after the first; 0 when there were none.
    pub fn decode_rate(&self) -> f64 {
        rate(self.decoded_tokens, self.decode_seconds)
    }
}

fn rate(count: usize, seconds: f64) -> f64 {
    if count > 0 && seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}
