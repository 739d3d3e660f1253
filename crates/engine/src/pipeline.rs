//! A model as the engine runs it: both ends here, and stages between them wherever they are.

use cascadia_model::{CachePages, Hidden, LoadOptions, LoadedModel, ModelSpec, Stage, StageError, StepPlan, TokenIo};

/// Runs steps. It does not know whether a stage is here or on another machine.
pub struct Pipeline {
    spec: ModelSpec,
    limits: PipelineLimits,
    token_io: TokenIo,
    stages: Vec<Box<dyn Stage>>,
    hidden: Hidden,
}

/// What a pipeline was loaded for.
#[derive(Clone, Copy, Debug)]
pub struct PipelineLimits {
    /// Tokens of the longest sequence.
    pub context: u32,
    /// The most tokens of one step.
    pub rows_per_step: u32,
    /// Pages that all sequences share.
    pub cache: CachePages,
}

impl Pipeline {
    /// A pipeline over a model that was loaded with these options.
    pub fn new(model: LoadedModel, options: &LoadOptions) -> Pipeline {
        let limits = PipelineLimits {
            context: options.context,
            rows_per_step: options.rows_per_step.max(1),
            cache: options.cache_pages(&model.spec),
        };
        let LoadedModel { spec, token_io, stages } = model;
        Pipeline { spec, limits, token_io, stages, hidden: Hidden::default() }
    }

    /// The model's description.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// What it was loaded for.
    pub fn limits(&self) -> PipelineLimits {
        self.limits
    }

    /// Computes a step; its hidden states stay here until the next one.
    pub fn run(&mut self, plan: &StepPlan) -> Result<(), StageError> {
        self.token_io.embed(plan, &mut self.hidden)?;
        self.stages.iter().try_for_each(|stage| stage.run(plan, &mut self.hidden))
    }

    /// out = the logits of some rows of the last step, `rows × vocabulary`.
    pub fn logits(&mut self, rows: &[u32], out: &mut Vec<f32>) -> Result<(), StageError> {
        self.token_io.logits(&self.hidden, rows, out)
    }

    /// out = the final hidden states of some rows of the last step, `rows × width`.
    pub fn normed(&mut self, rows: &[u32], out: &mut Vec<f32>) -> Result<(), StageError> {
        self.token_io.normed(&self.hidden, rows, out)
    }
}
