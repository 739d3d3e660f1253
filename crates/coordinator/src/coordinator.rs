//! A coordinator that serves: embeddings and output matrix of a model here, its stages on workers, or some of them here too.

use std::collections::BTreeSet;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use cascadia_engine::{Engine, EngineError, OpenOptions};
use cascadia_fleet::{
    Arrivals, Auditor, CoordinatorSettings, Digest, Entry, FleetError, FleetEvent, FleetHome, FleetPlan, FleetStatus,
    HERE, Listener, Manifest, ModelWorkers, OwnStage, PushJob, PushRequest, Quarantine, RemoteStage, RowFormat, Shard,
    StageLimits, StageStatus, Timeouts, Verb, WorkerRegistry, recheck_exported, remote_targets,
};
use cascadia_model::{LoadOptions, Stage};
use cascadia_weights::ModelFiles;
use serde_json::Value;

use crate::admission::Admissions;
use crate::planned_model::{CONNECTING, PlannedModel, PreparedModel, SENDING};
use crate::served_stage::ServedStage;
use crate::status_feed::StatusFeed;
use crate::waiting::Nodes;
use crate::{CoordinatorError, Machines};

/// How often workers are asked for a heartbeat.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);
/// How often it is checked whether every stage has a worker.
const POLL: Duration = Duration::from_millis(50);
/// The version that coordinator and workers must share.
const PROGRAM: &str = env!("CARGO_PKG_VERSION");

/// Receives how the fleet is, as one JSON object, every second.
pub type StatusSink = Box<dyn Fn(Value) + Send>;

/// How a coordinator treats its workers.
#[derive(Clone, Copy, Debug)]
pub struct CoordinatorOptions {
    /// How long to wait for them.
    pub timeouts: Timeouts,
    /// How hidden states are sent to them.
    pub wire: RowFormat,
    /// For how long one that was lost too often is not used; zero uses it again at once.
    pub quarantine: Duration,
    /// Whether standby workers only wait, and do not compute in lockstep.
    pub no_shadow: bool,
    /// Whether nothing is computed again here of stages without a standby.
    pub no_recheck: bool,
}

impl Default for CoordinatorOptions {
    fn default() -> CoordinatorOptions {
        CoordinatorOptions {
            timeouts: Timeouts::default(),
            wire: RowFormat::F32,
            quarantine: Duration::from_secs(300),
            no_shadow: false,
            no_recheck: false,
        }
    }
}

/// The model that a coordinator serves first.
pub enum FirstModel {
    /// One that was exported into a folder; any member that holds a shard of it may take part.
    Exported(Deployment),
    /// The one that was pushed last.
    Pushed {
        /// The machines that may take part.
        machines: Machines,
        /// Stages that run in this process, besides those that were kept here by the push.
        own_stages: Vec<u32>,
    },
    /// One that is planned over the machines that connect, exported and sent to them.
    Planned(PlannedModel),
}

/// An export, and which part of it runs in this process.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// The folder of the export.
    pub folder: PathBuf,
    /// The stages that run in this process.
    pub own_stages: Vec<u32>,
    /// What is expected of all stages, where the model was planned.
    pub plan: Option<FleetPlan>,
}

/// A model whose stages have their workers.
pub struct OpenedModel {
    /// What people call it.
    pub name: String,
    /// Its digest.
    pub digest: Digest,
    /// The engine that runs it.
    pub engine: Engine,
}

/// A coordinator at its port, and the models whose stages its workers run.
pub struct Coordinator {
    home: FleetHome,
    registry: Arc<WorkerRegistry>,
    /// The machines that may take part; all of the fleet if none are named.
    nodes: Nodes,
    /// The machines that were connected when the model was planned.
    planned_over: Mutex<BTreeSet<String>>,
    /// Models that are served, the newest last; the others have requests to finish.
    running: Arc<Mutex<Vec<RunningModel>>>,
    timeouts: Timeouts,
    wire: RowFormat,
    quarantine: Arc<Quarantine>,
    no_shadow: bool,
    no_recheck: bool,
    auditor: Arc<Auditor>,
    /// Connections, until workers are admitted.
    arrivals: Mutex<Option<Arrivals>>,
    /// Lets other processes know that a server runs.
    _serving: File,
}

/// A model that workers compute.
#[derive(Clone)]
struct RunningModel {
    workers: Arc<ModelWorkers>,
    stages: Vec<ServedStage>,
    plan: Option<FleetPlan>,
}

impl Coordinator {
    /// Takes the coordinator's port. Workers are admitted as soon as a model is opened or sent to them.
    pub fn start(home: FleetHome, options: CoordinatorOptions) -> Result<Coordinator, CoordinatorError> {
        let settings = home.coordinator()?;
        let serving = PushRequest::accept(&home)?;
        let arrivals = home.arrivals(&settings)?;
        Coordinator::new(home, options, (serving, arrivals))
    }

    /// The same with a socket that listens already.
    pub fn with_listener(
        home: FleetHome,
        options: CoordinatorOptions,
        listener: Listener,
    ) -> Result<Coordinator, CoordinatorError> {
        let settings = home.coordinator()?;
        let serving = PushRequest::accept(&home)?;
        let (_, arrivals) = home.receive(listener, &settings)?;
        Coordinator::new(home, options, (serving, arrivals))
    }

    fn new(
        home: FleetHome,
        options: CoordinatorOptions,
        (serving, arrivals): (File, Arrivals),
    ) -> Result<Coordinator, CoordinatorError> {
        let auditor = home.auditor()?;
        let CoordinatorOptions { timeouts, wire, quarantine, no_shadow, no_recheck } = options;
        Ok(Coordinator {
            home,
            registry: Arc::default(),
            nodes: Arc::default(),
            planned_over: Mutex::default(),
            running: Arc::default(),
            timeouts,
            wire,
            quarantine: Arc::new(Quarantine::lasting(quarantine)),
            no_shadow,
            no_recheck,
            auditor,
            arrivals: Mutex::new(Some(arrivals)),
            _serving: serving,
        })
    }

    /// Opens the first model once each of its stages has a worker. From then on `status` hears how the fleet is.
    pub fn open_first(
        &self,
        first: &FirstModel,
        options: &OpenOptions,
        status: StatusSink,
    ) -> Result<OpenedModel, CoordinatorError> {
        let resolved = first.resolve(&self.home.coordinator()?)?;
        let nodes = self.allowed(first)?;
        *lock(&self.nodes) = nodes;
        let model = match resolved {
            Resolved::Planned(model) => model,
            Resolved::Exported(deployment) => {
                return self.open(&deployment, options, |workers| {
                    self.admit();
                    self.beat(status);
                    self.wait_for_all(workers, &deployment.own_stages);
                    Ok(())
                });
            }
        };
        self.admit();
        self.beat(status);
        let PreparedModel { deployment, targets, .. } = model.prepare(self, &options.pool, CONNECTING)?;
        let opened = self.open(&deployment, options, |workers| {
            let targets = remote_targets(&targets, workers.manifest())?;
            let say = |note: &str| self.home.notify(FleetEvent::Push { note: note.to_owned() });
            self.send(&PushJob { folder: &deployment.folder, targets: &targets, patience: SENDING }, &say)?;
            self.wait_for_all(workers, &deployment.own_stages);
            Ok(())
        })?;
        self.remember(&deployment)?;
        Ok(opened)
    }

    /// The machines that may take part; all of the fleet if none are named.
    fn allowed(&self, first: &FirstModel) -> Result<Option<Vec<String>>, CoordinatorError> {
        match first {
            FirstModel::Exported(_) | FirstModel::Pushed { machines: Machines::All, .. } => Ok(None),
            FirstModel::Pushed { machines: Machines::Named(names), .. } => {
                let nodes: Vec<String> = names.iter().filter(|node| *node != HERE).cloned().collect();
                check_nodes(&self.home, &nodes)?;
                Ok(Some(nodes))
            }
            FirstModel::Planned(model) => {
                let (members, _) = model.machines.members(&self.home)?;
                Ok((model.machines != Machines::All).then_some(members))
            }
        }
    }

    /// What the coordinator keeps on disk.
    pub fn home(&self) -> &FleetHome {
        &self.home
    }

    /// The workers that are connected.
    pub fn registry(&self) -> &WorkerRegistry {
        &self.registry
    }

    /// Workers that were lost too often.
    pub fn quarantine(&self) -> &Quarantine {
        &self.quarantine
    }

    /// How hidden states are sent to workers.
    pub fn wire(&self) -> RowFormat {
        self.wire
    }

    /// Sends workers their shards. Who gets one may take part.
    pub fn send(&self, push: &PushJob<'_>, say: &(dyn Fn(&str) + Sync)) -> Result<(), CoordinatorError> {
        self.admit();
        push.targets.iter().for_each(|(node, _)| self.allow(node));
        Ok(push.send(&self.registry, &self.home, say)?)
    }

    /// Lets the next server begin with this.
    pub fn remember(&self, Deployment { folder, own_stages, .. }: &Deployment) -> Result<(), CoordinatorError> {
        let settings = self.home.coordinator()?;
        let (pushed, own_stages) = (Some(folder.clone()), own_stages.clone());
        Ok(self.home.set_coordinator(&CoordinatorSettings { pushed, own_stages, ..settings })?)
    }

    /// Waits until every stage that is not run here has a worker. One that lacks its shard can be sent it meanwhile.
    fn wait_for_all(&self, workers: &ModelWorkers, own: &[u32]) {
        let mut told = Vec::new();
        loop {
            let stages = workers.stages().iter().enumerate();
            let empty = stages.filter(|(stage, workers)| !own.contains(&(*stage as u32)) && workers.count() == 0);
            let missing: Vec<usize> = empty.map(|(stage, _)| stage).collect();
            if missing.is_empty() {
                return;
            }
            if told != missing {
                let (stages, holdings) = (missing.clone(), self.registry.holdings());
                self.home.notify(FleetEvent::WaitingForWorkers { stages, holdings });
                told = missing;
            }
            if let Some(request) = PushRequest::take(&self.home) {
                self.push_while_waiting(workers.manifest(), &request);
            }
            self.registry.clock().sleep(POLL);
        }
    }

    /// Sends workers their shards of a model that is served as soon as each of its stages has one.
    fn push_while_waiting(&self, awaited: &Manifest, request: &PushRequest) {
        self.reporting(request, |say| {
            let manifest = Manifest::read(&request.folder)?;
            if manifest.model != awaited.model {
                let name = &awaited.name;
                let problem = format!("the server waits for machines with {name}; end it, push, and start it again");
                return Err(CoordinatorError::Push { problem });
            }
            let targets = remote_targets(&request.targets, &manifest)?;
            let patience = Duration::from_secs(request.wait_seconds);
            self.send(&PushJob { folder: &request.folder, targets: &targets, patience }, say)
        });
    }

    /// Does a push that another process asked for, and reports there how it goes and how it ends. Nothing if nothing
    /// can be reported, in which case nothing is done either.
    pub fn reporting<T, E: std::fmt::Display>(
        &self,
        request: &PushRequest,
        push: impl FnOnce(&(dyn Fn(&str) + Sync)) -> Result<T, E>,
    ) -> Option<Result<T, E>> {
        let report = Mutex::new(request.report(&self.home)?);
        let say = |note: &str| {
            self.home.notify(FleetEvent::Push { note: note.to_owned() });
            lock(&report).add(note);
        };
        let pushed = push(&say);
        let outcome = pushed.as_ref().map(|_| ()).map_err(ToString::to_string);
        report.into_inner().unwrap_or_else(PoisonError::into_inner).end(outcome);
        Some(pushed)
    }

    /// Admits workers for as long as the process runs, each on a thread of its own because it takes its time to load.
    fn admit(&self) {
        let Some(arrivals) = lock(&self.arrivals).take() else { return };
        let admissions = Arc::new(Admissions::new(&self.home, &self.registry, Arc::clone(&self.nodes)));
        thread::spawn(move || {
            for arrival in arrivals {
                let admissions = Arc::clone(&admissions);
                thread::spawn(move || admissions.admit(arrival));
            }
        });
    }

    /// Opens a model whose stages run elsewhere, once `fill` has seen to it that each of them has a worker.
    pub fn open(
        &self,
        deployment: &Deployment,
        options: &OpenOptions,
        fill: impl FnOnce(&Arc<ModelWorkers>) -> Result<(), CoordinatorError>,
    ) -> Result<OpenedModel, CoordinatorError> {
        let Deployment { folder, own_stages, plan } = deployment;
        let manifest = Manifest::read(folder)?;
        check_stages(own_stages, &manifest)?;
        let ends = folder.join(&manifest.token_io.file);
        if Digest::of_file(&ends)? != (manifest.token_io.digest, manifest.token_io.bytes) {
            return Err(CoordinatorError::Changed { path: ends });
        }
        let nodes = lock(&self.nodes).clone().unwrap_or_default();
        self.auditor.record(Entry { digest: Some(manifest.model), nodes, ..Entry::admin(Verb::ServeStart) })?;
        let files = Arc::new(ModelFiles::open(&ends)?);
        let (name, digest) = (manifest.name.clone(), manifest.model);
        let engine = Engine::with_stages::<CoordinatorError>(files, options, |_, options| {
            let limits = StageLimits { model: options.limits.clone(), wire: self.wire };
            let workers = ModelWorkers::new(manifest, limits, PROGRAM).for_members(&self.home.members());
            let workers = Arc::new(workers.audited(&self.auditor).with_quarantine(&self.quarantine));
            let stages = self.load_stages(&workers, (folder, own_stages), options)?;
            self.registry.open(&workers);
            if let Err(error) = fill(&workers) {
                self.registry.close(&workers);
                return Err(error);
            }
            lock(&self.running).push(RunningModel { workers, stages: stages.clone(), plan: plan.clone() });
            Ok(stages.into_iter().map(|stage| Box::new(stage) as Box<dyn Stage>).collect())
        })?;
        Ok(OpenedModel { name, digest, engine })
    }

    /// The stages of a model, those that run here loaded.
    fn load_stages(
        &self,
        workers: &Arc<ModelWorkers>,
        (folder, own_stages): (&Path, &[u32]),
        options: &LoadOptions,
    ) -> Result<Vec<ServedStage>, FleetError> {
        let memory = options.memory.map(|memory| memory.saturating_sub(workers.manifest().token_io.bytes));
        let options = LoadOptions { memory, ..options.clone() };
        let stage = |(stage, shard): (usize, &Shard)| match own_stages.contains(&(stage as u32)) {
            true => Ok(ServedStage::Here(Arc::new(OwnStage::open(folder, shard, &options)?))),
            false => {
                let (seed, remote) =
                    (RandomState::new().hash_one(stage), RemoteStage::new(workers, stage, self.timeouts));
                let remote = if self.no_shadow { remote.without_standby() } else { remote };
                // What is computed again would take memory that was not planned for it.
                let rechecks = !self.no_recheck && options.memory.is_none();
                let open = || recheck_exported(folder, shard, &options);
                let remote = if rechecks { remote.with_recheck(&options.limits, open(), seed) } else { remote };
                Ok(ServedStage::Remote(Arc::new(remote)))
            }
        };
        workers.manifest().stages.iter().enumerate().map(stage).collect()
    }

    /// The workers of the model that was opened last.
    pub fn served(&self) -> Option<Arc<ModelWorkers>> {
        lock(&self.running).last().map(|running| Arc::clone(&running.workers))
    }

    /// Its stages: which worker computes each, which are on standby, what it cost.
    pub fn stages(&self) -> Vec<StageStatus> {
        let running = lock(&self.running).last().cloned();
        running.iter().flat_map(|running| &running.stages).map(ServedStage::status).collect()
    }

    /// Whether a machine computes a stage of that model, or is on standby for it.
    pub fn has(&self, node: &str, stage: usize) -> bool {
        let running = lock(&self.running);
        let status = running.last().and_then(|running| running.stages.get(stage)).map(ServedStage::status);
        status.is_some_and(|status| status.node.iter().chain(&status.spares).any(|name| name == node))
    }

    /// Its stages without a worker, those in quarantine not counted, if it was planned.
    pub fn missing(&self) -> Vec<usize> {
        let planned = lock(&self.running).last().filter(|running| running.plan.is_some()).cloned();
        let Some(RunningModel { stages, .. }) = planned else { return Vec::new() };
        let held_back = self.quarantine.held_back(self.registry.clock().now());
        (0..stages.len()).filter(|stage| stages[*stage].status().lacks_machine(&held_back)).collect()
    }

    /// What is expected of it, if it was planned.
    pub fn plan(&self) -> Option<FleetPlan> {
        lock(&self.running).last()?.plan.clone()
    }

    /// Machines that may take part and are connected, and were not when it was planned.
    pub fn newcomers(&self) -> Vec<String> {
        let (nodes, planned_over) = (lock(&self.nodes).clone(), lock(&self.planned_over).clone());
        let may = |node: &String| nodes.as_ref().is_none_or(|nodes| nodes.contains(node));
        self.registry.connected().into_iter().filter(|node| may(node) && !planned_over.contains(node)).collect()
    }

    /// Remembers over which machines a model was planned.
    pub(crate) fn planned_over<'a>(&self, nodes: impl Iterator<Item = &'a String>) {
        lock(&self.planned_over).extend(nodes.cloned());
    }

    /// Releases its workers, so that they have room for another model; requests are refused from now on.
    pub fn release(&self) {
        let Some(RunningModel { workers, stages, .. }) = lock(&self.running).last().cloned() else { return };
        self.registry.close(&workers);
        workers.close();
        stages.iter().for_each(ServedStage::check);
    }

    /// Releases the workers of a model that was replaced; its engine has to be gone.
    pub fn retire(&self, workers: &Arc<ModelWorkers>) {
        self.registry.close(workers);
        lock(&self.running).retain(|running| !Arc::ptr_eq(&running.workers, workers));
    }

    /// Writes down that the fleet serves no more, after what happened while it did.
    pub fn conclude(home: &FleetHome) -> Result<(), CoordinatorError> {
        Ok(home.auditor()?.conclude(Entry::admin(Verb::ServeStop))?)
    }

    /// Lets a machine take part that was not asked for before.
    fn allow(&self, node: &str) {
        if let Some(nodes) = lock(&self.nodes).as_mut().filter(|nodes| !nodes.iter().any(|name| name == node)) {
            nodes.push(node.to_owned());
        }
    }

    /// Asks all workers for heartbeats for as long as the process runs, and shows how they are.
    fn beat(&self, status: StatusSink) {
        let (registry, running, home) = (Arc::clone(&self.registry), Arc::clone(&self.running), self.home.clone());
        let (quarantine, clock) = (Arc::clone(&self.quarantine), registry.clock().clone());
        let members = home.members();
        let mut feed = StatusFeed::new(status, Arc::clone(&members));
        // On a thread of its own, because a disk may take longer than workers wait for a heartbeat.
        let (show, shown) = sync_channel(1);
        thread::spawn(move || {
            // Where it cannot be written, readers see that it is old; serving continues.
            shown.iter().for_each(|status| drop(home.set_status(&status)));
        });
        thread::spawn(move || {
            loop {
                registry.sweep(HEARTBEAT, |node| members.has(node));
                let all = lock(&running).clone();
                all.iter().flat_map(|running| &running.stages).for_each(ServedStage::check);
                let held_back = quarantine.held_back(clock.now()).into_iter();
                let quarantined = held_back.map(|(node, left)| (node, left.as_secs())).collect();
                let (time, connected) = (clock.unix_seconds(), registry.connected());
                let mut status = FleetStatus { time, connected, quarantined, ..FleetStatus::default() };
                if let Some(running) = all.last() {
                    running.describe(&mut status);
                    feed.update(&status);
                }
                // One too many is left out.
                let _ = show.try_send(status);
                // A model that was replaced ends with the last who holds it.
                drop(all);
                clock.sleep(HEARTBEAT);
            }
        });
    }
}

impl RunningModel {
    /// Says in a status what is served, and how.
    fn describe(&self, status: &mut FleetStatus) {
        let manifest = self.workers.manifest();
        (status.model, status.name) = (Some(manifest.model), manifest.name.clone());
        status.stages = self.stages.iter().map(ServedStage::status).collect();
        (status.sends_tokens, status.plan) = (manifest.numerics.stages_need_tokens, self.plan.clone());
    }
}

/// The first model once it is known what was pushed.
enum Resolved {
    Exported(Deployment),
    Planned(PlannedModel),
}

impl FirstModel {
    fn resolve(&self, settings: &CoordinatorSettings) -> Result<Resolved, CoordinatorError> {
        let (machines, mut own_stages) = match self {
            FirstModel::Exported(deployment) => return Ok(Resolved::Exported(deployment.clone())),
            FirstModel::Planned(model) => return Ok(Resolved::Planned(model.clone())),
            FirstModel::Pushed { machines, own_stages } => (machines, own_stages.clone()),
        };
        let folder = settings.pushed.clone().ok_or(CoordinatorError::NothingPushed)?;
        let is_named = matches!(machines, Machines::Named(names) if names.iter().any(|name| name == HERE));
        if is_named || *machines == Machines::All {
            own_stages.extend_from_slice(&settings.own_stages);
        }
        if is_named && own_stages.is_empty() {
            return Err(CoordinatorError::NoOwnStage { folder });
        }
        Ok(Resolved::Exported(Deployment { folder, own_stages, plan: None }))
    }
}

/// Nothing behind these locks can be left half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error unless these machines belong to the fleet.
fn check_nodes(home: &FleetHome, nodes: &[String]) -> Result<(), CoordinatorError> {
    let names = home.member_names()?;
    match nodes.iter().find(|node| !names.contains(node)) {
        Some(node) => Err(CoordinatorError::Engine(EngineError::Setting {
            name: "--fleet",
            value: format!("{node}, which is neither a folder with a manifest nor one of {}", names.join(", ")),
            allowed: "the folder that `export` wrote, or names of machines that have joined, and `here`",
        })),
        None => Ok(()),
    }
}

/// An error unless the model has these stages.
fn check_stages(own: &[u32], manifest: &Manifest) -> Result<(), CoordinatorError> {
    match own.iter().find(|stage| **stage as usize >= manifest.stages.len()) {
        Some(stage) => Err(CoordinatorError::NoStage { stage: *stage, stages: manifest.stages.len() }),
        None => Ok(()),
    }
}
