//! `cascadia eval`, `bench` and `quantize`.

use std::fs;
use std::path::Path;

use crate::program::{cascadia, fixture, json};

#[test]
fn perplexity_of_a_text() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.txt");
    fs::write(&text, "It was a bright cold day in April, and the clocks were striking. ".repeat(8)).unwrap();
    let text = text.to_str().unwrap();
    let arguments = ["eval", "perplexity", &fixture("llama3"), "--text", text, "--windows", "3", "--window", "50"];
    let object = json(&cascadia(&[&arguments[..], &["--json"]].concat()));
    assert_eq!(object["tokens"], 150);
    assert!(object["perplexity"].as_f64().is_some_and(|value| value > 1.0));
    assert!(object["top1"].as_f64().is_some_and(|value| (0.0..=1.0).contains(&value)));
    assert_eq!(object.as_object().unwrap().len(), 3);
    let plain = cascadia(&arguments).stdout;
    for name in ["tokens", "perplexity", "top1"] {
        assert!(plain.contains(name), "{plain}");
    }
    let twin = fixture("llama3-gguf/model.gguf");
    let arguments = ["eval", "perplexity", &twin, "--text", text, "--windows", "3", "--window", "50", "--json"];
    let other = json(&cascadia(&arguments))["perplexity"].as_f64().unwrap();
    let own = object["perplexity"].as_f64().unwrap();
    assert!((other / own - 1.0).abs() < 1e-4, "{own} from the folder, {other} from GGUF");
}

#[test]
fn logits_of_every_fixture_are_those_of_its_authors() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("logits.npy");
    for name in ["llama2", "llama3", "llama-tied", "mistral", "qwen2", "qwen2-untied"] {
        let tokens: Vec<u32> =
            serde_json::from_str(&fs::read_to_string(fixture(&format!("{name}/tokens.json"))).unwrap()).unwrap();
        let list = tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let write = |chunk: &str| {
            let arguments = ["eval", "logits", &fixture(name), "--tokens", &list, "--chunk", chunk];
            let object = json(&cascadia(&[&arguments[..], &["--out", out.to_str().unwrap(), "--json"]].concat()));
            assert_eq!(object["positions"], tokens.len());
            fs::read(&out).unwrap()
        };
        let whole = write("512");
        assert!(whole == write("1") && whole == write("7"), "{name}: the same bits in chunks");
        let expected = numbers(&fs::read(fixture(&format!("{name}/logits.npy"))).unwrap());
        let ours = numbers(&whole);
        assert_eq!(ours.len(), expected.len());
        let largest = expected.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        let worst = ours.iter().zip(&expected).fold(0f32, |worst, (a, b)| worst.max((a - b).abs()));
        assert!(worst <= 1e-4 * largest, "{name}: {worst} of {largest}");
    }
}

/// The float32 numbers of a `.npy` file.
fn numbers(file: &[u8]) -> Vec<f32> {
    let header = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
    file[header..].chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

#[test]
fn bench_reports_each_depth() {
    let model = fixture("llama2");
    let sizes = ["--prompt", "16", "--gen", "4", "--depth", "0,32", "--repeat", "2", "--threads", "1"];
    let arguments = [&["bench", model.as_str()], &sizes[..]].concat();
    let object = json(&cascadia(&[&arguments[..], &["--json"]].concat()));
    let runs = object["runs"].as_array().unwrap();
    assert_eq!(runs.iter().map(|run| run["depth"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 32]);
    for run in runs {
        for speed in ["prefill_tok_s", "decode_tok_s"] {
            let value = |name: &str| run[speed][name].as_f64().unwrap();
            assert!(value("min") > 0.0 && value("min") <= value("median") && value("median") <= value("max"));
        }
        assert!(run["ttft_ms"].as_f64().unwrap() > 0.0);
        assert!(run["rss_bytes"].as_u64().unwrap() > 1_000_000);
    }
    assert!(cascadia(&arguments).stdout.contains("decode"));
}

#[test]
fn bench_shows_the_machine() {
    let model = fixture("llama3-gguf/model.gguf");
    for arguments in [&["bench", "machine", "--threads", "1"][..], &["bench", "machine", &model, "--threads", "1"]] {
        let object = json(&cascadia(&[arguments, &["--json"]].concat()));
        let by_threads = object["by_threads"].as_array().unwrap();
        assert_eq!(by_threads.len(), 1);
        for name in ["read_gb_s", "int8_gop_s", "float_gop_s"] {
            assert!(by_threads[0][name].as_f64().unwrap() > 0.0, "{name}");
        }
        assert!(object["barrier_us"].as_f64().unwrap() > 0.0);
        assert_eq!(object["disk_gb_s"].is_null(), arguments.len() == 4);
    }
}

#[test]
fn bench_shows_where_the_time_goes() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.json");
    let model = fixture("llama2");
    let sizes = ["--prompt", "8", "--gen", "3", "--depth", "0,16", "--threads", "1", "--profile"];
    let arguments = [&["bench", model.as_str()], &sizes[..]].concat();
    let traced = [&arguments[..], &["--trace", trace.to_str().unwrap(), "--json"]].concat();
    let object = json(&cascadia(&traced));
    let phases = object["phases"].as_array().unwrap();
    let names: Vec<_> =
        phases.iter().map(|phase| (phase["phase"].as_str().unwrap(), phase["depth"].as_u64())).collect();
    assert_eq!(names, [("prefill", Some(0)), ("decode", Some(0)), ("prefill", Some(16)), ("decode", Some(16))]);
    for phase in phases {
        let sum = |rows: &str, name: &str| {
            phase[rows].as_array().unwrap().iter().map(|row| row[name].as_u64().unwrap()).sum::<u64>()
        };
        for name in ["calls", "bytes", "operations"] {
            let total = phase["total"][name].as_u64().unwrap();
            assert!(total > 0 && sum("kinds", name) == total && sum("places", name) == total, "{name}");
        }
    }
    let events: Vec<serde_json::Value> = serde_json::from_str(&fs::read_to_string(&trace).unwrap()).unwrap();
    assert!(events.len() > 100 && events.iter().all(|event| event["ph"] == "X" && event["dur"].is_number()));
    let plain = cascadia(&arguments).stdout;
    for part in ["prefill of 8 tokens at depth 16", "feed-forward in", "layer 1", "of read", "of int8"] {
        assert!(plain.contains(part), "{part}: {plain}");
    }
}

#[test]
fn bench_decodes_several_sequences_at_once() {
    let model = fixture("llama2");
    let arguments =
        ["bench", &model, "--batch", "1,3", "--prompt", "5", "--gen", "3", "--repeat", "2", "--threads", "1"];
    let object = json(&cascadia(&[&arguments[..], &["--json"]].concat()));
    let batches = object["batches"].as_array().unwrap();
    assert_eq!(batches.iter().map(|row| row["sequences"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 3]);
    assert!(batches.iter().all(|row| row["decode_tok_s"]["median"].as_f64().unwrap() > 0.0));
    assert!(cascadia(&arguments).stdout.contains("sequences"));
}

/// What adapters add follows from sizes: three layers of 64 numbers, with keys and values of 32.
#[test]
fn bench_compares_adapters_with_what_they_add() {
    let arguments = ["bench", &fixture("llama3"), "--batch", "1,2", "--prompt", "5", "--gen", "3", "--repeat", "1"];
    let adapters = ["--adapters", "2", "--rank", "4", "--targets", "attention", "--threads", "1"];
    let arguments = [&arguments[..], &adapters].concat();
    let object = json(&cascadia(&[&arguments[..], &["--json"]].concat()));
    // Queries and outputs; keys and values.
    let of_layer = 2 * 4 * (64 + 64) + 2 * 4 * (64 + 32);
    assert_eq!(object["adapter_multiply_adds"].as_u64(), Some(3 * of_layer));
    assert_eq!(object["adapter_bytes"].as_u64(), Some(3 * of_layer * 4));
    for (row, sequences) in object["batches"].as_array().unwrap().iter().zip([1, 2]) {
        let base = row["base_multiply_adds"].as_u64().unwrap();
        let matrices = 3 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96) + 64 * 288;
        assert!(base > matrices && base < matrices + matrices / 10, "{base} of {matrices}, with attention");
        assert_eq!(row["multiply_adds_floor"].as_f64(), Some((3 * of_layer) as f64 / base as f64));
        let weights = object["weight_bytes"].as_f64().unwrap();
        assert_eq!(row["floor"].as_f64(), Some(f64::from(sequences) * (3 * of_layer * 4) as f64 / weights));
    }
    assert!(cascadia(&arguments).stdout.contains("more multiply-adds"));
}

#[test]
fn memory_is_refused_when_it_cannot_be_enough() {
    let model = fixture("llama3-gguf/model.gguf");
    let done = cascadia(&["run", &model, "--memory", "1M", "-p", "x"]);
    assert_eq!(done.code, 1, "{}", done.stdout);
    assert!(done.stderr.contains("at least") && done.stderr.contains("shorter context"), "{}", done.stderr);
    let done = cascadia(&["run", &model, "--memory", "lots", "-p", "x"]);
    assert_eq!(done.code, 2);
    assert!(done.stderr.contains("use K, M, G"), "{}", done.stderr);
    let arguments = ["run", &model, "--raw", "-p", "Hello", "-n", "3", "--seed", "1", "--json"];
    let free = json(&cascadia(&arguments));
    let capped = json(&cascadia(&[&arguments[..], &["--memory", "1G", "--pin", "--threads", "2"]].concat()));
    assert_eq!(free["text"], capped["text"]);
}

#[test]
fn several_models_are_compared_with_a_reference() {
    let folder = tempfile::tempdir().unwrap();
    let text = text_file(folder.path());
    let (same, other) = (fixture("llama3-gguf/model.gguf"), fixture("llama3"));
    let arguments = ["eval", "perplexity", &other, &same, "--against", &same, "--text", &text, "--windows", "2"];
    let arguments = [&arguments[..], &["--window", "50", "--json"]].concat();
    let object = json(&cascadia(&arguments));
    let models = object["models"].as_array().unwrap();
    assert_eq!(models.len(), 2);
    for model in models {
        assert!(model["divergence"].as_f64().unwrap() < 1e-6, "{object}");
        assert_eq!(model["same_top"], 1.0);
    }
    assert_eq!(models[1]["perplexity"], models[1]["reference_perplexity"]);
}

#[test]
fn quantize_calibrates_keeps_and_searches() {
    let folder = tempfile::tempdir().unwrap();
    let text = text_file(folder.path());
    let out = folder.path().join("small.gguf");
    let out = out.to_str().unwrap();
    let write = |flags: &[&str]| {
        let windows = ["--windows", "2", "--window", "50", "--json"];
        let object = json(&cascadia(&[&["quantize", &fixture("llama3"), out, "--force"], flags, &windows].concat()));
        (object, fs::read(out).unwrap())
    };
    let (plain, plain_bytes) = write(&["--type", "q4_0"]);
    let (calibrated, calibrated_bytes) = write(&["--type", "q4_0", "--calibrate", &text]);
    assert_eq!(plain["bytes_after"], calibrated["bytes_after"]);
    assert!(plain_bytes != calibrated_bytes && calibrated_bytes == write(&["--type", "q4_0", "--calibrate", &text]).1);
    let (kept, _) = write(&["--type", "q4_0", "--keep", "ffn_*=f16", "--keep", "output=q8_0"]);
    assert!(kept["bytes_after"].as_u64() > plain["bytes_after"].as_u64());
    let (_, imatrix_bytes) = write(&["--type", "q4_0", "--imatrix", &fixture("imatrix/importance.dat")]);
    assert!(imatrix_bytes != plain_bytes);
    // Random weights lose much at once, so the target is generous.
    let (found, _) = write(&["--target-loss", "20%", "--calibrate", &text]);
    assert_eq!(found["type"], "searched");
    assert!(found["perplexity_growth"].as_f64().unwrap() <= 0.2 && found["divergence"].as_f64().unwrap() <= 0.2);
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn quantize_says_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let (text, out) = (text_file(folder.path()), folder.path().join("out.gguf"));
    let cases: [(&[&str], i32, &str); 8] = [
        (&[], 2, "--type"),
        (&["--type", "q9"], 2, "q4_k_m"),
        (&["--type", "q4_0", "--keep", "output"], 2, "PATTERN=TYPE"),
        (&["--type", "q4_0", "--keep", "nothing=q6_k"], 2, "fits no tensor"),
        (&["--type", "q4_0", "--imatrix", &text], 1, "no importance matrix"),
        (&["--type", "q4_0", "--calibrate", "absent.txt"], 1, "absent.txt"),
        (&["--target-loss", "much", "--calibrate", &text], 2, "percentage"),
        (&["--target-loss", "1%"], 2, "--calibrate or --on"),
    ];
    for (flags, code, part) in cases {
        let done = cascadia(&[&["quantize", &fixture("llama3"), out.to_str().unwrap()], flags].concat());
        assert_eq!(done.code, code, "{flags:?}: {}", done.stderr);
        assert!(done.stderr.contains(part), "{flags:?}: {}", done.stderr);
        assert!(!out.exists());
    }
}

/// A short text in a folder.
fn text_file(folder: &Path) -> String {
    let text = folder.join("text.txt");
    fs::write(&text, "It was a bright cold day in April, and the clocks were striking. ".repeat(8)).unwrap();
    text.to_str().unwrap().to_owned()
}

#[test]
fn quantize_writes_a_file_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("small.gguf");
    let out = out.to_str().unwrap();
    let object = json(&cascadia(&["quantize", &fixture("qwen2"), out, "--type", "q8_0", "--json"]));
    assert!(object["bytes_after"].as_u64() < object["bytes_before"].as_u64());
    let object = json(&cascadia(&["run", out, "--raw", "-p", "Hello", "-n", "4", "--seed", "1", "--json"]));
    assert_eq!(object["tokens"], 4);
    let again = folder.path().join("again.gguf");
    let done = cascadia(&["quantize", out, again.to_str().unwrap(), "--type", "f16"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stdout.contains("again.gguf"), "{}", done.stdout);
}
