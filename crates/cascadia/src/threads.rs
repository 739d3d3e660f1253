//! How many threads compute, and on which processors.

use std::cmp::Reverse;
use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;

use cascadia_kernels::{Ops, Peak, Pool, peak_speed, read_speed};

use crate::os::{self, SystemFiles};

/// Bytes that a trial reads: more than one core's caches, little enough for a few milliseconds.
const TRIAL_BYTES: usize = 32 << 20;
/// How much faster more threads must be to be worth having.
const WORTH: f64 = 1.05;

/// How many threads compute, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Threads {
    /// How many; by default one per core that this process may use, found by a short measurement where some cores are
    /// slower than others, or have several threads.
    pub count: Option<u32>,
    /// Whether every helper thread stays on a core of its own (Linux).
    pub pin: bool,
}

impl Threads {
    /// Starts them.
    pub fn pool(&self) -> Arc<Pool> {
        let files = SystemFiles::at(Path::new("/"));
        let core = |number: usize| Core { siblings: files.siblings(number), capacity: files.capacity(number) };
        let processors = Processors::new(&os::allowed_processors(), core);
        let threads = match self.count {
            Some(threads) => threads as usize,
            None => choose(&processors),
        };
        if !self.pin || processors.order.is_empty() {
            return Arc::new(Pool::new(threads));
        }
        Arc::new(Pool::with_start(threads, move |worker| os::pin(processors.order[worker % processors.order.len()])))
    }
}

impl From<u32> for Threads {
    /// So many, wherever the system puts them.
    fn from(count: u32) -> Threads {
        Threads { count: Some(count), pin: false }
    }
}

/// Processors in the order in which threads should use them.
#[derive(Debug, PartialEq, Eq)]
struct Processors {
    /// One of each core first, the fastest cores before others, then those that share a core with one before.
    order: Vec<usize>,
    /// Cores; 0 when the system does not say.
    cores: usize,
    /// How many of them are more than half as fast as the fastest: all but efficiency cores.
    fast: usize,
}

/// The core of a processor.
struct Core {
    /// The processors on it.
    siblings: Vec<usize>,
    /// How fast it is beside others.
    capacity: u64,
}

impl Processors {
    fn new(allowed: &[usize], core: impl Fn(usize) -> Core) -> Processors {
        let (mut first, mut others) = (Vec::new(), Vec::new());
        for &processor in allowed {
            let Core { siblings, capacity } = core(processor);
            let shares = first.iter().any(|(earlier, _)| siblings.contains(earlier));
            if shares { others.push(processor) } else { first.push((processor, capacity)) }
        }
        first.sort_by_key(|(_, capacity)| Reverse(*capacity));
        let most = first.first().map_or(0, |(_, capacity)| *capacity);
        let fast = first.iter().filter(|(_, capacity)| 2 * capacity > most).count();
        let order = first.iter().map(|(processor, _)| *processor).chain(others).collect();
        Processors { order, cores: first.len(), fast }
    }
}

/// One thread per fast core, unless a short trial shows that slower cores, or threads that share cores, are worth it
/// too: threads take work as they are done with other work, so slower ones help as much as they can. What the system
/// offers respects the process's affinity mask and the CPU quota of its control group.
fn choose(processors: &Processors) -> usize {
    let offered = available_parallelism().map_or(1, usize::from);
    let mut counts = [processors.fast, processors.cores, offered].map(|count| count.min(offered)).to_vec();
    counts.retain(|count| *count > 0);
    counts.dedup();
    let (first, more) = counts.split_first().expect("at least one is offered");
    if more.is_empty() {
        return *first;
    }
    let mut bytes = vec![0u8; TRIAL_BYTES];
    bytes.fill(1);
    // Decoding reads and multiplies: seconds for a billion bytes and a trillion products.
    let trial = |threads: usize| {
        let pool = Pool::new(threads);
        let once = || 1e9 / read_speed(&pool, Ops::best(), &bytes) + 1e12 / peak_speed(&pool, Ops::best(), Peak::Int8);
        (0..3).map(|_| once()).fold(f64::INFINITY, f64::min)
    };
    fastest(&counts, trial)
}

/// The number of threads after which more of them are not worth having; `counts` rise.
fn fastest(counts: &[usize], seconds: impl Fn(usize) -> f64) -> usize {
    let timed = counts.iter().map(|&count| (count, seconds(count)));
    let better = |best: (usize, f64), next: (usize, f64)| if best.1 > WORTH * next.1 { next } else { best };
    timed.reduce(better).map_or(1, |(count, _)| count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processors with these siblings and capacities.
    fn processors(allowed: &[usize], cores: &[(&[usize], u64)]) -> Processors {
        let unknown: (&[usize], u64) = (&[], 1024);
        Processors::new(allowed, |number| {
            let (siblings, capacity) = cores.get(number).copied().unwrap_or(unknown);
            Core { siblings: siblings.to_vec(), capacity }
        })
    }

    #[test]
    fn every_core_comes_before_its_siblings() {
        let check = |allowed: &[usize], siblings: &[&[usize]], order: &[usize], cores: usize| {
            let siblings: Vec<_> = siblings.iter().map(|siblings| (*siblings, 1024)).collect();
            let expected = Processors { order: order.to_vec(), cores, fast: cores };
            assert_eq!(processors(allowed, &siblings), expected, "{allowed:?} {siblings:?}");
        };
        check(&[0, 1, 2, 3], &[&[0, 1], &[0, 1], &[2, 3], &[2, 3]], &[0, 2, 1, 3], 2);
        check(&[0, 1, 2, 3], &[&[0, 2], &[1, 3], &[0, 2], &[1, 3]], &[0, 1, 2, 3], 2);
        check(&[0, 1], &[&[0], &[1]], &[0, 1], 2);
        check(&[1, 3], &[&[0, 1], &[0, 1], &[2, 3], &[2, 3]], &[1, 3], 2);
        check(&[0, 1], &[], &[0, 1], 2);
        check(&[], &[], &[], 0);
    }

    #[test]
    fn fast_cores_come_before_slow_ones() {
        let cores: [(&[usize], u64); 5] = [(&[0], 290), (&[1], 760), (&[2, 3], 1024), (&[2, 3], 1024), (&[4], 512)];
        let found = processors(&[0, 1, 2, 3, 4], &cores);
        assert_eq!(found, Processors { order: vec![2, 1, 4, 0, 3], cores: 4, fast: 2 });
    }

    #[test]
    fn more_threads_have_to_be_worth_it() {
        let check = |seconds: &[f64], expected: usize| {
            let counts: Vec<usize> = (1..=seconds.len()).collect();
            assert_eq!(fastest(&counts, |count| seconds[count - 1]), expected, "{seconds:?}");
        };
        check(&[2.0], 1);
        check(&[2.0, 1.0, 0.99], 2);
        check(&[2.0, 1.98, 1.0], 3);
        check(&[1.0, 2.0, 3.0], 1);
    }

    #[test]
    fn a_number_of_threads_is_found() {
        let offered = available_parallelism().map_or(1, usize::from);
        for (fast, cores) in [(0, 0), (1, 1), (1, offered), (offered, offered)] {
            let processors = Processors { order: Vec::new(), cores, fast };
            assert!((1..=offered).contains(&choose(&processors)), "{processors:?}");
        }
    }
}
