//! Which cached rows a machine holds that has not computed all steps from the first.

use std::collections::HashMap;
use std::ops::Range;

use cascadia_model::{PAGE_TOKENS, PageClass, PageId, PageRun, PerClass, SequenceStep, StepPlan};

use crate::wire::pages::PageTokens;

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
        step.runs.iter().all(|run| numbered(run).all(|(page, at)| self.rows(run.class, page) >= within(step.start, at)))
    }

    fn rows(&self, class: PageClass, page: PageId) -> u32 {
        self.pages[class].get(&page).copied().unwrap_or(0)
    }

    /// What is not held of a sequence after this step: of its oldest such page, so that those come last that are still written.
    pub(crate) fn lacks(&self, step: &SequenceStep) -> Option<PageTokens> {
        let end = step.end();
        let lacking = |run: &PageRun| {
            let class = run.class;
            let part = |(page, at)| (at, PageTokens { class, page, tokens: self.rows(class, page)..within(end, at) });
            numbered(run).map(part).find(|(_, part)| !part.tokens.is_empty())
        };
        step.runs.iter().filter_map(lacking).min_by_key(|(at, _)| *at).map(|(_, part)| part)
    }

    /// Notes what was copied from a machine that holds everything.
    pub(crate) fn copied(&mut self, part: &PageTokens) {
        let PageTokens { class, page, tokens } = part;
        let rows = self.rows(*class, *page);
        if rows >= tokens.start {
            self.pages[*class].insert(*page, rows.max(tokens.end));
        }
    }

    /// Counts on nothing any more that this page holds.
    pub(crate) fn forget(&mut self, class: PageClass, page: PageId) {
        self.pages[class].remove(&page);
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
            let is_held = is_held(self, step);
            for run in &step.runs {
                for (page, rows) in written(step, run) {
                    let before = self.rows(run.class, page).min(rows.start);
                    self.pages[run.class].insert(page, if is_held { rows.end } else { before });
                }
            }
        }
    }
}

/// Whether a step writes any of these tokens.
pub(crate) fn writes(plan: &StepPlan, part: &PageTokens) -> bool {
    let PageTokens { class, page, tokens } = part;
    let overlaps = |rows: Range<u32>| rows.start < tokens.end && tokens.start < rows.end;
    plan.steps.iter().any(|step| {
        let run = step.run(*class).into_iter();
        run.flat_map(|run| written(step, run)).any(|(written, rows)| written == *page && overlaps(rows))
    })
}

/// The pages of a run with their numbers in the sequence.
pub(crate) fn numbered(run: &PageRun) -> impl Iterator<Item = (PageId, u32)> {
    run.pages.iter().copied().zip(run.first..)
}

/// The pages of a run that a step writes, and which of their rows.
pub(crate) fn written(step: &SequenceStep, run: &PageRun) -> impl Iterator<Item = (PageId, Range<u32>)> {
    let rows = |(page, at)| (page, within(step.start, at)..within(step.end(), at));
    numbered(run).map(rows).filter(|(_, rows)| !rows.is_empty())
}

/// How many rows of page number `at` of a sequence come before a position.
pub(crate) fn within(position: u32, at: u32) -> u32 {
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
    fn what_is_lacking_is_copied_from_the_oldest_page_on() {
        let mut coverage = Coverage::default();
        let seen = plan(130, 1, &[4, 7, 8], (1, &[5, 6]));
        coverage.wrote(&seen);
        let step = &seen.steps[0];
        let mut parts = Vec::new();
        while let Some(part) = coverage.lacks(step) {
            coverage.copied(&part);
            parts.push((part.class, part.page, part.tokens));
        }
        let (full, window) = (PageClass::Full, PageClass::Window);
        assert_eq!(parts, [(full, 4, 0..64), (full, 7, 0..64), (window, 5, 0..64), (full, 8, 0..3), (window, 6, 0..3)]);
        let next = plan(131, 1, &[4, 7, 8], (1, &[5, 6]));
        assert!(coverage.holds(&next));
        // A token that another machine computed meanwhile is the only one that lacks.
        coverage.broke_off(&next);
        coverage.broke_off(&plan(132, 1, &[4, 7, 8], (1, &[5, 6])));
        let after = plan(133, 1, &[4, 7, 8], (1, &[5, 6]));
        assert_eq!(coverage.lacks(&after.steps[0]).map(|part| part.tokens), Some(3..6));
        for (rows, is_written) in [(0..4, true), (3..9, true), (0..3, false), (4..9, false)] {
            let part = PageTokens { class: full, page: 8, tokens: rows.clone() };
            assert_eq!(writes(&next, &part), is_written, "{rows:?}");
        }
        // A copy of the middle of a page does not make up for its beginning.
        let mut middle = Coverage::default();
        middle.copied(&PageTokens { class: full, page: 2, tokens: 3..9 });
        assert!(!middle.holds(&plan(4, 1, &[2], (0, &[]))));
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
