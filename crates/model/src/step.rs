//! What a layer is told about the step it runs in.

use std::sync::Arc;

use cascadia_kernels::{Ops, Pool, Readings};

use crate::adapter::AdapterRows;
use crate::plan::RowPlaces;
use crate::rope::RopeTable;
use crate::{Profile, StepPlan};

/// One step, passed down to everything that computes.
pub(crate) struct Step<'a> {
    /// What to compute.
    pub(crate) plan: &'a StepPlan,
    /// Sequence and position of the rows that are computed.
    pub(crate) places: &'a RowPlaces,
    /// Rotations of those rows, by kind.
    pub(crate) ropes: &'a [RopeTable],
    /// Adapters of those rows.
    pub(crate) adapters: &'a AdapterRows,
    /// Kernels of one instruction set, the same for the whole step.
    pub(crate) ops: &'static Ops,
    /// How they read each kind of matrix.
    pub(crate) readings: Arc<Readings>,
    /// Threads.
    pub(crate) pool: &'a Pool,
    /// Where the time goes.
    pub(crate) profile: &'a Profile,
}

impl Step<'_> {
    /// Rows that are computed.
    pub(crate) fn rows(&self) -> usize {
        self.places.positions.len()
    }
}
