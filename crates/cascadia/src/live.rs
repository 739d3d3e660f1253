//! A fleet behind a server: another model may take the place of the one that is served, because it was pushed or
//! because it was planned again.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cascadia_coordinator::{Coordinator, CoordinatorError, Deployment, FirstModel, PlannedModel, PreparedModel};
use cascadia_engine::service::Service;
use cascadia_fleet::{
    FleetEvent, FleetPlan, HERE, Manifest, ModelWorkers, POLL, PushJob, PushRequest, ReplanTimer, remote_targets,
};
use cascadia_server::{FleetBoard, ModelSlot, Replaced};

use crate::coordinate::{LedModel, open_led};
use crate::open::Preparation;
use crate::serve::served;
use crate::{Error, Fleet, ModelBuilder, Server, ServerBuilder};

/// How long workers that have their shards may take to load them.
const LOADING: Duration = Duration::from_secs(120);
/// How long to wait for more machines after one has come that no plan counts on yet.
const GATHERING: Duration = Duration::from_secs(5);
/// How long machines may take to connect and be measured when it is planned again.
const CONNECTING: Duration = Duration::from_secs(3);

/// What a server on a fleet begins with, and how its models are opened.
pub struct FleetModel {
    /// The first model.
    pub first: FirstModel,
    /// How it is opened, and those that take its place.
    pub builder: ModelBuilder,
    /// How long a stage of a planned model may be without a worker until the model is planned again; never if not given.
    pub replan_after: Option<Duration>,
}

impl ServerBuilder {
    /// Opens a model on a fleet and listens. While the server runs, `fleet push` of the program replaces the model.
    pub fn serve_fleet(&self, fleet: Fleet, model: FleetModel) -> Result<Server, Error> {
        let FleetModel { first, builder, replan_after } = model;
        let board = FleetBoard::default();
        let shown = board.clone();
        let model = fleet.open_first(&first, &builder, Box::new(move |status| shown.show(status)))?;
        let mut server = self.listen(model, Some(board))?;
        let (slot, service) = (server.http.model(), Arc::clone(&server.service));
        let home = fleet.home().clone();
        let planned = match first {
            FirstModel::Planned(planned) => Some(planned),
            FirstModel::Exported(_) | FirstModel::Pushed { .. } => None,
        };
        let adapters = (self.adapters.clone(), self.pinned.clone());
        let live = LiveReplacement { coordinator: fleet.coordinator, slot, builder, planned, adapters, service };
        live.watch(ReplanTimer::new(replan_after));
        server.conclude = Box::new(move || Ok(Coordinator::conclude(&home)?));
        Ok(server)
    }
}

/// A server whose model can be replaced.
struct LiveReplacement {
    coordinator: Coordinator,
    slot: ModelSlot,
    builder: ModelBuilder,
    /// The model, if it is planned over the fleet.
    planned: Option<PlannedModel>,
    /// The folder of the adapters, which must fit every model that is served, and those that stay in memory.
    adapters: (Option<PathBuf>, Vec<String>),
    /// The service of the model that is served; nothing once the server has ended.
    service: Arc<Mutex<Option<Service>>>,
}

/// A model that was replaced: its requests end on it.
struct ReplacedModel {
    workers: Arc<ModelWorkers>,
    frontend: Replaced,
    service: Option<Service>,
}

impl LiveReplacement {
    /// Does what is pushed for as long as the process runs, and plans again when a stage has lost its last worker.
    fn watch(self, mut timer: ReplanTimer) {
        let mut newcomers = ReplanTimer::new(Some(GATHERING));
        thread::spawn(move || {
            loop {
                thread::sleep(POLL);
                if let Some(request) = PushRequest::take(self.coordinator.home()) {
                    self.push_as_requested(&request);
                }
                let missing = self.coordinator.missing();
                if timer.is_due(!missing.is_empty(), Instant::now()) {
                    self.replan(missing);
                }
                let came = self.came();
                if newcomers.is_due(!came.is_empty(), Instant::now()) {
                    self.extend(came);
                }
            }
        });
    }

    /// Machines that a plan does not count on yet; none if no model is planned, or a stage lacks one anyway.
    fn came(&self) -> Vec<String> {
        let is_planned = self.planned.is_some() && self.coordinator.plan().is_some();
        if is_planned && self.coordinator.missing().is_empty() { self.coordinator.newcomers() } else { Vec::new() }
    }

    /// Plans again because machines have come, and says how that ended.
    fn extend(&self, nodes: Vec<String>) {
        self.notify(FleetEvent::Extending { nodes });
        match self.try_extend() {
            Ok(Some(replaced)) => self.retire(replaced),
            Ok(None) => self.notify(FleetEvent::NotFaster),
            Err(error) => self.notify(FleetEvent::ReplanFailed { problem: error.to_string() }),
        }
    }

    fn try_extend(&self) -> Result<Option<ReplacedModel>, Error> {
        let Some(planned) = &self.planned else { return Ok(None) };
        let prepared = planned.prepare_faster(&self.coordinator, &self.builder.threads.pool(), CONNECTING)?;
        let Some(PreparedModel { deployment, targets, .. }) = prepared else { return Ok(None) };
        let request = PushRequest::new(deployment.folder, targets, PreparedModel::PATIENCE.as_secs());
        self.push(&request, deployment.plan, &|note| self.notify(FleetEvent::Push { note: note.to_owned() }))
    }

    /// Pushes, and reports how it ended before the old model has.
    fn push_as_requested(&self, request: &PushRequest) {
        match self.coordinator.reporting(request, |say| self.push(request, None, say)) {
            Some(Ok(Some(replaced))) => self.retire(replaced),
            Some(Err(error)) => self.notify(FleetEvent::PushFailed { problem: error.to_string() }),
            Some(Ok(None)) | None => {}
        }
    }

    /// Plans again, and says how that ended.
    fn replan(&self, missing: Vec<usize>) {
        self.notify(FleetEvent::Replanning { stages: missing });
        match self.try_replan() {
            Ok(Some(replaced)) => self.retire(replaced),
            Ok(None) => {}
            Err(error) => self.notify(FleetEvent::ReplanFailed { problem: error.to_string() }),
        }
    }

    fn try_replan(&self) -> Result<Option<ReplacedModel>, Error> {
        let Some(planned) = &self.planned else { return Ok(None) };
        // Threads of its own: those of the server may be computing.
        let prepared = planned.prepare(&self.coordinator, &self.builder.threads.pool(), CONNECTING)?;
        if self.coordinator.missing().is_empty() {
            self.notify(FleetEvent::Recovered);
            return Ok(None);
        }
        let PreparedModel { deployment, model, targets } = prepared;
        let served = self.coordinator.served().is_some_and(|workers| workers.manifest().model == model);
        let has_own = || deployment.own_stages.iter().all(|stage| self.coordinator.has(HERE, *stage as usize));
        if !(served && has_own()) {
            // It cannot serve anybody, and machines may not have room for both.
            self.coordinator.release();
        }
        let request = PushRequest::new(deployment.folder, targets, PreparedModel::PATIENCE.as_secs());
        self.push(&request, deployment.plan, &|note| self.notify(FleetEvent::Push { note: note.to_owned() }))
    }

    /// Sends workers their shards; if these are of another model, it is the one that new requests get from now on.
    fn push(
        &self,
        request: &PushRequest,
        plan: Option<FleetPlan>,
        say: &(dyn Fn(&str) + Sync),
    ) -> Result<Option<ReplacedModel>, Error> {
        let manifest = Manifest::read(&request.folder)?;
        let workers = self.coordinator.served().ok_or_else(|| problem("no model is served yet".to_owned()))?;
        if manifest.model == workers.manifest().model && !workers.is_closed() {
            self.add_workers(request, &manifest, say)?;
            return Ok(None);
        }
        let PushRequest { folder, targets, wait_seconds, .. } = request;
        let mut stages = 0..manifest.stages.len();
        if let Some(stage) = stages.find(|stage| !targets.iter().any(|(_, target)| target == stage)) {
            let sentence = "a model takes over when all its stages are there";
            return Err(problem(format!("no machine is named for stage {stage}; {sentence}")));
        }
        let Preparation { options, draft } = self.builder.prepare()?;
        let own_stages = targets.iter().filter(|(node, _)| node == HERE).map(|(_, stage)| *stage as u32).collect();
        let deployment = Deployment { folder: folder.clone(), own_stages, plan };
        let others = remote_targets(targets, &manifest)?;
        let remote: Vec<usize> = targets.iter().filter(|(node, _)| node != HERE).map(|(_, stage)| *stage).collect();
        let opened = self.coordinator.open(&deployment, &options, |workers| {
            let patience = Duration::from_secs(*wait_seconds);
            self.coordinator.send(&PushJob { folder, targets: &others, patience }, say)?;
            Ok(self.coordinator.registry().fill(workers, &remote, Instant::now() + LOADING)?)
        })?;
        let name = opened.name.clone();
        let started = open_led(&self.builder, LedModel { opened, draft }, self.coordinator.wire());
        // On the disk before anyone is told that it is served.
        let adapters = (self.adapters.0.as_deref(), self.adapters.1.as_slice());
        let remembered = started.and_then(|model| served(model, adapters)).and_then(|served| {
            self.coordinator.remember(&deployment)?;
            Ok(served)
        });
        let forget = || self.coordinator.served().iter().for_each(|opened| self.coordinator.retire(opened));
        let (service, model) = remembered.inspect_err(|_| forget())?;
        let frontend = self.slot.replace(model);
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner).replace(service);
        say(&format!("{name} ({}) is served now.", manifest.model.short()));
        Ok(Some(ReplacedModel { workers, frontend, service }))
    }

    /// Gives the model that is served more workers.
    fn add_workers(
        &self,
        PushRequest { folder, targets, wait_seconds, .. }: &PushRequest,
        manifest: &Manifest,
        say: &(dyn Fn(&str) + Sync),
    ) -> Result<(), Error> {
        // A machine that loaded its stage twice would be its own standby.
        let (has, lacks): (Vec<_>, Vec<_>) =
            targets.iter().cloned().partition(|(node, stage)| self.coordinator.has(node, *stage));
        has.iter().for_each(|(node, stage)| say(&format!("{node} has stage {stage} already")));
        if lacks.iter().any(|(node, _)| node == HERE) {
            let sentence = "end the server, then push again";
            return Err(problem(format!("`{HERE}` cannot be added to the model that is served; {sentence}")));
        }
        let targets = remote_targets(&lacks, manifest)?;
        let patience = Duration::from_secs(*wait_seconds);
        Ok(self.coordinator.send(&PushJob { folder, targets: &targets, patience }, say)?)
    }

    /// Lets the requests of a replaced model end, then releases its workers.
    fn retire(&self, replaced: ReplacedModel) {
        while replaced.frontend.is_used() {
            thread::sleep(POLL);
        }
        replaced.service.into_iter().for_each(Service::drain);
        self.coordinator.retire(&replaced.workers);
    }

    fn notify(&self, event: FleetEvent) {
        self.coordinator.home().notify(event);
    }
}

fn problem(problem: String) -> Error {
    CoordinatorError::Push { problem }.into()
}
