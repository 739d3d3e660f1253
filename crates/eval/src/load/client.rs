//! One request from its first byte to its end, as a client sees it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::events::{Event, Events};
use super::http::{ResponseReader, Target};
use super::record::{Outcome, Record};
use super::workload::{Manner, Request};

/// A slow reader takes so many bytes and then pauses: 1 KiB per second.
const SLOW_BYTES: usize = 128;
const SLOW_PAUSE: Duration = Duration::from_millis(125);
/// How long a client waits that leaves before it has heard anything.
const HASTE: Duration = Duration::from_millis(20);
/// The most bytes read of a response that is no stream.
const MAX_REFUSAL: usize = 16 << 10;
/// The most characters kept of what a server says about an error.
const MAX_PROBLEM: usize = 160;

/// Which part of the API is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Door {
    /// `/v1/completions`
    #[default]
    Completions,
    /// `/v1/chat/completions`
    Chat,
}

/// Where and how requests are sent.
#[derive(Clone, Debug)]
pub struct Sending {
    /// The server.
    pub target: Target,
    /// The part of its API.
    pub door: Door,
    /// The model's name there.
    pub model: String,
    /// A key for each tenant; none sends none.
    pub keys: Vec<String>,
    /// How long a request may take.
    pub patience: Duration,
}

impl Sending {
    /// Sends a request and stays with it until its end.
    pub(super) fn send(&self, request: &Request, tenant: usize, begin: Instant) -> Record {
        let start = Instant::now();
        let mut hearing = Hearing::new(start);
        let key = self.keys.get(tenant % self.keys.len().max(1)).map(String::as_str);
        let outcome = self.talk(request, key, &mut hearing);
        Record {
            start: start.duration_since(begin).as_secs_f64(),
            status: hearing.response.status,
            retry_after: hearing.response.retry_after,
            outcome: outcome.unwrap_or_else(|problem| Outcome::Error(problem.chars().take(MAX_PROBLEM).collect())),
            first: hearing.first,
            tokens: hearing.tokens.unwrap_or(hearing.pieces),
            gaps: hearing.gaps,
            total: start.elapsed().as_secs_f64(),
            prompt_tokens: hearing.prompt_tokens,
            misnumbered: hearing.misnumbered,
            text: hearing.text,
            ..Record::not_sent(request, tenant, "")
        }
    }

    fn body(&self, request: &Request) -> (&'static str, Value) {
        let mut body = json!({
            "model": self.model,
            "max_tokens": request.answer,
            "temperature": request.temperature,
            "seed": request.seed,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        match self.door {
            Door::Completions => {
                body["prompt"] = request.prompt.as_str().into();
                ("/v1/completions", body)
            }
            Door::Chat => {
                body["messages"] = json!([{"role": "user", "content": request.prompt}]);
                ("/v1/chat/completions", body)
            }
        }
    }

    fn talk(&self, request: &Request, key: Option<&str>, hearing: &mut Hearing) -> Result<Outcome, String> {
        let mut stream = TcpStream::connect(&self.target.address).map_err(|error| format!("no connection: {error}"))?;
        let prepared = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(self.patience)));
        prepared.map_err(|error| format!("the socket cannot be set up: {error}"))?;
        let (path, body) = self.body(request);
        let sent = stream.write_all(self.target.post(path, key, &body.to_string()).as_bytes());
        sent.map_err(|error| format!("the request was not taken: {error}"))?;
        if request.manner == (Manner::Leaves { after: 0 }) {
            std::thread::sleep(HASTE);
            return Ok(Outcome::Cancelled);
        }
        let mut buffer = vec![0; if request.manner == Manner::Slow { SLOW_BYTES } else { 16 << 10 }];
        loop {
            let read = match stream.read(&mut buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut].contains(&error.kind()) => {
                    return Err("nothing came for too long".to_owned());
                }
                Err(error) => return Err(format!("the answer was cut: {}", error.kind())),
            };
            hearing.hear(&buffer[..read])?;
            if hearing.response.is_over(read == 0) {
                return hearing.verdict();
            }
            if read == 0 {
                return Err("the answer was cut: the connection was closed".to_owned());
            }
            match request.manner {
                Manner::Leaves { after } if hearing.pieces >= u64::from(after) => return Ok(Outcome::Cancelled),
                Manner::Slow => std::thread::sleep(SLOW_PAUSE),
                _ => {}
            }
            if hearing.start.elapsed() > self.patience {
                return Err("the answer took too long".to_owned());
            }
        }
    }
}

/// What a client has heard so far.
struct Hearing {
    start: Instant,
    response: ResponseReader,
    events: Events,
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

impl Hearing {
    fn new(start: Instant) -> Hearing {
        Hearing {
            start,
            response: ResponseReader::default(),
            events: Events::default(),
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

    fn hear(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut body = Vec::new();
        self.response.feed(bytes, |piece| body.extend_from_slice(piece))?;
        if self.response.status != 200 {
            self.refusal.extend_from_slice(&body);
            self.refusal.truncate(MAX_REFUSAL);
            return Ok(());
        }
        let mut heard = Vec::new();
        self.events.feed(&body, |event| heard.push(event))?;
        heard.into_iter().try_for_each(|event| self.hear_event(&event))
    }

    fn hear_event(&mut self, event: &Event) -> Result<(), String> {
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
            self.hear_text(text);
        }
        let usage = &object["usage"];
        self.tokens = usage["completion_tokens"].as_u64().or(self.tokens);
        self.prompt_tokens = usage["prompt_tokens"].as_u64().or(self.prompt_tokens);
        Ok(())
    }

    fn hear_text(&mut self, text: &str) {
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
        if self.response.status != 200 {
            let object: Value = serde_json::from_slice(&self.refusal).unwrap_or_default();
            let message = object["error"]["message"].as_str().unwrap_or("no reason given");
            return Err(format!("status {}: {message}", self.response.status));
        }
        match self.problem.take() {
            Some(problem) => Err(problem),
            None if self.finished => Ok(Outcome::Done),
            None => Err("the stream ended without [DONE]".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// What becomes of a request that is answered with these bytes.
    fn check(response: &str, manner: Manner) -> Record {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let response = response.to_owned();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; 4096];
            let read = stream.read(&mut request).unwrap();
            // A client that has left does not read it.
            let _ = stream.write_all(response.as_bytes());
            String::from_utf8_lossy(&request[..read]).into_owned()
        });
        let sending = Sending {
            target: Target { address, prefix: String::new() },
            door: Door::Completions,
            model: "default".to_owned(),
            keys: vec!["a".to_owned(), "b".to_owned()],
            patience: Duration::from_secs(20),
        };
        let prompt = "the of ".to_owned();
        let request = Request { number: 5, prompt, words: 2, answer: 8, seed: 1, temperature: 0.0, manner };
        let record = sending.send(&request, 1, Instant::now());
        let sent = server.join().unwrap();
        assert!(sent.starts_with("POST /v1/completions HTTP/1.1\r\n") && sent.contains("Bearer b\r\n"), "{sent}");
        record
    }

    const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    const TEXT: &str = "id: 0\ndata: {\"choices\": [{\"text\": \"one\"}]}\n\nid: 1\ndata: {\"choices\": [{\"delta\": {\"content\": \" two\"}}]}\n\n";

    #[test]
    fn an_answer_is_followed_to_its_end() {
        let usage = "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 3, \"completion_tokens\": 4}}\n\n";
        let record = check(&format!("{HEAD}{TEXT}{usage}data: [DONE]\n\n"), Manner::Patient);
        assert_eq!((record.outcome, record.status, record.text.as_str()), (Outcome::Done, 200, "one two"));
        assert_eq!((record.tokens, record.prompt_tokens, record.gaps.len()), (4, Some(3), 1));
        assert!(record.first.is_some_and(|first| first <= record.total) && !record.misnumbered);
    }

    #[test]
    fn other_ends_are_told_apart() {
        let error = |record: Record| match record.outcome {
            Outcome::Error(problem) => problem,
            other => panic!("{other:?}"),
        };
        assert!(error(check(&format!("{HEAD}{TEXT}"), Manner::Patient)).contains("without [DONE]"));
        let cut = check("HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\ndata: x", Manner::Patient);
        assert!(error(cut).contains("closed"));
        let failed = format!("{HEAD}data: {{\"error\": {{\"message\": \"lost\"}}}}\n\ndata: [DONE]\n\n");
        assert!(error(check(&failed, Manner::Patient)).contains("lost"));
        let busy =
            "HTTP/1.1 429 Busy\r\nretry-after: 2\r\ncontent-length: 29\r\n\r\n{\"error\":{\"message\":\"later\"}}";
        let busy = check(busy, Manner::Slow);
        assert_eq!((busy.status, busy.retry_after), (429, Some(2)));
        assert!(busy.is_refused() && error(busy).contains("later"));
        let skipped = TEXT.replace("id: 1", "id: 2");
        assert!(check(&format!("{HEAD}{skipped}data: [DONE]\n\n"), Manner::Patient).misnumbered);
    }

    #[test]
    fn a_client_may_leave() {
        for after in [0, 2] {
            let record = check(&format!("{HEAD}{TEXT}data: [DONE]\n\n"), Manner::Leaves { after });
            assert_eq!(record.outcome, Outcome::Cancelled, "after {after}");
        }
    }
}
