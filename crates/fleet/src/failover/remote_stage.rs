//! A stage on another machine: the same plan goes there, the rows come back.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cascadia_model::{Hidden, ModelLimits, Placement, Stage, StageError, StageTraits, StepPlan};

use crate::audit::Verb;
use crate::clock::Monitor;
use crate::failover::failure::{Failure, blame};
use crate::failover::pace::is_far_slower;
use crate::failover::recheck::{Answered, OpenRecheck, Recheck};
use crate::failover::stage_status::StageStatus;
use crate::failover::standby::{Followed, Standby, StandbyEnd, Tally};
use crate::failover::standby_state::{CacheCheck, StandbyState};
use crate::failover::timeouts::Timeouts;
use crate::planning::layer_names;
use crate::wire::codec::Codec;
use crate::wire::frame::Frame;
use crate::wire::link::LinkError;
use crate::wire::plan_codec::MOST_ENDED;
use crate::workers::model_workers::ModelWorkers;
use crate::workers::stage_workers::StageWorkers;
use crate::workers::worker_link::{Awaited, StepReply, StepTerms, WorkerLink};

/// How often it is asked whether a machine that computes still belongs to the fleet.
const MEMBERSHIP: Duration = Duration::from_secs(1);

/// How long a standby may take to finish the steps it is behind. Machines that hear nothing leave soon after.
const CATCHING_UP: Duration = Duration::from_secs(4);

/// Steps in which a machine in doubt must give the rows of another to be believed again.
const TRIAL: u64 = 512;

/// What steps are told that count on a cache which is lost.
const GONE: &str = "the machine that ran them is gone";

/// Layers that run on another machine.
pub struct RemoteStage {
    layers: Range<u32>,
    rows: u32,
    traits: StageTraits,
    terms: StepTerms,
    workers: Arc<StageWorkers>,
    /// Whether a spare computes every step as well.
    uses_standby: bool,
    tally: Arc<Tally>,
    status: Mutex<StageStatus>,
    /// Sequences that have ended, which workers hear with the next step.
    ended: Mutex<Vec<u64>>,
    state: Monitor<State>,
}

struct State {
    current: Option<WorkerLink>,
    /// The name of the machine that computed last.
    last: Option<String>,
    /// Who computes along with it.
    standbys: StandbyState,
    /// Who computes some of it again where there is no standby.
    recheck: Option<Recheck>,
    /// The newest generation of steps that a machine has computed; those count on its cache.
    served: Option<u64>,
    /// The generation for which the present machine was taken: its cache has nothing of earlier ones.
    taken_for: u64,
    /// The last machine that gave no numbers for a step, and the sequences of that step.
    suspected: Option<(String, Vec<u64>)>,
    /// When there was last a machine.
    seen: Instant,
    /// When it was last known to belong to the fleet.
    asked: Instant,
    frame: Frame,
    /// Rows as they are sent; a standby may need them longer.
    row_bytes: Arc<Vec<u8>>,
}

impl RemoteStage {
    /// Stage number `stage` of a model, run by its workers. Of spares, one computes along.
    pub fn new(model_workers: &ModelWorkers, stage: usize, timeouts: Timeouts) -> RemoteStage {
        let (numerics, limits) = (&model_workers.manifest().numerics, model_workers.limits());
        let [start, end] = model_workers.manifest().stages[stage].layers;
        let codec = Codec::new(limits.wire, numerics.hidden_width as usize);
        let workers = Arc::clone(&model_workers.stages()[stage]);
        let clock = workers.clock().clone();
        let now = clock.now();
        RemoteStage {
            layers: start..end,
            rows: limits.model.rows_per_step,
            traits: StageTraits::exact(Placement::Remote).with_activations(limits.model.activations),
            terms: StepTerms { codec, timeouts },
            workers,
            uses_standby: true,
            tally: Arc::default(),
            status: Mutex::new(StageStatus { layers: [start, end], ..StageStatus::default() }),
            ended: Mutex::default(),
            state: Monitor::new(
                &clock,
                State {
                    current: None,
                    last: None,
                    standbys: StandbyState::default(),
                    recheck: None,
                    served: None,
                    taken_for: 0,
                    suspected: None,
                    seen: now,
                    asked: now,
                    frame: Frame::default(),
                    row_bytes: Arc::default(),
                },
            ),
        }
    }

    /// The same with spares that only wait.
    pub fn without_standby(self) -> RemoteStage {
        RemoteStage { uses_standby: false, ..self }
    }

    /// The same with a stage of these limits in this process that computes some steps again, where no standby does.
    pub fn with_recheck(self, limits: &ModelLimits, open: OpenRecheck, seed: u64) -> RemoteStage {
        let recheck = Recheck::start(self.workers.clock(), (limits, self.terms.codec), open, seed);
        self.state.lock().recheck = Some(recheck);
        self
    }

    /// Who runs it, and what it has done so far.
    pub fn status(&self) -> StageStatus {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let spares: Vec<String> = status.standby.iter().cloned().chain(self.workers.spares()).collect();
        let sandboxes = self.workers.sandboxes(status.node.iter().chain(&spares));
        let slow = status.slow.iter().cloned().chain(self.workers.slow()).collect();
        let is_checked = status.is_checked || status.standby.is_some();
        let doubted = self.workers.doubted();
        self.tally.shown_in(StageStatus { spares, sandboxes, is_checked, slow, doubted, ..status })
    }

    /// What people call it.
    fn describe(&self) -> String {
        layer_names(&self.layers)
    }

    fn now(&self) -> Instant {
        self.workers.clock().now()
    }

    fn note(&self, change: impl FnOnce(&mut StageStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Pings its spares, and the machine that computes unless a step is under way; those that do not answer, or no longer
    /// belong to the fleet, are released.
    pub fn check(&self) {
        self.workers.sweep(self.terms.timeouts.silence);
        let Some(mut state) = self.state.try_lock() else { return };
        self.collect_ended_standbys(&mut state);
        if state.current.is_some()
            && let Err(error) = state.still_there(&self.workers, self.terms.timeouts.silence)
        {
            self.lose(&mut state, &error.to_string());
        }
        // One that waits is there as well as one that computes: if it goes, it is given as long to come back.
        if state.current.is_none() && !self.workers.spares().is_empty() {
            state.seen = self.now();
        }
        self.find_standby(&mut state);
    }

    /// Lets a machine compute from now on.
    fn take(&self, worker: WorkerLink, state: &mut State) {
        self.workers.note(Verb::StageTaken, &worker.node, self.describe());
        self.note(|status| status.node = Some(worker.node.clone()));
        state.last = Some(worker.node.clone());
        state.current = Some(worker);
        let now = self.now();
        (state.seen, state.asked) = (now, now);
    }

    /// Makes sure of a machine that computes steps of this generation, or says why there is none.
    fn worker(&self, state: &mut State, generation: u64) -> Result<(), String> {
        if state.current.is_some() && generation < state.taken_for {
            return Err(GONE.to_owned());
        }
        let is_second_best = |worker: &mut WorkerLink| self.workers.doubts(&worker.node) && self.workers.has_believed();
        if let Some(worker) = state.current.take_if(is_second_best) {
            state.standbys = StandbyState::default();
            self.note(|status| status.node = None);
            self.workers.put(worker);
        }
        if let Some(worker) = &state.current {
            if self.now().saturating_duration_since(state.asked) < MEMBERSHIP {
                return Ok(());
            }
            state.asked = self.now();
            if self.workers.admits(&worker.node) {
                return Ok(());
            }
            let (node, _) = self.lose(state, "it no longer belongs to the fleet");
            let gone = || format!("{node} no longer belongs to the fleet");
            return state.current.as_ref().map(|_| ()).ok_or_else(gone);
        }
        if state.served.is_some_and(|served| generation <= served) {
            return Err(GONE.to_owned());
        }
        let deadline = state.seen + self.terms.timeouts.worker;
        while let Some(worker) = self.workers.take(deadline) {
            state.current = Some(worker);
            // One that has waited may have gone meanwhile.
            let answers = state.still_there(&self.workers, self.terms.timeouts.silence).is_ok();
            if let Some(worker) = state.current.take().filter(|_| answers) {
                (state.taken_for, state.standbys) = (generation, StandbyState::default());
                self.take(worker, state);
                return Ok(());
            }
        }
        Err(match &state.last {
            Some(node) => format!("{node} is offline; turn it on, or add a machine"),
            None => "no machine has them; add one, or start its worker".to_owned(),
        })
    }

    /// Sends a step and waits for its rows; says how many microseconds it was computed.
    fn exchange(&self, plan: &StepPlan, hidden: &mut Hidden, state: &mut State) -> Result<u32, Failure> {
        let Some(worker) = &mut state.current else {
            return Err(Failure::Lost("it is gone".to_owned()));
        };
        let mut row_bytes = Arc::get_mut(&mut state.row_bytes).map(std::mem::take).unwrap_or_default();
        // First, because a step that is not sent must leave no trace in what both ends remember.
        self.terms.codec.encode(&hidden.values, &mut row_bytes).map_err(Failure::Plan)?;
        state.row_bytes = Arc::new(row_bytes);
        let ended = self.take_ended();
        // Before they are sent, so that none is sent that is not known.
        let standby = state.standbys.standby.as_ref().map(|standby| standby.node.as_str());
        std::iter::once(worker.node.as_str()).chain(standby).for_each(|node| self.workers.saw(node, plan));
        let sent = worker.send(plan, &ended, (&state.row_bytes, &self.workers));
        // Whatever became of that: if the machine is lost, its standby answers.
        state.standbys.tell((&worker.node, self.now()), |standby| standby.step(plan, &ended, &state.row_bytes));
        let sent = sent?;
        let standby = state.standbys.standby.as_ref().filter(|_| !self.workers.doubts(&worker.node));
        let silence = self.terms.timeouts.silence;
        let is_overdue = |time, usual: Option<Duration>| {
            let answered = standby.and_then(Standby::answered);
            time > silence && answered.is_some_and(|own| is_far_slower(time, own.max(usual.unwrap_or_default())))
        };
        let awaited = Awaited { rows: plan.tokens.len() as u16, is_overdue: &is_overdue };
        let answer = worker.answer(&awaited, &self.terms, &self.workers, &mut state.frame);
        let late = worker.take_late();
        self.note(|status| (status.sent_bytes, status.late) = (status.sent_bytes + sent as u64, status.late + late));
        let computed = self.judge(plan, (&worker.node, answer?), (&state.frame, hidden), &mut state.suspected)?;
        let time = worker.pace.last();
        state.standbys.tell((&worker.node, self.now()), |standby| standby.compare(state.frame.rows(), time));
        self.recheck(plan, &ended, state);
        Ok(computed)
    }

    /// Lets what a machine answered be computed again, if it has no standby and computes the same bits as this one.
    fn recheck(&self, plan: &StepPlan, ended: &[u64], state: &mut State) {
        let State { current, standbys, recheck, frame, row_bytes, .. } = state;
        let Some((worker, recheck)) = current.as_ref().zip(recheck.as_mut()) else { return };
        let rechecks = standbys.standby.is_none() && worker.numerics == self.traits.numerics.0 && recheck.works();
        if rechecks {
            recheck.observe(&Answered { node: &worker.node, plan, ended, sent: row_bytes, came: frame.rows() });
        }
        self.note(|status| (status.is_checked, status.rechecked) = (rechecks, recheck.rows()));
    }

    /// Excludes a machine that gave other rows than this one: what was made of them is in doubt.
    fn refute(&self, state: &mut State) {
        let found = state.recheck.as_ref().and_then(Recheck::take_wrong);
        // More of what it computed may have waited when it was excluded.
        let Some(node) = found.filter(|node| self.workers.admits(node)) else { return };
        self.workers.refute(&node, &self.describe());
        state.standbys = StandbyState::default();
        state.standbys.doubt = Some(format!("{node} computed other rows than the coordinator"));
        let is_current = state.current.take_if(|worker| worker.node == node).is_some();
        self.note(|status| {
            status.node.take_if(|_| is_current);
            status.wrong.retain(|name| *name != node);
            status.wrong.push(node);
        });
    }

    /// As many sequences that have ended as fit into a step.
    fn take_ended(&self) -> Vec<u64> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let count = ended.len().min(MOST_ENDED);
        ended.drain(..count).collect()
    }

    /// The time that rows took, once they are in `hidden` and are numbers; or who is at fault.
    fn judge(
        &self,
        plan: &StepPlan,
        (node, answer): (&str, StepReply),
        (frame, hidden): (&Frame, &mut Hidden),
        suspected: &mut Option<(String, Vec<u64>)>,
    ) -> Result<u32, Failure> {
        let problem = match answer {
            StepReply::Rows(time) if self.terms.codec.decode(frame.rows(), &mut hidden.values) => return Ok(time),
            StepReply::Rows(_) => "it computed numbers that are not finite".to_owned(),
            StepReply::Refused(problem) => problem,
        };
        Err(blame(plan, node, problem, suspected))
    }

    /// Releases the machine that computes; its standby continues. Gives the name of the first, and what the second
    /// answers to the last step.
    fn lose(&self, state: &mut State, why: &str) -> (String, Option<StepReply>) {
        let hand_over = |standby: Standby| (standby.node.clone(), standby.hand_over(CATCHING_UP));
        let (standby, end) = state.standbys.standby.take().map(hand_over).unzip();
        self.note(|status| {
            (status.lost, status.node, status.standby) = (status.lost + 1, None, None);
            status.slow.clear();
        });
        state.seen = self.now();
        let node = state.current.take().map(|worker| worker.node).unwrap_or_default();
        self.workers.remember_loss(&node);
        self.workers.note(Verb::StageLost, &node, format!("{}: {why}", self.describe()));
        match end {
            Some(StandbyEnd::HandedOver(followed)) if self.workers.admits(&followed.worker.node) => {
                return (node, self.adopt(*followed, state));
            }
            Some(StandbyEnd::Differs(other)) => self.dispute(&node, *other, state),
            Some(StandbyEnd::Lost) => standby.iter().for_each(|node| self.workers.remember_loss(node)),
            Some(StandbyEnd::HandedOver(_) | StandbyEnd::Released) | None => {}
        }
        (node, None)
    }

    /// Lets a machine compute that was a standby; gives what it answers to the last step.
    fn adopt(&self, followed: Followed, state: &mut State) -> Option<StepReply> {
        let Followed { worker, coverage, answer, frame } = followed;
        state.standbys.set_holds(state.served.unwrap_or(0), coverage);
        state.frame = frame;
        self.take(worker, state);
        answer
    }

    /// What becomes of a step whose machine failed: its standby has computed the step as well.
    fn continue_on_standby(
        &self,
        failure: Failure,
        plan: &StepPlan,
        hidden: &mut Hidden,
        state: &mut State,
    ) -> Result<u32, Failure> {
        let Failure::Lost(problem) = failure else { return Err(failure) };
        let (node, answer) = self.lose(state, &problem);
        let lost = Failure::Lost(format!("{node}: {problem}"));
        let Some((worker, answer)) = state.current.as_ref().zip(answer) else { return Err(lost) };
        match self.judge(plan, (&worker.node, answer), (&state.frame, hidden), &mut state.suspected) {
            Ok(computed) => {
                self.note(|status| status.saved += 1);
                Ok(computed)
            }
            Err(Failure::Plan(problem)) => Err(Failure::Plan(problem)),
            Err(Failure::Lost(problem)) => Err(Failure::Lost(format!("{}: {problem}", self.lose(state, &problem).0))),
        }
    }

    /// Lets the standby compute from now on if the machine is slower than it was, or than the standby has been for a
    /// while, and the standby is not slow. The machine is a spare then.
    fn bypass_slow(&self, state: &mut State) {
        let Some(slow) = &state.current else { return };
        let can_continue = |standby: &mut Standby| {
            (slow.pace.is_slow() || standby.outpaces())
                && standby.is_level()
                && ![&slow.node, &standby.node].iter().any(|node| self.workers.doubts(node))
        };
        let Some(standby) = state.standbys.standby.take_if(can_continue) else { return };
        let node = standby.node.clone();
        match standby.hand_over(CATCHING_UP) {
            StandbyEnd::HandedOver(followed) if self.workers.admits(&node) => {
                if let Some(slow) = state.current.take() {
                    self.note(|status| status.bypassed += 1);
                    // Others come before it, and it is held back if this happens again and again.
                    self.workers.remember_loss(&slow.node);
                    self.workers.note(Verb::StageSlow, &slow.node, self.describe());
                    self.workers.put(slow);
                }
                self.adopt(*followed, state);
            }
            // A slow machine is better than none.
            end => self.standby_ended(&node, end, state),
        }
    }

    /// Takes a spare as a standby if there is none. After enough equal steps, machines are no longer in doubt.
    fn find_standby(&self, state: &mut State) {
        let State { current: Some(worker), standbys, .. } = state else { return };
        let node = &worker.node;
        let in_doubt = |standby: &Standby| self.workers.doubts(&standby.node) || self.workers.doubts(node);
        let is_tried = |standby: &&Standby| standby.agreed() >= TRIAL && in_doubt(standby);
        if let Some(standby) = standbys.standby.as_ref().filter(is_tried) {
            self.workers.agree(&standby.node, node);
            // The turn of another that is in doubt.
            if self.workers.has_doubted() {
                standbys.dismiss(node);
            }
        }
        let rests = standbys.rests(self.now()) && !self.workers.doubts(node);
        if self.uses_standby && standbys.standby.is_none() && !rests {
            let spare = self.workers.take_beside(worker);
            standbys.standby = spare.map(|spare| Standby::start(spare, &self.workers, self.terms, &self.tally));
        }
        self.show_standby(state);
    }

    /// Shows who computes along, and who of both is slow.
    fn show_standby(&self, State { current, standbys, .. }: &State) {
        let standby = standbys.standby.as_ref();
        let name = standby.map(|standby| standby.node.as_str());
        let machine = current.as_ref().filter(|worker| worker.pace.is_slow()).map(|worker| worker.node.as_str());
        let is_warm = standby.is_some_and(Standby::is_warm);
        let slow = || machine.into_iter().chain(name.filter(|_| standby.is_some_and(Standby::is_slow)));
        self.note(|status| {
            status.standby_is_warm = is_warm;
            if status.standby.as_deref() != name {
                status.standby = name.map(str::to_owned);
            }
            if !status.slow.iter().map(String::as_str).eq(slow()) {
                status.slow = slow().map(str::to_owned).collect();
            }
        });
    }

    /// Takes note of standbys that have ended.
    fn collect_ended_standbys(&self, state: &mut State) {
        if let Some(standby) = state.standbys.take_ended() {
            self.release_standby(standby, state);
        }
        for (node, end) in state.standbys.take_left() {
            if let Some(StandbyEnd::Differs(other)) = end {
                self.dispute(&node, *other, state);
            }
        }
    }

    fn release_standby(&self, standby: Standby, state: &mut State) {
        let name = standby.node.clone();
        let end = standby.hand_over(CATCHING_UP);
        self.standby_ended(&name, end, state);
    }

    /// What becomes of a standby that computes along no more.
    fn standby_ended(&self, name: &str, end: StandbyEnd, state: &mut State) {
        self.note(|status| status.standby = None);
        match end {
            StandbyEnd::Differs(other) => {
                let node = state.current.as_ref().map(|worker| worker.node.clone()).unwrap_or_default();
                self.dispute(&node, *other, state);
            }
            StandbyEnd::HandedOver(followed) => {
                self.workers.put(followed.worker);
            }
            StandbyEnd::Lost => self.workers.remember_loss(name),
            StandbyEnd::Released => {}
        }
    }

    /// The machine that computes and its standby gave different rows. Unless the standby is known to be wrong, neither
    /// is believed: what was made of such rows is in doubt, and both wait for a third, or compute together.
    fn dispute(&self, node: &str, other: WorkerLink, state: &mut State) {
        let wrong = self.workers.differ(node, &other.node, &self.describe());
        let is_wrong = |node: &str| wrong.iter().any(|name| name == node);
        let problem = format!("{node} and {} computed different rows", other.node);
        if !is_wrong(&other.node) {
            self.workers.put(other);
        }
        if is_wrong(node) || self.workers.doubts(node) {
            state.standbys.doubt = Some(problem);
            if let Some(worker) = state.current.take_if(|worker| worker.node == node) {
                self.note(|status| status.node = None);
                if !is_wrong(node) {
                    self.workers.put(worker);
                }
            }
        }
        self.note(|status| {
            status.wrong.retain(|name| !wrong.contains(name));
            status.wrong.extend(wrong);
        });
    }

    /// An error if a step reads what a machine that was a standby does not hold.
    fn check_caches(&self, plan: &StepPlan, state: &mut State) -> Result<(), String> {
        match state.standbys.check_caches(plan) {
            CacheCheck::Complete => Ok(()),
            CacheCheck::CompleteFrom(generation) => {
                state.taken_for = generation;
                Ok(())
            }
            CacheCheck::Missing => Err(GONE.to_owned()),
        }
    }

    /// Lets rows pass that were computed. Those of a machine in doubt count only if its standby computed the same.
    fn confirm(&self, plan: &StepPlan, state: &mut State) -> Result<(), String> {
        let State { current: Some(WorkerLink { node, .. }), standbys, .. } = state else { return Ok(()) };
        standbys.wrote(plan);
        if !self.workers.doubts(node) || standbys.standby.as_ref().is_some_and(Standby::confirms) {
            return Ok(());
        }
        let problem = format!("{node} may be wrong, and no other machine confirms what it computes");
        if let Some(standby) = standbys.standby.take() {
            self.release_standby(standby, state);
        }
        Err(state.standbys.doubt.take().unwrap_or(problem))
    }

    /// An error if there is anything else than a row of numbers for every token.
    fn check_rows(&self, plan: &StepPlan, hidden: &Hidden) -> Result<(), StageError> {
        let rows = plan.tokens.len();
        let fits = rows <= self.rows as usize && u16::try_from(rows).is_ok();
        let width = self.terms.codec.width();
        if !fits || hidden.width != width || hidden.values.len() != rows * width {
            let problem = format!("{} numbers for {rows} rows of {width}", hidden.values.len());
            return Err(StageError::Plan { problem });
        }
        if !hidden.values.iter().all(|value| value.is_finite()) {
            let problem = format!("what layer {} should read is not finite", self.layers.start);
            return Err(StageError::Plan { problem });
        }
        Ok(())
    }
}

impl State {
    /// Copies caches from the machine that computes to a standby that lacks them.
    fn copy_pages(&mut self, terms: &StepTerms, workers: &StageWorkers) -> Result<(), LinkError> {
        let State { current, standbys, .. } = self;
        current.as_mut().map_or(Ok(()), |worker| standbys.copy_pages(worker, (terms, workers)))
    }

    /// Pings a machine that still belongs to the fleet.
    fn still_there(&mut self, workers: &StageWorkers, patience: Duration) -> Result<(), LinkError> {
        let worker = self.current.as_mut().filter(|worker| workers.admits(&worker.node)).ok_or(LinkError::Closed)?;
        worker.ping(patience, workers)?;
        let now = workers.clock().now();
        (self.seen, self.asked) = (now, now);
        Ok(())
    }
}

impl Stage for RemoteStage {
    fn layers(&self) -> Range<u32> {
        self.layers.clone()
    }

    fn end_sequence(&self, id: u64) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }

    fn traits(&self) -> StageTraits {
        self.traits
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        self.check_rows(plan, hidden)?;
        // A step that panicked left a link that is out of step, and such a link fails.
        let state = &mut *self.state.lock();
        self.collect_ended_standbys(state);
        self.refute(state);
        if let Some(problem) = state.standbys.doubt.take() {
            return Err(StageError::Wrong { layers: self.layers.clone(), problem });
        }
        let lost = |problem| StageError::Lost { layers: self.layers.clone(), problem, while_computing: false };
        self.bypass_slow(state);
        if let Err(error) = state.copy_pages(&self.terms, &self.workers) {
            self.lose(state, &error.to_string());
        }
        self.worker(state, plan.generation).map_err(lost)?;
        self.find_standby(state);
        self.check_caches(plan, state).map_err(lost)?;
        state.served = state.served.max(Some(plan.generation));
        let begin = self.now();
        let computed = self.exchange(plan, hidden, state);
        match computed.or_else(|failure| self.continue_on_standby(failure, plan, hidden, state)) {
            Ok(computed) => {
                self.confirm(plan, state).map_err(lost)?;
                state.seen = self.now();
                self.note(|status| {
                    status.steps += 1;
                    status.rows += plan.tokens.len() as u64;
                    status.microseconds += self.workers.clock().since(begin).as_micros() as u64;
                    status.computing_microseconds += u64::from(computed);
                });
                Ok(())
            }
            Err(Failure::Plan(problem)) => {
                state.standbys.standby.iter_mut().for_each(|standby| standby.broke_off(plan));
                Err(StageError::Plan { problem })
            }
            Err(Failure::Lost(problem)) => {
                Err(StageError::Lost { layers: self.layers.clone(), problem, while_computing: true })
            }
        }
    }
}
