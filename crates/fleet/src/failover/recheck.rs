//! Re-execution of a stage that has no standby: the coordinator computes one sequence at a time again, in arrears, and
//! must come to the same rows. Nobody waits for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cascadia_model::{
    Adapter, CachePages, Hidden, ModelLimits, PAGE_TOKENS, ReservedPages, SequenceStep, Stage, StepPlan,
};

use crate::clock::{Receiver, Sender, channel};
use crate::wire::codec::Codec;
use crate::{Clock, Digest, os};

/// After so many steps, what was kept is computed again.
const EVERY: u64 = 100;
/// Bytes of rows that are kept at most; a sequence with more between two times is let go.
const MOST_BYTES: usize = 64 << 20;
/// One in so many sequences that begin takes the place of the one that is followed, so that no machine knows which is.
const SWITCHES: u64 = 4;

/// Opens the stage that computes again, when it is first needed, for a cache of these pages.
pub type OpenRecheck = Box<dyn FnOnce(&CachePages) -> Result<Box<dyn Stage>, String> + Send>;

/// What is computed again, on a thread of its own.
pub(crate) struct Recheck {
    followed: Option<FollowedSequence>,
    row_bytes: usize,
    /// Steps since the last time.
    steps: u64,
    chance: u64,
    jobs: Sender<Job>,
    findings: Arc<Findings>,
}

/// What is known of it.
#[derive(Default)]
struct Findings {
    /// Rows that were computed again, and were the same.
    rows: AtomicU64,
    /// Whether it cannot be done.
    failed: AtomicBool,
    /// The machine that gave other rows.
    wrong: Mutex<Option<String>>,
}

/// A sequence from its first token on.
struct FollowedSequence {
    id: u64,
    node: String,
    /// The position after its last row.
    next: u32,
    pieces: Vec<Piece>,
    bytes: usize,
}

/// Its part of one step.
struct Piece {
    start: u32,
    tokens: Vec<u32>,
    adapter: Option<Arc<Adapter>>,
    /// What the machine was sent.
    row_bytes: Vec<u8>,
    /// What it made of that.
    digest: Digest,
}

/// Steps of one sequence, which begins there or continues the last.
struct Job {
    node: String,
    pieces: Vec<Piece>,
}

/// A step that a machine has answered.
pub(crate) struct Answered<'a> {
    pub(crate) node: &'a str,
    pub(crate) plan: &'a StepPlan,
    /// Sequences that had ended before.
    pub(crate) ended: &'a [u64],
    /// The rows that it was sent, and those that came back.
    pub(crate) sent: &'a [u8],
    pub(crate) came: &'a [u8],
}

impl Recheck {
    /// Nothing was computed yet. Which sequences are followed depends on the seed.
    pub(crate) fn start(
        clock: &Clock,
        (limits, codec): (&ModelLimits, Codec),
        open: OpenRecheck,
        seed: u64,
    ) -> Recheck {
        let (jobs, receiver) = channel(clock, 1);
        let findings = Arc::<Findings>::default();
        let pages = limits.context.div_ceil(PAGE_TOKENS);
        let pages = CachePages::new(|class| if limits.cache.of(class) > 0 { pages } else { 0 });
        let rechecker =
            Rechecker { pages, rows: limits.rows_per_step as usize, codec, findings: Arc::clone(&findings) };
        clock.spawn(move || rechecker.run(&receiver, open));
        let (row_bytes, steps) = (codec.row_bytes(), seed % EVERY);
        Recheck { followed: None, row_bytes, steps, chance: seed, jobs, findings }
    }

    /// Rows that were computed again, and were the same.
    pub(crate) fn rows(&self) -> u64 {
        self.findings.rows.load(Ordering::Relaxed)
    }

    /// Whether it can be done.
    pub(crate) fn works(&self) -> bool {
        !self.findings.failed.load(Ordering::Relaxed)
    }

    /// A machine that gave other rows.
    pub(crate) fn take_wrong(&self) -> Option<String> {
        self.findings.wrong.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Keeps what a machine made of the sequence that is followed.
    pub(crate) fn observe(&mut self, answered: &Answered<'_>) {
        self.steps += 1;
        self.followed.take_if(|followed| followed.node != answered.node);
        if self.followed.as_ref().is_some_and(|followed| answered.ended.contains(&followed.id)) {
            self.hand_over();
            self.followed = None;
        }
        let begins = answered.plan.steps.iter().find(|step| step.start == 0);
        if let Some(step) = begins.filter(|step| self.turns_to(step)) {
            self.hand_over();
            let (id, node) = (step.id, answered.node.to_owned());
            self.followed = Some(FollowedSequence { id, node, next: 0, pieces: Vec::new(), bytes: 0 });
        }
        self.keep(answered);
        if self.steps >= EVERY {
            self.hand_over();
        }
    }

    /// Whether a sequence that begins is the one to follow.
    fn turns_to(&mut self, step: &SequenceStep) -> bool {
        let Some(followed) = &self.followed else { return true };
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        followed.id != step.id && (self.chance >> 33).is_multiple_of(SWITCHES)
    }

    fn keep(&mut self, answered: &Answered<'_>) {
        let Some(followed) = &mut self.followed else { return };
        let Some(step) = answered.plan.steps.iter().find(|step| step.id == followed.id) else { return };
        let rows = step.rows.start as usize..step.rows.end as usize;
        let bytes = rows.start * self.row_bytes..rows.end * self.row_bytes;
        let kept = (answered.plan.tokens.get(rows), answered.sent.get(bytes.clone()), answered.came.get(bytes));
        let (Some(tokens), Some(sent), Some(came)) = kept else { return };
        followed.bytes += sent.len();
        // What came between was computed elsewhere; then, or where too much waits, another sequence is followed.
        if step.start > followed.next || followed.bytes > MOST_BYTES {
            self.followed = None;
            return;
        }
        followed.next = step.end();
        let (tokens, row_bytes, digest) = (tokens.to_vec(), sent.to_vec(), Digest::of(came));
        let adapter = step.adapter.clone();
        followed.pieces.push(Piece { start: step.start, tokens, adapter, row_bytes, digest });
    }

    /// Lets what was kept be computed again, unless something still is.
    fn hand_over(&mut self) {
        let Some(followed) = self.followed.as_mut().filter(|followed| !followed.pieces.is_empty()) else { return };
        let job = Job { node: followed.node.clone(), pieces: std::mem::take(&mut followed.pieces) };
        match self.jobs.offer(job) {
            Ok(()) => (self.steps, followed.bytes) = (0, 0),
            Err(job) => followed.pieces = job.pieces,
        }
    }
}

/// Computes again.
struct Rechecker {
    pages: CachePages,
    /// The most rows of a step.
    rows: usize,
    codec: Codec,
    findings: Arc<Findings>,
}

impl Rechecker {
    fn run(self, jobs: &Receiver<Job>, open: OpenRecheck) {
        os::lower_thread_priority();
        let (mut open, mut stage) = (Some(open), None);
        while let Ok(job) = jobs.receive(None) {
            if let Some(open) = open.take() {
                stage = open(&self.pages).ok();
            }
            let same = stage.as_ref().and_then(|stage| {
                catch_unwind(AssertUnwindSafe(|| self.is_same(&**stage, &job.pieces))).ok().flatten()
            });
            match same {
                Some(true) => {}
                Some(false) => {
                    *self.findings.wrong.lock().unwrap_or_else(PoisonError::into_inner) = Some(job.node);
                }
                None => return self.findings.failed.store(true, Ordering::Relaxed),
            }
        }
    }

    /// Whether the pieces come to the same rows here; nothing if they cannot be computed. Pieces that follow each other
    /// are one step: a row depends on no other of its step.
    fn is_same(&self, stage: &dyn Stage, pieces: &[Piece]) -> Option<bool> {
        let mut rest = pieces;
        while let [first, ..] = rest {
            let (mut end, mut count) = (first.start, 0);
            let mut joins = |piece: &&Piece| {
                let rows = piece.tokens.len();
                let fits = count == 0 || (piece.start == end && count + rows <= self.rows);
                (end, count) = (piece.start + rows as u32, count + rows);
                fits
            };
            let joined = rest.iter().take_while(|piece| joins(piece)).count();
            let (together, later) = rest.split_at(joined);
            if !self.is_step_same(stage, together)? {
                return Some(false);
            }
            rest = later;
        }
        Some(true)
    }

    fn is_step_same(&self, stage: &dyn Stage, pieces: &[Piece]) -> Option<bool> {
        let tokens: Vec<u32> = pieces.iter().flat_map(|piece| &piece.tokens).copied().collect();
        let rows: Vec<u8> = pieces.iter().flat_map(|piece| &piece.row_bytes).copied().collect();
        let first = pieces.first()?;
        let (start, count, width) = (first.start, tokens.len(), self.codec.width());
        let mut plan = StepPlan::default();
        plan.add(0, start, tokens, ReservedPages::new(0, self.pages).runs(start + count as u32));
        plan.adapt(first.adapter.clone());
        let mut hidden = Hidden { values: vec![0.0; count * width], width };
        if !self.codec.decode(&rows, &mut hidden.values) {
            return None;
        }
        stage.run(&plan, &mut hidden).ok()?;
        let mut computed = Vec::new();
        self.codec.encode(&hidden.values, &mut computed).ok()?;
        let mut left = computed.as_slice();
        let is_same = |piece: &Piece| {
            let (own, rest) = left.split_at(piece.row_bytes.len().min(left.len()));
            left = rest;
            Digest::of(own) == piece.digest
        };
        let same = pieces.iter().all(is_same);
        self.findings.rows.fetch_add(if same { count as u64 } else { 0 }, Ordering::Relaxed);
        Some(same)
    }
}
