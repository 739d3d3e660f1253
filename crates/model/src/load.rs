//! From files to a model that runs here, in one call.

use std::ops::Range;
use std::sync::Arc;

use cascadia_kernels::{Activations, OpsSlot, Pool};
use cascadia_weights::{ModelFiles, WeightPages};

use crate::adapter::AdapterRows;
use crate::residency;
use crate::tuning;
use crate::{ActivationStats, Compute, LocalStage, ModelError, ModelLimits, ModelSpec, Profile, Stage, TokenIo};

/// Limits and threads of a loaded model; nothing grows beyond them later.
#[derive(Clone)]
pub struct LoadOptions {
    /// What it is loaded for.
    pub limits: ModelLimits,
    /// Kernels that compute.
    pub ops: OpsSlot,
    /// Threads that compute.
    pub pool: Arc<Pool>,
    /// Counters of what they do.
    pub profile: Arc<Profile>,
    /// The most bytes the process may take; layers that do not fit are read again in every step.
    pub memory: Option<u64>,
    /// Bytes of them that are kept for others in the process.
    pub reserved: u64,
    /// What is done with the pages of weights at once.
    pub pages: WeightPages,
    /// Measures the activations that meet each matrix; costs time, so only when it is wanted.
    pub stats: Option<ActivationStats>,
}

impl LoadOptions {
    /// The best kernels of this CPU, no cap on memory, and counters that nobody else reads.
    pub fn new(limits: ModelLimits, pool: Arc<Pool>) -> LoadOptions {
        let (ops, profile) = (OpsSlot::default(), Arc::default());
        LoadOptions {
            limits,
            ops,
            pool,
            profile,
            memory: None,
            reserved: 0,
            pages: WeightPages::default(),
            stats: None,
        }
    }

    /// What a whole model takes besides its cache when all of its layers stay in memory: weights, buffers, program.
    pub fn bytes_beside_cache(&self, files: &ModelFiles, spec: &ModelSpec) -> u64 {
        residency::bytes_beside_cache(files, spec, self)
    }

    /// Room for activations of `rows × width` numbers.
    pub(crate) fn activations(&self, rows: usize, width: usize) -> Activations {
        Activations::with_capacity(rows, width).with_precision(self.limits.activations, self.pool.threads())
    }

    /// Room for the adapters of a step.
    pub(crate) fn adapter_rows(&self) -> AdapterRows {
        AdapterRows::new(self.limits.activations, self.pool.threads())
    }

    pub(crate) fn compute(&self) -> Compute {
        Compute { ops: self.ops.clone(), pool: Arc::clone(&self.pool), profile: Arc::clone(&self.profile) }
    }
}

/// A model in one piece: both ends, and one local stage of all layers between them.
pub struct LoadedModel {
    /// Its architecture.
    pub spec: ModelSpec,
    /// Tokens in, logits out.
    pub token_io: TokenIo,
    /// What lies between, in order.
    pub stages: Vec<Box<dyn Stage>>,
}

/// Loads some layers of a model with the backend of this machine.
pub fn load_stage(
    files: &Arc<ModelFiles>,
    spec: &ModelSpec,
    layers: Range<u32>,
    options: &LoadOptions,
) -> Result<Box<dyn Stage>, ModelError> {
    let stage = LocalStage::new(files, spec, layers, options)?;
    if !stage.keeps_all_weights() {
        let asked = options.pages != WeightPages::default();
        return if asked { Err(ModelError::PagesDoNotStay) } else { Ok(Box::new(stage)) };
    }
    files.prepare_pages(options.pages)?;
    tuning::choose(files, options);
    Ok(Box::new(stage))
}

/// Loads a whole model. Weights stay where they are in the mapped files.
pub fn load(files: &Arc<ModelFiles>, options: &LoadOptions) -> Result<LoadedModel, ModelError> {
    let spec = ModelSpec::from_files(files)?;
    let token_io = TokenIo::new(files, &spec, options)?;
    let stage = load_stage(files, &spec, 0..spec.layers.len() as u32, options)?;
    Ok(LoadedModel { spec, token_io, stages: vec![stage] })
}
