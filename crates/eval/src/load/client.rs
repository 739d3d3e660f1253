//! One request from its first byte to its end, as a client sees it.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::http::{Response, header};
use ureq::{Agent, Body};

use super::record::{Outcome, Record};
use super::sse::{Event, EventReader};
use super::target::Target;
use super::workload::{Behaviour, Request};

/// A slow reader takes so many bytes and then pauses: 1 KiB per second.
const SLOW_BYTES: usize = 128;
const SLOW_PAUSE: Duration = Duration::from_millis(125);
/// How long a client stays that leaves before anything has come.
const SHORT_STAY: Duration = Duration::from_millis(20);
/// The most bytes read of a response that is no stream.
const MAX_REFUSAL: usize = 16 << 10;
/// The most characters kept of what a server says about an error.
const MAX_PROBLEM: usize = 160;

/// Which part of the API is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/completions`
    #[default]
    Completions,
    /// `/v1/chat/completions`
    Chat,
}

/// Where and how requests are sent.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The server.
    pub target: Target,
    /// The part of its API.
    pub endpoint: Endpoint,
    /// The model's name there.
    pub model: String,
    /// A key for each tenant; none sends none.
    pub keys: Vec<String>,
    /// How long a request may take.
    pub timeout: Duration,
}

/// Sends requests, each on a connection of its own.
pub(super) struct Client<'a> {
    options: &'a ClientOptions,
    agent: Agent,
}

impl Client<'_> {
    pub(super) fn new(options: &ClientOptions) -> Client<'_> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_idle_connections(0)
            // What is measured is the server, not what the environment puts before it.
            .proxy(None)
            .timeout_per_read(Some(options.timeout))
            .build();
        Client { options, agent: config.new_agent() }
    }

    /// Sends a request and follows it to its end.
    pub(super) fn send(&self, request: &Request, tenant: usize, begin: Instant) -> Record {
        let start = Instant::now();
        let mut stream = StreamState::new(start);
        let keys = &self.options.keys;
        let key = keys.get(tenant % keys.len().max(1)).map(String::as_str);
        let outcome = match request.behaviour {
            Behaviour::Leaves { after: 0 } => self.leave(request, key),
            _ => self.follow(request, key, &mut stream),
        };
        Record {
            start: start.duration_since(begin).as_secs_f64(),
            status: stream.status,
            retry_after: stream.retry_after,
            outcome: outcome.unwrap_or_else(|problem| Outcome::Error(problem.chars().take(MAX_PROBLEM).collect())),
            first: stream.first,
            tokens: stream.tokens.unwrap_or(stream.pieces),
            gaps: stream.gaps,
            total: start.elapsed().as_secs_f64(),
            prompt_tokens: stream.prompt_tokens,
            misnumbered: stream.misnumbered,
            text: stream.text,
            ..Record::not_sent(request, tenant, "")
        }
    }

    fn body(&self, request: &Request) -> (&'static str, Value) {
        let mut body = json!({
            "model": self.options.model,
            "max_tokens": request.answer,
            "temperature": request.temperature,
            "seed": request.seed,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        match self.options.endpoint {
            Endpoint::Completions => {
                body["prompt"] = request.prompt.as_str().into();
                ("/v1/completions", body)
            }
            Endpoint::Chat => {
                body["messages"] = json!([{"role": "user", "content": request.prompt}]);
                ("/v1/chat/completions", body)
            }
        }
    }

    /// Sends a request and waits for the head of the response, no longer than `timeout`.
    fn post(&self, request: &Request, key: Option<&str>, timeout: Duration) -> Result<Response<Body>, ureq::Error> {
        let (path, body) = self.body(request);
        let post = self.agent.post(self.options.target.url(path));
        let post = post.header(header::CONTENT_TYPE, "application/json").header(header::CONNECTION, "close");
        let post = match key {
            Some(key) => post.header(header::AUTHORIZATION, format!("Bearer {key}")),
            None => post,
        };
        post.config().timeout_recv_response(Some(timeout)).build().send(body.to_string())
    }

    /// Sends a request and leaves while the answer is still to come.
    fn leave(&self, request: &Request, key: Option<&str>) -> Result<Outcome, String> {
        let begin = Instant::now();
        match self.post(request, key, SHORT_STAY) {
            Ok(_) => std::thread::sleep(SHORT_STAY.saturating_sub(begin.elapsed())),
            Err(ureq::Error::Timeout(_)) => {}
            Err(error) => return Err(format!("the request was not taken: {error}")),
        }
        Ok(Outcome::Cancelled)
    }

    /// Sends a request and reads what comes, for as long as its client would.
    fn follow(&self, request: &Request, key: Option<&str>, stream: &mut StreamState) -> Result<Outcome, String> {
        let timeout = self.options.timeout;
        let response = self.post(request, key, timeout).map_err(|error| match error {
            ureq::Error::Timeout(_) => "nothing came for too long".to_owned(),
            error => format!("the request was not answered: {error}"),
        })?;
        stream.status = response.status().as_u16();
        let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        stream.retry_after = retry_after.and_then(|seconds| seconds.parse().ok());
        let mut body = response.into_body().into_reader();
        let mut buffer = vec![0; if request.behaviour == Behaviour::Slow { SLOW_BYTES } else { 16 << 10 }];
        loop {
            let read = match body.read(&mut buffer) {
                Ok(0) => return stream.verdict(),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(broken(&error)),
            };
            stream.receive(&buffer[..read])?;
            match request.behaviour {
                Behaviour::Leaves { after } if stream.pieces >= u64::from(after) => return Ok(Outcome::Cancelled),
                Behaviour::Slow => std::thread::sleep(SLOW_PAUSE),
                _ => {}
            }
            if stream.start.elapsed() > timeout {
                return Err("the answer took too long".to_owned());
            }
        }
    }
}

/// What a failed read means.
fn broken(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "nothing came for too long".to_owned(),
        io::ErrorKind::UnexpectedEof => "the answer was cut: the connection was closed".to_owned(),
        _ => format!("the answer was cut: {error}"),
    }
}

/// What has come of a response so far.
struct StreamState {
    start: Instant,
    /// 0 until the head has come.
    status: u16,
    /// Seconds after which the server asks the client to come back.
    retry_after: Option<u32>,
    events: EventReader,
    /// The body of a response that is no stream.
    refusal: Vec<u8>,
    first: Option<f64>,
    last: Instant,
    gaps: Vec<f64>,
    pieces: u64,
    text: String,
    tokens: Option<u64>,
    prompt_tokens: Option<u64>,
    next_id: u64,
    misnumbered: bool,
    finished: bool,
    problem: Option<String>,
}

impl StreamState {
    fn new(start: Instant) -> StreamState {
        StreamState {
            start,
            status: 0,
            retry_after: None,
            events: EventReader::default(),
            refusal: Vec::new(),
            first: None,
            last: start,
            gaps: Vec::new(),
            pieces: 0,
            text: String::new(),
            tokens: None,
            prompt_tokens: None,
            next_id: 0,
            misnumbered: false,
            finished: false,
            problem: None,
        }
    }

    fn receive(&mut self, body: &[u8]) -> Result<(), String> {
        if self.status != 200 {
            self.refusal.extend_from_slice(body);
            self.refusal.truncate(MAX_REFUSAL);
            return Ok(());
        }
        let mut events = Vec::new();
        self.events.feed(body, |event| events.push(event))?;
        events.into_iter().try_for_each(|event| self.receive_event(&event))
    }

    fn receive_event(&mut self, event: &Event) -> Result<(), String> {
        if let Some(id) = event.id {
            self.misnumbered |= id != self.next_id;
            self.next_id = id.saturating_add(1);
        }
        if event.data == "[DONE]" {
            self.finished = true;
            return Ok(());
        }
        let object: Value = serde_json::from_str(&event.data).map_err(|_| "an event is not JSON".to_owned())?;
        if let Some(message) = object["error"]["message"].as_str() {
            self.problem = Some(format!("in the stream: {message}"));
        }
        let choice = &object["choices"][0];
        let text = choice["text"].as_str().or_else(|| choice["delta"]["content"].as_str()).unwrap_or_default();
        if !text.is_empty() {
            self.receive_text(text);
        }
        let usage = &object["usage"];
        self.tokens = usage["completion_tokens"].as_u64().or(self.tokens);
        self.prompt_tokens = usage["prompt_tokens"].as_u64().or(self.prompt_tokens);
        Ok(())
    }

    fn receive_text(&mut self, text: &str) {
        let now = Instant::now();
        match self.first {
            None => self.first = Some(now.duration_since(self.start).as_secs_f64()),
            Some(_) => self.gaps.push(now.duration_since(self.last).as_secs_f64()),
        }
        self.last = now;
        self.pieces += 1;
        self.text.push_str(text);
    }

    /// How a request ended whose response is complete.
    fn verdict(&mut self) -> Result<Outcome, String> {
        if self.status != 200 {
            let object: Value = serde_json::from_slice(&self.refusal).unwrap_or_default();
            let message = object["error"]["message"].as_str().unwrap_or("no reason given");
            return Err(format!("status {}: {message}", self.status));
        }
        match self.problem.take() {
            Some(problem) => Err(problem),
            None if self.finished => Ok(Outcome::Done),
            None => Err("the stream ended without [DONE]".to_owned()),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::channel;

    use super::*;

    /// A whole request, head and body; nothing of a client that only connects.
    pub(crate) fn read_request(stream: &mut TcpStream) -> String {
        let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
        let length = |head: &str| {
            let line = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            line.expect("a request has a length")
        };
        loop {
            let text = String::from_utf8_lossy(&request).into_owned();
            if text.split_once("\r\n\r\n").is_some_and(|(head, body)| body.len() >= length(head)) {
                return text;
            }
            match stream.read(&mut buffer).unwrap_or(0) {
                0 => return text,
                read => request.extend_from_slice(&buffer[..read]),
            }
        }
    }

    fn options(address: String) -> ClientOptions {
        ClientOptions {
            target: Target { address, prefix: String::new() },
            endpoint: Endpoint::Completions,
            model: "default".to_owned(),
            keys: vec!["a".to_owned(), "b".to_owned()],
            timeout: Duration::from_secs(20),
        }
    }

    fn request(behaviour: Behaviour) -> Request {
        let prompt = "the of ".to_owned();
        Request { number: 5, prompt, words: 2, answer: 8, seed: 1, temperature: 0.0, behaviour }
    }

    /// What becomes of a request that is answered with these bytes.
    fn check(response: &str, behaviour: Behaviour) -> Record {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let response = response.to_owned();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let request = read_request(&mut stream);
            // A client that has left does not read it.
            let _ = stream.write_all(response.as_bytes());
            request
        });
        let record = Client::new(&options(address)).send(&request(behaviour), 1, Instant::now());
        let sent = server.join().unwrap();
        assert!(sent.starts_with("POST /v1/completions HTTP/1.1\r\n") && sent.contains("Bearer b\r\n"), "{sent}");
        record
    }

    const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    const TEXT: &str = "id: 0\ndata: {\"choices\": [{\"text\": \"one\"}]}\n\nid: 1\ndata: {\"choices\": [{\"delta\": {\"content\": \" two\"}}]}\n\n";

    #[test]
    fn an_answer_is_followed_to_its_end() {
        let usage = "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 3, \"completion_tokens\": 4}}\n\n";
        let record = check(&format!("{HEAD}{TEXT}{usage}data: [DONE]\n\n"), Behaviour::Patient);
        assert_eq!((record.outcome, record.status, record.text.as_str()), (Outcome::Done, 200, "one two"));
        assert_eq!((record.tokens, record.prompt_tokens, record.gaps.len()), (4, Some(3), 1));
        assert!(record.first.is_some_and(|first| first <= record.total) && !record.misnumbered);
    }

    /// A piece of the answer is seen when it arrives, not when a buffer is full or the answer complete.
    #[test]
    fn pieces_are_seen_as_they_arrive() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = options(listener.local_addr().unwrap().to_string());
        let (seen, next) = channel::<()>();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            read_request(&mut stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
            for piece in ["3\r\nabc\r\n", "2\r\nde\r\n"] {
                stream.write_all(piece.as_bytes()).unwrap();
                // The next piece is sent only after this one was seen.
                next.recv_timeout(Duration::from_secs(20)).expect("the piece is seen");
            }
            stream.write_all(b"0\r\n\r\n").unwrap();
        });
        let response = Client::new(&options).post(&request(Behaviour::Patient), None, options.timeout).unwrap();
        let (mut body, mut buffer) = (response.into_body().into_reader(), [0; 1024]);
        for expected in ["abc", "de"] {
            let read = body.read(&mut buffer).unwrap();
            assert_eq!(String::from_utf8_lossy(&buffer[..read]), expected);
            seen.send(()).unwrap();
        }
        assert_eq!(body.read(&mut buffer).unwrap(), 0);
        server.join().unwrap();
    }

    #[test]
    fn other_ends_are_told_apart() {
        let error = |record: Record| match record.outcome {
            Outcome::Error(problem) => problem,
            other => panic!("{other:?}"),
        };
        assert!(error(check(&format!("{HEAD}{TEXT}"), Behaviour::Patient)).contains("without [DONE]"));
        let cut = check("HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\ndata: x", Behaviour::Patient);
        assert!(error(cut).contains("closed"));
        let failed = format!("{HEAD}data: {{\"error\": {{\"message\": \"lost\"}}}}\n\ndata: [DONE]\n\n");
        assert!(error(check(&failed, Behaviour::Patient)).contains("lost"));
        let busy =
            "HTTP/1.1 429 Busy\r\nretry-after: 2\r\ncontent-length: 29\r\n\r\n{\"error\":{\"message\":\"later\"}}";
        let busy = check(busy, Behaviour::Slow);
        assert_eq!((busy.status, busy.retry_after), (429, Some(2)));
        assert!(busy.is_refused() && error(busy).contains("later"));
        let skipped = TEXT.replace("id: 1", "id: 2");
        assert!(check(&format!("{HEAD}{skipped}data: [DONE]\n\n"), Behaviour::Patient).misnumbered);
    }

    #[test]
    fn a_client_may_leave() {
        for after in [0, 2] {
            let record = check(&format!("{HEAD}{TEXT}data: [DONE]\n\n"), Behaviour::Leaves { after });
            assert_eq!(record.outcome, Outcome::Cancelled, "after {after}");
        }
    }
}
