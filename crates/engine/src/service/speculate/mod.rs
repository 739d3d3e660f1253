//! Guesses what an answer says next, so that one step can compute several of its tokens.
//!
//! A guess costs a row and never changes a token: it counts only when it is what the sampler chooses in its place.

mod depth;
mod draft;
mod lookup;

pub(super) use self::depth::Depth;
pub(super) use self::draft::{DraftModel, Wish};
pub(super) use self::lookup::Lookup;

/// What one job's guesses come from, and what they were worth.
#[derive(Default)]
pub(super) struct Guesser {
    lookup: Lookup,
    lookup_depth: Depth,
    draft_depth: Depth,
    last: Source,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Source {
    #[default]
    Lookup,
    Draft,
    /// A format that leaves no choice; there is nothing to learn from it.
    Format,
}

/// How many guesses there may be now.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuessRoom {
    /// The most for this sequence.
    pub(super) most: usize,
    /// Sequences that continue in the same step: the more, the dearer is a row.
    pub(super) streams: usize,
}

impl Guesser {
    /// What followed when the text last ended like this; nothing if that has not been worth it.
    pub(super) fn look_up(&mut self, tokens: &[u32], room: GuessRoom) -> Vec<u32> {
        self.lookup.extend(tokens);
        let found = self.lookup.after(tokens, room.most);
        if found.is_empty() {
            return found;
        }
        let depth = self.lookup_depth.wish(room);
        self.last = Source::Lookup;
        found.into_iter().take(depth).collect()
    }

    /// As many as there is room for of the tokens that must come.
    pub(super) fn take_forced(&mut self, mut forced: Vec<u32>, room: GuessRoom) -> Vec<u32> {
        self.last = Source::Format;
        forced.truncate(room.most);
        forced
    }

    /// How many tokens a draft model should guess.
    pub(super) fn draft_wish(&mut self, room: GuessRoom) -> usize {
        self.last = Source::Draft;
        self.draft_depth.wish(room)
    }

    /// Of the last guesses, so many were computed and so many right.
    pub(super) fn learn(&mut self, guessed: usize, right: usize) {
        match self.last {
            Source::Lookup => self.lookup_depth.learn(guessed, right),
            Source::Draft => self.draft_depth.learn(guessed, right),
            Source::Format => {}
        }
    }
}
