//! A stage that the coordinator runs itself, counted like those on other machines.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use cascadia_kernels::Pool;
use cascadia_model::{Hidden, LoadOptions, ModelLimits, Stage, StageError, StageTraits, StepPlan};

use crate::shards::shard::OpenShard;
use crate::{Clock, FleetError, OpenRecheck, Shard, StageStatus, os};

/// What the coordinator is called among its machines.
pub const HERE: &str = "here";

/// Layers that run in this process.
pub struct OwnStage {
    stage: Box<dyn Stage>,
    status: Mutex<StageStatus>,
}

impl OwnStage {
    /// Loads a stage from the folder of an export, if it is still the one that was exported.
    pub fn open(folder: &Path, shard: &Shard, options: &LoadOptions) -> Result<OwnStage, FleetError> {
        let open = OpenShard::exported(folder, shard)?;
        let status = StageStatus { layers: shard.layers, node: Some(HERE.to_owned()), ..StageStatus::default() };
        Ok(OwnStage { stage: open.load(options)?, status: Mutex::new(status) })
    }

    /// What it has done so far.
    pub fn status(&self) -> StageStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Opens a stage of an export with one thread and a cache of its own, when rows of a machine are first computed again. Its
/// weights may take half of the memory that is free then.
pub fn recheck_exported(folder: &Path, shard: &Shard, options: &LoadOptions) -> OpenRecheck {
    let (folder, shard, options) = (folder.to_owned(), shard.clone(), options.clone());
    Box::new(move |pages| {
        if os::free_memory().is_some_and(|free| shard.bytes > free / 2) {
            return Err(format!("{} is too large for the memory that is free", shard.file));
        }
        let limits = ModelLimits { cache: *pages, ..options.limits.clone() };
        let options = LoadOptions { limits, pool: Arc::new(Pool::new(1)), ..options };
        let open = OpenShard::exported(&folder, &shard).map_err(|error| error.to_string())?;
        open.load(&options).map_err(|error| error.to_string())
    })
}

impl Stage for OwnStage {
    fn layers(&self) -> Range<u32> {
        self.stage.layers()
    }

    /// What it cached for steps whose other stages were lost needs no fence: nobody else writes to pages of a step that
    /// is under way, and rows are written again before they are read.
    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        let begin = Clock::system().now();
        self.stage.run(plan, hidden)?;
        let microseconds = Clock::system().since(begin).as_micros() as u64;
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.steps += 1;
        status.rows += plan.tokens.len() as u64;
        status.microseconds += microseconds;
        status.computing_microseconds += microseconds;
        Ok(())
    }

    fn traits(&self) -> StageTraits {
        self.stage.traits()
    }

    fn end_sequence(&self, id: u64) {
        self.stage.end_sequence(id);
    }
}
