//! Decode speed of several sequences in one step.

use std::sync::Arc;
use std::time::Instant;

use cascadia_engine::{EngineError, Pipeline};
use cascadia_model::{
    Adapter, CacheDemand, CachePages, LoadOptions, ModelLimits, ModelSpec, PAGE_TOKENS, ReservedPages, StepPlan, load,
};
use cascadia_weights::ModelFiles;

use crate::EvalError;
use crate::speed::{Spread, synthetic_tokens};

/// What to measure.
#[derive(Clone, Debug)]
pub struct BatchPlan {
    /// Sequences that run together.
    pub sequences: usize,
    /// Tokens in each sequence before the measurement.
    pub prompt: usize,
    /// Tokens whose decoding is timed, one step for all sequences.
    pub generate: usize,
    /// Times the measurement is repeated.
    pub repeat: usize,
}

impl BatchPlan {
    /// Pages of the cache that one sequence needs.
    fn pages(&self) -> usize {
        (self.prompt + self.generate).div_ceil(PAGE_TOKENS as usize)
    }

    /// Tokens of context that the model must be loaded with.
    pub fn context(&self) -> usize {
        self.pages() * PAGE_TOKENS as usize
    }
}

/// Loads the model for the plan, with pages for all its sequences, and returns generated tokens per second, of all sequences together.
pub fn measure_batch(files: &Arc<ModelFiles>, plan: &BatchPlan, options: &LoadOptions) -> Result<Spread, EvalError> {
    let mut run = BatchRun::prepare(files, plan, options)?;
    // The first one warms up and is not counted.
    run.decode([&[]])?;
    let speeds = (0..plan.repeat).map(|_| run.decode([&[]]).map(|[speed]| speed)).collect::<Result<_, _>>()?;
    Ok(Spread::of(speeds))
}

/// What adapters cost.
#[derive(Clone, Copy, Debug)]
pub struct AdapterCost {
    /// Tokens per second without adapters, of all sequences together.
    pub alone: Spread,
    /// The same with adapters.
    pub adapted: Spread,
    /// Products that the model without adapters adds up for one token, attention included.
    pub multiply_adds: u64,
}

/// The same without adapters and with them: every sequence has one of `adapters`. They take turns step by step, so that a machine
/// which others use as well is as fast for both.
pub fn measure_adapters(
    files: &Arc<ModelFiles>,
    plan: &BatchPlan,
    options: &LoadOptions,
    adapters: &[Arc<Adapter>],
) -> Result<AdapterCost, EvalError> {
    let mut run = BatchRun::prepare(files, plan, options)?;
    // Both have to warm up; what is counted meanwhile is the model alone.
    options.profile.take();
    run.decode([&[]])?;
    let operations: u64 = options.profile.take().iter().map(|(_, _, work)| work.operations).sum();
    let multiply_adds = operations / 2 / (plan.sequences * plan.generate) as u64;
    run.decode([adapters])?;
    let speeds = (0..plan.repeat).map(|_| run.decode([&[], adapters])).collect::<Result<Vec<_>, _>>()?;
    let [alone, adapted] = [0, 1].map(|with| Spread::of(speeds.iter().map(|speeds| speeds[with]).collect()));
    Ok(AdapterCost { alone, adapted, multiply_adds })
}

/// Sequences that are ready to be decoded.
struct BatchRun<'a> {
    batch: Batch,
    plan: &'a BatchPlan,
    tokens: Vec<u32>,
}

impl BatchRun<'_> {
    /// Loads the model and computes the prompts.
    fn prepare<'a>(
        files: &Arc<ModelFiles>,
        plan: &'a BatchPlan,
        options: &LoadOptions,
    ) -> Result<BatchRun<'a>, EvalError> {
        for (name, value) in [("batch", plan.sequences), ("gen", plan.generate), ("repeat", plan.repeat)] {
            if value == 0 || value > options.limits.rows_per_step as usize {
                return Err(EvalError::Option {
                    name,
                    value,
                    allowed: "at least 1 and at most what one step computes",
                });
            }
        }
        let spec = ModelSpec::from_files(files).map_err(EngineError::from)?;
        let ModelLimits { context, rows_per_step, .. } = options.limits;
        let layout = options.limits.kv_layout(&spec);
        let sequences = plan.sequences as u32;
        let cache = CachePages::whole(&layout, &CacheDemand { context, rows_per_step, sequences });
        let options = LoadOptions { limits: ModelLimits { cache, ..options.limits.clone() }, ..options.clone() };
        let mut batch = Batch::new(Pipeline::new(load(files, &options).map_err(EngineError::from)?, &options));
        let tokens = synthetic_tokens(spec.vocabulary, plan.context() * plan.sequences);
        for sequence in 0..plan.sequences {
            batch.prefill(sequence, &tokens[sequence * plan.prompt..(sequence + 1) * plan.prompt])?;
        }
        Ok(BatchRun { batch, plan, tokens })
    }

    /// Tokens per second, of all sequences together, with each of these sets of adapters.
    fn decode<const N: usize>(&mut self, with: [&[Arc<Adapter>]; N]) -> Result<[f64; N], EvalError> {
        let BatchPlan { sequences, prompt, generate, .. } = *self.plan;
        let mut seconds = [0.0; N];
        for step in 0..generate {
            for (seconds, adapters) in seconds.iter_mut().zip(with) {
                self.batch.adapters = adapters.to_vec();
                let begin = Instant::now();
                self.batch.decode(prompt + step, &self.tokens[step * sequences..(step + 1) * sequences])?;
                *seconds += begin.elapsed().as_secs_f64();
            }
        }
        Ok(seconds.map(|seconds| (sequences * generate) as f64 / seconds.max(1e-9)))
    }
}

/// Sequences of equal length on one model, each with its own part of the cache.
pub(crate) struct Batch {
    pipeline: Pipeline,
    plan: StepPlan,
    logits: Vec<f32>,
    /// Pages of each sequence.
    per_sequence: CachePages,
    /// Sequences have one after the other of these; none where there are none.
    adapters: Vec<Arc<Adapter>>,
}

impl Batch {
    /// Empty sequences on a model whose cache has room for all of them.
    pub(crate) fn new(pipeline: Pipeline) -> Batch {
        let limits = pipeline.limits();
        let layout = limits.kv_layout(pipeline.spec());
        let per_sequence = ReservedPages::per_sequence(&layout, limits.context, limits.rows_per_step);
        Batch { pipeline, plan: StepPlan::default(), logits: Vec::new(), per_sequence, adapters: Vec::new() }
    }

    /// Computes a whole sequence anew, and the logits of its last token.
    pub(crate) fn prefill(&mut self, sequence: usize, tokens: &[u32]) -> Result<(), EngineError> {
        let rows = self.pipeline.limits().rows_per_step as usize;
        for (index, chunk) in tokens.chunks(rows).enumerate() {
            self.set(chunk, [(sequence, index * rows, chunk.len())].into_iter());
            self.pipeline.run(&self.plan)?;
        }
        self.logits_of(&[self.plan.tokens.len().saturating_sub(1) as u32])
    }

    /// Computes the next token of every sequence in one step, and its logits.
    pub(crate) fn decode(&mut self, position: usize, tokens: &[u32]) -> Result<(), EngineError> {
        self.set(tokens, (0..tokens.len()).map(|sequence| (sequence, position, 1)));
        self.pipeline.run(&self.plan)?;
        self.logits_of(&(0..tokens.len() as u32).collect::<Vec<_>>())
    }

    /// The next step computes `tokens`, which belong to (sequence, position, rows) in order.
    fn set(&mut self, mut tokens: &[u32], places: impl Iterator<Item = (usize, usize, usize)>) {
        self.plan = StepPlan::default();
        for (sequence, start, rows) in places {
            let (own, rest) = tokens.split_at(rows);
            tokens = rest;
            let runs = ReservedPages::new(sequence as u32, self.per_sequence).runs((start + rows) as u32);
            self.plan.add(sequence as u64, start as u32, own.iter().copied(), runs);
            self.plan.adapt(self.adapters.get(sequence % self.adapters.len().max(1)).cloned());
        }
    }

    fn logits_of(&mut self, rows: &[u32]) -> Result<(), EngineError> {
        Ok(self.pipeline.logits(&self.plan, rows, &mut self.logits)?)
    }
}
