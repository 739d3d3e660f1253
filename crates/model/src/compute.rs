//! What computes: the kernels of this CPU, the threads that run them and the counters of what they do.

use std::sync::Arc;

use cascadia_kernels::{OpsSlot, Pool};

use crate::adapter::AdapterRows;
use crate::plan::RowPlaces;
use crate::rope::RopeTable;
use crate::step::Step;
use crate::{Profile, StepPlan};

/// Kernels, threads and counters of a stage.
#[derive(Clone)]
pub struct Compute {
    /// Kernels of one instruction set, read once per step.
    pub ops: OpsSlot,
    /// Threads.
    pub pool: Arc<Pool>,
    /// Where the time goes.
    pub profile: Arc<Profile>,
}

impl Compute {
    /// A step on these resources, of rows with these places, rotations and adapters.
    pub(crate) fn step<'a>(
        &'a self,
        plan: &'a StepPlan,
        (places, ropes, adapters): (&'a RowPlaces, &'a [RopeTable], &'a AdapterRows),
    ) -> Step<'a> {
        let (ops, readings) = (self.ops.current(), self.ops.readings());
        Step { plan, places, ropes, adapters, ops, readings, pool: &self.pool, profile: &self.profile }
    }
}
