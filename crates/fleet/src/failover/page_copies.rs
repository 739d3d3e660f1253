//! What is copied to a standby that came late, so that it holds the caches of sequences that were running: which tokens of which
//! page come next, in pieces whose size follows the links. Knows no link and no machine.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cascadia_model::{SequenceStep, StepPlan};

use crate::Digest;
use crate::failover::coverage::{Coverage, writes};
use crate::wire::pages::{MOST_PIECE, PagePiece, PageRequest, PageTokens};

/// Pieces that are copied between two steps.
pub(crate) const MOST_PIECES: usize = 8;
/// How long a step may wait for pieces.
const PAUSE: Duration = Duration::from_millis(10);
/// Of the time, one part in so many may go into such pauses.
const SHARE: u32 = 16;
/// Bytes between two steps: at first and on slow links, and how fast they may become more.
const LEAST_BYTES: u32 = 16 << 10;
const GROWTH: u32 = 4;

/// How far the copying of caches is.
#[derive(Default)]
pub(crate) struct PageCopies {
    /// What the standby will hold once it has done all that it was told.
    coverage: Coverage,
    /// Sequences that it does not hold, as their last steps left them.
    missing: BTreeMap<u64, SequenceStep>,
    generation: u64,
    transfer: Option<Transfer>,
    /// Bytes for the next pause.
    bytes: u32,
    rests_until: Option<Instant>,
    /// Whether no more is copied.
    is_over: bool,
    /// Whether something that was copied is wrong, so that nobody knows what the standby holds.
    is_refuted: bool,
}

/// Tokens of which some pieces have come.
struct Transfer {
    /// For whom.
    sequence: u64,
    part: PageTokens,
    total: u32,
    digest: Digest,
    offset: u32,
    hasher: blake3::Hasher,
}

/// A piece on its way to the standby.
pub(crate) struct CopiedPiece {
    /// As it came.
    pub(crate) frame: Vec<u8>,
    /// What the standby has with it, for which sequence.
    pub(crate) completes: Option<(u64, PageTokens)>,
}

/// What a piece is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PieceCheck {
    /// More follow.
    Part,
    /// The last of these tokens, which this sequence lacked.
    Last(u64, PageTokens),
    /// All pieces together do not have the digest that was announced.
    Damaged,
}

impl PageCopies {
    /// Takes note of a step that the standby was told, and of sequences that ended before it.
    pub(crate) fn told(&mut self, plan: &StepPlan, ended: &[u64]) {
        if plan.generation != self.generation {
            // Everything is computed again.
            self.missing.clear();
            self.transfer = None;
            (self.generation, self.is_over, self.is_refuted) = (plan.generation, false, false);
        }
        ended.iter().for_each(|id| drop(self.missing.remove(id)));
        self.transfer.take_if(|transfer| ended.contains(&transfer.sequence) || writes(plan, &transfer.part));
        self.coverage.wrote(plan);
        for step in &plan.steps {
            match self.coverage.lacks(step) {
                Some(_) => drop(self.missing.insert(step.id, step.clone())),
                None => drop(self.missing.remove(&step.id)),
            }
        }
    }

    /// Takes note that the step before was not computed.
    pub(crate) fn broke_off(&mut self, plan: &StepPlan) {
        self.coverage.broke_off(plan);
    }

    /// Whether the standby holds everything that runs, once it has done all that it was told.
    pub(crate) fn are_complete(&self) -> bool {
        self.missing.is_empty() && !self.is_refuted
    }

    /// Copies nothing more until everything is computed again.
    pub(crate) fn give_up(&mut self) {
        (self.is_over, self.transfer) = (true, None);
    }

    /// The same, because something that was copied is wrong.
    pub(crate) fn refute(&mut self) {
        self.give_up();
        self.is_refuted = true;
    }

    /// How many bytes may be copied now, if there is something to copy and others have not waited just before.
    pub(crate) fn begin(&self, now: Instant) -> Option<u32> {
        let may = !self.is_over && !self.missing.is_empty() && self.rests_until.is_none_or(|time| now >= time);
        may.then_some(self.bytes.max(LEAST_BYTES))
    }

    /// Takes note that so many bytes took so long on the link to one of the machines.
    pub(crate) fn took(&mut self, bytes: u32, time: Duration) {
        let fits = u128::from(bytes) * PAUSE.as_nanos() / time.as_nanos().max(1);
        let fits = u32::try_from(fits).unwrap_or(u32::MAX).clamp(LEAST_BYTES, MOST_PIECE);
        // Little that comes quickly says nothing about much.
        if time > PAUSE || bytes >= self.bytes / 2 {
            self.bytes = fits.min(self.bytes.max(LEAST_BYTES).saturating_mul(GROWTH));
        }
    }

    /// Lets steps pass without a pause after one that lasted from `begin` to `end`.
    pub(crate) fn rest(&mut self, begin: Instant, end: Instant) {
        self.rests_until = Some(end + end.saturating_duration_since(begin) * (SHARE - 1));
    }

    /// What to ask for next, if anything is missing.
    pub(crate) fn next(&mut self, most: u32) -> Option<PageRequest> {
        if let Some(Transfer { part, offset, .. }) = &self.transfer {
            return Some(PageRequest { of: part.clone(), offset: *offset, most });
        }
        loop {
            let entry = self.missing.first_entry()?;
            match self.coverage.lacks(entry.get()) {
                Some(of) => return Some(PageRequest { of, offset: 0, most }),
                None => drop(entry.remove()),
            }
        }
    }

    /// Takes the piece that was asked for, and says whether it may go to the standby.
    pub(crate) fn take(&mut self, piece: &PagePiece<'_>) -> PieceCheck {
        let (total, digest) = (piece.total, piece.digest);
        let transfer = self.transfer.take().filter(|_| piece.offset > 0).or_else(|| {
            let (sequence, part) = (*self.missing.first_key_value()?.0, piece.of.clone());
            Some(Transfer { sequence, part, total, digest, offset: 0, hasher: blake3::Hasher::new() })
        });
        let Some(mut transfer) = transfer else { return PieceCheck::Damaged };
        transfer.hasher.update(piece.bytes);
        transfer.offset += piece.bytes.len() as u32;
        let is_same = (transfer.total, transfer.digest) == (total, digest);
        if !is_same || piece.is_last() && *transfer.hasher.finalize().as_bytes() != digest.0 {
            return PieceCheck::Damaged;
        }
        if piece.is_last() {
            self.coverage.copied(&transfer.part);
            return PieceCheck::Last(transfer.sequence, transfer.part);
        }
        self.transfer = Some(transfer);
        PieceCheck::Part
    }
}

#[cfg(test)]
mod tests {
    use cascadia_model::{PageClass, PageRun};

    use super::*;
    use crate::Clock;

    /// A step of one row of a sequence of two pages.
    fn plan(start: u32) -> StepPlan {
        let mut plan = StepPlan::default();
        plan.add(5, start, [1], vec![PageRun { class: PageClass::Full, first: 0, pages: vec![8, 9] }]);
        plan
    }

    /// Gives a piece of what is asked for, of so many bytes in all.
    fn give(copies: &mut PageCopies, (most, total): (u32, u32), change: u8) -> Option<PieceCheck> {
        let PageRequest { of, offset, most } = copies.next(most)?;
        let page: Vec<u8> = (0..total).map(|at| at as u8).collect();
        let mut bytes = page[offset as usize..].to_vec();
        bytes.truncate(most as usize);
        bytes[0] ^= change;
        Some(copies.take(&PagePiece { of, offset, total, digest: Digest::of(&page), bytes: &bytes }))
    }

    fn last(page: u32, tokens: std::ops::Range<u32>) -> Option<PieceCheck> {
        Some(PieceCheck::Last(5, PageTokens { class: PageClass::Full, page, tokens }))
    }

    #[test]
    fn pages_are_copied_until_nothing_is_missing() {
        let mut copies = PageCopies::default();
        assert!(copies.are_complete() && copies.begin(Clock::system().now()).is_none());
        copies.told(&plan(70), &[]);
        assert!(!copies.are_complete() && copies.begin(Clock::system().now()) == Some(LEAST_BYTES));
        assert_eq!(give(&mut copies, (60, 100), 0), Some(PieceCheck::Part));
        // What is full is not written any more, so that steps may come in between.
        copies.told(&plan(71), &[]);
        assert_eq!(give(&mut copies, (60, 100), 0), last(8, 0..64));
        assert_eq!(give(&mut copies, (8, 10), 0), Some(PieceCheck::Part));
        copies.told(&plan(72), &[]);
        assert_eq!(give(&mut copies, (8, 10), 0), last(9, 0..8));
        assert_eq!(give(&mut copies, (8, 8), 0), last(9, 8..9));
        assert_eq!(give(&mut copies, (8, 8), 0), None);
        copies.told(&plan(73), &[]);
        assert!(copies.are_complete());
    }

    #[test]
    fn a_copy_of_what_is_written_meanwhile_is_void() {
        let mut copies = PageCopies::default();
        copies.told(&plan(70), &[]);
        assert_eq!(give(&mut copies, (60, 100), 0), Some(PieceCheck::Part));
        // A draft token was rejected.
        copies.told(&plan(63), &[]);
        assert_eq!(copies.next(9).map(|request| (request.of.tokens, request.offset)), Some((0..64, 0)));
        copies.told(&plan(64), &[5]);
        assert!(!copies.are_complete(), "a sequence that is preempted may come again");
        copies.told(&StepPlan::default(), &[5]);
        assert!(copies.are_complete());
    }

    #[test]
    fn a_damaged_page_is_noticed_and_ends_the_copying() {
        let mut copies = PageCopies::default();
        copies.told(&plan(70), &[]);
        assert_eq!(give(&mut copies, (60, 100), 1), Some(PieceCheck::Part));
        assert_eq!(give(&mut copies, (60, 100), 0), Some(PieceCheck::Damaged));
        copies.give_up();
        copies.told(&plan(71), &[]);
        assert!(!copies.are_complete() && copies.begin(Clock::system().now()).is_none());
        // A sequence that was wrong may still be there when others have ended.
        copies.refute();
        copies.told(&plan(72), &[5]);
        copies.told(&StepPlan::default(), &[5]);
        assert!(!copies.are_complete());
        copies.told(&StepPlan { generation: 1, ..plan(0) }, &[]);
        assert!(copies.are_complete());
    }

    #[test]
    fn pieces_follow_the_links_and_take_a_sixteenth_of_the_time() {
        let (mut copies, begin) = (PageCopies::default(), Clock::system().now());
        copies.told(&plan(70), &[]);
        let bytes = |copies: &PageCopies| copies.begin(begin).expect("it is time");
        for expected in [64 << 10, 256 << 10, 1 << 20, MOST_PIECE, MOST_PIECE] {
            copies.took(bytes(&copies), Duration::from_micros(10));
            assert_eq!(bytes(&copies), expected);
        }
        // Little bytes, and a link of 10 MB/s.
        copies.took(100, Duration::from_millis(1));
        assert_eq!(bytes(&copies), MOST_PIECE);
        copies.took(MOST_PIECE, Duration::from_millis(400));
        assert_eq!(bytes(&copies), MOST_PIECE / 40);
        copies.took(MOST_PIECE / 40, Duration::from_secs(9));
        assert_eq!(bytes(&copies), LEAST_BYTES);
        let end = begin + Duration::from_millis(20);
        copies.rest(begin, end);
        assert_eq!(copies.begin(end + Duration::from_millis(299)), None);
        assert!(copies.begin(end + Duration::from_millis(300)).is_some());
    }
}
