//! A step with one machine: what goes there, and what comes back.

use std::time::Duration;

use cascadia_model::StepPlan;

use crate::failover::remote_stage::Timeouts;
use crate::wire::codec::Codec;
use crate::wire::frame::{Bounds, Frame, Header, Kind, Outgoing, Wait, receive};
use crate::wire::link::LinkError;
use crate::wire::message::{MOST_MESSAGE, microseconds, reason};
use crate::wire::plan_codec::PlanEncoder;
use crate::wire::verbs::Expecting;
use crate::workers::stage_workers::{StageWorkers, WorkerLink};

/// What all machines of a stage are asked alike.
#[derive(Clone, Copy)]
pub(crate) struct StepTerms {
    /// How rows are written.
    pub(crate) codec: Codec,
    /// How long they may take.
    pub(crate) patience: Timeouts,
}

/// How long to look for the last words of a machine that has closed its connection: they have come, or never will.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a machine says to a step.
#[derive(Debug)]
pub(crate) enum StepReply {
    /// Rows, which are in the frame, and the microseconds in which they were computed.
    Rows(u32),
    /// Why there are none.
    Refused(String),
}

/// What was sent to a machine on one connection.
pub(crate) struct Sent {
    /// Its last step.
    pub(crate) step: u32,
    /// Replies that came too late to count.
    pub(crate) late: u64,
    table: PlanEncoder,
    table_bytes: Vec<u8>,
    buffer: Vec<u8>,
}

impl Sent {
    /// Nothing yet. Tokens go only to stages that cannot do without.
    pub(crate) fn new(sends_tokens: bool) -> Sent {
        let (table_bytes, buffer) = (Vec::new(), Vec::new());
        Sent { step: 0, late: 0, table: PlanEncoder::new(sends_tokens), table_bytes, buffer }
    }
}

impl WorkerLink {
    /// Sends a step with its rows; says how many bytes that were.
    pub(crate) fn send(&mut self, plan: &StepPlan, row_bytes: &[u8]) -> Result<usize, LinkError> {
        let broken = |problem: &str| LinkError::Broken(problem.to_owned());
        let Sent { step, table, table_bytes, buffer, .. } = &mut self.sent;
        *step = step.checked_add(1).ok_or_else(|| broken("its steps cannot be numbered any more"))?;
        table_bytes.clear();
        let written = table.write(plan, table_bytes);
        written.ok_or_else(|| broken("the step has more sequences than it can remember"))?;
        let rows = plan.tokens.len() as u16;
        self.pace.begin(plan, self.link.clock().now());
        let frame = Outgoing { kind: Kind::Step, epoch: self.epoch, step: *step, table: table_bytes, rows, row_bytes };
        let sent = frame.send(&mut *self.link, buffer);
        sent.map_err(|error| if error == LinkError::Closed { self.last_words().unwrap_or(error) } else { error })
    }

    /// Why it left, if it said so before it closed the connection.
    fn last_words(&mut self) -> Option<LinkError> {
        let (mut frame, wait) = (Frame::default(), self.within(LAST_WORDS));
        loop {
            receive(&mut *self.link, &Bounds::table(Expecting::Result, MOST_MESSAGE), &mut frame, wait).ok()?;
            if let Some(farewell) = self.farewell(&frame) {
                return Some(farewell);
            }
        }
    }

    /// What a frame comes to if it says that the machine leaves.
    pub(crate) fn farewell(&self, frame: &Frame) -> Option<LinkError> {
        let Header { kind, epoch, .. } = frame.header;
        let left = |why| LinkError::Broken(format!("it left, because {why}"));
        (kind == Kind::Leaving && epoch == self.epoch).then(|| reason(frame.table()).map_or_else(|error| error, left))
    }

    /// Waits for what it says to the step that was sent last, which has so many rows.
    pub(crate) fn answer(
        &mut self,
        rows: u16,
        terms: &StepTerms,
        stage_workers: &StageWorkers,
        frame: &mut Frame,
    ) -> Result<StepReply, LinkError> {
        let StepTerms { codec, patience } = *terms;
        let end = self.link.clock().now() + patience.step + patience.row * u32::from(rows);
        let wait = Wait::Until { end, silence: patience.silence };
        let row_bytes = codec.row_bytes();
        let bounds = Bounds { hearing: Expecting::Result, rows: rows.into(), row_bytes, table: MOST_MESSAGE };
        let asked = (self.epoch, self.sent.step);
        loop {
            receive(&mut *self.link, &bounds, frame, wait)?;
            if let Some(farewell) = self.farewell(frame) {
                return Err(farewell);
            }
            let Header { kind, epoch, step, rows: came, .. } = frame.header;
            match kind {
                Kind::Beat => continue,
                Kind::Witness => {
                    stage_workers.heard(&self.node, frame.table());
                    continue;
                }
                _ => {}
            }
            if (epoch, step) < asked {
                self.sent.late += 1;
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
}
