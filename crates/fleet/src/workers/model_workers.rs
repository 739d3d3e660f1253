//! The workers of a model: each is checked against the manifest, loads its shard, and joins the workers of its stage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::audit::{Auditor, ServedModel};
use crate::membership::connection_slots::ConnectionSlots;
use crate::wire::frame::{Bounds, Frame, Kind, Outgoing, Wait, receive};
use crate::wire::link::{Link, LinkError};
use crate::wire::message::{Hello, MOST_MESSAGE, StageLimits, reason, refuse};
use crate::wire::verbs::Expecting;
use crate::workers::pending::PendingWorker;
use crate::workers::stage_workers::{AdmissionRules, StageWorkers};
use crate::workers::worker_link::{Connection, WorkerLink};
use crate::{Clock, Digest, Manifest, Members, Quarantine, Shard};

/// How long a worker may take to load its shard.
const LOADING: Duration = Duration::from_secs(120);

/// The stages of a model and who may run them.
pub struct ModelWorkers {
    manifest: Manifest,
    limits: StageLimits,
    program: String,
    stages: Vec<Arc<StageWorkers>>,
    epochs: AtomicU32,
    /// Workers that are being admitted.
    arriving: ConnectionSlots,
}

impl ModelWorkers {
    /// No workers yet for a model that is run within `limits` by workers with this version of the
    /// program.
    pub fn new(manifest: Manifest, limits: StageLimits, program: &str) -> ModelWorkers {
        let stages = manifest.stages.iter().map(|_| Arc::default()).collect();
        ModelWorkers {
            manifest,
            limits,
            program: program.to_owned(),
            stages,
            epochs: AtomicU32::new(1),
            arriving: ConnectionSlots::default(),
        }
    }

    /// The same, open only to machines that are and stay members.
    pub fn for_members(self, members: &Arc<Members>) -> ModelWorkers {
        self.ruled(|rules| rules.members = Some(Arc::clone(members)))
    }

    /// The same with an audit log, in which workers come and go, and which they countersign.
    pub fn audited(self, auditor: &Arc<Auditor>) -> ModelWorkers {
        let served = ServedModel { model: self.manifest.model, since: self.clock().unix_seconds() };
        self.ruled(|rules| (rules.auditor, rules.served) = (Some(Arc::clone(auditor)), Some(served)))
    }

    /// The same with machines held back that are lost too often, here or elsewhere.
    pub fn with_quarantine(self, quarantine: &Arc<Quarantine>) -> ModelWorkers {
        self.ruled(|rules| rules.quarantine = Arc::clone(quarantine))
    }

    /// The same by another clock than the system's.
    pub fn on_clock(self, clock: &Clock) -> ModelWorkers {
        self.ruled(|rules| rules.clock = clock.clone())
    }

    /// The same with other rules, before anyone is admitted.
    fn ruled(self, change: impl Fn(&mut AdmissionRules)) -> ModelWorkers {
        let ruled = |workers: &Arc<StageWorkers>| {
            let mut rules = workers.rules().clone();
            change(&mut rules);
            Arc::new(StageWorkers::new(rules))
        };
        ModelWorkers { stages: self.stages.iter().map(ruled).collect(), ..self }
    }

    /// The clock by which workers are waited for.
    pub fn clock(&self) -> &Clock {
        self.stages.first().map_or(Clock::system(), |workers| workers.clock())
    }

    /// The model.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What stages are loaded for.
    pub fn limits(&self) -> StageLimits {
        self.limits.clone()
    }

    /// The workers of each stage.
    pub fn stages(&self) -> &[Arc<StageWorkers>] {
        &self.stages
    }

    /// Releases all workers, so that they have room for another model.
    pub fn close(&self) {
        self.stages.iter().for_each(|workers| workers.close());
    }

    /// Whether they were released.
    pub fn is_closed(&self) -> bool {
        self.stages.iter().any(|workers| workers.is_closed())
    }

    /// Talks to a worker that has connected: it joins the workers of its stage, or hears why it cannot. Gives the stage.
    pub fn admit(&self, link: Box<dyn Link>, node: &str) -> Result<usize, LinkError> {
        let Some(_slot) = self.arriving.take(node) else {
            return Err(LinkError::Broken("too many machines come at once".to_owned()));
        };
        self.admit_pending(PendingWorker::hear(link, node)?)
    }

    /// The same for a worker that has said what it holds.
    pub(crate) fn admit_pending(&self, pending: PendingWorker) -> Result<usize, LinkError> {
        let PendingWorker { node, hello, mut link } = pending;
        let (mut frame, mut buffer) = (Frame::default(), Vec::new());
        let stage = match self.check_program(&hello.program, &node).and_then(|()| self.stage_of(&hello, &node)) {
            Ok(stage) => stage,
            Err(problem) => return Err(refuse(&mut *link, problem)),
        };
        let epoch = self.epochs.fetch_add(1, Ordering::Relaxed);
        let limits = self.limits.bytes();
        let welcome = Outgoing { epoch, ..Outgoing::message(Kind::Welcome, &limits) };
        welcome.send(&mut *link, &mut buffer)?;
        receive(&mut *link, &Bounds::table(Expecting::Load, MOST_MESSAGE), &mut frame, Wait::For(LOADING))?;
        let numerics = match frame.header.kind {
            Kind::Ready if frame.header.epoch == epoch => reason(frame.table())?,
            Kind::Refused => return Err(LinkError::Broken(format!("{node} says: {}", reason(frame.table())?))),
            kind => return Err(LinkError::Broken(format!("{node} answered {kind:?} when it should load its shard"))),
        };
        let connection = Connection { link, epoch, node, numerics, sandbox: hello.sandbox };
        let ([start, end], needs_tokens) =
            (self.manifest.stages[stage].layers, self.manifest.numerics.stages_need_tokens);
        match self.stages[stage].put(WorkerLink::new(connection, (needs_tokens, start..end))) {
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
