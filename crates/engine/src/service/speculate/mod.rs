//! Speculation: draft tokens ahead of an answer, so that one step can compute several of its tokens.
//!
//! A draft token costs a row and never changes an answer: it is accepted only if the sampler chooses it in its place.

mod depth;
mod draft;
mod lookup;

pub(super) use self::depth::Depth;
pub(super) use self::draft::{DraftModel, DraftRequest};
pub(super) use self::lookup::Lookup;

/// Where the draft tokens of one job come from, and how many of them were accepted.
#[derive(Default)]
pub(super) struct Speculator {
    lookup: Lookup,
    lookup_depth: Depth,
    draft_depth: Depth,
    last: Source,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Source {
    #[default]
    Lookup,
    DraftModel,
    /// A constraint that leaves no choice; there is nothing to learn from it.
    Constraint,
}

/// How many draft tokens there may be now.
#[derive(Clone, Copy, Debug)]
pub(super) struct DraftBudget {
    /// The most for this sequence.
    pub(super) most: usize,
    /// Sequences that continue in the same step: the more there are, the more a row costs.
    pub(super) streams: usize,
}

impl Speculator {
    /// What followed when the text last ended like this; nothing if that has not been worth it.
    pub(super) fn look_up(&mut self, tokens: &[u32], budget: DraftBudget) -> Vec<u32> {
        self.lookup.extend(tokens);
        let found = self.lookup.after(tokens, budget.most);
        if found.is_empty() {
            return found;
        }
        let depth = self.lookup_depth.next(budget);
        self.last = Source::Lookup;
        found.into_iter().take(depth).collect()
    }

    /// As many of the forced tokens as the budget allows.
    pub(super) fn take_forced(&mut self, mut forced: Vec<u32>, budget: DraftBudget) -> Vec<u32> {
        self.last = Source::Constraint;
        forced.truncate(budget.most);
        forced
    }

    /// How many tokens the draft model should propose.
    pub(super) fn draft_depth(&mut self, budget: DraftBudget) -> usize {
        self.last = Source::DraftModel;
        self.draft_depth.next(budget)
    }

    /// Of the last draft tokens, so many were computed and so many accepted.
    pub(super) fn learn(&mut self, drafted: usize, accepted: usize) {
        match self.last {
            Source::Lookup => self.lookup_depth.learn(drafted, accepted),
            Source::DraftModel => self.draft_depth.learn(drafted, accepted),
            Source::Constraint => {}
        }
    }
}
