//! `tokenize`: texts and conversations as token ids.

use std::process::Command;

use serde_json::{Value, json};

use crate::program::{cascadia, fixture, run};

/// The answers to some lines of JSON.
fn answers(model: &str, options: &[&str], lines: &[Value]) -> Vec<Value> {
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cascadia"));
    let done = run(command.args(["tokenize", &fixture(model), "--json"]).args(options), &input);
    assert_eq!(done.code, 0, "{}", done.stderr);
    done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn tokens_are_listed_with_their_text() {
    let done = cascadia(&["tokenize", &fixture("llama3-gguf/model.gguf"), "-p", "hi<|end|>"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let lines: Vec<&str> = done.stdout.lines().map(str::trim).collect();
    assert_eq!(lines, ["71  \"h\"", "72  \"i\"", "286  \"<|end|>\""], "{}", done.stdout);
}

#[test]
fn json_lines_go_in_and_out() {
    for model in ["llama3", "llama3-gguf/model.gguf"] {
        let texts = [json!("it rains\n<|end|>"), json!("")];
        let parsed = answers(model, &[], &texts);
        assert_eq!(parsed[0]["text"], "it rains\n");
        assert_eq!(parsed[0]["ids"].as_array().unwrap().last(), Some(&json!(286)));
        assert_eq!(parsed[1]["ids"], json!([]));
        let plain = answers(model, &["--plain", "--no-bos"], &texts);
        assert_eq!(plain[0]["text"], "it rains\n<|end|>");
        assert!(!plain[0]["ids"].as_array().unwrap().contains(&json!(286)));
    }
    let alone = answers("llama3/tokenizer.json", &[], &[json!("it rains"), json!([]), json!(1)]);
    assert_eq!(alone[0]["text"], "it rains");
    assert!(alone[1]["error"].as_str().unwrap().contains("chat template"), "{}", alone[1]);
    assert!(alone[2]["error"].is_string());
}

#[test]
fn conversations_are_rendered_with_any_template() {
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("template.jinja");
    let source =
        "{{ bos_token }}{% for m in messages %}{{ m.content }}<|turn|>{% endfor %}{{ strftime_now('%Y') }}{{ note }}";
    std::fs::write(&template, source).unwrap();
    let messages = json!([{"role": "user", "content": "<|end|>"}]);
    let lines = [messages.clone(), json!({"messages": messages, "now": 0, "note": "!"})];
    let found = answers("llama3", &["--template", template.to_str().unwrap()], &lines);
    assert_eq!(found[1]["text"], "<|begin|><|end|><|turn|>1970!");
    let ids = found[0]["ids"].as_array().unwrap();
    assert_eq!((&ids[0], ids.contains(&json!(286)), ids.contains(&json!(287))), (&json!(285), false, true));
}

#[test]
fn a_line_that_is_no_json_is_named() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cascadia"));
    let done = run(command.args(["tokenize", &fixture("llama3"), "--json"]), "\"fine\"\nnot fine\n");
    assert_eq!(done.code, 1);
    assert!(done.stderr.contains("line 2"), "{}", done.stderr);
}
