//! The answers of a request as a stream of events, made from the updates of its jobs.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use cascadia_engine::FinishReason;
use cascadia_engine::service::{JobOutcome, NewToken, Update};
use cascadia_text::{AnswerParser, Piece};

use super::jobs::{JobNumbers, Jobs};
use super::{Answer, AnswerEnd, AnswerEvent, Delta, Usage};
use crate::error::{ApiError, ErrorKind};
use crate::http::client_memory::MemoryShare;

/// What happens to a request's answers, in order.
pub(crate) struct AnswerStream {
    jobs: Jobs,
    usage: Usage,
    /// Answers to each prompt: the tokens of a prompt count once.
    choices: usize,
    parsers: Vec<ChoiceParser>,
    unfinished: usize,
    /// Events to come next, because one update may cause several.
    events: VecDeque<AnswerEvent>,
    is_over: bool,
    /// Tokens that were not known from before.
    generated: u64,
    started: Option<Instant>,
    first_token: Option<Instant>,
}

/// Separates reasoning and tool calls from the text of one answer.
pub(crate) struct ChoiceParser {
    /// `None` for a text that is continued, which is text throughout.
    parser: Option<AnswerParser>,
    /// It ends with its first call.
    one_call: bool,
    /// Functions called so far.
    tool_calls: usize,
    /// It has ended before its job.
    is_over: bool,
}

impl AnswerStream {
    /// Follows jobs; `parsers` has one entry for each.
    pub(crate) fn new(jobs: Jobs, parsers: Vec<ChoiceParser>, prompt_tokens: usize, choices: usize) -> AnswerStream {
        AnswerStream {
            unfinished: jobs.len(),
            jobs,
            usage: Usage { prompt: prompt_tokens, ..Usage::default() },
            choices,
            parsers,
            events: VecDeque::new(),
            is_over: false,
            generated: 0,
            started: None,
            first_token: None,
        }
    }

    /// The numbers of its jobs.
    pub(crate) fn job_numbers(&self) -> JobNumbers {
        self.jobs.numbers()
    }

    /// Tokens of all prompts.
    pub(crate) fn prompt_tokens(&self) -> usize {
        self.usage.prompt
    }

    /// Tokens generated for it so far.
    pub(crate) fn generated(&self) -> u64 {
        self.generated
    }

    /// The next event; `None` after the last.
    pub(crate) fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<AnswerEvent>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let event = loop {
            if let Some(event) = self.events.pop_front() {
                break event;
            }
            if self.unfinished == 0 {
                break AnswerEvent::Done(self.timed_usage());
            }
            match ready!(self.jobs.updates.poll_next(context)) {
                Some((choice, update)) => self.handle(choice, update),
                None => break AnswerEvent::Failed(self.cut_off()),
            }
        };
        self.is_over = matches!(event, AnswerEvent::Done(_) | AnswerEvent::Failed(_));
        Poll::Ready(Some(event))
    }

    /// Waits for all answers, whose bytes are counted as they come.
    pub(crate) async fn collect(mut self, memory: &mut MemoryShare) -> Result<(Vec<Answer>, Usage), ApiError> {
        let mut answers: Vec<Answer> = (0..self.unfinished).map(|_| Answer::empty()).collect();
        let mut bytes = 0;
        loop {
            match std::future::poll_fn(|context| self.poll_event(context)).await {
                Some(AnswerEvent::Delta(delta)) => {
                    bytes += delta.bytes_as_json();
                    memory.reach(bytes)?;
                    let answer = &mut answers[delta.choice];
                    delta.pieces.into_iter().for_each(|piece| answer.add(piece));
                    answer.logprobs.extend(delta.logprob);
                }
                Some(AnswerEvent::Scored { choice, scores }) => answers[choice].scores = scores,
                Some(AnswerEvent::Ended { choice, end }) => answers[choice].end = end,
                Some(AnswerEvent::Failed(error)) => return Err(error),
                Some(AnswerEvent::Done(usage)) => return Ok((answers, usage)),
                None => return Err(self.cut_off()),
            }
        }
    }

    /// The usage with the time that prompts and answers took until now.
    fn timed_usage(&self) -> Usage {
        let now = Instant::now();
        let first = self.first_token.unwrap_or(now);
        Usage { prompt_time: first - self.started.unwrap_or(first), answer_time: now - first, ..self.usage }
    }

    fn handle(&mut self, choice: usize, update: Update) {
        match update {
            Update::Started { known, .. } => {
                self.started.get_or_insert_with(Instant::now);
                known.into_iter().for_each(|token| self.add_token(choice, token));
            }
            Update::Scored(scores) => self.events.push_back(AnswerEvent::Scored { choice, scores }),
            Update::Token(token) => {
                self.first_token.get_or_insert_with(Instant::now);
                self.generated += 1;
                self.add_token(choice, token);
            }
            Update::Finished(outcome) => self.finish(choice, outcome),
            Update::Failed(error) => self.events.push_back(AnswerEvent::Failed(error.into())),
            // Only jobs without an answer are embedded.
            Update::Embedded(_) => self.events.push_back(AnswerEvent::Failed(self.cut_off())),
        }
    }

    fn add_token(&mut self, choice: usize, NewToken { token, text, logprobs }: NewToken) {
        let parser = &mut self.parsers[choice];
        if parser.is_over {
            return;
        }
        let logprob = logprobs.map(|logprobs| (token, logprobs));
        let pieces = parser.push(text);
        if parser.is_over {
            self.jobs.cancel(choice);
        }
        self.add(Delta { choice, pieces, logprob });
    }

    fn finish(&mut self, choice: usize, outcome: JobOutcome) {
        let JobOutcome { finish, text, stop, reused_tokens, tokens, end_token, .. } = outcome;
        if choice.is_multiple_of(self.choices) {
            self.usage.cached += reused_tokens;
        }
        self.usage.generated += tokens;
        self.unfinished -= 1;
        let parser = &mut self.parsers[choice];
        let mut pieces = parser.push(text);
        pieces.extend(parser.finish());
        let finish = if parser.is_over { FinishReason::Stop } else { finish };
        let end = AnswerEnd { finish, stop, tool_calls: parser.tool_calls, token: end_token };
        self.add(Delta { choice, pieces, logprob: None });
        self.events.push_back(AnswerEvent::Ended { choice, end });
        if let Err(error) = self.jobs.ended() {
            self.events.push_back(AnswerEvent::Failed(error.into()));
        }
    }

    /// Adds a delta unless it is empty.
    fn add(&mut self, delta: Delta) {
        if !delta.pieces.is_empty() || delta.logprob.is_some() {
            self.events.push_back(AnswerEvent::Delta(delta));
        }
    }

    /// Why no more updates come although an answer is missing.
    fn cut_off(&self) -> ApiError {
        if self.jobs.updates.overflowed() {
            let message = "the client read too slowly and the answer was dropped; read faster, or do not stream";
            return ApiError::new(ErrorKind::Slow, message);
        }
        ApiError::new(ErrorKind::Internal, "the answer ended before it was complete; see the server's log")
    }
}

impl ChoiceParser {
    /// A parser at the beginning of an answer.
    pub(crate) fn new(parser: Option<AnswerParser>, one_call: bool) -> ChoiceParser {
        ChoiceParser { parser, one_call, tool_calls: 0, is_over: false }
    }

    /// The pieces that more text completes.
    fn push(&mut self, text: String) -> Vec<Piece> {
        let pieces = match &mut self.parser {
            Some(parser) => parser.push(&text),
            None if text.is_empty() => Vec::new(),
            None => vec![Piece::Content(text)],
        };
        self.count(pieces)
    }

    /// What was held back until the end.
    fn finish(&mut self) -> Vec<Piece> {
        let pieces = self.parser.as_mut().map(AnswerParser::finish).unwrap_or_default();
        self.count(pieces)
    }

    fn count(&mut self, mut pieces: Vec<Piece>) -> Vec<Piece> {
        if self.is_over {
            return Vec::new();
        }
        let is_one_more = |piece: &Piece| self.one_call && matches!(piece, Piece::ToolStart { index: 1.., .. });
        if let Some(at) = pieces.iter().position(is_one_more) {
            pieces.truncate(at);
            self.is_over = true;
        }
        self.tool_calls += pieces.iter().filter(|piece| matches!(piece, Piece::ToolStart { .. })).count();
        pieces
    }
}
