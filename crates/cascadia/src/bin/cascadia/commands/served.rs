//! A stage of a fleet, here or on another machine, that is looked after while the engine has it.

use std::sync::Arc;

use cascadia_fleet::{OwnStage, RemoteStage, StageStatus};
use cascadia_model::{Hidden, Stage, StageError, StepPlan};

/// Where it runs.
#[derive(Clone)]
pub(super) enum Served {
    Here(Arc<OwnStage>),
    There(Arc<RemoteStage>),
}

impl Served {
    fn stage(&self) -> &dyn Stage {
        match self {
            Served::Here(stage) => &**stage,
            Served::There(stage) => &**stage,
        }
    }

    /// Asks for a sign of life.
    pub(super) fn check(&self) {
        match self {
            Served::Here(_) => {}
            Served::There(stage) => stage.check(),
        }
    }

    pub(super) fn status(&self) -> StageStatus {
        match self {
            Served::Here(stage) => stage.status(),
            Served::There(stage) => stage.status(),
        }
    }
}

impl Stage for Served {
    fn layers(&self) -> std::ops::Range<u32> {
        self.stage().layers()
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        self.stage().run(plan, hidden)
    }

    fn is_here(&self) -> bool {
        self.stage().is_here()
    }
}
