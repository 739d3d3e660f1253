//! The connection to a worker that has loaded its stage: steps go there, rows and heartbeats come back.

use std::ops::Range;
use std::time::{Duration, Instant};

use cascadia_model::StepPlan;

use crate::Sandbox;
use crate::failover::pace::Pace;
use crate::failover::timeouts::Timeouts;
use crate::wire::codec::Codec;
use crate::wire::frame::{Bounds, Frame, Header, Kind, Outgoing, Wait, receive};
use crate::wire::link::{Link, LinkError};
use crate::wire::message::{MOST_MESSAGE, layers_computed, microseconds, reason};
use crate::wire::pages::{self, PagePiece, PageRequest};
use crate::wire::plan_codec::PlanEncoder;
use crate::wire::verbs::Expecting;
use crate::workers::stage_workers::StageWorkers;

/// A machine that says how far it is may compute one layer for so many times as long as a step of one row may take.
const STILL: u32 = 3;
/// How long to look for the reason of a worker that has closed its connection: it has come, or never will.
const FAREWELL: Duration = Duration::from_secs(1);

/// How long a worker may take to receive the adapters of a step.
const TRANSFER: Duration = Duration::from_secs(60);

/// What holds for every step of a stage, whichever worker computes it.
#[derive(Clone, Copy)]
pub(crate) struct StepTerms {
    /// How rows are written.
    pub(crate) codec: Codec,
    /// How long they may take.
    pub(crate) timeouts: Timeouts,
}

/// What a worker answers to a step.
#[derive(Debug)]
pub(crate) enum StepReply {
    /// Rows, which are in the frame, and the microseconds in which they were computed.
    Rows(u32),
    /// Why there are none.
    Refused(String),
}

/// A connection on which a worker has said that it is ready.
pub(crate) struct Connection {
    pub(crate) link: Box<dyn Link>,
    pub(crate) epoch: u32,
    pub(crate) node: String,
    pub(crate) numerics: String,
    pub(crate) sandbox: Sandbox,
}

/// A worker that has loaded its stage.
pub struct WorkerLink {
    /// The connection.
    pub link: Box<dyn Link>,
    /// What its frames are marked with.
    pub epoch: u32,
    /// The worker's name.
    pub node: String,
    /// The class of its numerics: rows of one class can be compared.
    pub(crate) numerics: String,
    /// The sandbox that its process says it is in.
    pub(crate) sandbox: Sandbox,
    /// Records of the audit log that it was told of.
    told: u64,
    /// The last step that was sent.
    step: u32,
    /// Its rows.
    rows: u16,
    /// Replies that came too late to count.
    late: u64,
    plan: PlanEncoder,
    plan_bytes: Vec<u8>,
    buffer: Vec<u8>,
    /// How long it takes for its steps.
    pub(crate) pace: Pace,
}

/// An answer that is waited for.
pub(crate) struct Awaited<'a> {
    /// Its rows.
    pub(crate) rows: u16,
    /// Whether it is no longer worth waiting after so long, for a step that usually takes so long, if that is known.
    /// Asked at every heartbeat.
    pub(crate) is_overdue: &'a dyn Fn(Duration, Option<Duration>) -> bool,
}

/// How far a machine was when it last told another number.
struct Advance {
    layers: Option<u64>,
    since: Instant,
}

impl WorkerLink {
    /// A worker for these layers that has been sent nothing yet. Tokens go only to stages that need them.
    pub(crate) fn new(connection: Connection, (sends_tokens, layers): (bool, Range<u32>)) -> WorkerLink {
        let Connection { link, epoch, node, numerics, sandbox } = connection;
        WorkerLink {
            link,
            epoch,
            node,
            numerics,
            sandbox,
            told: 0,
            step: 0,
            rows: 0,
            late: 0,
            plan: PlanEncoder::new(sends_tokens, layers),
            plan_bytes: Vec::new(),
            buffer: Vec::new(),
            pace: Pace::default(),
        }
    }

    /// Asks for a heartbeat, and waits for it. Shows the head of the audit log, if there is a new one.
    pub(crate) fn ping(&mut self, patience: Duration, workers: &StageWorkers) -> Result<(), LinkError> {
        let step = self.step;
        if let Some(head) = workers.head_after(self.told) {
            let message = head.bytes();
            let shown = Outgoing { epoch: self.epoch, ..Outgoing::message(Kind::Head, &message) };
            shown.send(&mut *self.link, &mut Vec::new())?;
            self.told = head.head.count;
        }
        let ping = Outgoing { epoch: self.epoch, step, ..Outgoing::message(Kind::Ping, &[]) };
        ping.send(&mut *self.link, &mut Vec::new())?;
        let (mut frame, wait) = (Frame::default(), self.within(patience));
        loop {
            receive(&mut *self.link, &Bounds::table(Expecting::Result, MOST_MESSAGE), &mut frame, wait)?;
            if let Some(farewell) = self.farewell(&frame) {
                return Err(farewell);
            }
            let Header { kind, epoch, step: answered, .. } = frame.header;
            if kind == Kind::Witness {
                workers.take_countersignature(&self.node, frame.table());
            }
            if kind == Kind::Pong && epoch == self.epoch && answered == step {
                return Ok(());
            }
        }
    }

    /// Sends the adapters of a plan that the worker lacks, and waits until it has taken them: never during a step.
    fn send_adapters(&mut self, plan: &StepPlan, workers: &StageWorkers) -> Result<(), LinkError> {
        let WorkerLink { plan: encoder, link, epoch, buffer, .. } = self;
        let send = |piece: &[u8]| {
            let frame = Outgoing { epoch: *epoch, ..Outgoing::message(Kind::Adapter, piece) };
            frame.send(&mut **link, buffer).map(|_| ())
        };
        if encoder.adapters.tell(plan, send)? { self.ping(TRANSFER, workers) } else { Ok(()) }
    }

    /// Sends a step with its rows, after the sequences that have ended; says how many bytes that were.
    pub(crate) fn send(
        &mut self,
        plan: &StepPlan,
        ended: &[u64],
        (row_bytes, workers): (&[u8], &StageWorkers),
    ) -> Result<usize, LinkError> {
        self.send_adapters(plan, workers)?;
        let broken = |problem: &str| LinkError::Broken(problem.to_owned());
        self.step = self.step.checked_add(1).ok_or_else(|| broken("its steps cannot be numbered any more"))?;
        self.plan_bytes.clear();
        let written = self.plan.write(plan, ended, &mut self.plan_bytes);
        written.ok_or_else(|| broken("the step has more sequences than it can remember"))?;
        self.rows = plan.tokens.len() as u16;
        self.pace.begin(plan, self.link.clock().now());
        let frame = Outgoing {
            kind: Kind::Step,
            epoch: self.epoch,
            step: self.step,
            table: &self.plan_bytes,
            rows: self.rows,
            row_bytes,
        };
        let sent = frame.send(&mut *self.link, &mut self.buffer);
        sent.map_err(|error| if error == LinkError::Closed { self.find_farewell().unwrap_or(error) } else { error })
    }

    /// Waits for what it answers to the step that was sent last.
    pub(crate) fn answer(
        &mut self,
        awaited: &Awaited<'_>,
        terms: &StepTerms,
        workers: &StageWorkers,
        frame: &mut Frame,
    ) -> Result<StepReply, LinkError> {
        let (StepTerms { codec, timeouts }, rows) = (*terms, awaited.rows);
        let mut advance = Advance { layers: None, since: self.link.clock().now() };
        let end = self.link.clock().now() + timeouts.step + timeouts.row * u32::from(rows);
        let wait = Wait::Until { end, silence: timeouts.silence };
        let row_bytes = codec.row_bytes();
        let bounds = Bounds { hearing: Expecting::Result, rows: rows.into(), row_bytes, table: MOST_MESSAGE };
        let asked = (self.epoch, self.step);
        loop {
            receive(&mut *self.link, &bounds, frame, wait)?;
            if let Some(farewell) = self.farewell(frame) {
                return Err(farewell);
            }
            let Header { kind, epoch, step, rows: came, .. } = frame.header;
            match kind {
                Kind::Beat => {
                    self.check_beat(frame.table(), (&mut advance, timeouts.step * STILL), awaited)?;
                    continue;
                }
                Kind::Witness => {
                    workers.take_countersignature(&self.node, frame.table());
                    continue;
                }
                _ => {}
            }
            if (epoch, step) < asked {
                self.late += 1;
                continue;
            }
            let expected = (epoch, step) == asked;
            return match kind {
                Kind::Rows if expected && came == rows => {
                    self.pace.end(self.link.clock().now());
                    Ok(StepReply::Rows(microseconds(frame.table())?))
                }
                Kind::Refused if expected && came == 0 => Ok(StepReply::Refused(reason(frame.table())?)),
                kind => Err(LinkError::Broken(format!("it answered step {} with {kind:?} of step {step}", asked.1))),
            };
        }
    }

    /// Asks for a piece of a page as it is after the last step, and waits for its frame; nothing where pages cannot be copied.
    pub(crate) fn fetch(
        &mut self,
        request: &PageRequest,
        (terms, workers): (&StepTerms, &StageWorkers),
    ) -> Result<Option<Vec<u8>>, LinkError> {
        let message = request.bytes();
        let fetch = Outgoing { epoch: self.epoch, step: self.step, ..Outgoing::message(Kind::Fetch, &message) };
        fetch.send(&mut *self.link, &mut self.buffer)?;
        let StepTerms { codec, timeouts } = *terms;
        let wait = Wait::Until { end: self.link.clock().now() + timeouts.step, silence: timeouts.silence };
        // What was answered late may still come.
        let (rows, row_bytes) = (self.rows.into(), codec.row_bytes());
        let bounds = Bounds { hearing: Expecting::Result, rows, row_bytes, table: pages::MOST_FRAME };
        let mut frame = Frame::default();
        loop {
            receive(&mut *self.link, &bounds, &mut frame, wait)?;
            if let Some(farewell) = self.farewell(&frame) {
                return Err(farewell);
            }
            let Header { kind, epoch, step, .. } = frame.header;
            match kind {
                Kind::Witness => workers.take_countersignature(&self.node, frame.table()),
                Kind::Page if (epoch, step) == (self.epoch, self.step) => {
                    let piece = PagePiece::parse(frame.table())?;
                    let fits = piece.bytes.len() <= request.most as usize;
                    return match (&piece.of, piece.offset) == (&request.of, request.offset) && fits {
                        true => Ok(Some(frame.table().to_vec())),
                        false => Err(LinkError::Broken("it sent another page than it was asked for".to_owned())),
                    };
                }
                Kind::Refused if (epoch, step) == (self.epoch, self.step) => return Ok(None),
                // An answer to something that was asked before.
                _ => self.late += u64::from(kind != Kind::Beat),
            }
        }
    }

    /// Sends pieces of pages, and waits until the worker has taken them: never during a step.
    pub(crate) fn give<'a>(
        &mut self,
        pieces: impl Iterator<Item = &'a [u8]>,
        (terms, workers): (&StepTerms, &StageWorkers),
    ) -> Result<(), LinkError> {
        for piece in pieces {
            let frame = Outgoing { epoch: self.epoch, ..Outgoing::message(Kind::Page, piece) };
            frame.send(&mut *self.link, &mut self.buffer)?;
        }
        self.ping(terms.timeouts.step, workers)
    }

    /// An error if a machine that still sends heartbeats is not worth waiting for.
    fn check_beat(
        &self,
        beat: &[u8],
        (advance, patience): (&mut Advance, Duration),
        awaited: &Awaited<'_>,
    ) -> Result<(), LinkError> {
        let (now, layers) = (self.link.clock().now(), layers_computed(beat)?);
        if layers.is_none() || layers != advance.layers {
            *advance = Advance { layers, since: now };
        }
        if now.saturating_duration_since(advance.since) >= patience {
            let seconds = patience.as_secs();
            let problem = format!("it has computed nothing for {seconds} s, although it sends heartbeats");
            return Err(LinkError::Broken(problem));
        }
        match self.pace.under_way(now) {
            Some((time, usual)) if (awaited.is_overdue)(time, usual) => {
                let milliseconds = time.as_millis();
                let problem = format!("it has computed for {milliseconds} ms what its standby has answered long ago");
                Err(LinkError::Broken(problem))
            }
            _ => Ok(()),
        }
    }

    /// Replies that came too late since this was last asked.
    pub(crate) fn take_late(&mut self) -> u64 {
        std::mem::take(&mut self.late)
    }

    /// Waits for so long in all, however many frames come meanwhile.
    fn within(&self, time: Duration) -> Wait {
        Wait::Until { end: self.link.clock().now() + time, silence: time }
    }

    /// Why it left, if it said so before it closed the connection.
    fn find_farewell(&mut self) -> Option<LinkError> {
        let (mut frame, wait) = (Frame::default(), self.within(FAREWELL));
        loop {
            receive(&mut *self.link, &Bounds::table(Expecting::Result, MOST_MESSAGE), &mut frame, wait).ok()?;
            if let Some(farewell) = self.farewell(&frame) {
                return Some(farewell);
            }
        }
    }

    /// The reason in a frame with which the worker leaves.
    fn farewell(&self, frame: &Frame) -> Option<LinkError> {
        let Header { kind, epoch, .. } = frame.header;
        let left = |why| LinkError::Broken(format!("it left, because {why}"));
        (kind == Kind::Leaving && epoch == self.epoch).then(|| reason(frame.table()).map_or_else(|error| error, left))
    }
}
