//! All workers of a coordinator while models come and go: each joins the model its shard belongs to, or waits to be
//! sent one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::Monitor;
use crate::membership::connection_slots::ConnectionSlots;
use crate::wire::link::{Link, LinkError};
use crate::wire::message::refuse;
use crate::workers::model_workers::ModelWorkers;
use crate::workers::pending::PendingWorker;
use crate::{Clock, FleetError, LinkSpeed, MachineSpeed, SignedShard};

/// A look at whether all have come.
const GLANCE: Duration = Duration::from_millis(50);
/// How often a machine is sent its shard: a connection may have ended before anything was sent on it.
const ATTEMPTS: u32 = 3;

/// The models of a coordinator and their workers. The first that was opened is the one that serves; another fills up
/// beside it until it takes its place.
#[derive(Default)]
pub struct WorkerRegistry {
    open: Mutex<Vec<OpenModel>>,
    /// Workers that wait for a shard, each on its latest connection.
    waiting: Monitor<WaitingWorkers>,
    /// For those that have no place yet.
    arriving: ConnectionSlots,
    /// What each machine has said that it holds, for people.
    held: Mutex<BTreeMap<String, String>>,
}

/// Workers on the connection on which they may be sent a shard: each that is connected has one.
#[derive(Default)]
struct WaitingWorkers {
    idle: BTreeMap<String, PendingWorker>,
    /// Those with which something is done right now: they are measured, asked for a heartbeat, or sent a shard.
    busy: BTreeSet<String>,
}

struct OpenModel {
    model_workers: Arc<ModelWorkers>,
    /// Why a worker with one of its shards was not admitted.
    problem: Option<String>,
}

/// What becomes of a machine that has connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is ready to run this stage.
    Stage(usize),
    /// It waits for a shard.
    Waits,
    /// No model is there yet, or there is none for a moment; it comes again.
    Early,
}

impl WaitingWorkers {
    /// One of them, to do something with.
    fn take(&mut self, node: &str) -> Option<PendingWorker> {
        let taken = self.idle.remove(node)?;
        self.busy.insert(taken.node.clone());
        Some(taken)
    }
}

impl WorkerRegistry {
    /// One that waits for machines by this clock.
    pub fn on_clock(clock: &Clock) -> WorkerRegistry {
        WorkerRegistry { waiting: Monitor::new(clock, WaitingWorkers::default()), ..WorkerRegistry::default() }
    }

    /// The clock that it waits by.
    pub fn clock(&self) -> &Clock {
        self.waiting.clock()
    }

    /// Admits workers of this model from now on.
    pub fn open(&self, model_workers: &Arc<ModelWorkers>) {
        self.models().push(OpenModel { model_workers: Arc::clone(model_workers), problem: None });
    }

    /// Admits no more workers of it. Those that were admitted stay until the model is closed itself.
    pub fn close(&self, model_workers: &Arc<ModelWorkers>) {
        self.models().retain(|open| !Arc::ptr_eq(&open.model_workers, model_workers));
    }

    /// Talks to a worker that has connected: it joins a model, waits for a shard, or hears why it cannot.
    pub fn admit(&self, link: Box<dyn Link>, node: &str) -> Result<Admission, LinkError> {
        let Some(_slot) = self.arriving.take(node) else {
            return Err(LinkError::Broken("too many machines come at once".to_owned()));
        };
        let pending_worker = PendingWorker::hear(link, node)?;
        let Some(shard) = pending_worker.hello.shard else { return self.wait(pending_worker) };
        let model_workers = {
            let open = self.models();
            // The newest first: who holds a shard of two models is sent it anew for the second.
            let holding = open.iter().rev().filter(|open| open.model_workers.stage_with(shard).is_some());
            let lacking = |open: &&OpenModel| {
                open.model_workers
                    .stage_with(shard)
                    .is_some_and(|stage| !open.model_workers.stages()[stage].names().iter().any(|name| name == node))
            };
            let chosen = holding.clone().find(lacking).or_else(|| holding.clone().next()).or(open.first());
            chosen.map(|open| Arc::clone(&open.model_workers))
        };
        let Some(model_workers) = model_workers else { return Ok(Admission::Early) };
        let admitted = model_workers.admit_pending(pending_worker);
        let holds = match model_workers.stage_with(shard) {
            Some(stage) => format!("stage {stage} of {}", model_workers.manifest().name),
            None => format!("shard {}", shard.short()),
        };
        lock(&self.held).insert(node.to_owned(), holds);
        if let Err(error) = &admitted {
            let mut open = self.models();
            let concerned = open.iter_mut().find(|open| Arc::ptr_eq(&open.model_workers, &model_workers));
            if let Some(open) = concerned.filter(|_| model_workers.stage_with(shard).is_some()) {
                open.problem = Some(format!("{node}: {error}"));
            }
        }
        admitted.map(Admission::Stage)
    }

    fn wait(&self, mut pending_worker: PendingWorker) -> Result<Admission, LinkError> {
        let first = self.models().first().map(|open| Arc::clone(&open.model_workers));
        let fits = |model_workers: Arc<ModelWorkers>| {
            model_workers.check_program(&pending_worker.hello.program, &pending_worker.node).err()
        };
        if let Some(problem) = first.and_then(fits) {
            return Err(refuse(&mut *pending_worker.link, problem));
        }
        self.waiting.lock().idle.insert(pending_worker.node.clone(), pending_worker);
        self.waiting.notify();
        Ok(Admission::Waits)
    }

    /// Lets a worker wait on, unless it has connected again meanwhile.
    fn keep(&self, pending_worker: PendingWorker) {
        let mut waiting = self.waiting.lock();
        waiting.busy.remove(&pending_worker.node);
        waiting.idle.entry(pending_worker.node.clone()).or_insert(pending_worker);
        drop(waiting);
        self.waiting.notify();
    }

    /// A connection that was in use has ended.
    fn ended(&self, node: &str) {
        self.waiting.lock().busy.remove(node);
    }

    /// The machines that are connected.
    pub fn connected(&self) -> Vec<String> {
        let waiting = self.waiting.lock();
        waiting.idle.keys().chain(&waiting.busy).cloned().collect::<BTreeSet<String>>().into_iter().collect()
    }

    /// Whether a machine computes a stage of a model that is open, or stands by for it.
    pub fn has_stage(&self, node: &str) -> bool {
        let stages = |open: &OpenModel| {
            open.model_workers.stages().iter().any(|stage| stage.names().iter().any(|name| name == node))
        };
        self.models().iter().any(stages)
    }

    /// Releases all workers that wait: they connect again, if need be to another process.
    pub fn release_waiting(&self) {
        self.waiting.lock().idle.clear();
    }

    /// What machines have measured of themselves, and the links to them: of all of these that wait for a shard, or come to
    /// do so before `deadline`.
    pub fn measure(&self, nodes: &[String], deadline: Instant) -> BTreeMap<String, (MachineSpeed, LinkSpeed)> {
        let measure = |mut pending_worker: PendingWorker| {
            let Ok(measured) = pending_worker.measure() else {
                self.ended(&pending_worker.node);
                return None;
            };
            self.keep(pending_worker);
            Some(measured)
        };
        // A connection may have ended unseen; the machine then comes again.
        let of = |node: &String| std::iter::from_fn(|| self.take(node, deadline)).find_map(measure);
        nodes.iter().filter_map(|node| Some((node.clone(), of(node)?))).collect()
    }

    /// Sends a machine its shard on the connection on which it waits, or comes to wait within `patience`; when that breaks
    /// off, on the next. `progress` hears how many bytes are there, `say` what people may want to know.
    pub fn send(
        &self,
        node: &str,
        shard: SignedShard<'_>,
        patience: Duration,
        (mut progress, say): (impl FnMut(u64), impl Fn(&str)),
    ) -> Result<(), FleetError> {
        let problem = "it did not connect in time; is `cascadia worker start` running there?".to_owned();
        let mut failed = FleetError::Push { node: node.to_owned(), file: shard.shard.file.clone(), problem };
        for attempt in 1..=ATTEMPTS {
            let Some(mut pending_worker) = self.take(node, self.clock().now() + patience) else { return Err(failed) };
            let sent = pending_worker.send(shard, &mut progress);
            self.ended(node);
            match sent {
                Ok(()) => {
                    say(&format!("{node} holds {} ({})", shard.shard.file, shard.shard.digest.short()));
                    return Ok(());
                }
                Err(error) => failed = error,
            }
            if attempt < ATTEMPTS {
                say(&format!("{failed}; it is tried again when the machine connects"));
            }
        }
        Err(failed)
    }

    /// A machine that waits for a shard.
    fn take(&self, node: &str, deadline: Instant) -> Option<PendingWorker> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(pending_worker) = waiting.take(node) {
                return Some(pending_worker);
            }
            if self.clock().now() >= deadline {
                return None;
            }
            waiting = self.waiting.wait(waiting, Some(deadline));
        }
    }

    /// Waits until each of these stages has a worker; an error as soon as one is not admitted, or at `deadline`.
    pub fn fill(
        &self,
        model_workers: &Arc<ModelWorkers>,
        stages: &[usize],
        deadline: Instant,
    ) -> Result<(), FleetError> {
        let refused = |problem: String| FleetError::NotReady { model: model_workers.manifest().name.clone(), problem };
        loop {
            let missing: Vec<usize> =
                stages.iter().copied().filter(|stage| model_workers.stages()[*stage].count() == 0).collect();
            if missing.is_empty() {
                return Ok(());
            }
            let open = self.models();
            let problem = open
                .iter()
                .find(|open| Arc::ptr_eq(&open.model_workers, model_workers))
                .and_then(|open| open.problem.clone());
            drop(open);
            if let Some(problem) = problem {
                return Err(refused(problem));
            }
            if self.clock().now() >= deadline {
                let missing: Vec<String> = missing.iter().map(|stage| format!("stage {stage}")).collect();
                return Err(refused(format!("no machine came for {}; {}", missing.join(", "), self.holdings())));
            }
            self.clock().sleep(GLANCE);
        }
    }

    /// Pings all workers that wait, and releases those that do not answer or no longer belong to the fleet; the others
    /// know that they are needed. To be called well within their lease.
    pub fn sweep(&self, patience: Duration, belongs: impl Fn(&str) -> bool) {
        let models: Vec<_> = self.models().iter().map(|open| Arc::clone(&open.model_workers)).collect();
        models.iter().flat_map(|model_workers| model_workers.stages()).for_each(|workers| workers.sweep(patience));
        let nodes: Vec<String> = self.waiting.lock().idle.keys().cloned().collect();
        for node in nodes {
            let Some(mut pending_worker) = self.waiting.lock().take(&node) else { continue };
            match belongs(&node) && pending_worker.is_alive(patience) {
                true => self.keep(pending_worker),
                false => self.ended(&node),
            }
        }
    }

    /// What every machine holds, as far as it has said so.
    pub fn holdings(&self) -> String {
        let mut held = lock(&self.held).clone();
        for node in self.connected() {
            held.entry(node).or_insert_with(|| "no shard".to_owned());
        }
        let held: Vec<String> = held.iter().map(|(node, holds)| format!("{node} holds {holds}")).collect();
        if held.is_empty() { "no machine has connected".to_owned() } else { held.join(", ") }
    }

    fn models(&self) -> MutexGuard<'_, Vec<OpenModel>> {
        lock(&self.open)
    }
}

/// Nothing behind these locks can be left half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
