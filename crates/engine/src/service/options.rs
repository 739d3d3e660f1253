//! Limits of a service.

use std::collections::BTreeMap;

use super::Tenant;
use super::schedule::Sharing;
use super::spill::SpillOptions;
use crate::AdapterStore;

/// Limits of a service, fixed at its start. How much is cached is fixed when the engine is opened.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Jobs that may wait; more are refused at once. Tenants that wait have equal shares of the queue, which may
    /// therefore be twice as long for a while after another tenant's first job.
    pub queue: usize,
    /// About how long a job may have to wait: where more wait than start in that time, a new one is refused at once.
    /// So many as are computed at a time may wait however long it takes.
    pub queue_seconds: f64,
    /// Jobs that are computed at a time.
    pub parallel: u32,
    /// The most rows of prompts in a step that also continues answers.
    pub prompt_rows_beside_answers: u32,
    /// About how long the rows of prompts in a step may take, which bounds the time between the tokens of answers, and
    /// how long a new request waits for the current step. Where a row takes long there are fewer of them, but enough to
    /// be worth a step: they may always take a few times as long as answers alone.
    pub prompt_seconds: f64,
    /// The most draft tokens of a step, of all sequences together; zero turns speculation off.
    pub draft_rows: u32,
    /// What a step with draft tokens is taken to cost, which decides how many there are.
    pub step_costs: StepCosts,
    /// Waiting this long makes a job as urgent as those of the next priority.
    pub patience_seconds: f64,
    /// Whether tenants use each other's cached prefixes.
    pub sharing: Sharing,
    /// Shares of tenants in the machine; 1 where there is none.
    pub weights: BTreeMap<Tenant, u32>,
    /// Where pages go that memory gives up; nowhere if not given.
    pub spill: Option<SpillOptions>,
    /// Adapters that may use memory of the KV cache while no job needs it, where the whole model runs in this process.
    pub adapters: Option<AdapterStore>,
}

/// What steps cost. It decides how many draft tokens are computed, and never which tokens an answer has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepCosts {
    /// What they have taken so far.
    Measured,
    /// Each row after the first costs this share of a step of one row, and so does a token of a draft model.
    PerRow(f64),
}

impl Default for ServiceOptions {
    fn default() -> ServiceOptions {
        ServiceOptions {
            queue: 64,
            queue_seconds: 8.0,
            parallel: 8,
            prompt_rows_beside_answers: 128,
            prompt_seconds: 0.02,
            draft_rows: 32,
            step_costs: StepCosts::Measured,
            patience_seconds: 30.0,
            sharing: Sharing::WithinTenant,
            weights: BTreeMap::new(),
            spill: None,
            adapters: None,
        }
    }
}
