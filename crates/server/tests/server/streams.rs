//! Streams whose readers leave, stall or outlive the server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use cascadia_server::{Limits, ServerOptions};
use serde_json::{Value, json};

use crate::brake::Brake;
use crate::harness::{Running, model_with_template};

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

/// The same of an answer that cannot end before the brake is off.
fn held_stream(server: &Running, brake: &Brake) -> TcpStream {
    let mut stream = ask(server, json!({"max_tokens": 1000, "stream": true}));
    brake.let_begin();
    stream.read_exact(&mut [0; 300]).unwrap();
    stream
}

fn status(server: &Running) -> Value {
    server.get("/status").json()
}

/// Waits until a number of the status has been reached.
fn wait_for(server: &Running, reached: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..2400 {
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
    let (server, brake) = Running::braked(ServerOptions::default());
    drop(held_stream(&server, &brake));
    // The server notices while nothing is sent.
    wait_for(&server, |status| status["requests_in_flight"] == 1);
    drop(brake);
    let status = wait_for(&server, cancelled);
    let tokens = status["latencies"]["inter_token_seconds"]["count"].as_u64().unwrap();
    assert!(tokens < 990, "{tokens} tokens for nobody");
}

#[test]
fn a_client_that_leaves_before_its_whole_answer_ends_it_too() {
    let (server, brake) = Running::braked(ServerOptions::default());
    let stream = ask(&server, json!({"max_tokens": 1000}));
    brake.let_begin();
    wait_for(&server, |status| status["latencies"]["time_to_first_token_seconds"]["count"] == 1);
    drop(stream);
    wait_for(&server, |status| status["requests_in_flight"] == 1);
    drop(brake);
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
    let (mut server, brake) = Running::braked(ServerOptions { limits, ..ServerOptions::default() });
    let mut stream = held_stream(&server, &brake);
    server.stop();
    let mut rest = String::new();
    let _ = stream.read_to_string(&mut rest);
    assert!(!rest.contains("[DONE]"));
}

#[test]
fn a_stream_resumes_after_the_last_event_its_reader_saw() {
    let (server, started_anew) = (Running::shared(), Running::start(ServerOptions::default()));
    // Sampled, and long enough to be cut.
    let never: Value = server.end_tokens.iter().map(|token| (token.to_string(), json!(-100))).collect();
    let body = json!({"prompt": "a", "max_tokens": 40, "temperature": 1.0, "seed": 7, "stream": true,
                      "logit_bias": never});
    let ask = |server: &Running, body: &Value, last: &str| {
        server.request("POST /v1/completions", &[("last-event-id", last)], body.to_string().as_bytes())
    };
    let whole = ask(server, &body, "").text();
    let (ids, events): (Vec<&str>, Vec<&str>) =
        whole.split_terminator("\n\n").filter_map(|event| event.split_once('\n')).unzip();
    assert!(events.len() > 5);
    // Repeated events differ in the time of the response only.
    let texts = |events: &[&str]| -> Vec<String> {
        let text = |event: &&str| match event.strip_prefix("data: ").and_then(|data| serde_json::from_str(data).ok()) {
            Some::<Value>(mut data) => {
                data["created"] = Value::Null;
                data.to_string()
            }
            None => (*event).to_owned(),
        };
        events.iter().map(text).collect()
    };
    for (at, server) in [(0, server), (events.len() / 2, &started_anew), (events.len() - 1, server)] {
        let rest = ask(server, &body, ids[at].strip_prefix("id: ").unwrap()).text();
        let (more, rest): (Vec<&str>, Vec<&str>) =
            rest.split_terminator("\n\n").filter_map(|event| event.split_once('\n')).unzip();
        assert_eq!((more, texts(&rest)), (ids[at + 1..].to_vec(), texts(&events[at + 1..])), "after event {at}");
    }
    let last = ids[2].strip_prefix("id: ").unwrap();
    let mut other = body.clone();
    other["prompt"] = "b".into();
    assert_eq!(ask(server, &other, last).status, 409);
    assert_eq!(ask(server, &body, "7").status, 400);
    other = body.clone();
    other["n"] = 2.into();
    let two = ask(server, &other, "").text();
    let last = two.lines().nth(3).and_then(|line| line.strip_prefix("id: ")).expect("a second event");
    assert_eq!(ask(server, &other, last).status, 400);
}

/// The ids of a stream's events.
fn ids(stream: &str) -> Vec<&str> {
    stream.lines().filter_map(|line| line.strip_prefix("id: ")).collect()
}

#[test]
fn a_stream_resumes_only_where_its_answer_would_be_the_same() {
    let server = Running::shared();
    let body = json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 6, "stream": true});
    let resume = |server: &Running, path: &str, last: &str| {
        server.request(&format!("POST {path}"), &[("last-event-id", last)], body.to_string().as_bytes())
    };
    let path = "/v1/chat/completions";
    let whole = resume(server, path, "").text();
    let last = ids(&whole)[1];
    assert_eq!(resume(server, path, last).status, 200);
    assert_eq!(resume(server, "/v1/messages", last).status, 409, "another path");
    let smaller = Running::with_context(256, ServerOptions::default());
    assert_eq!(resume(&smaller, path, last).status, 409, "another context");
    let template = "{% for message in messages %}Today: {{ message.content }}{% endfor %}";
    let templated = Running::serve(model_with_template(template), ServerOptions::default());
    assert_eq!(resume(&templated, path, last).status, 409, "another prompt");
}

#[test]
fn a_stream_that_ends_before_what_its_reader_saw_fails() {
    let limits = Limits { answer_time: Duration::ZERO, ..Limits::default() };
    let (server, hasty) = (Running::shared(), Running::start(ServerOptions { limits, ..ServerOptions::default() }));
    let body = json!({"prompt": "a", "max_tokens": 6, "stream": true});
    let resume = |server: &Running, last: &str| {
        server.request("POST /v1/completions", &[("last-event-id", last)], body.to_string().as_bytes()).text()
    };
    let whole = resume(server, "");
    let last = *ids(&whole).last().unwrap();
    assert_eq!(resume(server, last), "", "all was seen");
    let (name, _) = last.split_once('-').unwrap();
    for rest in [resume(server, &format!("{name}-1000")), resume(&hasty, last)] {
        assert!(rest.contains("Last-Event-ID") && !rest.contains("[DONE]"), "{rest}");
    }
}
