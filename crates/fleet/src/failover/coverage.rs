//! Which cached rows a machine holds that has not computed all steps from the first.

use std::collections::HashMap;

use cascadia_model::{PAGE_TOKENS, SequenceStep, StepPlan};

/// For each page, how many rows from its beginning are as every other machine has them. There are no more pages than
/// the cache has.
#[derive(Default)]
pub(crate) struct Coverage {
    pages: HashMap<u32, u32>,
    window: HashMap<u32, u32>,
}

impl Coverage {
    /// Whether a step reads nothing but what is held.
    pub(crate) fn holds(&self, plan: &StepPlan) -> bool {
        plan.steps.iter().all(|step| self.holds_all_of(step))
    }

    fn holds_all_of(&self, step: &SequenceStep) -> bool {
        let held = |known: &HashMap<u32, u32>, first: u32, pages: &[u32]| {
            let mut numbered = pages.iter().zip(first..);
            numbered.all(|(page, at)| known.get(page).copied().unwrap_or(0) >= within(step.start, at))
        };
        held(&self.pages, 0, &step.pages) && held(&self.window, step.window.first, &step.window.pages)
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
            let (end, held) = (step.start.saturating_add(step.rows.len() as u32), is_held(self, step));
            let write = |known: &mut HashMap<u32, u32>, first: u32, pages: &[u32]| {
                for (page, at) in pages.iter().zip(first..).filter(|(_, at)| within(step.start, *at) < within(end, *at))
                {
                    known.insert(*page, if held { within(end, at) } else { 0 });
                }
            };
            write(&mut self.pages, 0, &step.pages);
            write(&mut self.window, step.window.first, &step.window.pages);
        }
    }
}

/// How many rows of page number `at` of a sequence come before a position.
fn within(position: u32, at: u32) -> u32 {
    position.saturating_sub(at.saturating_mul(PAGE_TOKENS)).min(PAGE_TOKENS)
}

#[cfg(test)]
mod tests {
    use cascadia_model::WindowPages;

    use super::*;

    fn plan(start: u32, rows: u32, pages: &[u32], window: (u32, &[u32])) -> StepPlan {
        let window = WindowPages { first: window.0, pages: window.1.to_vec() };
        let step = SequenceStep { id: 0, rows: 0..rows, start, pages: pages.to_vec(), window };
        StepPlan { tokens: vec![0; rows as usize], steps: vec![step], generation: 0 }
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
