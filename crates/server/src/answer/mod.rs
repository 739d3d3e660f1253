//! An answer as protocols see it: what the model generated, how it ended, what it cost.

pub(crate) mod answer_stream;
pub(crate) mod event_stream;
pub(crate) mod jobs;
pub(crate) mod resume;
pub(crate) mod resume_log;
pub(crate) mod segments;
pub(crate) mod vectors;

use std::time::Duration;

use cascadia_engine::FinishReason;
use cascadia_engine::service::TokenLogprobs;
use cascadia_text::Piece;

use crate::error::ApiError;

/// What a small object of JSON takes, such as a log-probability with the name of its token.
const OBJECT_BYTES: usize = 1 << 10;

/// A token of an answer with its log-probability and those of its alternatives.
pub(crate) type TokenLogprob = (u32, TokenLogprobs);

/// A little more of an answer.
#[derive(Debug)]
pub(crate) struct Delta {
    pub(crate) choice: usize,
    /// Text, reasoning and tool calls; possibly none yet.
    pub(crate) pieces: Vec<Piece>,
    /// The token it came with, where log-probabilities were asked for.
    pub(crate) logprob: Option<TokenLogprob>,
}

impl Delta {
    /// What it takes, about, while its answer is collected and written: text is copied once, and calls and log-probabilities
    /// are objects.
    fn bytes_as_json(&self) -> usize {
        let text = |piece: &Piece| match piece {
            Piece::Content(text) | Piece::Reasoning(text) | Piece::ToolArguments { fragment: text, .. } => {
                2 * text.len()
            }
            Piece::ToolStart { name, .. } => OBJECT_BYTES + name.len(),
        };
        let objects = self.logprob.as_ref().map_or(0, |(_, logprobs)| 1 + logprobs.alternatives.len());
        self.pieces.iter().map(text).sum::<usize>() + objects * OBJECT_BYTES
    }
}

/// How an answer ended.
#[derive(Clone, Debug)]
pub(crate) struct AnswerEnd {
    pub(crate) finish: FinishReason,
    /// Which of the stop strings ended it.
    pub(crate) stop: Option<usize>,
    /// Functions it called.
    pub(crate) tool_calls: usize,
    /// The token that ended it and is no part of it, where log-probabilities were asked for.
    pub(crate) token: Option<TokenLogprob>,
}

impl AnswerEnd {
    /// Whether the model waits for the results of functions.
    pub(crate) fn awaits_tools(&self) -> bool {
        self.tool_calls > 0 && self.finish == FinishReason::Stop
    }
}

/// Tokens of a whole request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) prompt: usize,
    /// Of those, tokens found in the prefix cache.
    pub(crate) cached: usize,
    pub(crate) generated: usize,
    /// From the start of the first prompt to its first token, or to its end.
    pub(crate) prompt_time: Duration,
    /// From then to the end of the last answer.
    pub(crate) answer_time: Duration,
}

/// What happens to the answers of a request.
#[derive(Debug)]
pub(crate) enum AnswerEvent {
    /// How likely the tokens of its prompt are, from the second on.
    Scored {
        choice: usize,
        scores: Vec<TokenLogprobs>,
    },
    Delta(Delta),
    Ended {
        choice: usize,
        end: AnswerEnd,
    },
    /// All answers have ended; nothing follows.
    Done(Usage),
    /// Nothing follows.
    Failed(ApiError),
}

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) tool_calls: Vec<ToolCall>,
    pub(crate) logprobs: Vec<TokenLogprob>,
    /// How likely the tokens of its prompt are, from the second on, where that was asked for.
    pub(crate) scores: Vec<TokenLogprobs>,
    pub(crate) end: AnswerEnd,
}

/// A call of a function.
#[derive(Debug)]
pub(crate) struct ToolCall {
    pub(crate) name: String,
    /// JSON, if the model wrote JSON.
    pub(crate) arguments: String,
}

impl Answer {
    fn empty() -> Answer {
        Answer {
            text: String::new(),
            reasoning: String::new(),
            tool_calls: Vec::new(),
            logprobs: Vec::new(),
            scores: Vec::new(),
            end: AnswerEnd { finish: FinishReason::Stop, stop: None, tool_calls: 0, token: None },
        }
    }

    fn add(&mut self, piece: Piece) {
        match piece {
            Piece::Content(text) => self.text.push_str(&text),
            Piece::Reasoning(text) => self.reasoning.push_str(&text),
            Piece::ToolStart { name, .. } => self.tool_calls.push(ToolCall { name, arguments: String::new() }),
            Piece::ToolArguments { fragment, .. } => {
                if let Some(call) = self.tool_calls.last_mut() {
                    call.arguments.push_str(&fragment);
                }
            }
        }
    }
}
