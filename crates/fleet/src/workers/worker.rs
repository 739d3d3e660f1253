//! A stage for a coordinator elsewhere: receives steps, runs them, sends the rows back.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cascadia_model::{Hidden, Stage, StageError};

use crate::Availability;
use crate::audit::Countersigner;
use crate::audit::{SignedHead, Witnesses, testimony_bytes};
use crate::clock::{Clock, spawn_scoped};
use crate::wire::adapters;
use crate::wire::codec::Codec;
use crate::wire::frame::{Bounds, Frame, Kind, Outgoing, Wait, receive};
use crate::wire::link::{Link, LinkError};
use crate::wire::message::{Hello, MOST_MESSAGE, Offer, StageLimits, Writer, reason, refuse};
use crate::wire::pages::{self, PageRequest, PageSink, PageSource};
use crate::wire::plan_codec::PlanDecoder;
use crate::wire::verbs::Expecting;
use crate::workers::heartbeat::Heartbeat;
use crate::workers::machine::MachineSpeed;
use crate::workers::pending::PROBE;

/// How long a worker waits for its coordinator to decide what it should do.
const DECISION: Duration = Duration::from_secs(60);

/// What a worker runs.
pub struct WorkerStage {
    /// What it says of itself.
    pub hello: Hello,
    shape: RowShape,
    /// How long it computes for a coordinator that says nothing.
    lease: Duration,
    load: LoadStage,
    loaded: Option<(StageLimits, Box<dyn Stage>)>,
    witnesses: Option<Arc<Witnesses>>,
    availability: Arc<Availability>,
    /// Whether its shard was found to be damaged.
    is_damaged: Arc<AtomicBool>,
}

/// Loads the stage within limits, or says why it cannot.
pub type LoadStage = Box<dyn FnMut(&StageLimits) -> Result<Box<dyn Stage>, String> + Send>;

/// What a worker knows of the rows of a step from its own shard.
#[derive(Clone, Copy, Debug)]
pub struct RowShape {
    /// Numbers in a row of hidden states.
    pub hidden_width: usize,
    /// Whether tokens come with the rows, because its layers make inputs from them.
    pub needs_tokens: bool,
}

impl WorkerStage {
    /// A worker that has not loaded its stage yet.
    pub fn new(hello: Hello, shape: RowShape, lease: Duration, load: LoadStage) -> WorkerStage {
        WorkerStage {
            hello,
            shape,
            lease,
            load,
            loaded: None,
            witnesses: None,
            availability: Arc::default(),
            is_damaged: Arc::default(),
        }
    }

    /// The same, countersigning the heads of the coordinator's audit log.
    pub fn with_witnesses(self, witnesses: Arc<Witnesses>) -> WorkerStage {
        WorkerStage { witnesses: Some(witnesses), ..self }
    }

    /// The same, leaving between steps when its owner needs the machine.
    pub fn with_availability(self, availability: Arc<Availability>) -> WorkerStage {
        WorkerStage { availability, ..self }
    }

    /// The same, leaving between steps once its shard is found to be damaged.
    pub fn with_damage(self, is_damaged: Arc<AtomicBool>) -> WorkerStage {
        WorkerStage { is_damaged, ..self }
    }

    /// The same, computing for so long for a coordinator that says nothing.
    pub fn with_lease(self, lease: Duration) -> WorkerStage {
        WorkerStage { lease, ..self }
    }

    /// Frees the memory of a stage that is not needed; it is loaded again when it is.
    pub fn unload(&mut self) {
        self.loaded = None;
    }

    /// Whether it takes memory.
    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded.is_some()
    }

    /// Serves a coordinator until the link ends; the error says how it did.
    pub fn serve(&mut self, link: &mut dyn Link) -> LinkError {
        match greet(link, &self.hello) {
            Ok(Assignment::Load { epoch, limits }) => self.work(link, epoch, limits),
            Ok(Assignment::Store(_)) => {
                LinkError::Broken("the coordinator sends files, and there is no place".to_owned())
            }
            Err(error) => error,
        }
    }

    /// Runs steps until the link ends; the error says how it did.
    pub fn work(&mut self, link: &mut dyn Link, epoch: u32, limits: StageLimits) -> LinkError {
        match self.try_work(link, epoch, limits) {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    fn try_work(&mut self, link: &mut dyn Link, epoch: u32, limits: StageLimits) -> Result<Infallible, LinkError> {
        let (mut frame, mut buffer) = (Frame::default(), Vec::new());
        if let Err(problem) = self.load(limits) {
            let message = Writer::default().text(&problem).0;
            Outgoing { epoch, ..Outgoing::message(Kind::Refused, &message) }.send(link, &mut buffer)?;
            return Err(LinkError::Broken(problem));
        }
        let Some((limits, stage)) = &self.loaded else { return Err(LinkError::Closed) };
        let numerics = Writer::default().text(stage.traits().numerics.0).0;
        Outgoing { epoch, ..Outgoing::message(Kind::Ready, &numerics) }.send(link, &mut buffer)?;
        let table = PlanDecoder::new(self.shape.needs_tokens, limits.model.context);
        let codec = Codec::new(limits.wire, self.shape.hidden_width);
        let bounds = Bounds {
            hearing: Expecting::Work,
            rows: limits.model.rows_per_step,
            row_bytes: codec.row_bytes(),
            table: [
                table.most_bytes(limits.model.rows_per_step),
                MOST_MESSAGE,
                adapters::MOST_FRAME,
                pages::MOST_FRAME,
            ]
            .into_iter()
            .fold(0, u32::max),
        };
        let hidden = Hidden { values: Vec::new(), width: self.shape.hidden_width };
        let clock = link.clock().clone();
        let progress = || stage.progress();
        let heartbeat = &Heartbeat::new(link, epoch, &progress);
        let countersigner = self.witnesses.clone().map(Countersigner::start);
        let (stage, rows, (source, sink)) = (&**stage, Vec::new(), Default::default());
        let mut work = Work {
            stage,
            clock,
            heartbeat,
            epoch,
            step: 0,
            table,
            codec,
            hidden,
            rows,
            buffer,
            countersigner,
            source,
            sink,
        };
        thread::scope(|scope| {
            let beating = spawn_scoped(&work.clock, scope, || heartbeat.run());
            let ended = loop {
                let damage = || self.is_damaged.load(Ordering::SeqCst).then(|| "its shard is damaged".to_owned());
                if let Some(reason) = self.availability.reason().or_else(damage) {
                    break work.leave(&reason);
                }
                let received = receive(&mut *heartbeat.link(), &bounds, &mut frame, Wait::For(self.lease));
                if let Err(error) = received.and_then(|()| work.obey(&frame)) {
                    break Err(error);
                }
            };
            heartbeat.end();
            beating.join(None);
            // The next coordinator numbers its sequences anew.
            work.table.sequences().for_each(|sequence| work.stage.end_sequence(sequence));
            ended
        })
    }

    /// Loads the stage unless it is there. What its cache holds from an earlier coordinator is written again before it
    /// is read.
    fn load(&mut self, limits: StageLimits) -> Result<(), String> {
        if self.loaded.as_ref().is_none_or(|(loaded, _)| *loaded != limits) {
            self.loaded = None;
            let stage = (self.load)(&limits)?;
            self.loaded = Some((limits, stage));
        }
        Ok(())
    }
}

/// What a coordinator wants of a worker that has connected.
pub enum Assignment {
    /// Load the shard, and run steps.
    Load {
        /// What frames are marked with.
        epoch: u32,
        /// What the stage is loaded for.
        limits: StageLimits,
    },
    /// Store a file.
    Store(Offer),
}

/// Says who this is, and waits for what the coordinator wants.
pub fn greet(link: &mut dyn Link, hello: &Hello) -> Result<Assignment, LinkError> {
    greet_measured(link, hello, (&MachineSpeed::default(), &|| true))
}

/// The same for a machine that has measured itself, and says so when the coordinator asks, for as long as it may wait.
pub fn greet_measured(
    link: &mut dyn Link,
    hello: &Hello,
    (speed, may_wait): (&MachineSpeed, &dyn Fn() -> bool),
) -> Result<Assignment, LinkError> {
    let (mut frame, mut buffer) = (Frame::default(), Vec::new());
    Outgoing::message(Kind::Hello, &hello.bytes()).send(link, &mut buffer)?;
    loop {
        receive(link, &Bounds::table(Expecting::Assignment, PROBE.max(MOST_MESSAGE)), &mut frame, Wait::For(DECISION))?;
        if frame.header.kind != Kind::Ping {
            break;
        }
        // Nothing should be sent to a machine that its owner needs.
        if !may_wait() {
            return Err(LinkError::Closed);
        }
        Outgoing::message(Kind::Pong, &speed.bytes()).send(link, &mut buffer)?;
    }
    match frame.header.kind {
        Kind::Welcome => match StageLimits::parse(frame.table()) {
            Ok(limits) => Ok(Assignment::Load { epoch: frame.header.epoch, limits }),
            Err(error) => Err(refuse(link, error.to_string())),
        },
        Kind::Offer => Ok(Assignment::Store(Offer::parse(frame.table())?)),
        Kind::Refused => Err(LinkError::Broken(reason(frame.table())?)),
        Kind::Revoked => Err(LinkError::Revoked),
        kind => Err(LinkError::Broken(format!("the coordinator answered {kind:?}"))),
    }
}

/// One connection at work.
struct Work<'a> {
    stage: &'a dyn Stage,
    clock: Clock,
    heartbeat: &'a Heartbeat<'a>,
    epoch: u32,
    /// The last step.
    step: u32,
    table: PlanDecoder,
    codec: Codec,
    hidden: Hidden,
    rows: Vec<u8>,
    buffer: Vec<u8>,
    countersigner: Option<Countersigner>,
    /// A page that is copied from here, and one that is copied to here.
    source: PageSource,
    sink: PageSink,
}

impl Work<'_> {
    fn obey(&mut self, frame: &Frame) -> Result<(), LinkError> {
        let header = &frame.header;
        while let Some(countersignature) = self.countersigner.as_ref().and_then(Countersigner::next) {
            let message = testimony_bytes(&countersignature);
            let witness = Outgoing { epoch: self.epoch, ..Outgoing::message(Kind::Witness, &message) };
            witness.send(&mut *self.heartbeat.link(), &mut self.buffer)?;
        }
        match header.kind {
            _ if header.epoch != self.epoch => Err(LinkError::Broken("a frame of another connection came".to_owned())),
            Kind::Ping => {
                let pong = Outgoing { epoch: self.epoch, step: header.step, ..Outgoing::message(Kind::Pong, &[]) };
                pong.send(&mut *self.heartbeat.link(), &mut self.buffer).map(|_| ())
            }
            Kind::Head => {
                let head = SignedHead::parse(frame.table())?;
                self.countersigner.iter().for_each(|countersigner| countersigner.show(head));
                Ok(())
            }
            Kind::Adapter => self.table.adapters.take(frame.table(), |part| self.stage.adapter(part)),
            Kind::Fetch => self.send_piece(frame),
            Kind::Page => self.sink.take(frame.table(), self.stage.page_rows()),
            // A plan says what changed, so none may be missed or taken twice.
            Kind::Step if header.step <= self.step => Ok(()),
            Kind::Step if header.step == self.step + 1 => self.run(frame),
            kind => Err(LinkError::Broken(format!("{kind:?} {} came after step {}", header.step, self.step))),
        }
    }

    /// Sends a piece of a page as it is between these two steps.
    fn send_piece(&mut self, frame: &Frame) -> Result<(), LinkError> {
        let request = PageRequest::parse(frame.table())?;
        let (kind, table) = match self.source.piece(&request, self.stage.page_rows()) {
            Ok(piece) => (Kind::Page, piece),
            Err(problem) => (Kind::Refused, Writer::default().text(&problem).0),
        };
        let answer = Outgoing { epoch: self.epoch, step: frame.header.step, ..Outgoing::message(kind, &table) };
        answer.send(&mut *self.heartbeat.link(), &mut self.buffer).map(|_| ())
    }

    /// Tells the coordinator that this machine leaves, so that it need not find out.
    fn leave(&mut self, reason: &str) -> Result<Infallible, LinkError> {
        let message = Writer::default().text(reason).0;
        let leaving = Outgoing { epoch: self.epoch, ..Outgoing::message(Kind::Leaving, &message) };
        leaving.send(&mut *self.heartbeat.link(), &mut self.buffer)?;
        Err(LinkError::Broken(format!("this machine left, because {reason}")))
    }

    fn run(&mut self, frame: &Frame) -> Result<(), LinkError> {
        let rows = frame.header.rows;
        let (plan, ended) = self.table.read(frame.table(), rows)?;
        ended.into_iter().for_each(|sequence| self.stage.end_sequence(sequence));
        self.step = frame.header.step;
        self.hidden.values.resize(usize::from(rows) * self.hidden.width, 0.0);
        if !self.codec.decode(frame.rows(), &mut self.hidden.values) {
            return Err(LinkError::Broken("numbers came that are not finite".to_owned()));
        }
        let begin = self.clock.now();
        let (stage, hidden) = (self.stage, &mut self.hidden);
        let compute = || catch_unwind(AssertUnwindSafe(|| stage.run(&plan, hidden)));
        let ran = self.heartbeat.while_computing(compute);
        let time = self.clock.since(begin);
        let broken = || Err(StageError::Plan { problem: "it broke off; this is a bug worth reporting".to_owned() });
        let mut answer = Outgoing { epoch: self.epoch, step: self.step, ..Outgoing::message(Kind::Rows, &[]) };
        let message;
        let unwritten = |problem| StageError::Plan { problem };
        let encode = |()| self.codec.encode(&self.hidden.values, &mut self.rows).map_err(unwritten);
        match ran.unwrap_or_else(|_| broken()).and_then(encode) {
            Ok(()) => {
                message = u32::try_from(time.as_micros()).unwrap_or(u32::MAX).to_le_bytes().to_vec();
                answer = Outgoing { table: &message, rows, row_bytes: &self.rows, ..answer };
            }
            Err(StageError::Plan { problem }) => {
                message = Writer::default().text(&problem).0;
                answer = Outgoing { kind: Kind::Refused, table: &message, ..answer };
            }
            Err(error) => return Err(LinkError::Broken(error.to_string())),
        }
        answer.send(&mut *self.heartbeat.link(), &mut self.buffer).map(|_| ())
    }
}
