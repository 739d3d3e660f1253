//! Where workers arrive: each is checked against the manifest and waits at the dock of its stage.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::audit::{Auditor, Decision, Entry, Verb};
use crate::clock::{Guard, Monitor};
use crate::failover::pace::Pace;
use crate::failover::trust::Trust;
use crate::membership::connection_slots::Places;
use crate::wire::exchange::Sent;
use crate::wire::frame::{Bounds, Frame, Header, Kind, Outgoing, Wait, receive};
use crate::wire::link::{Link, LinkError};
use crate::wire::message::{Hello, MOST_MESSAGE, StageLimits, Writer, reason};
use crate::wire::verbs::Expecting;
use crate::{Clock, Digest, Manifest, Members, Quarantine, Shard};

/// Workers that may wait for one stage; more are told to come back.
const MOST_SPARES: usize = 8;

/// How long a worker may take to say who it is.
const GREETING: Duration = Duration::from_secs(5);
/// How long it may take to load its shard.
const LOADING: Duration = Duration::from_secs(120);
/// A look at whether one that is asked for a sign of life has given it.
const GLANCE: Duration = Duration::from_millis(10);

/// A worker that has loaded its stage.
pub struct WorkerLink {
    /// The way to it.
    pub link: Box<dyn Link>,
    /// What its frames are marked with.
    pub epoch: u32,
    /// What people call the machine.
    pub node: String,
    /// Records of the audit log that it was told of.
    told: u64,
    /// Steps that it was sent.
    pub(crate) sent: Sent,
    /// How long it takes for them.
    pub(crate) pace: Pace,
}

impl WorkerLink {
    /// Waits for so long in all, however many frames come meanwhile.
    pub(crate) fn within(&self, time: Duration) -> Wait {
        Wait::Until { end: self.link.clock().now() + time, silence: time }
    }

    /// Asks for a sign of life, and waits for it. Shows the head of the audit log, if there is a new one.
    pub(crate) fn ping(&mut self, patience: Duration, stage_workers: &StageWorkers) -> Result<(), LinkError> {
        let step = self.sent.step;
        if let Some(head) = stage_workers.rules.auditor.as_ref().and_then(|auditor| auditor.head_after(self.told)) {
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
                stage_workers.heard(&self.node, frame.table());
            }
            if kind == Kind::Pong && epoch == self.epoch && answered == step {
                return Ok(());
            }
        }
    }
}

/// The workers of one stage: the first that came computes, the others are spares.
#[derive(Default)]
pub struct StageWorkers {
    waiting: Monitor<VecDeque<WorkerLink>>,
    /// Others that wait, but are asked for a sign of life just now.
    pub(crate) asked: AtomicUsize,
    closed: AtomicBool,
    rules: AdmissionRules,
    /// Which machines are believed.
    pub(crate) trust: Trust,
}

/// What holds for all docks of a harbour.
#[derive(Clone, Default)]
struct AdmissionRules {
    /// Who may stay; everyone if nobody keeps a list.
    members: Option<Arc<Members>>,
    /// Who writes down what happens, if anyone does.
    auditor: Option<Arc<Auditor>>,
    /// Who was lost too often.
    quarantine: Arc<Quarantine>,
    /// By which clock all that is decided.
    clock: Clock,
}

impl StageWorkers {
    /// Takes a worker that waits, or the next that comes before `deadline`: one that is not in doubt, of those the one
    /// that was lost least often lately, and of those the one that waits longest. One that is held back is taken when
    /// time is up and no other came: a stage that may be lost again is better than none.
    pub fn take(&self, deadline: Instant) -> Option<WorkerLink> {
        let mut waiting = self.waiting();
        while !self.is_closed() {
            let now = self.clock().now();
            let is_over = now >= deadline && self.asked.load(Ordering::Acquire) == 0;
            let ranked = (0..waiting.len()).filter_map(|at| Some((self.rank(&waiting[at].node)?, at)));
            let best = ranked.min().map(|(_, at)| at);
            let chosen = best.or_else(|| is_over.then_some(0));
            if let Some(worker_link) = chosen.and_then(|at| waiting.remove(at)) {
                return Some(worker_link);
            }
            if is_over {
                return None;
            }
            waiting = self.waiting.wait(waiting, Some(deadline.max(now + GLANCE)));
        }
        None
    }

    /// Takes a worker that waits and can compute along with another machine; those in doubt first, so that it shows who
    /// of them is wrong.
    pub(crate) fn take_beside(&self, node: &str) -> Option<WorkerLink> {
        let mut waiting = self.waiting();
        let others = (0..waiting.len()).filter(|&at| waiting[at].node != node);
        let ranked = others.filter_map(|at| Some((self.rank(&waiting[at].node)?, at)));
        let (_, best) = ranked.min_by_key(|((is_doubted, losses), at)| (!is_doubted, *losses, *at))?;
        waiting.remove(best)
    }

    /// Whether one waits that is not in doubt, and not held back.
    pub(crate) fn has_believed(&self) -> bool {
        self.waiting().iter().any(|worker_link| self.rank(&worker_link.node).is_some_and(|(is_doubted, _)| !is_doubted))
    }

    /// Whether one waits that is in doubt.
    pub(crate) fn has_doubted(&self) -> bool {
        self.waiting().iter().any(|worker_link| self.doubts(&worker_link.node))
    }

    /// The less, the better to compute with: whether a machine is in doubt, and how often it was lost lately. Nothing
    /// while it is held back.
    fn rank(&self, node: &str) -> Option<(bool, usize)> {
        let losses = self.rules.quarantine.losses(node, self.clock().now())?;
        Some((self.doubts(node), losses))
    }

    /// Lets everyone go who waits, and nobody in any more; who computes goes when it is next looked after.
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.waiting().clear();
        self.waiting.notify();
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Remembers that a machine was lost: others come before it for a while, and it is held back if that was once too
    /// often.
    pub(crate) fn remember_loss(&self, node: &str) {
        if self.is_closed() {
            return;
        }
        if let Some(time) = self.rules.quarantine.lost(node, self.clock().now()) {
            self.note(Verb::Quarantine, node, format!("lost too often, and held back for {} s", time.as_secs()));
        }
    }

    /// Lets a worker wait here; `false` when enough do, or nobody may. One place for each machine: a new connection
    /// replaces the old.
    pub fn put(&self, worker_link: WorkerLink) -> bool {
        let mut waiting = self.waiting();
        waiting.retain(|other| other.node != worker_link.node);
        if waiting.len() >= MOST_SPARES || self.is_closed() {
            return false;
        }
        waiting.push_back(worker_link);
        self.waiting.notify();
        true
    }

    /// Whether a machine belongs to the fleet, and here.
    pub(crate) fn belongs(&self, node: &str) -> bool {
        !self.is_closed() && self.members().is_none_or(|members| members.has(node))
    }

    /// The clock by which machines are waited for.
    pub(crate) fn clock(&self) -> &Clock {
        self.waiting.clock()
    }

    /// The list of those that do.
    pub(crate) fn members(&self) -> Option<&Members> {
        self.rules.members.as_deref()
    }

    /// Takes what a worker says to a head of the audit log.
    pub(crate) fn heard(&self, node: &str, countersignature: &[u8]) {
        if let Some((auditor, members)) = self.rules.auditor.as_ref().zip(self.rules.members.as_ref()) {
            auditor.heard(node, members, countersignature);
        }
    }

    /// Writes down what happened with a machine of this dock.
    pub(crate) fn note(&self, verb: Verb, node: &str, note: String) {
        if let Some(auditor) = &self.rules.auditor {
            auditor.note(Entry { note, ..Entry::new(node, verb, Decision::Noted) });
        }
    }

    /// Workers that wait.
    pub fn count(&self) -> usize {
        self.waiting().len()
    }

    /// Their names.
    pub fn names(&self) -> Vec<String> {
        self.waiting().iter().map(|worker_link| worker_link.node.clone()).collect()
    }

    /// The names of those that were slow when they computed last.
    pub(crate) fn slow(&self) -> Vec<String> {
        self.waiting()
            .iter()
            .filter(|worker_link| worker_link.pace.is_slow())
            .map(|worker_link| worker_link.node.clone())
            .collect()
    }

    /// The names of those that would take over.
    pub fn spares(&self) -> Vec<String> {
        let (mut names, now) = (self.names(), self.clock().now());
        names.retain(|node| self.rules.quarantine.losses(node, now).is_some());
        names
    }

    pub(crate) fn waiting(&self) -> Guard<'_, VecDeque<WorkerLink>> {
        self.waiting.lock()
    }
}

/// The stages of a model and who may run them.
pub struct ModelWorkers {
    manifest: Manifest,
    limits: StageLimits,
    program: String,
    stages_workers: Vec<Arc<StageWorkers>>,
    epochs: AtomicU32,
    /// Machines that are being let in.
    arriving: Places,
}

impl ModelWorkers {
    /// Docks for the stages of a model that is run within `limits` by workers of this version of the program.
    pub fn new(manifest: Manifest, limits: StageLimits, program: &str) -> ModelWorkers {
        let stages_workers = manifest.stages.iter().map(|_| Arc::default()).collect();
        ModelWorkers {
            manifest,
            limits,
            program: program.to_owned(),
            stages_workers,
            epochs: AtomicU32::new(1),
            arriving: Places::default(),
        }
    }

    /// The same, open only to machines that are and stay members.
    pub fn for_members(self, members: &Arc<Members>) -> ModelWorkers {
        self.ruled(|rules| rules.members = Some(Arc::clone(members)))
    }

    /// The same with an audit log, in which workers come and go, and which they countersign.
    pub fn audited(self, auditor: &Arc<Auditor>) -> ModelWorkers {
        self.ruled(|rules| rules.auditor = Some(Arc::clone(auditor)))
    }

    /// The same with machines held back that are lost too often, here or elsewhere.
    pub fn wary(self, quarantine: &Arc<Quarantine>) -> ModelWorkers {
        self.ruled(|rules| rules.quarantine = Arc::clone(quarantine))
    }

    /// The same by another clock than the system's.
    pub fn on_clock(self, clock: &Clock) -> ModelWorkers {
        self.ruled(|rules| rules.clock = clock.clone())
    }

    /// The same with other rules, before anyone has docked.
    fn ruled(self, change: impl Fn(&mut AdmissionRules)) -> ModelWorkers {
        let stage_workers = |stage_workers: &Arc<StageWorkers>| {
            let mut rules = stage_workers.rules.clone();
            change(&mut rules);
            Arc::new(StageWorkers {
                waiting: Monitor::new(&rules.clock, VecDeque::new()),
                rules,
                ..StageWorkers::default()
            })
        };
        ModelWorkers { stages_workers: self.stages_workers.iter().map(stage_workers).collect(), ..self }
    }

    /// The model.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What stages are loaded for.
    pub fn limits(&self) -> StageLimits {
        self.limits
    }

    /// The docks, one for each stage.
    pub fn stages_workers(&self) -> &[Arc<StageWorkers>] {
        &self.stages_workers
    }

    /// Lets all machines go, so that they have room for another model.
    pub fn close(&self) {
        self.stages_workers.iter().for_each(|stage_workers| stage_workers.close());
    }

    /// Whether they were let go.
    pub fn is_closed(&self) -> bool {
        self.stages_workers.iter().any(|stage_workers| stage_workers.is_closed())
    }

    /// Talks to a worker that has connected: it docks at its stage, or hears why it cannot. Gives the stage.
    pub fn admit(&self, mut link: Box<dyn Link>, node: &str) -> Result<usize, LinkError> {
        let Some(_place) = self.arriving.take() else {
            return Err(LinkError::Broken("too many machines come at once".to_owned()));
        };
        let hello = hear_hello(&mut *link, &mut Frame::default())?;
        self.stage_workers(link, &hello, node)
    }

    /// The same for a worker that has said what it holds.
    pub(crate) fn stage_workers(&self, mut link: Box<dyn Link>, hello: &Hello, node: &str) -> Result<usize, LinkError> {
        let (mut frame, mut buffer) = (Frame::default(), Vec::new());
        let stage = match self.check_program(&hello.program, node).and_then(|()| self.stage_of(hello, node)) {
            Ok(stage) => stage,
            Err(problem) => return Err(refuse(&mut *link, problem)),
        };
        let epoch = self.epochs.fetch_add(1, Ordering::Relaxed);
        let limits = self.limits.bytes();
        let welcome = Outgoing { epoch, ..Outgoing::message(Kind::Welcome, &limits) };
        welcome.send(&mut *link, &mut buffer)?;
        receive(&mut *link, &Bounds::table(Expecting::Load, MOST_MESSAGE), &mut frame, Wait::For(LOADING))?;
        match frame.header.kind {
            Kind::Ready if frame.header.epoch == epoch => {}
            Kind::Refused => return Err(LinkError::Broken(format!("{node} says: {}", reason(frame.table())?))),
            kind => return Err(LinkError::Broken(format!("{node} answered {kind:?} when it should load its shard"))),
        }
        let sent = Sent::new(self.manifest.numerics.stages_need_tokens);
        let worker_link = WorkerLink { link, epoch, node: node.to_owned(), told: 0, sent, pace: Pace::default() };
        match self.stages_workers[stage].put(worker_link) {
            true => Ok(stage),
            false => Err(LinkError::Broken(format!("enough machines wait for stage {stage}"))),
        }
    }

    /// An error if a worker's program is another version than this one.
    pub(crate) fn check_program(&self, theirs: &str, node: &str) -> Result<(), String> {
        let own = &self.program;
        match theirs == own {
            true => Ok(()),
            false => Err(format!("{node} runs version {theirs}, the coordinator runs {own}; install the same on both")),
        }
    }

    /// The stage whose shard this is.
    pub(crate) fn stage_with(&self, shard: Digest) -> Option<usize> {
        self.manifest.stages.iter().position(|stage| stage.digest == shard)
    }

    /// The stage that a worker can run, or what it has that does not fit.
    fn stage_of(&self, hello: &Hello, node: &str) -> Result<usize, String> {
        let Some(shard) = hello.shard else {
            return Err(format!("{node} holds no shard; send it one with `cascadia fleet push`"));
        };
        self.stage_with(shard).ok_or_else(|| {
            let stage = |(number, stage): (usize, &Shard)| format!("{} (stage {number})", stage.digest.short());
            let wanted: Vec<String> = self.manifest.stages.iter().enumerate().map(stage).collect();
            let (holds, model, wanted) = (shard.short(), &self.manifest.name, wanted.join(", "));
            format!("{node} holds shard {holds}, which is none of {model}: {wanted}; push it again")
        })
    }
}

/// Tells the other end why it is of no use; gives the error that this is.
pub(crate) fn refuse(link: &mut dyn Link, problem: String) -> LinkError {
    let message = Writer::default().text(&problem).0;
    match Outgoing::message(Kind::Refused, &message).send(link, &mut Vec::new()) {
        Ok(_) => LinkError::Broken(problem),
        Err(error) => error,
    }
}

/// What a worker that has connected says of itself. Nothing is sent before it has.
pub(crate) fn hear_hello(link: &mut dyn Link, frame: &mut Frame) -> Result<Hello, LinkError> {
    receive(link, &Bounds::table(Expecting::Greeting, MOST_MESSAGE), frame, Wait::For(GREETING))?;
    Hello::parse(frame.table())
}
