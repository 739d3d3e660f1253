//! `cascadia join` and `cascadia worker`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use cascadia_fleet::{Digest, Identity, Invitation, MachineSpeed, ShardOptions, Store, Witnesses, join as join_fleet};

use super::worker_limits::{threads, watch};
use super::worker_process::{WorkerOptions, WorkerProcess};
use crate::flags::{JoinFlags, LeaveFlags, Priority, ThreadFlags, WorkerFlags};
use crate::fleet_home::{FleetHome, WorkerSettings};
use crate::known_machines::measure;
use crate::os::lower_priority;
use crate::output::remark;
use crate::threads::pool;

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
    home.set_worker(&WorkerSettings { addresses, coordinator, node: node.clone(), shards: Vec::new() })?;
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
    let threads = ThreadFlags { threads: flags.threads.threads.or(threads(&limits)?), ..flags.threads };
    let memory = flags.memory.or(limits.memory);
    let program = || env!("CARGO_PKG_VERSION").to_owned();
    let options = move || ShardOptions { program: program(), pool: pool(&threads), memory };
    let store = Store::open(&home.blobs(), flags.disk.or(limits.disk).unwrap_or(DISK))?;
    let shards = first_shards(flags.shard.as_deref(), &settings.shards, &store)?;
    let free = measure(&options().pool);
    let speed = MachineSpeed { memory_bytes: memory.unwrap_or(u64::MAX).min(free.memory_bytes), ..free };
    let witnesses = Arc::new(Witnesses::at(&home.heads(), identity.clone(), settings.coordinator));
    let manners = WorkerOptions { speed, witnesses, turn, options: Box::new(options) };
    let crew = WorkerProcess::new((home, settings), (identity, addresses), store, manners);
    for path in shards {
        let bytes = path.metadata().map_or(0, |metadata| metadata.len());
        crew.add(crew.manners.open(&path)?, bytes);
    }
    crew.wait();
    Ok(())
}

/// The shards to begin with: the one that was asked for, or those that were sent. Without any, the coordinator sends
/// one.
fn first_shards(asked: Option<&Path>, kept: &[Digest], store: &Store) -> anyhow::Result<Vec<PathBuf>> {
    if let Some(asked) = asked {
        let path = with_ending(asked);
        if path.exists() {
            return Ok(vec![path]);
        }
        if !is_stage(asked) {
            let shown = asked.display();
            bail!(
                "there is no {shown}; give a shard that `cascadia export` wrote, or stage-0 and so on to be sent one"
            );
        }
        if kept.is_empty() {
            remark(&format!("There is no {} here; waiting for the coordinator to send a shard.", asked.display()));
        }
    }
    let mut shards = Vec::new();
    for digest in kept {
        match store.has(*digest) {
            Ok(true) => shards.push(store.path(*digest)),
            Ok(false) => {
                let digest = digest.short();
                remark(&format!("The shard {digest} that was kept here is damaged or gone; push it again."));
            }
            Err(error) => remark(&format!("The shard {} that was kept here is of no use: {error}", digest.short())),
        }
    }
    Ok(shards)
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
