//! How other machines are that compute with this one: whoever leads them writes it here, `/status` shows it.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

/// What is known of the machines of a fleet. The server only passes it on; the page draws it.
#[derive(Clone, Debug, Default)]
pub struct FleetBoard(Arc<Mutex<Value>>);

impl FleetBoard {
    /// Replaces what is shown.
    pub fn show(&self, fleet: Value) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = fleet;
    }

    /// What was shown last; null if nothing was.
    pub(crate) fn read(&self) -> Value {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
