//! What is done with a fleet is written down, and a worker knows if that was changed.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::program::{cascadia, fixture, json};
use crate::test_fleet::{TestFleet, until};

const PROMPT: &str = "The harbour at night";

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

#[test]
fn a_worker_remembers_how_far_the_log_went() {
    let test_fleet = TestFleet::with_machines(1);
    let (home, shards, earlier) = (test_fleet.at("coordinator"), test_fleet.at("shards"), test_fleet.at("earlier"));
    let verify = |more: &[&str]| cascadia(&[&["audit", "verify", "--home", &home], more].concat());
    assert_eq!(cascadia(&["export", &fixture("llama3"), "--stages", "1", "--out", &shards]).code, 0);
    assert_eq!(json(&verify(&["--json"]))["records"], 2, "an invitation and who used it");
    copy(Path::new(&home), Path::new(&earlier));
    let worker = test_fleet.worker(0);
    test_fleet.push(&shards, &["node-00:stage-0"]).succeeds();
    let fleet = test_fleet.serve("all");
    fleet.complete(PROMPT, 4);
    let head = || cascadia(&["worker", "head", "--home", &test_fleet.home(0)]);
    let seen = until(|| Some(head()).filter(|done| done.code == 0)).stdout;
    let heads = test_fleet.at("node-00.json");
    fs::write(&heads, &seen).unwrap();
    // The coordinator's own, what the worker countersigned, and what it remembers: two if that took a minute.
    let known = 2 + serde_json::from_str::<Vec<Value>>(&seen).unwrap().len() as u64;
    let agree = || json(&verify(&["--json", "--heads", &heads]))["heads"].as_u64();
    assert_eq!(until(|| agree().filter(|count| *count >= known)), known);
    fleet.running.signal("TERM");
    let shown = || cascadia(&["audit", "show", "--home", &home]).stdout;
    let shown = until(|| Some(shown()).filter(|shown| shown.contains("serve_stop")));
    for verb in ["invite", "join", "push", "serve_start", "stage_taken"] {
        assert!(shown.contains(verb), "no {verb} in\n{shown}");
    }
    assert!(!shown.contains("harbour"), "{shown}");
    drop(fleet);
    // The whole folder as it was before: it agrees with itself, but not with the worker.
    let now = test_fleet.at("now");
    fs::rename(&home, &now).unwrap();
    copy(Path::new(&earlier), Path::new(&home));
    assert_eq!(verify(&[]).code, 0);
    let done = verify(&["--heads", &heads]);
    assert!(done.code == 1 && done.stderr.contains("were signed"), "{}", done.stderr);
    let fleet = test_fleet.serve(&shards);
    fleet.running.line("node-00 does not countersign the audit log: the log has 3 records, and had ");
    drop((fleet, worker));
    assert_eq!(cascadia(&["leave", "--home", &test_fleet.home(0)]).code, 0);
    assert!(!Path::new(&test_fleet.home(0)).join("worker").exists());
}
