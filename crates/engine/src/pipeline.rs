//! A model as the engine runs it: both ends here, and stages between them, local or remote.

use std::sync::Arc;

use cascadia_model::{
    Adapter, Hidden, LoadOptions, LoadedModel, ModelLimits, ModelSpec, Stage, StageCache, StageError, StepPlan, TokenIo,
};

/// Runs steps. It does not know which machines run its stages.
pub struct Pipeline {
    spec: ModelSpec,
    limits: ModelLimits,
    token_io: TokenIo,
    stages: Arc<[Box<dyn Stage>]>,
    /// What changes the weights for sequences that have no adapter of their own.
    adapter: Option<Arc<Adapter>>,
    /// The rows of the last step.
    hidden: Hidden,
    /// Room for the rows of others.
    spare: Vec<Hidden>,
}

impl Pipeline {
    /// A pipeline over a model that was loaded with these options.
    pub fn new(model: LoadedModel, options: &LoadOptions) -> Pipeline {
        let limits = ModelLimits { rows_per_step: options.limits.rows_per_step.max(1), ..options.limits.clone() };
        let LoadedModel { spec, token_io, stages } = model;
        let (hidden, spare) = (Hidden::default(), Vec::new());
        Pipeline { spec, limits, token_io, stages: stages.into(), adapter: None, hidden, spare }
    }

    /// The same with an adapter for all sequences that have none of their own.
    pub fn with_adapter(self, adapter: Option<Arc<Adapter>>) -> Pipeline {
        Pipeline { adapter, ..self }
    }

    /// The adapter of sequences that have none of their own.
    pub fn adapter(&self) -> Option<&Arc<Adapter>> {
        self.adapter.as_ref()
    }

    /// The model's description.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// What it was loaded for.
    pub fn limits(&self) -> &ModelLimits {
        &self.limits
    }

    /// What rounds or changes what is computed besides the weights, as a text: tokens depend on it.
    pub(crate) fn numerics(&self) -> String {
        let numerics = self.limits.numerics(&self.spec);
        match &self.adapter {
            None => numerics,
            Some(adapter) => format!("{numerics}, adapter {}", adapter.id()),
        }
    }

    /// Computes a step; its hidden states stay here until the next one.
    pub fn run(&mut self, plan: &StepPlan) -> Result<(), StageError> {
        let mut hidden = self.embed(plan)?;
        let ran = self.stages.iter().try_for_each(|stage| stage.run(plan, &mut hidden));
        self.keep(hidden);
        ran
    }

    /// The rows of a step before the first stage.
    pub(crate) fn embed(&mut self, plan: &StepPlan) -> Result<Hidden, StageError> {
        let mut hidden = self.spare.pop().unwrap_or_default();
        self.token_io.embed(plan, &mut hidden)?;
        Ok(hidden)
    }

    /// What rows pass between `embed` and `keep`.
    pub(crate) fn stages(&self) -> Arc<[Box<dyn Stage>]> {
        Arc::clone(&self.stages)
    }

    /// How its stages keep what they have computed: in pages only if all of them do.
    pub fn cache(&self) -> StageCache {
        match self.stages.iter().any(|stage| stage.traits().cache == StageCache::PerSequence) {
            true => StageCache::PerSequence,
            false => StageCache::Paged,
        }
    }

    /// Tells all stages that no step of a sequence follows.
    pub fn end_sequence(&self, id: u64) {
        self.stages.iter().for_each(|stage| stage.end_sequence(id));
    }

    /// Keeps rows that have passed all stages until others take their place.
    pub(crate) fn keep(&mut self, hidden: Hidden) {
        self.spare.push(std::mem::replace(&mut self.hidden, hidden));
    }

    /// out = the logits of some rows of the last step, whose plan this is, `rows × vocabulary`.
    pub fn logits(&mut self, plan: &StepPlan, rows: &[u32], out: &mut Vec<f32>) -> Result<(), StageError> {
        self.token_io.logits(plan, &self.hidden, rows, out)
    }

    /// out = the final hidden states of some rows of the last step, whose plan this is, `rows × width`.
    pub fn normed(&mut self, plan: &StepPlan, rows: &[u32], out: &mut Vec<f32>) -> Result<(), StageError> {
        self.token_io.normed(plan, &self.hidden, rows, out)
    }

    /// What the model says of a text whose hidden states became this row; `None` where it says nothing.
    pub fn classify(&mut self, row: &[f32]) -> Result<Option<Vec<f32>>, StageError> {
        self.token_io.classify(row)
    }
}
