//! What a scheduler is started with, and what it counts.

use std::collections::BTreeMap;

use cascadia_model::{ModelLimits, PerClass, Span, StageCache};

use crate::service::Tenant;

/// Limits of a scheduler, fixed at its start.
#[derive(Clone, Debug)]
pub struct ScheduleLimits {
    /// What the model was loaded for.
    pub model: ModelLimits,
    /// Which positions pages of each class hold.
    pub spans: PerClass<Span>,
    /// How stages keep what they have computed. Unless all of them do so in pages, no prefix is shared, there is no speculation,
    /// and a sequence whose step failed begins again.
    pub cache: StageCache,
    /// The most rows of prompts in a step.
    pub prompt_rows: PromptRows,
    /// The most draft tokens of a step, of all sequences together.
    pub draft_rows: u32,
    /// Sequences that run at a time.
    pub parallel: u32,
    /// Plans that are in flight at a time; answers are spread over them.
    pub steps_in_flight: u32,
    /// Waiting this long makes a job as urgent as those of the next priority.
    pub patience_seconds: f64,
    /// Whether tenants use each other's cached prefixes.
    pub sharing: Sharing,
    /// Shares of tenants; 1 where there is none.
    pub weights: BTreeMap<Tenant, u32>,
}

/// How many rows of prompts a step may have, which bounds how long it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptRows {
    /// In a step of nothing else; a request that arrives now waits for its end.
    pub alone: u32,
    /// In a step that also continues answers, whose next tokens wait for its end.
    pub beside_answers: u32,
}

/// Who may use a cached prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// The tenant it was computed for.
    #[default]
    WithinTenant,
    /// Everyone: only for services whose users may know of each other's prompts.
    Everyone,
}

/// What the scheduler has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScheduleCounters {
    /// Rows of prompts that were planned for the first time.
    pub prompt_tokens: u64,
    /// Tokens of prompts that were cached.
    pub reused_tokens: u64,
    /// Rows planned once more after a preemption.
    pub recomputed_tokens: u64,
    /// Sequences that were preempted.
    pub preemptions: u64,
    /// Of those, sequences that made way for tenants that run less; the others made room.
    pub made_way: u64,
    /// Draft tokens that were planned.
    pub drafted_tokens: u64,
}

impl PromptRows {
    /// A step always has room for something.
    pub(super) fn at_least_one(self) -> PromptRows {
        PromptRows { alone: self.alone.max(1), beside_answers: self.beside_answers.max(1) }
    }
}
