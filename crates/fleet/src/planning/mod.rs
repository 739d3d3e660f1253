//! Which worker runs which layers.

pub(crate) mod plan;
pub(crate) mod replan;
pub(crate) mod split;
pub(crate) mod suggestions;

pub use plan::{
    Candidate, Cost, FleetPlan, MOST_MACHINES, ModelCosts, PlannedStage, Task, plan, plan_with_stages, predict,
};
pub use replan::ReplanTimer;
pub use split::{StageSplit, holds_ends, layer_names, possible_starts, tells_stage};
pub use suggestions::{Suggestion, suggestions};
