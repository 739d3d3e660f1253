//! A standby: a spare that computes every step of its stage in lockstep, so that it holds the same caches and its rows
//! can be compared. Nobody waits for it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cascadia_model::StepPlan;

use crate::clock::{Receiver, RecvError, Sender, Task, channel};
use crate::failover::coverage::Coverage;
use crate::failover::pace::{IN_A_ROW, is_far_slower};
use crate::failover::page_copies::{CopiedPiece, MOST_PIECES, PageCopies, PieceCheck};
use crate::failover::stage_status::StageStatus;
use crate::failover::unproven::UnprovenPages;
use crate::wire::frame::Frame;
use crate::wire::link::LinkError;
use crate::wire::pages::PagePiece;
use crate::workers::stage_workers::StageWorkers;
use crate::workers::worker_link::{Awaited, StepReply, StepTerms, WorkerLink};
use crate::{Clock, Digest};

/// Steps that it may be behind.
const MOST_BEHIND: usize = 8;
/// How often it is pinged, and asked whether it belongs to the fleet.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// What a standby is told, in this order.
enum Command {
    /// Put these into pages, as they are now on the machine that computes.
    Store(Vec<CopiedPiece>),
    /// Compute this. Rows are the same bytes that went to the machine that computes.
    Step { plan: StepPlan, ended: Vec<u64>, row_bytes: Arc<Vec<u8>> },
    /// What that machine made of it, and how long it took.
    Compare(Digest, Duration),
    /// Say whether the last step was compared, once it was.
    Confirm(Sender<()>),
    /// Continue in its place.
    HandOver,
}

/// What all standbys of a stage have done.
#[derive(Default)]
pub(crate) struct Tally {
    /// Steps that they computed along.
    pub(crate) followed: AtomicU64,
    /// Those of them in which they held everything, and their rows were the same.
    pub(crate) compared: AtomicU64,
    /// Pages of sequences that had begun before, which were copied to them at least in part.
    pub(crate) pages: AtomicU64,
    /// Bytes of those pages.
    pub(crate) page_bytes: AtomicU64,
    /// How often copied pages were damaged, or other rows came of them than on the machine that computes.
    pub(crate) bad_pages: AtomicU64,
}

impl Tally {
    /// A status with these counts.
    pub(crate) fn shown_in(&self, status: StageStatus) -> StageStatus {
        let Tally { followed, compared, pages, page_bytes, bad_pages } = self;
        let [followed, compared, copied_pages, copied_bytes, bad_pages] =
            [followed, compared, pages, page_bytes, bad_pages].map(|count| count.load(Ordering::Relaxed));
        StageStatus { followed, compared, copied_pages, copied_bytes, bad_pages, ..status }
    }
}

/// How one of them keeps up.
#[derive(Default)]
struct Progress {
    /// The last step for which it gave the same rows; steps are counted from when it came.
    agreed: AtomicU64,
    /// Whether it has become slow.
    is_slow: AtomicBool,
    /// How often the machine that computes took far longer lately; see [`lead_after`].
    lead: AtomicU32,
    /// The last step that it has answered with rows that count, and how long it took.
    answered: Mutex<Option<(u64, Duration)>>,
    /// Steps that it has computed.
    computed: AtomicU64,
    /// How many bytes of pages it has stored last, and how long that took.
    stored: Mutex<Option<(u32, Duration)>>,
    /// Whether something that runs reads pages which were copied and have not been proved.
    is_unproven: AtomicBool,
    /// Whether other rows came of copied pages than on the machine that computes.
    is_refuted: AtomicBool,
}

/// A step for which a machine took far longer counts as much as so many others: on a link that loses packets one of ten or
/// twenty steps is late, and none after it.
const LATE_STEP: u32 = 32;
/// The lead of a standby that takes over.
const OUTPACING: u32 = IN_A_ROW * LATE_STEP;

/// The lead of a standby after a step that took so long on the machine that computes, and so long on the standby itself.
fn lead_after(lead: u32, time: Duration, own: Duration) -> u32 {
    if is_far_slower(time, own) {
        (lead + LATE_STEP).min(OUTPACING)
    } else if is_far_slower(own, time) {
        lead.saturating_sub(LATE_STEP)
    } else {
        lead.saturating_sub(1)
    }
}

/// A machine that computes along, on a thread of its own.
pub(crate) struct Standby {
    /// What people call it.
    pub(crate) node: String,
    commands: Sender<Command>,
    tally: Arc<Tally>,
    /// What was compared before it came.
    before: u64,
    /// Steps that it was given.
    told: u64,
    progress: Arc<Progress>,
    /// What it lacks, and is copied to it.
    copies: PageCopies,
    /// Whether it was given pages that it has not stored yet.
    is_storing: bool,
    thread: Task<StandbyEnd>,
    clock: Clock,
}

/// How it ended.
pub(crate) enum StandbyEnd {
    /// It continues in place of the machine that computed.
    HandedOver(Box<Followed>),
    /// It is a spare again.
    Released,
    /// It is of no more use.
    Lost,
    /// It gave other rows than the machine that computes.
    Differs(Box<WorkerLink>),
}

/// A machine that has followed all steps since it began to.
pub(crate) struct Followed {
    /// The machine.
    pub(crate) worker: WorkerLink,
    /// What it holds.
    pub(crate) coverage: Coverage,
    /// What it said to the last step, unless the step read what it does not hold.
    pub(crate) answer: Option<StepReply>,
    /// With the rows of that answer.
    pub(crate) frame: Frame,
}

impl Standby {
    /// Lets a spare of this stage compute along from the next step on.
    pub(crate) fn start(
        worker: WorkerLink,
        workers: &Arc<StageWorkers>,
        terms: StepTerms,
        tally: &Arc<Tally>,
    ) -> Standby {
        let (commands, told) = channel(workers.clock(), 2 * MOST_BEHIND + 1);
        let (node, before) = (worker.node.clone(), tally.compared.load(Ordering::Relaxed));
        let followed = Followed { worker, coverage: Coverage::default(), answer: None, frame: Frame::default() };
        let (workers, tally) = (Arc::clone(workers), Arc::clone(tally));
        let progress = Arc::<Progress>::default();
        progress.is_slow.store(followed.worker.pace.is_slow(), Ordering::Relaxed);
        let (counts, shown) = (Arc::clone(&tally), Arc::clone(&progress));
        let clock = workers.clock().clone();
        let (unproven, last) = (UnprovenPages::default(), StepPlan::default());
        let follower =
            Follower { followed, unproven, last, workers, terms, tally, progress, step: 0, asked: clock.now() };
        let thread = clock.spawn(move || follower.follow(&told));
        Standby {
            node,
            commands,
            tally: counts,
            before,
            told: 0,
            progress: shown,
            copies: PageCopies::default(),
            is_storing: false,
            thread,
            clock,
        }
    }

    /// Gives it a step; `false` if it has too many to do.
    pub(crate) fn step(&mut self, plan: &StepPlan, ended: &[u64], row_bytes: &Arc<Vec<u8>>) -> bool {
        self.told += 1;
        self.copies.told(plan, ended);
        self.command(Command::Step { plan: plan.clone(), ended: ended.to_vec(), row_bytes: Arc::clone(row_bytes) })
    }

    /// How many bytes of what it lacks may be copied now; nothing if it is behind or others have waited just before.
    fn room_for_pages(&mut self) -> Option<u32> {
        if self.progress.is_refuted.swap(false, Ordering::AcqRel) {
            self.copies.refute();
        }
        let stored = self.progress.stored.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((bytes, time)) = stored {
            self.is_storing = false;
            self.copies.took(bytes, time);
        }
        let is_behind = self.is_storing || self.progress.computed.load(Ordering::Relaxed) + 1 < self.told;
        self.copies.begin(self.clock.now()).filter(|_| !is_behind && !self.is_slow())
    }

    /// Asks the machine that computes for some of what is lacking here, as much as steps may wait for.
    pub(crate) fn fetch_pages(
        &mut self,
        worker: &mut WorkerLink,
        from: (&StepTerms, &StageWorkers),
    ) -> Result<Vec<CopiedPiece>, LinkError> {
        let (mut pieces, Some(all)) = (Vec::new(), self.room_for_pages()) else { return Ok(Vec::new()) };
        let (begin, mut left) = (self.clock.now(), all);
        while let Some(request) = self.copies.next(left).filter(|_| left > 0 && pieces.len() < MOST_PIECES) {
            let Some(frame) = worker.fetch(&request, from)? else {
                self.copies.give_up();
                break;
            };
            let piece = PagePiece::parse(&frame)?;
            let (begins_page, bytes) = (piece.of.tokens.start == 0 && piece.offset == 0, piece.bytes.len() as u32);
            let completes = match self.copies.take(&piece) {
                PieceCheck::Part => None,
                PieceCheck::Last(sequence, part) => Some((sequence, part)),
                PieceCheck::Damaged => {
                    self.tally.bad_pages.fetch_add(1, Ordering::Relaxed);
                    self.copies.give_up();
                    break;
                }
            };
            left -= bytes;
            self.tally.pages.fetch_add((begins_page && bytes > 0).into(), Ordering::Relaxed);
            self.tally.page_bytes.fetch_add(bytes.into(), Ordering::Relaxed);
            pieces.push(CopiedPiece { frame, completes });
        }
        let end = self.clock.now();
        self.copies.took(all - left, end.saturating_duration_since(begin));
        self.copies.rest(begin, end);
        Ok(pieces)
    }

    /// Lets it store pieces of pages before the next step; `false` if it has too much to do.
    pub(crate) fn store(&mut self, pieces: Vec<CopiedPiece>) -> bool {
        self.is_storing = true;
        self.command(Command::Store(pieces))
    }

    /// Takes note that nobody computed this step.
    pub(crate) fn broke_off(&mut self, plan: &StepPlan) {
        self.copies.broke_off(plan);
    }

    /// Whether it holds all that was running when the last step began, so that nothing would be computed again.
    pub(crate) fn is_warm(&self) -> bool {
        let Progress { is_unproven, is_refuted, .. } = &*self.progress;
        let has_doubts = self.is_storing || is_unproven.load(Ordering::Acquire) || is_refuted.load(Ordering::Acquire);
        self.told > 0 && self.copies.are_complete() && !has_doubts
    }

    /// Tells it which rows the machine that computes gave for that step, in which time; `false` if it has too much to do.
    pub(crate) fn compare(&self, row_bytes: &[u8], time: Duration) -> bool {
        self.command(Command::Compare(Digest::of(row_bytes), time))
    }

    /// One that has ended is not behind; why it has is heard later.
    fn command(&self, command: Command) -> bool {
        self.commands.try_send(command)
    }

    /// Waits until it has compared the last step; whether its rows are the same.
    pub(crate) fn confirms(&self) -> bool {
        let (sender, confirmed) = channel(&self.clock, 1);
        self.commands.send(Command::Confirm(sender)) && confirmed.receive(None).is_ok()
    }

    /// Steps in which it gave the rows of the machine that computes.
    pub(crate) fn agreed(&self) -> u64 {
        self.tally.compared.load(Ordering::Relaxed).saturating_sub(self.before)
    }

    /// Whether it could continue at once: it is not slow, and gave the same rows for the last step or, if it is about to
    /// compare those, for the one before.
    pub(crate) fn is_level(&self) -> bool {
        let agreed = self.progress.agreed.load(Ordering::Acquire);
        agreed > 0 && agreed + 1 >= self.told && !self.is_slow()
    }

    /// Whether it has become slow.
    pub(crate) fn is_slow(&self) -> bool {
        self.progress.is_slow.load(Ordering::Relaxed)
    }

    /// Whether the machine that computes has been far slower for several steps in a row, or again and again.
    pub(crate) fn outpaces(&self) -> bool {
        self.progress.lead.load(Ordering::Relaxed) >= OUTPACING
    }

    /// How long it took for the step that it was given last, if it has answered that with rows that count.
    pub(crate) fn answered(&self) -> Option<Duration> {
        let answered = *self.progress.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.filter(|(step, _)| *step == self.told).map(|(_, time)| time)
    }

    /// Whether there is an [`StandbyEnd`].
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Lets it finish what it was told, and says how it ended. One that takes longer than that is of no use.
    pub(crate) fn hand_over(self, patience: Duration) -> StandbyEnd {
        let deadline = self.clock.now() + patience;
        // One that has ended hears nothing, and has its reason.
        if !self.commands.try_send(Command::HandOver) {
            return StandbyEnd::Lost;
        }
        self.thread.join(Some(deadline)).unwrap_or(StandbyEnd::Lost)
    }

    /// Lets it finish what it was told and be a spare again, and says where to hear how it ended.
    pub(crate) fn dismiss(self) -> Task<StandbyEnd> {
        self.thread
    }
}

struct Follower {
    followed: Followed,
    /// What it holds only because it was copied.
    unproven: UnprovenPages,
    /// The last step.
    last: StepPlan,
    workers: Arc<StageWorkers>,
    terms: StepTerms,
    tally: Arc<Tally>,
    progress: Arc<Progress>,
    /// Steps that it has begun.
    step: u64,
    /// When it was last known to be there and to belong to the fleet.
    asked: Instant,
}

impl Follower {
    /// Does what it is told until it is told to end, or fails.
    fn follow(mut self, commands: &Receiver<Command>) -> StandbyEnd {
        // One that has waited may have gone meanwhile.
        let mut went_well = self.ask();
        while went_well.is_ok() {
            went_well = match commands.receive(Some(self.now() + HEARTBEAT)) {
                Ok(Command::Store(pieces)) => self.store(&pieces),
                Ok(Command::Step { plan, ended, row_bytes }) => self.run(plan, &ended, &row_bytes),
                Ok(Command::Compare(digest, time)) => match self.compare(digest, time) {
                    Ok(false) => return StandbyEnd::Differs(Box::new(self.followed.worker)),
                    compared => compared.map(|_| {
                        self.tally.followed.fetch_add(1, Ordering::Relaxed);
                    }),
                },
                Ok(Command::Confirm(sender)) => {
                    // Who waits hears that the sender is gone where nothing was compared.
                    if self.followed.answer.is_some() {
                        sender.send(());
                    }
                    Ok(())
                }
                Ok(Command::HandOver) => return StandbyEnd::HandedOver(Box::new(self.proved())),
                Err(RecvError::TimedOut) => self.ask(),
                Err(RecvError::Disconnected) => {
                    // If enough wait there, it has to come again.
                    self.workers.put(self.followed.worker);
                    return StandbyEnd::Released;
                }
            };
        }
        StandbyEnd::Lost
    }

    /// Pings a machine that still belongs to the fleet.
    fn ask(&mut self) -> Result<(), LinkError> {
        self.belongs()?;
        self.followed.worker.ping(self.terms.timeouts.silence, &self.workers)
    }

    fn now(&self) -> Instant {
        self.workers.clock().now()
    }

    fn belongs(&mut self) -> Result<(), LinkError> {
        self.asked = self.now();
        if self.workers.admits(&self.followed.worker.node) { Ok(()) } else { Err(LinkError::Closed) }
    }

    /// What counts of it where nothing more is compared.
    fn proved(mut self) -> Followed {
        // Pages that this step wrote were computed from such as well.
        let is_doubtful = self.unproven.are_read_by(&self.last);
        self.unproven.forget(&mut self.followed.coverage);
        Followed { answer: self.followed.answer.filter(|_| !is_doubtful), ..self.followed }
    }

    /// Passes pieces of pages on to the machine.
    fn store(&mut self, pieces: &[CopiedPiece]) -> Result<(), LinkError> {
        let begin = self.now();
        let frames = pieces.iter().map(|piece| piece.frame.as_slice());
        self.followed.worker.give(frames, (&self.terms, &self.workers))?;
        for (sequence, part) in pieces.iter().filter_map(|piece| piece.completes.as_ref()) {
            self.followed.coverage.copied(part);
            self.unproven.copied(*sequence, part);
        }
        self.progress.is_unproven.store(self.unproven.have_readers(), Ordering::Release);
        let bytes = pieces.iter().map(|piece| piece.frame.len() as u32).sum();
        let mut stored = self.progress.stored.lock().unwrap_or_else(PoisonError::into_inner);
        *stored = Some((bytes, self.workers.clock().since(begin)));
        Ok(())
    }

    /// Computes a step as every other machine does. What a step makes of rows that are not held is of no use to anyone.
    fn run(&mut self, plan: StepPlan, ended: &[u64], row_bytes: &[u8]) -> Result<(), LinkError> {
        if self.now().saturating_duration_since(self.asked) >= HEARTBEAT {
            self.belongs()?;
        }
        let Followed { worker, coverage, answer, frame } = &mut self.followed;
        self.step += 1;
        worker.send(&plan, ended, (row_bytes, &self.workers))?;
        let awaited = Awaited { rows: plan.tokens.len() as u16, is_overdue: &|_, _| false };
        let came = worker.answer(&awaited, &self.terms, &self.workers, frame)?;
        self.progress.is_slow.store(worker.pace.is_slow(), Ordering::Relaxed);
        let held = coverage.holds(&plan);
        match came {
            StepReply::Rows(_) => coverage.wrote(&plan),
            StepReply::Refused(_) => coverage.broke_off(&plan),
        }
        self.unproven.wrote(&plan, ended);
        self.progress.is_unproven.store(self.unproven.have_readers(), Ordering::Release);
        self.progress.computed.store(self.step, Ordering::Relaxed);
        if held && matches!(came, StepReply::Rows(_)) && !self.unproven.are_read_by(&plan) {
            let mut answered = self.progress.answered.lock().unwrap_or_else(PoisonError::into_inner);
            *answered = Some((self.step, worker.pace.last()));
        }
        *answer = held.then_some(came);
        self.last = plan;
        Ok(())
    }

    /// Whether the last step came to the same rows here. A machine that computes none where another did is lost.
    fn compare(&mut self, digest: Digest, time: Duration) -> Result<bool, LinkError> {
        let Followed { answer, frame, coverage, .. } = &mut self.followed;
        let is_same = matches!(answer, Some(StepReply::Rows(_))) && Digest::of(frame.rows()) == digest;
        if answer.is_some() && !is_same && self.unproven.are_read_by(&self.last) {
            // What was copied is wrong, or one of the two computes wrong rows, as others of its sequences will show.
            self.unproven.forget(coverage);
            *answer = None;
            self.tally.bad_pages.fetch_add(1, Ordering::Relaxed);
            self.progress.is_refuted.store(true, Ordering::Release);
        }
        let Followed { answer, frame, worker, .. } = &self.followed;
        match answer {
            None => Ok(true),
            Some(StepReply::Refused(problem)) => Err(LinkError::Broken(problem.clone())),
            Some(StepReply::Rows(_)) if is_same => {
                self.unproven.prove(&self.last);
                self.progress.is_unproven.store(self.unproven.have_readers(), Ordering::Release);
                self.tally.compared.fetch_add(1, Ordering::Relaxed);
                self.progress.agreed.store(self.step, Ordering::Release);
                let lead = self.progress.lead.load(Ordering::Relaxed);
                self.progress.lead.store(lead_after(lead, time, worker.pace.last()), Ordering::Relaxed);
                Ok(true)
            }
            Some(StepReply::Rows(_)) if self.is_finite(frame.rows()) => Ok(false),
            Some(StepReply::Rows(_)) => Err(LinkError::Broken("it computed numbers that are not finite".to_owned())),
        }
    }

    /// Whether rows are numbers.
    fn is_finite(&self, row_bytes: &[u8]) -> bool {
        let codec = self.terms.codec;
        codec.decode(row_bytes, &mut vec![0.0; row_bytes.len() / codec.row_bytes().max(1) * codec.width()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps until a standby takes over, where one step of so many is late on either machine.
    fn steps(late: u32, own_late: u32) -> Option<u32> {
        let time = |step: u32, late: u32| Duration::from_millis(if step.is_multiple_of(late) { 200 } else { 5 });
        let mut lead = 0;
        (1..2000).find(|step| {
            // They are not late in the same step.
            lead = lead_after(lead, time(*step, late), time(*step + 1, own_late));
            lead >= OUTPACING
        })
    }

    #[test]
    fn a_standby_takes_over_from_a_machine_that_is_late_more_often() {
        assert_eq!(steps(1, 5000), Some(8));
        assert!(steps(10, 5000).is_some_and(|steps| steps < 130), "{:?}", steps(10, 5000));
        assert!(steps(20, 5000).is_some_and(|steps| steps < 500), "{:?}", steps(20, 5000));
        // Now and then, everybody is late.
        assert_eq!(steps(40, 5000), None);
        assert_eq!(steps(10, 10), None);
        assert_eq!(steps(20, 10), None);
    }
}
