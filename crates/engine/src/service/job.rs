//! A job for the service: what to compute, for whom, and where the answer goes.

use std::time::Instant;

use cascadia_text::{Constraint, KeptTokens};

use crate::{AdapterHandle, EngineError, FinishReason, Flow, Sampling};

/// One piece of work. Its tokens depend on `prompt`, `task` and `adapter` alone, never on what else the service does.
pub struct Job {
    /// The whole prompt; what the cache already holds of it is not computed again.
    pub prompt: Vec<u32>,
    /// What to do with it.
    pub task: Task,
    /// For whom; decides fair shares and which cached prefixes may be used.
    pub tenant: Tenant,
    /// What changes the model's weights for it; where it is none, the one that the model was opened with, if any.
    pub adapter: Option<AdapterHandle>,
    /// How urgent it is among the jobs of its tenant and of others.
    pub priority: Priority,
    /// When nobody waits for the answer any more; it then ends with [`FinishReason::Deadline`].
    pub deadline: Option<Instant>,
    /// Receives everything that happens to the job.
    pub sink: JobSink,
}

/// Receives the updates of a job, in order, on the service's own thread: it must not block. [`Flow::Stop`] cancels.
pub type JobSink = Box<dyn FnMut(Update) -> Flow + Send>;

/// Numbers jobs of one service in the order of their arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// What is computed for a prompt.
pub enum Task {
    /// An answer.
    Generate(Generation),
    /// How likely the tokens of the prompt are, then an answer.
    Score(Score),
    /// Its embedding, or what the model says of it where it was trained for that: of one text, or of two.
    Embed {
        /// Where the second text begins, for models that tell texts apart.
        second_text: Option<u32>,
    },
}

/// What is reported of a prompt, and what follows.
#[derive(Clone, Debug)]
pub struct Score {
    /// Report so many of the most likely tokens in the place of each.
    pub alternatives: u32,
    /// The answer.
    pub generation: Generation,
}

/// How an answer is generated.
#[derive(Clone, Debug)]
pub struct Generation {
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// The most tokens to generate.
    pub max_tokens: u32,
    /// Texts that end the answer; none of them is part of it.
    pub stop: Vec<String>,
    /// Tokens that end the answer; none of them is part of it.
    pub stop_tokens: Vec<u32>,
    /// So many tokens come before one may end the answer. Not kept where a constraint leaves no other.
    pub min_tokens: u32,
    /// Report the log probability of every token, and of this many of the most likely ones in its place.
    pub alternatives: Option<u32>,
    /// What the answer must look like.
    pub constraint: Option<Box<Constraint>>,
    /// Control tokens that appear by name in the text, for a reader that takes them out again.
    pub kept_tokens: KeptTokens,
    /// Tokens that the answer begins with, known from an earlier run of the same job. They are computed like a prompt and
    /// reported at once. They are ignored where they cannot be of this answer, and where log probabilities are asked
    /// for, which need logits: the answer is then sampled from its beginning.
    pub known: Vec<u32>,
}

impl Generation {
    /// An answer of so many tokens at most, with nothing else asked for.
    pub fn new(sampling: Sampling, max_tokens: u32) -> Generation {
        Generation {
            sampling,
            max_tokens,
            stop: Vec::new(),
            stop_tokens: Vec::new(),
            min_tokens: 0,
            alternatives: None,
            constraint: None,
            kept_tokens: KeptTokens::default(),
            known: Vec::new(),
        }
    }
}

/// Whom a job belongs to. Tenants share the machine fairly, and never each other's cached prefixes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(pub u64);

/// How urgent a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// After all others.
    Low,
    /// The usual.
    #[default]
    Normal,
    /// Before all others.
    High,
}

/// Something that happened to a job.
#[derive(Debug)]
pub enum Update {
    /// It left the queue.
    Started {
        /// Tokens of the prompt whose cache was still there.
        reused_tokens: usize,
        /// The tokens of the answer that are known from an earlier run.
        known: Vec<NewToken>,
    },
    /// How likely the tokens of the prompt are, from its second on: nothing precedes the first. Comes before any token
    /// that is sampled.
    Scored(Vec<TokenLogprobs>),
    /// The answer has one more token.
    Token(NewToken),
    /// The answer is complete; nothing follows.
    Finished(JobOutcome),
    /// The embedding of the prompt, or what the model says of it; nothing follows.
    Embedded(Vec<f32>),
    /// It could not be done; nothing follows.
    Failed(EngineError),
}

/// One token of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct NewToken {
    /// The token.
    pub token: u32,
    /// Text that may be shown now: whole characters, never part of a stop text, possibly none.
    pub text: String,
    /// Its log probability, where that was asked for.
    pub logprobs: Option<TokenLogprobs>,
}

/// How likely a token was, before penalties, temperature and filters.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// Natural logarithm of its probability.
    pub log_probability: f32,
    /// The most likely tokens in its place, best first.
    pub alternatives: Vec<Alternative>,
}

/// A token that was possible.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alternative {
    /// The token.
    pub token: u32,
    /// Natural logarithm of its probability.
    pub log_probability: f32,
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq)]
pub struct JobOutcome {
    /// Why it ended.
    pub finish: FinishReason,
    /// Text that was held back until now.
    pub text: String,
    /// Which of the stop texts ended it.
    pub stop: Option<usize>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt whose cache was still there.
    pub reused_tokens: usize,
    /// Tokens of the answer; one that ended it is not counted.
    pub tokens: usize,
    /// The token that ended it and is no part of it, where log probabilities are asked for.
    pub end_token: Option<(u32, TokenLogprobs)>,
}
