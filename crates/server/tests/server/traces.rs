//! What an OpenTelemetry collector hears of requests.

use std::io::{Read, Write};
use std::net::TcpListener;

use cascadia_server::ServerOptions;
use serde_json::{Value, json};

use crate::harness::Running;

#[test]
fn every_asked_request_becomes_a_span() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", collector.local_addr().unwrap());
    let server = Running::start(ServerOptions { collector: Some(url), ..ServerOptions::default() });
    // Probes are none of the collector's business.
    assert_eq!(server.get("/livez").status, 200);
    let parent = [("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), ("x-request-id", "mine")];
    let reply = server.request("POST /tokenize", &parent, json!({"prompt": "secret words"}).to_string().as_bytes());
    assert_eq!(reply.status, 200);
    let (head, body) = receive(&collector);
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    let message: Value = serde_json::from_str(&body).unwrap();
    let resource = &message["resourceSpans"][0];
    assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "cascadia");
    let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
    assert_eq!(spans.len(), 1, "{body}");
    let span = &spans[0];
    assert_eq!(span["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(span["parentSpanId"], "00f067aa0ba902b7");
    assert_eq!(span["name"], "POST /tokenize");
    assert_eq!(span["status"]["code"], 0);
    let time = |name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
    assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"));
    assert!(body.contains("\"mine\"") && body.contains("\"200\""), "{body}");
    assert!(!body.contains("secret"), "no word of a prompt leaves this way");
}

/// One request, which is answered.
fn receive(listener: &TcpListener) -> (String, String) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut bytes = Vec::new();
    loop {
        let mut more = [0; 4096];
        let read = stream.read(&mut more).unwrap();
        bytes.extend_from_slice(&more[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length: usize =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        if body.len() == length {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
            return (head.to_owned(), body.to_owned());
        }
    }
}
