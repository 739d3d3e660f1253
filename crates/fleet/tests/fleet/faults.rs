//! Links that lose, repeat, hold back and damage frames, and workers that begin anew: never a wrong token, never a hang.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use cascadia_fleet::link::{Weather, channel_pair, fair};
use cascadia_fleet::{
    Digest, Harbour, Hello, MANIFEST_VERSION, Manifest, Numerics, Patience, RemoteStage, RowShape, Shard, StageLimits,
    TOKEN_IO_FILE, WorkerStage, stage_file,
};
use cascadia_model::{CachePages, Hidden, PAGE_TOKENS, SequenceStep, Stage, StageError, StepPlan, WindowPages};

use crate::harness::PROGRAM;

const WIDTH: usize = 3;
const STAGES: usize = 2;
const SEQUENCES: u64 = 3;
const TOKENS: usize = 70;

/// Numbers from a seed.
#[derive(Clone)]
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn mix(one: u64, other: u64) -> u64 {
    (one ^ other.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
}

/// A stage whose every row is a hash of all rows before it in its sequence, as its pages hold them.
#[derive(Default)]
struct HashStage {
    cache: Mutex<HashMap<(u32, u32), u64>>,
}

struct Shared(Arc<HashStage>, Range<u32>);

impl Stage for Shared {
    fn layers(&self) -> Range<u32> {
        self.1.clone()
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        let mut cache = self.0.cache.lock().unwrap();
        for step in &plan.steps {
            let place = |at: u32| (step.pages[(at / PAGE_TOKENS) as usize], at % PAGE_TOKENS);
            for (row, position) in step.rows.clone().zip(step.start..) {
                let row = &mut hidden.values[row as usize * WIDTH..(row as usize + 1) * WIDTH];
                let before = (0..position).map(|at| cache.get(&place(at)).copied().unwrap_or(0xdead));
                let seen = before.fold(u64::from(self.1.start), mix);
                let own = row.iter().fold(seen, |hash, value| mix(hash, value.to_bits().into()));
                cache.insert(place(position), own);
                let spread = |at: usize| ((mix(own, at as u64) >> 40) as f32) / 1000.0;
                row.iter_mut().enumerate().for_each(|(at, value)| *value = spread(at));
            }
        }
        Ok(())
    }
}

fn manifest() -> Manifest {
    let shard = |file: String, layers: [u32; 2]| Shard {
        digest: Digest::of(file.as_bytes()),
        file,
        bytes: 0,
        layers,
        tensors: Vec::new(),
    };
    let stages: Vec<Shard> = (0..STAGES).map(|at| shard(stage_file(at), [at as u32, at as u32 + 1])).collect();
    let token_io = shard(TOKEN_IO_FILE.to_owned(), [0, 0]);
    let numerics = Numerics {
        cache: "f32".to_owned(),
        hidden_width: WIDTH as u32,
        layers: STAGES as u32,
        context: 128,
        window: 0,
        stages_need_tokens: false,
    };
    Manifest {
        version: MANIFEST_VERSION,
        model: Manifest::model_digest(&token_io, &stages),
        name: "hashes".to_owned(),
        precision: "keep".to_owned(),
        numerics,
        token_io,
        stages,
    }
}

/// Weather from a seed, fair until the worker has docked and again once it has been bad often enough.
fn weather(mut chance: Chance, mut trouble: u32) -> Weather {
    let (mut pieces, mut held) = (0, None::<Vec<u8>>);
    Box::new(move |mut piece| {
        pieces += 1;
        if pieces <= 3 || trouble == 0 || chance.below(12) > 0 {
            return held.take().into_iter().chain([piece]).collect();
        }
        trouble -= 1;
        match chance.below(4) {
            0 => Vec::new(),
            1 => vec![piece.clone(), piece],
            2 => {
                held = Some(piece);
                Vec::new()
            }
            _ => {
                let at = chance.below(piece.len() as u64) as usize;
                piece[at] ^= 1 << chance.below(8);
                vec![piece]
            }
        }
    })
}

/// A fleet of hash stages that is run as an engine runs one: what is lost is computed again.
struct Drill {
    harbour: Harbour,
    caches: Vec<Arc<HashStage>>,
    chance: Chance,
    trouble: u32,
}

impl Drill {
    fn new(seed: u64, trouble: u32) -> Drill {
        let cache = CachePages { pages: 16, window: 0 };
        let limits = StageLimits { context: 128, rows_per_step: 32, cache };
        let caches = (0..STAGES).map(|_| Arc::default()).collect();
        Drill { harbour: Harbour::new(manifest(), limits, PROGRAM), caches, chance: Chance(seed), trouble }
    }

    /// Brings a worker for a stage: the one that was there, or one that has begun anew.
    fn dock(&mut self, stage: usize) {
        if self.chance.below(2) == 0 {
            self.caches[stage] = Arc::default();
        }
        let (cache, layers) = (Arc::clone(&self.caches[stage]), stage as u32..stage as u32 + 1);
        let hello = Hello { program: PROGRAM.to_owned(), shard: Some(self.harbour.manifest().stages[stage].digest) };
        let shape = RowShape { hidden_width: WIDTH, needs_tokens: false };
        let load = move |_: &StageLimits| Ok(Box::new(Shared(Arc::clone(&cache), layers.clone())) as Box<dyn Stage>);
        let mut worker = WorkerStage::new(hello, shape, Duration::from_secs(5), Box::new(load));
        let bad = |drill: &mut Chance| weather(Chance(drill.below(u64::MAX >> 1)), self.trouble);
        let weather = [bad(&mut self.chance), bad(&mut self.chance)];
        self.trouble = self.trouble.saturating_sub(1);
        let (here, mut there) = channel_pair(weather);
        thread::spawn(move || worker.serve(&mut there));
        self.harbour.admit(Box::new(here), &format!("node-{stage}")).expect("the weather is fair at first");
    }

    /// The tokens of all sequences after all stages.
    fn run(mut self) -> Vec<Vec<u32>> {
        let short = Duration::from_millis(40);
        let patience = Patience { step: short, row: Duration::ZERO, worker: Duration::from_secs(2), ping: short };
        (0..STAGES).for_each(|stage| self.dock(stage));
        let stages: Vec<_> = (0..STAGES).map(|stage| RemoteStage::new(&self.harbour, stage, patience)).collect();
        let mut chance = self.chance.clone();
        generate(&mut chance, |plan, hidden| {
            for (index, stage) in stages.iter().enumerate() {
                if let Err(error) = stage.run(plan, hidden) {
                    let StageError::Lost { layers, problem } = &error else { panic!("{error}") };
                    assert!(layers.start as usize == index && !problem.is_empty());
                    if self.harbour.docks()[index].count() == 0 {
                        self.dock(index);
                    }
                    return Err(error);
                }
            }
            Ok(())
        })
    }
}

/// Lets every sequence grow to its length in steps of chance; gives their tokens.
fn generate(
    chance: &mut Chance,
    mut run: impl FnMut(&StepPlan, &mut Hidden) -> Result<(), StageError>,
) -> Vec<Vec<u32>> {
    let mut tokens: Vec<Vec<u32>> = (0..SEQUENCES).map(|at| vec![at as u32 + 1, 7, 9]).collect();
    let mut computed = vec![0; tokens.len()];
    let mut losses = 0;
    while tokens.iter().any(|tokens| tokens.len() < TOKENS) {
        let mut plan = StepPlan::default();
        for (at, tokens) in tokens.iter().enumerate() {
            if tokens.len() >= TOKENS || (chance.below(3) == 0 && !plan.steps.is_empty()) {
                continue;
            }
            let count = (tokens.len() - computed[at]).min(1 + chance.below(9) as usize);
            let first = plan.tokens.len() as u32;
            plan.tokens.extend_from_slice(&tokens[computed[at]..computed[at] + count]);
            let pages = (0..2).map(|page| at as u32 * 4 + page).take((computed[at] + count).div_ceil(64)).collect();
            let rows = first..first + count as u32;
            let (start, window) = (computed[at] as u32, WindowPages::default());
            plan.steps.push(SequenceStep { id: at as u64, rows, start, pages, window });
        }
        let values = plan.tokens.iter().flat_map(|token| [*token as f32; WIDTH]).collect();
        let mut hidden = Hidden { values, width: WIDTH };
        if run(&plan, &mut hidden).is_err() {
            computed.fill(0);
            losses += 1;
            assert!(losses < 500, "the fleet comes to rest");
            continue;
        }
        for step in &plan.steps {
            let at = step.id as usize;
            computed[at] += step.rows.len();
            if computed[at] == tokens[at].len() {
                let last = (step.rows.end as usize - 1) * WIDTH;
                let row = &hidden.values[last..last + WIDTH];
                tokens[at].push((row.iter().fold(0, |hash, value| mix(hash, value.to_bits().into())) % 97) as u32);
            }
        }
    }
    tokens
}

#[test]
fn no_weather_changes_a_token() {
    let local: Vec<_> = (0..STAGES as u32).map(|at| Shared(Arc::default(), at..at + 1)).collect();
    let expected = generate(&mut Chance(1), |plan, hidden| local.iter().try_for_each(|stage| stage.run(plan, hidden)));
    assert_eq!(Drill::new(0, 0).run(), expected, "in fair weather");
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let expected = expected.clone();
            thread::spawn(move || {
                for seed in 0..40 {
                    let seed = seed * 8 + thread;
                    assert!(Drill::new(seed, 6).run() == expected, "seed {seed} differs");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no seed differs"));
}

#[test]
fn without_any_worker_a_stage_says_so_soon() {
    let drill = Drill::new(0, 0);
    let patience = Patience { worker: Duration::from_millis(20), ..Patience::default() };
    let stage = RemoteStage::new(&drill.harbour, 1, patience);
    let plan = StepPlan { tokens: vec![1], steps: Vec::new() };
    let error = stage.run(&plan, &mut Hidden { values: vec![0.0; WIDTH], width: WIDTH }).expect_err("nobody is there");
    assert!(matches!(&error, StageError::Lost { layers, .. } if *layers == (1..2)), "{error}");
}

#[test]
fn workers_that_do_not_fit_hear_why() {
    let drill = Drill::new(0, 0);
    let check = |program: &str, shard: Option<Digest>, expected: &str| {
        let (here, mut there) = channel_pair([fair(), fair()]);
        let hello = Hello { program: program.to_owned(), shard };
        let shape = RowShape { hidden_width: WIDTH, needs_tokens: false };
        let load = |_: &StageLimits| Err("it is not asked to load anything".to_owned());
        let mut worker = WorkerStage::new(hello, shape, Duration::from_secs(5), Box::new(load));
        let heard = thread::spawn(move || worker.serve(&mut there).to_string());
        let refused = drill.harbour.admit(Box::new(here), "node-07").expect_err("it does not fit").to_string();
        assert!(refused.contains(expected) && refused.contains("node-07"), "{refused}");
        assert_eq!(heard.join().expect("the worker hears it"), refused);
    };
    let first = drill.harbour.manifest().stages[0].digest;
    check("0.0.9", Some(first), "runs version 0.0.9, the coordinator runs test");
    check(PROGRAM, Some(Digest::of(b"another")), "which is none of");
    check(PROGRAM, None, "holds no shard");
}
