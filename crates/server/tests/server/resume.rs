//! Streams resumed with the help of the resume log, and without it where it does not help.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use cascadia_server::{ResumeLogOptions, ServerOptions};
use serde_json::{Value, json};

use crate::harness::{CONTEXT, Running, model, model_with_template, read_reply, until};

/// A model of this template writes calls between tags.
const CALLING: &str =
    "{% for message in messages %}{{ message.content }}{% endfor %}{% if tools %}<tool_call>{% endif %}";

fn logging(folder: &Path) -> ServerOptions {
    let resume_log = ResumeLogOptions { linger: Duration::ZERO, ..ResumeLogOptions::new(folder.to_owned()) };
    ServerOptions { resume_log: Some(resume_log), ..ServerOptions::default() }
}

fn with_log(folder: &Path) -> Running {
    Running::serve(model(CONTEXT), logging(folder))
}

/// Sampled from a seed, and never ended by the model: every run of a test meets the same answer.
fn body(server: &Running, prompt: &str) -> Value {
    let never: Value = server.end_tokens.iter().map(|token| (token.to_string(), json!(-100))).collect();
    let messages = json!([{"role": "user", "content": prompt}]);
    json!({"messages": messages, "max_tokens": 120, "temperature": 1.0, "seed": 7, "stream": true,
           "logit_bias": never, "stream_options": {"include_usage": true}})
}

fn head(last: &str, length: usize) -> String {
    let fixed = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close";
    format!("{fixed}\r\nlast-event-id: {last}\r\ncontent-length: {length}\r\n\r\n")
}

/// The events of a stream after one: their ids, and their data except the time.
fn resume(server: &Running, body: &Value, last: &str) -> Vec<(String, String)> {
    let body = body.to_string();
    let reply = server.raw(format!("{}{body}", head(last, body.len())).as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.text());
    let event = |event: &str| {
        let (name, data) = event.split_once('\n').expect("an event has a name");
        let data = data.strip_prefix("data: ").expect("an event has data");
        let data = serde_json::from_str(data).map_or_else(
            |_| data.to_owned(),
            |mut data: Value| {
                data["created"] = Value::Null;
                // How much is cached depends on how far a stream was computed before it broke off.
                if data["usage"].is_object() {
                    data["usage"]["prompt_tokens_details"] = Value::Null;
                }
                data.to_string()
            },
        );
        (name.strip_prefix("id: ").expect("a name").to_owned(), data)
    };
    // A slow server sends comments to keep the connection alive.
    reply.text().split_terminator("\n\n").filter(|part| !part.starts_with(':')).map(event).collect()
}

/// A stream whose client disconnected.
struct BrokenStream {
    /// The name of the last event that was read.
    last: String,
    /// Tokens that were generated in total.
    tokens: usize,
}

/// Asks, and leaves after so many events.
fn break_off(server: &Running, body: &Value, events: usize) -> BrokenStream {
    let number = |name: &str| server.get("/status").json()["service"][name].as_f64().expect("a number");
    let body = body.to_string();
    loop {
        let (cancelled, before) = (number("jobs_cancelled_total"), generated(server));
        let mut stream = server.connect();
        stream.write_all(format!("{}{body}", head("", body.len())).as_bytes()).unwrap();
        let (mut text, mut bytes) = (String::new(), [0; 256]);
        while text.matches("\n\n").count() < events {
            let count = stream.read(&mut bytes).unwrap();
            assert!(count > 0, "it ended: {text}");
            text += &String::from_utf8_lossy(&bytes[..count]);
        }
        drop(stream);
        until("nothing runs", || number("running") == 0.0);
        // On a busy machine everything may be sent before we disconnect.
        if number("jobs_cancelled_total") > cancelled {
            let whole = &text[..text.rfind("\n\n").unwrap()];
            let last = whole.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
            return BrokenStream { last, tokens: generated(server) - before };
        }
    }
}

/// All tokens that the model has generated.
fn generated(server: &Running) -> usize {
    let latencies = server.get("/status").json()["latencies"].clone();
    let count = |name: &str| latencies[name]["count"].as_u64().expect("a number") as usize;
    count("time_to_first_token_seconds") + count("inter_token_seconds")
}

/// Tokens in the whole records of a log: each is a count, so many tokens, and a checksum of eight bytes.
fn whole_tokens(mut log: &[u8]) -> usize {
    let mut tokens = 0;
    while let Some((count, rest)) = log.split_first_chunk::<4>() {
        let count = u32::from_le_bytes(*count) as usize;
        let Some(rest) = rest.get(4 * count + 8..) else { break };
        (tokens, log) = (tokens + count, rest);
    }
    tokens
}

/// What the log has of a stream once all of it is there, which a thread of its own sees to in its own time.
fn written(folder: &Path, stream: &BrokenStream) -> Vec<u8> {
    let read = || fs::read(file(folder, &stream.last)).unwrap_or_default();
    until("all of it is in the log", || whole_tokens(&read()) == stream.tokens);
    read()
}

fn count(server: &Running, name: &str) -> u64 {
    let text = server.get("/metrics").text();
    let value = text.lines().find_map(|line| line.strip_prefix(&format!("cascadia_resumed_{name}_tokens_total ")));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no number of {name} tokens in {text}"))
}

fn file(folder: &Path, last: &str) -> PathBuf {
    folder.join(format!("{}.tokens", last.split_once('-').expect("a name").0))
}

#[test]
fn a_stream_resumes_from_the_log_with_the_same_events() {
    let folder = tempfile::tempdir().unwrap();
    let first = with_log(folder.path());
    let body = body(&first, "a");
    let stream = break_off(&first, &body, 45);
    let foreign = break_off(&first, &self::body(&first, "b"), 45);
    let (kept, other) = (written(folder.path(), &stream), written(folder.path(), &foreign));
    drop(first);
    let BrokenStream { last, tokens } = stream;
    assert!(tokens > 40);
    let path = file(folder.path(), &last);
    let expected = resume(Running::shared(), &body, &last);
    assert!(expected.len() > 20, "enough of it is missing: {expected:?}");
    assert!(expected.iter().any(|(_, data)| data.contains("\"completion_tokens\":120")), "{expected:?}");
    let torn = kept[..kept.len() - 3].to_vec();
    let longer = [&kept, &b"\x01\0\0\0torn"[..]].concat();
    // What is in the file, and how many tokens the stream knows from it: a record may have few of them or all.
    let cases = [
        ("whole", kept.clone(), tokens),
        ("torn", torn.clone(), whole_tokens(&torn)),
        ("with a torn tail", longer, tokens),
        ("of another stream", other, 0),
        ("empty", Vec::new(), 0),
        ("no log at all", vec![255; 1000], 0),
    ];
    for (name, bytes, expected_known) in cases {
        fs::write(&path, bytes).unwrap();
        let server = with_log(folder.path());
        assert_eq!(resume(&server, &body, &last), expected, "{name}");
        let (known, generated) = (count(&server, "known") as usize, count(&server, "recomputed") as usize);
        assert_eq!(known, expected_known, "{name}: of {tokens}");
        assert!(generated <= tokens - known && (known > 0 || generated >= 40), "{name}: {generated} generated again");
        until("the log is gone", || !path.exists());
    }
    assert_eq!(resume(&with_log(folder.path()), &body, &last), expected, "without a file");
}

#[test]
fn formats_and_tool_calls_resume_from_the_log_too() {
    let folder = tempfile::tempdir().unwrap();
    let plain = Running::serve(model_with_template(CALLING), ServerOptions::default());
    let start = || Running::serve(model_with_template(CALLING), logging(folder.path()));
    let note = json!({"text": {"type": "string", "minLength": 60, "maxLength": 80}});
    let parameters = json!({"type": "object", "properties": note, "required": ["text"]});
    let tool = json!({"type": "function", "function": {"name": "note", "parameters": parameters}});
    let pattern = json!({"type": "regex", "pattern": "([a-d]{2,9} ){12}end"});
    let cases =
        [json!({"response_format": pattern, "stop": "en"}), json!({"tools": [tool], "tool_choice": "required"})];
    for case in cases {
        let mut asked = body(&plain, "f");
        asked.as_object_mut().unwrap().extend(case.as_object().unwrap().clone());
        let first = start();
        let stream = break_off(&first, &asked, 8);
        written(folder.path(), &stream);
        drop(first);
        let last = stream.last;
        let expected = resume(&plain, &asked, &last);
        assert!(expected.iter().any(|(_, data)| !data.contains("\"finish_reason\":null")), "{expected:?}");
        let server = start();
        assert_eq!(resume(&server, &asked, &last), expected, "{case}");
        assert!(count(&server, "known") > 0 && count(&server, "recomputed") <= 32, "{case}");
    }
}

#[test]
fn a_stream_that_breaks_off_twice_is_kept_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let first = with_log(folder.path());
    let body = body(&first, "c");
    let last = break_off(&first, &body, 45).last;
    let expected = resume(Running::shared(), &body, &last);
    // Two connections resume it to its end at once.
    let twice: Vec<_> = thread::scope(|scope| {
        let ask = |_| scope.spawn(|| resume(&first, &body, &last));
        let asked: Vec<_> = (0..2).map(ask).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    twice.iter().for_each(|events| assert_eq!(*events, expected));
    until("the log is gone", || !file(folder.path(), &last).exists());
}

#[test]
fn logprobs_and_answers_that_do_not_stream_need_no_log() {
    let folder = tempfile::tempdir().unwrap();
    let server = with_log(folder.path());
    let mut body = body(&server, "d");
    body["logprobs"] = true.into();
    let last = break_off(&server, &body, 45).last;
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "log-probabilities need logits");
    let expected = resume(Running::shared(), &body, &last);
    assert_eq!(resume(&server, &body, &last), expected);
    assert_eq!(count(&server, "known"), 0);
    body["stream"] = false.into();
    body.as_object_mut().unwrap().remove("stream_options");
    assert_eq!(server.post("/v1/chat/completions", &body).status, 200);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "it cannot be resumed");
}

#[test]
fn a_log_that_cannot_be_written_changes_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("log");
    let server = with_log(&inside);
    let body = body(&server, "e");
    // The folder goes away, as a disk may.
    fs::remove_dir_all(&inside).unwrap();
    let mut stream = server.connect();
    let text = body.to_string();
    stream.write_all(format!("{}{text}", head("", text.len())).as_bytes()).unwrap();
    let reply = read_reply(&mut stream);
    assert!(reply.status == 200 && reply.text().ends_with("data: [DONE]\n\n"), "{}", reply.text());
    let name = reply.text().lines().find_map(|line| line.strip_prefix("id: ").map(str::to_owned)).unwrap();
    assert_eq!(resume(&server, &body, &name), resume(Running::shared(), &body, &name));
    let taken = folder.path().join("file");
    fs::write(&taken, "").unwrap();
    let resume_log = Some(ResumeLogOptions::new(taken));
    let options = ServerOptions { port: 0, resume_log, ..ServerOptions::default() };
    let refused = cascadia_server::Server::bind(model(256), &options).err().expect("it is no folder");
    assert!(refused.to_string().contains("--resume-log"), "{refused}");
}
