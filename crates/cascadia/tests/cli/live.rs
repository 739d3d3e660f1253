//! Pushing to a running server: requests end on the model they began with, and a push that fails changes nothing.

use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json as object};

use crate::program::{cascadia, fixture, json};
use crate::test_fleet::{Running, Server, TestFleet, until};

pub(crate) const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/model/rainier-33m-q4_k_m.gguf");
const TOKENS: u32 = 60;

fn prompts() -> [String; 3] {
    [0, 1, 2].map(|number| format!("Ship number {number} came into the harbour"))
}

fn export(test_fleet: &TestFleet, model: &str, (precision, out): (&str, &str)) -> String {
    let out = test_fleet.at(out);
    let done = cascadia(&["export", model, "--stages", "2", "--precision", precision, "--out", &out]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    out
}

/// What one process says to all prompts.
fn answers(server: &Server) -> Vec<String> {
    prompts().iter().map(|prompt| server.complete(prompt, TOKENS)).collect()
}

#[test]
fn a_model_is_replaced_under_load_without_a_failed_request() {
    let test_fleet = TestFleet::with_machines(2);
    let shards = [("keep", "one"), ("q8_0", "two")].map(|wanted| export(&test_fleet, MODEL, wanted));
    let whole = test_fleet.at("whole.gguf");
    assert_eq!(cascadia(&["quantize", MODEL, &whole, "--type", "q8_0"]).code, 0);
    let one = answers(&Server::start(&[]));
    let two = answers(&Server::start(&[&whole]));
    assert!(one.iter().zip(&two).all(|(one, two)| one != two), "the models cannot be told apart");
    let workers = [0, 1].map(|number| test_fleet.worker(number));
    test_fleet.push(&shards[0], &["node-00:stage-0", "node-01:stage-1"]).succeeds();
    let fleet = test_fleet.serve("all");
    let (begun, pushed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let heard = thread::scope(|scope| {
        let ask = |(at, prompt): (usize, String)| {
            let (fleet, begun, pushed) = (&fleet, &begun, &pushed);
            scope.spawn(move || {
                let first = fleet.stream(&prompt, TOKENS, |parts| {
                    begun.fetch_add(usize::from(parts == 1), Ordering::SeqCst);
                });
                let mut heard = vec![first];
                while !(pushed.load(Ordering::SeqCst) && heard.len() > 2) {
                    heard.push(fleet.stream(&prompt, TOKENS, |_| {}));
                }
                (at, heard, fleet.stream(&prompt, TOKENS, |_| {}))
            })
        };
        let clients: Vec<_> = prompts().into_iter().enumerate().map(ask).collect();
        // All of them are in the middle of something, and not only those that got a processor.
        until(|| (begun.load(Ordering::SeqCst) == prompts().len()).then_some(()));
        let push = test_fleet.push(&shards[1], &["node-00:stage-0", "node-01:stage-1"]);
        let went_well = push.ends();
        pushed.store(true, Ordering::SeqCst);
        assert!(went_well, "the push failed");
        clients.into_iter().map(|client| client.join().expect("no request fails")).collect::<Vec<_>>()
    });
    for (at, heard, last) in heard {
        assert!(heard.iter().all(|heard| *heard == one[at] || *heard == two[at]), "{heard:?}");
        assert!(heard.contains(&one[at]), "nothing was asked of the first model");
        assert_eq!(last, two[at], "the second model was pushed");
    }
    // The old one goes once its requests have ended; a server that starts later begins with the new one.
    workers.iter().for_each(|worker| drop(worker.line("is no longer needed")));
    drop(fleet);
    assert_eq!(answers(&test_fleet.serve("all")), two);
}

#[test]
fn a_server_that_waits_for_machines_sends_them_what_they_lack() {
    let test_fleet = TestFleet::with_machines(1);
    let [one, two] = [("int4", "one"), ("q8_0", "two")].map(|wanted| export(&test_fleet, &fixture("llama3"), wanted));
    let coordinator = test_fleet.at("coordinator");
    let _worker = test_fleet.worker(0);
    let serve = ["serve", "--fleet", &one, "--own-stage", "0", "--home", &coordinator, "--port", "0", "--threads", "1"];
    let server = Running::start(&serve);
    server.line("Waiting for a machine for stage 1");
    let said = test_fleet.push(&two, &["here:stage-0", "node-00:stage-1"]).fails();
    assert!(said.contains("the server waits for machines with"), "{said}");
    test_fleet.push(&one, &["here:stage-0", "node-00:stage-1"]).succeeds();
    server.line("the page is at");
}

#[test]
fn a_push_that_fails_leaves_the_old_model_serving() {
    let test_fleet = TestFleet::with_machines(2);
    let [one, two] = [("int4", "one"), ("q8_0", "two")].map(|wanted| export(&test_fleet, &fixture("llama3"), wanted));
    let coordinator = test_fleet.at("coordinator");
    // Room for one shard of the first model, and for none beside it.
    let quota = std::fs::metadata(format!("{two}/stage-1.gguf")).expect("it was written").len().to_string();
    let home = test_fleet.home(1);
    let worker = ["worker", "start", "--home", &home, "--threads", "1", "--priority", "normal", "--disk", &quota];
    let workers = [test_fleet.worker(0), Running::start(&worker)];
    let targets = ["node-00:stage-0", "node-01:stage-1"];
    test_fleet.push(&one, &targets).succeeds();
    let fleet = test_fleet.serve("all");
    let expected = fleet.complete("A ship", 12);
    // What they have already is not loaded beside itself.
    test_fleet.push(&one, &targets).succeeds();
    fleet.running.line("node-00 has stage 0 already");
    let said = test_fleet.push(&one, &["here:stage-0"]).fails();
    assert!(said.contains("cannot be added to the model that is served"), "{said}");
    let check = |targets: &[&str], problem: &str| {
        let said = test_fleet.push(&two, targets).fails();
        assert!(said.contains(problem), "{said}");
        assert_eq!(fleet.complete("A ship", 12), expected);
    };
    check(&targets, "its owner allows");
    check(&targets[..1], "no machine is named for stage 1");
    // What it has been sent, and has no use for, goes.
    workers[0].line("is no longer needed");
    let damaged = format!("{two}/stage-0.gguf");
    let mut bytes = std::fs::read(&damaged).expect("it was written");
    *bytes.last_mut().expect("it has bytes") ^= 1;
    std::fs::write(&damaged, bytes).expect("it can be written");
    std::fs::remove_file(format!("{}/worker/blobs/{}", test_fleet.home(0), digest(&two, 0)))
        .expect("it was sent before");
    check(&["node-00:stage-0", "node-00:stage-1"], "damaged");
    // Machines that come with another version than the one that is served hear it, and so does who looks.
    drop(fleet);
    let server = Running::start(&["serve", "--fleet", &two, "--home", &coordinator, "--port", "0"]);
    let line = server.line("node-01 cannot take part: node-01 holds shard");
    assert!(line.contains("which is none of") && line.contains("(stage 1)"), "{line}");
}

#[test]
fn a_stream_goes_on_after_the_coordinator_was_killed() {
    let test_fleet = TestFleet::with_machines(1);
    let shards = test_fleet.at("shards");
    let done = cascadia(&["export", MODEL, "--stages", "1", "--precision", "keep", "--out", &shards]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let _worker = test_fleet.worker(0);
    test_fleet.push(&shards, &["node-00:stage-0"]).succeeds();
    let mut body = object!({"prompt": "The harbour at night", "max_tokens": 80, "temperature": 1, "stream": true});
    body["logit_bias"] = never_ends();
    let mut fleet = Some(test_fleet.serve("all"));
    let (mut text, mut last) = (String::new(), String::new());
    let first = BufReader::new(fleet.as_ref().expect("it runs").send(&body, ""));
    for (count, line) in first.lines().map_while(Result::ok).enumerate() {
        if count == 60 {
            // Ended as with kill -9; what was on its way to us still counts.
            fleet = None;
        }
        read(&line, &mut text, &mut last);
    }
    assert!(fleet.is_none() && !text.is_empty(), "it ended before it was killed");
    let fleet = test_fleet.serve("all");
    let rest = BufReader::new(fleet.send(&body, &format!("Last-Event-ID: {last}\r\n")));
    rest.lines().map_while(Result::ok).for_each(|line| read(&line, &mut text, &mut last));
    // The seed is in the name of every event; one process that never failed says the same with it.
    body["seed"] = u64::from_str_radix(&last[..16], 16).expect("a number").cast_signed().into();
    let (mut expected, mut seen) = (String::new(), String::new());
    let one = Server::start(&[]);
    let whole = BufReader::new(one.send(&body, ""));
    whole.lines().map_while(Result::ok).for_each(|line| read(&line, &mut expected, &mut seen));
    assert_eq!(text, expected);
    assert!(last.ends_with(seen.rsplit('-').next().expect("a number")), "{last} and {seen}");
}

/// What keeps the model from ending an answer by itself, whatever is drawn.
pub(crate) fn never_ends() -> Value {
    let about = json(&cascadia(&["inspect", MODEL, "--json"]));
    let ends = about["tokenizer"]["stop"].as_array().expect("a list").iter();
    ends.map(|token| (token.to_string(), object!(-100))).collect()
}

/// Adds what a line of a stream says to a text, or keeps the name of the event that it begins.
pub(crate) fn read(line: &str, text: &mut String, last: &mut String) {
    if let Some(name) = line.strip_prefix("id: ") {
        name.clone_into(last);
    }
    let data = line.strip_prefix("data: ").and_then(|data| serde_json::from_str::<Value>(data).ok());
    *text += data.as_ref().and_then(|data| data["choices"][0]["text"].as_str()).unwrap_or_default();
}

/// The digest of a stage of an export.
fn digest(shards: &str, stage: usize) -> String {
    let manifest = std::fs::read_to_string(format!("{shards}/manifest.json")).expect("it was written");
    let manifest: Value = serde_json::from_str(&manifest).expect("JSON");
    manifest["stages"][stage]["digest"].as_str().expect("a digest").to_owned()
}
