//! What a standby holds only because it was copied: it counts once a step that read it has given the same rows on both machines.

use std::collections::HashSet;
use std::hash::Hash;

use cascadia_model::{PageClass, PageId, SequenceStep, StepPlan};

use crate::failover::coverage::{Coverage, numbered, within, written};
use crate::wire::pages::PageTokens;

/// Pages that were copied, or computed from such, and have not been proved.
#[derive(Default)]
pub(crate) struct UnprovenPages {
    pages: HashSet<(PageClass, PageId)>,
    /// Sequences that read them and have not ended.
    readers: HashSet<u64>,
    generation: u64,
}

impl UnprovenPages {
    /// Whether a sequence that has not ended reads any of them.
    pub(crate) fn have_readers(&self) -> bool {
        !self.readers.is_empty()
    }

    /// Notes that some of a page was copied for a sequence.
    pub(crate) fn copied(&mut self, sequence: u64, part: &PageTokens) {
        self.pages.insert((part.class, part.page));
        self.readers.insert(sequence);
    }

    /// Whether a step reads any of them.
    pub(crate) fn are_read_by(&self, plan: &StepPlan) -> bool {
        !self.pages.is_empty() && plan.steps.iter().any(|step| self.are_read(step))
    }

    fn are_read(&self, step: &SequenceStep) -> bool {
        let is_read = |class, (page, at)| within(step.start, at) > 0 && self.pages.contains(&(class, page));
        step.runs.iter().any(|run| numbered(run).any(|numbered| is_read(run.class, numbered)))
    }

    /// Notes what a step has written: what is computed from such pages is in doubt as they are.
    pub(crate) fn wrote(&mut self, plan: &StepPlan, ended: &[u64]) {
        if plan.generation != self.generation {
            self.readers.clear();
            self.generation = plan.generation;
        }
        self.readers.retain(|id| !ended.contains(id));
        if self.pages.is_empty() {
            return;
        }
        for step in &plan.steps {
            let is_reader = self.are_read(step);
            keep(&mut self.readers, step.id, is_reader);
            for run in &step.runs {
                written(step, run).for_each(|(page, _)| keep(&mut self.pages, (run.class, page), is_reader));
            }
        }
    }

    /// Notes that a step gave the same rows on both machines.
    pub(crate) fn prove(&mut self, plan: &StepPlan) {
        if self.pages.is_empty() {
            return;
        }
        for step in &plan.steps {
            self.readers.remove(&step.id);
            for run in &step.runs {
                self.pages.retain(|(class, page)| *class != run.class || !run.pages.contains(page));
            }
        }
    }

    /// Counts on none of them any more.
    pub(crate) fn forget(&mut self, coverage: &mut Coverage) {
        self.pages.drain().for_each(|(class, page)| coverage.forget(class, page));
        self.readers.clear();
    }
}

/// Lets a set have something or not.
fn keep<T: Eq + Hash>(set: &mut HashSet<T>, item: T, is_in: bool) {
    if is_in {
        set.insert(item);
    } else {
        set.remove(&item);
    }
}

#[cfg(test)]
mod tests {
    use cascadia_model::PageRun;

    use super::*;

    fn plan(start: u32, full: &[u32], window: &[u32]) -> StepPlan {
        let full = PageRun { class: PageClass::Full, first: 0, pages: full.to_vec() };
        let window = PageRun { class: PageClass::Window, first: 1, pages: window.to_vec() };
        let mut plan = StepPlan::default();
        plan.add(0, start, [1], vec![full, window]);
        plan
    }

    /// Both know of a page that was copied.
    fn copy(coverage: &mut Coverage, unproven: &mut UnprovenPages) {
        let part = PageTokens { class: PageClass::Full, page: 4, tokens: 0..64 };
        coverage.copied(&part);
        unproven.copied(0, &part);
    }

    #[test]
    fn copies_count_once_a_step_has_shown_that_they_are_right() {
        let (mut coverage, mut unproven) = (Coverage::default(), UnprovenPages::default());
        let [first, second, third] = [64, 65, 66].map(|at| plan(at, &[4, 7], &[9]));
        copy(&mut coverage, &mut unproven);
        coverage.wrote(&first);
        unproven.wrote(&first, &[]);
        // What was computed from a copy is in doubt as the copy is, whoever reads it.
        assert!(unproven.are_read_by(&plan(65, &[5, 7], &[8])) && unproven.are_read_by(&second));
        assert!(coverage.holds(&second) && unproven.have_readers());
        unproven.forget(&mut coverage);
        assert!(!coverage.holds(&second) && !coverage.holds(&plan(65, &[], &[9])) && !unproven.have_readers());

        copy(&mut coverage, &mut unproven);
        for step in [&first, &second] {
            coverage.wrote(step);
            unproven.wrote(step, &[]);
        }
        unproven.prove(&second);
        assert!(coverage.holds(&third) && !unproven.have_readers() && !unproven.are_read_by(&third));
    }

    #[test]
    fn sequences_that_have_ended_read_nothing() {
        let (mut coverage, mut unproven) = (Coverage::default(), UnprovenPages::default());
        copy(&mut coverage, &mut unproven);
        unproven.wrote(&StepPlan::default(), &[0]);
        assert!(!unproven.have_readers() && unproven.are_read_by(&plan(64, &[4, 7], &[9])));
        copy(&mut coverage, &mut unproven);
        unproven.wrote(&StepPlan::new(1), &[]);
        assert!(!unproven.have_readers());
        // A page that is begun anew is no copy any more.
        unproven.wrote(&plan(0, &[4], &[]), &[]);
        assert!(!unproven.are_read_by(&plan(1, &[4], &[])));
    }
}
