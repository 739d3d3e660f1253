//! A fleet of machines that run a model together, as its coordinator sees it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cascadia_coordinator::{
    Coordinator, CoordinatorOptions, Deployment, ExportJob, FirstModel, KEEP, Machines, OpenedModel, PlanDemand,
    PlannedModel, StatusSink, plan_for_known_machines,
};
use cascadia_engine::Engine;
use cascadia_fleet::{
    CoordinatorSettings, Digest, FleetEvent, FleetHome, FleetPlan, HERE, Invitation, Listener, Manifest, PushJob,
    RowFormat, StageSplit, StageStatus, default_address, reachable, remote_targets, seconds_now,
};
use cascadia_model::ModelSpec;

use crate::open::Preparation;
use crate::{Error, Model, ModelBuilder, ModelSource, Threads};

/// How long a worker may take to connect for a shard that is pushed to it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The coordinator of a fleet, listening for workers.
pub struct Fleet {
    pub(crate) coordinator: Coordinator,
}

/// How a fleet is led.
pub struct FleetBuilder {
    home: FleetHome,
    listen: Option<String>,
    announce: bool,
    options: CoordinatorOptions,
}

impl Fleet {
    /// A coordinator that keeps its keys, its members and its exports in this folder.
    pub fn builder(folder: impl AsRef<Path>) -> Result<FleetBuilder, Error> {
        Ok(FleetBuilder::from_home(FleetHome::open(folder.as_ref())?))
    }

    /// What it keeps on disk: members, settings, the audit log.
    pub fn home(&self) -> &FleetHome {
        self.coordinator.home()
    }

    /// Lets so many machines join within a time; see [`WorkerBuilder::join`](crate::WorkerBuilder::join).
    pub fn invite(&self, machines: u32, within: Duration) -> Result<Invitation, Error> {
        let home = self.home();
        let addresses = reachable(&home.coordinator()?.listen);
        let expires = seconds_now().saturating_add(within.as_secs());
        let invitation = Invitation::new(addresses, home.coordinator_key()?.pin(), expires)?;
        home.members().invite(&invitation, machines)?;
        Ok(invitation)
    }

    /// Sends workers their shards of an export, each the stage of this number. The next [`Fleet::open_pushed`] serves
    /// them; `here` keeps a stage in this process.
    pub fn push(&self, export: impl AsRef<Path>, targets: &[(&str, usize)]) -> Result<(), Error> {
        let (folder, home) = (export.as_ref(), self.home());
        let folder = folder.canonicalize().map_err(Error::io("open", folder))?;
        let manifest = Manifest::read(&folder)?;
        let targets: Vec<(String, usize)> = targets.iter().map(|(node, stage)| ((*node).to_owned(), *stage)).collect();
        let remote = remote_targets(&targets, &manifest)?;
        let say = |note: &str| home.notify(FleetEvent::Push { note: note.to_owned() });
        self.coordinator.send(&PushJob { folder: &folder, targets: &remote, patience: PATIENCE }, &say)?;
        let own_stages = targets.iter().filter(|(node, _)| node == HERE).map(|(_, stage)| *stage as u32).collect();
        Ok(self.coordinator.remember(&Deployment { folder, own_stages, plan: None })?)
    }

    /// Opens an export once each of its stages has a worker that holds its shard.
    pub fn open(&self, export: impl Into<PathBuf>, builder: &ModelBuilder) -> Result<Model, Error> {
        let deployment = Deployment { folder: export.into(), own_stages: Vec::new(), plan: None };
        self.open_first(&FirstModel::Exported(deployment), builder, Box::new(drop))
    }

    /// Opens the export that was pushed last, on the machines that it was pushed to.
    pub fn open_pushed(&self, builder: &ModelBuilder) -> Result<Model, Error> {
        let first = FirstModel::Pushed { machines: Machines::All, own_stages: Vec::new() };
        self.open_first(&first, builder, Box::new(drop))
    }

    /// Plans a model over these machines, exports it, sends them their shards, and opens it.
    pub fn open_planned(
        &self,
        source: impl Into<ModelSource>,
        machines: Machines,
        builder: &ModelBuilder,
    ) -> Result<Model, Error> {
        self.open_first(&builder.planned(source, machines), builder, Box::new(drop))
    }

    /// Plans a model over this machine and all members whose speed is known, without exporting it.
    pub fn plan(&self, source: impl Into<ModelSource>, builder: &ModelBuilder) -> Result<FleetPlan, Error> {
        let files = source.into().files()?;
        let demand = PlanDemand { precision: KEEP, context: builder.context, users: builder.parallel, kv: &builder.kv };
        Ok(plan_for_known_machines(self.home(), &files, &demand, &builder.threads.pool())?)
    }

    /// The stages of the model that was opened last: which worker computes each, which are on standby, what it cost.
    pub fn stages(&self) -> Vec<StageStatus> {
        self.coordinator.stages()
    }

    /// Opens a model in any of these ways. `status` hears every second how the fleet is.
    pub fn open_first(&self, first: &FirstModel, builder: &ModelBuilder, status: StatusSink) -> Result<Model, Error> {
        let Preparation { options, draft } = builder.prepare()?;
        let opened = self.coordinator.open_first(first, &options, status)?;
        open_led(builder, LedModel { opened, draft }, self.coordinator.wire())
    }
}

impl ModelBuilder {
    /// A model that is planned over machines of a fleet, for the context and the requests of this builder.
    pub fn planned(&self, source: impl Into<ModelSource>, machines: Machines) -> FirstModel {
        let source = source.into();
        let (name, context, users, kv) = (source.name(), self.context, self.parallel, self.kv.clone());
        FirstModel::Planned(PlannedModel { name, open: Arc::new(move || source.files()), machines, context, users, kv })
    }
}

impl FleetBuilder {
    /// A coordinator with this folder, and events going where it says.
    pub fn from_home(home: FleetHome) -> FleetBuilder {
        FleetBuilder { home, listen: None, announce: true, options: CoordinatorOptions::default() }
    }

    /// Listens for workers here, now and from the next start on; port 0 takes a free one. By default where it listened
    /// before, at first at port 7420 of this machine's address in its network.
    pub fn listen(self, address: impl Into<String>) -> FleetBuilder {
        FleetBuilder { listen: Some(address.into()), ..self }
    }

    /// Does not announce in the local network (mDNS) where the coordinator is.
    pub fn silent(self) -> FleetBuilder {
        FleetBuilder { announce: false, ..self }
    }

    /// Tells of workers that connect, of pushes, of losses.
    pub fn on_event(self, notify: impl Fn(&FleetEvent) + Send + Sync + 'static) -> FleetBuilder {
        FleetBuilder { home: self.home.with_notify(Arc::new(notify)), ..self }
    }

    /// Treats workers in other ways than usual.
    pub fn options(self, options: CoordinatorOptions) -> FleetBuilder {
        FleetBuilder { options, ..self }
    }

    /// Listens for workers.
    pub fn start(self) -> Result<Fleet, Error> {
        let FleetBuilder { home, listen, announce, options } = self;
        let known = home.coordinator().ok();
        let listen = listen.or_else(|| known.as_ref().map(|known| known.listen.clone()));
        let key = home.pending_coordinator_key()?;
        let listener = Listener::bind(&listen.unwrap_or_else(default_address), key.identity(), home.members())?;
        key.keep()?;
        let (listen, silent) = (listener.address()?.to_string(), !announce);
        home.set_coordinator(&CoordinatorSettings { listen, silent, ..known.unwrap_or_default() })?;
        Ok(Fleet { coordinator: Coordinator::with_listener(home, options, listener)? })
    }

    /// Listens where an earlier run did; an error if this folder has never led a fleet.
    pub fn resume(self) -> Result<Fleet, Error> {
        Ok(Fleet { coordinator: Coordinator::start(self.home, self.options)? })
    }
}

/// A model that was opened on a fleet, with the draft model that speculates for it.
pub(crate) struct LedModel {
    pub(crate) opened: OpenedModel,
    pub(crate) draft: Option<Engine>,
}

/// Starts the service of a model whose stages run on workers.
pub(crate) fn open_led(builder: &ModelBuilder, model: LedModel, wire: RowFormat) -> Result<Model, Error> {
    let LedModel { opened: OpenedModel { name, digest, engine }, draft } = model;
    // A model whose hidden states are rounded on the wire may give other answers.
    let digest = match wire {
        RowFormat::F32 => digest,
        wire => Digest::of(format!("{digest} {}", wire.name()).as_bytes()),
    };
    builder.start(name, engine, (Some(digest.to_string()), draft))
}

/// How a model is split.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// Into how many stages, of about equal size.
    pub stages: u32,
    /// The formats of the result: a name such as `q4_k_m`, or `keep` for those of the model.
    pub precision: String,
    /// The threads to convert with.
    pub threads: Threads,
}

impl Default for ExportOptions {
    fn default() -> ExportOptions {
        ExportOptions { stages: 1, precision: KEEP.to_owned(), threads: Threads::default() }
    }
}

/// Splits a model into shards: one for each stage, and one with embeddings and output matrix for the coordinator.
pub fn export(
    source: impl Into<ModelSource>,
    options: &ExportOptions,
    out: impl AsRef<Path>,
) -> Result<Manifest, Error> {
    let source = source.into();
    let files = source.files()?;
    let spec = ModelSpec::from_files(&files).map_err(cascadia_coordinator::CoordinatorError::from)?;
    let split = StageSplit::even(&spec, options.stages)?;
    let job = ExportJob {
        name: source.name(),
        files: &files,
        split: &split,
        precision: &options.precision,
        out: out.as_ref(),
        pool: options.threads.pool(),
        notify: &|_| {},
    };
    Ok(job.write()?)
}
