//! Limits of a service.

use std::collections::BTreeMap;

use super::Tenant;
use super::schedule::Sharing;

/// Limits of a service, fixed at its start. How much is cached is fixed when the engine is opened.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Jobs that may wait; more are refused at once.
    pub queue: usize,
    /// Jobs that are computed at a time.
    pub parallel: u32,
    /// The most rows of prompts in a step that also continues answers.
    pub prompt_rows_beside_answers: u32,
    /// About how long those rows may take, which bounds the time between the tokens of the answers; there are fewer of
    /// them where a row takes long, but never fewer than eight unless the limit above says so.
    pub prompt_seconds_beside_answers: f64,
    /// The most guessed rows of a step, of all sequences together; none turns guessing off.
    pub draft_rows: u32,
    /// Waiting this long makes a job as urgent as those of the next priority.
    pub patience_seconds: f64,
    /// Whether tenants use each other's cached prefixes.
    pub sharing: Sharing,
    /// Shares of tenants in the machine; 1 where there is none.
    pub weights: BTreeMap<Tenant, u32>,
}

impl Default for ServiceOptions {
    fn default() -> ServiceOptions {
        ServiceOptions {
            queue: 64,
            parallel: 8,
            prompt_rows_beside_answers: 128,
            prompt_seconds_beside_answers: 0.15,
            draft_rows: 8,
            patience_seconds: 30.0,
            sharing: Sharing::WithinTenant,
            weights: BTreeMap::new(),
        }
    }
}
