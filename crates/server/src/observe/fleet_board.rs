//! The state of a fleet: its coordinator writes it here, `/status` shows it.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

/// The state of the machines of a fleet, as JSON that the server only passes on to the page.
#[derive(Clone, Debug, Default)]
pub struct FleetBoard(Arc<Mutex<Value>>);

impl FleetBoard {
    /// Replaces what is shown.
    pub fn show(&self, fleet: Value) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = fleet;
    }

    /// The latest state; null before the first.
    pub(crate) fn read(&self) -> Value {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
