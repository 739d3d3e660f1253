//! Runs a model in many ways and compares the logits with a reference and with each other.
#![allow(dead_code, unused_imports, unused_macros, reason = "every test file uses a part of it")]

pub(crate) mod export;
pub(crate) mod random_model;
pub(crate) mod written_adapter;

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use cascadia_kernels::{ActivationPrecision, Pool};
use cascadia_model::{
    Adapter, CacheDemand, CachePages, Hidden, KvFormat, KvFormats, KvLayout, KvPolicy, LoadOptions, LoadedModel,
    ModelLimits, ModelSpec, PAGE_TOKENS, PageClass, PageRun, PerClass, StepPlan, load,
};
use cascadia_weights::ModelFiles;

/// Largest difference from the reference, relative to the largest logit of the row.
pub(crate) const TOLERANCE: f32 = 1e-4;

/// How a sequence is cut into steps; the logits may not depend on any of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) rows_per_step: usize,
    pub(crate) threads: usize,
    pub(crate) company: Company,
    /// Logits do depend on how activations meet weights,
    pub(crate) activations: ActivationPrecision,
    /// and on how keys and values are cached; without a format, as exactly as the weights suggest.
    pub(crate) cached: Option<CachedAs>,
}

/// A policy that is the same in every layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedAs {
    pub(crate) format: KvFormat,
    pub(crate) tail: u32,
    pub(crate) from: u32,
}

/// The adapters of a run.
#[derive(Clone, Default)]
pub(crate) struct Adapted {
    /// That of the sequence whose logits are returned.
    pub(crate) own: Option<Arc<Adapter>>,
    /// Those of the sequences beside it, of which there is one without an adapter where none are named.
    pub(crate) others: Vec<Option<Arc<Adapter>>>,
}

impl Way {
    fn policy(&self) -> KvPolicy {
        let exact = KvPolicy::new(KvFormats::Exact);
        let quantised = |CachedAs { format, tail, from }| KvPolicy { formats: KvFormats::Uniform(format), tail, from };
        self.cached.map_or(exact, quantised)
    }
}

/// What else is computed in the same steps.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Company {
    Alone,
    /// The same sequence shifted by some tokens, in rows before and in pages between those of the first.
    Another,
}

const fn alone(rows_per_step: usize, threads: usize) -> Way {
    Way { rows_per_step, threads, company: Company::Alone, activations: ActivationPrecision::Int8, cached: None }
}

const fn beside_another(rows_per_step: usize, threads: usize) -> Way {
    Way { company: Company::Another, ..alone(rows_per_step, threads) }
}

/// The same with activations of sixteen bits.
fn int16(way: Way) -> Way {
    Way { activations: ActivationPrecision::Int16, ..way }
}

/// One test per fixture, named after its folder.
macro_rules! fixtures {
    ($($test:ident: $folder:literal $file:literal;)*) => {
        $(#[test]
        fn $test() {
            $crate::harness::check($folder, $file);
        })*
    };
}
pub(crate) use fixtures;

pub(crate) const WAYS: [Way; 10] = [
    alone(usize::MAX, 1),
    alone(usize::MAX, 2),
    alone(1, 1),
    alone(1, 2),
    alone(3, 1),
    alone(7, 2),
    alone(16, 1),
    alone(33, 2),
    beside_another(usize::MAX, 1),
    beside_another(5, 2),
];

/// Runs a fixture in every way: the first within tolerance of the reference, the others with the bits of the first.
pub(crate) fn check(fixture: &str, file: &str) {
    check_within(TOLERANCE, fixture, file);
}

/// The same for the last hidden states of an encoder, of which every text is computed in one step.
pub(crate) fn check_encoder(fixture: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/encoders").join(fixture);
    let tokens = read_tokens(&folder.join("tokens.json"));
    let first = within(TOLERANCE, "hidden.npy", &folder, &folder, WAYS[0]);
    let whole = [alone(usize::MAX, 2), beside_another(usize::MAX, 1), beside_another(usize::MAX, 2)];
    check_ways(fixture, (&folder, &tokens), &first, whole.into_iter());
}

/// Like [`check`] with a tolerance of its own.
pub(crate) fn check_within(tolerance: f32, fixture: &str, file: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture);
    let path = if file.is_empty() { folder.clone() } else { folder.join(file) };
    let first = logits_within(tolerance, &folder, &path, WAYS[0]);
    check_bits(fixture, &path, &read_tokens(&folder.join("tokens.json")), &first);
}

/// The logits of the model at `path`, within tolerance of the reference in `folder`.
pub(crate) fn check_against(folder: &Path, path: &Path) -> Vec<Vec<f32>> {
    logits_within(TOLERANCE, folder, path, WAYS[0])
}

/// With activations of sixteen bits, the logits of a fixture are within tolerance of the reference.
pub(crate) fn check_int16_within(tolerance: f32, fixture: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture);
    logits_within(tolerance, &folder, &folder, int16(WAYS[0]));
}

fn logits_within(tolerance: f32, folder: &Path, path: &Path, way: Way) -> Vec<Vec<f32>> {
    within(tolerance, "logits.npy", folder, path, way)
}

/// What comes out of the model at `path`, within tolerance of this file of `folder`.
fn within(tolerance: f32, reference: &str, folder: &Path, path: &Path, way: Way) -> Vec<Vec<f32>> {
    let tokens = read_tokens(&folder.join("tokens.json"));
    let reference = read_npy(&folder.join(reference));
    let name = path.display();
    assert_eq!(reference.len(), tokens.len(), "{name}: one row of the reference per token");
    let logits = run(path, &tokens, way);
    assert_eq!(logits.len(), reference.len(), "{name}");
    let mut worst = 0.0_f32;
    for (position, (ours, theirs)) in logits.iter().zip(&reference).enumerate() {
        let difference = relative_difference(ours, theirs);
        assert!(difference <= tolerance, "{name}: position {position} is off by {difference:e} of its largest logit");
        worst = worst.max(difference);
    }
    // Shown by `cargo test -- --nocapture`.
    eprintln!("{name}: worst relative difference {worst:e}");
    logits
}

/// Every other way gives the bits of the first.
pub(crate) fn check_bits(what: &str, path: &Path, tokens: &[u32], first: &[Vec<f32>]) {
    check_ways(what, (path, tokens), first, WAYS[1..].iter().copied());
}

/// Activations of sixteen bits give bits of their own, the same in every way.
pub(crate) fn check_int16_bits(what: &str, path: &Path, tokens: &[u32], int8: &[Vec<f32>]) {
    let first = run(path, tokens, int16(WAYS[0]));
    assert!(first.iter().flatten().all(|logit| logit.is_finite()) && first != int8, "{what}");
    check_ways(what, (path, tokens), &first, WAYS[1..].iter().copied().map(int16));
}

/// A cache of this policy gives the same bits in every way, and they are returned.
pub(crate) fn check_cached_bits(what: &str, path: &Path, tokens: &[u32], cached: CachedAs) -> Vec<Vec<f32>> {
    let with_policy = |way: Way| Way { cached: Some(cached), ..way };
    let first = run(path, tokens, with_policy(WAYS[0]));
    check_ways(what, (path, tokens), &first, WAYS[1..].iter().copied().map(with_policy));
    first
}

fn check_ways(what: &str, (path, tokens): (&Path, &[u32]), first: &[Vec<f32>], ways: impl Iterator<Item = Way>) {
    check_runs(what, |way| run(path, tokens, way), first, ways);
}

/// With these adapters, every other way gives the bits of the first.
pub(crate) fn check_adapted_bits(what: &str, (path, tokens): (&Path, &[u32]), first: &[Vec<f32>], adapted: &Adapted) {
    check_runs(what, |way| run_adapted(path, tokens, way, adapted), first, WAYS[1..].iter().copied());
}

fn check_runs(what: &str, run: impl Fn(Way) -> Vec<Vec<f32>>, first: &[Vec<f32>], ways: impl Iterator<Item = Way>) {
    for way in ways {
        let again = run(way);
        for (position, (one, other)) in first.iter().zip(&again).enumerate() {
            let same = one.len() == other.len() && one.iter().zip(other).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{what}: {way:?} gives other bits than {:?} at position {position}", WAYS[0]);
        }
        assert_eq!(again.len(), first.len(), "{what}: {way:?}");
    }
}

/// The logits of every position, with prefill cut as `way` says.
pub(crate) fn run(path: &Path, tokens: &[u32], way: Way) -> Vec<Vec<f32>> {
    run_adapted(path, tokens, way, &Adapted::default())
}

/// The same with adapters.
pub(crate) fn run_adapted(path: &Path, tokens: &[u32], way: Way, adapted: &Adapted) -> Vec<Vec<f32>> {
    let plain = [None];
    let others: &[Option<Arc<Adapter>>] = match (way.company, adapted.others.as_slice()) {
        (Company::Alone, _) => &[],
        (Company::Another, []) => &plain,
        (Company::Another, others) => others,
    };
    let count = others.len() as u32 + 1;
    let mut model = open(path, (tokens.len(), count.max(2)), way);
    let chunk = way.rows_per_step.min(tokens.len());
    let shifted: Vec<u32> = tokens.iter().cycle().skip(11).take(tokens.len()).copied().collect();
    let pages = (tokens.len() as u32).div_ceil(PAGE_TOKENS);
    let layout = KvLayout::whole(&model.spec, &way.policy());
    let ring = PerClass::new(|class| layout.span(class).pages_per_sequence(2 * chunk as u32, 2 * pages));
    let mut out = Vec::with_capacity(tokens.len());
    for start in (0..tokens.len()).step_by(chunk) {
        let end = tokens.len().min(start + chunk);
        let mut plan = StepPlan::default();
        for (number, adapter) in (0..).zip(others) {
            let pages = (0..pages).map(|page| count * page + number).collect();
            let rings = PerClass::new(|class| (number + 1) * ring[class]..(number + 2) * ring[class]);
            push(&mut plan, &shifted[start..end], start, (pages, rings));
            plan.adapt(adapter.clone());
        }
        let mine = plan.tokens.len();
        // The last of every few pages, last first, beside company; pages in order when alone.
        let places = match way.company {
            Company::Alone => (0..pages).collect(),
            Company::Another => (0..pages).rev().map(|page| count * page + count - 1).collect(),
        };
        push(&mut plan, &tokens[start..end], start, (places, PerClass::new(|class| 0..ring[class])));
        plan.adapt(adapted.own.clone());
        out.extend(step(&mut model, &plan).split_off(mine));
    }
    out
}

/// Loads a model for so many sequences of this length.
fn open(path: &Path, (length, sequences): (usize, u32), way: Way) -> LoadedModel {
    let context = sequences * (length as u32).next_multiple_of(PAGE_TOKENS);
    let rows_per_step = sequences * way.rows_per_step.min(length) as u32;
    let pool = Arc::new(Pool::new(way.threads));
    let files = Arc::new(ModelFiles::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    let spec = ModelSpec::from_files(&files).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let demand = CacheDemand { context, rows_per_step, sequences };
    let newest = CachePages::whole(&KvLayout::whole(&spec, &way.policy()), &demand);
    let all = context.div_ceil(PAGE_TOKENS);
    let cache = CachePages::new(|class| if class == PageClass::Full { all } else { newest.of(class) });
    let limits = ModelLimits::new(context, rows_per_step, cache);
    let limits = ModelLimits { activations: way.activations, kv: way.policy(), ..limits };
    let options = LoadOptions::new(limits, pool);
    load(&files, &options).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Adds tokens of a sequence that has these pages, and in turn those of a ring for classes that hold the newest tokens.
fn push(plan: &mut StepPlan, tokens: &[u32], start: usize, (mut pages, rings): (Vec<u32>, PerClass<Range<u32>>)) {
    pages.truncate((start + tokens.len()).div_ceil(PAGE_TOKENS as usize));
    let end = pages.len() as u32;
    let newest = |class: PageClass| {
        let (ring, oldest) = (&rings[class], end.saturating_sub(rings[class].len() as u32));
        let pages = (oldest..end).map(|page| ring.start + page % ring.len() as u32).collect();
        (!ring.is_empty()).then_some(PageRun { class, first: oldest, pages })
    };
    let newest = [PageClass::Window, PageClass::Tail].into_iter().filter_map(newest);
    let runs = std::iter::once(PageRun { class: PageClass::Full, first: 0, pages }).chain(newest).collect();
    let id = plan.steps.len() as u64;
    plan.add(id, start as u32, tokens.iter().copied(), runs);
}

fn step(model: &mut LoadedModel, plan: &StepPlan) -> Vec<Vec<f32>> {
    let (mut hidden, mut logits) = (Hidden::default(), Vec::new());
    model.token_io.embed(plan, &mut hidden).expect("the tokens are in the vocabulary");
    for stage in &model.stages {
        stage.run(plan, &mut hidden).expect("the plan fits the pages");
    }
    let rows: Vec<u32> = (0..plan.tokens.len() as u32).collect();
    let LoadedModel { token_io, spec, .. } = model;
    let (read, numbers) = match spec.head {
        Some(_) => (token_io.logits(plan, &hidden, &rows, &mut logits), spec.vocabulary),
        None => (token_io.normed(plan, &hidden, &rows, &mut logits), spec.width),
    };
    read.expect("the rows exist");
    logits.chunks_exact(numbers).map(<[f32]>::to_vec).collect()
}

pub(crate) fn relative_difference(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len(), "size of the vocabulary");
    let largest = theirs.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
    let difference = |(a, b): (&f32, &f32)| if a.is_finite() { (a - b).abs() } else { f32::INFINITY };
    ours.iter().zip(theirs).map(difference).fold(0.0, f32::max) / largest
}

pub(crate) fn read_tokens(path: &Path) -> Vec<u32> {
    let text = fs::read_to_string(path).expect("the fixture has tokens");
    let numbers: serde_json::Value = serde_json::from_str(&text).expect("tokens are JSON");
    numbers.as_array().expect("tokens are a list").iter().map(|n| n.as_u64().expect("a token") as u32).collect()
}

/// Rows of a two-dimensional float32 array in numpy's format 1.0.
pub(crate) fn read_npy(path: &Path) -> Vec<Vec<f32>> {
    let bytes = fs::read(path).expect("the fixture has logits");
    assert!(bytes.starts_with(b"\x93NUMPY\x01\x00"), "{} is not numpy's format 1.0", path.display());
    let data_at = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..data_at]).expect("the header is text");
    assert!(header.contains("'<f4'") && header.contains("'fortran_order': False"), "{header}");
    let shape = header.split(['(', ')']).nth(1).expect("the header has a shape");
    let columns: usize = shape.split(", ").nth(1).and_then(|n| n.parse().ok()).expect("the shape has two numbers");
    let (numbers, _) = bytes[data_at..].as_chunks::<4>();
    let values: Vec<f32> = numbers.iter().map(|number| f32::from_le_bytes(*number)).collect();
    values.chunks_exact(columns).map(<[f32]>::to_vec).collect()
}
