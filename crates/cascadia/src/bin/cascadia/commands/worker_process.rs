//! The hands of a worker: one for each shard it holds, and one that waits for the next shard to come.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cascadia_fleet::link::LinkError;
use cascadia_fleet::{
    Availability, Digest, FleetError, Hello, Identity, MachineSpeed, Offer, Order, ShardOptions, Store, TcpLink,
    Witnesses, WorkerStage, greet_measured, look_around, open_shard,
};

use crate::fleet_home::{FleetHome, WorkerSettings};
use crate::output::remark;

/// The longest pause between two attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// The same for a shard that was refused so often in a row that it is not needed soon.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);
const ENOUGH_REFUSALS: u32 = 3;

/// How long to listen for where the coordinator is now.
const LOOKING: Duration = Duration::from_secs(1);

/// Shards that a worker holds at a time: those it computes, and those that will take their place.
const MOST_HANDS: usize = 4;

/// All hands of a worker. Each has a connection of its own.
pub(crate) struct WorkerProcess {
    pub(crate) home: FleetHome,
    pub(crate) identity: Identity,
    pub(crate) addresses: Vec<String>,
    pub(crate) settings: Mutex<WorkerSettings>,
    pub(crate) store: Store,
    pub(crate) manners: WorkerOptions,
    hands: Mutex<ShardSlots>,
    /// A shard has come, for which nobody should pause.
    added: Condvar,
    said: Mutex<String>,
}

/// How all hands work.
pub(crate) struct WorkerOptions {
    /// What a coordinator that plans is told.
    pub(crate) speed: MachineSpeed,
    /// What is remembered of its audit log.
    pub(crate) witnesses: Arc<Witnesses>,
    /// Whether the owner lends the machine now.
    pub(crate) turn: Arc<Availability>,
    /// How a shard is run; made anew for each, because two that compute at a time need threads of their own.
    pub(crate) options: Box<dyn Fn() -> ShardOptions + Send + Sync>,
}

impl WorkerOptions {
    /// Opens a shard.
    pub(crate) fn open(&self, path: &Path) -> Result<WorkerStage, FleetError> {
        let stage = open_shard(path, (self.options)())?;
        Ok(stage.with_witnesses(Arc::clone(&self.witnesses)).with_turn(Arc::clone(&self.turn)))
    }
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
    works: bool,
}

/// How a connection ended.
struct Ended {
    said: String,
    /// The coordinator has no use for the shard.
    refused: bool,
}

impl Ended {
    /// It was not the coordinator's wish.
    fn unasked(said: String) -> Ended {
        Ended { said, refused: false }
    }
}

impl WorkerProcess {
    /// A worker without any shard.
    pub(crate) fn new(
        (home, settings): (FleetHome, WorkerSettings),
        (identity, addresses): (Identity, Vec<String>),
        store: Store,
        manners: WorkerOptions,
    ) -> Arc<WorkerProcess> {
        Arc::new(WorkerProcess {
            home,
            identity,
            addresses,
            settings: Mutex::new(settings),
            store,
            manners,
            hands: Mutex::default(),
            added: Condvar::new(),
            said: Mutex::default(),
        })
    }

    /// Holds a shard ready from now on, on a thread of its own.
    pub(crate) fn add(self: &Arc<WorkerProcess>, stage: WorkerStage, bytes: u64) {
        let Some(shard) = stage.hello.shard else { return };
        let mut hands = self.hands();
        let number = hands.next;
        hands.next += 1;
        self.added.notify_all();
        // One that has not found work yet finds this one.
        if hands.all.iter().any(|hand| hand.shard == shard && !hand.works) {
            return;
        }
        hands.all.push(ShardSlot { number, shard, bytes, works: false });
        drop(hands);
        let crew = Arc::clone(self);
        thread::spawn(move || crew.connect_again(Some((number, stage))));
    }

    /// Waits for shards that the coordinator sends, until the program ends.
    pub(crate) fn wait(self: &Arc<WorkerProcess>) {
        self.connect_again(None);
    }

    /// Works for the coordinator, and connects again whenever the connection is lost, for as long as there is a use.
    fn connect_again(self: &Arc<WorkerProcess>, mut hand: Option<(u64, WorkerStage)>) {
        let (mut pause, mut refusals) = (SHORTEST_PAUSE, 0_u32);
        let coordinator = self.settings().coordinator;
        loop {
            let (begin, next) = (Instant::now(), self.hands().next);
            let ended = match self.manners.turn.reason() {
                Some(reason) => Ended::unasked(format!("this machine takes no part now, because {reason}")),
                None => match self.dial(coordinator) {
                    Ok(mut link) => self.serve(&mut link, hand.as_mut()),
                    Err(error) => Ended::unasked(format!("cannot reach the coordinator: {error}")),
                },
            };
            self.say(&ended.said);
            if hand.as_ref().is_some_and(|(number, _)| self.lets_go(*number, &ended)) {
                return;
            }
            refusals = if ended.refused { refusals.saturating_add(1) } else { 0 };
            if let Some((_, stage)) = hand.as_mut().filter(|_| refusals == ENOUGH_REFUSALS) {
                stage.unload();
            }
            let longest = if refusals < ENOUGH_REFUSALS { LONGEST_PAUSE } else { REFUSED_PAUSE };
            // A connection that held for a while was a good one.
            let held = begin.elapsed() > LONGEST_PAUSE && !ended.refused;
            pause = if held { SHORTEST_PAUSE } else { (2 * pause).min(longest) };
            drop(self.added.wait_timeout_while(self.hands(), pause, |hands| hands.next == next));
        }
    }

    /// Connects to the coordinator: where it was, else where somebody in the local network says that it is now.
    fn dial(&self, coordinator: Digest) -> Result<TcpLink, LinkError> {
        TcpLink::dial(&self.addresses, &self.identity, coordinator).or_else(|error| {
            // One that was on this machine cannot have moved.
            let moved = !self.addresses.iter().all(|address| is_here(address));
            let heard = if moved { look_around(coordinator, LOOKING) } else { Vec::new() };
            TcpLink::dial(&heard, &self.identity, coordinator).map_err(|_| error)
        })
    }

    /// Does what the coordinator wants on one connection; says how that ended.
    fn serve(self: &Arc<WorkerProcess>, link: &mut TcpLink, hand: Option<&mut (u64, WorkerStage)>) -> Ended {
        let hello = match &hand {
            Some((_, stage)) => stage.hello.clone(),
            None => Hello { program: env!("CARGO_PKG_VERSION").to_owned(), shard: None },
        };
        let goes_on = Ended::unasked;
        match (greet_measured(link, &hello, (&self.manners.speed, &self.manners.turn)), hand) {
            (Ok(Order::Load { epoch, limits }), Some((number, stage))) => {
                remark(&format!("{} computes for the coordinator.", self.settings().node));
                self.change(*number, |hand| hand.works = true);
                let ended = stage.work(link, epoch, limits);
                self.change(*number, |hand| hand.works = false);
                goes_on(match self.manners.turn.reason() {
                    Some(_) => ended.to_string(),
                    None => format!("the coordinator is gone: {ended}"),
                })
            }
            (Ok(Order::Load { .. }), None) => goes_on("the coordinator wants a stage that is not here".to_owned()),
            (Ok(Order::Take(offer)), _) => match self.take(link, &offer) {
                Ok(()) => goes_on(format!("received shard {}", offer.digest.short())),
                Err(error) => goes_on(format!("the coordinator sent a shard: {error}")),
            },
            // Whoever only waits has not been told anything.
            (Err(LinkError::TimedOut | LinkError::Closed), None) => goes_on(String::new()),
            (Err(error), _) => Ended {
                refused: matches!(error, LinkError::Broken(_)),
                said: format!("the coordinator does not take this machine: {error}"),
            },
        }
    }

    /// Takes the shard that is offered, and holds it ready.
    fn take(self: &Arc<WorkerProcess>, link: &mut TcpLink, offer: &Offer) -> Result<(), LinkError> {
        if let Err(problem) = self.make_place(offer, (self.manners.options)().memory) {
            return Err(Offer::refuse(link, problem));
        }
        let keep: Vec<Digest> = self.hands().all.iter().map(|hand| hand.shard).collect();
        let open = |path: &Path| {
            let opened = self.manners.open(path);
            let stage = opened.map_err(|error| format!("it cannot use shard {}: {error}", offer.digest.short()))?;
            // Before the coordinator hears that it is here: it has to be so after a restart too.
            self.remember(Some(offer.digest)).map(|()| stage)
        };
        let stage = self.store.take(link, offer, &keep, open)?;
        self.add(stage, offer.bytes);
        Ok(())
    }

    /// Makes sure that one more shard may be held, or says why not.
    fn make_place(&self, offer: &Offer, memory: Option<u64>) -> Result<(), String> {
        let mut hands = self.hands();
        let computed: u64 = hands.all.iter().filter(|hand| hand.works).map(|hand| hand.bytes).sum();
        let together = computed.saturating_add(offer.bytes);
        if let Some(memory) = memory.filter(|memory| computed > 0 && together > *memory) {
            return Err(format!(
                "two shards of {together} bytes beside each other are more than the {memory} bytes of \
                memory its owner allows; end the server first, then push"
            ));
        }
        if hands.all.len() >= MOST_HANDS {
            match hands.all.iter().position(|hand| !hand.works) {
                Some(unused) => drop(hands.all.remove(unused)),
                None => return Err(format!("it computes {MOST_HANDS} shards already")),
            }
        }
        Ok(())
    }

    /// Whether nobody needs this hand any more: its shard was refused while another one is computed, it is computed on
    /// another connection, or it had to make place.
    fn lets_go(&self, number: u64, ended: &Ended) -> bool {
        let mut hands = self.hands();
        let Some(at) = hands.all.iter().position(|hand| hand.number == number) else { return true };
        let shard = hands.all[at].shard;
        let replaces =
            |other: &ShardSlot| other.number != number && other.works && (ended.refused || other.shard == shard);
        if !hands.all.iter().any(replaces) {
            return false;
        }
        hands.all.remove(at);
        drop(hands);
        remark(&format!("shard {} is no longer needed", shard.short()));
        // Begun with all the same, it is refused again.
        self.remember(None).unwrap_or_else(|problem| self.say(&problem));
        true
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut ShardSlot)) {
        // One that had to make place is not there any more.
        if let Some(hand) = self.hands().all.iter_mut().find(|hand| hand.number == number) {
            change(hand);
        }
    }

    /// Writes down which shards to begin with next time: those that are held, and one that comes.
    fn remember(&self, coming: Option<Digest>) -> Result<(), String> {
        let mut shards: Vec<Digest> = self.hands().all.iter().map(|hand| hand.shard).collect();
        shards.dedup();
        shards.extend(coming.filter(|coming| !shards.contains(coming)));
        let mut settings = self.settings();
        settings.shards = shards;
        let written = self.home.set_worker(&settings);
        written.map_err(|error| format!("cannot write down which shards are here: {error:#}"))
    }

    /// Says what has not just been said.
    fn say(&self, text: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if !text.is_empty() && *said != text {
            remark(text);
            text.clone_into(&mut said);
        }
    }

    fn hands(&self) -> MutexGuard<'_, ShardSlots> {
        self.hands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settings(&self) -> MutexGuard<'_, WorkerSettings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an address is one of this machine itself.
fn is_here(address: &str) -> bool {
    address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
}
