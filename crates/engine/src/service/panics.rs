//! Where panics end: each is counted, and is an error of the job or the step in which it happened.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cascadia_model::StageError;

use crate::EngineError;

/// Catches panics and counts them; clones count together.
#[derive(Clone, Debug, Default)]
pub(super) struct PanicBoundary {
    caught: Arc<AtomicU64>,
}

impl PanicBoundary {
    /// Runs something whose state is not used again if it panics, or is put right by the caller.
    pub(super) fn catch<T>(&self, action: impl FnOnce() -> T) -> Result<T, EngineError> {
        catch_unwind(AssertUnwindSafe(action)).map_err(|_| {
            self.caught.fetch_add(1, Ordering::Relaxed);
            EngineError::Panicked
        })
    }

    /// Runs a part of the model on the rows of a step. After a panic these are written again before they are read.
    pub(super) fn catch_step<T>(&self, action: impl FnOnce() -> Result<T, StageError>) -> Result<T, StageError> {
        let panicked = |_| Err(StageError::Plan { problem: "it broke off; this is a bug worth reporting".into() });
        self.catch(action).unwrap_or_else(panicked)
    }

    /// How many were caught.
    pub(super) fn count(&self) -> u64 {
        self.caught.load(Ordering::Relaxed)
    }
}
