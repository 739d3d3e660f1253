//! `/v1/completions`.

use std::sync::Arc;

use cascadia_engine::Sampling;
use cascadia_engine::service::TokenLogprobs;
use cascadia_text::Piece;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::chat::StreamOptions;
use super::report::{TextLogprobs, finish_reason, usage};
use crate::answer::event_stream::{EventWriter, Frames, Framing};
use crate::answer::{Answer, AnswerEnd, Delta, TokenLogprob, Usage};
use crate::error::{ApiError, ErrorShape};
use crate::model::frontend::{ModelFrontend, PreparedRequest, unix_seconds};
use crate::protocols::{Protocol, RequestContext};
use crate::request::prompts::Prompts;
use crate::request::sampling::{self, HasSampling, SamplingField, SamplingValues, WithSampling};
use crate::request::validate::{Given, Infill, RawRequest, Source, range};

/// How many tokens an answer has when the request does not say.
const DEFAULT_TOKENS: i64 = 16;

/// A request to continue a text.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CompletionRequest {
    /// The model's name or `default`, alone or with an adapter: `model:adapter`.
    model: Option<String>,
    /// A text, a list of tokens, or up to 256 of either.
    #[schema(value_type = Object)]
    prompt: Prompts,
    /// Report the log-probability of every token, and those of this many most likely tokens at each position.
    #[schema(minimum = 0, maximum = 20)]
    logprobs: Option<i64>,
    /// The most tokens of an answer; 16 by default.
    #[schema(minimum = 0, maximum = 1048576)]
    max_tokens: Option<i64>,
    /// Answers to each prompt.
    #[schema(minimum = 1, maximum = 8)]
    n: Option<i64>,
    /// Answers to generate, of which the `n` most likely are returned.
    #[schema(minimum = 1, maximum = 8)]
    best_of: Option<i64>,
    /// Repeat the prompt before the answer, with the log-probabilities of its tokens if `logprobs` is set.
    echo: Option<bool>,
    /// Text after the answer, for models that fill in the middle.
    suffix: Option<String>,
    /// Stream the answer.
    stream: Option<bool>,
    /// What else a stream contains.
    stream_options: Option<StreamOptions>,
    /// `high`, `normal` or `low`.
    priority: Option<String>,
    /// `auto`, `default`, `flex` or `priority`.
    service_tier: Option<String>,
}

impl HasSampling for CompletionRequest {
    const FIELDS: &'static [SamplingField] = sampling::ALL;
}

/// What is remembered of a request until its answer is complete.
pub(crate) struct CompletionProtocol {
    frontend: Arc<ModelFrontend>,
    model: String,
    id: String,
    created: u64,
    is_streamed: bool,
    with_usage: bool,
    with_logprobs: bool,
    /// Answers to each prompt that are returned.
    choices: usize,
    /// Answers to each prompt that are generated.
    candidates: usize,
    /// The prompts as they came, where they are repeated, and their tokens.
    echo: Option<Vec<EchoedPrompt>>,
    /// Characters sent so far, by answer.
    offsets: Vec<usize>,
}

/// A prompt that is repeated before its answers.
struct EchoedPrompt {
    source: Source,
    tokens: Vec<u32>,
}

impl Protocol for CompletionProtocol {
    type Body = WithSampling<CompletionRequest>;

    fn read(request: Self::Body, context: &RequestContext) -> Result<(RawRequest, CompletionProtocol), ApiError> {
        let frontend = &context.frontend;
        let WithSampling { body, sampling } = request;
        let [choices, candidates] =
            [body.n, body.best_of.or(body.n)].map(|count| usize::try_from(count.unwrap_or(1)).unwrap_or(1));
        let echoed = |source: &Source| EchoedPrompt { source: source.clone(), tokens: Vec::new() };
        let protocol = CompletionProtocol {
            frontend: Arc::clone(frontend),
            model: frontend.answering(body.model.as_deref()),
            id: "cmpl-".to_owned(),
            created: unix_seconds(),
            is_streamed: body.stream == Some(true),
            with_usage: StreamOptions::wants_usage(body.stream_options.as_ref()),
            with_logprobs: body.logprobs.is_some(),
            choices,
            candidates,
            echo: (body.echo == Some(true)).then(|| body.prompt.0.iter().map(echoed).collect()),
            offsets: vec![0; body.prompt.0.len().saturating_mul(choices.min(8))],
        };
        Ok((raw_request(body, sampling)?, protocol))
    }

    fn set_id(&mut self, id: &str) {
        self.id.push_str(id);
    }

    fn see_prompts(&mut self, prepared: &PreparedRequest) {
        let echoed = self.echo.iter_mut().flatten();
        echoed.zip(prepared.prompt_tokens()).for_each(|(prompt, tokens)| prompt.tokens = tokens.to_vec());
    }

    fn framing(&self) -> Option<Framing> {
        self.is_streamed.then_some(Framing::Events)
    }

    fn response(self, answers: Vec<Answer>, used: Usage) -> Value {
        let answers = most_likely(answers, self.candidates, self.choices).into_iter().enumerate();
        let choices = answers.map(|(index, answer)| {
            let logprobs = match self.with_logprobs {
                true => self.logprobs(index, &answer),
                false => Value::Null,
            };
            let (text, reason) = (self.echoed_text(index) + &answer.text, finish_reason(&answer.end));
            json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason})
        });
        let mut object = self.object(choices.collect());
        object["usage"] = usage(used);
        object
    }

    fn event_writer(self) -> Box<dyn EventWriter> {
        Box::new(self)
    }
}

impl CompletionProtocol {
    /// The prompt of an answer, where it is repeated.
    fn echoed(&self, choice: usize) -> Option<&EchoedPrompt> {
        self.echo.as_ref()?.get(choice / self.choices.max(1))
    }

    /// Its text; nothing where it is not repeated.
    fn echoed_text(&self, choice: usize) -> String {
        match self.echoed(choice) {
            None => String::new(),
            Some(EchoedPrompt { source: Source::Text(text), .. }) => text.clone(),
            Some(EchoedPrompt { tokens, .. }) => {
                String::from_utf8_lossy(&self.frontend.model.text.tokenizer().decode(tokens)).into_owned()
            }
        }
    }

    /// The log-probabilities of a whole answer, and of its prompt if that is repeated.
    fn logprobs(&self, choice: usize, answer: &Answer) -> Value {
        let mut logprobs = TextLogprobs::new(self.frontend.model.text.tokenizer(), 0);
        if let Some(prompt) = self.echoed(choice) {
            logprobs.add_prompt(&prompt.tokens, &answer.scores);
        }
        logprobs.add_tokens(answer.logprobs.iter().chain(&answer.end.token));
        logprobs.into_value()
    }

    fn object(&self, choices: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }

    fn chunk(&self, choice: Value) -> Value {
        let mut object = self.object(vec![choice]);
        if self.with_usage {
            object["usage"] = Value::Null;
        }
        object
    }
}

impl EventWriter for CompletionProtocol {
    fn begin(&mut self, _prompt_tokens: usize, out: &mut Frames) {
        // With log-probabilities, prompts follow when these are known.
        if self.echo.is_some() && !self.with_logprobs {
            (0..self.offsets.len()).for_each(|choice| self.write_prompt(choice, Value::Null, out));
        }
    }

    fn scored(&mut self, choice: usize, scores: Vec<TokenLogprobs>, out: &mut Frames) {
        let mut logprobs = TextLogprobs::new(self.frontend.model.text.tokenizer(), 0);
        if let Some(prompt) = self.echoed(choice) {
            logprobs.add_prompt(&prompt.tokens, &scores);
        }
        let logprobs = logprobs.into_value();
        self.write_prompt(choice, logprobs, out);
    }

    fn delta(&mut self, delta: Delta, out: &mut Frames) {
        let logprobs = self.logprobs_after(delta.choice, delta.logprob.as_ref());
        let text: String = delta.pieces.into_iter().filter_map(text_of).collect();
        self.offsets[delta.choice] += text.chars().count();
        let choice = json!({"index": delta.choice, "text": text, "logprobs": logprobs, "finish_reason": null});
        out.object(&self.chunk(choice));
    }

    fn ended(&mut self, choice: usize, end: &AnswerEnd, out: &mut Frames) {
        let (logprobs, reason) = (self.logprobs_after(choice, end.token.as_ref()), finish_reason(end));
        out.object(&self.chunk(json!({"index": choice, "text": "", "logprobs": logprobs, "finish_reason": reason})));
    }

    fn done(&mut self, used: Usage, out: &mut Frames) {
        if self.with_usage {
            let mut object = self.object(Vec::new());
            object["usage"] = usage(used);
            out.object(&object);
        }
        out.text(None, "[DONE]");
    }

    fn failed(&mut self, error: &ApiError, out: &mut Frames) {
        out.object(&error.body(ErrorShape::OpenAi));
    }
}

impl CompletionProtocol {
    /// Sends the prompt of an answer.
    fn write_prompt(&mut self, choice: usize, logprobs: Value, out: &mut Frames) {
        let text = self.echoed_text(choice);
        self.offsets[choice] = text.chars().count();
        out.object(&self.chunk(json!({"index": choice, "text": text, "logprobs": logprobs, "finish_reason": null})));
    }

    /// The log-probabilities of the next token of an answer.
    fn logprobs_after(&self, choice: usize, token: Option<&TokenLogprob>) -> Value {
        let Some(token) = token else { return Value::Null };
        let mut logprobs = TextLogprobs::new(self.frontend.model.text.tokenizer(), self.offsets[choice]);
        logprobs.add_tokens([token]);
        logprobs.into_value()
    }
}

/// Of so many candidates for each prompt, the answers whose tokens are the most likely on average, best first.
fn most_likely(answers: Vec<Answer>, candidates: usize, choices: usize) -> Vec<Answer> {
    if candidates <= choices {
        return answers;
    }
    let mean = |answer: &Answer| {
        let tokens = answer.logprobs.iter().chain(&answer.end.token).map(|(_, token)| f64::from(token.log_probability));
        let count = tokens.clone().count().max(1);
        tokens.sum::<f64>() / count as f64
    };
    let mut answers = answers.into_iter();
    let mut best = Vec::new();
    while !answers.as_slice().is_empty() {
        let mut of_prompt: Vec<(f64, Answer)> =
            answers.by_ref().take(candidates).map(|answer| (mean(&answer), answer)).collect();
        of_prompt.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        best.extend(of_prompt.into_iter().take(choices).map(|(_, answer)| answer));
    }
    best
}

/// A text that is continued has no other pieces.
fn text_of(piece: Piece) -> Option<String> {
    match piece {
        Piece::Content(text) => Some(text),
        _ => None,
    }
}

/// A prompt with the text that follows its answer.
fn infill(prompt: Source, suffix: &str) -> Result<Source, ApiError> {
    match prompt {
        Source::Text(prefix) => Ok(Source::Infill(Infill { prefix, suffix: suffix.to_owned() })),
        _ => Err(ApiError::invalid("suffix", "suffix needs a prompt that is a text; send no tokens")),
    }
}

fn raw_request(body: CompletionRequest, sampling: SamplingValues) -> Result<RawRequest, ApiError> {
    let sources = match body.suffix.filter(|suffix| !suffix.is_empty()) {
        Some(_) if body.echo == Some(true) => {
            return Err(ApiError::invalid("suffix", "suffix and echo exclude each other; leave out one of them"));
        }
        Some(suffix) => body.prompt.0.into_iter().map(|prompt| infill(prompt, &suffix)).collect::<Result<_, _>>()?,
        None => body.prompt.0,
    };
    let n = body.n.unwrap_or(1);
    let candidates = body.best_of.map(|best| range::CHOICES.named("best_of").check_whole(best)).transpose()?;
    if candidates.is_some_and(|candidates| candidates < n) {
        let message = format!("best_of is less than n, which is {n}; at least so many answers are generated");
        return Err(ApiError::invalid("best_of", message));
    }
    let chooses = candidates.is_some_and(|candidates| candidates > n);
    if chooses && body.stream == Some(true) {
        let message =
            "the best of several answers cannot be streamed, because it is known at the end; leave out stream";
        return Err(ApiError::unsupported("best_of", message));
    }
    let alternatives = Given::new("logprobs", body.logprobs);
    Ok(RawRequest {
        model: body.model,
        sources,
        choices: candidates.or(body.n),
        may_be_empty: true,
        prompt_alternatives: alternatives.filter(|_| body.echo == Some(true)),
        max_tokens: Given::new("max_tokens", Some(body.max_tokens.unwrap_or(DEFAULT_TOKENS))),
        defaults: Sampling::default(),
        sampling,
        alternatives: alternatives.or(chooses.then_some(Given { name: "best_of", value: 0 })),
        priority: body.priority,
        service_tier: body.service_tier,
        ..RawRequest::default()
    })
}
