//! The place where running code finds its kernels.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use super::Ops;
use crate::readings::Readings;

/// Holds a table of kernels, and how they read each kind of matrix, both of which may be replaced while a model is
/// loaded. Whoever computes reads them once per step, so that a step never mixes two tables. Clones share both.
#[derive(Clone)]
pub struct OpsSlot(Arc<RwLock<Held>>);

struct Held {
    ops: &'static Ops,
    readings: Arc<Readings>,
    choices: Option<PathBuf>,
}

impl OpsSlot {
    /// A slot that begins with `ops`.
    pub fn new(ops: &'static Ops) -> OpsSlot {
        OpsSlot(Arc::new(RwLock::new(Held { ops, readings: Arc::default(), choices: None })))
    }

    /// The best table of this CPU. Models that are loaded with it measure how it reads their matrices best, and keep
    /// what they find in this file.
    pub fn measuring(choices: PathBuf) -> OpsSlot {
        let held = Held { ops: Ops::best(), readings: Arc::default(), choices: Some(choices) };
        OpsSlot(Arc::new(RwLock::new(held)))
    }

    /// Where measured choices are kept, if anything is to be measured.
    pub fn choices(&self) -> Option<PathBuf> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).choices.clone()
    }

    /// The table to use for the next step.
    pub fn current(&self) -> &'static Ops {
        self.0.read().unwrap_or_else(PoisonError::into_inner).ops
    }

    /// How the next step reads matrices.
    pub fn readings(&self) -> Arc<Readings> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).readings)
    }

    /// Puts another table in its place; steps that begin later use it.
    pub fn replace(&self, ops: &'static Ops) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).ops = ops;
    }

    /// Steps that begin later read matrices like this.
    pub fn set_readings(&self, readings: Readings) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).readings = Arc::new(readings);
    }
}

impl Default for OpsSlot {
    /// The best table of this CPU.
    fn default() -> OpsSlot {
        OpsSlot::new(Ops::best())
    }
}
