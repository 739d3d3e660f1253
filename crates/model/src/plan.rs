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
}

/// The part of a step that belongs to one sequence.
#[derive(Clone, Debug)]
pub struct SequenceStep {
    /// Rows of the step (indices into `StepPlan::tokens`) that this sequence owns.
    pub rows: Range<u32>,
    /// Position in the sequence of the first of those rows.
    pub start: u32,
    /// Pages that hold the sequence's cache, enough for `start + rows.len()` tokens.
    pub pages: Vec<PageId>,
}

/// Limits that a plan must keep to, fixed when a stage is loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanLimits {
    pub(crate) rows: u32,
    pub(crate) context: u32,
    pub(crate) pages: u32,
}

/// Sequence and position of every row of a step.
#[derive(Default)]
pub(crate) struct RowPlaces {
    pub(crate) sequences: Vec<u32>,
    pub(crate) positions: Vec<u32>,
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
