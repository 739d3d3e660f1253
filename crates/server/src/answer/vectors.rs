//! The vectors of many texts: their embeddings, or what a model that ranks says of them.

use std::sync::Arc;

use axum::response::Response;
use cascadia_engine::AdapterHandle;
use cascadia_engine::service::{Job, Task, Update};
use serde::Serialize;

use super::jobs::{JobNumbers, Jobs};
use crate::error::{ApiError, ErrorKind};
use crate::http::client_memory::MemoryShare;
use crate::model::frontend::{Caller, ModelFrontend};
use crate::protocols::send;
use crate::request::validate::Source;

/// Texts of one request that are computed at a time: they share steps, and take as many slots of the queue.
const AT_ONCE: usize = 8;
/// What a number takes until it is written: itself, and as text in base 64.
const NUMBER_BYTES: usize = 3 * size_of::<f32>();

/// One text, or two that are ranked together.
pub(crate) struct VectorPrompt {
    pub(crate) tokens: Vec<u32>,
    /// Where the second text begins.
    pub(crate) second_text: Option<u32>,
}

/// What is done with texts before their embeddings are made.
#[derive(Clone, Copy, Default)]
pub(crate) struct TextHandling<'a> {
    /// Which of the model's prompts comes before each.
    pub(crate) prompt: Option<&'a str>,
    /// Long ones are cut instead of refused.
    pub(crate) cut: bool,
}

/// The vectors of a request: one for each prompt.
pub(crate) struct Vectors {
    rows: Vec<Vec<f32>>,
    tokens: usize,
    numbers: Vec<String>,
    /// What they take until they are sent.
    memory: MemoryShare,
}

impl Vectors {
    /// Computes them, a few at a time. `memory` counts them as they come.
    pub(crate) async fn compute(
        frontend: &Arc<ModelFrontend>,
        prompts: Vec<VectorPrompt>,
        (caller, adapter): (&Caller, &Option<AdapterHandle>),
        memory: MemoryShare,
    ) -> Result<Vectors, ApiError> {
        let tokens = prompts.iter().map(|prompt| prompt.tokens.len()).sum();
        let mut vectors = Vectors { rows: Vec::with_capacity(prompts.len()), tokens, numbers: Vec::new(), memory };
        let mut prompts = prompts.into_iter().peekable();
        while prompts.peek().is_some() {
            let some: Vec<VectorPrompt> = prompts.by_ref().take(AT_ONCE).collect();
            let count = some.len();
            let jobs = submit(frontend, some, (caller, adapter)).await?;
            vectors.numbers.push(jobs.numbers().0);
            let rows = collect(jobs, count).await?;
            let numbers: usize = rows.iter().map(Vec::len).sum();
            vectors.memory.reach(vectors.memory.bytes() + numbers * NUMBER_BYTES)?;
            vectors.rows.extend(rows);
        }
        Ok(vectors)
    }

    /// Sends what is made of them and of the number of tokens of all prompts.
    pub(crate) async fn answer<T: Serialize>(
        self,
        make: impl FnOnce(Vec<Vec<f32>>, usize) -> T + Send + 'static,
    ) -> Result<Response, ApiError> {
        let Vectors { rows, tokens, numbers, memory } = self;
        let mut response = send(memory, move || make(rows, tokens)).await?;
        // For the log line of the request.
        response.extensions_mut().insert(JobNumbers(numbers.join(",")));
        Ok(response)
    }
}

/// A text or tokens as the model reads them; an error where they are too long, or none at all.
pub(crate) fn prompt_of(
    frontend: &ModelFrontend,
    source: &Source,
    handling: TextHandling<'_>,
) -> Result<VectorPrompt, ApiError> {
    let context = frontend.model.service.context() as usize;
    let most = handling.cut.then_some(context);
    let tokens = match source {
        Source::Text(text) => {
            if !handling.cut {
                frontend.check_length(text)?;
            }
            let _working = frontend.working_memory(text)?;
            frontend.model.text.embedding_prompt(text, handling.prompt, most)?
        }
        source => {
            let mut tokens = frontend.tokens(source)?;
            tokens.truncate(most.unwrap_or(usize::MAX));
            tokens
        }
    };
    checked(frontend, VectorPrompt { tokens, second_text: None })
}

/// A query and a document as the model reads them.
pub(crate) fn pair_of(frontend: &ModelFrontend, texts: [&str; 2], cut: bool) -> Result<VectorPrompt, ApiError> {
    let most = cut.then_some(frontend.model.service.context() as usize);
    let _working = texts.map(|text| frontend.working_memory(text)).into_iter().collect::<Result<Vec<_>, _>>()?;
    let pair = frontend.model.text.pair_prompt(texts, most)?;
    checked(frontend, VectorPrompt { tokens: pair.tokens, second_text: Some(pair.second as u32) })
}

fn checked(frontend: &ModelFrontend, prompt: VectorPrompt) -> Result<VectorPrompt, ApiError> {
    let (tokens, context) = (prompt.tokens.len(), frontend.model.service.context());
    match tokens {
        0 => Err(ApiError::invalid("input", "the input has no tokens; send some text")),
        _ if tokens > context as usize => {
            let message = format!(
                "the input has {tokens} tokens, but this server's model reads {context}; shorten it, or send \
                 \"truncate\": true to have it cut"
            );
            Err(ApiError::new(ErrorKind::ContextLength, message))
        }
        _ => Ok(prompt),
    }
}

/// Submits a job for each prompt. The weights of an adapter may be read for it, which no thread that serves connections
/// waits for.
async fn submit(
    frontend: &Arc<ModelFrontend>,
    prompts: Vec<VectorPrompt>,
    (caller, adapter): (&Caller, &Option<AdapterHandle>),
) -> Result<Jobs, ApiError> {
    if adapter.is_none() {
        return submit_all(frontend, prompts, caller, None);
    }
    let (frontend, caller, adapter) = (Arc::clone(frontend), caller.clone(), adapter.clone());
    let submitted = tokio::task::spawn_blocking(move || submit_all(&frontend, prompts, &caller, adapter)).await;
    submitted.unwrap_or_else(|_| Err(not_computed()))
}

fn submit_all(
    frontend: &ModelFrontend,
    prompts: Vec<VectorPrompt>,
    caller: &Caller,
    adapter: Option<AdapterHandle>,
) -> Result<Jobs, ApiError> {
    let (mut jobs, sinks) = Jobs::new(frontend.model.service.clone(), Arc::clone(&frontend.common.metrics));
    let Caller { tenant, priority, .. } = *caller;
    for VectorPrompt { tokens: prompt, second_text } in prompts {
        let (task, sink, adapter) = (Task::Embed { second_text }, sinks.sink(jobs.len()), adapter.clone());
        jobs.submit(Job { prompt, task, adapter, tenant, priority, deadline: frontend.deadline(), sink })?;
    }
    Ok(jobs)
}

/// The vectors of all jobs, in the order of their submission.
async fn collect(mut jobs: Jobs, count: usize) -> Result<Vec<Vec<f32>>, ApiError> {
    let mut vectors: Vec<Option<Vec<f32>>> = vec![None; count];
    while let Some((job, update)) = jobs.updates.next().await {
        match update {
            Update::Embedded(vector) => vectors[job] = Some(vector),
            Update::Failed(error) => return Err(error.into()),
            _ => {}
        }
    }
    vectors.into_iter().collect::<Option<_>>().ok_or_else(not_computed)
}

fn not_computed() -> ApiError {
    ApiError::new(ErrorKind::Internal, "the vector was not computed; see the server's log")
}

/// The first numbers of an embedding, made as long as one again: models trained for that say most with them.
pub(crate) fn shortened_to(mut vector: Vec<f32>, dimensions: usize) -> Vec<f32> {
    vector.truncate(dimensions);
    normalised(vector)
}

/// A vector of the same direction that is one long.
pub(crate) fn normalised(mut vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
    vector
}
