//! One step as a value: which tokens of which sequences to compute now, and where their cache lives.

use std::ops::Range;

use crate::StageError;

/// Logical number of a KV page; every stage keeps its own bytes for the same id.
pub type PageId = u32;

/// Tokens in a page of the cache.
pub const PAGE_TOKENS: u32 = 64;

/// What to compute in one step. Same plan, same pages: same bits.
#[derive(Clone, Debug, Default)]
pub struct StepPlan {
    /// Input tokens of all sequences, one row each.
    pub tokens: Vec<u32>,
    /// The sequences that own those rows, in row order.
    pub steps: Vec<SequenceStep>,
    /// Grows by one when caches were lost and everything is computed again; a stage whose cache is gone takes no step
    /// that still counts on it.
    pub generation: u64,
}

/// The part of a step that belongs to one sequence.
#[derive(Clone, Debug)]
pub struct SequenceStep {
    /// Which sequence it is, the same in all its steps and in no other's; results do not depend on it. A stage
    /// elsewhere is told only what changed since the last step of the same sequence.
    pub id: u64,
    /// Rows of the step (indices into `StepPlan::tokens`) that this sequence owns.
    pub rows: Range<u32>,
    /// Position in the sequence of the first of those rows.
    pub start: u32,
    /// Pages that hold the sequence's cache, enough for `start + rows.len()` tokens.
    pub pages: Vec<PageId>,
    /// Pages that hold it in layers with a window; nothing for models without one.
    pub window: WindowPages,
}

/// The newest pages of a sequence, in layers that read no more.
#[derive(Clone, Debug, Default)]
pub struct WindowPages {
    /// How many pages of the sequence came before them.
    pub first: u32,
    /// The pages, up to the end of the sequence.
    pub pages: Vec<PageId>,
}

/// Limits that a plan must keep to, fixed when a stage is loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanLimits {
    pub(crate) rows: u32,
    pub(crate) context: u32,
    pub(crate) pages: u32,
    /// Positions that layers with a window read; zero where there are none.
    pub(crate) window: u32,
    pub(crate) window_pages: u32,
}

/// Sequence and position of every row of a step.
#[derive(Default)]
pub(crate) struct RowPlaces {
    pub(crate) sequences: Vec<u32>,
    pub(crate) positions: Vec<u32>,
}

impl PlanLimits {
    /// Says what is wrong with the window's pages of a sequence that ends at `end`.
    fn check_window(&self, step: &SequenceStep, end: u64) -> Result<(), String> {
        if self.window == 0 {
            return Ok(());
        }
        let WindowPages { first, pages } = &step.window;
        let oldest = (step.start + 1).saturating_sub(self.window);
        let last = (u64::from(*first) + pages.len() as u64) * u64::from(PAGE_TOKENS);
        if u64::from(*first) * u64::from(PAGE_TOKENS) > u64::from(oldest) || last < end {
            return Err(format!("has pages {first}+{} for a window from {oldest} to {end}", pages.len()));
        }
        match pages.iter().find(|page| **page >= self.window_pages) {
            Some(page) => Err(format!("uses page {page} of {} in its window", self.window_pages)),
            None => Ok(()),
        }
    }
}

impl SequenceStep {
    /// The page that holds page `number` of the sequence in a layer of this kind.
    pub(crate) fn page(&self, number: usize, windowed: bool) -> PageId {
        if windowed { self.window.pages[number - self.window.first as usize] } else { self.pages[number] }
    }
}

impl RowPlaces {
    pub(crate) fn with_capacity(rows: usize) -> RowPlaces {
        RowPlaces { sequences: Vec::with_capacity(rows), positions: Vec::with_capacity(rows) }
    }

    /// Places the rows of `plan`, or says why it cannot run.
    pub(crate) fn fill(&mut self, plan: &StepPlan, limits: &PlanLimits) -> Result<(), StageError> {
        self.sequences.clear();
        self.positions.clear();
        let refuse = |problem: String| Err(StageError::Plan { problem });
        if plan.tokens.is_empty() || plan.tokens.len() > limits.rows as usize {
            return refuse(format!("{} rows, where 1 to {} are possible", plan.tokens.len(), limits.rows));
        }
        let mut next_row = 0;
        for (index, step) in plan.steps.iter().enumerate() {
            if step.rows.start != next_row || step.rows.end < next_row || step.rows.end as usize > plan.tokens.len() {
                return refuse(format!("sequence {index} claims rows {:?} after row {next_row}", step.rows));
            }
            next_row = step.rows.end;
            let end = u64::from(step.start) + step.rows.len() as u64;
            if end > u64::from(limits.context) {
                return refuse(format!("sequence {index} reaches position {end} of {}", limits.context));
            }
            if (step.pages.len() as u64) < end.div_ceil(u64::from(PAGE_TOKENS)) {
                return refuse(format!("sequence {index} has {} pages for {end} tokens", step.pages.len()));
            }
            if let Some(page) = step.pages.iter().find(|page| **page >= limits.pages) {
                return refuse(format!("sequence {index} uses page {page} of {}", limits.pages));
            }
            limits.check_window(step, end).or_else(|problem| refuse(format!("sequence {index} {problem}")))?;
            self.sequences.extend(step.rows.clone().map(|_| index as u32));
            self.positions.extend((step.start..).take(step.rows.len()));
        }
        if next_row as usize == plan.tokens.len() {
            Ok(())
        } else {
            refuse(format!("rows from {next_row} on belong to no sequence"))
        }
    }
}
