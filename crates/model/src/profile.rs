//! Where the time goes: counters per kind of operation and per layer, always on.
//!
//! One thread runs a step and marks the end of each operation; what passed since the mark before, time and work, belongs
//! to it. So an operation costs one look at the clock and a few plain stores. Other threads may read at any time.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Layers that are told apart; the last place counts all beyond.
const LAYERS: usize = 256;
/// Before the layers comes the place of the model's two ends.
const PLACES: usize = LAYERS + 1;

macro_rules! kinds {
    ($($kind:ident: $name:literal,)*) => {
        /// Kinds of operations.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind { $(#[doc = $name] $kind,)* }

        impl Kind {
            /// Every kind, in the order of a step.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind,)*];

            /// What reports call it.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    Embedding: "embedding",
    WaitForWeights: "wait for weights",
    Norm: "norm",
    AltUp: "altup",
    Laurel: "low rank",
    AttentionInput: "attention in (q, k, v)",
    Rope: "rope",
    CacheWrite: "cache write",
    Attention: "attention",
    AttentionOutput: "attention out",
    Router: "choice of experts",
    FeedForwardInput: "feed-forward in",
    Activation: "activation",
    FeedForwardOutput: "feed-forward out",
    Add: "add",
    Output: "output matrix",
}

/// Where in the model an operation runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Tokens to hidden states, or hidden states to logits.
    Ends,
    /// A layer, counted from the model's first.
    Layer(u32),
}

/// What operations took and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Times the operation ran.
    pub calls: u64,
    /// Time it took.
    pub nanoseconds: u64,
    /// Bytes of weights or cache it read.
    pub bytes: u64,
    /// Multiplications and additions.
    pub operations: u64,
}

/// One operation of a trace.
#[derive(Clone, Copy, Debug)]
pub struct TraceEvent {
    /// Where it ran.
    pub place: Place,
    /// What ran.
    pub kind: Kind,
    /// When it began, counted from the profile's start.
    pub begin_nanoseconds: u64,
    /// What it took and did.
    pub work: Work,
}

/// Counters of one model.
pub struct Profile {
    start: Instant,
    last: AtomicU64,
    place: AtomicUsize,
    /// Work announced since the last mark.
    bytes: AtomicU64,
    operations: AtomicU64,
    counters: Vec<Counter>,
    trace: Option<Trace>,
}

#[derive(Default)]
struct Counter {
    calls: AtomicU64,
    nanoseconds: AtomicU64,
    bytes: AtomicU64,
    operations: AtomicU64,
}

/// Single operations, as long as there is room.
struct Trace {
    events: Mutex<Vec<TraceEvent>>,
}

impl Profile {
    /// Counters at zero, with room for a trace of `events` operations.
    pub fn new(events: usize) -> Profile {
        Profile {
            start: Instant::now(),
            last: AtomicU64::new(0),
            place: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            counters: (0..PLACES * Kind::ALL.len()).map(|_| Counter::default()).collect(),
            trace: (events > 0).then(|| Trace { events: Mutex::new(Vec::with_capacity(events)) }),
        }
    }

    /// Operations from now on run at `place`; what passed since the last mark belongs to nobody.
    pub fn begin(&self, place: Place) {
        let index = match place {
            Place::Ends => 0,
            Place::Layer(layer) => (layer as usize + 1).min(LAYERS),
        };
        self.place.store(index, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        self.operations.store(0, Ordering::Relaxed);
        self.last.store(self.now(), Ordering::Relaxed);
    }

    /// Announces what the running operation reads and computes.
    pub fn work(&self, bytes: u64, operations: u64) {
        add(&self.bytes, bytes);
        add(&self.operations, operations);
    }

    /// What passed and was announced since the last mark was one operation of this kind.
    pub fn mark(&self, kind: Kind) {
        let now = self.now();
        let begin = self.last.load(Ordering::Relaxed);
        let work = Work {
            calls: 1,
            nanoseconds: now.saturating_sub(begin),
            bytes: self.bytes.load(Ordering::Relaxed),
            operations: self.operations.load(Ordering::Relaxed),
        };
        self.last.store(now, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        self.operations.store(0, Ordering::Relaxed);
        let place = self.place.load(Ordering::Relaxed);
        self.counters[place * Kind::ALL.len() + kind as usize].add(work);
        if let Some(trace) = &self.trace {
            trace.push(TraceEvent { place: place_at(place), kind, begin_nanoseconds: begin, work });
        }
    }

    /// Every counter that is not zero, by place and then by kind; all are zero afterwards.
    pub fn take(&self) -> Vec<(Place, Kind, Work)> {
        let rows = self.counters.chunks(Kind::ALL.len()).enumerate().flat_map(|(place, counters)| {
            counters.iter().zip(Kind::ALL).map(move |(counter, &kind)| (place_at(place), kind, counter.take()))
        });
        rows.filter(|(_, _, work)| work.calls > 0).collect()
    }

    /// The operations traced so far; empty unless the profile was made with room for them.
    pub fn trace(&self) -> Vec<TraceEvent> {
        let events = |trace: &Trace| trace.events.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.trace.as_ref().map(events).unwrap_or_default()
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

impl Default for Profile {
    fn default() -> Profile {
        Profile::new(0)
    }
}

impl Work {
    /// The sum of two.
    pub fn plus(self, other: Work) -> Work {
        Work {
            calls: self.calls + other.calls,
            nanoseconds: self.nanoseconds + other.nanoseconds,
            bytes: self.bytes + other.bytes,
            operations: self.operations + other.operations,
        }
    }
}

impl Counter {
    fn add(&self, work: Work) {
        add(&self.calls, work.calls);
        add(&self.nanoseconds, work.nanoseconds);
        add(&self.bytes, work.bytes);
        add(&self.operations, work.operations);
    }

    fn take(&self) -> Work {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        Work {
            calls: take(&self.calls),
            nanoseconds: take(&self.nanoseconds),
            bytes: take(&self.bytes),
            operations: take(&self.operations),
        }
    }
}

impl Trace {
    fn push(&self, event: TraceEvent) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() < events.capacity() {
            events.push(event);
        }
    }
}

/// Only one thread writes, so a load and a store do; a locked addition would cost ten times as much.
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

fn place_at(index: usize) -> Place {
    match index {
        0 => Place::Ends,
        layer => Place::Layer(layer as u32 - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_work_belong_to_the_mark_that_follows() {
        let profile = Profile::new(3);
        profile.begin(Place::Layer(1));
        profile.work(10, 20);
        profile.work(1, 2);
        profile.mark(Kind::Attention);
        profile.mark(Kind::Add);
        profile.work(1000, 1000);
        profile.begin(Place::Ends);
        profile.work(5, 6);
        profile.mark(Kind::Output);
        profile.mark(Kind::Output);
        let work = |rows: &[(Place, Kind, Work)]| -> Vec<_> {
            rows.iter().map(|(place, kind, work)| (*place, *kind, work.calls, work.bytes, work.operations)).collect()
        };
        let rows = profile.take();
        assert_eq!(
            work(&rows),
            [
                (Place::Ends, Kind::Output, 2, 5, 6),
                (Place::Layer(1), Kind::Attention, 1, 11, 22),
                (Place::Layer(1), Kind::Add, 1, 0, 0),
            ]
        );
        assert_eq!(profile.take(), [], "taking empties the counters");
        let trace = profile.trace();
        assert_eq!(trace.len(), 3, "a trace ends when its room does");
        assert!(trace.windows(2).all(|pair| pair[0].begin_nanoseconds <= pair[1].begin_nanoseconds));
    }

    #[test]
    fn layers_beyond_the_last_place_share_it() {
        let profile = Profile::default();
        for layer in [LAYERS as u32 - 1, LAYERS as u32, u32::MAX] {
            profile.begin(Place::Layer(layer));
            profile.mark(Kind::Norm);
        }
        let rows = profile.take();
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].0, rows[0].2.calls), (Place::Layer(LAYERS as u32 - 1), 3));
        assert!(profile.trace().is_empty());
    }
}
