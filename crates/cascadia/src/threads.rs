//! How many threads compute, and on which processors.

use std::sync::Arc;
use std::thread::available_parallelism;

use cascadia_kernels::{Ops, Peak, Pool, peak_speed, read_speed};

use crate::os;

/// Bytes that a trial reads: more than one core's caches, little enough for a few milliseconds.
const TRIAL_BYTES: usize = 32 << 20;
/// How much faster more threads must be to be worth having.
const WORTH: f64 = 1.05;

/// How many threads compute, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Threads {
    /// How many; by default one per core that this process may use, found by a short measurement.
    pub count: Option<u32>,
    /// Whether every helper thread stays on a core of its own (Linux).
    pub pin: bool,
}

impl Threads {
    /// Starts them.
    pub fn pool(&self) -> Arc<Pool> {
        let allowed = os::allowed_processors();
        let processors = cores_first(&allowed, os::siblings);
        let threads = match self.count {
            Some(threads) => threads as usize,
            None => choose(processors.cores),
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
    /// One of each core first, then those that share a core with one before.
    order: Vec<usize>,
    /// Cores; 0 when the system does not say.
    cores: usize,
}

fn cores_first(allowed: &[usize], siblings: impl Fn(usize) -> Option<String>) -> Processors {
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for &processor in allowed {
        let shares = siblings(processor).is_some_and(|list| first.iter().any(|&earlier| contains(&list, earlier)));
        if shares { others.push(processor) } else { first.push(processor) }
    }
    let cores = first.len();
    first.append(&mut others);
    Processors { order: first, cores }
}

/// Whether a list such as `0,4-6` contains a number.
fn contains(list: &str, number: usize) -> bool {
    list.trim().split(',').any(|part| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        matches!((low.parse::<usize>(), high.parse::<usize>()), (Ok(low), Ok(high)) if (low..=high).contains(&number))
    })
}

/// One thread per core, unless a short trial shows that threads that share cores are worth it too. What the system
/// offers respects the process's affinity mask and the CPU quota of its control group.
fn choose(cores: usize) -> usize {
    let offered = available_parallelism().map_or(1, usize::from);
    if cores == 0 || cores >= offered {
        return offered;
    }
    let mut bytes = vec![0u8; TRIAL_BYTES];
    bytes.fill(1);
    // Decoding reads and multiplies: seconds for a billion bytes and a trillion products.
    let trial = |threads: usize| {
        let pool = Pool::new(threads);
        let once = || 1e9 / read_speed(&pool, Ops::best(), &bytes) + 1e12 / peak_speed(&pool, Ops::best(), Peak::Int8);
        (0..3).map(|_| once()).fold(f64::INFINITY, f64::min)
    };
    if trial(cores) > WORTH * trial(offered) { offered } else { cores }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_core_comes_before_its_siblings() {
        let check = |allowed: &[usize], lists: &[&str], order: &[usize], cores: usize| {
            let found = cores_first(allowed, |processor| lists.get(processor).map(|list| format!("{list}\n")));
            assert_eq!(found, Processors { order: order.to_vec(), cores }, "{allowed:?} {lists:?}");
        };
        check(&[0, 1, 2, 3], &["0-1", "0-1", "2-3", "2-3"], &[0, 2, 1, 3], 2);
        check(&[0, 1, 2, 3], &["0,2", "1,3", "0,2", "1,3"], &[0, 1, 2, 3], 2);
        check(&[0, 1], &["0", "1"], &[0, 1], 2);
        check(&[1, 3], &["0-1", "0-1", "2-3", "2-3"], &[1, 3], 2);
        check(&[0, 1], &[], &[0, 1], 2);
        check(&[], &[], &[], 0);
    }

    #[test]
    fn a_number_of_threads_is_found() {
        let offered = available_parallelism().map_or(1, usize::from);
        for cores in [0, 1, offered] {
            assert!((1..=offered).contains(&choose(cores)));
        }
    }
}
