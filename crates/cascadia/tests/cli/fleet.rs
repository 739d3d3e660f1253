//! Export, join, push, serve: several machines answer as one does, also when some of them are lost.

use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::program::{self, cascadia, fixture, json};
use crate::test_fleet::{PATIENT, Running, Server, TestFleet, until};

const PROMPT: &str = "The harbour at night";
const RAINIER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/model/rainier-33m-q4_k_m.gguf");

#[test]
fn an_export_is_the_same_every_time_and_refuses_impossible_cuts() {
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let model = fixture("llama3");
    let export = |out: &str| json(&cascadia(&["export", &model, "--stages", "2", "--out", out, "--json"]));
    let (one, other) = (export(&out("one")), export(&out("other")));
    assert_eq!(one["model"], other["model"]);
    assert_eq!(one["shards"].as_array().map(Vec::len), Some(3));
    // Made again in place, what is there stays.
    assert_eq!(export(&out("one"))["model"], one["model"]);
    let done = cascadia(&["export", &fixture("gemma4"), "--splits", "0,4", "--out", &out("cut")]);
    assert_eq!(done.code, 1);
    assert!(done.stderr.contains("possible first layers of stages are 0, 1"), "{}", done.stderr);
    let done = cascadia(&["inspect", &format!("{}/stage-1.gguf", out("one"))]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let done = cascadia(&["run", &format!("{}/stage-1.gguf", out("one")), "-p", "x"]);
    assert!(done.code == 1 && done.stderr.contains("another shard of this model holds it"), "{}", done.stderr);
}

#[test]
fn the_four_commands_give_the_answers_of_one_machine() {
    let test_fleet = TestFleet::with_machines(2);
    let (shards, whole, model) = (test_fleet.at("shards"), test_fleet.at("whole.gguf"), fixture("llama3"));
    let done = cascadia(&["export", &model, "--stages", "2", "--precision", "int4", "--out", &shards]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    // They work with keys that they make when they first connect.
    assert_eq!(cascadia(&["fleet", "rotate", "all", "--home", &test_fleet.at("coordinator")]).code, 0);
    let push = test_fleet.push(&shards, &["node-00:stage-0", "node-01:stage-1"]);
    // One has its shard already, the other is sent it.
    let given = test_fleet.at("shards/stage-0");
    let workers = [(0, given.as_str()), (1, "/nowhere/stage-1")].map(|(number, shard)| {
        let home = test_fleet.home(number);
        Running::start(&[
            "worker",
            "start",
            "--home",
            &home,
            "--threads",
            "1",
            "--priority",
            "normal",
            "--shard",
            shard,
        ])
    });
    push.succeeds();
    workers[1].line("There is no /nowhere/stage-1 here");
    let fleet = test_fleet.serve("node-00,node-01");
    workers.iter().for_each(|worker| drop(worker.line("this machine has a new key")));
    assert_eq!(cascadia(&["quantize", &model, &whole, "--type", "int4"]).code, 0);
    let one = Server::start(&[&whole]);
    for prompt in [PROMPT, "A ship"] {
        assert_eq!(fleet.complete(prompt, 24), one.complete(prompt, 24));
    }
}

#[test]
fn the_keys_of_a_fleet_are_replaced_while_it_answers() {
    let test_fleet = TestFleet::with_machines(2);
    let (coordinator, shards) = (test_fleet.at("coordinator"), test_fleet.at("shards"));
    let done = cascadia(&["export", &fixture("llama3"), "--stages", "1", "--precision", "keep", "--out", &shards]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let worker = test_fleet.worker(0);
    test_fleet.push(&shards, &["node-00:stage-0"]).succeeds();
    let fleet = test_fleet.serve("all");
    let expected = fleet.complete(PROMPT, 24);
    let rotate = || {
        let which = ["--coordinator", "--targets", "--grace", "0h", "--home", &coordinator];
        let done = cascadia(&[&["fleet", "rotate"], &which[..]].concat());
        assert!(done.code == 0 && done.stderr.contains("new coordinator key"), "{}", done.stderr);
    };
    let replace = |parts: usize| {
        if parts == 3 {
            rotate();
        }
    };
    let invitation = || cascadia(&["fleet", "invite", "--home", &coordinator]).stdout;
    let join =
        |line: &str, name: &str| cascadia(&["join", line.trim(), "--name", name, "--home", &test_fleet.at(name)]);
    let early = invitation();
    assert_eq!(fleet.stream(PROMPT, 24, replace), expected);
    let refused = join(&early, "early");
    assert!(refused.code == 1 && refused.stderr.contains("has another key"), "{}", refused.stderr);
    let joined = join(&invitation(), "late");
    assert_eq!(joined.code, 0, "{}", joined.stderr);
    // A worker that was away follows from the key that it knows to the newest.
    let status = || json(&cascadia(&["fleet", "status", "--json", "--home", &coordinator]));
    let computes = |node: &str| status()["serving"]["stages"][0]["node"] == *node;
    drop(worker);
    until(|| (!computes("node-00")).then_some(()));
    rotate();
    let worker = test_fleet.worker(0);
    worker.line("the coordinator has a new key, signed with the old one");
    // It waits until there is something to compute.
    until(|| (status()["serving"]["stages"][0]["spares"][0] == "node-00").then_some(()));
    assert_eq!(fleet.complete(PROMPT, 24), expected);
    until(|| computes("node-00").then_some(()));
    // What is pushed is signed with a key that the other one has yet to learn.
    let standby = test_fleet.worker(1);
    test_fleet.push(&shards, &["node-01:stage-0"]).succeeds();
    standby.line("the fleet has a new targets key, signed with the old one");
    let status = status();
    let keys = &status["keys"];
    assert!(keys["number"] == 2 && keys["targets"]["issued"] == keys["coordinator"]["issued"], "{keys}");
    let shown = cascadia(&["fleet", "status", "--home", &coordinator]).stdout;
    assert!(shown.contains("coordinator key  0 days old, expires in"), "{shown}");
    let shown = cascadia(&["audit", "show", "--home", &coordinator]).stdout;
    assert_eq!(shown.matches("coordinator key and targets key, statement").count(), 2, "{shown}");
    let done = cascadia(&["audit", "verify", "--home", &coordinator]);
    assert_eq!(done.code, 0, "{}", done.stderr);
}

#[test]
fn the_coordinator_runs_a_stage_itself() {
    let test_fleet = TestFleet::with_machines(1);
    let (coordinator, shards) = (test_fleet.at("coordinator"), test_fleet.at("shards"));
    let done = cascadia(&["export", &fixture("llama3"), "--stages", "2", "--precision", "keep", "--out", &shards]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let _worker = test_fleet.worker(0);
    test_fleet.push(&shards, &["node-00:stage-1"]).succeeds();
    let refused = cascadia(&["serve", "--fleet", "here,node-00", "--home", &coordinator, "--port", "0"]);
    assert!(refused.code == 1 && refused.stderr.contains("no stage was kept here"), "{}", refused.stderr);
    let one = Server::start(&[&fixture("llama3")]);
    test_fleet.push(&shards, &["here:stage-0", "node-00:stage-1"]).succeeds();
    for fleet in [&["here,node-00"][..], &["all"], &[&shards, "--own-stage", "0"]] {
        let own = Server::start(&[&["--home", &coordinator, "--fleet"], fleet, &PATIENT].concat());
        assert_eq!(own.complete(PROMPT, 16), one.complete(PROMPT, 16), "{fleet:?}");
        let shown = || cascadia(&["fleet", "status", "--home", &coordinator]).stdout;
        let shown =
            until(|| Some(shown()).filter(|shown| shown.contains("here") && shown.contains("computes stage 1")));
        assert!(shown.contains("0-0       here") && shown.contains("computes stage 1; sandbox: "), "{shown}");
    }
    let rounding = ["--home", &coordinator, "--fleet", "all", "--wire", "int8"];
    let rounding = Server::start(&[&rounding[..], &PATIENT].concat());
    assert_eq!(rounding.complete(PROMPT, 16), rounding.complete(PROMPT, 16));
    drop(rounding);
    let refused = cascadia(&["serve", "--fleet", &shards, "--own-stage", "2", "--home", &coordinator, "--port", "0"]);
    assert!(refused.code == 1 && refused.stderr.contains("no stage 2 to run here"), "{}", refused.stderr);
}

#[test]
fn machines_may_join_a_server_that_waits_for_them() {
    let test_fleet = TestFleet::with_machines(0);
    let (coordinator, shards) = (test_fleet.at("coordinator"), test_fleet.at("shards"));
    assert_eq!(cascadia(&["export", &fixture("llama3"), "--splits", "0,1", "--out", &shards]).code, 0);
    let init = ["fleet", "init", "--home", &coordinator, "--no-wait", "--machines", "2"];
    let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    let (listen, reached) = (format!("0.0.0.0:{port}"), format!("localhost:{port}"));
    let line = cascadia(&[&init[..], &["--listen", &listen, "--address", &reached]].concat()).stdout;
    let server = Running::start(&["serve", "--fleet", &shards, "--home", &coordinator, "--port", "0"]);
    server.line("Waiting for a machine for stage 0, stage 1");
    let join = |number: usize| cascadia(&["join", line.trim(), "--home", &test_fleet.home(number), "--name", "pod-0"]);
    for number in 0..2 {
        assert_eq!(join(number).code, 0);
    }
    assert!(join(0).stderr.contains("pod-0 of a fleet already"));
    assert_eq!(join(2).code, 1, "it lets in two");
    let work = |number: usize| {
        let shard = format!("{shards}/stage-{number}");
        Running::start(&[
            "worker",
            "start",
            "--home",
            &test_fleet.home(number),
            "--priority",
            "normal",
            "--shard",
            &shard,
        ])
    };
    let _workers = [work(0), work(1)];
    server.line("the page is at");
}

#[test]
fn a_machine_that_is_revoked_computes_no_more() {
    let test_fleet = TestFleet::with_machines(2);
    let (coordinator, shards) = (test_fleet.at("coordinator"), test_fleet.at("shards"));
    assert_eq!(cascadia(&["export", RAINIER, "--stages", "1", "--precision", "keep", "--out", &shards]).code, 0);
    let workers = [0, 1].map(|number| test_fleet.worker(number));
    test_fleet.push(&shards, &["node-00:stage-0", "node-01:stage-0"]).succeeds();
    let fleet =
        Server::start(&[&["--fleet", "all", "--home", &coordinator, "--log-level", "info"], &PATIENT[..]].concat());
    let expected = fleet.complete(PROMPT, 400);
    // The number by which it is known who computed for it.
    fleet.running.line("jobs=\"0\"");
    let status = || json(&cascadia(&["fleet", "status", "--json", "--home", &coordinator]));
    let computing = || status()["serving"]["stages"][0]["node"].as_str().map(str::to_owned);
    let with_spare = || computing().filter(|_| status()["serving"]["stages"][0]["spares"][0].is_string());
    // People are shown the same, though one that is slow for a moment may change places with the other in between.
    let shown = || cascadia(&["fleet", "status", "--home", &coordinator]).stdout;
    let is_shown = |node: &String| shown().contains(&format!("{node}          computes stage 0"));
    let first = until(|| with_spare().filter(is_shown));
    // While it computes; another goes on with the same tokens.
    let number = usize::from(first == "node-01");
    let (mut revoked, mut cut) = (None, None);
    let streamed = fleet.stream(PROMPT, 400, |parts| {
        if parts == 20 {
            let done = cascadia(&["fleet", "revoke", &first, "--home", &coordinator]);
            assert_eq!(done.code, 0, "{}", done.stderr);
            // The request before is among those that it saw.
            let saw = [format!("{first} computed for "), ": requests 0".to_owned()];
            assert!(saw.iter().all(|part| done.stdout.contains(part)), "{}", done.stdout);
            revoked = Some(Instant::now());
        }
        if workers[number].said().contains("the coordinator is gone") {
            cut = cut.or(revoked.map(|revoked| revoked.elapsed()));
        }
    });
    assert_eq!(streamed, expected);
    eprintln!("the live link was cut {cut:?} after it was revoked");
    let second = until(|| {
        fleet.complete(PROMPT, 1);
        computing().filter(|node| *node != first)
    });
    assert_eq!(fleet.complete(PROMPT, 400), expected);
    assert!(cascadia(&["fleet", "revoke", &first, "--home", &coordinator]).stderr.contains(&second));
    // The worker itself stops asking and says why; it leaves once it has ended, and nothing of it stays.
    let home = test_fleet.home(number);
    workers[number].line(&format!("error: this machine ({first}) was removed from its fleet"));
    let refused = cascadia(&["leave", "--home", &test_fleet.home(1 - number)]);
    assert!(refused.code == 1 && refused.stderr.contains("a worker runs with"), "{}", refused.stderr);
    let again = cascadia(&["worker", "start", "--home", &home]);
    assert!(again.code == 3 && again.stderr.contains("run `cascadia leave` here"), "{}", again.stderr);
    drop(workers);
    assert_eq!(cascadia(&["leave", "--home", &home]).code, 0);
    assert!(!std::path::Path::new(&home).join("worker").exists());
}

#[test]
fn a_push_is_not_stopped_by_one_machine_nor_a_worker_by_what_it_kept() {
    let test_fleet = TestFleet::with_machines(3);
    let shards = test_fleet.at("shards");
    assert_eq!(cascadia(&["export", &fixture("llama3"), "--stages", "1", "--out", &shards]).code, 0);
    let start = |number: usize, flags: &[&str]| {
        let fixed = ["worker", "start", "--home", &test_fleet.home(number), "--threads", "1", "--priority", "normal"];
        Running::start(&[&fixed[..], flags].concat())
    };
    // The first has no room, the second a shard, and the third none.
    let workers = [start(0, &["--disk", "1"]), start(1, &[]), start(2, &["--shard", "/nowhere/stage-0"])];
    let push = test_fleet.push(&shards, &["node-00:stage-0", "node-01:stage-0", "node-02:stage-0"]);
    for node in ["node-01", "node-02"] {
        push.line(&format!("{node} holds stage-0.gguf"));
    }
    push.line("node-00 did not take stage-0.gguf");
    push.fails();
    drop(workers);
    // What a worker kept may be damaged meanwhile: it starts, says so, and is sent it again.
    let kept = std::path::Path::new(&test_fleet.home(1)).join("worker/blobs");
    let kept = std::fs::read_dir(kept).unwrap().next().expect("a shard").unwrap().path();
    std::fs::remove_file(&kept).unwrap();
    std::fs::write(&kept, "nonsense").unwrap();
    let worker = start(1, &[]);
    worker.line("is damaged or gone; push it again");
    test_fleet.push(&shards, &["node-01:stage-0"]).succeeds();
    worker.line("received shard");
    // Whoever has the coordinator's key, and not the one that signs what is pushed, cannot push: with what the fleet
    // states it is noticed at once, and what it states itself helps nothing with the worker.
    for (lost, problem) in
        [("targets", "not the key that this fleet states"), ("keys.json", "not signed with the targets key")]
    {
        std::fs::remove_file(test_fleet.at(&format!("coordinator/coordinator/{lost}"))).unwrap();
        let refused = test_fleet.push(&shards, &["node-01:stage-0"]).fails();
        assert!(refused.contains(problem), "{refused}");
    }
    let done = cascadia(&["worker", "start", "--home", &test_fleet.home(2), "--shard", "/nowhere/stag-0"]);
    assert!(done.code == 1 && done.stderr.contains("there is no /nowhere/stag-0"), "{}", done.stderr);
}

/// Something happens in the middle of a stream, which says what it would have said.
#[cfg(unix)]
fn outlives(fleet: &Server, expected: &str, mut happens: impl FnMut()) {
    let streamed = fleet.stream(PROMPT, 100, |parts| {
        if parts == 20 {
            happens();
        }
    });
    assert_eq!(streamed, expected);
}

#[cfg(unix)]
#[test]
fn a_stream_outlives_machines_that_are_killed_or_hang() {
    let test_fleet = TestFleet::with_machines(4);
    let shards = test_fleet.at("shards");
    let done = cascadia(&["export", RAINIER, "--stages", "2", "--precision", "keep", "--out", &shards]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let mut workers: Vec<_> = (0..4).map(|number| Some(test_fleet.worker(number))).collect();
    test_fleet.push(&shards, &["node-00:stage-0", "node-01:stage-1", "node-02:stage-0", "node-03:stage-1"]).succeeds();
    // Those that hang are noticed, while those that only get no processor have some time, and are lost more than once.
    let coordinator = test_fleet.at("coordinator");
    let flags = ["--fleet", "all", "--home", &coordinator, "--silence-ms", "2000", "--quarantine-minutes", "0"];
    let (one, fleet) = (Server::start(&[]), Server::start(&flags));
    let arrivals = |number: usize| fleet.running.said().matches(&format!("node-{number:02} is ready")).count();
    let wait_for = |number: usize, before: usize| until(|| (arrivals(number) > before).then_some(()));
    (0..4).for_each(|number| wait_for(number, 0));
    let status = || json(&cascadia(&["fleet", "status", "--json", "--home", &coordinator]))["serving"].clone();
    let has_first = || status()["stages"][0].as_object().map(|stage| format!("{stage:?}").contains("node-00"));
    let expected = one.complete(PROMPT, 100);
    let signal = |worker: &Option<Running>, name: &str| worker.as_ref().expect("it runs").signal(name);
    // Whichever of two runs a stage: one of these hits it. The other is there each time; else the stream had to end.
    outlives(&fleet, &expected, || drop(workers[1].take()));
    let before = arrivals(1);
    workers[1] = Some(test_fleet.worker(1));
    wait_for(1, before);
    outlives(&fleet, &expected, || drop(workers[3].take()));
    outlives(&fleet, &expected, || signal(&workers[0], "STOP"));
    // It is seen to be gone before it is waited for: what was said of it until then is old.
    until(|| has_first().filter(|has| !has));
    signal(&workers[0], "CONT");
    until(|| has_first().filter(|has| *has));
    outlives(&fleet, &expected, || signal(&workers[2], "STOP"));
    // With nobody left for a stage, clients are told; once there is someone again, it works again.
    drop(workers[1].take());
    let refused = fleet.answer(PROMPT);
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("fleet_degraded"), "{refused}");
    workers[3] = Some(test_fleet.worker(3));
    let answer = until(|| Some(fleet.answer(PROMPT)).filter(|answer| answer.starts_with("HTTP/1.1 200")));
    assert!(answer.contains(&one.complete(PROMPT, 4)));
}

#[cfg(unix)]
#[test]
fn a_drill_drops_and_changes_nothing() {
    for (arguments, kind, count) in [(&["--kills", "3"][..], 0, 3), (&["--fault", "mute", "--times", "2"], 5, 2)] {
        let object = json(&cascadia(&[&["bench", "chaos", "--seed", "3", "--json"], arguments].concat()));
        assert_eq!((&object["differing_tokens"], &object["dropped"]), (&0.into(), &serde_json::json!([])), "{object}");
        assert_eq!(object["faults"][kind]["count"], count);
        assert!(object["tokens"].as_u64().unwrap() > 0);
    }
}

#[test]
fn a_machine_joins_once_both_screens_show_the_same_code() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let coordinator = at("coordinator");
    let fleet = |arguments: &[&str]| cascadia(&[&["fleet"], arguments, &["--home", &coordinator]].concat());
    let init = Running::start(&["fleet", "init", "--approve", "--listen", "127.0.0.1:0", "--home", &coordinator]);
    let line = init.line("cas1-");
    let join = Running::start(&["join", line.trim(), "--name", "attic", "--home", &at("machine")]);
    let shown = join.line("This machine waits to be approved");
    let code = shown.rsplit(' ').next().expect("a code").to_owned();
    init.line(&format!("attic wants to join with the code {code}"));
    assert!(fleet(&["status"]).stdout.contains(&format!("attic            waits for approval with the code {code}")));
    let status = json(&fleet(&["status", "--json"]));
    assert_eq!(status["pending"], serde_json::json!([{"name": "attic", "code": code}]));
    assert_eq!(status["machines"], serde_json::json!([]));
    let wrong = fleet(&["approve", "cellar"]);
    assert!(wrong.code == 1 && wrong.stderr.contains(&format!("waiting: attic ({code})")), "{}", wrong.stderr);
    assert_eq!(fleet(&["approve", &code]).code, 0);
    join.line("This machine is attic now");
    join.succeeds();
    init.succeeds();
    assert_eq!(json(&fleet(&["status", "--json"]))["machines"], serde_json::json!(["attic"]));
    let more = fleet(&["invite", "--uses", "20", "--ttl", "8h", "--approve"]);
    assert!(more.code == 0 && more.stdout.starts_with("cas1-"), "{}", more.stderr);
    let shown = cascadia(&["audit", "show", "--home", &coordinator]).stdout;
    assert!(shown.contains("approve") && shown.contains("for 20 machines") && shown.contains(&code), "{shown}");
}

#[test]
fn machines_join_with_a_code_before_and_while_a_server_runs() {
    let test_fleet = TestFleet::with_machines(0);
    let coordinator = test_fleet.at("coordinator");
    let init = ["fleet", "init", "--home", &coordinator, "--machines", "2", "--listen", "127.0.0.1:0"];
    let init = Running::start(&init);
    let code = init.line("Pairing code: ").rsplit(' ').next().expect("a code").to_owned();
    let settings = fs::read_to_string(format!("{coordinator}/coordinator/fleet.json")).expect("it was written");
    let settings: Value = serde_json::from_str(&settings).expect("it is JSON");
    let listens = settings["listen"].as_str().expect("an address");
    let join = |number: usize, code: &str, more: &[&str]| {
        let (home, name) = (test_fleet.home(number), format!("pc-{number}"));
        let join = ["join", "--coordinator", listens, "--code", code, "--home", &home, "--name", &name];
        [&join[..], &["--threads", "1", "--priority", "normal"], more].concat().into_iter().map(str::to_owned).collect()
    };
    let run = |words: Vec<String>| cascadia(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let typo = run(join(0, "K7QF-3MXO", &["--no-start"]));
    assert!(typo.code == 1 && typo.stderr.contains("no pairing code has a `O`"), "{}", typo.stderr);
    let words: Vec<String> = join(0, &code, &[]);
    let first = Running::start(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let said = first.line("This machine is pc-0 now. The coordinator shows ");
    let agreed = said.split("shows ").nth(1).and_then(|rest| rest.split(' ').next()).expect("what both show");
    init.line(&format!("pc-0 has joined (1 of 2). It shows {agreed} too"));
    first.line("pc-0 is connected to its coordinator");
    let connected = || json(&cascadia(&["fleet", "status", "--json", "--home", &coordinator]))["connected"].clone();
    until(|| (connected() == serde_json::json!(["pc-0"])).then_some(()));
    // Its speed is known without a server.
    let plan = || cascadia(&["plan", &fixture("llama3"), "--home", &coordinator, "--threads", "1"]);
    until(|| (!plan().stdout.contains("Nothing is known")).then_some(()));
    // The server takes the port while the code is shown, and machines join with it all the same.
    let model = fixture("llama3");
    let server =
        Server::start(&[&[&*model, "--fleet", "all", "--home", &coordinator, "--ctx", "128"], &PATIENT[..]].concat());
    assert_eq!(run(join(1, &code, &["--no-start"])).code, 0);
    init.line("pc-1 has joined (2 of 2)");
    init.line("All machines have joined");
    let late = run(join(2, &code, &["--no-start"]));
    assert!(late.stderr.contains("as many machines have joined as the code is good for"), "{}", late.stderr);
    let again = run(join(1, &code, &["--no-start"]));
    assert!(again.code == 0 && again.stderr.contains("This machine is pc-1 of a fleet already"), "{}", again.stderr);
    server.complete("A ship", 4);
    let second = cascadia(&["fleet", "init", "--home", &coordinator]);
    assert!(second.stderr.contains("another `cascadia fleet init` runs"), "{}", second.stderr);
    // It comes back to whoever waits.
    drop(server);
    until(|| (connected() == serde_json::json!(["pc-0"])).then_some(()));
    drop(init);
    let late = run(join(2, &code, &["--no-start"]));
    assert!(late.stderr.contains("the coordinator cannot be reached"), "{}", late.stderr);
}

#[test]
fn failing_commands_make_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let commands: [&[&str]; 17] = [
        &["fleet", "invite"],
        &["fleet", "approve", "node-00"],
        &["fleet", "init", "--listen", "no such address"],
        &["fleet", "push", "absent", "node-00:stage-0"],
        &["fleet", "status"],
        &["fleet", "revoke", "node-00"],
        &["fleet", "trust", "node-00"],
        &["fleet", "rotate", "--coordinator"],
        &["join", "cas1-nonsense"],
        &["leave"],
        &["worker", "start"],
        &["worker", "head"],
        &["worker", "limits", "--hours", "nonsense"],
        &["audit", "verify"],
        &["serve", "--fleet", "all", "--port", "0"],
        &["serve", &fixture("llama3"), "--fleet", "all", "--port", "0"],
        &["export", &fixture("llama3"), "--stages", "auto", "--precision", "nonsense", "--out", "shards"],
    ];
    for command in commands {
        let mut program = Command::new(env!("CARGO_BIN_EXE_cascadia"));
        let done = program::run(program.args(command).env("HOME", folder.path()).current_dir(folder.path()), "");
        assert_ne!(done.code, 0, "{command:?}");
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert!(left.is_empty(), "{command:?} left {left:?}: {}", done.stderr);
    }
}
