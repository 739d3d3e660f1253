//! A stage on another machine: the same plan goes there, the rows come back.

mod bypass;
mod standby_state;

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cascadia_model::{Hidden, Stage, StageError, StepPlan};

use crate::audit::Verb;
use crate::clock::Monitor;
use crate::failover::stage_status::StageStatus;
use crate::failover::standby::Tally;
use crate::wire::codec::Codec;
use crate::wire::exchange::{StepReply, StepTerms};
use crate::wire::frame::Frame;
use crate::wire::link::LinkError;
use crate::workers::stage_workers::{ModelWorkers, StageWorkers, WorkerLink};
use standby_state::StandbyState;

/// How long to wait for other machines.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the answer to any step.
    pub step: Duration,
    /// And for each of its rows besides.
    pub row: Duration,
    /// For a machine that can take over when none is there.
    pub worker: Duration,
    /// For a sign of life: a busy worker gives several in that time.
    pub silence: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            step: Duration::from_secs(10),
            row: Duration::from_millis(500),
            worker: Duration::from_secs(4),
            silence: Duration::from_millis(250),
        }
    }
}

/// How often it is asked whether a machine that computes still belongs to the fleet.
const MEMBERSHIP: Duration = Duration::from_secs(1);

/// What steps are told that count on a cache which is lost.
const GONE: &str = "the machine that ran them is gone";

/// Layers that run on another machine.
pub struct RemoteStage {
    layers: Range<u32>,
    rows: u32,
    terms: StepTerms,
    stage_workers: Arc<StageWorkers>,
    /// Whether a spare computes along.
    is_shadowed: bool,
    tally: Arc<Tally>,
    status: Mutex<StageStatus>,
    state: Monitor<State>,
}

struct State {
    current: Option<WorkerLink>,
    /// Who computes along with it.
    company: StandbyState,
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
    /// Rows as they are sent; a shadow may need them longer.
    row_bytes: Arc<Vec<u8>>,
}

/// How an exchange failed.
enum Failure {
    /// The machine is of no more use.
    Lost(String),
    /// It is well, and cannot run this plan.
    Plan(String),
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Failure {
        Failure::Lost(error.to_string())
    }
}

impl RemoteStage {
    /// Stage number `stage` of a model, run by whoever docks there. Of spares, one computes along.
    pub fn new(model_workers: &ModelWorkers, stage: usize, patience: Timeouts) -> RemoteStage {
        let (numerics, limits) = (&model_workers.manifest().numerics, model_workers.limits());
        let [start, end] = model_workers.manifest().stages[stage].layers;
        let codec = Codec::new(limits.wire, numerics.hidden_width as usize);
        let stage_workers = Arc::clone(&model_workers.stages_workers()[stage]);
        let clock = stage_workers.clock().clone();
        let now = clock.now();
        RemoteStage {
            layers: start..end,
            rows: limits.model.rows_per_step,
            terms: StepTerms { codec, patience },
            stage_workers,
            is_shadowed: true,
            tally: Arc::default(),
            status: Mutex::new(StageStatus { layers: [start, end], ..StageStatus::default() }),
            state: Monitor::new(
                &clock,
                State {
                    current: None,
                    company: StandbyState::default(),
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
    pub fn without_shadow(self) -> RemoteStage {
        RemoteStage { is_shadowed: false, ..self }
    }

    /// Who runs it, and what it has done so far.
    pub fn status(&self) -> StageStatus {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let spares = status.shadow.iter().cloned().chain(self.stage_workers.spares()).collect();
        let slow = status.slow.iter().cloned().chain(self.stage_workers.slow()).collect();
        let [followed, compared] =
            [&self.tally.followed, &self.tally.compared].map(|steps| steps.load(Ordering::Relaxed));
        StageStatus { spares, slow, doubted: self.stage_workers.doubted(), followed, compared, ..status }
    }

    /// What people call it.
    fn shows(&self) -> String {
        format!("layers {} to {}", self.layers.start, self.layers.end)
    }

    fn now(&self) -> Instant {
        self.stage_workers.clock().now()
    }

    fn note(&self, change: impl FnOnce(&mut StageStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Asks for signs of life, of the machine that computes unless a step is under way and of its spares; those that
    /// give none, or no longer belong to the fleet, are let go.
    pub fn check(&self) {
        self.stage_workers.sweep(self.terms.patience.silence);
        let Some(mut state) = self.state.try_lock() else { return };
        self.hear_shadow(&mut state);
        if state.current.is_some() && state.still_there(&self.stage_workers, self.terms.patience.silence).is_err() {
            self.lose(&mut state);
        }
        // One that waits is there as well as one that computes: if it goes, it is given as long to come back.
        if state.current.is_none() && !self.stage_workers.spares().is_empty() {
            state.seen = self.now();
        }
        self.find_shadow(&mut state);
    }

    /// Lets a machine compute from now on.
    fn take(&self, worker_link: WorkerLink, state: &mut State) {
        self.stage_workers.note(Verb::StageTaken, &worker_link.node, self.shows());
        self.note(|status| status.node = Some(worker_link.node.clone()));
        state.current = Some(worker_link);
        let now = self.now();
        (state.seen, state.asked) = (now, now);
    }

    /// Makes sure of a machine that computes steps of this generation, or says why there is none.
    fn worker(&self, state: &mut State, generation: u64) -> Result<(), String> {
        if state.current.is_some() && generation < state.taken_for {
            return Err(GONE.to_owned());
        }
        let is_second_best = |worker_link: &mut WorkerLink| {
            self.stage_workers.doubts(&worker_link.node) && self.stage_workers.has_believed()
        };
        if let Some(worker_link) = state.current.take_if(is_second_best) {
            state.company = StandbyState::default();
            self.note(|status| status.node = None);
            self.stage_workers.put(worker_link);
        }
        if let Some(worker_link) = &state.current {
            if self.now().saturating_duration_since(state.asked) < MEMBERSHIP {
                return Ok(());
            }
            state.asked = self.now();
            if self.stage_workers.admits(&worker_link.node) {
                return Ok(());
            }
            let (node, _) = self.lose(state);
            let gone = || format!("{node} no longer belongs to the fleet");
            return state.current.as_ref().map(|_| ()).ok_or_else(gone);
        }
        if state.served.is_some_and(|served| generation <= served) {
            return Err(GONE.to_owned());
        }
        let deadline = state.seen + self.terms.patience.worker;
        while let Some(worker_link) = self.stage_workers.take(deadline) {
            state.current = Some(worker_link);
            // One that has waited may have gone meanwhile.
            let answers = state.still_there(&self.stage_workers, self.terms.patience.silence).is_ok();
            if let Some(worker_link) = state.current.take().filter(|_| answers) {
                (state.taken_for, state.company) = (generation, StandbyState::default());
                self.take(worker_link, state);
                return Ok(());
            }
        }
        Err("no machine holds their shard; start a worker for it".to_owned())
    }

    /// Sends a step and waits for its rows; says how many microseconds it was computed.
    fn exchange(&self, plan: &StepPlan, hidden: &mut Hidden, state: &mut State) -> Result<u32, Failure> {
        let Some(worker_link) = &mut state.current else {
            return Err(Failure::Lost("it is gone".to_owned()));
        };
        let mut row_bytes = Arc::get_mut(&mut state.row_bytes).map(std::mem::take).unwrap_or_default();
        // First, because a step that is not sent must leave no trace in what both ends remember.
        self.terms.codec.encode(&hidden.values, &mut row_bytes).map_err(Failure::Plan)?;
        state.row_bytes = Arc::new(row_bytes);
        let sent = worker_link.send(plan, &state.row_bytes);
        // Whatever became of that: if the machine is lost, its shadow answers.
        state.company.tell((&worker_link.node, self.now()), |shadow| shadow.step(plan, &state.row_bytes));
        let sent = sent?;
        let answer = worker_link.answer(plan.tokens.len() as u16, &self.terms, &self.stage_workers, &mut state.frame);
        let late = std::mem::take(&mut worker_link.sent.late);
        self.note(|status| (status.sent_bytes, status.late) = (status.sent_bytes + sent as u64, status.late + late));
        let computed = self.judge(plan, (&worker_link.node, answer?), (&state.frame, hidden), &mut state.suspected)?;
        state.company.tell((&worker_link.node, self.now()), |shadow| shadow.compare(state.frame.rows()));
        Ok(computed)
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
    /// Asks for a sign of life of a machine that still belongs to the fleet.
    fn still_there(&mut self, stage_workers: &StageWorkers, patience: Duration) -> Result<(), LinkError> {
        let worker_link = self
            .current
            .as_mut()
            .filter(|worker_link| stage_workers.admits(&worker_link.node))
            .ok_or(LinkError::Closed)?;
        worker_link.ping(patience, stage_workers)?;
        let now = stage_workers.clock().now();
        (self.seen, self.asked) = (now, now);
        Ok(())
    }
}

impl Stage for RemoteStage {
    fn layers(&self) -> Range<u32> {
        self.layers.clone()
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        self.check_rows(plan, hidden)?;
        // A step that panicked left a link that is out of step, and such a link fails.
        let state = &mut *self.state.lock();
        self.hear_shadow(state);
        if let Some(problem) = state.company.doubt.take() {
            return Err(StageError::Wrong { layers: self.layers.clone(), problem });
        }
        let lost = |problem| StageError::Lost { layers: self.layers.clone(), problem, while_computing: false };
        self.bypass(state);
        self.worker(state, plan.generation).map_err(lost)?;
        self.find_shadow(state);
        self.check_caches(plan, state).map_err(lost)?;
        state.served = state.served.max(Some(plan.generation));
        let begin = self.now();
        let computed = self.exchange(plan, hidden, state);
        match computed.or_else(|failure| self.go_on(failure, plan, hidden, state)) {
            Ok(computed) => {
                self.confirm(plan, state).map_err(lost)?;
                state.seen = self.now();
                self.note(|status| {
                    status.steps += 1;
                    status.rows += plan.tokens.len() as u64;
                    status.microseconds += self.stage_workers.clock().since(begin).as_micros() as u64;
                    status.computing_microseconds += u64::from(computed);
                });
                Ok(())
            }
            Err(Failure::Plan(problem)) => Err(StageError::Plan { problem }),
            Err(Failure::Lost(problem)) => {
                Err(StageError::Lost { layers: self.layers.clone(), problem, while_computing: true })
            }
        }
    }
}

/// Who is at fault for a step that was answered without rows that are numbers: the machine, unless another one had
/// trouble with the same sequences.
fn blame(plan: &StepPlan, node: &str, problem: String, before: &mut Option<(String, Vec<u64>)>) -> Failure {
    let sequences: Vec<u64> = plan.steps.iter().map(|step| step.id).collect();
    match before {
        Some((other, suspects)) if other != node && sequences.iter().all(|sequence| suspects.contains(sequence)) => {
            Failure::Plan(format!("neither {other} nor {node} could compute it: {problem}"))
        }
        _ => {
            *before = Some((node.to_owned(), sequences));
            Failure::Lost(problem)
        }
    }
}
