//! A model of hashes: every row depends on all rows before it, so whatever is lost, repeated or mixed up shows.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cascadia_fleet::clock::Simulation;
use cascadia_fleet::link::{ChannelLink, Link, LinkError, LinkFaults, timed_pair};
use cascadia_fleet::{
    Clock, Digest, Hello, MANIFEST_VERSION, Manifest, ModelWorkers, Numerics, RowFormat, RowShape, Sandbox, Shard,
    StageLimits, TOKEN_IO_FILE, WorkerStage, stage_file,
};
use cascadia_model::{
    CachePages, Hidden, ModelLimits, PAGE_TOKENS, PageClass, PageRows, PageRun, Placement, SequenceStep, Stage,
    StageError, StageTraits, StepPlan,
};

use crate::harness::PROGRAM;

pub(crate) const WIDTH: usize = 3;
pub(crate) const STAGES: usize = 2;
/// How long workers wait for a coordinator that says nothing: nobody looks after spares here, and a test may take long.
pub(crate) const LEASE: Duration = Duration::from_secs(600);
/// How much is generated.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) sequences: u64,
    /// Of each sequence, with its prompt.
    pub(crate) tokens: usize,
}

const SIZES: Sizes = Sizes { sequences: 3, tokens: 70 };

/// Numbers from a seed.
#[derive(Clone)]
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn mix(one: u64, other: u64) -> u64 {
    (one ^ other.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
}

/// What a stage remembers, by page and place in it.
pub(crate) type Cache = Arc<Mutex<HashMap<(u32, u32), u64>>>;

/// Bytes that a copied row takes, so that a page is several pieces.
const ROW_BYTES: usize = 1024;

/// A stage whose every row is a hash of all rows before it in its sequence, as its pages hold them.
pub(crate) struct HashStage {
    pub(crate) cache: Cache,
    pub(crate) layer: u32,
}

impl Stage for HashStage {
    fn layers(&self) -> Range<u32> {
        self.layer..self.layer + 1
    }

    fn traits(&self) -> StageTraits {
        StageTraits::exact(Placement::Remote)
    }

    fn page_rows(&self) -> Option<&dyn PageRows> {
        Some(self)
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        let mut cache = self.cache.lock().unwrap();
        for step in &plan.steps {
            let place = |at: u32| (step.runs[0].pages[(at / PAGE_TOKENS) as usize], at % PAGE_TOKENS);
            for (row, position) in step.rows.clone().zip(step.start..) {
                let row = &mut hidden.values[row as usize * WIDTH..(row as usize + 1) * WIDTH];
                let before = (0..position).map(|at| cache.get(&place(at)).copied().unwrap_or(0xdead));
                let seen = before.fold(u64::from(self.layer), mix);
                let own = row.iter().fold(seen, |hash, value| mix(hash, value.to_bits().into()));
                cache.insert(place(position), own);
                let spread = |at: usize| ((mix(own, at as u64) >> 40) as f32) / 1000.0;
                row.iter_mut().enumerate().for_each(|(at, value)| *value = spread(at));
            }
        }
        Ok(())
    }
}

impl PageRows for HashStage {
    fn row_bytes(&self, class: PageClass, tokens: &Range<u32>) -> usize {
        if class == PageClass::Full { ROW_BYTES * tokens.len() } else { 0 }
    }

    fn copy_rows(&self, _: PageClass, page: u32, tokens: &Range<u32>) -> Result<Vec<u8>, StageError> {
        let cache = self.cache.lock().unwrap();
        let row = |at| cache.get(&(page, at)).copied().unwrap_or(0xdead).to_le_bytes().repeat(ROW_BYTES / 8);
        Ok(tokens.clone().flat_map(row).collect())
    }

    fn fill_rows(&self, _: PageClass, page: u32, tokens: &Range<u32>, bytes: &[u8]) -> Result<(), StageError> {
        let mut cache = self.cache.lock().unwrap();
        for (at, row) in tokens.clone().zip(bytes.chunks(ROW_BYTES)) {
            cache.insert((page, at), u64::from_le_bytes(row[..8].try_into().unwrap()));
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

/// No workers yet for the stages of hashes.
pub(crate) fn model_workers() -> ModelWorkers {
    let cache = CachePages::full(16);
    let model = ModelLimits::new(128, 32, cache);
    ModelWorkers::new(manifest(), StageLimits { model, wire: RowFormat::F32 }, PROGRAM)
}

/// What the worker of a stage says of itself.
pub(crate) fn hello(stage: usize) -> Hello {
    let shard = Some(manifest().stages[stage].digest);
    Hello { program: PROGRAM.to_owned(), shard, sandbox: Sandbox::Full }
}

/// The rows of the model.
pub(crate) fn shape() -> RowShape {
    RowShape { hidden_width: WIDTH, needs_tokens: false }
}

/// A worker on a thread that runs whatever stage it is given, and says that it holds the shard of stage `number`. Gives
/// the coordinator's end of the link.
pub(crate) fn worker(
    number: usize,
    stage: impl Fn() -> Box<dyn Stage> + Send + 'static,
    faults: [LinkFaults; 2],
) -> ChannelLink {
    worker_on(Clock::system(), number, stage, faults)
}

/// The same by another clock.
pub(crate) fn worker_on(
    clock: &Clock,
    number: usize,
    stage: impl Fn() -> Box<dyn Stage> + Send + 'static,
    faults: [LinkFaults; 2],
) -> ChannelLink {
    let mut worker = WorkerStage::new(hello(number), shape(), LEASE, Box::new(move |_| Ok(stage())));
    let (here, mut there) = timed_pair(clock, Duration::ZERO, faults);
    clock.spawn(move || worker.serve(&mut there));
    here
}

/// Runs a test in simulated time; whatever it has started ends with it.
pub(crate) fn simulated(test: impl FnOnce(&Clock)) {
    let simulation = Simulation::new(1);
    test(simulation.clock());
    simulation.finish();
}

/// How long to listen to a machine that has fallen silent.
const GLANCE: Duration = Duration::from_millis(40);

/// The coordinator's end of a link to a machine that may fall silent. Once it has, nobody waits for it for long; until
/// then, one that only has too much to do is waited for as long as anybody likes.
pub(crate) struct Watched {
    pub(crate) link: ChannelLink,
    pub(crate) is_silent: Arc<AtomicBool>,
}

impl Link for Watched {
    fn clock(&self) -> &Clock {
        self.link.clock()
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        self.link.write(bytes)
    }

    fn read(&mut self, out: &mut [u8], deadline: Instant) -> Result<usize, LinkError> {
        loop {
            let was_silent = self.is_silent.load(Ordering::SeqCst);
            let glance = self.clock().now() + GLANCE;
            let heard = self.link.read(out, deadline.min(glance));
            if heard != Err(LinkError::TimedOut) || was_silent || self.clock().now() >= deadline {
                return heard;
            }
        }
    }
}

/// Lets every sequence grow to its length in steps of chance; gives their tokens.
pub(crate) fn generate(
    chance: &mut Chance,
    run: impl FnMut(&StepPlan, &mut Hidden) -> Result<(), StageError>,
) -> Vec<Vec<u32>> {
    generate_sizes(chance, SIZES, run)
}

/// The same with other sizes.
pub(crate) fn generate_sizes(
    chance: &mut Chance,
    sizes: Sizes,
    run: impl FnMut(&StepPlan, &mut Hidden) -> Result<(), StageError>,
) -> Vec<Vec<u32>> {
    try_generate_sizes(chance, sizes, run).expect("no machine is wrong")
}

/// The same; an error as soon as what has been generated may be wrong.
pub(crate) fn try_generate(
    chance: &mut Chance,
    run: impl FnMut(&StepPlan, &mut Hidden) -> Result<(), StageError>,
) -> Result<Vec<Vec<u32>>, StageError> {
    try_generate_sizes(chance, SIZES, run)
}

fn try_generate_sizes(
    chance: &mut Chance,
    sizes: Sizes,
    mut run: impl FnMut(&StepPlan, &mut Hidden) -> Result<(), StageError>,
) -> Result<Vec<Vec<u32>>, StageError> {
    let mut tokens: Vec<Vec<u32>> = (0..sizes.sequences).map(|at| vec![at as u32 + 1, 7, 9]).collect();
    let mut computed = vec![0; tokens.len()];
    let mut losses = 0;
    while tokens.iter().any(|tokens| tokens.len() < sizes.tokens) {
        let mut plan = StepPlan { generation: losses, ..StepPlan::default() };
        for (at, tokens) in tokens.iter().enumerate() {
            if tokens.len() >= sizes.tokens || (chance.below(3) == 0 && !plan.steps.is_empty()) {
                continue;
            }
            let count = (tokens.len() - computed[at]).min(1 + chance.below(9) as usize);
            let first = plan.tokens.len() as u32;
            plan.tokens.extend_from_slice(&tokens[computed[at]..computed[at] + count]);
            let pages = (0..2).map(|page| at as u32 * 4 + page).take((computed[at] + count).div_ceil(64)).collect();
            let rows = first..first + count as u32;
            let runs = vec![PageRun { class: PageClass::Full, first: 0, pages }];
            plan.steps.push(SequenceStep {
                id: at as u64,
                rows,
                start: computed[at] as u32,
                runs,
                adapter: None,
                second_text: None,
            });
        }
        let values = plan.tokens.iter().flat_map(|token| [*token as f32; WIDTH]).collect();
        let mut hidden = Hidden { values, width: WIDTH };
        if let Err(error) = run(&plan, &mut hidden) {
            if matches!(error, StageError::Wrong { .. }) {
                return Err(error);
            }
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
    Ok(tokens)
}
