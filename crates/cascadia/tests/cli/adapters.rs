//! `cascadia adapter`, and `--adapter` of commands that run a model.

use std::fs;
use std::path::Path;

use crate::program::{cascadia, fixture, json};

/// The logits that `eval logits` writes for a few tokens.
fn logits(folder: &Path, model: &str, adapters: &[&str]) -> Vec<f32> {
    let out = folder.join("logits.npy");
    let mut arguments = vec!["eval", "logits", model, "--tokens", "1,15,7,99,200", "--out", out.to_str().unwrap()];
    arguments.extend(adapters.iter().flat_map(|adapter| ["--adapter", *adapter]));
    let done = cascadia(&arguments);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let bytes = fs::read(&out).unwrap();
    let data = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[data..].as_chunks::<4>().0.iter().map(|number| f32::from_le_bytes(*number)).collect()
}

/// Largest difference relative to the largest logit.
fn difference(left: &[f32], right: &[f32]) -> f32 {
    assert_eq!(left.len(), right.len());
    let largest = left.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    left.iter().zip(right).fold(0f32, |worst, (a, b)| worst.max((a - b).abs())) / largest
}

#[test]
fn inspect_tells_what_an_adapter_is() {
    let (peft, gguf) = (fixture("adapters/llama3-all"), fixture("adapters/llama3-gguf-all/adapter.gguf"));
    for (path, format) in [(&peft, "PEFT"), (&format!("{peft}/adapter_model.safetensors"), "PEFT"), (&gguf, "GGUF")] {
        let object = json(&cascadia(&["adapter", "inspect", path, "--json"]));
        assert_eq!((&object["format"], &object["kind"]), (&format.into(), &"LoRA".into()), "{object}");
        assert_eq!((&object["ranks"], &object["alpha"]), (&[4, 4].into(), &8.0.into()), "{object}");
        assert_eq!((&object["layers"], &object["tensors"]), (&[0, 1, 2].into(), &42.into()), "{object}");
        assert_eq!(object["digest"].as_str().unwrap().len(), 64);
    }
    let report = cascadia(&["adapter", "inspect", &fixture("adapters/smollm3-patterns")]).stdout;
    for line in ["kind        LoRA", "base        smollm3", "rank        2 to 7", "layers      0–3"] {
        assert!(report.lines().any(|found| found == line), "`{line}` is not in: {report}");
    }
}

#[test]
fn merged_and_unmerged_compute_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (model, half) = (fixture("llama3"), format!("{}:0.5", fixture("adapters/llama3-all")));
    let plain = logits(folder.path(), &model, &[]);
    for adapter in [fixture("adapters/llama3-all"), half, fixture("adapters/llama3-dora")] {
        let out = path("merged.gguf");
        let object =
            json(&cascadia(&["adapter", "merge", &model, &adapter, &out, "--type", "f32", "--force", "--json"]));
        assert_eq!((&object["type"], &object["changed"]), (&"f32".into(), &21.into()), "{object}");
        let unmerged = logits(folder.path(), &model, &[&adapter]);
        assert!(difference(&plain, &unmerged) > 0.05, "{adapter} changes nothing");
        let worst = difference(&unmerged, &logits(folder.path(), &out, &[]));
        assert!(worst < 1e-4, "{adapter}: {worst}");
    }
    // A GGUF adapter is the same one, and two halves are a whole.
    let whole = logits(folder.path(), &model, &[&fixture("adapters/llama3-all")]);
    let gguf = logits(folder.path(), &model, &[&fixture("adapters/llama3-gguf-all/adapter.gguf")]);
    assert!(difference(&whole, &gguf) < 1e-4);
    let half = format!("{}:0.5", fixture("adapters/llama3-all"));
    assert!(difference(&whole, &logits(folder.path(), &model, &[&half, &half])) < 1e-4);
}

#[test]
fn every_command_takes_adapters() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.txt");
    fs::write(&text, "It was a bright cold day in April, and the clocks were striking thirteen. ".repeat(4)).unwrap();
    let (model, adapter, text) = (fixture("llama3"), fixture("adapters/llama3-all"), text.to_str().unwrap());
    let commands: [&[&str]; 3] = [
        &["run", &model, "-p", "It was", "--raw", "-n", "4", "--temp", "0", "--json"],
        &["bench", &model, "--prompt", "8", "--gen", "4", "--repeat", "1", "--json"],
        &["eval", "perplexity", &model, "--text", text, "--window", "32", "--windows", "1", "--json"],
    ];
    for command in commands {
        json(&cascadia(&[command, &["--threads", "1", "--adapter", &adapter]].concat()));
        let wrong = cascadia(&[command, &["--adapter", &fixture("adapters/mistral-rslora")]].concat());
        assert!(wrong.code == 1 && wrong.stderr.contains("lora_"), "{command:?}: {}", wrong.stderr);
        let wrong = cascadia(&[command, &["--adapter", "absent:nan"]].concat());
        assert!(wrong.code == 2 && wrong.stderr.contains("absent:nan"), "{command:?}: {}", wrong.stderr);
    }
    let score = |more: &[&str]| {
        let perplexity = json(&cascadia(&[commands[2], more].concat()))["perplexity"].as_f64().unwrap();
        assert!(perplexity.is_finite());
        perplexity
    };
    assert_ne!(score(&[]), score(&["--adapter", &adapter]));
}

#[test]
fn merge_replaces_files_only_by_force_and_never_its_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (model, own, out) = (path("model.gguf"), path("adapter.gguf"), path("out.gguf"));
    fs::copy(fixture("llama3-gguf/model.gguf"), &model).unwrap();
    fs::copy(fixture("adapters/llama3-gguf-all/adapter.gguf"), &own).unwrap();
    let merge = |out: &str, more: &[&str]| cascadia(&[&["adapter", "merge", &model, &own, out], more].concat());
    for (input, word) in [(&model, "model.gguf"), (&own, "adapter.gguf")] {
        let before = fs::read(input).unwrap();
        let done = merge(input, &["--force"]);
        assert!(done.code == 1 && done.stderr.contains(word) && done.stderr.contains("read"), "{}", done.stderr);
        assert_eq!(fs::read(input).unwrap(), before);
    }
    assert_eq!(merge(&out, &[]).code, 0);
    let done = merge(&out, &[]);
    assert!(done.code == 1 && done.stderr.contains("--force"), "{}", done.stderr);
    assert_eq!(merge(&out, &["--force", "--type", "q8_0"]).code, 0);
    assert_eq!(merge(&path("other.gguf"), &["--type", "nonsense"]).code, 2);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}
