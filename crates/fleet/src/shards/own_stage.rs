//! A stage that the coordinator runs itself, counted like those on other machines.

use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use cascadia_model::{Hidden, LoadOptions, Stage, StageError, StageTraits, StepPlan};

use crate::shards::shard::OpenShard;
use crate::{Clock, FleetError, Shard, StageStatus};

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
        let path = folder.join(&shard.file);
        let open = OpenShard::read(&path)?;
        if open.digest != shard.digest {
            return Err(FleetError::file(&path, "it is not what the manifest describes; export the model again"));
        }
        let status = StageStatus { layers: shard.layers, node: Some(HERE.to_owned()), ..StageStatus::default() };
        Ok(OwnStage { stage: open.load(options)?, status: Mutex::new(status) })
    }

    /// What it has done so far.
    pub fn status(&self) -> StageStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
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
