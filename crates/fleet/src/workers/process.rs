//! A worker as it runs: one connection for each shard it holds, and one that waits for the next shard to be sent.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cascadia_kernels::{OpsSlot, Pool};
use cascadia_weights::WeightPages;

use crate::clock::Monitor;
use crate::event::FleetEvent;
use crate::membership::rotation::ASKING;
use crate::shards::scrub::{PERIOD, ScrubRate};
use crate::shards::shard::{ShardOptions, open_shard};
use crate::shards::store::Store;
use crate::wire::link::LinkError;
use crate::wire::message::{Hello, Offer};
use crate::wire::tcp::TcpLink;
use crate::workers::availability::Availability;
use crate::workers::dialler::Dialler;
use crate::workers::machine::MachineSpeed;
use crate::workers::owner::{lent_threads, watch_owner};
use crate::workers::reconnect::Reconnect;
use crate::workers::worker::{Assignment, WorkerStage, greet_measured};
use crate::workers::worker_keys::WorkerKeys;
use crate::{Digest, FleetError, FleetHome, KnownTargets, Sandbox, SandboxPlaces, os};

/// The version that coordinator and worker must share.
const PROGRAM: &str = env!("CARGO_PKG_VERSION");
/// Bytes of shards that are kept unless the owner says otherwise.
const DISK: u64 = 50_000_000_000;

/// Shards that a worker holds at a time: those it computes, and those that will take their place.
const MOST_SLOTS: usize = 4;

/// How a worker runs; what is not given is as the owner's limits say.
pub struct WorkerOptions {
    /// The shard to begin with; otherwise those that were sent before.
    pub shard: Option<PathBuf>,
    /// Where the coordinator listens, if it is no longer where it was.
    pub coordinator: Option<String>,
    /// The most bytes of shards on disk.
    pub disk: Option<u64>,
    /// The most bytes of memory.
    pub memory: Option<u64>,
    /// Makes the threads for a shard, of which the owner lends so many; two that compute at a time need threads of
    /// their own.
    pub pool: Box<dyn Fn(Option<u32>) -> Arc<Pool> + Send + Sync>,
    /// The kernels for a shard that so many threads compute.
    pub ops: Box<dyn Fn(usize) -> OpsSlot + Send + Sync>,
    /// What is done with the pages of weights when a shard is loaded.
    pub pages: WeightPages,
    /// The sandbox that the process is in.
    pub sandbox: Sandbox,
}

/// A running worker. Each of its shards has a connection of its own.
pub struct WorkerProcess {
    home: FleetHome,
    /// Where its coordinator is, and what it remembers of it.
    coordinator: Dialler,
    store: Store,
    /// What a coordinator that plans is told.
    speed: MachineSpeed,
    /// Whether the owner lends the machine now.
    availability: Arc<Availability>,
    memory: Option<u64>,
    pool: Box<dyn Fn() -> Arc<Pool> + Send + Sync>,
    ops: Box<dyn Fn(usize) -> OpsSlot + Send + Sync>,
    pages: WeightPages,
    sandbox: Sandbox,
    /// Notified when a shard is added, so that nobody should pause, or when the worker is stopped.
    slots: Monitor<ShardSlots>,
    last_note: Mutex<String>,
    /// Whether the coordinator was heard since it last could not be reached.
    is_connected: AtomicBool,
    /// Whether the coordinator said that this machine belongs to its fleet no more.
    is_revoked: AtomicBool,
    _lock: File,
}

#[derive(Default)]
struct ShardSlots {
    all: Vec<ShardSlot>,
    next: u64,
}

/// A shard that is held ready, or computed.
struct ShardSlot {
    number: u64,
    shard: Digest,
    bytes: u64,
    computes: bool,
    /// Shared with the stage, which leaves once this is so.
    is_damaged: Arc<AtomicBool>,
}

/// How a connection ended.
struct Ended {
    note: String,
    /// The coordinator has no use for the shard.
    refused: bool,
}

impl Ended {
    /// It was not the coordinator's wish.
    fn lost(note: String) -> Ended {
        Ended { note, refused: false }
    }
}

impl WorkerProcess {
    /// Starts the worker of this folder, which must have joined a fleet: loads the shards that are here, and connects
    /// with each of them on a thread of its own, and once more to be sent others.
    pub fn start(home: FleetHome, options: WorkerOptions) -> Result<Arc<WorkerProcess>, FleetError> {
        let settings = home.worker()?;
        let lock = home.lock_worker()?;
        let limits = home.limits()?;
        let availability = watch_owner(limits.clone());
        let threads = lent_threads(&limits)?;
        let WorkerOptions { shard, coordinator, disk, memory, pool, ops, pages, sandbox } = options;
        let pool = Box::new(move || pool(threads));
        let memory = memory.or(limits.memory);
        let store = Store::open(&home.blobs(), disk.or(limits.disk).unwrap_or(DISK))?;
        let shards = first_shards(&home, shard.as_deref(), &settings.shards, &store)?;
        let free = MachineSpeed::measure_here(&pool());
        let speed = MachineSpeed { memory_bytes: memory.unwrap_or(u64::MAX).min(free.memory_bytes), ..free };
        let slots = Monitor::default();
        let addresses = coordinator.map_or_else(|| settings.addresses.clone(), |address| vec![address]);
        let coordinator = Dialler::new(WorkerKeys::open(&home, settings, slots.clock())?, addresses);
        let worker = Arc::new(WorkerProcess {
            home,
            coordinator,
            store,
            speed,
            availability,
            memory,
            pool,
            ops,
            pages,
            sandbox,
            slots,
            last_note: Mutex::default(),
            is_connected: AtomicBool::new(false),
            is_revoked: AtomicBool::new(false),
            _lock: lock,
        });
        for path in shards {
            let bytes = path.metadata().map_or(0, |metadata| metadata.len());
            worker.add(worker.open(&path)?, bytes);
        }
        let receiving = Arc::clone(&worker);
        worker.slots.clock().spawn(move || receiving.connect_again(None));
        let asking = Arc::clone(&worker);
        worker.slots.clock().spawn(move || asking.keep_keys());
        let scrubbing = Arc::clone(&worker);
        worker.slots.clock().spawn(move || scrubbing.scrub_again());
        Ok(worker)
    }

    /// What a worker with this folder and this shard to begin with has to write and read on its machine.
    pub fn places(home: &FleetHome, shard: Option<&Path>) -> SandboxPlaces {
        // The shards may be a link to another disk.
        let writes = vec![home.worker_folder(), home.blobs()];
        SandboxPlaces { writes, reads: shard.map(with_ending).into_iter().collect() }
    }

    /// Waits until the worker is stopped; an error if it stopped by itself because it was revoked.
    pub fn wait(&self) -> Result<(), FleetError> {
        let mut slots = self.slots.lock();
        while !self.is_stopped() {
            slots = self.slots.wait(slots, None);
        }
        drop(slots);
        match self.is_revoked.load(Ordering::SeqCst) {
            true => Err(FleetError::Revoked { node: self.node() }),
            false => Ok(()),
        }
    }

    /// What this machine is called in its fleet.
    pub fn node(&self) -> String {
        self.keys().settings().node.clone()
    }

    /// Ends all connections at once, as if the machine had lost its power, and makes no more.
    pub fn stop(&self) {
        self.coordinator.stop();
        // Locked, so that nobody who is about to wait misses it.
        drop(self.slots.lock());
        self.slots.notify();
    }

    /// Opens a shard.
    fn open(&self, path: &Path) -> Result<WorkerStage, FleetError> {
        let pool = (self.pool)();
        let ops = (self.ops)(pool.threads());
        let (memory, pages, sandbox) = (self.memory, self.pages, self.sandbox);
        let options = ShardOptions { program: PROGRAM.to_owned(), pool, ops, memory, pages, sandbox };
        let stage = open_shard(path, options)?;
        Ok(stage.with_witnesses(Arc::clone(self.keys().witnesses())).with_availability(Arc::clone(&self.availability)))
    }

    /// Holds a shard ready from now on, on a thread of its own.
    fn add(self: &Arc<WorkerProcess>, stage: WorkerStage, bytes: u64) {
        let Some(shard) = stage.hello.shard else { return };
        let mut slots = self.slots.lock();
        let number = slots.next;
        slots.next += 1;
        self.slots.notify();
        // One that does not compute yet is found by the coordinator.
        if slots.all.iter().any(|slot| slot.shard == shard && !slot.computes) {
            return;
        }
        let is_damaged = Arc::<AtomicBool>::default();
        let stage = stage.with_damage(Arc::clone(&is_damaged));
        slots.all.push(ShardSlot { number, shard, bytes, computes: false, is_damaged });
        drop(slots);
        let worker = Arc::clone(self);
        self.slots.clock().spawn(move || worker.connect_again(Some((number, stage))));
    }

    /// Works for the coordinator, and connects again whenever the connection is lost, for as long as there is a use.
    fn connect_again(self: &Arc<WorkerProcess>, mut held: Option<(u64, WorkerStage)>) {
        let mut reconnect = Reconnect::default();
        let clock = self.slots.clock();
        while !self.is_stopped() {
            let (begin, next) = (clock.now(), self.slots.lock().next);
            let ended = match self.availability.reason() {
                Some(reason) => Ended::lost(format!("this machine takes no part now, because {reason}")),
                None => match self.coordinator.dial() {
                    Ok(mut link) => self.serve(&mut link, held.as_mut()),
                    Err(error) => {
                        self.is_connected.store(false, Ordering::SeqCst);
                        Ended::lost(format!("cannot reach the coordinator: {error}; trying again until it answers"))
                    }
                },
            };
            if self.is_stopped() {
                return;
            }
            // Who has another stage by now is told that the shard goes, and not that it was refused.
            if held.as_ref().is_some_and(|(number, _)| self.releases(*number, &ended)) {
                return;
            }
            self.say(&ended.note);
            let pause = reconnect.ended(clock.since(begin), ended.refused);
            let is_spare = reconnect.became_unneeded() || self.availability.sheds_memory();
            if let Some((_, stage)) = held.as_mut().filter(|_| is_spare) {
                stage.unload();
            }
            let (mut slots, end) = (self.slots.lock(), clock.now() + pause);
            while slots.next == next && !self.is_stopped() && clock.now() < end {
                slots = self.slots.wait(slots, Some(end));
            }
        }
    }

    /// Asks the coordinator now and then for newer keys.
    fn keep_keys(&self) {
        let clock = self.slots.clock();
        while !self.is_stopped() {
            // Of a coordinator that cannot be reached, other connections tell.
            if let Ok(Err(problem)) = self.coordinator.ask() {
                self.say(&problem);
            }
            let (mut slots, end) = (self.slots.lock(), clock.now() + ASKING);
            while !self.is_stopped() && clock.now() < end {
                slots = self.slots.wait(slots, Some(end));
            }
        }
    }

    /// Does what the coordinator wants on one connection; says how that ended.
    fn serve(self: &Arc<WorkerProcess>, link: &mut TcpLink, held: Option<&mut (u64, WorkerStage)>) -> Ended {
        let hello = match &held {
            Some((_, stage)) => stage.hello.clone(),
            None => Hello { program: PROGRAM.to_owned(), shard: None, sandbox: self.sandbox },
        };
        // A stage that waits holds a cache of sequences that have ended.
        let is_loaded = held.as_ref().is_some_and(|(_, stage)| stage.is_loaded());
        let may_wait = || {
            self.heard_coordinator();
            self.availability.reason().is_none() && !(is_loaded && self.availability.sheds_memory())
        };
        match (greet_measured(link, &hello, (&self.speed, &may_wait)), held) {
            (Ok(Assignment::Load { epoch, limits }), Some((number, stage))) => {
                self.home.notify(FleetEvent::Computing { node: self.node() });
                self.change(*number, |slot| slot.computes = true);
                let ended = stage.work(link, epoch, limits);
                self.change(*number, |slot| slot.computes = false);
                Ended::lost(match self.availability.reason() {
                    Some(_) => ended.to_string(),
                    None => format!("the coordinator is gone: {ended}"),
                })
            }
            (Ok(Assignment::Load { .. }), None) => {
                Ended::lost("the coordinator wants a stage that is not here".to_owned())
            }
            (Ok(Assignment::Store(offer)), _) => match self.take(link, &offer) {
                Ok(()) => Ended::lost(format!("received shard {}", offer.digest.short())),
                Err(error) => Ended::lost(format!("the coordinator sent a shard: {error}")),
            },
            (Err(LinkError::Revoked), _) => {
                self.is_revoked.store(true, Ordering::SeqCst);
                self.stop();
                Ended::lost(String::new())
            }
            // A connection that only waits has nothing to report.
            (Err(LinkError::TimedOut | LinkError::Closed), None) => Ended::lost(String::new()),
            (Err(error), _) => Ended {
                refused: matches!(error, LinkError::Broken(_) | LinkError::HungUp),
                note: format!("the coordinator does not take this machine: {error}"),
            },
        }
    }

    /// Tells once that the coordinator is there.
    fn heard_coordinator(&self) {
        if !self.is_connected.swap(true, Ordering::SeqCst) {
            self.say(&format!("{} is connected to its coordinator, and computes when it is asked to.", self.node()));
        }
    }

    /// Takes the shard that is offered, and holds it ready.
    fn take(self: &Arc<WorkerProcess>, link: &mut TcpLink, offer: &Offer) -> Result<(), LinkError> {
        let (keys, now) = (self.keys().known(), self.slots.clock().unix_seconds());
        let checked = offer.signed.check(offer.digest, &keys, now);
        let targets = match checked.and_then(|targets| self.make_room(offer).map(|()| targets)) {
            Ok(targets) => targets,
            Err(problem) => return Err(Offer::refuse(link, problem)),
        };
        let keep: Vec<Digest> = self.slots.lock().all.iter().map(|slot| slot.shard).collect();
        let open = |path: &Path| {
            let opened = self.open(path);
            let stage = opened.map_err(|error| format!("it cannot use shard {}: {error}", offer.digest.short()))?;
            // Before the coordinator hears that it is here: it has to be so after a restart too.
            self.remember(Some((offer.digest, targets))).map(|()| stage)
        };
        let stage = self.store.take(link, offer, &keep, open)?;
        self.add(stage, offer.bytes);
        Ok(())
    }

    /// Makes sure that one more shard may be held, or says why not.
    fn make_room(&self, offer: &Offer) -> Result<(), String> {
        if let Some(reason) = self.availability.reason() {
            return Err(format!("it takes no shard now, because {reason}; push again when that is over"));
        }
        let mut slots = self.slots.lock();
        if self.availability.sheds_memory() {
            slots.all.retain(|slot| slot.computes);
        }
        let computed: u64 = slots.all.iter().filter(|slot| slot.computes).map(|slot| slot.bytes).sum();
        let together = computed.saturating_add(offer.bytes);
        if let Some(memory) = self.memory.filter(|memory| computed > 0 && together > *memory) {
            return Err(format!(
                "two shards of {together} bytes beside each other are more than the {memory} bytes of \
                memory its owner allows; end the server first, then push"
            ));
        }
        if slots.all.len() >= MOST_SLOTS {
            match slots.all.iter().position(|slot| !slot.computes) {
                Some(unused) => drop(slots.all.remove(unused)),
                None => return Err(format!("it computes {MOST_SLOTS} shards already")),
            }
        }
        Ok(())
    }

    /// Whether this slot is no longer needed: its shard was refused while another one is computed, it is computed on
    /// another connection, or it had to make room.
    fn releases(&self, number: u64, ended: &Ended) -> bool {
        let mut slots = self.slots.lock();
        let Some(at) = slots.all.iter().position(|slot| slot.number == number) else { return true };
        let shard = slots.all[at].shard;
        let replaces =
            |other: &ShardSlot| other.number != number && other.computes && (ended.refused || other.shard == shard);
        if !slots.all.iter().any(replaces) {
            return false;
        }
        slots.all.remove(at);
        drop(slots);
        self.home.notify(FleetEvent::ShardReleased { shard });
        // If it stays in the list, it is refused again after the next start.
        self.remember(None).unwrap_or_else(|problem| self.say(&problem));
        true
    }

    /// Reads all stored shards that are held, slowly. One that is damaged is used no more.
    pub fn scrub(&self) {
        let held: Vec<(Digest, u64)> = self.slots.lock().all.iter().map(|slot| (slot.shard, slot.bytes)).collect();
        let rate = ScrubRate::for_bytes(held.iter().map(|(_, bytes)| bytes).sum());
        for (shard, _) in held {
            let path = self.store.path(shard);
            // One that was given by its path is its owner's, and one that cannot be read is noticed when it is used.
            if let Ok(Some(false)) = rate.verify(self.slots.clock(), (&path, shard), || !self.is_stopped()) {
                self.give_up(shard);
            }
        }
    }

    /// Does so again twice a day.
    fn scrub_again(&self) {
        os::lower_thread_priority();
        let clock = self.slots.clock();
        while !self.is_stopped() {
            let begin = clock.now();
            self.scrub();
            let (mut slots, end) = (self.slots.lock(), begin + PERIOD);
            while !self.is_stopped() && clock.now() < end {
                slots = self.slots.wait(slots, Some(end));
            }
        }
    }

    /// Uses a damaged shard no more: who computes with it leaves, and it can be sent again.
    fn give_up(&self, shard: Digest) {
        self.store.remove(shard).unwrap_or_else(|error| self.say(&error.to_string()));
        let mut slots = self.slots.lock();
        let damaged = slots.all.extract_if(.., |slot| slot.shard == shard);
        damaged.for_each(|slot| slot.is_damaged.store(true, Ordering::SeqCst));
        drop(slots);
        self.home.notify(FleetEvent::ShardDamaged { shard });
        // If it stays in the list, it is missed after the next start.
        self.remember(None).unwrap_or_else(|problem| self.say(&problem));
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut ShardSlot)) {
        // One that had to make room is not there any more.
        if let Some(slot) = self.slots.lock().all.iter_mut().find(|slot| slot.number == number) {
            change(slot);
        }
    }

    /// Writes down which shards to begin with next time: those that are held, and one that is being received.
    fn remember(&self, received: Option<(Digest, KnownTargets)>) -> Result<(), String> {
        let mut shards: Vec<Digest> = self.slots.lock().all.iter().map(|slot| slot.shard).collect();
        shards.dedup();
        shards.extend(received.map(|(shard, _)| shard).filter(|received| !shards.contains(received)));
        let written = self.keys().change(|settings| {
            settings.shards = shards;
            if let Some((_, targets)) = received {
                // Another push may have come to its end meanwhile, and another key may have been learned.
                let known = settings.keys.targets.get_or_insert(targets);
                known.version = known.version.max(targets.version);
            }
        });
        written.map_err(|error| format!("cannot write down which shards are here: {error}"))
    }

    /// Tells what was not just told.
    fn say(&self, note: &str) {
        let mut last = lock(&self.last_note);
        if !note.is_empty() && *last != note {
            self.home.notify(FleetEvent::Worker { note: note.to_owned() });
            note.clone_into(&mut last);
        }
    }

    fn keys(&self) -> &WorkerKeys {
        &self.coordinator.keys
    }

    fn is_stopped(&self) -> bool {
        self.coordinator.is_stopped()
    }
}

/// Nothing behind these locks can be left half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The shards to begin with: the one that was asked for, or those that were sent. Without any, the coordinator sends
/// one.
fn first_shards(
    home: &FleetHome,
    asked: Option<&Path>,
    kept: &[Digest],
    store: &Store,
) -> Result<Vec<PathBuf>, FleetError> {
    let say = |note: String| home.notify(FleetEvent::Worker { note });
    if let Some(asked) = asked {
        let path = with_ending(asked);
        if path.exists() {
            return Ok(vec![path]);
        }
        let shown = asked.display();
        if !is_stage(asked) {
            let problem = format!(
                "there is no {shown}; give a shard that `cascadia export` wrote, or stage-0 and so on to be sent one"
            );
            return Err(FleetError::NotSetUp { problem });
        }
        if kept.is_empty() {
            say(format!("There is no {shown} here; waiting for the coordinator to send a shard."));
        }
    }
    let mut shards = Vec::new();
    for digest in kept {
        let short = digest.short();
        match store.has(*digest) {
            Ok(true) => shards.push(store.path(*digest)),
            Ok(false) => say(format!("The shard {short} that was kept here is damaged or gone; push it again.")),
            Err(error) => say(format!("The shard {short} that was kept here is of no use: {error}")),
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
