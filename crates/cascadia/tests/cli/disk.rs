//! Disks that fail under a fleet: it goes on answering, what cannot be written down is refused, and later it works.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::program::{cascadia, fixture, json};
use crate::test_fleet::{TestFleet, until};

const PROMPT: &str = "A ship";
const SHARD: [&str; 1] = ["node-00:stage-0"];

/// Something in whose place nothing can be read or written until this is dropped.
struct Broken {
    path: PathBuf,
    kept: PathBuf,
}

impl Broken {
    fn begin(path: PathBuf) -> Broken {
        let kept = path.with_extension("kept");
        if path.exists() {
            fs::rename(&path, &kept).expect("it can be moved");
        }
        fs::create_dir(&path).expect("a folder");
        Broken { path, kept }
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        fs::remove_dir(&self.path).expect("it is there");
        if self.kept.exists() {
            fs::rename(&self.kept, &self.path).expect("it can be moved");
        }
    }
}

#[test]
fn what_cannot_be_written_down_is_refused_while_answers_go_on() {
    let test_fleet = TestFleet::with_machines(1);
    let [one, two] = ["keep", "int4"].map(|precision| {
        let out = test_fleet.at(precision);
        let model = fixture("llama3");
        assert_eq!(cascadia(&["export", &model, "--stages", "1", "--precision", precision, "--out", &out]).code, 0);
        out
    });
    let worker = test_fleet.worker(0);
    test_fleet.push(&one, &SHARD).succeeds();
    let fleet = test_fleet.serve("all");
    let expected = fleet.complete(PROMPT, 12);
    let home = test_fleet.at("coordinator");
    let coordinator = |name: &str| PathBuf::from(&home).join("coordinator").join(name);
    let refused = |said: String, why: &str| {
        assert!(said.contains(why), "{said}");
        assert_eq!(fleet.complete(PROMPT, 12), expected);
    };
    // The server can say nothing: whoever pushes does not wait for ever.
    let broken = Broken::begin(coordinator("push-news.new"));
    refused(test_fleet.push(&two, &SHARD).fails(), "could not write down how the push ended");
    drop(broken);
    // The worker would not know after a restart what it holds.
    let broken = Broken::begin(PathBuf::from(test_fleet.home(0)).join("worker/fleet.json"));
    refused(test_fleet.push(&two, &SHARD).fails(), "cannot write down which shards are here");
    drop(broken);
    // Nor would the server.
    let broken = Broken::begin(coordinator("fleet.json"));
    refused(test_fleet.push(&two, &SHARD).fails(), "fleet.json");
    drop(broken);
    // Longer than it takes to notice that a machine was revoked.
    let broken = Broken::begin(coordinator("members.json"));
    let done = cascadia(&["fleet", "revoke", "node-00", "--home", &home]);
    thread::sleep(Duration::from_secs(3));
    refused(done.stderr, "members.json");
    drop(broken);
    assert_eq!(done.code, 1);
    test_fleet.push(&two, &SHARD).succeeds();
    assert_ne!(fleet.complete(PROMPT, 12), expected);
    // What the power left of files that are never waited for is no obstacle.
    drop((fleet, worker));
    for name in ["status.json", "push.json", "push-taken.json", "push-news.json"] {
        fs::write(coordinator(name), "{").expect("it can be written");
    }
    assert_eq!(json(&cascadia(&["fleet", "status", "--json", "--home", &home]))["serving"], serde_json::Value::Null);
    let _worker = test_fleet.worker(0);
    let fleet = test_fleet.serve("all");
    assert_ne!(fleet.complete(PROMPT, 12), expected, "it begins with what was pushed last");
    let shown = || json(&cascadia(&["fleet", "status", "--json", "--home", &home]));
    until(|| shown()["serving"]["stages"][0]["node"].as_str().map(str::to_owned));
}
