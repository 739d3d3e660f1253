//! What the service is doing, as numbers.

use super::schedule::TenantShare;
use super::spill::SpillStatus;

/// The service at one moment; counters only grow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Jobs that wait.
    pub waiting: u64,
    /// Jobs that are being computed.
    pub running: u64,
    /// Jobs that were preempted; they continue later.
    pub preempted: u64,
    /// Pages of the cache.
    pub pages: u64,
    /// Of those, pages that running jobs hold.
    pub pages_held: u64,
    /// Of those, pages kept because a later prompt may begin with them.
    pub pages_cached: u64,
    /// Of all pages, those whose memory adapters use.
    pub pages_lent: u64,
    /// Pages that jobs took back from adapters.
    pub pages_taken_back: u64,
    /// Pages of layers that read a window.
    pub window_pages: u64,
    /// Of those, pages that running jobs hold.
    pub window_pages_held: u64,
    /// Of those, pages kept for later prompts.
    pub window_pages_cached: u64,
    /// Pages of the newest tokens of a quantised cache.
    pub tail_pages: u64,
    /// Of those, pages that running jobs hold.
    pub tail_pages_held: u64,
    /// Of those, pages kept for later prompts.
    pub tail_pages_cached: u64,
    /// Jobs that ended with an answer.
    pub finished: u64,
    /// Jobs whose receiver went away.
    pub cancelled: u64,
    /// Jobs that ended with an error.
    pub failed: u64,
    /// Panics that were caught: bugs that ended at most a few jobs.
    pub panics: u64,
    /// Of those, panics after which everything was planned and computed again from the open model.
    pub restarts: u64,
    /// Whether that has just happened, and no step was computed since.
    pub restarting: bool,
    /// Whether the service has ended for good by a panic while it restarted.
    pub dead: bool,
    /// The share that is used of the memory of the machine, or of the control group, in percent; 0 where nobody says.
    pub memory_percent: u32,
    /// Whether no job is taken because of that.
    pub memory_full: bool,
    /// Jobs refused because the queue was full.
    pub refused: u64,
    /// Tokens of prompts that were computed.
    pub prompt_tokens: u64,
    /// Tokens of prompts that the cache already held.
    pub reused_tokens: u64,
    /// Tokens of answers.
    pub generated_tokens: u64,
    /// Steps computed.
    pub steps: u64,
    /// Tokens computed in all steps, prompts and answers together.
    pub step_rows: u64,
    /// Seconds spent in steps.
    pub step_seconds: f64,
    /// Of those, seconds that the output matrix took.
    pub output_seconds: f64,
    /// Jobs put back into the queue to free their pages.
    pub preemptions: u64,
    /// Of those, jobs that made way for tenants that run less.
    pub jobs_made_way: u64,
    /// Cached pages given up.
    pub evictions: u64,
    /// Of those, pages given up for adapters.
    pub evicted_for_adapters: u64,
    /// Of those, pages whose content was lost.
    pub evicted_as_lost: u64,
    /// Tokens computed once more after a preemption: the cost of too little memory.
    pub recomputed_tokens: u64,
    /// Draft tokens that were computed.
    pub drafted_tokens: u64,
    /// Of those, tokens that were accepted.
    pub accepted_tokens: u64,
    /// The disk tier of the KV cache; nothing where there is none.
    pub spill: Option<SpillStatus>,
    /// Every tenant that has something to do, or was just served.
    pub tenants: Vec<TenantShare>,
}
