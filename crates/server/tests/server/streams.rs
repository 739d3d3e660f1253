//! Streams whose readers leave, stall or outlive the server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use cascadia_server::{Limits, ServerOptions};
use serde_json::{Value, json};

use crate::harness::Running;

/// Asks for an answer that the model does not end by itself.
fn ask(server: &Running, mut body: Value) -> TcpStream {
    body["prompt"] = "a".into();
    body["logit_bias"] = server.end_tokens.iter().map(|token| (token.to_string(), Value::from(-100))).collect();
    let body = body.to_string();
    let mut stream = server.connect();
    let head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    stream.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    stream
}

/// Begins such an answer as a stream, and reads its first bytes.
fn long_stream(server: &Running, tokens: u32) -> TcpStream {
    let mut stream = ask(server, json!({"max_tokens": tokens, "stream": true}));
    stream.read_exact(&mut [0; 300]).unwrap();
    stream
}

fn status(server: &Running) -> Value {
    server.get("/status").json()
}

/// Waits until a number of the status has been reached.
fn wait_for(server: &Running, reached: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..600 {
        let status = status(server);
        if reached(&status) {
            return status;
        }
        sleep(Duration::from_millis(50));
    }
    panic!("not reached: {}", status(server));
}

/// Whether the service has given up one job.
fn cancelled(status: &Value) -> bool {
    status["service"]["jobs_cancelled_total"] == 1.0 && status["service"]["running"] == 0.0
}

#[test]
fn a_reader_that_leaves_ends_the_answer() {
    let server = Running::start(ServerOptions::default());
    drop(long_stream(&server, 1000));
    let status = wait_for(&server, cancelled);
    let tokens = status["latencies"]["inter_token_seconds"]["count"].as_u64().unwrap();
    assert!(tokens < 990, "{tokens} tokens for nobody");
    wait_for(&server, |status| status["requests_in_flight"] == 1);
}

#[test]
fn a_client_that_leaves_before_its_whole_answer_ends_it_too() {
    let server = Running::start(ServerOptions::default());
    let stream = ask(&server, json!({"max_tokens": 1000}));
    wait_for(&server, |status| status["latencies"]["time_to_first_token_seconds"]["count"] == 1);
    drop(stream);
    let status = wait_for(&server, cancelled);
    assert!(status["latencies"]["inter_token_seconds"]["count"].as_u64() < Some(990), "{status}");
}

#[test]
fn answers_under_way_are_finished_before_the_end() {
    let limits = Limits { drain_time: Duration::from_secs(600), ..Limits::default() };
    let mut server = Running::start(ServerOptions { limits, ..ServerOptions::default() });
    let mut stream = long_stream(&server, 100);
    server.ask_to_stop();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("[DONE]"), "{}", &rest[rest.len().saturating_sub(500)..]);
    server.stop();
    assert!(TcpStream::connect(server.address).is_err(), "nobody listens any more");
}

#[test]
fn answers_that_take_too_long_are_cut_at_the_end() {
    let limits = Limits { drain_time: Duration::from_millis(50), ..Limits::default() };
    let mut server = Running::start(ServerOptions { limits, ..ServerOptions::default() });
    let mut stream = long_stream(&server, 1000);
    server.stop();
    let mut rest = String::new();
    let _ = stream.read_to_string(&mut rest);
    assert!(!rest.contains("[DONE]"));
}
