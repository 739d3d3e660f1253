//! A stage on another machine: the same plan goes there, the rows come back.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use cascadia_model::{Hidden, Stage, StageError, StepPlan};

use crate::audit::Verb;
use crate::codec::Codec;
use crate::dock::{Dock, Docked, Harbour};
use crate::frame::{Bounds, Frame, Kind, Outgoing, Wait, receive};
use crate::link::LinkError;
use crate::message::{MOST_MESSAGE, microseconds, reason};
use crate::stage_status::StageStatus;
use crate::table::TableWriter;
use crate::verbs::Hearing;

/// How long to wait for other machines.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For the answer to any step.
    pub step: Duration,
    /// And for each of its rows besides.
    pub row: Duration,
    /// For a machine that can take over when none is there.
    pub worker: Duration,
    /// For a sign of life: a busy worker gives several in that time.
    pub silence: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
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
    codec: Codec,
    rows: u32,
    sends_tokens: bool,
    dock: Arc<Dock>,
    patience: Patience,
    status: Mutex<StageStatus>,
    state: Mutex<State>,
}

struct State {
    current: Option<Docked>,
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
    step: u32,
    table: TableWriter,
    frame: Frame,
    table_bytes: Vec<u8>,
    row_bytes: Vec<u8>,
    buffer: Vec<u8>,
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
    /// Stage number `stage` of a model, run by whoever docks there.
    pub fn new(harbour: &Harbour, stage: usize, patience: Patience) -> RemoteStage {
        let (numerics, limits) = (&harbour.manifest().numerics, harbour.limits());
        let [start, end] = harbour.manifest().stages[stage].layers;
        RemoteStage {
            layers: start..end,
            codec: Codec::new(limits.wire, numerics.hidden_width as usize),
            rows: limits.rows_per_step,
            sends_tokens: numerics.stages_need_tokens,
            dock: Arc::clone(&harbour.docks()[stage]),
            patience,
            status: Mutex::new(StageStatus { layers: [start, end], ..StageStatus::default() }),
            state: Mutex::new(State {
                current: None,
                served: None,
                taken_for: 0,
                suspected: None,
                seen: Instant::now(),
                asked: Instant::now(),
                step: 0,
                table: TableWriter::new(numerics.stages_need_tokens),
                frame: Frame::default(),
                table_bytes: Vec::new(),
                row_bytes: Vec::new(),
                buffer: Vec::new(),
            }),
        }
    }

    /// Who runs it, and what it has done so far.
    pub fn status(&self) -> StageStatus {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        StageStatus { spares: self.dock.spares(), ..status }
    }

    /// What people call it.
    fn shows(&self) -> String {
        format!("layers {} to {}", self.layers.start, self.layers.end)
    }

    fn note(&self, change: impl FnOnce(&mut StageStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Asks for signs of life, of the machine that computes unless a step is under way and of its spares; those that
    /// give none, or no longer belong to the fleet, are let go.
    pub fn check(&self) {
        self.dock.sweep(self.patience.silence);
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if state.current.is_some() && state.still_there(&self.dock, self.patience.silence).is_err() {
            self.lose(&mut state);
        }
    }

    /// Lets go of the machine that computes; gives its name.
    fn lose(&self, state: &mut State) -> String {
        self.note(|status| (status.lost, status.node) = (status.lost + 1, None));
        state.seen = Instant::now();
        let node = state.current.take().map(|docked| docked.node).unwrap_or_default();
        self.dock.remember_loss(&node);
        self.dock.note(Verb::StageLost, &node, self.shows());
        node
    }

    /// Makes sure of a machine that computes steps of this generation, or says why there is none.
    fn worker(&self, state: &mut State, generation: u64) -> Result<(), String> {
        if state.current.is_some() && generation < state.taken_for {
            return Err(GONE.to_owned());
        }
        if let Some(docked) = &state.current {
            if state.asked.elapsed() < MEMBERSHIP {
                return Ok(());
            }
            state.asked = Instant::now();
            if self.dock.admits(&docked.node) {
                return Ok(());
            }
            let node = self.lose(state);
            return Err(format!("{node} no longer belongs to the fleet"));
        }
        if state.served.is_some_and(|served| generation <= served) {
            return Err(GONE.to_owned());
        }
        let deadline = state.seen + self.patience.worker;
        while let Some(docked) = self.dock.take(deadline) {
            state.step = 0;
            state.table = TableWriter::new(self.sends_tokens);
            state.current = Some(docked);
            // One that has waited may have gone meanwhile.
            if state.still_there(&self.dock, self.patience.silence).is_ok() {
                state.taken_for = generation;
                let node = state.current.as_ref().map(|docked| docked.node.as_str()).unwrap_or_default();
                self.dock.note(Verb::StageTaken, node, self.shows());
                self.note(|status| status.node = state.current.as_ref().map(|docked| docked.node.clone()));
                return Ok(());
            }
            state.current = None;
        }
        Err("no machine holds their shard; start a worker for it".to_owned())
    }

    /// Sends a step and waits for its rows; says how many microseconds it was computed.
    fn exchange(&self, plan: &StepPlan, hidden: &mut Hidden, state: &mut State) -> Result<u32, Failure> {
        let State { current, suspected, step, table, frame, table_bytes, row_bytes, buffer, .. } = state;
        let Some(Docked { link, epoch, node, .. }) = current else {
            return Err(Failure::Lost("it is gone".to_owned()));
        };
        let codec = self.codec;
        // First, because a step that is not sent must leave no trace in what both ends remember.
        codec.encode(&hidden.values, row_bytes).map_err(Failure::Plan)?;
        *step = step.checked_add(1).ok_or_else(|| Failure::Lost("its steps cannot be numbered any more".to_owned()))?;
        table_bytes.clear();
        let written = table.write(plan, table_bytes);
        written.ok_or_else(|| Failure::Lost("the step has more sequences than it can remember".to_owned()))?;
        let rows = plan.tokens.len() as u16;
        let outgoing = Outgoing { kind: Kind::Step, epoch: *epoch, step: *step, table: table_bytes, rows, row_bytes };
        let sent = outgoing.send(&mut **link, buffer)?;
        self.note(|status| status.sent_bytes += sent as u64);
        let end = Instant::now() + self.patience.step + self.patience.row * u32::from(rows);
        let wait = Wait { end, silence: self.patience.silence };
        let row_bytes = codec.row_bytes();
        let bounds = Bounds { hearing: Hearing::Result, rows: rows.into(), row_bytes, table: MOST_MESSAGE };
        loop {
            receive(&mut **link, &bounds, frame, wait)?;
            let header = &frame.header;
            match header.kind {
                Kind::Beat => continue,
                Kind::Witness => {
                    self.dock.heard(node, frame.table());
                    continue;
                }
                Kind::Leaving if header.epoch == *epoch => {
                    return Err(Failure::Lost(format!("it left, because {}", reason(frame.table())?)));
                }
                _ => {}
            }
            if header.epoch < *epoch || (header.epoch == *epoch && header.step < *step) {
                self.note(|status| status.late += 1);
                continue;
            }
            let expected = header.epoch == *epoch && header.step == *step;
            return match header.kind {
                Kind::Rows if expected && header.rows == rows => match codec.decode(frame.rows(), &mut hidden.values) {
                    true => Ok(microseconds(frame.table())?),
                    false => Err(blame(plan, node, "it computed numbers that are not finite".to_owned(), suspected)),
                },
                Kind::Refused if expected && header.rows == 0 => {
                    Err(blame(plan, node, reason(frame.table())?, suspected))
                }
                kind => Err(Failure::Lost(format!("it answered step {step} with {kind:?} of step {}", header.step))),
            };
        }
    }
}

impl State {
    /// Asks for a sign of life of a machine that still belongs to the fleet.
    fn still_there(&mut self, dock: &Dock, patience: Duration) -> Result<(), LinkError> {
        let docked = self.current.as_mut().filter(|docked| dock.admits(&docked.node)).ok_or(LinkError::Closed)?;
        docked.ping(self.step, patience, dock)?;
        (self.seen, self.asked) = (Instant::now(), Instant::now());
        Ok(())
    }
}

impl Stage for RemoteStage {
    fn layers(&self) -> Range<u32> {
        self.layers.clone()
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        let rows = plan.tokens.len();
        let fits = rows <= self.rows as usize && u16::try_from(rows).is_ok();
        let width = self.codec.width();
        if !fits || hidden.width != width || hidden.values.len() != rows * width {
            let problem = format!("{} numbers for {rows} rows of {width}", hidden.values.len());
            return Err(StageError::Plan { problem });
        }
        if !hidden.values.iter().all(|value| value.is_finite()) {
            let problem = format!("what layer {} should read is not finite", self.layers.start);
            return Err(StageError::Plan { problem });
        }
        // A step that panicked left a link that is out of step, and such a link fails.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = |problem| StageError::Lost { layers: self.layers.clone(), problem, while_computing: false };
        self.worker(&mut state, plan.generation).map_err(lost)?;
        state.served = state.served.max(Some(plan.generation));
        let begin = Instant::now();
        match self.exchange(plan, hidden, &mut state) {
            Ok(computed) => {
                state.seen = Instant::now();
                self.note(|status| {
                    status.steps += 1;
                    status.rows += rows as u64;
                    status.microseconds += begin.elapsed().as_micros() as u64;
                    status.computing_microseconds += u64::from(computed);
                });
                Ok(())
            }
            Err(Failure::Plan(problem)) => Err(StageError::Plan { problem }),
            Err(Failure::Lost(problem)) => {
                let problem = format!("{}: {problem}", self.lose(&mut state));
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
