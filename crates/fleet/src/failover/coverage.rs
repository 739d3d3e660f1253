//! Which cached rows a machine holds that has not computed all steps from the first.

use std::collections::HashMap;

use cascadia_model::{PAGE_TOKENS, PageId, PageRun, PerClass, SequenceStep, StepPlan};

/// For each page, how many rows from its beginning are as every other machine has them. There are no more pages than
/// the cache has.
#[derive(Default)]
pub(crate) struct Coverage {
    pages: PerClass<HashMap<PageId, u32>>,
}

impl Coverage {
    /// Whether a step reads nothing but what is held.
    pub(crate) fn holds(&self, plan: &StepPlan) -> bool {
        plan.steps.iter().all(|step| self.holds_all_of(step))
    }

    fn holds_all_of(&self, step: &SequenceStep) -> bool {
        let held = |run: &PageRun| {
            let mut numbered = run.pages.iter().zip(run.first..);
            let rows = |page: &PageId| self.pages[run.class].get(page).copied().unwrap_or(0);
            numbered.all(|(page, at)| rows(page) >= within(step.start, at))
        };
        step.runs.iter().all(held)
    }

    /// Notes what a step has written. What was made of rows that are not held is not held either.
    pub(crate) fn wrote(&mut self, plan: &StepPlan) {
        self.mark(plan, Coverage::holds_all_of);
    }

    /// Notes that a step broke off: what it should have written may be half there.
    pub(crate) fn broke_off(&mut self, plan: &StepPlan) {
        self.mark(plan, |_, _| false);
    }

    fn mark(&mut self, plan: &StepPlan, is_held: impl Fn(&Coverage, &SequenceStep) -> bool) {
        for step in &plan.steps {
            let (end, held) = (step.end(), is_held(self, step));
            for run in &step.runs {
                let numbered = run.pages.iter().zip(run.first..);
                for (page, at) in numbered.filter(|(_, at)| within(step.start, *at) < within(end, *at)) {
                    self.pages[run.class].insert(*page, if held { within(end, at) } else { 0 });
                }
            }
        }
    }
}

/// How many rows of page number `at` of a sequence come before a position.
fn within(position: u32, at: u32) -> u32 {
    position.saturating_sub(at.saturating_mul(PAGE_TOKENS)).min(PAGE_TOKENS)
}

#[cfg(test)]
mod tests {
    use cascadia_model::PageClass;

    use super::*;

    fn plan(start: u32, rows: u32, pages: &[u32], window: (u32, &[u32])) -> StepPlan {
        let full = PageRun { class: PageClass::Full, first: 0, pages: pages.to_vec() };
        let window = PageRun { class: PageClass::Window, first: window.0, pages: window.1.to_vec() };
        let mut plan = StepPlan::default();
        plan.add(0, start, vec![0; rows as usize], vec![full, window]);
        plan
    }

    #[test]
    fn what_was_missed_is_not_held_until_it_is_written_again() {
        let mut coverage = Coverage::default();
        for (start, rows, pages, held) in [
            // A sequence from its beginning, which goes back once.
            (0, 40, &[3][..], true),
            (40, 40, &[3, 5], true),
            (80, 1, &[3, 5], true),
            (70, 5, &[3, 5], true),
            (75, 1, &[3, 5], true),
            // One that begins with its first page.
            (64, 1, &[3, 6], true),
            // One that had begun before, in pages that another begins in afterwards.
            (64, 64, &[4, 7], false),
            (128, 1, &[4, 7, 8], false),
            (0, 64, &[4], true),
            (64, 1, &[4, 9], true),
            (65, 1, &[4, 7], false),
            // The first one's page is taken from it.
            (0, 3, &[3], true),
            (76, 1, &[3, 5], false),
        ] {
            let plan = plan(start, rows, pages, (0, &[]));
            assert_eq!(coverage.holds(&plan), held, "{plan:?}");
            coverage.wrote(&plan);
        }
    }

    #[test]
    fn pages_of_a_window_are_others() {
        let mut coverage = Coverage::default();
        coverage.wrote(&plan(0, 70, &[0, 1], (0, &[8, 9])));
        assert!(coverage.holds(&plan(70, 1, &[0, 1], (0, &[8, 9]))));
        assert!(coverage.holds(&plan(70, 1, &[0, 1], (1, &[9]))));
        assert!(!coverage.holds(&plan(70, 1, &[0, 1], (0, &[9, 8]))));
        assert!(!coverage.holds(&plan(70, 1, &[0, 1], (1, &[7]))));
    }
}
