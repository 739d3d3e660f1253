//! One job as the scheduler sees it: tokens, how many of them are computed, and where.

use std::ops::Range;

use cascadia_model::{AdapterId, PAGE_TOKENS, PageClass, StepPlan};

use super::memory::Holding;
use super::prefix::PrefixKey;
use crate::service::{JobId, Priority, Tenant};

/// The least that a sequence gets on in one turn: a few pages, because up to one is computed again after it.
const TURN_TOKENS: usize = 4 * PAGE_TOKENS as usize;

/// A job that the scheduler takes in.
#[derive(Clone, Debug)]
pub struct Work {
    /// Its number; those that came earlier have a lower one.
    pub id: JobId,
    /// The prompt.
    pub tokens: Vec<u32>,
    /// What is wanted of it.
    pub needs: Needs,
    /// Whose it is.
    pub tenant: Tenant,
    /// How urgent it is.
    pub priority: Priority,
    /// When it must have ended, in seconds.
    pub deadline: Option<f64>,
    /// What changes the model's weights for it: what is cached for others is of no use.
    pub adapter: Option<AdapterId>,
}

/// Which rows of a sequence are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// The last one, to choose what follows; and those of draft tokens.
    NextToken,
    /// Every one.
    EveryRow,
    /// Every one, of a text that is computed in one step because its tokens see later ones. Nothing of it is kept.
    WholeText {
        /// Where the second of two texts begins.
        second_text: Option<u32>,
    },
}

impl Needs {
    /// Whether all of it is computed in one step.
    pub(super) fn is_whole_text(self) -> bool {
        matches!(self, Needs::WholeText { .. })
    }

    /// Where the second of two texts begins.
    pub(super) fn second_text(self) -> Option<u32> {
        match self {
            Needs::WholeText { second_text } => second_text,
            Needs::NextToken | Needs::EveryRow => None,
        }
    }
}

/// Where a sequence is between two plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    Ready,
    /// In a plan that is not committed: it cannot be planned, moved or freed.
    InFlight,
}

#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) work: Work,
    pub(super) key: PrefixKey,
    pub(super) state: State,
    pub(super) prompt: usize,
    /// Tokens whose cache is there.
    pub(super) computed: usize,
    /// The most it ever was; computing up to there again is waste.
    pub(super) reached: usize,
    pub(super) holding: Holding,
    /// More of its beginning may be brought back before it is computed.
    pub(super) restoring: bool,
    /// Pages that may be read for that.
    pub(super) reads: usize,
    /// How far it must have got before it may be put back for a tenant that runs nothing.
    turn_end: usize,
    /// Draft tokens that follow.
    pub(super) draft: Vec<u32>,
    /// Its first rows were planned.
    pub(super) begun: bool,
    /// The plan it was last in.
    pub(super) planned: u64,
    /// Nobody wants it any more; it ends when its plan is committed.
    pub(super) ending: bool,
    /// Its cache was lost while it was in a plan.
    pub(super) lost: bool,
    /// A step with it failed, so it runs in steps of its own until one works.
    pub(super) alone: bool,
    /// A machine was lost while it computed these tokens.
    pub(super) suspect: Range<usize>,
    /// How often that happened. Once may be a coincidence; from twice on it runs in steps of its own until it has passed them.
    pub(super) losses: u32,
    /// How often it happened with nothing else in the step.
    pub(super) lost_alone: u32,
}

impl Sequence {
    pub(super) fn new(work: Work, key: PrefixKey) -> Sequence {
        Sequence {
            prompt: work.tokens.len(),
            key,
            state: State::Waiting,
            computed: 0,
            reached: 0,
            holding: Holding::default(),
            restoring: false,
            reads: 0,
            turn_end: 0,
            draft: Vec::new(),
            begun: false,
            planned: 0,
            ending: false,
            lost: false,
            alone: false,
            suspect: 0..0,
            losses: 0,
            lost_alone: 0,
            work,
        }
    }

    /// The same job, of which nothing is computed any more.
    pub(super) fn restarted(self) -> Sequence {
        let (prompt, reached, begun) = (self.prompt, self.reached, self.begun);
        Sequence { prompt, reached, begun, ..Sequence::new(self.work, self.key) }
    }

    /// It runs from now on, with what is cached of it. Its turn lasts until it has got on further than would pay for what
    /// it computes again.
    pub(super) fn start(&mut self, holding: Holding) {
        self.computed = holding.tokens();
        self.holding = holding;
        self.state = State::Ready;
        let again = self.reached.saturating_sub(self.computed);
        self.turn_end = self.reached.max(self.computed) + again.max(TURN_TOKENS);
    }

    /// Its beginning may be brought back, if that is kept below the cache: every page once.
    pub(super) fn allow_reads(&mut self) {
        self.restoring = true;
        self.reads = PageClass::ALL.len() * self.work.tokens.len().div_ceil(PAGE_TOKENS as usize);
    }

    /// Whether it has got on far enough to be put back.
    pub(super) fn had_turn(&self) -> bool {
        self.computed >= self.turn_end
    }

    /// Tokens that are not computed.
    pub(super) fn remaining(&self) -> usize {
        self.work.tokens.len() - self.computed
    }

    /// The rows that it gets in a step which should have `most` more, and has room for so many. A whole text has all its rows
    /// or none; the first of a step may be longer than the step should be.
    pub(super) fn rows_in(&self, step: &StepPlan, most: usize, room: usize) -> usize {
        let whole = self.work.needs.is_whole_text();
        let most = if whole && step.tokens.is_empty() { room } else { most.min(room) };
        if whole && self.remaining() > most { 0 } else { most.min(self.remaining()) }
    }

    /// Whether it may be why a step failed, and so has steps of its own.
    pub(super) fn runs_alone(&self) -> bool {
        self.alone || (self.losses > 1 && self.computed < self.suspect.end)
    }

    /// A machine was lost while it computed so many of the next tokens. Where it was not some of those that were suspect
    /// before, these are not why.
    pub(super) fn suspect_next(&mut self, rows: usize) {
        let lost = self.computed..self.computed + rows;
        let both = lost.start.max(self.suspect.start)..lost.end.min(self.suspect.end);
        match both.is_empty() {
            true => (self.suspect, self.losses, self.lost_alone) = (lost, 1, 0),
            false => (self.suspect, self.losses) = (both, self.losses + 1),
        }
    }

    /// Whether its answer is being read while it is made.
    pub(super) fn streams(&self) -> bool {
        self.remaining() == 1 && self.work.tokens.len() > self.prompt
    }

    /// Rows from `start` are computed, and `new` tokens follow: accepted draft tokens are computed too.
    pub(super) fn advance(&mut self, start: usize, rows: usize, new: &[u32]) {
        let known = self.work.tokens.len();
        let accepted = self.draft.iter().zip(new).take_while(|(draft, token)| draft == token).count();
        self.computed = if start + rows >= known { known + accepted } else { start + rows };
        self.reached = self.reached.max(self.computed);
        self.work.tokens.extend_from_slice(new);
        if self.computed >= self.suspect.end {
            (self.suspect, self.losses, self.lost_alone) = (0..0, 0, 0);
        }
    }
}
