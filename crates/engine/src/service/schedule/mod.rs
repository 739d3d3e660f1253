//! Decides what is computed next: a state machine without clock, threads or model.
//!
//! `admit` takes a job in, `plan` says what to compute in the next step, `commit` says what came of it. `plan` may be
//! called again before `commit`: a sequence whose plan is not committed is left alone.

mod commit;
mod memory;
mod pages;
mod plan;
mod prefix;
mod sequence;
mod tenants;

use std::collections::BTreeMap;

use cascadia_model::{ModelLimits, StageCache};

pub use commit::Advance;
pub use memory::{Holding, Memory, Reach};
pub use pages::{Holder, Pages};
pub use plan::{JobRows, Plan};
pub use prefix::{NodeId, PrefixKey, PrefixTree};
pub use sequence::{Needs, Work};
pub use tenants::{Place, TenantShare, Tenants};

use self::sequence::{Sequence, State};
use crate::service::{JobId, Tenant};

/// Limits of a scheduler, fixed at its start.
#[derive(Clone, Debug)]
pub struct ScheduleLimits {
    /// What the model was loaded for.
    pub model: ModelLimits,
    /// Positions that layers with a window read; zero without any.
    pub window: u32,
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
    /// Draft tokens that were planned.
    pub drafted_tokens: u64,
}

/// Plans between a preemption and the next start, so that a preempted sequence does not come back at once and push out
/// another.
const COOL_DOWN_PLANS: u32 = 16;

/// Every so many plans, rows of prompts go to the oldest that runs, whoever's it is.
const PLANS_PER_OLDEST: u64 = 8;

/// With fewer rows of prompts than this, a step costs hardly less than with this many.
const WORTHWHILE_ROWS: usize = 16;

/// All sequences, those that wait and those that run.
#[derive(Debug)]
pub struct Scheduler {
    limits: ScheduleLimits,
    sequences: BTreeMap<JobId, Sequence>,
    running: Vec<JobId>,
    tenants: Tenants,
    memory: Memory,
    counters: ScheduleCounters,
    /// Sequences whose cache is no longer held since somebody last asked.
    released: Vec<JobId>,
    /// Plans until something may start again.
    cool_down: u32,
    now: f64,
    plans: u64,
}

impl PromptRows {
    fn at_least_one(self) -> PromptRows {
        PromptRows { alone: self.alone.max(1), beside_answers: self.beside_answers.max(1) }
    }
}

impl Scheduler {
    /// Nothing to do.
    pub fn new(mut limits: ScheduleLimits) -> Scheduler {
        limits.model.rows_per_step = limits.model.rows_per_step.max(1);
        limits.parallel = limits.parallel.clamp(1, limits.model.rows_per_step);
        limits.steps_in_flight = limits.steps_in_flight.max(1);
        limits.draft_rows = match limits.cache {
            StageCache::Paged => limits.draft_rows.min(limits.model.rows_per_step - limits.parallel),
            StageCache::PerSequence => 0,
        };
        limits.prompt_rows = limits.prompt_rows.at_least_one();
        Scheduler {
            sequences: BTreeMap::new(),
            running: Vec::new(),
            tenants: Tenants::new(limits.weights.clone(), limits.patience_seconds),
            memory: Memory::new(limits.model.cache, limits.window),
            counters: ScheduleCounters::default(),
            released: Vec::new(),
            cool_down: 0,
            now: 0.0,
            plans: 0,
            limits,
        }
    }

    /// Takes a job in. Its tokens must fit into the context, and the context into the pages.
    pub fn admit(&mut self, work: Work, now: f64) {
        let salt = match self.limits.sharing {
            Sharing::WithinTenant => work.tenant.0,
            Sharing::Everyone => 0,
        };
        self.tenants.wait((work.tenant, work.priority), work.id, (Place::Back, now));
        self.sequences.insert(work.id, Sequence::new(work, PrefixKey { salt, ..PrefixKey::default() }));
    }

    /// Forgets a job. If it is in a plan, its pages are freed when that is committed.
    pub fn remove(&mut self, id: JobId) {
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        if sequence.state == State::InFlight {
            sequence.ending = true;
            return;
        }
        let Some(sequence) = self.sequences.remove(&id) else { return };
        let tenant = sequence.work.tenant;
        match sequence.state {
            State::Waiting => self.tenants.remove(tenant, id),
            State::Ready | State::InFlight => {
                self.running.retain(|running| *running != id);
                self.tenants.stop(tenant);
                // There is room now.
                self.cool_down = 0;
            }
        }
        self.memory.release(sequence.holding);
        self.released.push(id);
    }

    /// Sequences whose cache was released since this was last asked: those that ended, and those that begin again.
    pub fn take_released(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.released)
    }

    /// Forgets the jobs whose time is over, and names them.
    pub fn expire(&mut self, now: f64) -> Vec<JobId> {
        let late = self
            .sequences
            .values()
            .filter(|sequence| !sequence.ending && sequence.work.deadline.is_some_and(|deadline| deadline <= now));
        let late: Vec<JobId> = late.map(|sequence| sequence.work.id).collect();
        late.iter().for_each(|id| self.remove(*id));
        late
    }

    /// Sequences whose next step continues an answer, with how many draft tokens fit into it.
    pub fn drafting(&self) -> Vec<(JobId, usize)> {
        let ready =
            |sequence: &&Sequence| sequence.state == State::Ready && sequence.streams() && !sequence.runs_alone();
        let running = self.running.iter().filter_map(|id| self.sequences.get(id));
        let streams: Vec<&Sequence> = running.filter(ready).collect();
        let each = self.limits.draft_rows as usize / streams.len().max(1);
        let room =
            |sequence: &Sequence| (self.limits.model.context as usize).saturating_sub(sequence.work.tokens.len());
        streams.iter().map(|sequence| (sequence.work.id, each.min(room(sequence)))).collect()
    }

    /// Gives a sequence draft tokens; its next plan has rows for them too.
    pub fn set_draft(&mut self, id: JobId, draft: Vec<u32>) {
        if let Some(sequence) = self.sequences.get_mut(&id).filter(|sequence| sequence.state == State::Ready) {
            sequence.draft = draft;
        }
    }

    /// Changes how many rows of prompts a step may have.
    pub fn set_prompt_rows(&mut self, rows: PromptRows) {
        self.limits.prompt_rows = rows.at_least_one();
    }

    /// The tokens of a job, prompt and answer.
    pub fn tokens(&self, id: JobId) -> Option<&[u32]> {
        self.sequences.get(&id).map(|sequence| sequence.work.tokens.as_slice())
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    /// Jobs that were preempted, and wait again.
    pub fn preempted(&self) -> usize {
        let again = |sequence: &&Sequence| sequence.state == State::Waiting && sequence.begun;
        self.sequences.values().filter(again).count()
    }

    /// Jobs that run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Pages and their holders.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// What it has done so far.
    pub fn counters(&self) -> ScheduleCounters {
        self.counters
    }

    /// What every tenant has and was given.
    pub fn shares(&self) -> Vec<TenantShare> {
        self.tenants.shares()
    }
}
