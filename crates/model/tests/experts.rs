//! Mixtures of experts: against logits that `transformers` computed, and in every form that files keep experts in.

mod harness;

use std::path::{Path, PathBuf};

use cascadia_kernels::quantize::quantize;
use cascadia_kernels::{Dtype, decode_row};

use harness::export::{ExportedTensor, export, write_gguf};
use harness::{WAYS, check_against, check_bits, check_int16_bits, fixtures, run};

fixtures! {
    mixtral: "mixtral" "";
    mixtral_ties: "mixtral-ties" "";
    qwen2_moe: "qwen2-moe" "";
    qwen3_moe: "qwen3-moe" "";
    qwen3_moe_fused: "qwen3-moe-fused" "";
    gpt_oss: "gpt-oss" "";
    olmoe: "olmoe" "";
    granite_moe: "granite-moe" "";
    glm4_moe: "glm4-moe" "";
    gemma4_moe: "gemma4-moe" "";
}

/// Older GGUF files have a tensor for each expert, newer ones may have gates and what they multiply in one.
#[test]
fn gguf_files_keep_experts_apart_or_fused() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let folder = fixture("mixtral");
    for (name, rearrange) in [("apart", apart as fn(Vec<ExportedTensor>) -> Vec<ExportedTensor>), ("fused", fused)] {
        let mut exported = export(&folder);
        exported.tensors = rearrange(exported.tensors);
        let path = scratch.path().join(format!("{name}.gguf"));
        write_gguf(&path, &exported);
        check_against(&folder, &path);
    }
}

/// One tensor for each expert.
fn apart(tensors: Vec<ExportedTensor>) -> Vec<ExportedTensor> {
    let split = |tensor: ExportedTensor| match (tensor.name.strip_suffix("_exps.weight"), tensor.shape.as_slice()) {
        (Some(stem), &[experts, rows, columns]) => {
            let parts = tensor.bytes.chunks(tensor.bytes.len() / experts as usize).enumerate();
            let part = |(expert, bytes): (usize, &[u8])| ExportedTensor {
                name: format!("{stem}.{expert}.weight"),
                dtype: tensor.dtype,
                shape: vec![rows, columns],
                bytes: bytes.to_vec(),
            };
            parts.map(part).collect()
        }
        _ => vec![tensor],
    };
    tensors.into_iter().flat_map(split).collect()
}

/// Gates and what they multiply in one tensor.
fn fused(mut tensors: Vec<ExportedTensor>) -> Vec<ExportedTensor> {
    let ups: Vec<ExportedTensor> = tensors.extract_if(.., |tensor| tensor.name.contains("ffn_up_exps")).collect();
    let gates = tensors.iter_mut().filter(|tensor| tensor.name.contains("ffn_gate_exps"));
    for (gate, up) in gates.zip(ups) {
        let expert = gate.bytes.len() / gate.shape[0] as usize;
        let both = gate.bytes.chunks(expert).zip(up.bytes.chunks(expert));
        gate.bytes = both.flat_map(|(gate, up)| [gate, up].concat()).collect();
        gate.shape[1] *= 2;
        gate.name = gate.name.replace("ffn_gate_exps", "ffn_gate_up_exps");
    }
    tensors
}

/// Rows of one expert may be few or many, and kernels for one row and for many are different code.
#[test]
fn quantised_experts_give_the_same_bits_in_every_way() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let tokens: Vec<u32> = (0..72).map(|at| at * 37 % 96).collect();
    for (name, dtype) in [("mixtral", Dtype::Q8_0), ("qwen3-moe", Dtype::Q4_0), ("mixtral", Dtype::MXFP4)] {
        let mut exported = export(&fixture(name));
        for tensor in exported.tensors.iter_mut().filter(|tensor| tensor.name.ends_with("_exps.weight")) {
            requantise(tensor, dtype);
        }
        let path = scratch.path().join(format!("{name}-{dtype}.gguf"));
        write_gguf(&path, &exported);
        let first = run(&path, &tokens, WAYS[0]);
        assert!(first.iter().flatten().all(|logit| logit.is_finite()), "{name} {dtype}");
        check_bits(dtype.name(), &path, &tokens, &first);
        check_int16_bits(dtype.name(), &path, &tokens, &first);
    }
}

/// 4-bit experts of a folder: what they decode to gives the reference, and they run with the bits of their GGUF twin.
#[test]
fn experts_in_blocks() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let folder = fixture("gpt-oss-mxfp4");
    let mut exported = export(&folder);
    let path = scratch.path().join("blocks.gguf");
    write_gguf(&path, &exported);
    let tokens: Vec<u32> = (0..72).map(|at| at * 37 % 96).collect();
    let first = run(&folder, &tokens, WAYS[0]);
    check_bits("folder", &folder, &tokens, &first);
    check_bits("GGUF", &path, &tokens, &first);
    let blocks = exported.tensors.iter_mut().filter(|tensor| tensor.dtype == Dtype::MXFP4);
    let decoded = blocks.map(|tensor| requantise(tensor, Dtype::F32)).count();
    assert_eq!(decoded, 3, "gates, what they multiply, and what follows");
    let path = scratch.path().join("floats.gguf");
    write_gguf(&path, &exported);
    check_against(&folder, &path);
}

/// Puts the numbers of a tensor into another format; into one that nothing here writes, other numbers.
fn requantise(tensor: &mut ExportedTensor, dtype: Dtype) {
    let numbers: u64 = tensor.shape.iter().product();
    let mut bytes = vec![0; dtype.row_bytes(numbers).expect("whole blocks") as usize];
    if dtype == Dtype::MXFP4 {
        // A scale of an eighth, then two numbers to the byte.
        for (block, stored) in bytes.chunks_mut(dtype.block_bytes()).zip(tensor.bytes.chunks(64)) {
            block[0] = 124;
            block[1..].iter_mut().zip(stored).for_each(|(byte, stored)| *byte = *stored);
        }
    } else {
        let mut values = vec![0.0; numbers as usize];
        decode_row(tensor.dtype, &tensor.bytes, &mut values);
        quantize(dtype, &values, None, &mut bytes).expect("finite numbers");
    }
    (tensor.dtype, tensor.bytes) = (dtype, bytes);
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}
