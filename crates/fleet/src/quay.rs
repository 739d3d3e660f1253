//! Where machines arrive while models come and go: each finds the harbour its shard belongs to, or waits to be sent one.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::dock::{Harbour, refuse};
use crate::guest::Guest;
use crate::link::{Link, LinkError};
use crate::places::Places;
use crate::{FleetError, LinkSpeed, MachineSpeed, Shard};

/// A look at whether all have come.
const GLANCE: Duration = Duration::from_millis(50);
/// How often a machine is sent its shard: a connection may have ended before anything was sent on it.
const ATTEMPTS: u32 = 3;

/// The harbours of a coordinator. The first that was opened is the one that serves; another fills up beside it until
/// it takes its place.
#[derive(Default)]
pub struct Quay {
    open: Mutex<Vec<Open>>,
    /// Machines that wait for a shard, each on its latest connection.
    waiting: Mutex<HashMap<String, Guest>>,
    arrived: Condvar,
    /// For those that have not docked yet.
    arriving: Places,
    /// What each machine has said that it holds, for people.
    held: Mutex<BTreeMap<String, String>>,
}

struct Open {
    harbour: Arc<Harbour>,
    /// Why a machine with one of its shards could not dock.
    problem: Option<String>,
}

/// What becomes of a machine that has connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Berth {
    /// It is ready to run this stage.
    Stage(usize),
    /// It waits for a shard.
    Waits,
    /// No model is there yet, or there is none for a moment; it comes again.
    Early,
}

impl Quay {
    /// Lets machines dock at a harbour from now on.
    pub fn open(&self, harbour: &Arc<Harbour>) {
        self.harbours().push(Open { harbour: Arc::clone(harbour), problem: None });
    }

    /// Lets no more machines dock there. The connections of those that have end with the harbour.
    pub fn close(&self, harbour: &Arc<Harbour>) {
        self.harbours().retain(|open| !Arc::ptr_eq(&open.harbour, harbour));
    }

    /// Talks to a machine that has connected: it docks, waits for a shard, or hears why it cannot.
    pub fn admit(&self, link: Box<dyn Link>, node: &str) -> Result<Berth, LinkError> {
        let Some(_place) = self.arriving.take() else {
            return Err(LinkError::Broken("too many machines come at once".to_owned()));
        };
        let guest = Guest::hear(link, node)?;
        let Some(shard) = guest.hello.shard else { return self.wait(guest) };
        let harbour = {
            let open = self.harbours();
            // The newest first: who holds a shard of two models is sent it anew for the second.
            let holding = open.iter().rev().filter(|open| open.harbour.stage_with(shard).is_some());
            let lacking = |open: &&Open| {
                open.harbour
                    .stage_with(shard)
                    .is_some_and(|stage| !open.harbour.docks()[stage].names().iter().any(|name| name == node))
            };
            let chosen = holding.clone().find(lacking).or_else(|| holding.clone().next()).or(open.first());
            chosen.map(|open| Arc::clone(&open.harbour))
        };
        let Some(harbour) = harbour else { return Ok(Berth::Early) };
        let docked = harbour.dock(guest.link, &guest.hello, node);
        let holds = match harbour.stage_with(shard) {
            Some(stage) => format!("stage {stage} of {}", harbour.manifest().name),
            None => format!("shard {}", shard.short()),
        };
        lock(&self.held).insert(node.to_owned(), holds);
        if let Err(error) = &docked {
            let mut open = self.harbours();
            let concerned = open.iter_mut().find(|open| Arc::ptr_eq(&open.harbour, &harbour));
            if let Some(open) = concerned.filter(|_| harbour.stage_with(shard).is_some()) {
                open.problem = Some(format!("{node}: {error}"));
            }
        }
        docked.map(Berth::Stage)
    }

    fn wait(&self, mut guest: Guest) -> Result<Berth, LinkError> {
        let first = self.harbours().first().map(|open| Arc::clone(&open.harbour));
        let fits = |harbour: Arc<Harbour>| harbour.check_program(&guest.hello.program, &guest.node).err();
        if let Some(problem) = first.and_then(fits) {
            return Err(refuse(&mut *guest.link, problem));
        }
        lock(&self.waiting).insert(guest.node.clone(), guest);
        self.arrived.notify_all();
        Ok(Berth::Waits)
    }

    /// Lets a machine wait on, unless it has come again meanwhile.
    fn keep(&self, guest: Guest) {
        lock(&self.waiting).entry(guest.node.clone()).or_insert(guest);
        self.arrived.notify_all();
    }

    /// What machines have measured of themselves, and the ways to them: of all of these that wait for a shard, or come to
    /// do so before `deadline`.
    pub fn measure(&self, nodes: &[String], deadline: Instant) -> BTreeMap<String, (MachineSpeed, LinkSpeed)> {
        let measure = |mut guest: Guest| {
            let measured = guest.measure().ok()?;
            self.keep(guest);
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
        (folder, shard): (&Path, &Shard),
        patience: Duration,
        (mut progress, say): (impl FnMut(u64), impl Fn(&str)),
    ) -> Result<(), FleetError> {
        let problem = "it did not connect in time; is `cascadia worker start` running there?".to_owned();
        let mut failed = FleetError::Push { node: node.to_owned(), file: shard.file.clone(), problem };
        for attempt in 1..=ATTEMPTS {
            let Some(mut guest) = self.take(node, Instant::now() + patience) else { return Err(failed) };
            match guest.send((folder, shard), &mut progress) {
                Ok(()) => {
                    say(&format!("{node} holds {} ({})", shard.file, shard.digest.short()));
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
    fn take(&self, node: &str, deadline: Instant) -> Option<Guest> {
        let mut waiting = lock(&self.waiting);
        loop {
            if let Some(guest) = waiting.remove(node) {
                return Some(guest);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            waiting = self.arrived.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until a machine has docked for each of these stages; an error as soon as one cannot, or at `deadline`.
    pub fn fill(&self, harbour: &Arc<Harbour>, stages: &[usize], deadline: Instant) -> Result<(), FleetError> {
        let refused = |problem: String| FleetError::NotReady { model: harbour.manifest().name.clone(), problem };
        loop {
            let missing: Vec<usize> =
                stages.iter().copied().filter(|stage| harbour.docks()[*stage].count() == 0).collect();
            if missing.is_empty() {
                return Ok(());
            }
            let open = self.harbours();
            let problem =
                open.iter().find(|open| Arc::ptr_eq(&open.harbour, harbour)).and_then(|open| open.problem.clone());
            drop(open);
            if let Some(problem) = problem {
                return Err(refused(problem));
            }
            if Instant::now() >= deadline {
                let missing: Vec<String> = missing.iter().map(|stage| format!("stage {stage}")).collect();
                return Err(refused(format!("no machine came for {}; {}", missing.join(", "), self.holdings())));
            }
            thread::sleep(GLANCE);
        }
    }

    /// Lets go of machines that give no sign of life, docked or waiting, and of those that wait and no longer belong to
    /// the fleet; the others know that they are needed. To be called well within their lease.
    pub fn sweep(&self, patience: Duration, belongs: impl Fn(&str) -> bool) {
        let harbours: Vec<_> = self.harbours().iter().map(|open| Arc::clone(&open.harbour)).collect();
        harbours.iter().flat_map(|harbour| harbour.docks()).for_each(|dock| dock.sweep(patience));
        let nodes: Vec<String> = lock(&self.waiting).keys().cloned().collect();
        for node in nodes {
            let Some(mut guest) = lock(&self.waiting).remove(&node) else { continue };
            if belongs(&node) && guest.is_there(patience) {
                self.keep(guest);
            }
        }
    }

    /// What every machine holds, as far as it has said so.
    pub fn holdings(&self) -> String {
        let mut held = lock(&self.held).clone();
        for node in lock(&self.waiting).keys() {
            held.entry(node.clone()).or_insert_with(|| "no shard".to_owned());
        }
        let held: Vec<String> = held.iter().map(|(node, holds)| format!("{node} holds {holds}")).collect();
        if held.is_empty() { "no machine has connected".to_owned() } else { held.join(", ") }
    }

    fn harbours(&self) -> MutexGuard<'_, Vec<Open>> {
        lock(&self.open)
    }
}

/// Nothing behind these locks can be left half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
