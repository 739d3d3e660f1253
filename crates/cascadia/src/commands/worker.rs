//! `cascadia join` and `cascadia worker`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use cascadia_fleet::{
    Digest, FleetError, Hello, Identity, Invitation, MachineSpeed, Order, ShardOptions, Store, TcpLink, Turn,
    Witnesses, WorkerStage, greet_measured, join as join_fleet, open_shard,
};

use super::worker_limits::{threads, watch};
use crate::flags::{JoinFlags, LeaveFlags, Priority, ThreadFlags, WorkerFlags};
use crate::fleet_home::{FleetHome, WorkerSettings};
use crate::known_machines::measure;
use crate::os::lower_priority;
use crate::output::remark;
use crate::threads::pool;

/// The longest pause between two attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// Bytes of shards that are kept unless the owner says otherwise.
const DISK: u64 = 50_000_000_000;

/// Joins a fleet with a key of its own.
pub(crate) fn join(flags: &JoinFlags) -> anyhow::Result<()> {
    let home = FleetHome::find(flags.home.home.as_deref())?;
    if let Ok(known) = home.worker() {
        bail!("this machine is {} of a fleet already; `cascadia leave` comes before joining another", known.node);
    }
    let invitation: Invitation = flags.invitation.parse()?;
    let identity = Identity::open_or_make(&home.worker_key())?;
    let node = join_fleet(&invitation, &identity, &flags.name)?;
    let Invitation { addresses, coordinator, .. } = invitation;
    home.set_worker(&WorkerSettings { addresses, coordinator, node: node.clone(), shard: None })?;
    remark(&format!("This machine is {node} now. Start it with:  cascadia worker start"));
    Ok(())
}

/// Leaves the fleet: nothing of it stays on this machine.
pub(crate) fn leave(flags: &LeaveFlags) -> anyhow::Result<()> {
    let home = FleetHome::find(flags.home.home.as_deref())?;
    let node = home.worker()?.node;
    drop(home.lock_worker()?);
    home.remove_worker()?;
    remark(&format!("This machine has left; on the coordinator, run:  cascadia fleet revoke {node}"));
    Ok(())
}

/// Works for the coordinator until it is told to end; connects again whenever the connection is lost.
pub(crate) fn start(flags: &WorkerFlags) -> anyhow::Result<()> {
    let home = FleetHome::find(flags.home.home.as_deref())?;
    let settings = home.worker()?;
    let _alone = home.lock_worker()?;
    let identity = Identity::open_or_make(&home.worker_key())?;
    let addresses = flags.coordinator.clone().map_or_else(|| settings.addresses.clone(), |address| vec![address]);
    let limits = home.limits()?;
    // Before any thread is started, so that all of them are like that.
    if flags.priority == Priority::Low && !lower_priority() {
        remark("This system offers no lower priority; other programs may feel this one.");
    }
    let turn = watch(limits.clone())?;
    let threads = flags.threads.threads.or(threads(&limits)?);
    let options = ShardOptions {
        program: env!("CARGO_PKG_VERSION").to_owned(),
        pool: pool(&ThreadFlags { threads, ..flags.threads }),
        memory: flags.memory.or(limits.memory),
    };
    let store = Store::open(&home.blobs(), flags.disk.or(limits.disk).unwrap_or(DISK))?;
    let shard = first_shard(flags.shard.as_deref(), settings.shard, &store)?;
    let free = measure(&options.pool);
    let speed = MachineSpeed { memory_bytes: options.memory.unwrap_or(u64::MAX).min(free.memory_bytes), ..free };
    let witnesses = Arc::new(Witnesses::at(&home.heads(), identity.clone(), settings.coordinator));
    let mut worker = Worker { home, settings, store, options, speed, witnesses, turn, stage: None };
    shard.map(|path| worker.take(&path)).transpose()?;
    let mut pause = SHORTEST_PAUSE;
    let mut said = String::new();
    loop {
        let begin = Instant::now();
        let ended = match worker.turn.reason() {
            Some(reason) => format!("this machine takes no part now, because {reason}"),
            None => worker.connect(&addresses, &identity)?,
        };
        if ended != said {
            remark(&ended);
            said = ended;
        }
        // A connection that held for a while was a good one.
        pause = if begin.elapsed() > LONGEST_PAUSE { SHORTEST_PAUSE } else { (2 * pause).min(LONGEST_PAUSE) };
        thread::sleep(pause);
    }
}

struct Worker {
    home: FleetHome,
    settings: WorkerSettings,
    store: Store,
    options: ShardOptions,
    speed: MachineSpeed,
    witnesses: Arc<Witnesses>,
    turn: Arc<Turn>,
    stage: Option<WorkerStage>,
}

impl Worker {
    /// Connects to the coordinator, and does what it wants; says how that ended.
    fn connect(&mut self, addresses: &[String], identity: &Identity) -> anyhow::Result<String> {
        match TcpLink::dial(addresses, identity, self.settings.coordinator) {
            Ok(mut link) => self.serve(&mut link),
            Err(error) => Ok(format!("cannot reach the coordinator: {error}")),
        }
    }

    /// Does what the coordinator wants on one connection; says how that ended.
    fn serve(&mut self, link: &mut TcpLink) -> anyhow::Result<String> {
        let shard = self.stage.as_ref().and_then(|stage| stage.hello.shard);
        let hello = Hello { program: self.options.program.clone(), shard };
        match (greet_measured(link, &hello, &self.speed), &mut self.stage) {
            (Ok(Order::Load { epoch, limits }), Some(stage)) => {
                remark(&format!("{} computes for the coordinator.", self.settings.node));
                let ended = stage.work(link, epoch, limits);
                Ok(match self.turn.reason() {
                    Some(_) => ended.to_string(),
                    None => format!("the coordinator is gone: {ended}"),
                })
            }
            (Ok(Order::Load { .. }), None) => Ok("the coordinator wants a stage that is not here".to_owned()),
            (Ok(Order::Take(offer)), _) => match self.store.take(link, &offer) {
                Ok(path) => match self.take(&path) {
                    Ok(()) => {
                        self.settings.shard = Some(offer.digest);
                        self.home.set_worker(&self.settings)?;
                        Ok(format!("received shard {}", offer.digest.short()))
                    }
                    Err(error) => Ok(format!("received shard {}, which cannot be used: {error}", offer.digest.short())),
                },
                Err(error) => Ok(format!("the coordinator sent a shard: {error}")),
            },
            (Err(error), _) => Ok(format!("the coordinator does not take this machine: {error}")),
        }
    }

    fn take(&mut self, path: &Path) -> Result<(), FleetError> {
        let stage = open_shard(path, self.options.clone())?;
        self.stage = Some(stage.with_witnesses(Arc::clone(&self.witnesses)).with_turn(Arc::clone(&self.turn)));
        Ok(())
    }
}

/// The shard to begin with: the one that was asked for, or the one that was sent last. Without either, the coordinator
/// sends one.
fn first_shard(asked: Option<&Path>, kept: Option<Digest>, store: &Store) -> anyhow::Result<Option<PathBuf>> {
    if let Some(asked) = asked {
        let path = with_ending(asked);
        if path.exists() {
            return Ok(Some(path));
        }
        if !is_stage(asked) {
            let shown = asked.display();
            bail!(
                "there is no {shown}; give a shard that `cascadia export` wrote, or stage-0 and so on to be sent one"
            );
        }
    }
    match (kept, asked) {
        (Some(digest), _) if store.has(digest)? => return Ok(Some(store.path(digest))),
        (Some(digest), _) => {
            let digest = digest.short();
            remark(&format!("The shard {digest} that was kept here is damaged or gone; push it again."));
        }
        (None, Some(asked)) => {
            remark(&format!("There is no {} here; waiting for the coordinator to send a shard.", asked.display()));
        }
        (None, None) => {}
    }
    Ok(None)
}

/// Whether a file is called as shards of stages are, so that it may be meant to be sent here.
fn is_stage(path: &Path) -> bool {
    let number = path.file_stem().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("stage-"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
        && path.extension().is_none_or(|ending| ending == "gguf")
}

/// The file of a shard, also when its ending was left out.
fn with_ending(path: &Path) -> PathBuf {
    let ended = path.with_extension("gguf");
    if !path.exists() && ended.exists() { ended } else { path.to_owned() }
}
