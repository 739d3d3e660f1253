//! From the file of a shard to a worker that runs it.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cascadia_kernels::{OpsSlot, Pool};
use cascadia_model::{LoadOptions, ModelError, ModelSpec, Stage, load_stage};
use cascadia_weights::{ModelFiles, WeightPages};

use crate::{Digest, FleetError, Hello, RowShape, Sandbox, Shard, StageLimits, WorkerStage};

/// How long a worker waits for a coordinator that says nothing before it connects anew.
const LEASE: Duration = Duration::from_secs(5);

/// How a worker runs its shard.
#[derive(Clone)]
pub struct ShardOptions {
    /// The version of this program, which its coordinator compares with its own.
    pub program: String,
    /// The threads to compute with.
    pub pool: Arc<Pool>,
    /// The kernels to compute with.
    pub ops: OpsSlot,
    /// The most bytes the process may take; layers that do not fit are read again in every step.
    pub memory: Option<u64>,
    /// What is done with the pages of weights at once.
    pub pages: WeightPages,
    /// The sandbox that the process is in.
    pub sandbox: Sandbox,
}

/// Opens a shard; its stage is loaded when a coordinator says for what.
pub fn open_shard(path: &Path, options: ShardOptions) -> Result<WorkerStage, FleetError> {
    let shard = OpenShard::read(path)?;
    let spec = &shard.spec;
    let shape = RowShape { hidden_width: spec.hidden_width(), needs_tokens: spec.per_layer.is_some() };
    let hello = Hello { program: options.program, shard: Some(shard.digest), sandbox: options.sandbox };
    let ShardOptions { pool, ops, memory, pages, .. } = options;
    let load = move |limits: &StageLimits| {
        let options = LoadOptions::new(limits.model.clone(), Arc::clone(&pool));
        let options = LoadOptions { memory, pages, ops: ops.clone(), ..options };
        shard.load(&options).map_err(|error| error.to_string())
    };
    Ok(WorkerStage::new(hello, shape, LEASE, Box::new(load)))
}

/// A file with some layers of a model.
pub(crate) struct OpenShard {
    pub(crate) digest: Digest,
    files: Arc<ModelFiles>,
    spec: ModelSpec,
    layers: Range<u32>,
}

impl OpenShard {
    pub(crate) fn read(path: &Path) -> Result<OpenShard, FleetError> {
        let (digest, _) = Digest::of_file(path)?;
        let files = Arc::new(ModelFiles::open(path)?);
        let spec = ModelSpec::from_files(&files)?;
        let layers = layers(&files).ok_or_else(|| {
            let problem = "it holds no layers, so it is no stage; give a stage-N.gguf that `cascadia export` wrote";
            FleetError::file(path, problem)
        })?;
        Ok(OpenShard { digest, files, spec, layers })
    }

    /// One in the folder of an export, if it is still what was exported.
    pub(crate) fn exported(folder: &Path, shard: &Shard) -> Result<OpenShard, FleetError> {
        let path = folder.join(&shard.file);
        let open = OpenShard::read(&path)?;
        if open.digest != shard.digest {
            return Err(FleetError::file(&path, "it is not what the manifest describes; export the model again"));
        }
        Ok(open)
    }

    /// Loads its layers with the backend of this machine.
    pub(crate) fn load(&self, options: &LoadOptions) -> Result<Box<dyn Stage>, ModelError> {
        load_stage(&self.files, &self.spec, self.layers.clone(), options)
    }
}

/// The layers whose tensors a file holds, if they follow each other.
fn layers(files: &ModelFiles) -> Option<Range<u32>> {
    let numbers = files.tensors().iter().filter_map(|tensor| crate::planning::split::layer(tensor.name()));
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    let (first, last) = (*numbers.first()?, *numbers.last()?);
    ((last - first) as usize == numbers.len() - 1).then(|| first..last + 1)
}
