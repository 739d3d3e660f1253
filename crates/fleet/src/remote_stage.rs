//! A stage on another machine: the same plan goes there, the rows come back.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cascadia_model::{Hidden, Stage, StageError, StepPlan};

use crate::codec::{NUMBER_BYTES, decode, encode};
use crate::dock::{Dock, Docked, Harbour};
use crate::frame::{Bounds, Frame, Kind, Outgoing, Wait, receive};
use crate::link::LinkError;
use crate::message::{MOST_MESSAGE, reason};
use crate::table::TableWriter;

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

/// Layers that run on another machine.
pub struct RemoteStage {
    layers: Range<u32>,
    width: usize,
    rows: u32,
    sends_tokens: bool,
    dock: Arc<Dock>,
    patience: Patience,
    counters: Arc<StageCounters>,
    state: Mutex<State>,
}

/// What a stage has sent and received.
#[derive(Debug, Default)]
pub struct StageCounters {
    /// Steps that were answered.
    pub steps: AtomicU64,
    /// Bytes that went there, without what encryption adds.
    pub sent: AtomicU64,
    /// Replies that came too late to count.
    pub late: AtomicU64,
    /// Machines that were lost.
    pub lost: AtomicU64,
}

struct State {
    current: Option<Docked>,
    /// The newest generation of steps that a machine has computed; those count on its cache.
    served: Option<u64>,
    /// When there was last a machine.
    seen: Instant,
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
            width: numerics.hidden_width as usize,
            rows: limits.rows_per_step,
            sends_tokens: numerics.stages_need_tokens,
            dock: Arc::clone(&harbour.docks()[stage]),
            patience,
            counters: Arc::default(),
            state: Mutex::new(State {
                current: None,
                served: None,
                seen: Instant::now(),
                step: 0,
                table: TableWriter::new(numerics.stages_need_tokens),
                frame: Frame::default(),
                table_bytes: Vec::new(),
                row_bytes: Vec::new(),
                buffer: Vec::new(),
            }),
        }
    }

    /// What it has done so far.
    pub fn counters(&self) -> Arc<StageCounters> {
        Arc::clone(&self.counters)
    }

    /// Asks for signs of life, of the machine that computes unless a step is under way and of its spares; those that
    /// give none are let go. Gives the name of the one that computes.
    pub fn check(&self) -> Option<String> {
        self.dock.sweep(self.patience.silence);
        let mut state = self.state.try_lock().ok()?;
        let node = state.current.as_ref()?.node.clone();
        if state.ping(self.patience.silence).is_err() {
            self.counters.lost.fetch_add(1, Ordering::Relaxed);
            state.current = None;
            return None;
        }
        Some(node)
    }

    /// Makes sure of a machine that computes steps of this generation, or says why there is none.
    fn worker(&self, state: &mut State, generation: u64) -> Result<(), String> {
        if state.current.is_some() {
            return Ok(());
        }
        if state.served.is_some_and(|served| generation <= served) {
            return Err("the machine that ran them is gone".to_owned());
        }
        let deadline = state.seen + self.patience.worker;
        while let Some(docked) = self.dock.take(deadline) {
            state.step = 0;
            state.table = TableWriter::new(self.sends_tokens);
            state.current = Some(docked);
            // One that has waited may have gone meanwhile.
            if state.ping(self.patience.silence).is_ok() {
                return Ok(());
            }
            state.current = None;
        }
        Err("no machine holds their shard; start a worker for it".to_owned())
    }

    /// Sends a step and waits for its rows.
    fn exchange(&self, plan: &StepPlan, hidden: &mut Hidden, state: &mut State) -> Result<(), Failure> {
        let State { current, step, table, frame, table_bytes, row_bytes, buffer, .. } = state;
        let Some(Docked { link, epoch, .. }) = current else { return Err(Failure::Lost("it is gone".to_owned())) };
        *step = step.checked_add(1).ok_or_else(|| Failure::Lost("its steps cannot be numbered any more".to_owned()))?;
        table_bytes.clear();
        row_bytes.clear();
        let written = table.write(plan, table_bytes);
        written.ok_or_else(|| Failure::Lost("the step has more sequences than it can remember".to_owned()))?;
        encode(&hidden.values, row_bytes);
        let rows = plan.tokens.len() as u16;
        let outgoing = Outgoing { kind: Kind::Step, epoch: *epoch, step: *step, table: table_bytes, rows, row_bytes };
        let sent = outgoing.send(&mut **link, buffer)?;
        self.counters.sent.fetch_add(sent as u64, Ordering::Relaxed);
        let end = Instant::now() + self.patience.step + self.patience.row * u32::from(rows);
        let wait = Wait { end, silence: self.patience.silence };
        let bounds = Bounds { rows: rows.into(), row_bytes: self.width * NUMBER_BYTES, table: MOST_MESSAGE };
        loop {
            receive(&mut **link, &bounds, frame, wait)?;
            let header = &frame.header;
            if header.kind == Kind::Pong {
                continue;
            }
            if header.epoch < *epoch || (header.epoch == *epoch && header.step < *step) {
                self.counters.late.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let expected = header.epoch == *epoch && header.step == *step;
            return match header.kind {
                Kind::Rows if expected && header.rows == rows && header.table == 0 => {
                    match decode(frame.rows(), &mut hidden.values) {
                        true => Ok(()),
                        false => Err(Failure::Lost("it sent numbers that are not finite".to_owned())),
                    }
                }
                Kind::Refused if expected && header.rows == 0 => Err(Failure::Plan(reason(frame.table())?)),
                kind => Err(Failure::Lost(format!("it answered step {step} with {kind:?} of step {}", header.step))),
            };
        }
    }
}

impl State {
    fn ping(&mut self, patience: Duration) -> Result<(), LinkError> {
        let Some(docked) = &mut self.current else { return Err(LinkError::Closed) };
        docked.ping(self.step, patience)?;
        self.seen = Instant::now();
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
        if !fits || hidden.width != self.width || hidden.values.len() != rows * self.width {
            let problem = format!("{} numbers for {rows} rows of {}", hidden.values.len(), self.width);
            return Err(StageError::Plan { problem });
        }
        // A step that panicked left a link that is out of step, and such a link fails.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = |problem| StageError::Lost { layers: self.layers.clone(), problem };
        self.worker(&mut state, plan.generation).map_err(lost)?;
        state.served = state.served.max(Some(plan.generation));
        match self.exchange(plan, hidden, &mut state) {
            Ok(()) => {
                self.counters.steps.fetch_add(1, Ordering::Relaxed);
                state.seen = Instant::now();
                Ok(())
            }
            Err(Failure::Plan(problem)) => Err(StageError::Plan { problem }),
            Err(Failure::Lost(problem)) => {
                self.counters.lost.fetch_add(1, Ordering::Relaxed);
                let node = state.current.take().map(|docked| docked.node).unwrap_or_default();
                state.seen = Instant::now();
                Err(lost(format!("{node}: {problem}")))
            }
        }
    }
}
