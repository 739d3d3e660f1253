//! The place where running code finds its table of kernels.

use std::sync::{Arc, PoisonError, RwLock};

use super::Ops;

/// Holds a table that may be replaced while a model is loaded. Whoever computes reads it once per step, so that a step
/// never mixes two tables. Clones share the table.
#[derive(Clone)]
pub struct OpsSlot(Arc<RwLock<&'static Ops>>);

impl OpsSlot {
    /// A slot that begins with `ops`.
    pub fn new(ops: &'static Ops) -> OpsSlot {
        OpsSlot(Arc::new(RwLock::new(ops)))
    }

    /// The table to use for the next step.
    pub fn current(&self) -> &'static Ops {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts another table in its place; steps that begin later use it.
    pub fn replace(&self, ops: &'static Ops) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = ops;
    }
}

impl Default for OpsSlot {
    /// The best table of this CPU.
    fn default() -> OpsSlot {
        OpsSlot::new(Ops::best())
    }
}
