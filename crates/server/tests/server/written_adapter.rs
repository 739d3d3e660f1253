//! Small adapters of random numbers for the model of the tests, written as PEFT writes them.

use std::fs;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize_to_file};
use serde_json::json;

use crate::harness::shapes;

const RANK: usize = 4;

/// What PEFT calls a matrix, and what GGUF does.
const TARGETS: [(&str, &str); 2] = [("q_proj", "attn_q"), ("v_proj", "attn_v")];

/// Writes an adapter into a new folder; another seed gives other numbers.
pub(crate) fn write(folder: &Path, seed: u64) {
    write_with_rows(folder, seed, 0);
}

/// The same with so many rows too many in matrices for values.
pub(crate) fn write_with_rows(folder: &Path, seed: u64, more: usize) {
    fs::create_dir(folder).unwrap();
    let settings = json!({
        "peft_type": "LORA", "r": RANK, "lora_alpha": 4 * RANK, "target_modules": ["q_proj", "v_proj"], "bias": "none",
    });
    fs::write(folder.join("adapter_config.json"), settings.to_string()).unwrap();
    let mut random = seed;
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    for (peft, gguf) in TARGETS {
        for (layer, [rows, columns]) in shapes(gguf).into_iter().enumerate() {
            let rows = if peft == "v_proj" { rows + more } else { rows };
            let name = format!("base_model.model.model.layers.{layer}.self_attn.{peft}");
            for (end, shape) in [("lora_A", vec![RANK, columns]), ("lora_B", vec![rows, RANK])] {
                let numbers = numbers(&mut random, shape.iter().product());
                tensors.push((format!("{name}.{end}.weight"), shape, numbers));
            }
        }
    }
    assert!(!tensors.is_empty(), "the model has layers");
    let views = tensors.iter().map(|(name, shape, numbers)| {
        (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), numbers).expect("as many numbers as the shape says"))
    });
    serialize_to_file(views, None, &folder.join("adapter_model.safetensors")).unwrap();
}

/// Numbers between -0.2 and 0.2, as bytes.
fn numbers(random: &mut u64, count: usize) -> Vec<u8> {
    let next = |_| {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let unit = (*random >> 40) as f32 / (1u32 << 24) as f32;
        (0.4 * unit - 0.2).to_le_bytes()
    };
    (0..count).flat_map(next).collect()
}
