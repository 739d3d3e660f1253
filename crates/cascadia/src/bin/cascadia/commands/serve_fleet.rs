//! `cascadia serve --fleet`: both ends of a model here, its stages on the machines of a fleet, of which this is one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use cascadia_engine::{Engine, EngineError, OpenOptions};
use cascadia_fleet::{
    Arrival, Auditor, Digest, Entry, FleetError, FleetPlan, HERE, MANIFEST_FILE, Manifest, ModelWorkers, OwnStage,
    Quarantine, RemoteStage, RowFormat, Shard, StageLimits, Timeouts, Verb, WorkerRegistry, seconds_now,
};
use cascadia_model::{LoadOptions, Stage};
use cascadia_server::FleetBoard;
use cascadia_weights::ModelFiles;

use super::fleet_board::Lookout;
use super::fleet_push::Shipment;
use super::gate::Gate;
use super::serve_live;
use super::serve_model::{COMING, ModelChoice, Prepared, SENDING};
use super::served::Served;
use crate::fleet_home::{CoordinatorSettings, FleetHome, FleetStatus};
use crate::handover::PushWish;
use crate::output::remark;

/// How often machines are asked for a sign of life.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Which fleet serves, as it was asked for.
pub(crate) struct FleetChoice<'a> {
    /// The folder of an export, `all`, or names of machines.
    pub(crate) fleet: &'a str,
    /// The folder with the fleet's keys.
    pub(crate) home: Option<&'a Path>,
    /// Stages that run in this process, besides those that were pushed here.
    pub(crate) own_stages: &'a [u32],
    /// A model that the machines do not have yet.
    pub(crate) model: Option<ModelChoice<'a>>,
    /// How long to wait for machines.
    pub(crate) patience: Timeouts,
    /// How hidden states are sent to them.
    pub(crate) wire: RowFormat,
    /// For how long a machine that was lost too often is held back; nothing if none is.
    pub(crate) quarantine: Duration,
    /// Whether spares only wait.
    pub(crate) no_shadow: bool,
}

/// A coordinator at its port, and the models for whose stages machines come there.
pub(crate) struct Fleet {
    pub(super) home: FleetHome,
    pub(super) registry: Arc<WorkerRegistry>,
    /// The machines that may take part; all of the fleet if none are named.
    nodes: Arc<Mutex<Option<Vec<String>>>>,
    /// Those that are served, the newest last; the others have requests to finish.
    running: Arc<Mutex<Vec<Running>>>,
    patience: Timeouts,
    wire: RowFormat,
    pub(super) quarantine: Arc<Quarantine>,
    no_shadow: bool,
    pub(super) auditor: Arc<Auditor>,
    /// Where the dashboard looks.
    pub(super) board: FleetBoard,
    /// Tells others that a server runs.
    _serving: File,
}

/// A model that machines compute.
#[derive(Clone)]
struct Running {
    model_workers: Arc<ModelWorkers>,
    stages: Vec<Served>,
    plan: Option<FleetPlan>,
}

/// What a server begins with.
pub(crate) struct Beginning<'a> {
    first: First<'a>,
    arrivals: Receiver<Arrival>,
}

/// The first model of a server.
enum First<'a> {
    /// One that was exported.
    Exported(Cast),
    /// One that is planned and exported when machines have come.
    Planned(ModelChoice<'a>),
}

impl Fleet {
    /// Takes the coordinator's port for the machines that were asked for; none of them computes yet.
    pub(crate) fn start<'a>(choice: &FleetChoice<'a>) -> anyhow::Result<(Fleet, Beginning<'a>)> {
        let home = FleetHome::find(choice.home)?;
        let settings = home.coordinator()?;
        let serving = PushWish::expect(&home)?;
        let (first, nodes) = match choice.model {
            None => Cast::find(choice, &settings).map(|(cast, nodes)| (First::Exported(cast), nodes))?,
            Some(model) => (First::Planned(model), model.nodes(&home)?),
        };
        check_nodes(&home, nodes.as_deref().unwrap_or_default())?;
        let arrivals = home.arrivals(&settings)?;
        let (registry, running) = (Arc::default(), Arc::default());
        let FleetChoice { patience, wire, no_shadow, .. } = *choice;
        let (nodes, quarantine) = (Arc::new(Mutex::new(nodes)), Arc::new(Quarantine::lasting(choice.quarantine)));
        let (auditor, board) = (home.auditor()?, FleetBoard::default());
        let fleet = Fleet {
            home,
            registry,
            nodes,
            running,
            patience,
            wire,
            quarantine,
            no_shadow,
            auditor,
            board,
            _serving: serving,
        };
        Ok((fleet, Beginning { first, arrivals }))
    }

    /// Opens the first model, once a machine for each of its stages has come. Gives its name too.
    pub(crate) fn begin(&self, beginning: Beginning<'_>, options: &OpenOptions) -> anyhow::Result<(String, Engine)> {
        let Beginning { first, arrivals } = beginning;
        let model = match first {
            First::Exported(cast) => {
                return self.open(&cast, options, |model_workers| {
                    self.receive(arrivals);
                    self.beat();
                    self.wait_for_all(model_workers, &cast.own);
                    Ok(())
                });
            }
            First::Planned(model) => model,
        };
        self.receive(arrivals);
        self.beat();
        let Prepared { cast, targets, .. } = model.prepare(self, &options.pool, COMING)?;
        let opened = self.open(&cast, options, |model_workers| {
            let targets = serve_live::elsewhere(&targets, model_workers.manifest())?;
            self.send(&Shipment { folder: &cast.folder, targets: &targets, patience: SENDING }, &remark)?;
            self.wait_for_all(model_workers, &cast.own);
            Ok(())
        })?;
        self.remember(&cast)?;
        Ok(opened)
    }

    /// Sends machines their shards. Who gets one may take part.
    pub(super) fn send(&self, shipment: &Shipment<'_>, say: &(dyn Fn(&str) + Sync)) -> anyhow::Result<()> {
        shipment.targets.iter().for_each(|(node, _)| self.invite(node));
        shipment.send(&self.registry, &self.home.audit_log(), say)
    }

    /// Lets the next server begin with this.
    pub(super) fn remember(&self, Cast { folder, own, .. }: &Cast) -> anyhow::Result<()> {
        let settings = self.home.coordinator()?;
        let (pushed, own_stages) = (Some(folder.clone()), own.clone());
        self.home.set_coordinator(&CoordinatorSettings { pushed, own_stages, ..settings })
    }

    /// Waits until every stage that is not run here has a machine. One that lacks its shard can be sent it meanwhile.
    fn wait_for_all(&self, model_workers: &ModelWorkers, own: &[u32]) {
        let mut said = Vec::new();
        loop {
            let stages_workers =
                model_workers.stages_workers().iter().enumerate().filter(|(stage, _)| !own.contains(&(*stage as u32)));
            let empty = stages_workers.filter(|(_, stage_workers)| stage_workers.count() == 0);
            let missing: Vec<String> = empty.map(|(stage, _)| format!("stage {stage}")).collect();
            if missing.is_empty() {
                return;
            }
            if said != missing {
                remark(&format!("Waiting for a machine for {}; {}.", missing.join(", "), self.registry.holdings()));
                said = missing;
            }
            if let Some(wish) = PushWish::take(&self.home) {
                serve_live::push_to_waiting(self, model_workers.manifest(), &wish);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Lets machines in for as long as the program runs, each on a thread of its own because it takes its time to load.
    fn receive(&self, arrivals: Receiver<Arrival>) {
        let (registry, nodes, auditor) =
            (Arc::clone(&self.registry), Arc::clone(&self.nodes), Arc::clone(&self.auditor));
        let gate = Arc::new(Gate { registry, nodes, auditor, said: Mutex::default() });
        thread::spawn(move || {
            for arrival in arrivals {
                let gate = Arc::clone(&gate);
                thread::spawn(move || gate.welcome(arrival));
            }
        });
    }

    /// Opens a model whose stages run elsewhere, once `fill` has seen to it that a machine for each of them is there.
    pub(crate) fn open(
        &self,
        cast: &Cast,
        options: &OpenOptions,
        fill: impl FnOnce(&Arc<ModelWorkers>) -> anyhow::Result<()>,
    ) -> anyhow::Result<(String, Engine)> {
        let Cast { folder, own, plan } = cast;
        let manifest = Manifest::read(folder)?;
        check_stages(own, &manifest)?;
        let ends = folder.join(&manifest.token_io.file);
        if Digest::of_file(&ends)? != (manifest.token_io.digest, manifest.token_io.bytes) {
            bail!("{} is not what the manifest describes; export the model again", ends.display());
        }
        let nodes = lock(&self.nodes).clone().unwrap_or_default();
        self.auditor.record(Entry { digest: Some(manifest.model), nodes, ..Entry::admin(Verb::ServeStart) })?;
        let files = Arc::new(ModelFiles::open(&ends)?);
        let name = manifest.name.clone();
        let engine = Engine::with_stages::<anyhow::Error>(files, options, |_, options| {
            let limits = StageLimits { model: options.limits, wire: self.wire };
            let model_workers =
                ModelWorkers::new(manifest, limits, env!("CARGO_PKG_VERSION")).for_members(&self.home.members());
            let model_workers = Arc::new(model_workers.audited(&self.auditor).wary(&self.quarantine));
            let memory = options.memory.map(|memory| memory.saturating_sub(model_workers.manifest().token_io.bytes));
            let options = LoadOptions { memory, ..options.clone() };
            let stage = |(stage, shard): (usize, &Shard)| match own.contains(&(stage as u32)) {
                true => Ok(Served::Here(Arc::new(OwnStage::open(folder, shard, &options)?))),
                false => {
                    let stage = RemoteStage::new(&model_workers, stage, self.patience);
                    let stage = if self.no_shadow { stage.without_shadow() } else { stage };
                    Ok(Served::There(Arc::new(stage)))
                }
            };
            let stages: Vec<Served> =
                model_workers.manifest().stages.iter().enumerate().map(stage).collect::<Result<_, FleetError>>()?;
            self.registry.open(&model_workers);
            if let Err(error) = fill(&model_workers) {
                self.registry.close(&model_workers);
                return Err(error);
            }
            lock(&self.running).push(Running { model_workers, stages: stages.clone(), plan: plan.clone() });
            Ok(stages.into_iter().map(|stage| Box::new(stage) as Box<dyn Stage>).collect())
        })?;
        Ok((name, engine))
    }

    /// The model that was opened last.
    pub(crate) fn model(&self) -> Option<Digest> {
        self.served().map(|model_workers| model_workers.manifest().model)
    }

    /// Where its machines are.
    pub(super) fn served(&self) -> Option<Arc<ModelWorkers>> {
        lock(&self.running).last().map(|running| Arc::clone(&running.model_workers))
    }

    /// Whether a machine computes a stage of that model, or waits to.
    pub(crate) fn has(&self, node: &str, stage: usize) -> bool {
        let running = lock(&self.running);
        let status = running.last().and_then(|running| running.stages.get(stage)).map(Served::status);
        status.is_some_and(|status| status.node.iter().chain(&status.spares).any(|name| name == node))
    }

    /// Its stages that nobody computes or waits for but who is held back, if it was planned.
    pub(super) fn missing(&self) -> Vec<usize> {
        let planned = lock(&self.running).last().filter(|running| running.plan.is_some()).cloned();
        let Some(Running { stages, .. }) = planned else { return Vec::new() };
        let held_back = self.quarantine.held_back(Instant::now());
        (0..stages.len()).filter(|stage| stages[*stage].status().lacks_machine(&held_back)).collect()
    }

    /// Lets go of its machines, so that they have room for another; requests are refused from now on.
    pub(super) fn let_go(&self) {
        let Some(Running { model_workers, stages, .. }) = lock(&self.running).last().cloned() else { return };
        self.registry.close(&model_workers);
        model_workers.close();
        stages.iter().for_each(Served::check);
    }

    /// Lets go of the machines of a model that was replaced; its engine has to be gone.
    pub(super) fn retire(&self, model_workers: &Arc<ModelWorkers>) {
        self.registry.close(model_workers);
        lock(&self.running).retain(|running| !Arc::ptr_eq(&running.model_workers, model_workers));
    }

    /// Lets a machine take part that was not asked for before.
    fn invite(&self, node: &str) {
        if let Some(nodes) = lock(&self.nodes).as_mut().filter(|nodes| !nodes.iter().any(|name| name == node)) {
            nodes.push(node.to_owned());
        }
    }

    /// Asks all machines for signs of life for as long as the program runs, and writes down how they are.
    fn beat(&self) {
        let (registry, running, home) = (Arc::clone(&self.registry), Arc::clone(&self.running), self.home.clone());
        let quarantine = Arc::clone(&self.quarantine);
        let members = home.members();
        let mut lookout = Lookout::new(self.board.clone(), Arc::clone(&members));
        // On a thread of its own, because a disk may take longer than machines wait for a sign of life.
        let (show, shown) = sync_channel(1);
        thread::spawn(move || {
            // Where it cannot be written, those who look see that it is old; serving goes on.
            shown.iter().for_each(|status| drop(home.set_status(&status)));
        });
        thread::spawn(move || {
            loop {
                registry.sweep(HEARTBEAT, |node| members.has(node));
                let all = lock(&running).clone();
                all.iter().flat_map(|running| &running.stages).for_each(Served::check);
                if let Some(Running { model_workers, stages, plan }) = all.last() {
                    let (model, plan) = (model_workers.manifest().model, plan.clone());
                    let stages = stages.iter().map(Served::status).collect();
                    let held_back = quarantine.held_back(Instant::now()).into_iter();
                    let quarantined = held_back.map(|(node, left)| (node, left.as_secs())).collect();
                    let status = FleetStatus { time: seconds_now(), model, stages, plan, quarantined };
                    lookout.see(&status);
                    // One too many is left out.
                    let _ = show.try_send(status);
                }
                // One whose place was taken ends with the last who has it.
                drop(all);
                thread::sleep(HEARTBEAT);
            }
        });
    }
}

/// Writes down that the fleet serves no more, after what happened while it did.
pub(crate) fn ended(auditor: &Auditor) -> anyhow::Result<()> {
    Ok(auditor.conclude(Entry::admin(Verb::ServeStop))?)
}

/// Nothing behind these locks can be left half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is run, and which part of it here.
pub(crate) struct Cast {
    /// The folder of the export.
    pub(crate) folder: PathBuf,
    /// The stages that run in this process.
    pub(crate) own: Vec<u32>,
    /// What is expected of all of them.
    pub(crate) plan: Option<FleetPlan>,
}

impl Cast {
    /// What was asked for, and the machines that may take part; all of the fleet if none are named.
    fn find(choice: &FleetChoice<'_>, settings: &CoordinatorSettings) -> anyhow::Result<(Cast, Option<Vec<String>>)> {
        let mut own = choice.own_stages.to_vec();
        if Path::new(choice.fleet).join(MANIFEST_FILE).exists() {
            return Ok((Cast { folder: PathBuf::from(choice.fleet), own, plan: None }, None));
        }
        let pushed = settings.pushed.clone();
        let folder = pushed.context("nothing was pushed to this fleet yet; use `cascadia fleet push` first")?;
        if choice.fleet == "all" {
            own.extend_from_slice(&settings.own_stages);
            return Ok((Cast { folder, own, plan: None }, None));
        }
        let (here, nodes): (Vec<_>, Vec<_>) = choice.fleet.split(',').map(str::to_owned).partition(|node| node == HERE);
        if !here.is_empty() {
            own.extend_from_slice(&settings.own_stages);
            if own.is_empty() {
                let folder = folder.display();
                bail!(
                    "no stage was kept here; push again with one of them, `cascadia fleet push {folder} here:stage-0 …`"
                );
            }
        }
        Ok((Cast { folder, own, plan: None }, Some(nodes)))
    }
}

/// An error unless these machines belong to the fleet.
fn check_nodes(home: &FleetHome, nodes: &[String]) -> Result<(), anyhow::Error> {
    let names: Vec<String> = home.members().all()?.into_iter().map(|member| member.name).collect();
    match nodes.iter().find(|node| !names.contains(node)) {
        Some(node) => Err(EngineError::Setting {
            name: "--fleet",
            value: format!("{node}, which is neither a folder with a manifest nor one of {}", names.join(", ")),
            allowed: "the folder that `export` wrote, or names of machines that have joined, and `here`",
        }
        .into()),
        None => Ok(()),
    }
}

/// An error unless the model has these stages.
fn check_stages(own: &[u32], manifest: &Manifest) -> anyhow::Result<()> {
    match own.iter().find(|stage| **stage as usize >= manifest.stages.len()) {
        Some(stage) => bail!("there is no stage {stage} to run here; the export has {}", manifest.stages.len()),
        None => Ok(()),
    }
}
