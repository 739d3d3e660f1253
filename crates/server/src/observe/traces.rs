//! A span per request for an OpenTelemetry collector, as OTLP in JSON over HTTP.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::http::{Request, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{sleep, timeout};

use crate::error::ServerError;

/// Spans that wait to be sent; more are dropped, because a slow collector must not slow answers.
const WAITING: usize = 1024;
/// Spans of one message.
const BATCH: usize = 256;
const PAUSE: Duration = Duration::from_secs(1);
const SEND_TIME: Duration = Duration::from_secs(5);

/// Where spans go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collector {
    /// Name and port.
    host: String,
    path: String,
}

impl Collector {
    /// Reads `http://host:port`; the usual path follows unless there is one.
    pub(crate) fn parse(url: &str) -> Result<Collector, ServerError> {
        let wrong = || ServerError::Collector { url: url.to_owned() };
        let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (name, port) = host.rsplit_once(':').unwrap_or((host, "4318"));
        let port: u16 = port.parse().map_err(|_| wrong())?;
        // What goes into the head of a request must not end a line there.
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if name.is_empty() || !is_plain(rest) {
            return Err(wrong());
        }
        let path = if path.is_empty() { "v1/traces" } else { path };
        Ok(Collector { host: format!("{name}:{port}"), path: format!("/{path}") })
    }

    /// Sends a message. A name lookup cannot be cancelled and holds one of the threads that prepare requests: it has no
    /// timeout, so that there is never a second one.
    async fn send(&self, body: &str) -> io::Result<()> {
        let addresses: Vec<SocketAddr> = lookup_host(&self.host).await?.collect();
        let late = || io::Error::other(format!("no response within {} s", SEND_TIME.as_secs()));
        timeout(SEND_TIME, self.post(&addresses, body)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn post(&self, addresses: &[SocketAddr], body: &str) -> io::Result<()> {
        let stream = TcpStream::connect(addresses).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let request = Request::post(&self.path)
            .header(header::HOST, &self.host)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONNECTION, "close")
            .body(Body::from(body.to_owned()))
            .map_err(io::Error::other)?;
        // Bytes move only while the connection is polled; the response shows how it ended.
        let moving = async {
            let _ = connection.await;
            std::future::pending().await
        };
        let response = tokio::select! {
            response = sender.send_request(request) => response.map_err(io::Error::other)?,
            never = moving => never,
        };
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(io::Error::other(format!("the response was {status}"))),
        }
    }
}

/// The trace that a request belongs to, and the span that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    trace: u128,
    span: u64,
}

impl Parent {
    /// Parses a `traceparent` header; `None` if it is not valid.
    pub(crate) fn parse(header: &str) -> Option<Parent> {
        let mut parts = header.split('-');
        let mut number = |digits: usize| {
            let part =
                parts.next().filter(|part| part.len() == digits && part.bytes().all(|b| b.is_ascii_hexdigit()))?;
            u128::from_str_radix(part, 16).ok()
        };
        let (version, trace, span) = (number(2)?, number(32)?, number(16)?);
        number(2)?;
        (version != 0xff && trace != 0 && span != 0).then_some(Parent { trace, span: span as u64 })
    }
}

/// A request that is over.
pub(crate) struct Span {
    /// The span that caused it, if the client sent one.
    pub(crate) parent: Option<Parent>,
    /// Three random numbers, for ids of its own.
    pub(crate) random: [u64; 3],
    /// Such as `POST /v1/chat/completions`.
    pub(crate) name: String,
    /// How long it took until now.
    pub(crate) elapsed: Duration,
    pub(crate) request_id: String,
    /// `None` if the client disconnected before the response.
    pub(crate) status: Option<u16>,
}

impl Span {
    fn to_json(&self, end: SystemTime) -> Value {
        let [first, second, own] = self.random;
        let trace = self.parent.map_or(u128::from(first) << 64 | u128::from(second) | 1, |parent| parent.trace);
        let nanoseconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string();
        let is_error = self.status.is_none_or(|status| status >= 500);
        let mut attributes = vec![json!({"key": "cascadia.request_id", "value": {"stringValue": self.request_id}})];
        attributes.extend(
            self.status
                .map(|status| json!({"key": "http.response.status_code", "value": {"intValue": status.to_string()}})),
        );
        let mut span = json!({
            "traceId": format!("{trace:032x}"),
            "spanId": format!("{:016x}", own | 1),
            "name": self.name,
            "kind": 2,
            "startTimeUnixNano": nanoseconds(end - self.elapsed),
            "endTimeUnixNano": nanoseconds(end),
            "attributes": attributes,
            "status": {"code": if is_error { 2 } else { 0 }},
        });
        if let Some(parent) = self.parent {
            span["parentSpanId"] = json!(format!("{:016x}", parent.span));
        }
        span
    }
}

/// Takes the spans of requests.
pub(crate) struct Traces {
    spans: Sender<(Span, SystemTime)>,
}

impl Traces {
    pub(crate) fn ended(&self, span: Span) {
        // Where too many wait, the collector is in trouble and receives fewer.
        let _ = self.spans.try_send((span, SystemTime::now()));
    }
}

/// Sends spans to the collector.
pub(crate) struct Exporter {
    spans: Receiver<(Span, SystemTime)>,
    collector: Collector,
}

pub(crate) fn traces(collector: Collector) -> (Traces, Exporter) {
    let (sender, spans) = channel(WAITING);
    (Traces { spans: sender }, Exporter { spans, collector })
}

impl Exporter {
    /// Sends spans until there will be no more.
    pub(crate) async fn run(mut self) {
        let mut is_working = true;
        let mut batch = Vec::new();
        while self.spans.recv_many(&mut batch, BATCH).await > 0 {
            let spans: Vec<Value> = batch.drain(..).map(|(span, end)| span.to_json(end)).collect();
            let problem = self.collector.send(&message(spans).to_string()).await.err();
            // Logged once, and again only after a success.
            if let Some(problem) = problem.as_ref().filter(|_| is_working) {
                tracing::warn!(collector = self.collector.host, %problem, "cannot send spans");
            }
            is_working = problem.is_none();
            if !self.spans.is_closed() {
                sleep(PAUSE).await;
            }
        }
    }
}

fn message(spans: Vec<Value>) -> Value {
    let name = json!([{"key": "service.name", "value": {"stringValue": "cascadia"}}]);
    let scope = json!({"name": "cascadia", "version": env!("CARGO_PKG_VERSION")});
    json!({"resourceSpans": [{"resource": {"attributes": name}, "scopeSpans": [{"scope": scope, "spans": spans}]}]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectors_are_plain_addresses() {
        let parse = |url: &str| Collector::parse(url).ok().map(|found| (found.host, found.path));
        let is = |host: &str, path: &str| Some((host.to_owned(), path.to_owned()));
        assert_eq!(parse("http://localhost"), is("localhost:4318", "/v1/traces"));
        assert_eq!(parse("http://otel.example:80/in"), is("otel.example:80", "/in"));
        for wrong in ["", "otel:4318", "https://otel:4318", "http://", "http://a:x", "http://a\r\nb:1", "http://a/b c"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn parents_are_read_as_the_standard_says() {
        let example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent = Parent { trace: 0x4bf92f3577b34da6a3ce929d0e0e4736, span: 0x00f067aa0ba902b7 };
        assert_eq!(Parent::parse(example), Some(parent));
        let zero = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        for wrong in ["", "00", zero, &example[..54], &example.replace("4b", "+b"), &example.replace("00-", "ff-")] {
            assert_eq!(Parent::parse(wrong), None, "{wrong}");
        }
    }
}
