//! The fleet under test: a coordinator in this process, and two workers for every stage.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use cascadia_engine::service::{Service, ServiceOptions};
use cascadia_engine::{Engine, OpenOptions};
use cascadia_fleet::{
    Arrival, FleetKeys, Invitation, Listener, Manifest, Members, ModelWorkers, RemoteStage, RowFormat, StageLimits,
    StageStatus, TOKEN_IO_FILE, Timeouts, seconds_now, stage_file,
};
use cascadia_model::Stage;
use cascadia_weights::ModelFiles;

use super::relay::Relay;
use super::worker::{Worker, program};
use crate::flags::ChaosFlags;
use crate::source::find_or_embedded;

/// The longest that a fleet may take to be whole again.
const MENDING: Duration = Duration::from_secs(60);

/// Everything that the run needs, in a folder that is removed with it.
pub(super) struct TestFleet {
    pub(super) workers: Vec<Worker>,
    pub(super) model: PathBuf,
    shards: PathBuf,
    members: Arc<Members>,
    /// The workers of the model, once there is something to compute.
    model_workers: Arc<OnceLock<ModelWorkers>>,
    stages: Vec<Arc<RemoteStage>>,
    _folder: tempfile::TempDir,
}

impl TestFleet {
    /// Exports the model, and lets workers join.
    pub(super) fn open(flags: &ChaosFlags) -> anyhow::Result<TestFleet> {
        let folder = tempfile::tempdir().context("cannot make a folder for the run")?;
        let source = find_or_embedded(flags.model.as_deref())?;
        let (model, shards) = (source.on_disk(folder.path())?, folder.path().join("shards"));
        let mut export = program(&["export", "--precision", "keep", "--stages", &flags.stages.to_string(), "--out"])?;
        let exported = export.arg(&shards).arg(&model).status().context("cannot export the model")?;
        ensure!(exported.success(), "{} cannot be cut into {} stages", model.display(), flags.stages);
        let keys = Arc::new(FleetKeys::at(&folder.path().join("coordinator")));
        let key = keys.current()?.keys().coordinator.clone();
        let members = Arc::new(Members::at(&folder.path().join("members.json")));
        let listener = Listener::bind("127.0.0.1:0", &key, Arc::clone(&members))?.with_keys(&keys);
        let (address, model_workers) = (listener.address()?, Arc::<OnceLock<ModelWorkers>>::default());
        let admitting = Arc::clone(&model_workers);
        listener.run(move |arrival| {
            if let (Arrival::Member { node, link }, Some(model_workers)) = (arrival, admitting.get()) {
                // A worker that is not admitted connects again.
                let _ = model_workers.admit(link, &node);
            }
        });
        let invitation = Invitation::new(vec![address.to_string()], key.pin(), seconds_now() + 3600)?;
        members.invite(&invitation, 2 * flags.stages)?;
        let worker = |number: u32| {
            let (stage, node) = ((number % flags.stages) as usize, format!("node-{number:02}"));
            let (home, shard) = (folder.path().join(&node), shards.join(stage_file(stage)));
            let mut join = program(&["join", &invitation.to_string(), "--name", &node, "--home"])?;
            ensure!(join.arg(&home).status()?.success(), "{node} cannot join a fleet on this machine");
            Ok(Worker { stage, node, home, shard, relay: Relay::to(address)?, process: None })
        };
        let workers = (0..2 * flags.stages).map(worker).collect::<anyhow::Result<_>>()?;
        Ok(TestFleet { workers, model, shards, members, model_workers, stages: Vec::new(), _folder: folder })
    }

    /// Starts all workers, and a service on them.
    pub(super) fn serve(&mut self, options: &OpenOptions) -> anyhow::Result<Service> {
        let manifest = Manifest::read(&self.shards)?;
        let files = Arc::new(ModelFiles::open(&self.shards.join(TOKEN_IO_FILE))?);
        let engine = Engine::with_stages::<anyhow::Error>(files, options, |_, options| {
            let limits = StageLimits { model: options.limits.clone(), wire: RowFormat::F32 };
            let model_workers =
                ModelWorkers::new(manifest, limits, env!("CARGO_PKG_VERSION")).for_members(&self.members);
            let model_workers = self.model_workers.get_or_init(|| model_workers);
            let stage = |number| Arc::new(RemoteStage::new(model_workers, number, Timeouts::default()));
            self.stages = (0..model_workers.stages().len()).map(stage).collect();
            Ok(self.stages.iter().map(|stage| Box::new(Arc::clone(stage)) as Box<dyn Stage>).collect())
        })?;
        self.workers.iter_mut().try_for_each(Worker::start)?;
        self.wait_until_whole()?;
        let text = Arc::new(engine.text()?);
        Ok(Service::start(engine, text, ServiceOptions::default())?)
    }

    /// Which worker computes a stage, and which are on standby.
    pub(super) fn status(&self, stage: usize) -> StageStatus {
        self.stages[stage].status()
    }

    /// Waits until every stage has a worker and a standby, both alive.
    pub(super) fn wait_until_whole(&self) -> anyhow::Result<()> {
        let count = |status: StageStatus| usize::from(status.node.is_some()) + status.spares.len();
        let is_whole = || self.stages.iter().all(|stage| count(stage.status()) == 2);
        ensure!(self.wait_until(is_whole), "the fleet was not whole again in {} s", MENDING.as_secs());
        Ok(())
    }

    /// Waits until a standby computes in lockstep for a stage, which one that fell behind does not do for a while.
    pub(super) fn wait_for_lockstep(&self, stage: usize) {
        self.wait_until(|| self.status(stage).standby.is_some());
    }

    /// Whether something comes true in time.
    fn wait_until(&self, is_so: impl Fn() -> bool) -> bool {
        let end = Instant::now() + MENDING;
        while Instant::now() < end {
            // Lost workers are released.
            self.stages.iter().for_each(|stage| stage.check());
            if is_so() {
                return true;
            }
            thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// Replies that came too late to count.
    pub(super) fn late(&self) -> u64 {
        self.stages.iter().map(|stage| stage.status().late).sum()
    }

    /// Waits until a stage has lost or bypassed one more worker than before; says when.
    pub(super) fn wait_for_loss(&self, before: &StageStatus, stage: usize, patience: Duration) -> Option<Instant> {
        let (end, gone) = (Instant::now() + patience, |status: &StageStatus| status.lost + status.bypassed);
        while Instant::now() < end {
            if gone(&self.status(stage)) > gone(before) {
                return Some(Instant::now());
            }
            thread::sleep(Duration::from_millis(1));
        }
        None
    }
}
