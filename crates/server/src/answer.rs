//! An answer as the doors see it: what was said, how it ended, what it cost.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use cascadia_engine::FinishReason;
use cascadia_engine::service::{JobOutcome, NewToken, TokenChance, Update};

use crate::error::{ApiError, Kind};
use crate::jobs::Jobs;

/// A little more of an answer.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) choice: usize,
    pub(crate) text: String,
    /// The token it came with, and its chance where that was asked for.
    pub(crate) token: Option<(u32, TokenChance)>,
}

/// How an answer ended.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) finish: FinishReason,
    /// Which of the stop texts ended it.
    pub(crate) stop: Option<usize>,
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
pub(crate) enum Told {
    Said(Said),
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
    pub(crate) chances: Vec<(u32, TokenChance)>,
    pub(crate) end: End,
}

/// Tells what happens to a request's jobs, in order.
pub(crate) struct Teller {
    jobs: Jobs,
    usage: Usage,
    /// Answers to each prompt: the tokens of a prompt count once.
    choices: usize,
    open: usize,
    /// Told next, because one update may be several things to tell.
    next: VecDeque<Told>,
    over: bool,
}

impl Teller {
    pub(crate) fn new(jobs: Jobs, prompt_tokens: usize, choices: usize) -> Teller {
        let usage = Usage { prompt: prompt_tokens, ..Usage::default() };
        Teller { open: jobs.len(), jobs, usage, choices, next: VecDeque::new(), over: false }
    }

    /// Tokens of all prompts.
    pub(crate) fn prompt_tokens(&self) -> usize {
        self.usage.prompt
    }

    /// What to tell next; `None` when nothing follows.
    pub(crate) fn poll_told(&mut self, context: &mut Context<'_>) -> Poll<Option<Told>> {
        if self.over {
            return Poll::Ready(None);
        }
        let told = loop {
            if let Some(told) = self.next.pop_front() {
                break told;
            }
            if self.open == 0 {
                break Told::Done(self.usage);
            }
            match ready!(self.jobs.poll_next(context)) {
                Some((choice, update)) => self.take(choice, update),
                None => break Told::Failed(self.cut_off()),
            }
        };
        self.over = matches!(told, Told::Done(_) | Told::Failed(_));
        Poll::Ready(Some(told))
    }

    /// Waits for all answers.
    pub(crate) async fn whole(mut self) -> Result<(Vec<Answer>, Usage), ApiError> {
        let mut texts: Vec<(String, Vec<_>, Option<End>)> = (0..self.open).map(|_| Default::default()).collect();
        loop {
            match std::future::poll_fn(|context| self.poll_told(context)).await {
                Some(Told::Said(said)) => {
                    texts[said.choice].0.push_str(&said.text);
                    texts[said.choice].1.extend(said.token);
                }
                Some(Told::Ended { choice, end }) => texts[choice].2 = Some(end),
                Some(Told::Failed(error)) => return Err(error),
                Some(Told::Done(usage)) => {
                    let answers =
                        texts.into_iter().filter_map(|(text, chances, end)| Some(Answer { text, chances, end: end? }));
                    return Ok((answers.collect(), usage));
                }
                None => return Err(self.cut_off()),
            }
        }
    }

    fn take(&mut self, choice: usize, update: Update) {
        match update {
            Update::Started { .. } => {}
            Update::Token(NewToken { token, text, chance }) => {
                let token = chance.map(|chance| (token, chance));
                if !text.is_empty() || token.is_some() {
                    self.next.push_back(Told::Said(Said { choice, text, token }));
                }
            }
            Update::Finished(outcome) => self.finish(choice, outcome),
            Update::Failed(error) => self.next.push_back(Told::Failed(error.into())),
            // Only asked for by those who read the receiver themselves.
            Update::Embedded(_) => self.next.push_back(Told::Failed(self.cut_off())),
        }
    }

    fn finish(&mut self, choice: usize, outcome: JobOutcome) {
        let JobOutcome { finish, text, stop, reused_tokens, tokens, .. } = outcome;
        if choice.is_multiple_of(self.choices) {
            self.usage.reused += reused_tokens;
        }
        self.usage.answer += tokens;
        self.open -= 1;
        if !text.is_empty() {
            self.next.push_back(Told::Said(Said { choice, text, token: None }));
        }
        self.next.push_back(Told::Ended { choice, end: End { finish, stop } });
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
