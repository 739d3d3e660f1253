//! Requests that mean harm, each with the exact answer it gets.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use cascadia_server::fuzzing::{Routes, Unread};
use cascadia_server::{Limits, ServerOptions};
use serde_json::json;

use crate::harness::{CONTEXT, LONGEST_CONTEXT, Running, model, read_reply, until};

const CHAT: &str = "POST /v1/chat/completions";

#[test]
fn bodies_that_are_too_large_are_refused() {
    let server = Running::shared();
    let declared = "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2147483648\r\n\r\n{";
    assert_eq!(server.raw(declared.as_bytes()).status, 413);
    let chunk = [b"100000\r\n".as_slice(), &vec![b' '; 1 << 20], b"\r\n"].concat();
    let mut chunked = b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    (0..16).for_each(|_| chunked.extend_from_slice(&chunk));
    let reply = server.raw(&chunked);
    // A client that continues sending may lose the answer, but not keep the connection.
    assert!([413, 0].contains(&reply.status), "{}", reply.head);
}

#[test]
fn bodies_that_are_not_requests_are_refused() {
    let server = Running::shared();
    let deep = format!("{{\"messages\": {}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let deep_tool = format!(r#"{{"messages": [], "tools": [{}1{}]}}"#, "{\"a\":".repeat(10_000), "}".repeat(10_000));
    let stops =
        format!(r#"{{"messages": [{{"role": "user", "content": "a"}}], "stop": [{}"x"]}}"#, "\"x\",".repeat(1_000_000));
    let biases: String = (0..500_000).map(|token| format!("\"{token}\":1,")).collect();
    let biases = format!(r#"{{"messages": [{{"role": "user", "content": "a"}}], "logit_bias": {{{biases}"0": 1}}}}"#);
    let messages = format!(r#"{{"messages": [{}{{}}]}}"#, "{\"role\":\"user\",\"content\":\"\"},".repeat(100_000));
    let values =
        format!(r#"{{"messages": [{{"role": "user", "content": "a"}}], "tools": [[{}0]]}}"#, "0,".repeat(1_000_000));
    let cases: [&[u8]; 14] = [
        b"",
        b"{",
        b"null",
        b"[]",
        b"7",
        b"{\"messages\": \"\xff\xfe\"}",
        b"{\"messages\": []} {}",
        b"{\"messages\": [], \"messages\": []}",
        deep.as_bytes(),
        deep_tool.as_bytes(),
        stops.as_bytes(),
        biases.as_bytes(),
        messages.as_bytes(),
        values.as_bytes(),
    ];
    for body in cases {
        let reply = server.request(CHAT, &[], body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]);
        assert_eq!(reply.status, 400, "{shown}: {}", reply.text());
        assert!(reply.json()["error"]["message"].is_string(), "{shown}");
        assert!(reply.body.len() < 1024, "{shown}: a long answer to a wrong question");
    }
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn requests_cannot_be_smuggled() {
    let server = Running::shared();
    let both = "content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let cases: [(&str, &[u16]); 8] = [
        ("content-length: 2\r\ncontent-length: 3\r\n\r\n{}x", &[400]),
        ("content-length: +2\r\n\r\n{}", &[400]),
        ("content-length: -1\r\n\r\n{}", &[400]),
        ("content-length: 0x2\r\n\r\n{}", &[400]),
        ("transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n", &[400]),
        ("transfer-encoding: chunked\r\n\r\nzz\r\n\r\n", &[400]),
        ("x: a\r\n folded\r\ncontent-length: 2\r\n\r\n{}", &[400]),
        (both, &[400]),
    ];
    for (rest, expected) in cases {
        let reply =
            server.raw(format!("POST /tokenize HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{rest}").as_bytes());
        assert!(expected.contains(&reply.status), "{rest:?}: {} {}", reply.head, reply.text());
        assert!(!reply.text().contains("HTTP/1.1"), "{rest:?}: a second answer to one request");
    }
}

#[test]
fn heads_have_limits() {
    let server = Running::shared();
    let long = "a".repeat(20 << 10);
    assert_eq!(server.request("GET /livez", &[("x", &long)], b"").status, 431);
    let many: Vec<(String, String)> = (0..200).map(|n| (format!("x-{n}"), "a".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(server.request("GET /livez", &many, b"").status, 431);
    assert!([414, 431, 400].contains(&server.get(&format!("/{long}")).status));
    for wrong in ["", "GET", "GET / HTTP/9.9\r\n\r\n", "\0\0\0\0\r\n\r\n", "GET / HTTP/1.1\r\nhost localhost\r\n\r\n"] {
        let mut stream = server.connect();
        stream.write_all(wrong.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let status = read_reply(&mut stream).status;
        assert!([0, 400, 505].contains(&status), "{wrong:?}: {status}");
    }
}

#[test]
fn connections_without_a_request_make_room() {
    let limits = Limits { connections: 4, ..Limits::default() };
    let server = Running::start(ServerOptions { limits, ..ServerOptions::default() });
    let mut idle: Vec<_> = (0..50).map(|_| server.connect()).collect();
    idle[49].write_all(b"GET /livez HTTP/1.1\r\nhost: lo").unwrap();
    assert_eq!(server.get("/livez").status, 200, "there is room for new requests");
    assert_eq!(read_reply(&mut idle[0]).status, 0, "the first to come had waited longest");
    // Where all have requests, the next is refused at once.
    let body = b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n";
    let mut asking: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for stream in &mut asking {
        stream.write_all(body).unwrap();
        // The server has begun to read the body once it asks for it.
        stream.read_exact(&mut [0; 12]).unwrap();
    }
    let mut next = server.connect();
    assert_eq!(read_reply(&mut next).status, 503);
}

#[test]
fn too_many_large_bodies_are_told_to_wait() {
    let body_time = Duration::from_secs(600);
    let limits = Limits { body_bytes: 1 << 20, bodies_bytes: 2 << 20, body_time, ..Limits::default() };
    let server = Running::start(ServerOptions { limits, ..ServerOptions::default() });
    let fixed = "POST /tokenize HTTP/1.1\r\nhost: localhost\r\nconnection: close";
    let head = format!("{fixed}\r\ncontent-length: {}\r\n\r\n", 1 << 20);
    // All but the last byte: the memory is taken and nothing is answered yet.
    let mut held: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for stream in &mut held {
        let _ = stream.write_all(&[head.as_bytes(), &vec![b' '; (1 << 20) - 1]].concat());
    }
    // Before the last byte only those are answered that are refused.
    until("one is refused", || held.iter().any(is_answered));
    held.iter_mut().for_each(|stream| drop(stream.write_all(b" ")));
    let replies: Vec<_> = held.iter_mut().map(read_reply).collect();
    let refused: Vec<_> = replies.iter().filter(|reply| reply.status == 429).collect();
    assert!(!refused.is_empty(), "{replies:?}");
    assert!(refused.iter().all(|reply| reply.header("retry-after") == Some("1")));
    let large = json!({"prompt": "a", "padding": "a".repeat(900_000)});
    assert_eq!(server.post("/tokenize", &large).status, 200, "memory is given back");
}

#[test]
fn a_body_counts_until_its_answer_was_sent() {
    let limits = Limits { body_bytes: 1 << 20, bodies_bytes: 2 << 20, ..Limits::default() };
    let (server, brake) = Running::braked(ServerOptions { limits, ..ServerOptions::default() });
    let body =
        json!({"input": "Hi", "stream": true, "max_output_tokens": 1, "padding": "a".repeat(900_000)}).to_string();
    let fixed = "POST /v1/responses HTTP/1.1\r\nhost: localhost\r\nconnection: close";
    let request = format!("{fixed}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let mut streams = Vec::new();
    // Their answers cannot end, so that at most two of them fit.
    let refused = (0..4).any(|_| {
        let mut stream = server.connect();
        let mut status = [0; 12];
        // One that is refused may be closed before all of it is written.
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.read_exact(&mut status);
        streams.push(stream);
        &status[9..] != b"200"
    });
    assert!(refused, "what is kept is not counted");
    assert!(streams.len() > 1, "one fits");
    drop(brake);
    for mut stream in streams {
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(server.raw(request.as_bytes()).status, 200, "memory is given back");
}

#[test]
fn texts_that_wait_to_be_embedded_count() {
    let limits = Limits { body_bytes: 1 << 20, bodies_bytes: 2 << 20, ..Limits::default() };
    let (server, brake) = Running::braked(ServerOptions { limits, ..ServerOptions::default() });
    let body = json!({"input": "Hi", "padding": "a".repeat(900_000)}).to_string();
    let fixed = "POST /v1/embeddings HTTP/1.1\r\nhost: localhost\r\nconnection: close";
    let request = format!("{fixed}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let mut waiting = Vec::new();
    for number in 1..=4 {
        let mut stream = server.connect();
        // One that is refused may be closed before all of it is written.
        let _ = stream.write_all(request.as_bytes());
        // The model computes nothing, so that one that is not refused waits, with its body read.
        let is_queued = || server.get("/status").json()["service"]["waiting"].as_f64() == Some(f64::from(number));
        until("it is refused or waits", || is_answered(&stream) || is_queued());
        let is_refused = is_answered(&stream);
        waiting.push(stream);
        if is_refused {
            break;
        }
    }
    drop(brake);
    let statuses: Vec<u16> = waiting.iter_mut().map(|stream| read_reply(stream).status).collect();
    assert!(statuses.contains(&200) && statuses.iter().any(|status| *status != 200), "{statuses:?}");
}

#[test]
fn an_answer_counts_until_it_was_sent() {
    let limits = Limits { body_bytes: 64 << 10, bodies_bytes: 128 << 10, ..Limits::default() };
    let options = ServerOptions { limits, ..ServerOptions::default() };
    let routes = Routes::new(model(CONTEXT), &options).expect("the routes");
    for (path, body) in [
        ("/tokenize", json!({"prompt": "a b ".repeat(200)})),
        ("/detokenize", json!({"tokens": vec![300; 1000]})),
        ("/v1/embeddings", json!({"input": ["a", "b", "c"]})),
        ("/v1/completions", json!({"prompt": "a", "max_tokens": 4, "n": 2, "logprobs": 5})),
    ] {
        let body = body.to_string();
        let post = || routes.post_unread(path, body.as_bytes()).expect("an answer");
        // There are 33 permits of 4 KiB.
        let unread: Vec<Unread> = (0..40).map(|_| post()).collect();
        let refused = unread.iter().filter(|answer| answer.status == 429).count();
        assert!(unread.len() > refused && unread.iter().all(|answer| [200, 429].contains(&answer.status)), "{path}");
        assert!(refused > 0, "{path}: what nobody reads is not counted");
        drop(unread);
        assert_eq!(post().status, 200, "{path}: memory is given back");
    }
}

#[test]
fn an_answer_that_can_never_be_held_is_refused() {
    let limits = Limits { body_bytes: 64 << 10, bodies_bytes: 128 << 10, ..Limits::default() };
    let server = Running::start(ServerOptions { limits, ..ServerOptions::default() });
    let long = json!({"prompt": "a", "max_tokens": 100, "n": 8, "logprobs": 5, "min_tokens": 100});
    let reply = server.post("/v1/completions", &long);
    assert_eq!(reply.status, 413, "{}", reply.text());
    assert!(reply.text().contains("stream the answer"), "{}", reply.text());
    let mut streamed = long;
    streamed["stream"] = true.into();
    assert_eq!(server.post("/v1/completions", &streamed).status, 200, "a stream is not held");
    let tokens = |count: usize| server.post("/detokenize", &json!({"tokens": vec![300; count]}));
    assert_eq!(tokens(CONTEXT as usize).status, 200);
    let reply = tokens(CONTEXT as usize + 1);
    assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (400, Some("context_length_exceeded")));
    // What thousands of long tokens say does not fit.
    let limits = Limits { body_bytes: 64 << 10, bodies_bytes: 128 << 10, ..Limits::default() };
    let server = Running::with_context(LONGEST_CONTEXT, ServerOptions { limits, ..ServerOptions::default() });
    let word = server.post("/tokenize", &json!({"prompt": " something"})).json()["tokens"].clone();
    let word = word.as_array().and_then(|tokens| tokens.last()).expect("a token");
    let reply = server.post("/detokenize", &json!({"tokens": vec![word; 4000]}));
    assert_eq!(reply.status, 400, "{}", reply.text());
    assert!(reply.text().contains("the text of these tokens has"), "{}", reply.text());
}

#[test]
fn a_text_that_cannot_fit_is_refused_by_its_length() {
    let server = Running::shared();
    let long = "a".repeat(7 << 20);
    let message = json!([{"role": "user", "content": long}]);
    for (path, body) in [
        ("/tokenize", json!({"prompt": long})),
        ("/v1/completions", json!({"prompt": long})),
        ("/v1/chat/completions", json!({"messages": message})),
        ("/v1/messages/count_tokens", json!({"messages": message})),
        ("/v1/embeddings", json!({"input": long})),
    ] {
        let reply = server.post(path, &body);
        assert_eq!(reply.status, 400, "{path}");
        assert!(reply.text().contains("at least") || path.contains("chat") || path.contains("messages"), "{path}");
    }
}

#[test]
fn tokenising_counts_before_it_is_done() {
    let limits = Limits { preparation_bytes: 8 << 20, ..Limits::default() };
    let server = Running::with_context(LONGEST_CONTEXT, ServerOptions { limits, ..ServerOptions::default() });
    // A text that cannot be cut, and may fit into the context: its length alone does not refuse it.
    let uncut = "a".repeat(20 << 10);
    let long = server.post("/tokenize", &json!({"prompt": uncut}));
    assert_eq!(long.status, 413, "{}", &long.text()[..long.text().len().min(200)]);
    let message = json!([{"role": "user", "content": uncut}]);
    assert_eq!(server.post("/v1/messages/count_tokens", &json!({"messages": message})).status, 413);
    let words = server.post("/tokenize", &json!({"prompt": "word ".repeat(4000)}));
    assert_eq!(words.status, 200, "it is read in parts: {}", &words.text()[..words.text().len().min(200)]);
}

#[test]
fn requests_are_refused_while_memory_is_nearly_used_up() {
    let model = model(CONTEXT);
    let service = model.service.clone();
    let server = Running::serve(model, ServerOptions::default());
    let asks = |path: &str| server.post(path, &json!({"prompt": "a", "input": "a", "max_tokens": 1}));
    for (used, status) in [(0.94, 200), (0.96, 503), (0.93, 503), (0.9, 200)] {
        service.update_memory(Some(used));
        for path in ["/v1/completions", "/tokenize", "/v1/embeddings"] {
            let reply = asks(path);
            assert_eq!(reply.status, status, "{path} at {used}: {}", reply.text());
            assert_eq!(reply.header("retry-after").is_some(), status == 503, "{path} at {used}");
        }
        assert_eq!(server.get("/readyz").status, status);
        assert_eq!(server.get("/livez").status, 200, "a supervisor must not kill it");
    }
    assert!(server.get("/metrics").text().contains("cascadia_memory_percent 90\n"));
}

/// Whether there is something to read, be it the end.
fn is_answered(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let found = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    !matches!(found, Err(error) if error.kind() == ErrorKind::WouldBlock)
}
