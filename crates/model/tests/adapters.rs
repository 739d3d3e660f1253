//! Adapters against logits that `peft` computed with the same files (see `fixtures/README.md`).

mod harness;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cascadia_kernels::{Dtype, Layout};
use cascadia_model::{Adapter, AdapterFiles, AdapterPart, AdapterPrecision, ModelSpec};
use cascadia_weights::ModelFiles;

use harness::export::{export, write_gguf};
use harness::random_model::{VOCABULARY, write_random_model};
use harness::written_adapter::{Module, WrittenAdapter};
use harness::{
    Adapted, TOLERANCE, WAYS, check_adapted_bits, read_npy, read_tokens, relative_difference, run, run_adapted,
};

/// An adapter of the fixtures and the model that it is for.
struct Case {
    name: String,
    /// The adapter's folder.
    folder: PathBuf,
    /// The model's file or folder.
    base: PathBuf,
    tokens: Vec<u32>,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// Every adapter; the name of its model comes before the last dash.
fn cases() -> Vec<Case> {
    let entries = fs::read_dir(fixtures().join("adapters")).expect("the fixtures have adapters");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect();
    names.sort();
    assert!(names.len() > 30, "{names:?}");
    names.iter().map(|name| case(name)).collect()
}

fn case(name: &str) -> Case {
    let (fixture, _) = name.rsplit_once('-').expect("a model and a kind");
    let base = fixtures().join(fixture);
    let tokens = read_tokens(&base.join("tokens.json"));
    let gguf = base.join("model.gguf");
    let base = if gguf.exists() { gguf } else { base };
    Case { name: name.to_owned(), folder: fixtures().join("adapters").join(name), base, tokens }
}

/// Loads an adapter for the model at `base`.
fn load(folder: &Path, base: &Path, weight: f32, precision: AdapterPrecision) -> Arc<Adapter> {
    let (name, on) = (folder.display(), base.display());
    let files = AdapterFiles::open(folder).unwrap_or_else(|error| panic!("{name}: {error}"));
    let base = ModelFiles::open(base).unwrap_or_else(|error| panic!("{on}: {error}"));
    let spec = ModelSpec::from_files(&base).unwrap_or_else(|error| panic!("{on}: {error}"));
    let adapter = Adapter::load(&[AdapterPart { files: &files, weight }], &base, &spec, precision);
    Arc::new(adapter.unwrap_or_else(|error| panic!("{name} on {on}: {error}")))
}

fn exact(folder: &Path, base: &Path) -> Arc<Adapter> {
    load(folder, base, 1.0, AdapterPrecision::Exact)
}

fn only(adapter: &Arc<Adapter>) -> Adapted {
    Adapted { own: Some(Arc::clone(adapter)), others: Vec::new() }
}

/// The logits of the last positions are those of the reference.
fn check_reference(case: &Case, base: &Path) -> Vec<Vec<f32>> {
    let logits = run_adapted(base, &case.tokens, WAYS[0], &only(&exact(&case.folder, base)));
    let reference = read_npy(&case.folder.join("logits.npy"));
    let first = case.tokens.len() - reference.len();
    for (position, (ours, theirs)) in (first..).zip(logits[first..].iter().zip(&reference)) {
        let (name, difference) = (&case.name, relative_difference(ours, theirs));
        let base = base.display();
        assert!(
            difference <= TOLERANCE,
            "{name} on {base}: position {position} is off by {difference:e} of its largest logit"
        );
    }
    logits
}

#[test]
fn logits_are_those_of_peft() {
    cases().iter().for_each(|case| drop(check_reference(case, &case.base)));
}

/// Files in GGUF's form have rows in another order, fused or split; the same adapter finds its places there.
#[test]
fn adapters_fit_models_in_either_form() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    for case in cases().iter().filter(|case| case.base.is_dir()) {
        let path = scratch.path().join(format!("{}.gguf", case.name));
        write_gguf(&path, &export(&case.base));
        check_reference(case, &path);
    }
    check_reference(&case("llama3-gguf-all"), &fixtures().join("llama3"));
}

/// The adapter to compute beside another: one of another kind for the same model, or the same at half its weight.
fn other(case: &Case, all: &[Case]) -> Arc<Adapter> {
    let another = all.iter().find(|other| other.base == case.base && other.name != case.name);
    match another {
        Some(another) => exact(&another.folder, &case.base),
        None => load(&case.folder, &case.base, 0.5, AdapterPrecision::Exact),
    }
}

/// Alone, in chunks, on one thread and two, beside sequences without an adapter and with another.
#[test]
fn bits_depend_on_nothing_else_in_a_step() {
    let all = cases();
    for case in &all {
        let Case { name, base, tokens, folder } = case;
        let (own, other) = (exact(folder, base), other(case, &all));
        assert_ne!(own.id(), other.id(), "{name}");
        let others = vec![None, Some(Arc::clone(&other))];
        let adapted = Adapted { own: Some(Arc::clone(&own)), others };
        let first = run_adapted(base, tokens, WAYS[0], &adapted);
        check_adapted_bits(name, (base, tokens), &first, &adapted);
        let plain = run(base, tokens, WAYS[0]);
        assert_ne!(first, plain, "{name} changes nothing");
        let beside = Adapted { own: None, others: vec![Some(own), Some(other)] };
        check_adapted_bits(name, (base, tokens), &plain, &beside);
    }
}

/// Modules of both layers of a random model.
const MODULES: [Module<'_>; 8] = [
    Module { name: "model.layers.0.self_attn.q_proj", rows: 256, columns: 256 },
    Module { name: "model.layers.0.self_attn.v_proj", rows: 64, columns: 256 },
    Module { name: "model.layers.0.mlp.gate_proj", rows: 512, columns: 256 },
    Module { name: "model.layers.0.mlp.down_proj", rows: 256, columns: 512 },
    Module { name: "model.layers.1.self_attn.k_proj", rows: 64, columns: 256 },
    Module { name: "model.layers.1.self_attn.o_proj", rows: 256, columns: 256 },
    Module { name: "model.layers.1.mlp.up_proj", rows: 512, columns: 256 },
    Module { name: "model.layers.1.mlp.down_proj", rows: 256, columns: 512 },
];

/// Ranks from the least to the greatest share steps; quantised weights and adapters rounded like them do not show it.
#[test]
fn quantised_models_give_the_same_bits_in_every_way() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let folders = [1, 7, 16, 256].map(|rank| {
        let folder = scratch.path().join(format!("rank-{rank}"));
        fs::create_dir(&folder).expect("a folder");
        WrittenAdapter::random(&MODULES, rank).write(&folder);
        folder
    });
    let tokens: Vec<u32> = (0..72).map(|at| at * 37 % VOCABULARY as u32).collect();
    for dtype in [Dtype::F16, Dtype::Q8_0, Dtype::Q4_0, Dtype::Q4_K, Dtype::Q6_K] {
        let layouts = [Layout::Rows, Layout::Interleaved].into_iter().filter(|layout| layout.holds(dtype));
        for layout in layouts {
            let path = scratch.path().join(format!("{dtype}.gguf"));
            write_random_model(&path, dtype, layout);
            let [least, odd, usual, greatest] =
                folders.each_ref().map(|folder| load(folder, &path, 1.0, AdapterPrecision::LikeBase));
            let what = format!("{dtype} {layout:?}");
            let unrounded = [3, 1].map(|number: usize| exact(&folders[number], &path));
            let [greatest_exact, odd_exact] = unrounded;
            for (own, beside) in [(usual, [least, greatest]), (greatest_exact, [odd, odd_exact])] {
                let others = [None].into_iter().chain(beside.map(Some)).collect();
                let adapted = Adapted { own: Some(own), others };
                let first = run_adapted(&path, &tokens, WAYS[0], &adapted);
                assert!(first.iter().flatten().all(|logit| logit.is_finite()), "{what}");
                assert_ne!(first, run(&path, &tokens, WAYS[0]), "{what}");
                check_adapted_bits(&what, (&path, &tokens), &first, &adapted);
            }
        }
    }
}

/// What an adapter is, whatever file it comes from.
#[test]
fn adapters_say_what_they_are() {
    let summary = |name: &str| AdapterFiles::open(&case(name).folder).expect(name).summary();
    let all = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"];
    let peft = summary("llama3-all");
    assert_eq!((peft.format, peft.kind, peft.base.as_deref()), ("PEFT", "LoRA", Some("llama3")));
    assert_eq!((peft.alpha, peft.ranks.clone(), peft.tensors), (8.0, 4..=4, 3 * 7 * 2));
    assert_eq!(peft.modules, all);
    assert_eq!(peft.bytes, 4 * peft.parameters);
    let gguf = summary("llama3-gguf-all");
    assert_eq!((gguf.format, gguf.kind, gguf.parameters), ("GGUF", "LoRA", peft.parameters));
    assert_eq!(summary("llama3-dora").kind, "DoRA");
    assert_eq!(summary("mistral-rslora").kind, "rsLoRA");
    assert_eq!(summary("smollm3-patterns").ranks, 2..=7);
    let adapter = exact(&case("llama3-all").folder, &case("llama3-all").base);
    assert_eq!((adapter.rank(), adapter.targets().len()), (4, 3 * 7));
    assert!(adapter.targets().is_sorted() && adapter.targets().contains(&"blk.2.attn_output.weight"));
}

/// An adapter is known by its content: the same in another folder, another when one number differs.
#[test]
fn ids_are_those_of_the_content() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, change: &dyn Fn(&mut WrittenAdapter)| {
        let folder = scratch.path().join(name);
        fs::create_dir(&folder).expect("a folder");
        let mut written = WrittenAdapter::random(&MODULES[..1], 4);
        change(&mut written);
        written.write(&folder);
        AdapterFiles::open(&folder).expect(name).id()
    };
    let first = write("first", &|_| {});
    assert_eq!(first.to_string().len(), 64);
    assert_eq!(write("again", &|_| {}), first);
    assert_ne!(write("number", &|written| written.tensor("lora_B").set(0, 0.5)), first);
    assert_ne!(write("alpha", &|written| written.config["lora_alpha"] = 3.into()), first);
}

/// Bytes of a mapped file that this process holds, and whether it is mapped at all.
#[cfg(target_os = "linux")]
fn mapped_bytes(file: &Path) -> Option<u64> {
    let file = file.canonicalize().expect("the file is there");
    let maps = fs::read_to_string("/proc/self/smaps").expect("the system says what is mapped");
    let mut lines = maps.lines().skip_while(|line| !line.ends_with(&file.display().to_string()));
    let kilobytes = lines.find_map(|line| line.strip_prefix("Rss:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.map(|kilobytes| 1024 * kilobytes)
}

/// There may be a thousand adapters: what was read of a file does not stay in the process.
#[cfg(target_os = "linux")]
#[test]
fn files_are_mapped_and_take_no_memory() {
    let Case { folder, base, .. } = case("llama2-bias");
    let copy = tempfile::tempdir().expect("a temporary folder");
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        fs::copy(folder.join(file), copy.path().join(file)).expect("it can be copied");
    }
    let weights = copy.path().join("adapter_model.safetensors");
    let files = AdapterFiles::open(copy.path()).expect("it opens");
    assert_eq!(mapped_bytes(&weights), Some(0), "it was read for its digest");
    let base = ModelFiles::open(&base).expect("the fixture opens");
    let spec = ModelSpec::from_files(&base).expect("the fixture has settings");
    let parts = [AdapterPart { files: &files, weight: 1.0 }];
    let ids = [(); 2].map(|()| {
        let adapter = Adapter::load(&parts, &base, &spec, AdapterPrecision::LikeBase).expect("it loads");
        assert_eq!(mapped_bytes(&weights), Some(0), "its weights were read");
        (adapter.id(), adapter.bytes())
    });
    assert_eq!(ids[0], ids[1], "it is read again");
}
