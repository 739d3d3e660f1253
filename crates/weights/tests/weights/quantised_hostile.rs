//! Quantised checkpoints whose parts do not fit together: an answer that names the part, never a panic.

use cascadia_weights::ModelFiles;
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A stored tensor: name, type, shape, and what each of its bytes is.
type Stored = (&'static str, &'static str, Vec<usize>, u8);

/// Writes a folder with these tensors and this `quantization_config`.
fn write(config: &Value, tensors: &[Stored]) -> TempDir {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, dtype, shape, byte) in tensors {
        let size = match *dtype {
            "I64" => 8,
            "I32" | "F32" => 4,
            "F16" | "BF16" => 2,
            _ => 1,
        };
        let start = data.len();
        data.resize(start + size * shape.iter().product::<usize>(), *byte);
        let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
        header.insert((*name).to_owned(), entry);
    }
    let header = Value::Object(header).to_string();
    let folder = TempDir::new().unwrap();
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    std::fs::write(folder.path().join("config.json"), json!({ "quantization_config": config }).to_string()).unwrap();
    folder
}

fn open(config: &Value, tensors: &[Stored]) -> Result<ModelFiles, String> {
    ModelFiles::open(write(config, tensors).path()).map_err(|error| error.to_string())
}

/// `tensors` open as they are, and with each of `changes` give an error with these parts. A change replaces the tensor
/// of its name; an empty type removes it.
fn check(config: &Value, tensors: &[Stored], changes: &[(Stored, &[&str])]) {
    open(config, tensors).unwrap_or_else(|message| panic!("{config}: {message}"));
    for (change, parts) in changes {
        let mut changed = tensors.to_vec();
        changed.retain(|tensor| tensor.0 != change.0);
        if !change.1.is_empty() {
            changed.push(change.clone());
        }
        let message = open(config, &changed).err().unwrap_or_else(|| panic!("{change:?} should not open"));
        assert!(message.contains(&format!("tensor `{}", change.0)), "{change:?}: {message}");
        parts.iter().for_each(|part| assert!(message.contains(part), "{part:?} is not in: {message}"));
    }
}

fn gptq() -> Vec<Stored> {
    vec![
        ("w.qweight", "I32", vec![8, 16], 1),
        ("w.qzeros", "I32", vec![2, 2], 0x77),
        ("w.scales", "F16", vec![2, 16], 1),
        ("w.g_idx", "I32", vec![64], 0),
    ]
}

fn packed() -> Vec<Stored> {
    vec![
        ("w.weight_packed", "I32", vec![8, 4], 1),
        ("w.weight_scale", "BF16", vec![8, 2], 1),
        ("w.weight_zero_point", "I32", vec![1, 2], 1),
        // Every byte 1 would be an absurd shape, so the rows are compared first.
        ("w.weight_shape", "I64", vec![2], 0),
    ]
}

#[test]
fn gptq_and_awq() {
    let config = json!({"quant_method": "gptq", "group_size": 32});
    let changes: [(Stored, &[&str]); 12] = [
        (("w.qzeros", "", vec![], 0), &["is missing"]),
        (("w.scales", "", vec![], 0), &["is missing"]),
        (("w.qweight", "F16", vec![8, 16], 1), &["should be stored as I32 but is F16"]),
        (("w.qweight", "I32", vec![128], 1), &["should be a matrix but has shape [128]"]),
        (("w.qweight", "I32", vec![0, 16], 1), &["should be a matrix but has shape [0, 16]"]),
        (("w.qzeros", "I32", vec![2, 3], 1), &["should have shape [2, 2] but has [2, 3]"]),
        (("w.scales", "F16", vec![2, 15], 1), &["should have shape [groups, 16] but has [2, 15]"]),
        (("w.scales", "F16", vec![0, 16], 1), &["should have shape [groups, 16] but has [0, 16]"]),
        (("w.scales", "I8", vec![2, 16], 1), &["should be stored as F32 or F16 or BF16 but is I8"]),
        (("w.scales", "F16", vec![2, 16], 0xff), &["holds NaN as a scale"]),
        (("w.g_idx", "I32", vec![64], 0xff), &["names group -1 of 2"]),
        (("w.g_idx", "I32", vec![63], 0), &["should have shape [64] but has [63]"]),
    ];
    check(&config, &gptq(), &changes);
    check(&config, &gptq(), &[(("w.g_idx", "I32", vec![64], 2), &["names group 33686018 of 2"])]);

    let unlisted = &gptq()[..3];
    for (group_size, part) in [
        (json!(0), "the group size of config.json is 0"),
        (json!(-2), "the group size of config.json is -2"),
        (json!(64), "has 2 groups for 64 columns in groups of 64"),
        (json!(-1), "has 2 groups for 64 columns in groups of 64"),
        (json!(i64::MAX), "has 2 groups for 64 columns"),
        (json!(1.5), "`group_size` should be a whole number but is 1.5"),
    ] {
        let message = open(&json!({"quant_method": "gptq", "group_size": group_size}), unlisted).unwrap_err();
        assert!(message.contains(part), "{message}");
    }

    let awq = vec![
        ("w.qweight", "I32", vec![64, 2], 1),
        ("w.qzeros", "I32", vec![2, 2], 1),
        ("w.scales", "F16", vec![2, 16], 1),
    ];
    let changes: [(Stored, &[&str]); 4] = [
        (("w.qzeros", "", vec![], 0), &["is missing"]),
        (("w.qzeros", "I32", vec![1, 2], 0), &["should have shape [2, 2]"]),
        (("w.scales", "F16", vec![2, 8], 1), &["should have shape [groups, 16]"]),
        (("w.qweight", "I32", vec![64, 0], 1), &["should be a matrix"]),
    ];
    check(&json!({"quant_method": "awq", "group_size": 32}), &awq, &changes);
}

#[test]
fn compressed_tensors() {
    let config = json!({"quant_method": "compressed-tensors", "format": "pack-quantized"});
    let message = open(&config, &packed()).unwrap_err();
    assert!(message.contains("tensor `w.weight_shape`") && message.contains("should hold 8"), "{message}");
    let plain = vec![("w.weight", "I8", vec![8, 64], 1), ("w.weight_scale", "F32", vec![8, 1], 1)];
    let changes: [(Stored, &[&str]); 5] = [
        (("w.weight", "", vec![], 0), &["is missing"]),
        (("w.weight", "I32", vec![8, 64], 0), &["is stored as I32; this version reads I8 and F8_E4M3 only"]),
        (("w.weight_scale", "F32", vec![7, 1], 1), &["should have shape [8, groups] or [1] but has [7, 1]"]),
        (("w.weight_scale", "F32", vec![8, 3], 1), &["has 3 groups, which do not divide 64 columns"]),
        (("w.weight_zero_point", "I8", vec![8, 2], 1), &["should have shape [8, 1]"]),
    ];
    check(&config, &plain, &changes);
    let nvfp4 = [("w.weight_packed", "U8", vec![8, 32], 1), ("w.weight_scale", "F8_E4M3", vec![8, 4], 1)];
    let message = open(&config, &nvfp4).unwrap_err();
    assert!(message.contains("comes with F8_E4M3 scales") && message.contains("MXFP4 only"), "{message}");
}

#[test]
fn floats() {
    let config = json!({"quant_method": "fp8", "weight_block_size": [4, 32]});
    let blocks = vec![("w.weight", "F8_E4M3", vec![8, 64], 1), ("w.weight_scale_inv", "F32", vec![2, 2], 1)];
    let changes: [(Stored, &[&str]); 4] = [
        (("w.weight", "", vec![], 0), &["is missing"]),
        (("w.weight", "BF16", vec![8, 64], 1), &["should be stored as F8_E4M3 but is BF16"]),
        (("w.weight_scale_inv", "F32", vec![3, 2], 1), &["should have shape [8, groups] or [1] but has [3, 2]"]),
        (("w.weight_scale_inv", "F32", vec![2, 2], 0xff), &["holds NaN as a scale"]),
    ];
    check(&config, &blocks, &changes);
    let experts = vec![("w_blocks", "U8", vec![2, 8, 2, 16], 1), ("w_scales", "U8", vec![2, 8, 2], 1)];
    let changes: [(Stored, &[&str]); 5] = [
        (("w_scales", "", vec![], 0), &["is missing"]),
        (("w_scales", "U8", vec![2, 8, 1], 1), &["should have shape [2, 8, 2]"]),
        (("w_scales", "I8", vec![2, 8, 2], 1), &["should be stored as U8"]),
        (("w_blocks", "U8", vec![2, 8, 2, 15], 1), &["should have shape […, blocks, 16]"]),
        (("w_blocks", "U8", vec![16], 1), &["should have shape […, blocks, 16]"]),
    ];
    check(&json!({"quant_method": "mxfp4"}), &experts, &changes);
}

#[test]
fn unknown_methods_are_refused_by_name() {
    let message = open(&json!({"quant_method": "bitsandbytes"}), &gptq()).unwrap_err();
    let parts = ["config.json", "`bitsandbytes`", "it reads gptq, awq, compressed-tensors, fp8, mxfp4"];
    parts.iter().for_each(|part| assert!(message.contains(part), "{part:?} is not in: {message}"));
}

const NAMES: [&str; 14] = [
    "w.qweight",
    "w.qzeros",
    "w.scales",
    "w.g_idx",
    "w.weight",
    "w.weight_packed",
    "w.weight_scale",
    "w.weight_scale_inv",
    "w.weight_zero_point",
    "w.weight_shape",
    "w.weight_g_idx",
    "w_blocks",
    "w_scales",
    "w",
];
const TYPES: [&str; 8] = ["I32", "I64", "I8", "U8", "F16", "BF16", "F32", "F8_E4M3"];
const METHODS: [&str; 5] = ["gptq", "awq", "compressed-tensors", "fp8", "mxfp4"];

fn stored() -> impl Strategy<Value = Stored> {
    let dimension = prop::sample::select(vec![0usize, 1, 2, 4, 8, 16, 32, 33]);
    let shape = prop::collection::vec(dimension, 0..4);
    let byte = prop::sample::select(vec![0u8, 1, 0x3c, 0x77, 0x80, 0xff]);
    (prop::sample::select(&NAMES[..]), prop::sample::select(&TYPES[..]), shape, byte)
}

proptest! {
    /// Whatever is stored under the names that are looked for, what opens can be read to its last byte.
    #[test]
    fn random_parts(
        method in prop::sample::select(&METHODS[..]),
        group_size in prop::sample::select(vec![-2i64, -1, 0, 1, 3, 8, 32, i64::MAX]),
        block in prop::collection::vec(prop::sample::select(vec![0u64, 1, 3, 32, u64::MAX]), 0..3),
        tensors in prop::collection::btree_map(0usize..14, stored(), 1..8),
    ) {
        let config = json!({"quant_method": method, "group_size": group_size, "weight_block_size": block,
            "config_groups": {"a": {"weights": {"block_structure": block}}}});
        let tensors: Vec<Stored> = tensors.into_iter().map(|(name, tensor)| (NAMES[name], tensor.1, tensor.2, tensor.3)).collect();
        if let Ok(files) = open(&config, &tensors) {
            for tensor in files.tensors() {
                prop_assert_eq!(tensor.bytes().as_ref().len() as u64, tensor.byte_len());
            }
        }
    }

    /// Parts that nearly fit: the shapes of a good weight with one dimension or byte changed.
    #[test]
    fn nearly_right_parts(
        which in 0usize..4, axis in 0usize..2, length in 0usize..130, byte: u8, listed: bool, group_size in -1i64..80,
    ) {
        let mut tensors = gptq();
        let (_, _, shape, content) = &mut tensors[which];
        let axis = axis % shape.len();
        (shape[axis], *content) = (length, byte);
        tensors.truncate(if listed { 4 } else { 3 });
        if let Ok(files) = open(&json!({"quant_method": "gptq", "group_size": group_size}), &tensors) {
            let weight = files.require("w.weight").unwrap();
            prop_assert_eq!(weight.bytes().as_ref().len() as u64, weight.byte_len());
        }
    }
}
