//! A server whose machines are lost for good goes on with those that are left, and with those that have come.

use std::collections::BTreeSet;

use crate::program::{cascadia, json};
use crate::test_fleet::{PATIENT, Running, Server, TestFleet, until};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/model/rainier-33m-q4_k_m.gguf");
const PROMPT: &str = "It was a dark night";

#[test]
fn a_model_is_planned_again_when_a_machine_is_gone_for_good() {
    let test_fleet = TestFleet::with_machines(3);
    let coordinator = test_fleet.at("coordinator");
    let worker = |number: usize, memory: &str| {
        let (home, one) = (test_fleet.home(number), ["--threads", "1", "--priority", "normal"]);
        Running::start(&[&["worker", "start", "--home", &home, "--memory", memory], &one[..]].concat())
    };
    // Two of them have no room for anything yet, so all of it is computed by the first.
    let first = test_fleet.worker(0);
    let without_room = [worker(1, "1"), worker(2, "1")];
    // A server plans with those that come within ten seconds: they have started before.
    without_room.iter().chain([&first]).for_each(|worker| drop(worker.line("cannot reach the coordinator")));
    let nodes = ["--fleet", "node-00,node-01,node-02", "--home", &coordinator, "--replan-seconds", "1"];
    // Memory is for caches, most of which are never written to.
    let fleet = Server::start(&[&[MODEL, "--ctx", "2048", "--parallel", "48"], &nodes[..], &PATIENT].concat());
    let expected = Server::start(&["--ctx", "2048"]).complete(PROMPT, 16);
    assert_eq!(fleet.complete(PROMPT, 16), expected);
    let status = || json(&cascadia(&["fleet", "status", "--json", "--home", &coordinator]))["serving"].clone();
    let computing = || -> BTreeSet<String> {
        let stages = status()["stages"].as_array().cloned().unwrap_or_default();
        stages.iter().filter_map(|stage| stage["node"].as_str().map(str::to_owned)).collect()
    };
    until(|| (computing() == BTreeSet::from(["node-00".to_owned()])).then_some(()));
    let bytes = until(|| status()["plan"]["stages"][0]["bytes"].as_u64());
    drop(without_room);
    // Room for two thirds of the layers each: none of them can do it alone.
    let memory = (bytes * 17 / 20).to_string();
    let mut others = [1, 2].map(|number| Some(worker(number, &memory)));
    let again = |nodes: [&str; 2]| {
        until(|| Some(fleet.answer(PROMPT)).filter(|answer| answer.starts_with("HTTP/1.1 200")));
        assert_eq!(fleet.complete(PROMPT, 16), expected);
        until(|| computing().iter().eq(&nodes).then_some(()));
    };
    drop(first);
    // Whoever asks before it is planned again is told; that may be over if this process had to wait for a processor.
    let told = fleet.answer(PROMPT);
    let refused = told.starts_with("HTTP/1.1 503") && told.contains("fleet_degraded");
    assert!(refused || told.starts_with("HTTP/1.1 200"), "{told}");
    again(["node-01", "node-02"]);
    // Whoever has come meanwhile is used when the next is gone; what it computed before makes room.
    let _first = worker(0, &memory);
    others[0] = None;
    again(["node-00", "node-02"]);
}
