//! A model whose state is a hash of everything a sequence has seen, kept in the pages that a plan names.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cascadia_engine::service::schedule::{PromptRows, ScheduleLimits, Sharing};
use cascadia_model::{
    CachePages, ModelLimits, PAGE_TOKENS, PageBytes, PageClass, PageId, PerClass, Span, StageCache, StageError,
    StepPlan,
};

pub(crate) const VOCABULARY: u64 = 50;
const PAGE: usize = PAGE_TOKENS as usize;
/// The state where a page was given back: whoever reads it has other tokens from there on.
const GIVEN_BACK: u64 = 0x6576_6967;

/// Pages of states; stale ones stay until they are written again, as in a real cache.
pub(crate) struct HashModel {
    pages: PerClass<Vec<[u64; PAGE]>>,
    spans: PerClass<Span>,
}

/// The same for those who copy its pages while it runs.
#[derive(Clone)]
pub(crate) struct SharedModel(Arc<Mutex<HashModel>>);

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
            pages: PerClass::new(|class| vec![[0; PAGE]; limits.model.cache.of(class) as usize]),
            spans: limits.spans,
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
                let full = &mut self.pages[PageClass::Full];
                let before = position.checked_sub(1).map_or(7, |before| full[at(before).0][at(before).1]);
                let state = mix(before, u64::from(token) + 1);
                full[at(position).0][at(position).1] = state;
                let mut seen = state;
                for (class, span) in newest(&self.spans) {
                    let at = |position| place(class, position);
                    let pages = &mut self.pages[class];
                    pages[at(position).0][at(position).1] = mix(u64::from(token), position as u64);
                    let read = span.oldest(position as u32) as usize..=position;
                    seen = read.fold(seen, |seen, position| mix(seen, pages[at(position).0][at(position).1]));
                }
                out.push((seen % VOCABULARY) as u32);
            }
        }
        out
    }
}

impl SharedModel {
    pub(crate) fn new(limits: &ScheduleLimits) -> SharedModel {
        SharedModel(Arc::new(Mutex::new(HashModel::new(limits))))
    }

    pub(crate) fn run(&self, plan: &StepPlan) -> Vec<u32> {
        self.model().run(plan)
    }

    /// Forgets what all pages hold.
    pub(crate) fn reset(&self, limits: &ScheduleLimits) {
        *self.model() = HashModel::new(limits);
    }

    fn model(&self) -> MutexGuard<'_, HashModel> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PageBytes for SharedModel {
    fn page_bytes(&self, _: PageClass) -> usize {
        8 * PAGE
    }

    fn copy_page(&self, class: PageClass, page: PageId) -> Vec<u8> {
        self.model().pages[class][page as usize].iter().flat_map(|state| state.to_le_bytes()).collect()
    }

    fn fill_page(&self, class: PageClass, page: PageId, bytes: &[u8]) -> Result<(), StageError> {
        let (states, _) = bytes.as_chunks::<8>();
        let states: Vec<u64> = states.iter().map(|state| u64::from_le_bytes(*state)).collect();
        self.model().pages[class][page as usize].copy_from_slice(&states);
        Ok(())
    }

    fn give_back_page(&self, class: PageClass, page: PageId) -> Result<(), StageError> {
        self.model().pages[class][page as usize].fill(GIVEN_BACK);
        Ok(())
    }
}

/// What follows `prompt` when nothing else runs.
pub(crate) fn alone(prompt: &[u32], count: usize, spans: &PerClass<Span>) -> Vec<u32> {
    let mut tokens = prompt.to_vec();
    let mut state = prompt[..prompt.len() - 1].iter().fold(7, |state, token| mix(state, u64::from(*token) + 1));
    for position in prompt.len() - 1..prompt.len() - 1 + count {
        state = mix(state, u64::from(tokens[position]) + 1);
        let seen = newest(spans).fold(state, |seen, (_, span)| {
            let read = span.oldest(position as u32) as usize..=position;
            read.fold(seen, |seen, at| mix(seen, mix(u64::from(tokens[at]), at as u64)))
        });
        tokens.push((seen % VOCABULARY) as u32);
    }
    tokens.split_off(prompt.len())
}

/// The classes whose pages hold the newest positions, and how many.
fn newest(spans: &PerClass<Span>) -> impl Iterator<Item = (PageClass, Span)> + use<> {
    let spans = *spans;
    let classes = PageClass::ALL.into_iter().map(move |class| (class, spans[class]));
    classes.filter(|(_, span)| matches!(span, Span::Newest(_)))
}

/// Every page holds all positions of a sequence; other classes as `newest` says, zero for none.
pub(crate) fn spans(newest: impl Fn(PageClass) -> u32) -> PerClass<Span> {
    PerClass::new(|class| match (class, newest(class)) {
        (PageClass::Full, _) => Span::All,
        (_, 0) => Span::Nothing,
        (_, span) => Span::Newest(span),
    })
}

/// Plain limits: no windows, room for `pages` pages.
pub(crate) fn limits(pages: u32) -> ScheduleLimits {
    ScheduleLimits {
        model: model(pages, 128),
        spans: spans(|_| 0),
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
