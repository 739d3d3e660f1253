//! Serves a model on a fleet: plans it over machines, splits it into shards, sends these to workers, opens the engine
//! that runs on them, and plans again when a stage has lost its last worker.
#![forbid(unsafe_code)]

mod admission;
mod coordinator;
mod error;
mod export;
mod machines;
mod model_costs;
mod plan;
mod planned_model;
mod served_stage;
mod status_feed;
mod waiting;

pub use coordinator::{Coordinator, CoordinatorOptions, Deployment, FirstModel, OpenedModel, StatusSink};
pub use error::CoordinatorError;
pub use export::{ExportJob, KEEP, recipe};
pub use machines::Machines;
pub use model_costs::model_costs;
pub use plan::{DEFAULT_USERS, PlanDemand, plan_for_known_machines, plan_model, split_as_planned};
pub use planned_model::{OpenModelFiles, PlannedModel, PreparedModel};
pub use waiting::WaitingCoordinator;
