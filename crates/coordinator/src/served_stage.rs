//! A stage of a model that runs here or on a worker, watched while the engine uses it.

use std::sync::Arc;

use cascadia_fleet::{OwnStage, RemoteStage, StageStatus};
use cascadia_model::{Hidden, Stage, StageError, StageTraits, StepPlan};

/// A stage and where it runs.
#[derive(Clone)]
pub(crate) enum ServedStage {
    /// In this process.
    Here(Arc<OwnStage>),
    /// On a worker.
    Remote(Arc<RemoteStage>),
}

impl ServedStage {
    fn stage(&self) -> &dyn Stage {
        match self {
            ServedStage::Here(stage) => &**stage,
            ServedStage::Remote(stage) => &**stage,
        }
    }

    /// Asks its worker for a heartbeat.
    pub(crate) fn check(&self) {
        match self {
            ServedStage::Here(_) => {}
            ServedStage::Remote(stage) => stage.check(),
        }
    }

    /// What it has done so far, and for whom.
    pub(crate) fn status(&self) -> StageStatus {
        match self {
            ServedStage::Here(stage) => stage.status(),
            ServedStage::Remote(stage) => stage.status(),
        }
    }
}

impl Stage for ServedStage {
    fn layers(&self) -> std::ops::Range<u32> {
        self.stage().layers()
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        self.stage().run(plan, hidden)
    }

    fn traits(&self) -> StageTraits {
        self.stage().traits()
    }

    fn end_sequence(&self, id: u64) {
        self.stage().end_sequence(id);
    }
}
