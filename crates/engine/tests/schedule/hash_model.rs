//! A model whose state is a hash of everything a sequence has seen, kept in the pages that a plan names.

use cascadia_engine::service::schedule::{PromptRows, ScheduleLimits, Sharing};
use cascadia_model::{CachePages, ModelLimits, PAGE_TOKENS, PageClass, StageCache, StepPlan};

pub(crate) const VOCABULARY: u64 = 50;
const PAGE: usize = PAGE_TOKENS as usize;

/// Pages of states; stale ones stay until they are written again, as in a real cache.
pub(crate) struct HashModel {
    pages: Vec<[u64; PAGE]>,
    windows: Vec<[u64; PAGE]>,
    window: usize,
}

/// Numbers that depend on a seed alone.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0, 0)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Whether something happens that does so once in `times`.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

fn mix(one: u64, other: u64) -> u64 {
    let mut value = one ^ other.wrapping_mul(0xff51_afd7_ed55_8ccd);
    for shift in [30, 27, 31] {
        value = (value ^ (value >> shift)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    value
}

impl HashModel {
    pub(crate) fn new(limits: &ScheduleLimits) -> HashModel {
        HashModel {
            pages: vec![[0; PAGE]; limits.model.cache.of(PageClass::Full) as usize],
            windows: vec![[0; PAGE]; limits.model.cache.of(PageClass::Window) as usize],
            window: limits.window as usize,
        }
    }

    /// The token that follows each row of a step.
    pub(crate) fn run(&mut self, plan: &StepPlan) -> Vec<u32> {
        let mut out = Vec::new();
        for step in &plan.steps {
            for (row, position) in step.rows.clone().zip(step.start as usize..) {
                let token = plan.tokens[row as usize];
                let place = |class, position: usize| {
                    let run = step.run(class).expect("a plan has pages of every class");
                    (run.pages[position / PAGE - run.first as usize] as usize, position % PAGE)
                };
                let at = |position| place(PageClass::Full, position);
                let before = position.checked_sub(1).map_or(7, |before| self.pages[at(before).0][at(before).1]);
                let state = mix(before, u64::from(token) + 1);
                self.pages[at(position).0][at(position).1] = state;
                let mut seen = state;
                if self.window > 0 {
                    let at = |position| place(PageClass::Window, position);
                    self.windows[at(position).0][at(position).1] = mix(u64::from(token), position as u64);
                    let window = (position + 1).saturating_sub(self.window)..=position;
                    seen = window.fold(seen, |seen, position| mix(seen, self.windows[at(position).0][at(position).1]));
                }
                out.push((seen % VOCABULARY) as u32);
            }
        }
        out
    }
}

/// What follows `prompt` when nothing else runs.
pub(crate) fn alone(prompt: &[u32], count: usize, window: usize) -> Vec<u32> {
    let mut tokens = prompt.to_vec();
    let mut state = prompt[..prompt.len() - 1].iter().fold(7, |state, token| mix(state, u64::from(*token) + 1));
    for position in prompt.len() - 1..prompt.len() - 1 + count {
        state = mix(state, u64::from(tokens[position]) + 1);
        let seen = match window {
            0 => state,
            _ => ((position + 1).saturating_sub(window)..=position)
                .fold(state, |seen, at| mix(seen, mix(u64::from(tokens[at]), at as u64))),
        };
        tokens.push((seen % VOCABULARY) as u32);
    }
    tokens.split_off(prompt.len())
}

/// Plain limits: no windows, room for `pages` pages.
pub(crate) fn limits(pages: u32) -> ScheduleLimits {
    ScheduleLimits {
        model: model(pages, 128),
        window: 0,
        cache: StageCache::Paged,
        steps_in_flight: 1,
        prompt_rows: PromptRows { alone: 512, beside_answers: 32 },
        draft_rows: 8,
        parallel: 4,
        patience_seconds: 1000.0,
        sharing: Sharing::WithinTenant,
        weights: Default::default(),
    }
}

/// Limits of a model without windows.
pub(crate) fn model(pages: u32, rows_per_step: u32) -> ModelLimits {
    ModelLimits::new(pages * PAGE_TOKENS, rows_per_step, CachePages::full(pages))
}
