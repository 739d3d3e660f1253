//! A standby: a spare that computes every step of its stage in lockstep, so that it holds the same caches and its rows
//! can be compared. Nobody waits for it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cascadia_model::StepPlan;

use crate::clock::{Receiver, RecvError, Sender, Task, channel};
use crate::failover::coverage::Coverage;
use crate::failover::pace::{IN_A_ROW, is_far_slower};
use crate::wire::frame::Frame;
use crate::wire::link::LinkError;
use crate::workers::stage_workers::StageWorkers;
use crate::workers::worker_link::{Awaited, StepReply, StepTerms, WorkerLink};
use crate::{Clock, Digest};

/// Steps that it may be behind.
const MOST_BEHIND: usize = 8;
/// How often it is pinged, and asked whether it belongs to the fleet.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// What a standby is told, in this order.
enum Command {
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
        let (commands, told) = channel(workers.clock(), 2 * MOST_BEHIND);
        let (node, before) = (worker.node.clone(), tally.compared.load(Ordering::Relaxed));
        let followed = Followed { worker, coverage: Coverage::default(), answer: None, frame: Frame::default() };
        let (workers, tally) = (Arc::clone(workers), Arc::clone(tally));
        let progress = Arc::<Progress>::default();
        progress.is_slow.store(followed.worker.pace.is_slow(), Ordering::Relaxed);
        let (counts, shown) = (Arc::clone(&tally), Arc::clone(&progress));
        let clock = workers.clock().clone();
        let follower = Follower { followed, workers, terms, tally, progress, step: 0, asked: clock.now() };
        let thread = clock.spawn(move || follower.follow(&told));
        Standby { node, commands, tally: counts, before, told: 0, progress: shown, thread, clock }
    }

    /// Gives it a step; `false` if it has too many to do.
    pub(crate) fn step(&mut self, plan: &StepPlan, ended: &[u64], row_bytes: &Arc<Vec<u8>>) -> bool {
        self.told += 1;
        self.command(Command::Step { plan: plan.clone(), ended: ended.to_vec(), row_bytes: Arc::clone(row_bytes) })
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
                Ok(Command::Step { plan, ended, row_bytes }) => self.run(&plan, &ended, &row_bytes),
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
                Ok(Command::HandOver) => return StandbyEnd::HandedOver(Box::new(self.followed)),
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

    /// Computes a step as every other machine does. What a step makes of rows that are not held is of no use to anyone.
    fn run(&mut self, plan: &StepPlan, ended: &[u64], row_bytes: &[u8]) -> Result<(), LinkError> {
        if self.now().saturating_duration_since(self.asked) >= HEARTBEAT {
            self.belongs()?;
        }
        let Followed { worker, coverage, answer, frame } = &mut self.followed;
        self.step += 1;
        worker.send(plan, ended, (row_bytes, &self.workers))?;
        let awaited = Awaited { rows: plan.tokens.len() as u16, is_overdue: &|_, _| false };
        let came = worker.answer(&awaited, &self.terms, &self.workers, frame)?;
        self.progress.is_slow.store(worker.pace.is_slow(), Ordering::Relaxed);
        let held = coverage.holds(plan);
        match came {
            StepReply::Rows(_) => coverage.wrote(plan),
            StepReply::Refused(_) => coverage.broke_off(plan),
        }
        if held && matches!(came, StepReply::Rows(_)) {
            let mut answered = self.progress.answered.lock().unwrap_or_else(PoisonError::into_inner);
            *answered = Some((self.step, worker.pace.last()));
        }
        *answer = held.then_some(came);
        Ok(())
    }

    /// Whether the last step came to the same rows here. A machine that computes none where another did is lost.
    fn compare(&self, digest: Digest, time: Duration) -> Result<bool, LinkError> {
        let Followed { answer, frame, worker, .. } = &self.followed;
        match answer {
            None => Ok(true),
            Some(StepReply::Refused(problem)) => Err(LinkError::Broken(problem.clone())),
            Some(StepReply::Rows(_)) if Digest::of(frame.rows()) == digest => {
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
