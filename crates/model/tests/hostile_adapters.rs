//! Adapters that must be refused, by the name of what is wrong with them.

mod harness;

use std::fs;
use std::path::Path;

use cascadia_model::{Adapter, AdapterFiles, AdapterPart, AdapterPrecision, ModelError, ModelSpec};
use cascadia_weights::ModelFiles;
use serde_json::json;

use harness::written_adapter::{Module, WrittenAdapter, WrittenTensor};

/// Two modules of the fixture `llama3`.
const MODULES: [Module<'_>; 2] = [
    Module { name: "model.layers.0.self_attn.q_proj", rows: 64, columns: 64 },
    Module { name: "model.layers.1.mlp.down_proj", rows: 64, columns: 96 },
];

fn load(folder: &Path, fixture: &str) -> Result<Adapter, ModelError> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture);
    let base = ModelFiles::open(&path).expect("the fixture opens");
    let spec = ModelSpec::from_files(&base).expect("the fixture has settings");
    let files = AdapterFiles::open(folder)?;
    Adapter::load(&[AdapterPart { files: &files, weight: 1.0 }], &base, &spec, AdapterPrecision::Exact)
}

/// The adapter is refused with an error that names this tensor or setting.
fn check_refused(folder: &Path, fixture: &str, named: &str) {
    let Err(error) = load(folder, fixture) else { panic!("{named} is accepted") };
    assert!(error.to_string().contains(named), "{named} is not named by: {error}");
}

/// A good adapter is refused once it is changed.
fn check(named: &str, change: fn(&mut WrittenAdapter)) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut adapter = WrittenAdapter::random(&MODULES, 4);
    change(&mut adapter);
    adapter.write(folder.path());
    check_refused(folder.path(), "llama3", named);
}

/// Gives an update another rank.
fn set_rank(adapter: &mut WrittenAdapter, rank: usize) {
    adapter.tensor("q_proj.lora_A").reshape(&[rank, 64]);
    adapter.tensor("q_proj.lora_B").reshape(&[64, rank]);
}

/// Adds both halves of an update of rank 4.
fn add(adapter: &mut WrittenAdapter, module: Module<'_>) {
    adapter.tensors.extend(WrittenAdapter::random(&[module], 4).tensors);
}

#[test]
fn the_unchanged_adapter_is_accepted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    WrittenAdapter::random(&MODULES, 4).write(folder.path());
    let adapter = load(folder.path(), "llama3").expect("a good adapter");
    assert_eq!(adapter.targets(), ["blk.0.attn_q.weight", "blk.1.ffn_down.weight"]);
}

#[test]
fn wrong_shapes() {
    check("q_proj.lora_A", |adapter| adapter.tensor("q_proj.lora_A").reshape(&[4, 63]));
    check("q_proj.lora_B", |adapter| adapter.tensor("q_proj.lora_B").reshape(&[65, 4]));
    check("q_proj.lora_B", |adapter| adapter.tensor("q_proj.lora_B").reshape(&[64, 5]));
    check("q_proj.lora_A", |adapter| adapter.tensor("q_proj.lora_A").reshape(&[4 * 64]));
    check("q_proj.lora_A", |adapter| adapter.tensor("q_proj.lora_A").reshape(&[1, 2, 2, 64]));
    // As one of several experts would have it.
    check("q_proj.lora_", |adapter| {
        adapter.tensor("q_proj.lora_A").reshape(&[2, 4, 64]);
        adapter.tensor("q_proj.lora_B").reshape(&[2, 64, 4]);
    });
    // Transposed.
    check("down_proj.lora_", |adapter| {
        adapter.tensor("down_proj.lora_A").reshape(&[96, 4]);
        adapter.tensor("down_proj.lora_B").reshape(&[4, 64]);
    });
    check("embed_tokens.lora_embedding_A", |adapter| {
        let name = |half: &str| format!("base_model.model.model.embed_tokens.lora_embedding_{half}");
        adapter.tensors.push(WrittenTensor::random(&name("A"), &[4, 287]));
        adapter.tensors.push(WrittenTensor::random(&name("B"), &[64, 4]));
    });
}

#[test]
fn impossible_ranks() {
    check("q_proj.lora_A", |adapter| adapter.tensor("q_proj.lora_A").reshape(&[0, 64]));
    check("q_proj.lora_", |adapter| set_rank(adapter, 0));
    check("q_proj.lora_", |adapter| set_rank(adapter, 257));
    check("`r`", |adapter| adapter.config["r"] = 0.into());
    check("`r`", |adapter| adapter.config["r"] = (1_u64 << 31).into());
    check("`r`", |adapter| adapter.config["r"] = (-4).into());
    check("`r`", |adapter| adapter.config["r"] = "four".into());
}

#[test]
fn numbers_that_cannot_be_computed_with() {
    check("q_proj.lora_A", |adapter| adapter.tensor("q_proj.lora_A").set(17, f32::NAN));
    check("down_proj.lora_B", |adapter| adapter.tensor("down_proj.lora_B").set(0, f32::INFINITY));
    check("q_proj.lora_A", |adapter| adapter.tensor("q_proj.lora_A").dtype = "I32");
    check("q_proj.lora_", |adapter| {
        adapter.tensor("q_proj.lora_A").dtype = "U32";
        adapter.tensor("q_proj.lora_B").dtype = "U32";
    });
    check("lora_alpha", |adapter| adapter.config["lora_alpha"] = 1e300.into());
    check("lora_alpha", |adapter| adapter.config["lora_alpha"] = "much".into());
    check("alpha_pattern", |adapter| adapter.config["alpha_pattern"] = json!({"q_proj": 1e300}));
}

#[test]
fn halves_and_doubles() {
    check("q_proj.lora_A", |adapter| adapter.remove("q_proj.lora_B"));
    check("q_proj.lora_B", |adapter| adapter.remove("q_proj.lora_A"));
    check("adapter_model.safetensors", |adapter| adapter.tensors.clear());
    // The same module under two of its names.
    check("q_proj.lora_", |adapter| {
        let mut again = adapter.tensor("q_proj.lora_A").clone();
        again.name = again.name.replace("lora_A.weight", "lora_A.default.weight");
        adapter.tensors.push(again);
    });
    check("q_proj.lora_", |adapter| {
        let module = Module { name: "model.language_model.layers.0.self_attn.q_proj", rows: 64, columns: 64 };
        add(adapter, module);
    });
    check("q_proj.lora_B.bias", |adapter| {
        adapter
            .tensors
            .push(WrittenTensor::random("base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias", &[63]));
    });
}

/// Leaves one update, and adds what its rows are scaled to.
fn add_magnitude(adapter: &mut WrittenAdapter, length: usize) -> &mut WrittenTensor {
    adapter.remove("down_proj");
    let name = "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector";
    adapter.tensors.push(WrittenTensor::random(name, &[length]));
    adapter.tensor("lora_magnitude_vector")
}

#[test]
fn magnitudes() {
    // Settings and tensors disagree.
    check("q_proj", |adapter| add_magnitude(adapter, 64).set(0, 1.0));
    check("_proj", |adapter| adapter.config["use_dora"] = true.into());
    check("q_proj.lora_magnitude_vector", |adapter| {
        adapter.config["use_dora"] = true.into();
        add_magnitude(adapter, 63).set(0, 1.0);
    });
    check("q_proj.lora_magnitude_vector", |adapter| {
        adapter.config["use_dora"] = true.into();
        add_magnitude(adapter, 64).set(3, f32::NAN);
    });
}

#[test]
fn strangers() {
    check("z_proj", |adapter| {
        add(adapter, Module { name: "model.layers.0.self_attn.z_proj", rows: 64, columns: 64 });
    });
    check("layers.7", |adapter| {
        add(adapter, Module { name: "model.layers.7.self_attn.q_proj", rows: 64, columns: 64 });
    });
    check("layers.99999999999999999999999", |adapter| {
        let name = "model.layers.99999999999999999999999.self_attn.q_proj";
        add(adapter, Module { name, rows: 64, columns: 64 });
    });
    check("input_layernorm", |adapter| {
        add(adapter, Module { name: "model.layers.0.input_layernorm", rows: 64, columns: 64 });
    });
    check("../../../etc/passwd", |adapter| {
        add(adapter, Module { name: "../../../etc/passwd", rows: 64, columns: 64 });
    });
    check("/etc/passwd", |adapter| adapter.tensors.push(WrittenTensor::random("/etc/passwd", &[4, 4])));
    check("cleared", |adapter| adapter.tensors.push(WrittenTensor::random("\u{1b}[2Jcleared\0", &[4, 4])));
    check("lm_head.modules_to_save", |adapter| {
        adapter.tensors.push(WrittenTensor::random("base_model.model.lm_head.modules_to_save.weight", &[288, 64]));
    });
    check("peft_type", |adapter| adapter.config["peft_type"] = "IA3".into());
    check("peft_type", |adapter| adapter.config = json!({}));
    check("modules_to_save", |adapter| adapter.config["modules_to_save"] = json!(["lm_head"]));
    check("target_parameters", |adapter| adapter.config["target_parameters"] = json!("mlp.experts.down_proj"));
    check("target_parameters", |adapter| adapter.config["target_parameters"] = json!([7]));
    check("init_lora_weights", |adapter| adapter.config["init_lora_weights"] = "pissa".into());
}

/// Updates of a parameter that holds all experts, with one thing that is wrong.
#[test]
fn experts_in_one_parameter() {
    // Those of the fixture.
    let (fixture, module) = ("qwen3-moe-fused", "model.layers.1.mlp.experts");
    let (width, inner, experts) = (32, 20, 5);
    let write = |rows: usize, columns: usize, rank: usize, parameters: &[&str]| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut adapter = WrittenAdapter::random(&[Module { name: module, rows, columns }], rank);
        (adapter.config["target_parameters"], adapter.config["r"]) = (json!(parameters), json!(2));
        adapter.write(folder.path());
        folder
    };
    let both = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"];
    for (rows, columns, rank) in [(width, inner, 2 * experts), (2 * inner, width, experts)] {
        load(write(rows, columns, rank, &both).path(), fixture).expect("a good adapter");
    }
    let refused = |(rows, columns, rank), parameters: &[&str], fixture, named| {
        check_refused(write(rows, columns, rank, parameters).path(), fixture, named);
    };
    refused((width, inner, 2 * experts + 1), &both, fixture, "experts.lora_A");
    refused((width, inner, experts - 1), &both, fixture, "experts.lora_A");
    refused((width, inner, 257 * experts), &both, fixture, "rank 257");
    refused((width, inner + 1, experts), &both, fixture, "experts.lora_A");
    refused((width, inner, experts), &both[..1], fixture, "experts.lora_A");
    refused((width, inner, experts), &["mlp.experts.gate"], fixture, "experts.lora_A");
    refused((width, inner, experts), &both, "llama3", "experts.lora_A");
}

/// Ten thousand tensors: of layers that the model does not have, without a number, and of no update.
#[test]
fn ten_thousand_tensors() {
    const PAIRS: usize = 5_000;
    fn fill(adapter: &mut WrittenAdapter, rank: usize) {
        // Those of the first three layers would be right.
        let names: Vec<_> = (0..PAIRS).map(|layer| format!("model.layers.{layer}.self_attn.q_proj")).collect();
        let modules: Vec<_> = names.iter().map(|name| Module { name, rows: 64, columns: 64 }).collect();
        adapter.tensors = WrittenAdapter::random(&modules, rank).tensors;
    }
    check("layers.1", |adapter| fill(adapter, 1));
    check("q_proj.lora_", |adapter| fill(adapter, 0));
    check("junk.", |adapter| {
        let junk = (0..2 * PAIRS).map(|number| WrittenTensor::random(&format!("junk.{number}"), &[0]));
        adapter.tensors.extend(junk);
    });
}

/// Adapters of other models, which have other layers or other widths.
#[test]
fn alien_bases() {
    let adapters = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/adapters");
    for (adapter, base, named) in [
        ("llama3-all", "qwen2", "lora_"),
        ("llama3-all", "mistral", "lora_"),
        ("mistral-rslora", "llama3", "lora_"),
        ("gpt2-all", "llama3", "transformer.h."),
        ("llama3-all", "gpt2", "model.layers."),
        ("llama3-gguf-all", "qwen2", "general.architecture"),
        ("mixtral-experts", "llama3", "block_sparse_moe"),
    ] {
        check_refused(&adapters.join(adapter), base, named);
    }
}

/// Files that are cut, whose tensors overlap, or that lack their settings.
#[test]
fn broken_files() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (weights, config) =
        (folder.path().join("adapter_model.safetensors"), folder.path().join("adapter_config.json"));
    let write = || WrittenAdapter::random(&MODULES, 4).write(folder.path());
    write();
    let whole = fs::read(&weights).expect("it was written");
    for length in [0, 7, 8, 100, whole.len() / 2, whole.len() - 1] {
        fs::write(&weights, &whole[..length]).expect("written");
        check_refused(folder.path(), "llama3", "adapter_model.safetensors");
    }
    write();
    // Both halves of an update say that they lie in the same bytes.
    let (apart, same) = (&b"[1024,2048]"[..], &b"[0,1024]   "[..]);
    let at = whole.windows(apart.len()).position(|bytes| bytes == apart).expect("the second tensor follows the first");
    let mut overlapping = whole.clone();
    overlapping[at..at + same.len()].copy_from_slice(same);
    fs::write(&weights, &overlapping).expect("written");
    check_refused(folder.path(), "llama3", "q_proj.lora_");
    write();
    fs::write(&config, "{\"peft_type\": \"LORA\"").expect("written");
    check_refused(folder.path(), "llama3", "adapter_config.json");
    fs::remove_file(&config).expect("it was there");
    check_refused(folder.path(), "llama3", "adapter_config.json");
    fs::remove_file(&weights).expect("it was there");
    check_refused(folder.path(), "llama3", "adapter_model.safetensors");
}
