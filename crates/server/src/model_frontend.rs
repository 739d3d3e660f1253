//! From a checked request to jobs: the model's name, its text side, and the way into the service.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cascadia_engine::ModelText;
use cascadia_engine::service::{Generation, Job, Priority, ServiceHandle, Task, Tenant};
use cascadia_text::{AnswerParser, ChatTemplate, Conversation, KeptTokens, OutputFormat, Prompt, TemplateLimits};
use serde_json::Value;

use crate::answer::AnswerStream;
use crate::calls::ReplyFormat;
use crate::error::{ApiError, Kind};
use crate::jobs::Jobs;
use crate::metrics::Metrics;
use crate::output_format::OutputConstraints;
use crate::queue;
use crate::resume_log::Recorder;
use crate::validate::{Chat, Source, ValidRequest, shortened};

/// A model that is ready to be served.
pub struct ServedModel {
    /// What clients call it.
    pub name: String,
    /// Its text side.
    pub text: Arc<ModelText>,
    /// Where its jobs go.
    pub service: ServiceHandle,
    /// Jobs that may wait there.
    pub queue: usize,
    /// What it is, in words, for those who ask.
    pub details: ModelDetails,
}

/// Facts about a model that clients like to show.
#[derive(Clone, Debug, Default)]
pub struct ModelDetails {
    /// The architecture.
    pub family: String,
    /// Bytes of its files.
    pub bytes: u64,
    /// Numbers in its weights.
    pub parameters: u64,
    /// The number format of most weights.
    pub format: String,
    /// What tells it from every model that may give other tokens.
    pub digest: String,
}

/// For whom a job is, and what its key allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) tenant: Tenant,
    /// The priority of its jobs; a request may lower it, and raise it where there are no keys.
    pub(crate) priority: Priority,
    pub(crate) may_raise: bool,
    /// The most tokens of one answer.
    pub(crate) max_tokens: Option<u32>,
}

/// Takes requests and makes jobs of them.
pub(crate) struct ModelFrontend {
    pub(crate) model: ServedModel,
    pub(crate) metrics: Arc<Metrics>,
    /// When the model was first served, in seconds since 1970.
    pub(crate) created: u64,
    /// What the template says about calls and thoughts.
    pub(crate) speech: ReplyFormat,
    template: Option<ChatTemplate>,
    kept_tokens: KeptTokens,
    forms: OutputConstraints,
    answer_time: Duration,
    numbers: Numbers,
}

/// A request that is nothing but tokens and settings any more.
pub(crate) struct Prepared {
    prompts: Vec<PreparedPrompt>,
    priority: Priority,
    tenant: Tenant,
}

impl Prepared {
    /// How many answers will be given.
    pub(crate) fn answers(&self) -> usize {
        self.prompts.iter().map(|prompt| prompt.answers.len()).sum()
    }

    /// The prompt of each answer, and the most tokens of it.
    pub(crate) fn asked(&self) -> impl Iterator<Item = (&[u32], u32)> {
        self.prompts.iter().flat_map(|prompt| {
            let limits = prompt.answers.iter().map(|answer| answer.max_tokens);
            limits.map(|max_tokens| (prompt.tokens.as_slice(), max_tokens))
        })
    }

    /// Whether tokens are enough to give it again: one answer, without the chances of others.
    pub(crate) fn follows_from_tokens(&self) -> bool {
        let mut answers = self.prompts.iter().flat_map(|prompt| &prompt.answers);
        self.answers() == 1 && answers.all(|answer| answer.alternatives.is_none())
    }

    /// Says what each answer begins with, from when it was given before.
    pub(crate) fn know(&mut self, tokens: &[u32]) {
        let answers = self.prompts.iter_mut().flat_map(|prompt| &mut prompt.answers);
        answers.for_each(|answer| answer.known = tokens.to_vec());
    }

    /// For whom it is.
    pub(crate) fn tenant(&self) -> Tenant {
        self.tenant
    }
}

/// One prompt of a request.
struct PreparedPrompt {
    tokens: Vec<u32>,
    /// Who reads thoughts and calls out of each answer.
    reader: Option<AnswerParser>,
    /// How each answer is generated.
    answers: Vec<Generation>,
}

/// What a prompt is to the model.
struct Reading {
    tokens: Vec<u32>,
    /// Who reads its answer: a text that is continued is text.
    reader: Option<AnswerParser>,
    /// What its answer must look like because it has to be a call.
    required: Option<OutputFormat>,
}

impl Reading {
    fn of_text(tokens: Vec<u32>) -> Reading {
        Reading { tokens, reader: None, required: None }
    }
}

impl ModelFrontend {
    pub(crate) fn new(model: ServedModel, metrics: Arc<Metrics>, answer_time: Duration) -> ModelFrontend {
        let source = model.text.template();
        let limits = TemplateLimits::for_context(model.service.context() as usize);
        let speech = ReplyFormat::of_template(source);
        ModelFrontend {
            speech,
            kept_tokens: speech.kept_tokens(model.text.tokenizer()),
            forms: OutputConstraints::default(),
            // One that cannot be used says so when a conversation is rendered.
            template: source.and_then(|source| ChatTemplate::new(source, limits).ok()),
            model,
            metrics,
            created: unix_seconds(),
            answer_time,
            numbers: Numbers::default(),
        }
    }

    /// An error unless a request means the model that is served.
    pub(crate) fn check_model(&self, asked: Option<&str>) -> Result<(), ApiError> {
        let served = &self.model.name;
        match asked {
            None | Some("default") => Ok(()),
            Some(asked) if asked == served => Ok(()),
            // What Ollama's clients make of a name without a tag.
            Some(asked) if asked.strip_suffix(":latest") == Some(served) => Ok(()),
            Some(asked) => {
                let message = format!(
                    "there is no model `{}`; this server has `{served}`, also known as `default`",
                    shortened(asked)
                );
                Err(ApiError { param: Some("model".to_owned()), ..ApiError::new(Kind::NoModel, message) })
            }
        }
    }

    /// Tokens of every prompt and settings of every answer; takes time, so not on a thread that serves connections.
    /// Answers are drawn with `seed` unless the request says another.
    pub(crate) fn prepare(&self, ask: ValidRequest, caller: Caller, seed: u64) -> Result<Prepared, ApiError> {
        let limit = caller.max_tokens.unwrap_or(u32::MAX);
        if let Some(asked) = ask.max_tokens.filter(|&asked| asked > limit) {
            let message = format!("max_tokens is {asked} and this key allows {limit}; ask for less");
            return Err(ApiError::invalid("max_tokens", message));
        }
        let vocabulary = self.model.text.tokenizer().vocabulary_size();
        if let Some((token, _)) =
            ask.settings.sampling.logit_bias.iter().find(|(token, _)| *token as usize >= vocabulary)
        {
            let message = format!("logit_bias names token {token}, and the model has {vocabulary}");
            return Err(ApiError::invalid("logit_bias", message));
        }
        let seed = ask.settings.seed.unwrap_or(seed);
        let mut prompts = Vec::with_capacity(ask.sources.len());
        for source in &ask.sources {
            let Reading { tokens, reader, required } = self.read(source)?;
            let format = required.as_ref().or(ask.format.as_ref());
            let constraint =
                format.map(|format| self.forms.constraint(format, &self.model.text)).transpose()?.map(Box::new);
            let room = self.room(tokens.len())?;
            let max_tokens = ask.max_tokens.unwrap_or(u32::MAX).min(limit).min(room);
            let answer = |choice: usize| {
                let mut sampling = ask.settings.sampling.clone();
                sampling.seed = seed.wrapping_add(choice as u64);
                Generation {
                    sampling,
                    max_tokens,
                    stop: ask.settings.stop.clone(),
                    stop_tokens: self.model.text.special().stop.clone(),
                    alternatives: ask.alternatives,
                    constraint: constraint.clone(),
                    kept_tokens: reader.as_ref().map(|_| self.kept_tokens.clone()).unwrap_or_default(),
                    known: Vec::new(),
                }
            };
            let answers = (0..ask.choices).map(answer).collect();
            prompts.push(PreparedPrompt { tokens, reader, answers });
        }
        let wanted = ask.priority.unwrap_or(caller.priority);
        let priority = if caller.may_raise { wanted } else { wanted.min(caller.priority) };
        Ok(Prepared { prompts, priority, tenant: caller.tenant })
    }

    /// Tokens that an answer to a prompt of this length may have.
    fn room(&self, prompt: usize) -> Result<u32, ApiError> {
        let context = self.model.service.context();
        let used = u32::try_from(prompt).unwrap_or(u32::MAX);
        if prompt == 0 {
            return Err(ApiError::invalid("prompt", "the prompt has no tokens; send some text"));
        }
        match context.checked_sub(used) {
            Some(room) if room > 0 => Ok(room),
            _ => {
                let message = format!(
                    "the prompt has {prompt} tokens and the context of this server holds {context} with the answer; \
                     shorten the prompt, or start the server with a larger --ctx"
                );
                Err(ApiError::new(Kind::ContextLength, message))
            }
        }
    }

    /// Tokens of a prompt.
    pub(crate) fn tokens(&self, source: &Source) -> Result<Vec<u32>, ApiError> {
        self.read(source).map(|reading| reading.tokens)
    }

    fn read(&self, source: &Source) -> Result<Reading, ApiError> {
        let text = &self.model.text;
        match source {
            Source::Tokens(tokens) => {
                let vocabulary = text.tokenizer().vocabulary_size();
                match tokens.iter().find(|&&token| token as usize >= vocabulary) {
                    None => Ok(Reading::of_text(tokens.clone())),
                    Some(token) => {
                        let message = format!("the prompt has token {token}, and the model has {vocabulary}");
                        Err(ApiError::invalid("prompt", message))
                    }
                }
            }
            Source::Text(plain) => Ok(Reading::of_text(text.plain_prompt(plain)?)),
            Source::Chat(chat) => {
                let prompt = self.render(chat)?;
                let shown = prompt.text();
                Ok(Reading {
                    tokens: text.tokenizer().encode_prompt(&prompt)?,
                    reader: Some(self.speech.reader(&shown, chat.tools.as_ref())),
                    required: self.speech.required(chat, &shown, text.tokenizer())?,
                })
            }
        }
    }

    fn render(&self, chat: &Chat) -> Result<Prompt, ApiError> {
        let text = &self.model.text;
        let messages = Value::Array(chat.messages.clone());
        let Some(template) = &self.template else { return Ok(text.render(&text.conversation(&messages))?) };
        let messages = template.prepare_messages(&messages)?;
        let conversation =
            Conversation { tools: chat.tools.as_ref(), extra: chat.variables.as_ref(), ..text.conversation(&messages) };
        Ok(template.render_prompt(&conversation, text.tokenizer())?)
    }

    /// Puts all jobs of a request into the service; when one does not fit, none stays. What is recorded is the first.
    pub(crate) fn submit(&self, prepared: Prepared, mut recorder: Option<Recorder>) -> Result<AnswerStream, ApiError> {
        let answers = prepared.answers();
        let prompt_tokens = prepared.prompts.iter().map(|prompt| prompt.tokens.len()).sum();
        let choices = answers / prepared.prompts.len();
        let (tenant, priority) = (prepared.tenant, prepared.priority);
        let (sender, receiver) = queue::channel(Arc::clone(&self.metrics));
        let mut jobs = Jobs::new(self.model.service.clone(), receiver);
        let mut readers = Vec::with_capacity(answers);
        for PreparedPrompt { tokens, reader, answers } in prepared.prompts {
            for generation in answers {
                let (prompt, task, sink) = (tokens.clone(), Task::Generate(generation), sender.sink(jobs.len()));
                let sink = match recorder.take() {
                    Some(recorder) => recorder.before(sink),
                    None => sink,
                };
                jobs.submit(Job { prompt, task, tenant, priority, deadline: self.deadline(), sink })?;
                readers.push(reader.clone());
            }
        }
        Ok(AnswerStream::new(jobs, readers, prompt_tokens, choices))
    }

    /// Asks for the embedding of a prompt.
    pub(crate) fn submit_embedding(&self, prompt: Vec<u32>, caller: Caller) -> Result<Jobs, ApiError> {
        self.room(prompt.len())?;
        let (sender, receiver) = queue::channel(Arc::clone(&self.metrics));
        let mut jobs = Jobs::new(self.model.service.clone(), receiver);
        let Caller { tenant, priority, .. } = caller;
        let (task, sink) = (Task::Embed, sender.sink(0));
        jobs.submit(Job { prompt, task, tenant, priority, deadline: self.deadline(), sink })?;
        Ok(jobs)
    }

    /// When nobody waits any more for what is asked now.
    fn deadline(&self) -> Option<Instant> {
        Instant::now().checked_add(self.answer_time)
    }

    /// A number that has not been seen before and cannot be foretold from outside.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.next()
    }

    /// A name for something new, such as `req_5f…`.
    pub(crate) fn name(&self, prefix: &str) -> String {
        format!("{prefix}{:016x}{:016x}", self.number(), self.number())
    }
}

/// Numbers for seeds and names: a keyed hash of a counter.
#[derive(Default)]
pub(crate) struct Numbers {
    key: RandomState,
    counter: AtomicU64,
}

impl Numbers {
    pub(crate) fn next(&self) -> u64 {
        self.key.hash_one(self.counter.fetch_add(1, Ordering::Relaxed))
    }
}

/// Now, in seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
