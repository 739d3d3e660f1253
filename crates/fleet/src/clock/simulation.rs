//! A clock that jumps: threads take turns, and time passes when all of them wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::Clock;

/// When simulated records are written, in seconds since 1970.
const UNIX_BEGIN: u64 = 1_700_000_000;
/// Turns after which a simulation is taken for one that never ends.
const MOST_TURNS: u64 = 20_000_000;
/// The thread that began the simulation.
const MAIN: usize = 0;

/// A run in simulated time.
pub struct Simulation {
    clock: Clock,
    scheduler: Arc<Scheduler>,
}

/// How a run went: two runs of one seed are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// How much time has passed.
    pub time: Duration,
    /// How often another thread had its turn.
    pub turns: u64,
    /// A digest of which one had it when.
    pub order: u64,
}

impl Simulation {
    /// Begins a run on this thread. Which of the threads that could run has its turn depends on the seed.
    #[expect(clippy::disallowed_methods, reason = "simulated time has to begin somewhere")]
    pub fn new(seed: u64) -> Simulation {
        let main = Entry { thread: thread::current(), status: Status::Ready };
        let trace = Trace { time: Duration::ZERO, turns: 0, order: 0 };
        let state = State { trace, chance: seed, tasks: vec![main], failure: None, wall: 0 };
        let scheduler =
            Arc::new(Scheduler { begin: Instant::now(), running: AtomicUsize::new(MAIN), state: Mutex::new(state) });
        Simulation { clock: Clock(Some(Arc::clone(&scheduler))), scheduler }
    }

    /// Its clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Sets the wall clock forward by so many seconds, or back. Nothing is woken by that.
    pub fn set_wall_clock(&self, seconds: i64) {
        self.scheduler.lock().wall += seconds;
    }

    /// Lets all other threads come to their end, in as much simulated time as they need, and says how the run went.
    ///
    /// # Panics
    ///
    /// If one of them never ends, or if all wait for each other.
    pub fn finish(self) -> Trace {
        while self.scheduler.lock().tasks[MAIN + 1..].iter().any(|task| task.status != Status::Ended) {
            self.scheduler.wait(Some(ENDED), None);
        }
        self.scheduler.lock().trace
    }
}

/// Whoever waits for this is woken when a thread ends. No monitor has this address.
const ENDED: usize = 0;

/// Gives threads their turns.
pub(super) struct Scheduler {
    begin: Instant,
    running: AtomicUsize,
    state: Mutex<State>,
}

struct State {
    trace: Trace,
    chance: u64,
    tasks: Vec<Entry>,
    /// Why the run cannot continue.
    failure: Option<&'static str>,
    /// By how many seconds the wall clock was set.
    wall: i64,
}

struct Entry {
    thread: Thread,
    status: Status,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ready,
    /// For a monitor, for a time since the beginning, or for whichever comes first.
    Waits {
        monitor: Option<usize>,
        until: Option<Duration>,
    },
    Ended,
}

/// The turns of one thread.
pub(super) struct Turn {
    scheduler: Arc<Scheduler>,
    task: usize,
}

impl Turn {
    /// Runs something that does not panic when the thread first has its turn, and passes the turn on at its end.
    pub(super) fn run(self, body: impl FnOnce()) {
        self.scheduler.await_turn(self.task);
        body();
        let mut state = self.scheduler.lock();
        state.tasks[self.task].status = Status::Ended;
        state.wake(ENDED);
        self.scheduler.pass_on(state);
    }
}

impl Scheduler {
    pub(super) fn now(&self) -> Instant {
        self.begin + self.lock().trace.time
    }

    pub(super) fn unix_seconds(&self) -> u64 {
        let state = self.lock();
        (UNIX_BEGIN + state.trace.time.as_secs()).saturating_add_signed(state.wall)
    }

    /// Starts a thread, which waits for its turn.
    pub(super) fn start(self: &Arc<Scheduler>, spawn: impl FnOnce(Turn) -> Thread) {
        let task = self.lock().tasks.len();
        let thread = spawn(Turn { scheduler: Arc::clone(self), task });
        self.lock().tasks.push(Entry { thread, status: Status::Ready });
    }

    /// Lets others run until somebody notifies this monitor, or until `deadline`.
    pub(super) fn wait(&self, monitor: Option<usize>, deadline: Option<Instant>) {
        let until = deadline.map(|deadline| deadline.saturating_duration_since(self.begin));
        let task = self.running.load(Ordering::Acquire);
        let mut state = self.lock();
        state.tasks[task].status = Status::Waits { monitor, until };
        self.pass_on(state);
        self.await_turn(task);
    }

    pub(super) fn notify(&self, monitor: usize) {
        self.lock().wake(monitor);
    }

    fn pass_on(&self, mut state: MutexGuard<'_, State>) {
        let next = state.next();
        self.running.store(next, Ordering::Release);
        let thread = state.tasks[next].thread.clone();
        drop(state);
        thread.unpark();
    }

    fn await_turn(&self, task: usize) {
        while self.running.load(Ordering::Acquire) != task {
            thread::park();
        }
        if task == MAIN
            && let Some(failure) = self.lock().failure
        {
            panic!("{failure}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wake(&mut self, monitor: usize) {
        let waits = |status: &Status| matches!(status, Status::Waits { monitor: Some(other), .. } if *other == monitor);
        self.tasks.iter_mut().filter(|task| waits(&task.status)).for_each(|task| task.status = Status::Ready);
    }

    /// Whose turn it is: one of those that can run, or the first whose time comes.
    fn next(&mut self) -> usize {
        let until = |task: &Entry| match task.status {
            Status::Waits { until, .. } => until,
            Status::Ready | Status::Ended => None,
        };
        if !self.tasks.iter().any(|task| task.status == Status::Ready)
            && let Some(first) = self.tasks.iter().filter_map(until).min()
        {
            self.trace.time = self.trace.time.max(first);
        }
        let now = self.trace.time;
        let due = |task: &&mut Entry| until(task).is_some_and(|until| until <= now);
        self.tasks.iter_mut().filter(due).for_each(|task| task.status = Status::Ready);
        let ready: Vec<usize> = (0..self.tasks.len()).filter(|at| self.tasks[*at].status == Status::Ready).collect();
        self.trace.turns += 1;
        if ready.is_empty() || self.trace.turns > MOST_TURNS {
            let all_wait = "all threads of the simulation wait for each other";
            self.failure = Some(if ready.is_empty() { all_wait } else { "the simulation never ends" });
            return MAIN;
        }
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let next = ready[(self.chance >> 33) as usize % ready.len()];
        let event = self.trace.time.as_nanos() as u64 ^ (next as u64).rotate_left(48);
        self.trace.order = (self.trace.order ^ event).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Monitor, RecvError, channel};

    #[test]
    fn an_hour_takes_no_time_and_a_seed_gives_one_order() {
        let run = |seed: u64| {
            let simulation = Simulation::new(seed);
            let (clock, begin) = (simulation.clock().clone(), simulation.clock().now());
            let order = Arc::new(Monitor::new(&clock, Vec::new()));
            let sleeper = |(name, minutes): (usize, u64)| {
                let (clock, order) = (clock.clone(), Arc::clone(&order));
                clock.clone().spawn(move || {
                    clock.sleep(Duration::from_secs(60 * minutes));
                    order.lock().push(name);
                })
            };
            let sleepers: Vec<_> = [60, 20, 40, 20, 20].into_iter().enumerate().map(sleeper).collect();
            sleepers.into_iter().for_each(|sleeper| sleeper.join(None).expect("it ends"));
            assert_eq!(clock.since(begin), Duration::from_secs(3600));
            let order = order.lock().clone();
            assert_eq!(order[3..], [2, 0]);
            (order, simulation.finish())
        };
        assert_eq!(run(7), run(7));
        let orders: std::collections::BTreeSet<_> = (0..64).map(|seed| run(seed).0).collect();
        assert_eq!(orders.len(), 6, "all orders of the three that sleep equally long");
    }

    #[test]
    fn a_channel_waits_until_something_comes_or_time_is_up() {
        let simulation = Simulation::new(1);
        let clock = simulation.clock().clone();
        let (sender, receiver) = channel(&clock, 1);
        let begin = clock.now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let slow = clock.clone();
        let sends = clock.spawn(move || {
            slow.sleep(Duration::from_secs(10));
            assert!(sender.try_send(1) && !sender.try_send(2) && sender.send(3));
        });
        assert_eq!(receiver.receive(Some(at(9))), Err(RecvError::TimedOut));
        assert_eq!((receiver.receive(Some(at(60))), clock.now()), (Ok(1), at(10)));
        assert_eq!((receiver.receive(None), receiver.receive(None)), (Ok(3), Err(RecvError::Disconnected)));
        assert_eq!((sends.join(None), clock.now()), (Some(()), at(10)));
        simulation.finish();
    }

    #[test]
    #[should_panic(expected = "wait for each other")]
    fn threads_that_wait_for_each_other_are_noticed() {
        let simulation = Simulation::new(1);
        let monitor = Monitor::new(simulation.clock(), ());
        drop(monitor.wait(monitor.lock(), None));
    }
}
