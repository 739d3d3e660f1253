//! The forward pass against logits that `transformers` computed with the same files (see `fixtures/README.md`).

mod harness;

use std::fs;
use std::path::Path;

use cascadia_kernels::{Dtype, Layout};

use harness::random_model::{VOCABULARY, write_random_model};
use harness::{
    WAYS, check, check_against, check_bits, check_int16_bits, check_int16_within, check_within, fixtures, run,
};

fixtures! {
    llama2: "llama2" "";
    llama3: "llama3" "";
    llama_tied: "llama-tied" "";
    llama_linear: "llama-linear" "";
    llama_yarn: "llama-yarn" "";
    llama_yarn_exact: "llama-yarn-exact" "";
    llama_dynamic: "llama-dynamic" "";
    mistral: "mistral" "";
    qwen2: "qwen2" "";
    qwen2_untied: "qwen2-untied" "";
    qwen2_yarn: "qwen2-yarn" "";
    qwen3: "qwen3" "";
    qwen3_window: "qwen3-window" "";
    phi3: "phi3" "";
    phi3_short: "phi3-short" "";
    phi3_long: "phi3-long" "";
    phi4: "phi4" "";
    phi4_long: "phi4-long" "";
    gemma: "gemma" "";
    gemma2: "gemma2" "";
    gemma3: "gemma3" "";
    gemma3_new: "gemma3-new" "";
    gemma3n: "gemma3n" "";
    gemma4: "gemma4" "";
    gemma4_keys: "gemma4-keys" "";
    falcon: "falcon" "";
    falcon_new: "falcon-new" "";
    falcon_alibi: "falcon-alibi" "";
    neox: "neox" "";
    neox_in_turn: "neox-in-turn" "";
    mpt: "mpt" "";
    bloom: "bloom" "";
    gpt2: "gpt2" "";
    starcoder2: "starcoder2" "";
    olmo2: "olmo2" "";
    olmo3: "olmo3" "";
    granite: "granite" "";
    smollm3: "smollm3" "";
    deepseek_v2_lite: "deepseek-v2-lite" "";
    deepseek_v2: "deepseek-v2" "";
    deepseek_v3: "deepseek-v3" "";
    deepseek_v3_blocks: "deepseek-v3-blocks" "";
    one_safetensors_file: "llama2" "model.safetensors";
    llama3_gguf: "llama3-gguf" "model.gguf";
    qwen2_gguf: "qwen2-gguf" "model.gguf";
}

/// Short steps keep few pages of layers with a window and use them again and again; long steps keep all.
#[test]
fn windows_are_kept_in_few_pages() {
    for fixture in ["mistral", "gemma3", "gemma3n", "gemma4", "qwen3-window"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture);
        let tokens: Vec<u32> = (0..250).map(|at| at * 37 % 96).collect();
        let first = run(&path, &tokens, WAYS[0]);
        check_bits(fixture, &path, &tokens, &first);
    }
}

/// Models that also see and hear keep the same text model apart, some under another name.
#[test]
fn text_beside_other_senses() {
    for (fixture, kind) in [("gemma3n", "gemma3n_text"), ("gemma4-keys", "gemma4_unified_text")] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture);
        let scratch = tempfile::tempdir().expect("a temporary folder");
        let weights = fs::read(folder.join("model.safetensors")).expect("the fixture");
        let (length, rest) = weights.split_first_chunk().expect("eight bytes");
        let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
        let header = String::from_utf8(header.to_vec()).expect("text").replace("\"model.", "\"model.language_model.");
        let length = (header.len() as u64).to_le_bytes();
        fs::write(scratch.path().join("model.safetensors"), [&length, header.as_bytes(), data].concat())
            .expect("written");
        let config = fs::read_to_string(folder.join("config.json")).expect("the fixture");
        let mut text: serde_json::Value = serde_json::from_str(&config).expect("JSON");
        text["model_type"] = kind.into();
        let whole = serde_json::json!({"model_type": "many senses", "text_config": text});
        fs::write(scratch.path().join("config.json"), whole.to_string()).expect("written");
        check_against(&folder, scratch.path());
    }
}

/// Checkpoints quantised for other engines. Bytes meet their weights instead of floats, so the logits of the
/// dequantised model are only close, with a second term of bytes far closer; that the weights themselves are exact is
/// for `weights` to show.
#[test]
fn quantised_checkpoints() {
    for fixture in ["gptq", "awq", "compressed-int4", "compressed-int8"] {
        check_within(0.06, &format!("quantised/model-{fixture}"), "");
        check_int16_within(0.001, &format!("quantised/model-{fixture}"));
    }
    // 8-bit floats in blocks become plain floats.
    check("quantised/model-float8", "");
}

/// Kernels for one row, for many and for interleaved rows are different code; quantised weights must not show which ran.
#[test]
fn quantised_weights_give_the_same_bits_in_every_way() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tokens: Vec<u32> = (0..72).map(|at| at * 37 % VOCABULARY as u32).collect();
    let own_loops = [Dtype::Q8_0, Dtype::Q4_0, Dtype::Q4_K, Dtype::Q5_K, Dtype::Q6_K];
    // One of each way to be of a common form.
    let common = [Dtype::F8_E4M3, Dtype::Q5_1, Dtype::Nf4, Dtype::Int4Group128, Dtype::Int4Zero32, Dtype::MXFP4];
    let more = [Dtype::Q2_K, Dtype::Q3_K, Dtype::IQ2_XS, Dtype::IQ4_XS];
    for dtype in own_loops.into_iter().chain(common).chain(more) {
        let path = folder.path().join(format!("{dtype}.gguf"));
        write_random_model(&path, dtype, Layout::Rows);
        let first = run(&path, &tokens, WAYS[0]);
        assert!(first.iter().flatten().all(|logit| logit.is_finite()), "{dtype}");
        check_bits(dtype.name(), &path, &tokens, &first);
        if Layout::Interleaved.holds(dtype) {
            write_random_model(&path, dtype, Layout::Interleaved);
            check_bits(&format!("interleaved {dtype}"), &path, &tokens, &first);
            check_int16_bits(&format!("interleaved {dtype}"), &path, &tokens, &first);
        }
    }
}
