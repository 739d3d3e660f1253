//! The forward pass against logits that `transformers` computed with the same files (see `fixtures/README.md`).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cascadia_kernels::quantize::quantize;
use cascadia_kernels::{Dtype, Pool};
use cascadia_model::{Hidden, LoadOptions, LoadedModel, PAGE_TOKENS, SequenceStep, StepPlan, load};
use cascadia_weights::gguf::write::{Outline, TensorEntry, write};
use cascadia_weights::{MetadataValue, ModelFiles, WeightsError};

/// Largest difference from the reference, relative to the largest logit of the row.
const TOLERANCE: f32 = 1e-4;

/// How a sequence is cut into steps; the logits may not depend on any of it.
#[derive(Clone, Copy, Debug)]
struct Way {
    rows_per_step: usize,
    threads: usize,
    company: Company,
}

/// What else is computed in the same steps.
#[derive(Clone, Copy, Debug)]
enum Company {
    Alone,
    /// The same sequence shifted by some tokens, in rows before and in pages between those of the first.
    Another,
}

const fn alone(rows_per_step: usize, threads: usize) -> Way {
    Way { rows_per_step, threads, company: Company::Alone }
}

const WAYS: [Way; 10] = [
    alone(usize::MAX, 1),
    alone(usize::MAX, 2),
    alone(1, 1),
    alone(1, 2),
    alone(3, 1),
    alone(7, 2),
    alone(16, 1),
    alone(33, 2),
    Way { rows_per_step: usize::MAX, threads: 1, company: Company::Another },
    Way { rows_per_step: 5, threads: 2, company: Company::Another },
];

#[test]
fn llama2() {
    check("llama2", "");
}

#[test]
fn llama3() {
    check("llama3", "");
}

#[test]
fn llama_tied() {
    check("llama-tied", "");
}

#[test]
fn mistral() {
    check("mistral", "");
}

#[test]
fn qwen2() {
    check("qwen2", "");
}

#[test]
fn qwen2_untied() {
    check("qwen2-untied", "");
}

#[test]
fn one_safetensors_file() {
    check("llama2", "model.safetensors");
}

#[test]
fn llama3_gguf() {
    check("llama3-gguf", "model.gguf");
}

#[test]
fn qwen2_gguf() {
    check("qwen2-gguf", "model.gguf");
}

/// Runs a fixture in every way: the first within tolerance of the reference, the others with the bits of the first.
fn check(fixture: &str, file: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture);
    let tokens = read_tokens(&folder.join("tokens.json"));
    let reference = read_npy(&folder.join("logits.npy"));
    assert_eq!(reference.len(), tokens.len(), "{fixture}: one row of the reference per token");
    let path = if file.is_empty() { folder } else { folder.join(file) };

    let first = run(&path, &tokens, WAYS[0]);
    assert_eq!(first.len(), reference.len(), "{fixture}");
    let mut worst = 0.0_f32;
    for (position, (ours, theirs)) in first.iter().zip(&reference).enumerate() {
        let difference = relative_difference(ours, theirs);
        assert!(
            difference <= TOLERANCE,
            "{fixture}: position {position} is off by {difference:e} of its largest logit"
        );
        worst = worst.max(difference);
    }
    // Shown by `cargo test -- --nocapture`.
    eprintln!("{fixture} {file}: worst relative difference {worst:e}");
    check_bits(fixture, &path, &tokens, &first);
}

/// Every other way gives the bits of the first.
fn check_bits(what: &str, path: &Path, tokens: &[u32], first: &[Vec<f32>]) {
    for way in &WAYS[1..] {
        let again = run(path, tokens, *way);
        for (position, (one, other)) in first.iter().zip(&again).enumerate() {
            let same = one.len() == other.len() && one.iter().zip(other).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{what}: {way:?} gives other bits than {:?} at position {position}", WAYS[0]);
        }
        assert_eq!(again.len(), first.len(), "{what}: {way:?}");
    }
}

/// Kernels for one row and for many are different code; quantised weights must not show which one ran.
#[test]
fn quantised_weights_give_the_same_bits_in_every_way() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tokens: Vec<u32> = (0..72).map(|at| at * 37 % VOCABULARY as u32).collect();
    for dtype in [Dtype::Q8_0, Dtype::Q4_0, Dtype::Q4_K, Dtype::Q5_K, Dtype::Q6_K] {
        let path = folder.path().join(format!("{dtype}.gguf"));
        write_random_model(&path, dtype);
        let first = run(&path, &tokens, WAYS[0]);
        assert!(first.iter().flatten().all(|logit| logit.is_finite()), "{dtype}");
        check_bits(dtype.name(), &path, &tokens, &first);
    }
}

const VOCABULARY: u64 = 288;

/// A model of two layers whose matrices hold pseudo-random numbers in one format.
fn write_random_model(path: &Path, dtype: Dtype) {
    let (width, inner) = (256, 512);
    let counts =
        [("block_count", 2), ("embedding_length", width), ("feed_forward_length", inner), ("attention.head_count", 8)];
    let more = [("attention.head_count_kv", 2), ("context_length", 256)];
    let mut metadata = vec![("general.architecture".to_owned(), MetadataValue::String((*b"llama").into()))];
    let count = |(key, value): (&str, u64)| (format!("llama.{key}"), MetadataValue::U32(value as u32));
    metadata.extend(counts.into_iter().chain(more).map(count));
    metadata.push(("llama.attention.layer_norm_rms_epsilon".to_owned(), MetadataValue::F32(1e-5)));
    let matrix = |name: String, rows: u64, columns: u64| TensorEntry { name, dtype, shape: vec![rows, columns] };
    let norm = |name: String| TensorEntry { name, dtype: Dtype::F32, shape: vec![width] };
    let mut tensors =
        vec![matrix("token_embd.weight".to_owned(), VOCABULARY, width), norm("output_norm.weight".to_owned())];
    for layer in 0..2 {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        tensors.extend(["attn_norm", "ffn_norm"].map(|part| norm(name(part))));
        let shapes = [("attn_q", width, width), ("attn_k", width / 4, width), ("attn_v", width / 4, width)];
        let more = [("attn_output", width, width), ("ffn_gate", inner, width), ("ffn_up", inner, width)];
        let all = shapes.into_iter().chain(more).chain([("ffn_down", width, inner)]);
        tensors.extend(all.map(|(part, rows, columns)| matrix(name(part), rows, columns)));
    }
    let mut state = 1_u64;
    write::<WeightsError, _>(path, Outline { metadata: &metadata, tensors: &tensors }, |index, sink| {
        let numbers: u64 = tensors[index].shape.iter().product();
        let values = (0..numbers).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32 / (1 << 23) as f32 - 1.0) * 0.1
        });
        let values: Vec<f32> = values.collect();
        let mut bytes = vec![0; sink.left() as usize];
        quantize(tensors[index].dtype, &values, None, &mut bytes).expect("finite numbers");
        sink.write(&bytes)
    })
    .expect("the model is written");
}

/// The logits of every position, with prefill cut as `way` says.
fn run(path: &Path, tokens: &[u32], way: Way) -> Vec<Vec<f32>> {
    let mut model = open(path, tokens.len(), way);
    let chunk = way.rows_per_step.min(tokens.len());
    let others: Vec<u32> = tokens.iter().cycle().skip(11).take(tokens.len()).copied().collect();
    let pages = (tokens.len() as u32).div_ceil(PAGE_TOKENS);
    let mut out = Vec::with_capacity(tokens.len());
    for start in (0..tokens.len()).step_by(chunk) {
        let end = tokens.len().min(start + chunk);
        let mut plan = StepPlan::default();
        if let Company::Another = way.company {
            push(&mut plan, &others[start..end], start, (0..pages).map(|page| 2 * page).collect());
        }
        let mine = plan.tokens.len();
        // Odd pages, last first, beside company; pages in order when alone.
        let places = match way.company {
            Company::Alone => (0..pages).collect(),
            Company::Another => (0..pages).rev().map(|page| 2 * page + 1).collect(),
        };
        push(&mut plan, &tokens[start..end], start, places);
        out.extend(step(&mut model, &plan).split_off(mine));
    }
    out
}

fn open(path: &Path, length: usize, way: Way) -> LoadedModel {
    // Enough pages and rows for two sequences.
    let context = 2 * (length as u32).next_multiple_of(PAGE_TOKENS);
    let options = LoadOptions { context, rows_per_step: 2 * length as u32, pool: Arc::new(Pool::new(way.threads)) };
    let files = Arc::new(ModelFiles::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    load(&files, &options).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn push(plan: &mut StepPlan, tokens: &[u32], start: usize, mut pages: Vec<u32>) {
    let first = plan.tokens.len() as u32;
    plan.tokens.extend_from_slice(tokens);
    pages.truncate((start + tokens.len()).div_ceil(PAGE_TOKENS as usize));
    plan.steps.push(SequenceStep { rows: first..plan.tokens.len() as u32, start: start as u32, pages });
}

fn step(model: &mut LoadedModel, plan: &StepPlan) -> Vec<Vec<f32>> {
    let (mut hidden, mut logits) = (Hidden::default(), Vec::new());
    model.token_io.embed(plan, &mut hidden).expect("the tokens are in the vocabulary");
    for stage in &model.stages {
        stage.run(plan, &mut hidden).expect("the plan fits the pages");
    }
    model.token_io.logits(&hidden, 0..plan.tokens.len(), &mut logits).expect("the rows exist");
    logits.chunks_exact(model.spec.vocabulary).map(<[f32]>::to_vec).collect()
}

fn relative_difference(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len(), "size of the vocabulary");
    let largest = theirs.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
    let difference = |(a, b): (&f32, &f32)| if a.is_finite() { (a - b).abs() } else { f32::INFINITY };
    ours.iter().zip(theirs).map(difference).fold(0.0, f32::max) / largest
}

fn read_tokens(path: &PathBuf) -> Vec<u32> {
    let text = fs::read_to_string(path).expect("the fixture has tokens");
    let numbers: serde_json::Value = serde_json::from_str(&text).expect("tokens are JSON");
    numbers.as_array().expect("tokens are a list").iter().map(|n| n.as_u64().expect("a token") as u32).collect()
}

/// Rows of a two-dimensional float32 array in numpy's format 1.0.
fn read_npy(path: &PathBuf) -> Vec<Vec<f32>> {
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
