//! A machine that runs a part of a model for a coordinator elsewhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cascadia_fleet::{
    FleetError, FleetEvent, FleetHome, Invitation, JoinedFleet, OwnerLimits, PairedFleet, PairingCode, Sandbox,
    WorkerOptions, WorkerProcess, WorkerSettings, join, pair,
};
use cascadia_weights::WeightPages;

use crate::{Error, Kernels, Threads};

/// A running worker. Dropping it ends its connections.
pub struct Worker {
    process: Arc<WorkerProcess>,
}

/// How a worker runs.
pub struct WorkerBuilder {
    home: FleetHome,
    shard: Option<PathBuf>,
    coordinator: Option<String>,
    disk: Option<u64>,
    memory: Option<u64>,
    threads: Threads,
    kernels: Kernels,
    pages: WeightPages,
    sandbox: Sandbox,
}

impl Worker {
    /// A worker that keeps its key and its shards in this folder.
    pub fn builder(folder: impl AsRef<Path>) -> Result<WorkerBuilder, Error> {
        Ok(WorkerBuilder::from_home(FleetHome::open(folder.as_ref())?))
    }

    /// What it is called in its fleet.
    pub fn node(&self) -> String {
        self.process.node()
    }

    /// Waits until it is stopped; an error if it stopped by itself, because it was removed from its fleet.
    pub fn wait(&self) -> Result<(), Error> {
        Ok(self.process.wait()?)
    }

    /// Ends all connections at once, as if the machine had lost its power.
    pub fn stop(&self) {
        self.process.stop();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.process.stop();
    }
}

impl WorkerBuilder {
    /// A worker with this folder, and events going where it says.
    pub fn from_home(home: FleetHome) -> WorkerBuilder {
        let (shard, coordinator, disk, memory) = (None, None, None, None);
        let (threads, kernels) = (Threads::default(), Kernels::Default);
        let (pages, sandbox) = (WeightPages::default(), Sandbox::None);
        WorkerBuilder { home, shard, coordinator, disk, memory, threads, kernels, pages, sandbox }
    }

    /// Joins the fleet of an invitation, which must be waiting for it, and returns the name that it gets there: the
    /// wanted one, or one like `node-00` if that is empty. If people have to approve it there, the code that they compare
    /// is an event, and this waits for them. An error if this folder belongs to a fleet already.
    pub fn join(&self, invitation: &Invitation, name: &str) -> Result<String, Error> {
        self.check_free()?;
        let show = |code: &str| self.home.notify(FleetEvent::AwaitsApproval { code: code.to_owned() });
        let joined = join(invitation, &self.home.pending_worker_key()?, name, show)?;
        self.remember(joined, &invitation.addresses)
    }

    /// Joins with the pairing code that a coordinator shows, at the first of these addresses that answers; gives the name
    /// that it gets there, and what both machines show unless somebody is between them. An error if this folder belongs
    /// to a fleet already.
    pub fn pair(&self, addresses: &[String], code: &PairingCode, name: &str) -> Result<(String, String), Error> {
        self.check_free()?;
        let PairedFleet { fleet, agreed } = pair(addresses, code, &self.home.pending_worker_key()?, name)?;
        Ok((self.remember(fleet, addresses)?, agreed))
    }

    /// Remembers the fleet that was joined; gives this machine's name there.
    fn remember(&self, JoinedFleet { node, keys }: JoinedFleet, addresses: &[String]) -> Result<String, Error> {
        let (addresses, shards) = (addresses.to_vec(), Vec::new());
        self.home.set_worker(&WorkerSettings { addresses, keys, node: node.clone(), shards })?;
        Ok(node)
    }

    /// An error if this folder belongs to a fleet.
    fn check_free(&self) -> Result<(), Error> {
        let Ok(known) = self.home.worker() else { return Ok(()) };
        let sentence = "`cascadia leave` comes before joining another";
        let problem = format!("this machine is {} of a fleet already; {sentence}", known.node);
        Err(FleetError::InUse { problem }.into())
    }

    /// Begins with this shard instead of those that were sent before.
    pub fn shard(self, path: impl Into<PathBuf>) -> WorkerBuilder {
        WorkerBuilder { shard: Some(path.into()), ..self }
    }

    /// Connects to the coordinator here, if it is no longer where it was.
    pub fn coordinator(self, address: impl Into<String>) -> WorkerBuilder {
        WorkerBuilder { coordinator: Some(address.into()), ..self }
    }

    /// Keeps no more bytes of shards on disk; what the owner's limits say, or 50 GB, by default.
    pub fn disk(self, bytes: u64) -> WorkerBuilder {
        WorkerBuilder { disk: Some(bytes), ..self }
    }

    /// Takes no more bytes of memory; layers that do not fit are read from disk for every step.
    pub fn memory(self, bytes: u64) -> WorkerBuilder {
        WorkerBuilder { memory: Some(bytes), ..self }
    }

    /// Computes with these threads; a number will do. What the owner's limits say by default.
    pub fn threads(self, threads: impl Into<Threads>) -> WorkerBuilder {
        WorkerBuilder { threads: threads.into(), ..self }
    }

    /// Reads weights in this way.
    pub fn kernels(self, kernels: Kernels) -> WorkerBuilder {
        WorkerBuilder { kernels, ..self }
    }

    /// Brings the pages of weights into memory, or keeps them there, when a shard is loaded.
    pub fn pages(self, pages: WeightPages) -> WorkerBuilder {
        WorkerBuilder { pages, ..self }
    }

    /// Tells the coordinator that this process is in a sandbox. [`Sandbox::enter`] puts it there.
    pub fn sandbox(self, sandbox: Sandbox) -> WorkerBuilder {
        WorkerBuilder { sandbox, ..self }
    }

    /// Lends the machine as these limits say, from now on.
    pub fn limits(self, limits: OwnerLimits) -> Result<WorkerBuilder, Error> {
        self.home.set_limits(&limits)?;
        Ok(self)
    }

    /// Tells of connections and of shards.
    pub fn on_event(self, notify: impl Fn(&FleetEvent) + Send + Sync + 'static) -> WorkerBuilder {
        WorkerBuilder { home: self.home.with_notify(Arc::new(notify)), ..self }
    }

    /// Works for the coordinator on threads of its own, and connects again whenever a connection is lost.
    pub fn start(self) -> Result<Worker, Error> {
        let WorkerBuilder { home, shard, coordinator, disk, memory, threads, kernels, pages, sandbox } = self;
        let pool = move |lent: Option<u32>| Threads { count: threads.count.or(lent), ..threads }.pool();
        let ops = move |threads: usize| kernels.slot(threads);
        let (pool, ops) = (Box::new(pool), Box::new(ops));
        let options = WorkerOptions { shard, coordinator, disk, memory, pool, ops, pages, sandbox };
        Ok(Worker { process: WorkerProcess::start(home, options)? })
    }
}
