//! A model whose layers have two KV caches: one in full precision, and one in the format that is tested.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use cascadia_engine::{CacheSize, Engine, EngineError, OpenOptions, Pipeline};
use cascadia_model::{
    CachePages, Hidden, LoadOptions, LocalStage, ModelLimits, ModelSpec, PAGE_TOKENS, ReservedPages, Stage, StageError,
    StageTraits, StepPlan,
};
use cascadia_weights::ModelFiles;

use crate::{EvalError, full_precision};

/// One sequence on such a model. All pages are kept, so that any part of it can be computed again.
pub struct TwoCaches {
    pipeline: Pipeline,
    pages: ReservedPages,
    used: Arc<Mutex<CacheUse>>,
    plan: StepPlan,
    logits: Vec<f32>,
}

/// What a step does with the two caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheUse {
    /// Reads and writes the one in full precision.
    FullPrecision,
    /// Reads and writes the one that is tested.
    Tested,
    /// Computes with the one in full precision, and stores the same keys and values in the one that is tested.
    Refresh,
}

impl TwoCaches {
    /// Opens a model for sequences of the context that `options` have; their formats are those that are tested.
    pub fn open(files: Arc<ModelFiles>, options: &OpenOptions) -> Result<TwoCaches, EvalError> {
        let spec = ModelSpec::from_files(&files).map_err(EngineError::from)?;
        let context = options.context.unwrap_or(spec.context);
        let pages = CachePages::new(|_| context.div_ceil(PAGE_TOKENS));
        let options = OpenOptions {
            context: Some(context),
            cache: CacheSize::Pages(pages),
            // Each layer has its own buffers, twice.
            rows_per_step: PAGE_TOKENS,
            ..options.clone()
        };
        let used = Arc::new(Mutex::new(CacheUse::Tested));
        let own_files = Arc::clone(&files);
        let engine = Engine::with_stages(files, &options, |spec, options| {
            let layers = 0..spec.layers.len() as u32;
            let layer = |layer: u32| LayerTwice::new(&own_files, spec, (layer..layer + 1, options), Arc::clone(&used));
            layers.map(|index| Ok(Box::new(layer(index)?) as Box<dyn Stage>)).collect::<Result<_, EngineError>>()
        })?;
        Ok(TwoCaches {
            pipeline: engine.into_pipeline(),
            pages: ReservedPages::new(0, pages),
            used,
            plan: StepPlan::default(),
            logits: Vec::new(),
        })
    }

    /// An error unless these tokens belong to the vocabulary and fit.
    pub(crate) fn check(&self, tokens: &[u32]) -> Result<(), EvalError> {
        let (vocabulary, context) = (self.pipeline.spec().vocabulary, self.pipeline.limits().context as usize);
        if let Some(&token) = tokens.iter().find(|token| **token as usize >= vocabulary) {
            return Err(EvalError::Option { name: "token", value: token as usize, allowed: "in the vocabulary" });
        }
        if tokens.len() > context {
            return Err(EvalError::Option { name: "tokens", value: tokens.len(), allowed: "within the context" });
        }
        Ok(())
    }

    /// Computes tokens that begin at position `start`; `each` hears the logits of each, with its position.
    pub(crate) fn predict(
        &mut self,
        used: CacheUse,
        (start, tokens): (usize, &[u32]),
        mut each: impl FnMut(usize, &[f32]) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let vocabulary = self.pipeline.spec().vocabulary.max(1);
        self.steps(used, (start, tokens), |model, first| {
            let rows: Vec<u32> = (0..model.plan.tokens.len() as u32).collect();
            model.pipeline.logits(&model.plan, &rows, &mut model.logits)?;
            let mut rows = model.logits.chunks_exact(vocabulary).enumerate();
            rows.try_for_each(|(row, logits)| each(first + row, logits))
        })
    }

    /// Computes tokens that begin at position `start` for what they leave in the caches.
    pub(crate) fn compute(&mut self, used: CacheUse, part: (usize, &[u32])) -> Result<(), EngineError> {
        self.steps(used, part, |_, _| Ok(()))
    }

    fn steps(
        &mut self,
        used: CacheUse,
        (start, tokens): (usize, &[u32]),
        mut after: impl FnMut(&mut TwoCaches, usize) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = used;
        let rows = self.pipeline.limits().rows_per_step as usize;
        for (index, chunk) in tokens.chunks(rows).enumerate() {
            let first = start + index * rows;
            self.plan = StepPlan::default();
            let runs = self.pages.runs((first + chunk.len()) as u32);
            self.plan.add(0, first as u32, chunk.iter().copied(), runs);
            self.pipeline.run(&self.plan)?;
            after(self, first)?;
        }
        Ok(())
    }
}

/// One layer with either cache.
struct LayerTwice {
    full_precision: LocalStage,
    tested: LocalStage,
    used: Arc<Mutex<CacheUse>>,
}

impl LayerTwice {
    fn new(
        files: &Arc<ModelFiles>,
        spec: &ModelSpec,
        (layer, options): (Range<u32>, &LoadOptions),
        used: Arc<Mutex<CacheUse>>,
    ) -> Result<LayerTwice, EngineError> {
        let limits = ModelLimits { kv: full_precision(), ..options.limits.clone() };
        let exact = LoadOptions { limits, ..options.clone() };
        Ok(LayerTwice {
            full_precision: LocalStage::new(files, spec, layer.clone(), &exact)?,
            tested: LocalStage::new(files, spec, layer, options)?,
            used,
        })
    }
}

impl Stage for LayerTwice {
    fn layers(&self) -> Range<u32> {
        self.tested.layers()
    }

    fn traits(&self) -> StageTraits {
        self.tested.traits()
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used == CacheUse::Tested {
            return self.tested.run(plan, hidden);
        }
        if used == CacheUse::Refresh {
            // What the layer makes of these rows with its other cache is not used: they come for their keys and values.
            self.tested.run(plan, &mut hidden.clone())?;
        }
        self.full_precision.run(plan, hidden)
    }
}
