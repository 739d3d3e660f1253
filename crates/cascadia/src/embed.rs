//! Vectors of texts: embeddings, and how well documents answer a query.

use std::sync::mpsc::{Receiver, channel};

use cascadia_engine::service::{Job, Priority, Task, Tenant, Update};
use cascadia_engine::{EngineError, Flow};

use crate::{Error, Model};

/// How texts are read whose embeddings are wanted.
#[derive(Clone, Debug, Default)]
pub struct EmbedOptions {
    /// Which of the model's own prompts comes before each, such as `query`.
    pub prompt: Option<String>,
    /// What is done with texts that have more tokens than the model reads.
    pub long: LongTexts,
}

/// What is done with texts that have more tokens than a model reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LongTexts {
    /// An error.
    #[default]
    Refuse,
    /// Their end is left out.
    Cut,
}

/// The tokens of a job, and where a second text begins in them.
type VectorPrompt = (Vec<u32>, Option<u32>);

impl Model {
    /// The embedding of each text, as the model's authors make it.
    pub fn embed<T: AsRef<str>>(&self, texts: &[T], options: &EmbedOptions) -> Result<Vec<Vec<f32>>, Error> {
        if self.service.handle().embedding_width().is_none() {
            return Err(self.cannot("embeddings", "it was trained to rank: use `cascadia rerank` or /v1/rerank"));
        }
        let prompt = |text: &T| -> Result<VectorPrompt, Error> {
            let most = self.most_tokens(options.long);
            Ok((self.text.embedding_prompt(text.as_ref(), options.prompt.as_deref(), most)?, None))
        };
        self.vectors(texts.iter().map(prompt).collect::<Result<_, _>>()?)
    }

    /// How well each document answers the query: a logit, more for better ones.
    pub fn rank<T: AsRef<str>>(&self, query: &str, documents: &[T], long: LongTexts) -> Result<Vec<f32>, Error> {
        if self.service.handle().scores() != Some(1) {
            return Err(self.cannot("ranking", "use a cross-encoder, such as BAAI/bge-reranker-v2-m3"));
        }
        let prompt = |document: &T| -> Result<VectorPrompt, Error> {
            let pair = self.text.pair_prompt([query, document.as_ref()], self.most_tokens(long))?;
            Ok((pair.tokens, Some(pair.second as u32)))
        };
        let vectors = self.vectors(documents.iter().map(prompt).collect::<Result<_, _>>()?)?;
        Ok(vectors.into_iter().map(|scores| scores[0]).collect())
    }

    fn cannot(&self, what: &'static str, advice: &'static str) -> Error {
        EngineError::Missing { path: self.name.clone().into(), what, advice }.into()
    }

    fn most_tokens(&self, long: LongTexts) -> Option<usize> {
        (long == LongTexts::Cut).then(|| self.service.handle().context() as usize)
    }

    /// The vectors of all prompts, of which as many are submitted at a time as are computed at a time.
    fn vectors(&self, prompts: Vec<VectorPrompt>) -> Result<Vec<Vec<f32>>, Error> {
        let mut vectors = Vec::with_capacity(prompts.len());
        for some in prompts.chunks(self.parallel.max(1) as usize) {
            let waiting = some.iter().map(|(tokens, second_text)| self.submit(tokens.clone(), *second_text));
            for updates in waiting.collect::<Result<Vec<_>, _>>()? {
                vectors.push(vector(&updates)?);
            }
        }
        Ok(vectors)
    }

    fn submit(&self, prompt: Vec<u32>, second_text: Option<u32>) -> Result<Receiver<Update>, Error> {
        let (sender, updates) = channel();
        let sink = Box::new(move |update| if sender.send(update).is_ok() { Flow::Continue } else { Flow::Stop });
        let (task, tenant, priority) = (Task::Embed { second_text }, Tenant::default(), Priority::Normal);
        self.service.handle().submit(Job { prompt, task, tenant, adapter: None, priority, deadline: None, sink })?;
        Ok(updates)
    }
}

fn vector(updates: &Receiver<Update>) -> Result<Vec<f32>, Error> {
    loop {
        match updates.recv().map_err(|_| Error::Closed)? {
            Update::Embedded(vector) => return Ok(vector),
            Update::Failed(error) => return Err(error.into()),
            Update::Started { .. } | Update::Scored(_) | Update::Token(_) | Update::Finished(_) => {}
        }
    }
}
