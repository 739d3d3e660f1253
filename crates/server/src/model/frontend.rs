//! The way of a valid request into the service of the model: templates, tokens, limits, jobs.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cascadia_engine::service::{Generation, Job, Priority, Score, ServiceHandle, Task, Tenant};
use cascadia_engine::{AdapterHandle, AdapterStatus, ModelText, Sampling};
use cascadia_text::{
    AnswerParser, ChatTemplate, Conversation, FormatWork, KeptTokens, OutputFormat, Prompt, TemplateLimits,
};
use serde_json::Value;

use super::adapters::ServedAdapters;
use super::constraints::OutputConstraints;
use super::keep_alive::KeepAlive;
use super::reply_format::ReplyFormat;
use super::short_name::is_short_for;
use crate::answer::answer_stream::{AnswerStream, ChoiceParser};
use crate::answer::jobs::Jobs;
use crate::answer::resume_log::Recorder;
use crate::error::{ApiError, ErrorKind};
use crate::http::client_memory::{ClientMemory, MemoryShare};
use crate::observe::metrics::Metrics;
use crate::options::Limits;
use crate::request::validate::{Beginning, Chat, Infill, Source, ValidRequest, shortened};

/// Another name of the model, whatever it is called.
pub(super) const DEFAULT: &str = "default";
/// About the bytes of a log-probability with its token, in memory and as JSON.
const BYTES_PER_LOGPROB: usize = 128;
/// What Ollama's clients add to a name without a tag.
pub(super) const LATEST: &str = "latest";

/// A model that is ready to be served.
pub struct ServedModel {
    /// What clients call it.
    pub name: String,
    /// Its text side.
    pub text: Arc<ModelText>,
    /// Where its jobs go.
    pub service: ServiceHandle,
    /// Jobs that may wait in its queue.
    pub queue: usize,
    /// Facts about it that clients show.
    pub details: ModelDetails,
    /// Adapters that requests may name after it.
    pub adapters: Option<ServedAdapters>,
}

/// Facts about a model that clients show.
#[derive(Clone, Debug, Default)]
pub struct ModelDetails {
    /// The architecture.
    pub family: String,
    /// Bytes of its files.
    pub bytes: u64,
    /// RandomNumbers in its weights.
    pub parameters: u64,
    /// The number format of most weights.
    pub format: String,
    /// Differs for every model that may give other tokens.
    pub digest: String,
}

/// Who sent a request, and what their key allows.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) tenant: Tenant,
    /// The priority of its jobs; a request may lower it, and raise it where there are no keys.
    pub(crate) priority: Priority,
    pub(crate) may_raise: bool,
    /// The most tokens of one answer.
    pub(crate) max_tokens: Option<u32>,
    /// The adapters that it may use; `None` for all.
    pub(crate) adapters: Option<Arc<[String]>>,
    /// Whether it may add, replace and remove adapters.
    pub(crate) is_admin: bool,
}

impl Caller {
    /// Whether it may use the adapter of this name.
    pub(crate) fn may_use(&self, adapter: &str) -> bool {
        self.adapters.as_ref().is_none_or(|names| names.iter().any(|name| name == adapter))
    }
}

/// What all models of a server have in common.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) metrics: Arc<Metrics>,
    /// What else clients may call them.
    pub(super) aliases: Arc<[String]>,
    /// For all texts that are being tokenised.
    preparing: ClientMemory,
    /// The most bytes of the compiled output formats of one model.
    formats_bytes: usize,
    answer_time: Duration,
}

impl Common {
    /// With these limits for so many models together.
    pub(crate) fn new(aliases: &[String], metrics: Arc<Metrics>, limits: &Limits, models: usize) -> Common {
        Common {
            metrics,
            aliases: aliases.into(),
            preparing: ClientMemory::new(limits.preparation_bytes),
            formats_bytes: limits.formats_bytes / models.max(1),
            answer_time: limits.answer_time,
        }
    }
}

/// Turns requests into jobs of one model.
pub(crate) struct ModelFrontend {
    pub(crate) model: ServedModel,
    pub(crate) common: Common,
    /// When the model was first served, in seconds since 1970.
    pub(crate) created: u64,
    pub(crate) reply_format: ReplyFormat,
    template: Option<ChatTemplate>,
    kept_tokens: KeptTokens,
    constraints: OutputConstraints,
    /// How long it stays in memory, if a client has said so.
    keep_alive: Mutex<Option<KeepAlive>>,
    random: RandomNumbers,
}

/// A request as tokens and settings.
pub(crate) struct PreparedRequest {
    prompts: Vec<PreparedPrompt>,
    /// Report how likely the tokens of the prompts are, and those of this many alternatives.
    prompt_alternatives: Option<u32>,
    adapter: Option<AdapterHandle>,
    priority: Priority,
    tenant: Tenant,
}

impl PreparedRequest {
    /// How many answers will be given.
    pub(crate) fn answers(&self) -> usize {
        self.prompts.iter().map(|prompt| prompt.generations.len()).sum()
    }

    /// The prompt and the most tokens of each answer.
    pub(crate) fn prompts_and_limits(&self) -> impl Iterator<Item = (&[u32], u32)> {
        self.prompts.iter().flat_map(|prompt| {
            let limits = prompt.generations.iter().map(|generation| generation.max_tokens);
            limits.map(|max_tokens| (prompt.tokens.as_slice(), max_tokens))
        })
    }

    /// The tokens of each prompt.
    pub(crate) fn prompt_tokens(&self) -> impl Iterator<Item = &[u32]> {
        self.prompts.iter().map(|prompt| prompt.tokens.as_slice())
    }

    /// About the bytes that it takes to say how likely the tokens of its prompts are.
    pub(crate) fn report_bytes(&self) -> usize {
        let Some(alternatives) = self.prompt_alternatives else { return 0 };
        let entries = |prompt: &PreparedPrompt| prompt.tokens.len() * prompt.generations.len();
        self.prompts.iter().map(entries).sum::<usize>() * (1 + alternatives as usize) * BYTES_PER_LOGPROB
    }

    /// Whether its tokens are enough to send it again: one answer, without log-probabilities.
    pub(crate) fn is_replayable(&self) -> bool {
        let mut generations = self.prompts.iter().flat_map(|prompt| &prompt.generations);
        self.answers() == 1
            && self.prompt_alternatives.is_none()
            && generations.all(|generation| generation.alternatives.is_none())
    }

    /// Sets the tokens that each answer is known to begin with.
    pub(crate) fn set_known_tokens(&mut self, tokens: &[u32]) {
        let generations = self.prompts.iter_mut().flat_map(|prompt| &mut prompt.generations);
        generations.for_each(|generation| generation.known = tokens.to_vec());
    }

    pub(crate) fn tenant(&self) -> Tenant {
        self.tenant
    }

    /// What changes the model for it.
    pub(crate) fn adapter(&self) -> Option<&AdapterHandle> {
        self.adapter.as_ref()
    }
}

/// One prompt of a request.
struct PreparedPrompt {
    tokens: Vec<u32>,
    parser: Option<AnswerParser>,
    /// Its answers end with their first call.
    one_call: bool,
    /// How each of its answers is generated.
    generations: Vec<Generation>,
}

/// A prompt as the model reads it.
struct TokenizedPrompt {
    tokens: Vec<u32>,
    /// Separates reasoning and tool calls in its answers; `None` for a text that is continued.
    parser: Option<AnswerParser>,
    /// The format of an answer that must call a function.
    required: Option<OutputFormat>,
    /// An answer ends with its first call.
    one_call: bool,
    /// What else ends an answer.
    ends: Vec<u32>,
}

impl TokenizedPrompt {
    fn of_text(tokens: Vec<u32>) -> TokenizedPrompt {
        TokenizedPrompt { tokens, parser: None, required: None, one_call: false, ends: Vec::new() }
    }
}

impl ModelFrontend {
    pub(crate) fn new(model: ServedModel, common: Common) -> ModelFrontend {
        let source = model.text.template();
        let template_limits = TemplateLimits::for_context(model.service.context() as usize);
        let reply_format = ReplyFormat::of_template(source);
        ModelFrontend {
            reply_format,
            kept_tokens: reply_format.kept_tokens(model.text.tokenizer()),
            constraints: OutputConstraints::new(common.formats_bytes),
            // A template with an error is reported when a conversation is rendered.
            template: source.and_then(|source| ChatTemplate::new(source, template_limits).ok()),
            model,
            common,
            created: unix_seconds(),
            keep_alive: Mutex::default(),
            random: RandomNumbers::default(),
        }
    }

    /// Lets it stay in memory for another time than usual. A model that is alone on its server always does.
    pub(crate) fn keep(&self, time: KeepAlive) {
        *self.keep_alive.lock().unwrap_or_else(PoisonError::into_inner) = Some(time);
    }

    /// How long it stays in memory, if a client has said so.
    pub(crate) fn keep_alive(&self) -> Option<KeepAlive> {
        *self.keep_alive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much work output formats have been.
    pub(crate) fn format_work(&self) -> FormatWork {
        self.constraints.work()
    }

    /// The adapters that a request names after the model; `None` for the model alone. An error if it names another model,
    /// or an adapter that is not there or not for this caller.
    pub(crate) fn select(&self, name: Option<&str>, caller: &Caller) -> Result<Option<AdapterHandle>, ApiError> {
        let Some(name) = name else { return Ok(None) };
        // Those who may not use an adapter are not told whether there is one.
        let named = self.selection(name).filter(|selection| *selection != name || caller.may_use(name));
        match (named, &self.model.adapters) {
            (Some(""), _) => Ok(None),
            (Some(selection), Some(adapters)) => adapters.select(selection, caller).map(Some),
            _ => {
                let (name, served) = (shortened(name), &self.model.name);
                let message =
                    format!("there is no model `{name}`; this server has `{served}`, also called `{DEFAULT}`");
                Err(ApiError::no_model(message))
            }
        }
    }

    /// What answers say gave them: the model, and the adapters that the request names.
    pub(crate) fn answering(&self, name: Option<&str>) -> String {
        match name.and_then(|name| self.selection(name)) {
            None | Some("") => self.model.name.clone(),
            Some(selection) => self.with_adapter(selection),
        }
    }

    /// The name of the model with an adapter.
    pub(crate) fn with_adapter(&self, adapter: &str) -> String {
        format!("{}:{adapter}", self.model.name)
    }

    /// What follows the name of this model: nothing, or adapters. Clients of vLLM give the name of an adapter alone. `None` in
    /// the name of another model.
    fn selection<'a>(&self, name: &'a str) -> Option<&'a str> {
        if is_short_for(name, &self.model.name) {
            return Some("");
        }
        let names =
            [self.model.name.as_str(), DEFAULT].into_iter().chain(self.common.aliases.iter().map(String::as_str));
        let after_model = names.into_iter().find_map(|base| match name.strip_prefix(base)? {
            "" => Some(""),
            rest => match rest.strip_prefix(':')? {
                "" => None,
                LATEST => Some(""),
                selection => Some(selection),
            },
        });
        let is_adapter = || self.model.adapters.as_ref().is_some_and(|adapters| adapters.store().has(name));
        after_model.or_else(|| is_adapter().then_some(name))
    }

    /// The adapters that a caller may use, by name.
    pub(crate) fn adapters(&self, caller: &Caller) -> Vec<AdapterStatus> {
        let all = self.model.adapters.as_ref().map(|adapters| adapters.store().list()).unwrap_or_default();
        all.into_iter().filter(|adapter| caller.may_use(&adapter.name)).collect()
    }

    /// Settings for what a request does not set: those that the model's authors suggest, and otherwise the usual ones.
    pub(crate) fn defaults(&self, usual: Sampling) -> Sampling {
        self.model.text.suggested().over(usual)
    }

    /// Tokens of every prompt and settings of every answer. Takes time, so not on a thread that serves connections.
    /// Answers are sampled with `seed` unless the request has its own.
    pub(crate) fn prepare(
        &self,
        request: ValidRequest,
        caller: Caller,
        seed: u64,
    ) -> Result<PreparedRequest, ApiError> {
        // Before a template is missed that it could not have.
        self.model.service.check_makes_text()?;
        let limit = caller.max_tokens.unwrap_or(u32::MAX);
        if let Some(max_tokens) = request.max_tokens.filter(|&max_tokens| max_tokens > limit) {
            let message = format!("max_tokens is {max_tokens}, but this key allows {limit}; ask for fewer");
            return Err(ApiError::invalid("max_tokens", message));
        }
        let vocabulary = self.model.text.tokenizer().vocabulary_size();
        let biased = request.settings.sampling.logit_bias.iter().map(|(token, _)| ("logit_bias", *token));
        let mut named = biased.chain(request.settings.stop_tokens.iter().map(|token| ("stop_token_ids", *token)));
        if let Some((field, token)) = named.find(|(_, token)| *token as usize >= vocabulary) {
            let message = format!("{field} has token {token}, but the model has only {vocabulary} tokens");
            return Err(ApiError::invalid(field, message));
        }
        let ends = if request.settings.ignore_end { &[][..] } else { &self.model.text.special().stop[..] };
        let stop_tokens = [ends, &request.settings.stop_tokens].concat();
        let seed = request.settings.seed.unwrap_or(seed);
        let mut prompts = Vec::with_capacity(request.sources.len());
        for source in &request.sources {
            let TokenizedPrompt { tokens, parser, required, one_call, ends } = self.tokenize(source)?;
            let stop_tokens = [stop_tokens.as_slice(), &ends].concat();
            let format = required.as_ref().or(request.format.as_ref());
            let constraint =
                format.map(|format| self.constraints.constraint(format, &self.model.text)).transpose()?.map(Box::new);
            let room = self.room(tokens.len(), request.max_tokens.unwrap_or(1).min(1))?;
            let max_tokens = request.max_tokens.unwrap_or(u32::MAX).min(limit).min(room);
            let generation = |choice: usize| {
                let mut sampling = request.settings.sampling.clone();
                sampling.seed = seed.wrapping_add(choice as u64);
                Generation {
                    sampling,
                    max_tokens,
                    stop: request.settings.stop.clone(),
                    stop_tokens: stop_tokens.clone(),
                    min_tokens: request.settings.min_tokens,
                    alternatives: request.alternatives,
                    constraint: constraint.clone(),
                    kept_tokens: parser.as_ref().map(|_| self.kept_tokens.clone()).unwrap_or_default(),
                    known: Vec::new(),
                }
            };
            let generations = (0..request.choices).map(generation).collect();
            prompts.push(PreparedPrompt { tokens, parser, one_call, generations });
        }
        let priority = request.priority.unwrap_or(caller.priority);
        let priority = if caller.may_raise { priority } else { priority.min(caller.priority) };
        let ValidRequest { adapter, prompt_alternatives, .. } = request;
        Ok(PreparedRequest { prompts, prompt_alternatives, adapter, priority, tenant: caller.tenant })
    }

    /// Tokens that an answer to a prompt of this length may have; an error if that is less than `least`.
    fn room(&self, prompt: usize, least: u32) -> Result<u32, ApiError> {
        let context = self.model.service.context();
        let used = u32::try_from(prompt).unwrap_or(u32::MAX);
        if prompt == 0 {
            return Err(ApiError::invalid("prompt", "the prompt has no tokens; send some text"));
        }
        match context.checked_sub(used) {
            Some(room) if room >= least => Ok(room),
            _ => Err(self.too_long(&format!("{prompt} tokens"))),
        }
    }

    /// An error if a text is so long that its tokens cannot fit, whatever they are: so nothing is spent on finding them.
    pub(crate) fn check_length(&self, text: &str) -> Result<(), ApiError> {
        let least = self.model.text.tokenizer().least_tokens(text);
        match least > self.model.service.context() as usize {
            true => Err(self.too_long(&format!("at least {least} tokens"))),
            false => Ok(()),
        }
    }

    /// What it takes to tokenise a text, which counts until it is dropped; an error where others take that.
    pub(crate) fn working_memory(&self, text: &str) -> Result<MemoryShare, ApiError> {
        let mut working = self.common.preparing.share();
        working.reach(self.model.text.tokenizer().working_bytes(text))?;
        Ok(working)
    }

    /// An error if so many tokens are more than a prompt may have.
    pub(crate) fn check_count(&self, tokens: usize) -> Result<(), ApiError> {
        match tokens > self.model.service.context() as usize {
            true => Err(self.too_long(&format!("{tokens} tokens"))),
            false => Ok(()),
        }
    }

    fn too_long(&self, tokens: &str) -> ApiError {
        let context = self.model.service.context();
        let message = format!(
            "the prompt has {tokens}, but prompt and answer together may have {context} on this server; shorten the \
             prompt, or start the server with a larger --ctx"
        );
        ApiError::new(ErrorKind::ContextLength, message)
    }

    /// Tokens of a prompt.
    pub(crate) fn tokens(&self, source: &Source) -> Result<Vec<u32>, ApiError> {
        self.tokenize(source).map(|prompt| prompt.tokens)
    }

    fn tokenize(&self, source: &Source) -> Result<TokenizedPrompt, ApiError> {
        let text = &self.model.text;
        match source {
            Source::Tokens(tokens) => {
                let vocabulary = text.tokenizer().vocabulary_size();
                match tokens.iter().find(|&&token| token as usize >= vocabulary) {
                    None => Ok(TokenizedPrompt::of_text(tokens.clone())),
                    Some(token) => {
                        let message =
                            format!("the prompt has token {token}, but the model has only {vocabulary} tokens");
                        Err(ApiError::invalid("prompt", message))
                    }
                }
            }
            Source::Text(plain) => {
                self.check_length(plain)?;
                let _working = self.working_memory(plain)?;
                Ok(TokenizedPrompt::of_text(text.plain_prompt(plain)?))
            }
            Source::Infill(Infill { prefix, suffix }) => {
                [prefix, suffix].into_iter().try_for_each(|text| self.check_length(text))?;
                let _working = [self.working_memory(prefix)?, self.working_memory(suffix)?];
                match (text.infill_prompt(prefix, suffix)?, text.infill()) {
                    (Some(tokens), Some(marks)) => {
                        Ok(TokenizedPrompt { ends: marks.ends.clone(), ..TokenizedPrompt::of_text(tokens) })
                    }
                    _ => {
                        let message =
                            "this model has no tokens to fill in the middle of a text; send only the text before";
                        Err(ApiError::unsupported("suffix", message))
                    }
                }
            }
            Source::Chat(chat) => {
                let prompt = self.render(chat)?;
                let shown = prompt.text();
                self.check_length(&shown)?;
                let mut working = self.common.preparing.share();
                working.reach(text.tokenizer().prompt_working_bytes(&prompt))?;
                Ok(TokenizedPrompt {
                    tokens: text.tokenizer().encode_prompt(&prompt)?,
                    parser: Some(self.reply_format.parser(&shown, chat.tools.as_ref())),
                    required: self.reply_format.required(chat, &shown, text.tokenizer())?,
                    one_call: chat.one_call,
                    ends: Vec::new(),
                })
            }
        }
    }

    /// Whether the chat template has a variable of this name.
    pub(crate) fn template_has(&self, name: &str) -> bool {
        self.template.as_ref().is_some_and(|template| template.mentions(name))
    }

    /// The prompt of a conversation as text.
    pub(crate) fn prompt_text(&self, chat: &Chat) -> Result<String, ApiError> {
        self.render(chat).map(|prompt| prompt.text())
    }

    fn render(&self, chat: &Chat) -> Result<Prompt, ApiError> {
        let text = &self.model.text;
        if chat.tools.is_some() && self.template.is_some() && !self.template_has("tools") {
            let message = "this model's chat template has no tools, so the model would not see them; leave them out, or \
                           serve a model that calls functions";
            return Err(ApiError::unsupported("tools", message));
        }
        let messages = Value::Array(chat.messages.clone());
        if text.template().is_none() {
            let message = "this model has no chat template; send a text to /v1/completions, or serve a chat model";
            return Err(ApiError::unsupported("messages", message));
        }
        // If there is none of it, this says why.
        let Some(template) = &self.template else { return Ok(text.render(&text.conversation(&messages))?) };
        let messages = template.prepare_messages(&messages)?;
        let prefill = match &chat.beginning {
            Beginning::Continued(text) => Some(text.as_str()),
            Beginning::Opened | Beginning::NotOpened => None,
        };
        let conversation = Conversation {
            tools: chat.tools.as_ref(),
            extra: chat.variables.as_ref(),
            add_generation_prompt: chat.beginning != Beginning::NotOpened,
            prefill,
            ..text.conversation(&messages)
        };
        Ok(template.render_prompt(&conversation, text.tokenizer())?)
    }

    /// Submits all jobs of a request; when one is refused, none stays. The recorder keeps the tokens of the first.
    pub(crate) fn submit(
        &self,
        prepared: PreparedRequest,
        mut recorder: Option<Recorder>,
    ) -> Result<AnswerStream, ApiError> {
        let answers = prepared.answers();
        let prompt_tokens = prepared.prompts.iter().map(|prompt| prompt.tokens.len()).sum();
        let choices = answers / prepared.prompts.len();
        let (adapter, tenant, priority) = (prepared.adapter, prepared.tenant, prepared.priority);
        let (mut jobs, sinks) = Jobs::new(self.model.service.clone(), Arc::clone(&self.common.metrics));
        let mut parsers = Vec::with_capacity(answers);
        for PreparedPrompt { tokens, parser, one_call, generations } in prepared.prompts {
            for generation in generations {
                let sink = sinks.sink(jobs.len());
                let sink = match recorder.take() {
                    Some(recorder) => recorder.before(sink),
                    None => sink,
                };
                let task = match prepared.prompt_alternatives {
                    Some(alternatives) => Task::Score(Score { alternatives, generation }),
                    None => Task::Generate(generation),
                };
                let (prompt, adapter) = (tokens.clone(), adapter.clone());
                jobs.submit(Job { prompt, task, adapter, tenant, priority, deadline: self.deadline(), sink })?;
                parsers.push(ChoiceParser::new(parser.clone(), one_call));
            }
        }
        self.count(adapter.as_ref());
        Ok(AnswerStream::new(jobs, parsers, prompt_tokens, choices))
    }

    /// Counts a request for the adapters that it uses.
    pub(crate) fn count(&self, adapter: Option<&AdapterHandle>) {
        adapter.iter().for_each(|adapter| self.common.metrics.adapter_requests.count(adapter.names()));
    }

    /// When a request that comes now must have been answered.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        Instant::now().checked_add(self.common.answer_time)
    }

    /// A number that clients cannot predict.
    pub(crate) fn random(&self) -> u64 {
        self.random.next()
    }

    /// A new id, such as `req_5f…`.
    pub(crate) fn random_id(&self, prefix: &str) -> String {
        format!("{prefix}{:016x}{:016x}", self.random(), self.random())
    }
}

/// RandomNumbers for seeds and ids: a keyed hash of a counter.
#[derive(Default)]
pub(crate) struct RandomNumbers {
    key: RandomState,
    counter: AtomicU64,
}

impl RandomNumbers {
    pub(crate) fn next(&self) -> u64 {
        self.key.hash_one(self.counter.fetch_add(1, Ordering::Relaxed))
    }
}

/// Now, in seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
