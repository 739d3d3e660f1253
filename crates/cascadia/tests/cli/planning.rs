//! Plans for machines that are and that are not, and a model that is planned, cut, sent and served by one command.

use serde_json::Value;

use crate::program::{cascadia, fixture, json};
use crate::test_fleet::{PATIENT, Running, Server, TestFleet, until};

const PROMPT: &str = "It was a dark night";

#[test]
fn a_plan_says_who_runs_what() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().to_str().unwrap();
    let plan = |nodes: &str, more: &[&str]| {
        let arguments = ["plan", &fixture("llama3"), "--home", home, "--nodes", nodes, "--threads", "1"];
        cascadia(&[&arguments[..], more].concat())
    };
    // Nothing is faster than to stay at home with a model this small.
    let found = json(&plan("2*16G@20G/5", &["--json"]))["plan"].clone();
    assert_eq!(found["stages"].as_array().map(Vec::len), Some(1), "{found}");
    assert!(found["stages"][0]["node"] == "here" && found["one_user"].as_f64() > Some(0.0), "{found}");
    let shown = plan("16G@20G", &["--users", "2"]);
    assert!(shown.stdout.contains("tokens/s for one user") && shown.stdout.contains("here is busy longest"));
    assert!(plan("16", &[]).stderr.contains("cannot parse machine"));
    let refused = cascadia(&["plan", &fixture("llama3"), "--home", home, "--fleet", "node-07"]);
    assert!(
        refused.code == 1 && refused.stderr.contains("`node-07` is no machine of this fleet"),
        "{}",
        refused.stderr
    );
}

#[test]
fn one_command_plans_cuts_sends_and_serves() {
    let test_fleet = TestFleet::with_machines(2);
    let (coordinator, model) = (test_fleet.at("coordinator"), fixture("llama3"));
    // One of them has no room, so that no measured speed decides into how many stages it is cut.
    let (home, flags) = (test_fleet.home(1), ["--threads", "1", "--priority", "normal", "--memory", "1"]);
    let without_room = Running::start(&[&["worker", "start", "--home", &home], &flags[..]].concat());
    let workers = [test_fleet.worker(0), without_room];
    // A server plans with those that come within ten seconds: they have started before.
    workers.iter().for_each(|worker| drop(worker.line("cannot reach the coordinator")));
    let serve = || {
        let fleet = ["--fleet", "node-00,node-01", "--home", &coordinator, "--ctx", "128", "--parallel", "2"];
        Server::start(&[&[model.as_str()], &fleet[..], &PATIENT].concat())
    };
    let fleet = serve();
    fleet.running.line("Cutting llama3 into one stage (int4)");
    let whole = test_fleet.at("whole.gguf");
    assert_eq!(cascadia(&["quantize", &model, &whole, "--type", "int4"]).code, 0);
    let one = Server::start(&[&whole, "--ctx", "128"]);
    assert_eq!(fleet.complete(PROMPT, 16), one.complete(PROMPT, 16));
    let status = || json(&cascadia(&["fleet", "status", "--json", "--home", &coordinator]))["serving"].clone();
    let status = until(|| Some(status()).filter(|status| status["stages"][0]["steps"].as_u64() > Some(0)));
    assert!(status["plan"]["stages"][0]["seconds"].as_f64() > Some(0.0), "{status}");
    drop(fleet);
    // What was cut and sent is there.
    let again = serve();
    assert_eq!(again.complete(PROMPT, 16), one.complete(PROMPT, 16));
    assert!(!again.running.said().contains("Cutting"));
    // Machines are known while a server has the port.
    let plan = cascadia(&["plan", &model, "--home", &coordinator, "--fleet", "node-00,node-01", "--json"]);
    assert_eq!(json(&plan)["machines_without_numbers"], Value::Array(Vec::new()));
}
