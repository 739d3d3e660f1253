//! Standbys that come late are sent the caches of what is running, and then nothing is computed again when a machine is lost.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cascadia_fleet::clock::Simulation;
use cascadia_fleet::link::{ChannelLink, LinkFaults, fair, timed_pair};
use cascadia_fleet::{Clock, ModelWorkers, RemoteStage, RowFormat, StageLimits, Timeouts, WorkerStage};
use cascadia_kernels::Pool;
use cascadia_model::{
    Hidden, KvLayout, KvPolicy, LoadOptions, LocalStage, ModelLimits, ModelSpec, PAGE_TOKENS, PageClass, PageRows,
    ReservedPages, Stage, StageError, StageTraits, StepPlan, load,
};
use cascadia_weights::ModelFiles;

use crate::harness::{PROGRAM, Workshop};
use crate::hash_model::{Chance, HashStage, LEASE, Sizes, generate_sizes, hello, model_workers, shape, simulated};
use crate::standbys::hashes;

const SEEDS: u64 = 1_500;
/// Every sequence begins a second page.
const SIZES: Sizes = Sizes { sequences: 3, tokens: 100 };
const PATIENCE: Timeouts = Timeouts {
    step: Duration::from_secs(10),
    row: Duration::ZERO,
    worker: Duration::from_millis(20),
    silence: Duration::from_millis(250),
};

/// What is wrong with the pages of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copies {
    Right,
    /// They are not what it computes with.
    Wrong,
}

/// A stage of hashes that takes a while, and may give others pages than its own.
struct Machine {
    inner: HashStage,
    clock: Clock,
    time: Duration,
    copies: Copies,
}

impl Stage for Machine {
    fn layers(&self) -> Range<u32> {
        self.inner.layers()
    }

    fn traits(&self) -> StageTraits {
        self.inner.traits()
    }

    fn page_rows(&self) -> Option<&dyn PageRows> {
        Some(self)
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        self.clock.sleep(self.time);
        self.inner.run(plan, hidden)
    }
}

impl PageRows for Machine {
    fn row_bytes(&self, class: PageClass, tokens: &Range<u32>) -> usize {
        self.inner.row_bytes(class, tokens)
    }

    fn copy_rows(&self, class: PageClass, page: u32, tokens: &Range<u32>) -> Result<Vec<u8>, StageError> {
        let mut copy = self.inner.copy_rows(class, page, tokens)?;
        copy[0] ^= u8::from(self.copies == Copies::Wrong);
        Ok(copy)
    }

    fn fill_rows(&self, class: PageClass, page: u32, tokens: &Range<u32>, bytes: &[u8]) -> Result<(), StageError> {
        self.inner.fill_rows(class, page, tokens, bytes)
    }
}

/// Nothing passes any more once the machine is dead.
fn mortal(dead: &Arc<AtomicBool>) -> LinkFaults {
    let dead = Arc::clone(dead);
    Box::new(move |piece| (!dead.load(Ordering::SeqCst)).then(|| vec![piece]))
}

/// Brings a machine for the first stage.
fn admit(
    model_workers: &ModelWorkers,
    node: &str,
    (latency, time): (Duration, Duration),
    how: (Copies, &Arc<AtomicBool>),
) {
    let (clock, (copies, dead)) = (model_workers.clock().clone(), how);
    let stage_clock = clock.clone();
    let load = move |_: &_| {
        let machine = Machine { inner: hashes(0), clock: stage_clock.clone(), time, copies };
        Ok(Box::new(machine) as Box<dyn Stage>)
    };
    let (here, mut there): (ChannelLink, ChannelLink) = timed_pair(&clock, latency, [mortal(dead), mortal(dead)]);
    clock.spawn(move || WorkerStage::new(hello(0), shape(), LEASE, Box::new(load)).serve(&mut there));
    assert_eq!(model_workers.admit(Box::new(here), node), Ok(0));
}

/// What a run came to.
#[derive(Debug)]
struct Outcome {
    tokens: Vec<Vec<u32>>,
    /// Rows that were answered, and those that an undisturbed run takes.
    rows: [u64; 2],
    /// Whether the standby was said to be warm when the machine died.
    was_warm: bool,
    copied_pages: u64,
    bad_pages: u64,
    losses: u64,
}

/// What happens in a run.
#[derive(Clone, Copy, Debug)]
struct Scene {
    copies: Copies,
    /// How long a step takes on the standby: it is slow.
    standby_time: Duration,
    /// Whether the standby dies instead of the machine that computes.
    standby_dies: bool,
}

const USUAL: Scene = Scene { copies: Copies::Right, standby_time: STEP, standby_dies: false };
const STEP: Duration = Duration::from_millis(5);

/// The tokens of one process, and its rows.
fn expected() -> (Vec<Vec<u32>>, u64) {
    let (local, mut rows) = (hashes(0), 0);
    let tokens = generate_sizes(&mut Chance(1), SIZES, |plan, hidden| {
        rows += plan.tokens.len() as u64;
        local.run(plan, hidden)
    });
    (tokens, rows)
}

/// A machine computes alone, a standby comes at a step of chance, and one of them dies at another.
fn run(seed: u64, scene: Scene, expected_rows: u64) -> Outcome {
    let simulation = Simulation::new(seed);
    let (clock, mut chance) = (simulation.clock().clone(), Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let model_workers = model_workers().on_clock(&clock);
    let dead = [0, 1].map(|_| Arc::new(AtomicBool::new(false)));
    let mut latency = || Duration::from_micros(chance.below(2000));
    let latencies = [latency(), latency()];
    admit(&model_workers, "first", (latencies[0], STEP), (scene.copies, &dead[0]));
    let stage = RemoteStage::new(&model_workers, 0, PATIENCE);
    let comes = 1 + chance.below(80);
    let dies = comes + chance.below(60);
    let (mut step, mut was_warm) = (0, false);
    let tokens = generate_sizes(&mut Chance(1), SIZES, |plan, hidden| {
        step += 1;
        if step == comes {
            admit(&model_workers, "late", (latencies[1], scene.standby_time), (Copies::Right, &dead[1]));
        }
        if step == dies {
            was_warm = stage.status().standby_is_warm;
            dead[usize::from(scene.standby_dies)].store(true, Ordering::SeqCst);
        }
        stage.run(plan, hidden).inspect_err(|_| clock.sleep(Duration::from_millis(50)))
    });
    let status = stage.status();
    drop((stage, model_workers));
    simulation.finish();
    Outcome {
        tokens,
        rows: [status.rows, expected_rows],
        was_warm,
        copied_pages: status.copied_pages,
        bad_pages: status.bad_pages,
        losses: status.lost,
    }
}

/// Runs a scene from many seeds, each of which must give the tokens of one process; gives what they came to.
fn check(scene: Scene, seeds: Range<u64>) -> Vec<Outcome> {
    let (expected, rows) = expected();
    let outcomes = seeds.map(|seed| {
        let outcome = run(seed, scene, rows);
        assert!(outcome.tokens == expected, "seed {seed}: other tokens");
        outcome
    });
    outcomes.collect()
}

#[test]
fn nothing_is_computed_again_once_a_late_standby_is_warm() {
    let outcomes = check(USUAL, 0..SEEDS);
    let recomputed = |outcome: &Outcome| outcome.rows[0] - outcome.rows[1];
    for (seed, outcome) in outcomes.iter().enumerate() {
        assert!(!outcome.was_warm || recomputed(outcome) == 0, "seed {seed}: {outcome:?}");
        assert_eq!(outcome.bad_pages, 0, "seed {seed}");
    }
    let count = |is: &dyn Fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| is(outcome)).count();
    let (died, warm) = (count(&|outcome| outcome.losses > 0), count(&|outcome| outcome.was_warm));
    let copied: u64 = outcomes.iter().map(|outcome| outcome.copied_pages).sum();
    let again = count(&|outcome| recomputed(outcome) > 0);
    eprintln!(
        "{died} of {SEEDS} machines died, {warm} with a warm standby; {copied} pages copied; {again} computed again"
    );
    assert!(warm > SEEDS as usize / 4 && again > 0 && copied > SEEDS, "{warm} {again} {copied}");
}

#[test]
fn pages_that_are_not_what_a_machine_computes_with_are_not_used() {
    let outcomes = check(Scene { copies: Copies::Wrong, ..USUAL }, 0..SEEDS / 5);
    let refuted: u64 = outcomes.iter().map(|outcome| outcome.bad_pages).sum();
    assert!(refuted > SEEDS / 20, "{refuted}");
}

#[test]
fn a_standby_that_is_slow_or_leaves_harms_nobody() {
    for (standby_time, standby_dies) in [(STEP, true), (40 * STEP, false), (40 * STEP, true)] {
        let scene = Scene { standby_time, standby_dies, ..USUAL };
        for (seed, outcome) in check(scene, 0..SEEDS / 10).iter().enumerate() {
            let [rows, expected] = outcome.rows;
            assert!(!standby_dies || (rows, outcome.losses) == (expected, 0), "seed {seed}: {outcome:?}");
        }
    }
}

/// A real model with a cache of some kind: a machine computes, another comes, and some steps after that is warm the first is cut
/// off. Rows stay those of one process, and no step fails.
fn check_model(clock: &Clock, model: &str, policy: &str) {
    const END: u32 = 4 * PAGE_TOKENS;
    let workshop = Workshop::new(model, None);
    let manifest = workshop.export(&[0]);
    let source = Arc::new(ModelFiles::open(&workshop.whole()).expect("it was written"));
    let spec = ModelSpec::from_files(&source).expect("a known architecture");
    let kv = KvPolicy { tail: 32, ..KvPolicy::named(policy).expect("a known policy") };
    let own = ReservedPages::per_sequence(&KvLayout::whole(&spec, &kv), END, 16);
    let limits = ModelLimits { kv, ..ModelLimits::new(END, 16, own) };
    let options = LoadOptions::new(limits.clone(), Arc::new(Pool::new(1)));
    let mut whole = load(&source, &options).expect("the fixture loads");
    let local = LocalStage::new(&source, &spec, 0..spec.layers.len() as u32, &options).expect("a whole stage");

    let limits = StageLimits { model: limits, wire: RowFormat::F32 };
    let model_workers = ModelWorkers::new(manifest.clone(), limits, PROGRAM).on_clock(clock);
    let dead = Arc::new(AtomicBool::new(false));
    let admit = |node: &str, faults: [LinkFaults; 2]| {
        let (here, mut there) = timed_pair(clock, Duration::from_micros(100), faults);
        let mut worker = workshop.worker(&manifest, 0);
        clock.spawn(move || worker.serve(&mut there));
        assert_eq!(model_workers.admit(Box::new(here), node), Ok(0));
    };
    admit("first", [mortal(&dead), mortal(&dead)]);
    let stage = RemoteStage::new(&model_workers, 0, PATIENCE);
    let (mut at, mut warm_at) = (0, None);
    while at < END {
        let rows = if at < 90 { 10 } else { 1 };
        if at == 90 {
            admit("late", [fair(), fair()]);
        }
        let (mut plan, mut expected) = (StepPlan::default(), Hidden::default());
        let tokens = (at..at + rows).map(|at| at * 37 % 96);
        plan.add(0, at, tokens, ReservedPages::new(0, own).runs(at + rows));
        whole.token_io.embed(&plan, &mut expected).expect("the tokens are in the vocabulary");
        let mut hidden = expected.clone();
        local.run(&plan, &mut expected).expect("it runs here");
        stage.run(&plan, &mut hidden).expect("it runs there");
        let bits = |hidden: &Hidden| hidden.values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert!(bits(&hidden) == bits(&expected), "{model} {policy} at {at}");
        at += rows;
        if warm_at.is_none() && stage.status().standby_is_warm {
            warm_at = Some(at);
        }
        dead.store(warm_at.is_some_and(|warm_at| at >= warm_at + 7), Ordering::SeqCst);
        clock.sleep(STEP);
    }
    let status = stage.status();
    let state = (status.node.as_deref(), status.lost, status.rows, status.bad_pages);
    assert_eq!(state, (Some("late"), 1, END.into(), 0), "{model} {policy}: warm at {warm_at:?}");
    assert!(status.copied_bytes > 0, "{model} {policy}");
}

#[test]
fn caches_of_every_kind_are_copied() {
    simulated(|clock| {
        for (model, policy) in [
            ("llama3", "int8/int4"),
            ("llama3", "exact"),
            ("gemma3", "int4"),
            ("gemma3", "f16/int4"),
            ("deepseek-v2-lite", "exact"),
            ("deepseek-v2-lite", "int8"),
        ] {
            check_model(clock, model, policy);
        }
    });
}
