//! An answer as the doors see it: what was said, how it ended, what it cost.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use cascadia_engine::FinishReason;
use cascadia_engine::service::{JobOutcome, NewToken, TokenLogprobs, Update};
use cascadia_text::{AnswerParser, Piece};

use crate::error::{ApiError, Kind};
use crate::jobs::Jobs;

/// A little more of an answer.
#[derive(Debug)]
pub(crate) struct Delta {
    pub(crate) choice: usize,
    /// Text, thoughts and calls; possibly none yet.
    pub(crate) pieces: Vec<Piece>,
    /// The token it came with, and its chance where that was asked for.
    pub(crate) token: Option<(u32, TokenLogprobs)>,
}

/// How an answer ended.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) finish: FinishReason,
    /// Which of the stop texts ended it.
    pub(crate) stop: Option<usize>,
    /// Functions it called.
    pub(crate) calls: usize,
}

impl End {
    /// Whether the model waits for what the functions say.
    pub(crate) fn calls_functions(&self) -> bool {
        self.calls > 0 && self.finish == FinishReason::Stop
    }
}

/// Tokens of a whole request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) prompt: usize,
    /// Of those, tokens whose cache was still there.
    pub(crate) reused: usize,
    pub(crate) answer: usize,
}

/// Something to tell the client.
#[derive(Debug)]
pub(crate) enum AnswerEvent {
    Delta(Delta),
    Ended {
        choice: usize,
        end: End,
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
    pub(crate) thoughts: String,
    pub(crate) calls: Vec<Call>,
    pub(crate) chances: Vec<(u32, TokenLogprobs)>,
    pub(crate) end: End,
}

/// A call of a function.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// JSON, if the model wrote JSON.
    pub(crate) arguments: String,
}

impl Answer {
    fn empty() -> Answer {
        let end = End { finish: FinishReason::Stop, stop: None, calls: 0 };
        Answer { text: String::new(), thoughts: String::new(), calls: Vec::new(), chances: Vec::new(), end }
    }

    fn add(&mut self, piece: Piece) {
        match piece {
            Piece::Content(text) => self.text.push_str(&text),
            Piece::Reasoning(text) => self.thoughts.push_str(&text),
            Piece::ToolStart { name, .. } => self.calls.push(Call { name, arguments: String::new() }),
            Piece::ToolArguments { fragment, .. } => {
                if let Some(call) = self.calls.last_mut() {
                    call.arguments.push_str(&fragment);
                }
            }
        }
    }
}

/// Tells what happens to a request's jobs, in order.
pub(crate) struct AnswerStream {
    jobs: Jobs,
    usage: Usage,
    /// Answers to each prompt: the tokens of a prompt count once.
    choices: usize,
    /// Who reads thoughts and calls out of each answer, and the calls so far.
    readers: Vec<(Option<AnswerParser>, usize)>,
    open: usize,
    /// AnswerEvent next, because one update may be several things to tell.
    next: VecDeque<AnswerEvent>,
    over: bool,
    /// Tokens that were not known from before.
    drawn: u64,
}

impl AnswerStream {
    /// Tells of jobs; `readers` has one entry for each.
    pub(crate) fn new(
        jobs: Jobs,
        readers: Vec<Option<AnswerParser>>,
        prompt_tokens: usize,
        choices: usize,
    ) -> AnswerStream {
        let usage = Usage { prompt: prompt_tokens, ..Usage::default() };
        let readers = readers.into_iter().map(|reader| (reader, 0)).collect();
        AnswerStream { open: jobs.len(), jobs, usage, choices, readers, next: VecDeque::new(), over: false, drawn: 0 }
    }

    /// Tokens of all prompts.
    pub(crate) fn prompt_tokens(&self) -> usize {
        self.usage.prompt
    }

    /// Tokens that the model has drawn for it so far.
    pub(crate) fn drawn(&self) -> u64 {
        self.drawn
    }

    /// What to tell next; `None` when nothing follows.
    pub(crate) fn poll_told(&mut self, context: &mut Context<'_>) -> Poll<Option<AnswerEvent>> {
        if self.over {
            return Poll::Ready(None);
        }
        let told = loop {
            if let Some(told) = self.next.pop_front() {
                break told;
            }
            if self.open == 0 {
                break AnswerEvent::Done(self.usage);
            }
            match ready!(self.jobs.poll_next(context)) {
                Some((choice, update)) => self.take(choice, update),
                None => break AnswerEvent::Failed(self.cut_off()),
            }
        };
        self.over = matches!(told, AnswerEvent::Done(_) | AnswerEvent::Failed(_));
        Poll::Ready(Some(told))
    }

    /// Waits for all answers.
    pub(crate) async fn whole(mut self) -> Result<(Vec<Answer>, Usage), ApiError> {
        let mut answers: Vec<Answer> = (0..self.open).map(|_| Answer::empty()).collect();
        loop {
            match std::future::poll_fn(|context| self.poll_told(context)).await {
                Some(AnswerEvent::Delta(said)) => {
                    let answer = &mut answers[said.choice];
                    said.pieces.into_iter().for_each(|piece| answer.add(piece));
                    answer.chances.extend(said.token);
                }
                Some(AnswerEvent::Ended { choice, end }) => answers[choice].end = end,
                Some(AnswerEvent::Failed(error)) => return Err(error),
                Some(AnswerEvent::Done(usage)) => return Ok((answers, usage)),
                None => return Err(self.cut_off()),
            }
        }
    }

    fn take(&mut self, choice: usize, update: Update) {
        match update {
            Update::Started { known, .. } => known.into_iter().for_each(|token| self.tell(choice, token)),
            Update::Token(token) => {
                self.drawn += 1;
                self.tell(choice, token);
            }
            Update::Finished(outcome) => self.finish(choice, outcome),
            Update::Failed(error) => self.next.push_back(AnswerEvent::Failed(error.into())),
            // Only asked for by those who read the jobs themselves.
            Update::Embedded(_) => self.next.push_back(AnswerEvent::Failed(self.cut_off())),
        }
    }

    fn tell(&mut self, choice: usize, NewToken { token, text, logprobs }: NewToken) {
        let token = logprobs.map(|logprobs| (token, logprobs));
        let pieces = self.read(choice, text);
        self.say(Delta { choice, pieces, token });
    }

    fn finish(&mut self, choice: usize, outcome: JobOutcome) {
        let JobOutcome { finish, text, stop, reused_tokens, tokens, .. } = outcome;
        if choice.is_multiple_of(self.choices) {
            self.usage.reused += reused_tokens;
        }
        self.usage.answer += tokens;
        self.open -= 1;
        let mut pieces = self.read(choice, text);
        let (reader, calls) = &mut self.readers[choice];
        let held = reader.as_mut().map(AnswerParser::finish).unwrap_or_default();
        *calls += starts(&held);
        let end = End { finish, stop, calls: *calls };
        pieces.extend(held);
        self.say(Delta { choice, pieces, token: None });
        self.next.push_back(AnswerEvent::Ended { choice, end });
    }

    /// The parts of an answer that its next text completes.
    fn read(&mut self, choice: usize, text: String) -> Vec<Piece> {
        let (reader, calls) = &mut self.readers[choice];
        let pieces = match reader {
            Some(reader) => reader.push(&text),
            None if text.is_empty() => Vec::new(),
            None => vec![Piece::Content(text)],
        };
        *calls += starts(&pieces);
        pieces
    }

    fn say(&mut self, said: Delta) {
        if !said.pieces.is_empty() || said.token.is_some() {
            self.next.push_back(AnswerEvent::Delta(said));
        }
    }

    /// Why nothing comes any more although an answer is missing.
    fn cut_off(&self) -> ApiError {
        if self.jobs.overflowed() {
            let message = "the answer was read too slowly and has been given up; read faster, or do not stream it";
            return ApiError::new(Kind::Slow, message);
        }
        ApiError::new(Kind::Internal, "the answer ended before it was complete; the server's log says why")
    }
}

fn starts(pieces: &[Piece]) -> usize {
    pieces.iter().filter(|piece| matches!(piece, Piece::ToolStart { .. })).count()
}
