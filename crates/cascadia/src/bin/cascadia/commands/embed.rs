//! `cascadia embed` and `cascadia rerank`.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, ensure};
use cascadia::{EmbedOptions, LongTexts, Model};
use cascadia_eval::NpyWriter;
use serde_json::json;

use crate::flags::{EmbedFlags, MachineFlags, RerankFlags};
use crate::source::find;

/// Texts that share steps: short ones leave matrices idle otherwise.
const PARALLEL: u32 = 32;

/// Shows or writes the embeddings of texts.
pub(crate) fn embed(flags: &EmbedFlags) -> anyhow::Result<()> {
    let texts = texts(&flags.texts, flags.input.as_deref())?;
    ensure!(!texts.is_empty(), "there is no text to embed; give some as arguments, with --input or on standard input");
    let model = open(&flags.model, &flags.machine)?;
    let options = EmbedOptions { prompt: flags.prompt_name.clone(), long: long_texts(flags.truncate) };
    let mut vectors = model.embed(&texts, &options)?;
    if let Some(dimensions) = flags.dimensions.map(|dimensions| dimensions as usize) {
        let width = vectors[0].len();
        ensure!(
            dimensions <= width,
            "--dimensions is {dimensions}, but an embedding of this model has {width} numbers"
        );
        vectors.iter_mut().for_each(|vector| shorten(vector, dimensions));
    }
    if let Some(path) = &flags.out {
        let mut out = NpyWriter::create(path, (vectors.len(), vectors[0].len()))?;
        vectors.iter().try_for_each(|vector| out.push_row(vector))?;
        return Ok(out.finish()?);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    for (index, vector) in vectors.iter().enumerate() {
        writeln!(out, "{}", json!({"index": index, "embedding": vector}))?;
    }
    Ok(out.flush()?)
}

/// Shows how well documents answer a query, the best first.
pub(crate) fn rerank(flags: &RerankFlags) -> anyhow::Result<()> {
    let documents = texts(&flags.documents, flags.input.as_deref())?;
    let model = open(&flags.model, &flags.machine)?;
    let logits = model.rank(&flags.query, &documents, long_texts(flags.truncate))?;
    let mut ranked: Vec<(usize, f32)> = logits.into_iter().enumerate().collect();
    ranked.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    ranked.truncate(flags.top_n.unwrap_or(usize::MAX));
    let mut out = BufWriter::new(io::stdout().lock());
    for (index, logit) in ranked {
        let score = 1.0 / (1.0 + libm::exp(-f64::from(logit)));
        writeln!(out, "{}", json!({"index": index, "relevance_score": score, "document": documents[index]}))?;
    }
    Ok(out.flush()?)
}

fn open(model: &str, machine: &MachineFlags) -> anyhow::Result<Model> {
    let mut builder = Model::builder()
        .threads(machine.compute.threads.threads())
        .kernels(machine.compute.kernels.kernels())
        .activations(machine.numerics.activations.into())
        .kv_policy(machine.numerics.kv.policy()?)
        .pages(machine.pages.prepare()?)
        .parallel(PARALLEL);
    if let Some(context) = machine.ctx {
        builder = builder.context(context);
    }
    if let Some(memory) = machine.memory {
        builder = builder.memory(memory);
    }
    Ok(builder.open(find(model)?)?)
}

/// The texts among the arguments, or those in the lines of a file or of standard input.
fn texts(given: &[String], input: Option<&Path>) -> anyhow::Result<Vec<String>> {
    if !given.is_empty() {
        return Ok(given.to_vec());
    }
    let text = match input {
        Some(path) => {
            std::fs::read_to_string(path).with_context(|| format!("cannot read texts from {}", path.display()))?
        }
        None => io::read_to_string(io::stdin()).context("cannot read texts from standard input as UTF-8")?,
    };
    Ok(text.lines().map(str::to_owned).collect())
}

fn long_texts(truncate: bool) -> LongTexts {
    if truncate { LongTexts::Cut } else { LongTexts::Refuse }
}

/// Keeps the first numbers, and makes them one long.
fn shorten(vector: &mut Vec<f32>, dimensions: usize) {
    vector.truncate(dimensions);
    let length = vector.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|number| *number = (f64::from(*number) / length) as f32);
    }
}
