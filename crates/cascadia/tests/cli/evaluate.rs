//! `cascadia eval` with reports: latency, memory, drift, accumulation, compare.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::program::{Done, cascadia, fixture, json};

/// Runs a measurement of a tiny model and returns its report.
fn measure(command: &str, flags: &[&str]) -> Value {
    let model = fixture("llama3-gguf/model.gguf");
    json(&cascadia(&[&["eval", command, &model, "--threads", "1", "--json"], flags].concat()))
}

/// The metric of this name.
fn metric<'a>(report: &'a Value, name: &str) -> &'a Value {
    let found = report["metrics"].as_array().unwrap().iter().find(|metric| metric["name"] == name);
    found.unwrap_or_else(|| panic!("there is no {name} in {report:#}"))
}

/// The values of a series, in order.
fn values(report: &Value, name: &str, series: &str) -> Vec<f64> {
    let found = metric(report, name)["series"].as_array().unwrap().iter().find(|known| known["name"] == series);
    let points = found.unwrap_or_else(|| panic!("there is no {series}"))["points"].as_array().unwrap();
    points.iter().map(|point| point[1].as_f64().unwrap()).collect()
}

fn text_file(folder: &Path) -> String {
    let path = folder.join("text.txt");
    fs::write(&path, "It was a bright cold day in April, and the clocks were striking thirteen. ".repeat(16)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn drift_of_f32_is_nothing_and_of_int4_something() {
    let folder = tempfile::tempdir().unwrap();
    let text = text_file(folder.path());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (out, html) = (path("drift.json"), path("drift.html"));
    let flags = ["--text", &text, "--kv", "f32,int4", "--contexts", "100,4096", "--out", &out, "--html", &html];
    let report = measure("drift", &flags);
    assert_eq!(values(&report, "KL divergence", "f32"), [0.0, 0.0]);
    assert_eq!(values(&report, "top-1 agreement", "f32"), [100.0, 100.0]);
    assert_eq!(values(&report, "perplexity", "f32"), values(&report, "perplexity", "f32 (reference)"));
    let int4 = values(&report, "KL divergence", "int4");
    assert!(int4[0] == 0.0 && int4[1] > 0.0, "{int4:?}");
    for probe in ["long copy: tokens predicted", "retrieval: values found"] {
        assert!(values(&report, probe, "int4").iter().all(|share| (0.0..=100.0).contains(share)));
    }
    assert_eq!(serde_json::from_str::<Value>(&fs::read_to_string(&out).unwrap()).unwrap(), report);
    let page = fs::read_to_string(&html).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg") && !page.contains("<script"));
    // Without a text there are the probes.
    let report = measure("drift", &["--kv", "f16", "--contexts", "64"]);
    assert_eq!(report["metrics"].as_array().unwrap().len(), 3);
    let report = measure("drift", &["--kv", "int4", "--contexts", "64,128", "--speed", "4"]);
    assert_eq!(report["metrics"].as_array().unwrap().len(), 4);
    assert!(values(&report, "decode speed", "int4").iter().all(|speed| *speed > 0.0), "{report}");
    let [exact, int4] = ["f32 (reference)", "int4"].map(|name| values(&report, "KV cache per token", name));
    assert!(exact[0] == exact[1] && int4[1] > exact[1], "tails of short texts come on top: {exact:?} {int4:?}");
}

#[test]
fn latency_memory_and_accumulation_have_their_metrics() {
    let report = measure("latency", &["--contexts", "16,64", "--users", "1,2", "--steps", "3"]);
    for name in ["decode step, p50", "decode step, p99", "first token, p50"] {
        assert!(values(&report, name, "2 users").iter().all(|time| *time > 0.0));
        assert_eq!((&metric(&report, name)["unit"], &metric(&report, name)["better"]), (&"ms".into(), &"lower".into()));
    }
    let report = measure("memory", &["--kv", "f32,int8"]);
    let bytes = |format: &str| values(&report, "KV cache per token", &format!("{format}, theory"));
    assert!(bytes("f32").iter().all(|bytes| *bytes > 0.0) && !bytes("int8").is_empty());
    let folder = tempfile::tempdir().unwrap();
    let text = text_file(folder.path());
    let flags = ["--text", &text, "--kv", "int4", "--refresh", "100", "--tokens", "250", "--block", "50"];
    let report = measure("accumulation", &flags);
    for series in ["plain", "refreshed every 100"] {
        let found = values(&report, "KL divergence", series);
        assert!(found.len() == 5 && found[0] == 0.0 && found[4] > 0.0, "{found:?}");
    }
}

#[test]
fn tables_are_for_people() {
    let model = fixture("llama3-gguf/model.gguf");
    let done = cascadia(&["eval", "drift", &model, "--kv", "f16", "--contexts", "64,128", "--threads", "1"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    for part in ["Drift of the KV cache", "retrieval: values found (%, higher is better)", "f16", "128"] {
        assert!(done.stdout.contains(part), "{part}: {}", done.stdout);
    }
}

/// Compares two reports.
fn compare(before: &str, after: &str, flags: &[&str]) -> Done {
    cascadia(&[&["eval", "compare", before, after], flags].concat())
}

#[test]
fn the_exit_code_says_whether_a_report_is_worse() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (good, bad, other) = (path("good.json"), path("bad.json"), path("other.json"));
    let flags = ["--kv", "f16,int4", "--contexts", "64,128"];
    let mut report = measure("drift", &[&flags[..], &["--out", &good]].concat());
    let name = report["metrics"][0]["name"].as_str().unwrap().to_owned();
    assert_eq!(report["metrics"][0]["better"], "higher");
    // Five of a hundred too few.
    report["metrics"][0]["series"][0]["points"][0][1] = 100.0_f64.into();
    fs::write(&good, report.to_string()).unwrap();
    report["metrics"][0]["series"][0]["points"][0][1] = 95.0_f64.into();
    fs::write(&bad, report.to_string()).unwrap();

    let same = compare(&good, &good, &["--tolerance", "0%"]);
    assert_eq!(same.code, 0, "{}", same.stderr);
    let worse = compare(&good, &bad, &[]);
    assert_eq!(worse.code, 1);
    assert!(worse.stdout.contains("WORSE") && worse.stdout.contains(&name), "{}", worse.stdout);
    assert!(worse.stderr.contains("1 of ") && worse.stderr.contains("1 %"), "{}", worse.stderr);
    assert_eq!(compare(&good, &bad, &["--tolerance", "6%"]).code, 0);
    let html = path("both.html");
    let better = json(&compare(&bad, &good, &["--json", "--html", &html]));
    assert_eq!(better["changes"][0]["verdict"], "better");
    assert!(fs::read_to_string(&html).unwrap().contains(", before"));

    report["measurement"] = "latency".into();
    fs::write(&other, report.to_string()).unwrap();
    for (after, part) in [(&other, "latency"), (&path("absent.json"), "absent.json"), (&html, "both.html")] {
        let done = compare(&good, after, &[]);
        assert_eq!(done.code, 1, "{after}");
        assert!(done.stderr.contains(part) && done.stdout.is_empty(), "{}", done.stderr);
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let text = text_file(folder.path());
    let absent = folder.path().join("absent").join("report.json");
    let absent = absent.to_str().unwrap();
    let cases: [(&[&str], i32, &str); 8] = [
        (&["drift", "MODEL", "--kv", "int4,int9"], 2, "f16"),
        (&["drift", "MODEL", "--contexts", "4"], 2, "at least 16"),
        (&["drift", "MODEL", "--text", "absent.txt"], 1, "absent.txt"),
        (&["drift", "MODEL", "--out", absent], 1, "no such folder"),
        (&["latency", "MODEL", "--users", "0"], 2, "--users"),
        (&["memory", "MODEL", "--context", "1000"], 2, "context"),
        (&["accumulation", "MODEL", "--text", &text, "--tokens", "9999"], 2, "context"),
        (&["compare", "a.json", "b.json", "--tolerance", "5"], 2, "10%"),
    ];
    let model = fixture("llama3-gguf/model.gguf");
    for (arguments, code, part) in cases {
        let arguments: Vec<&str> =
            arguments.iter().map(|argument| if *argument == "MODEL" { model.as_str() } else { *argument }).collect();
        let done = cascadia(&[&["eval"], &arguments[..]].concat());
        assert_eq!(done.code, code, "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains(part), "{arguments:?}: {}", done.stderr);
        assert!(done.stdout.is_empty(), "{arguments:?}: {}", done.stdout);
    }
    // The model is never replaced by its report.
    let copy = folder.path().join("model.gguf");
    fs::copy(&model, &copy).unwrap();
    let copy = copy.to_str().unwrap();
    let done = cascadia(&["eval", "drift", copy, "--out", copy]);
    assert_eq!(done.code, 1);
    assert!(fs::read(copy).unwrap() == fs::read(&model).unwrap());
}
