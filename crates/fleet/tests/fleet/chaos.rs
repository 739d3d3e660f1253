//! Links that lose, repeat, hold back, damage and cut, and workers that begin anew: never a wrong token, never a hang.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use cascadia_fleet::link::LinkFaults;
use cascadia_fleet::{ModelWorkers, RemoteStage, StageStatus, Timeouts};
use cascadia_model::{Stage, StageError};

use crate::hash_model::{Cache, Chance, HashStage, STAGES, Watched, generate, model_workers, worker};

const SEEDS: u64 = 1024;
const THREADS: u64 = 16;

/// What was sent in one direction before, also on links that are gone.
type Recording = Arc<Mutex<Vec<Vec<u8>>>>;

/// LinkFaults from a seed, fair until the worker was admitted and again once it has been bad often enough; tells whether it
/// has been bad.
fn faults(mut chance: Chance, mut trouble: u32, recording: Recording, was_bad: Arc<AtomicBool>) -> LinkFaults {
    let (mut pieces, mut held) = (0, None::<Vec<u8>>);
    Box::new(move |mut piece| {
        pieces += 1;
        let mut recorded = recording.lock().unwrap();
        recorded.push(piece.clone());
        if pieces <= 3 || trouble == 0 || chance.below(12) > 0 {
            return Some(held.take().into_iter().chain([piece]).collect());
        }
        trouble -= 1;
        was_bad.store(true, Ordering::SeqCst);
        match chance.below(6) {
            0 => Some(Vec::new()),
            1 => Some(vec![piece.clone(), piece]),
            2 => {
                held = Some(piece);
                Some(Vec::new())
            }
            3 => {
                let old = recorded[chance.below(recorded.len() as u64) as usize].clone();
                Some(vec![old, piece])
            }
            4 => None,
            _ => {
                let at = chance.below(piece.len() as u64) as usize;
                piece[at] ^= 1 << chance.below(8);
                Some(vec![piece])
            }
        }
    })
}

/// A fleet of hash stages that is run as an engine runs one: what is lost is computed again.
struct Drill {
    model_workers: ModelWorkers,
    caches: Vec<Cache>,
    recordings: [Recording; 2],
    chance: Chance,
    trouble: u32,
    machines: u32,
}

impl Drill {
    fn new(seed: u64, trouble: u32) -> Drill {
        let caches = (0..STAGES).map(|_| Cache::default()).collect();
        let (model_workers, recordings) = (model_workers(), Default::default());
        Drill { model_workers, caches, recordings, chance: Chance(seed), trouble, machines: 0 }
    }

    /// Brings a worker for a stage: the one that was there, or one that has begun anew.
    fn admit_worker(&mut self, stage: usize) {
        if self.chance.below(2) == 0 {
            self.caches[stage] = Cache::default();
        }
        let cache = Arc::clone(&self.caches[stage]);
        let hashes = move || Box::new(HashStage { cache: Arc::clone(&cache), layer: stage as u32 }) as Box<dyn Stage>;
        let was_bad = Arc::new(AtomicBool::new(false));
        let faults = self.recordings.each_ref().map(|recording| {
            let chance = Chance(self.chance.below(u64::MAX >> 1));
            faults(chance, self.trouble, Arc::clone(recording), Arc::clone(&was_bad))
        });
        self.trouble = self.trouble.saturating_sub(1);
        // What is lost on the way shows by silence. Where nothing was, a machine under load is waited for.
        let link = Watched { link: worker(stage, hashes, faults), is_silent: was_bad };
        self.machines += 1;
        self.model_workers
            .admit(Box::new(link), &format!("node-{}", self.machines))
            .expect("there are no faults at first");
    }

    /// The tokens of all sequences after all stages, how many late frames were left aside, and how many steps continued
    /// with another machine.
    fn run(mut self) -> (Vec<Vec<u32>>, [u64; 2]) {
        let minute = Duration::from_secs(60);
        let patience =
            Timeouts { step: minute, worker: Duration::from_secs(2), silence: minute, ..Timeouts::default() };
        for stage in 0..STAGES {
            self.admit_worker(stage);
            // A spare has a cache of its own.
            if self.chance.below(2) == 0 {
                self.caches[stage] = Cache::default();
                self.admit_worker(stage);
            }
        }
        let stages: Vec<_> = (0..STAGES).map(|stage| RemoteStage::new(&self.model_workers, stage, patience)).collect();
        let mut chance = self.chance.clone();
        let tokens = generate(&mut chance, |plan, hidden| {
            for (index, stage) in stages.iter().enumerate() {
                if let Err(error) = stage.run(plan, hidden) {
                    let StageError::Lost { layers, problem, .. } = &error else { panic!("{error}") };
                    assert!(layers.start as usize == index && !problem.is_empty());
                    if self.model_workers.stages()[index].count() == 0 {
                        if stage.status().node.is_some() {
                            self.caches[index] = Cache::default();
                        }
                        self.admit_worker(index);
                    }
                    return Err(error);
                }
            }
            Ok(())
        });
        let sum = |count: fn(&StageStatus) -> u64| stages.iter().map(|stage| count(&stage.status())).sum();
        (tokens, [sum(|status| status.late), sum(|status| status.saved)])
    }
}

#[test]
fn no_fault_changes_a_token() {
    let local: Vec<_> = (0..STAGES as u32).map(|layer| HashStage { cache: Cache::default(), layer }).collect();
    let expected = generate(&mut Chance(1), |plan, hidden| local.iter().try_for_each(|stage| stage.run(plan, hidden)));
    assert_eq!(Drill::new(0, 0).run(), (expected.clone(), [0, 0]), "without faults");
    let counts = [0, 0].map(AtomicU64::new);
    thread::scope(|scope| {
        for first in 0..THREADS {
            let (expected, counts) = (&expected, &counts);
            scope.spawn(move || {
                for seed in (first..SEEDS).step_by(THREADS as usize) {
                    let (tokens, counted) = Drill::new(seed, 6).run();
                    assert!(tokens == *expected, "seed {seed} differs");
                    for (count, more) in counts.iter().zip(counted) {
                        count.fetch_add(more, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let [late, saved] = counts.map(AtomicU64::into_inner);
    assert!(late > 0 && saved > 0, "{late} frames were late and {saved} steps saved: nothing was proved about those");
}
