//! Export, join, push, serve: the real program as coordinator and workers on this machine.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::{cascadia, fixture, json};

/// A program that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(arguments: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cascadia"));
    let command = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running(command.spawn().expect("the program starts"))
}

/// What a server says to a greedy completion.
fn complete(port: &str, prompt: &str) -> Option<String> {
    let mut socket = TcpStream::connect(format!("127.0.0.1:{port}")).ok()?;
    socket.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
    let body = format!(r#"{{"model":"default","prompt":"{prompt}","max_tokens":24,"temperature":0}}"#);
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(head.as_bytes()).ok()?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).ok()?;
    let value: Value = serde_json::from_str(&answer[answer.find('{')?..=answer.rfind('}')?]).ok()?;
    value["choices"][0]["text"].as_str().map(str::to_owned)
}

/// Invites a machine and lets it join.
fn pair(coordinator: &str, worker: &str) {
    let mut init = start(&["fleet", "init", "--listen", "127.0.0.1:0", "--home", coordinator]);
    let mut line = String::new();
    let mut out = BufReader::new(init.0.stdout.take().expect("a pipe"));
    out.read_line(&mut line).expect("it prints a line");
    assert!(line.starts_with("cas1-"), "{line}");
    let done = cascadia(&["join", line.trim(), "--home", worker]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(init.0.wait().expect("it ends").success());
}

/// Sets the port for workers, which no one else uses now.
fn choose_port(coordinator: &Path) {
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    let path = coordinator.join("coordinator/fleet.json");
    let mut settings: Value = serde_json::from_slice(&std::fs::read(&path).expect("it was written")).expect("JSON");
    settings["listen"] = format!("127.0.0.1:{port}").into();
    std::fs::write(&path, settings.to_string()).expect("it can be written");
}

fn port_of(coordinator: &Path) -> String {
    let settings = std::fs::read(coordinator.join("coordinator/fleet.json")).expect("it was written");
    let settings: Value = serde_json::from_slice(&settings).expect("JSON");
    settings["listen"].as_str().expect("an address").to_owned()
}

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
fn two_workers_answer_as_one_machine_does_and_a_third_takes_over() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (coordinator, shards, whole) = (at("coordinator"), at("shards"), at("whole.gguf"));
    let model = fixture("llama3");
    assert_eq!(cascadia(&["export", &model, "--stages", "2", "--out", &shards]).code, 0);
    assert_eq!(cascadia(&["quantize", &model, &whole, "--type", "int4"]).code, 0);
    let homes = [at("a"), at("b"), at("c")];
    homes.iter().for_each(|home| pair(&coordinator, home));
    choose_port(Path::new(&coordinator));
    let listen = port_of(Path::new(&coordinator));
    let work = |home: &String| start(&["worker", "start", "--home", home, "--coordinator", &listen, "--threads", "1"]);
    let mut workers: Vec<Running> = homes.iter().map(work).collect();
    let done = cascadia(&[
        "fleet",
        "push",
        &shards,
        "node-00:stage-0",
        "node-01:stage-1",
        "node-02:stage-1",
        "--home",
        &coordinator,
    ]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let serve = |arguments: &[&str]| {
        let port =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
        let port = port.to_string();
        let fixed = ["serve", "--port", &port, "--ctx", "128", "--threads", "1", "--log-level", "error"];
        (start(&[&fixed[..], arguments].concat()), port)
    };
    let (_local, local_port) = serve(&[&whole]);
    let (_fleet, fleet_port) = serve(&["--fleet", "node-00,node-01,node-02", "--home", &coordinator]);
    let ask = |port: &str, prompt: &str| {
        let begin = Instant::now();
        loop {
            if let Some(text) = complete(port, prompt) {
                return text;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "the server answers");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let expected = ask(&local_port, "The harbour at night");
    assert_eq!(ask(&fleet_port, "The harbour at night"), expected);
    // Whichever of the two runs the second stage, the other takes over.
    drop(workers.remove(1));
    assert_eq!(ask(&fleet_port, "The harbour at night"), expected);
    assert_eq!(ask(&fleet_port, "A ship"), ask(&local_port, "A ship"));
}
