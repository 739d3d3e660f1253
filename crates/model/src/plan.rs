//! One step as a value: which tokens of which sequences to compute now, and where their cache lives.

use std::ops::Range;
use std::sync::Arc;

use crate::{Adapter, CachePages, KvLayout, ModelLimits, PageClass, PerClass, Span, StageError};

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
    /// The pages that hold its cache, one run for each class that the model has.
    pub runs: Vec<PageRun>,
    /// What changes the model's weights for its rows.
    pub adapter: Option<Arc<Adapter>>,
    /// Position at which a second text begins, for models that tell texts apart. Only the embedding of tokens asks for it.
    pub second_text: Option<u32>,
}

/// Consecutive pages of a sequence, of one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRun {
    /// Which layers they belong to.
    pub class: PageClass,
    /// How many pages of the sequence came before them.
    pub first: u32,
    /// The pages, up to the end of the sequence.
    pub pages: Vec<PageId>,
}

/// The pages of a sequence that has a fixed part of the cache for itself, one of several equal parts.
#[derive(Clone, Copy, Debug)]
pub struct ReservedPages {
    part: u32,
    per_part: CachePages,
}

/// Limits that a plan must keep to, fixed when a stage is loaded.
#[derive(Clone, Debug)]
pub(crate) struct PlanLimits {
    pub(crate) model: ModelLimits,
    /// Which positions pages of each class hold.
    pub(crate) spans: PerClass<Span>,
    /// Tokens see later ones, so that no step continues a text.
    pub(crate) whole_texts: bool,
}

/// Sequence and position of every row that is computed.
#[derive(Default)]
pub(crate) struct RowPlaces {
    pub(crate) sequences: Vec<u32>,
    pub(crate) positions: Vec<u32>,
}

impl StepPlan {
    /// An empty step, computed after caches were lost `generation` times.
    pub fn new(generation: u64) -> StepPlan {
        StepPlan { generation, ..StepPlan::default() }
    }

    /// Adds the next tokens of a sequence, which begin at position `start`; returns their rows.
    pub fn add(
        &mut self,
        id: u64,
        start: u32,
        tokens: impl IntoIterator<Item = u32>,
        runs: Vec<PageRun>,
    ) -> Range<u32> {
        let first = self.tokens.len() as u32;
        self.tokens.extend(tokens);
        let rows = first..self.tokens.len() as u32;
        self.steps.push(SequenceStep { id, rows: rows.clone(), start, runs, adapter: None, second_text: None });
        rows
    }

    /// Says where the second text of the sequence that was added last begins.
    pub fn begin_second_text(&mut self, position: Option<u32>) {
        if let Some(step) = self.steps.last_mut() {
            step.second_text = position;
        }
    }

    /// Gives the sequence that was added last its adapter.
    pub fn adapt(&mut self, adapter: Option<Arc<Adapter>>) {
        if let Some(step) = self.steps.last_mut() {
            step.adapter = adapter;
        }
    }
}

impl SequenceStep {
    /// Position after the last of its rows.
    pub fn end(&self) -> u32 {
        self.start.saturating_add(self.rows.len() as u32)
    }

    /// Its pages of a class.
    pub fn run(&self, class: PageClass) -> Option<&PageRun> {
        self.runs.iter().find(|run| run.class == class)
    }

    /// The page of a class that holds page `number` of the sequence. Plans are checked before they run.
    pub(crate) fn page(&self, class: PageClass, number: u32) -> PageId {
        let run = self.run(class).expect("a plan that was checked has pages of every class");
        run.pages[(number - run.first) as usize]
    }
}

impl ReservedPages {
    /// What one sequence needs at most.
    pub fn per_sequence(layout: &KvLayout, context: u32, rows_per_step: u32) -> CachePages {
        let all = context.div_ceil(PAGE_TOKENS);
        CachePages::new(|class| layout.span(class).pages_per_sequence(rows_per_step, all))
    }

    /// Part number `part` of a cache that is cut into parts of `per_part` pages.
    pub fn new(part: u32, per_part: CachePages) -> ReservedPages {
        ReservedPages { part, per_part }
    }

    /// The pages of a step that ends before position `end`. Where a class has fewer pages than the sequence, the newest
    /// take the place of the oldest.
    pub fn runs(&self, end: u32) -> Vec<PageRun> {
        let filled = end.div_ceil(PAGE_TOKENS);
        let run = |class: PageClass| {
            let own = self.per_part.of(class);
            let first = filled.saturating_sub(own);
            let page = |number: u32| self.part * own + number % own;
            (own > 0).then(|| PageRun { class, first, pages: (first..filled).map(page).collect() })
        };
        PageClass::ALL.into_iter().filter_map(run).collect()
    }
}

impl PlanLimits {
    /// Says what is wrong with the pages of a sequence.
    fn check_pages(&self, step: &SequenceStep) -> Result<(), String> {
        for (class, span) in self.spans.iter().filter(|(_, span)| **span != Span::Nothing) {
            let end = u64::from(step.end());
            let oldest = u64::from(span.oldest(step.start));
            let Some(run) = step.run(class) else { return Err(format!("has no {class:?} pages")) };
            let held = u64::from(run.first) * u64::from(PAGE_TOKENS)
                ..(u64::from(run.first) + run.pages.len() as u64) * u64::from(PAGE_TOKENS);
            if held.start > oldest || held.end < end {
                let count = run.pages.len();
                return Err(format!("has {class:?} pages {}+{count} for positions {oldest} to {end}", run.first));
            }
            if let Some(page) = run.pages.iter().find(|page| **page >= self.model.cache.of(class)) {
                return Err(format!("uses {class:?} page {page} of {}", self.model.cache.of(class)));
            }
        }
        Ok(())
    }
}

impl RowPlaces {
    pub(crate) fn with_capacity(rows: usize) -> RowPlaces {
        RowPlaces { sequences: Vec::with_capacity(rows), positions: Vec::with_capacity(rows) }
    }

    /// Places all rows of `plan`, or says why it cannot run.
    pub(crate) fn fill(&mut self, plan: &StepPlan, limits: &PlanLimits) -> Result<(), StageError> {
        self.clear();
        let refuse = |problem: String| Err(StageError::Plan { problem });
        if plan.tokens.is_empty() || plan.tokens.len() > limits.model.rows_per_step as usize {
            return refuse(format!(
                "{} rows, where 1 to {} are possible",
                plan.tokens.len(),
                limits.model.rows_per_step
            ));
        }
        let mut next_row = 0;
        for (index, step) in plan.steps.iter().enumerate() {
            if step.rows.start != next_row || step.rows.end < next_row || step.rows.end as usize > plan.tokens.len() {
                return refuse(format!("sequence {index} claims rows {:?} after row {next_row}", step.rows));
            }
            next_row = step.rows.end;
            let end = u64::from(step.start) + step.rows.len() as u64;
            if end > u64::from(limits.model.context) {
                return refuse(format!("sequence {index} reaches position {end} of {}", limits.model.context));
            }
            if limits.whole_texts && step.start != 0 {
                return refuse(format!(
                    "sequence {index} continues a text at {}, which must be computed whole",
                    step.start
                ));
            }
            limits.check_pages(step).or_else(|problem| refuse(format!("sequence {index} {problem}")))?;
            self.extend(index, step, step.rows.clone());
        }
        if next_row as usize == plan.tokens.len() {
            Ok(())
        } else {
            refuse(format!("rows from {next_row} on belong to no sequence"))
        }
    }

    /// Places all rows of a plan that is checked elsewhere.
    pub(crate) fn all(&mut self, plan: &StepPlan) {
        self.clear();
        for (index, step) in plan.steps.iter().enumerate() {
            self.extend(index, step, step.rows.clone());
        }
    }

    /// Places some rows of a plan, in the order asked for; those of no sequence are left out.
    pub(crate) fn select(&mut self, plan: &StepPlan, rows: &[u32]) {
        self.clear();
        for &row in rows {
            if let Some(index) = plan.steps.iter().position(|step| step.rows.contains(&row)) {
                self.extend(index, &plan.steps[index], row..row + 1);
            }
        }
    }

    fn clear(&mut self) {
        self.sequences.clear();
        self.positions.clear();
    }

    fn extend(&mut self, index: usize, step: &SequenceStep, rows: Range<u32>) {
        self.sequences.extend(rows.clone().map(|_| index as u32));
        self.positions.extend(rows.map(|row| step.start.saturating_add(row - step.rows.start)));
    }
}
