//! A response that is written while its answers are generated: server-sent events, or one JSON object per line.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use cascadia_engine::FinishReason;
use cascadia_engine::service::TokenLogprobs;
use hyper::body::Frame;
use serde_json::Value;
use tokio::time::{Instant, Sleep, sleep};

use super::answer_stream::AnswerStream;
use super::resume::ResumeToken;
use super::resume_log::StreamLog;
use super::{AnswerEnd, AnswerEvent, Delta, Usage};
use crate::error::ApiError;
use crate::observe::metrics::Metrics;

/// How long nothing may be sent before a comment shows that the connection is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Bytes after which a frame is sent even though more could be added to it.
const FRAME_BYTES: usize = 16 << 10;
/// Events handled before other tasks run: a resumed stream may have many at once.
const EVENTS_PER_POLL: usize = 256;

/// How a protocol writes answers event by event.
pub(crate) trait EventWriter: Send {
    /// Before the first event.
    fn begin(&mut self, _prompt_tokens: usize, _out: &mut Frames) {}
    /// How likely the tokens of an answer's prompt are, from the second on.
    fn scored(&mut self, _choice: usize, _scores: Vec<TokenLogprobs>, _out: &mut Frames) {}
    /// A little more of an answer.
    fn delta(&mut self, delta: Delta, out: &mut Frames);
    /// One answer is complete.
    fn ended(&mut self, choice: usize, end: &AnswerEnd, out: &mut Frames);
    /// All answers are complete.
    fn done(&mut self, usage: Usage, out: &mut Frames);
    /// It went wrong; nothing follows.
    fn failed(&mut self, error: &ApiError, out: &mut Frames);
}

/// What separates the events of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events.
    Events,
    /// One JSON object per line.
    Lines,
}

/// How a stream is sent, and what is kept of it.
pub(crate) struct StreamSetup {
    pub(crate) framing: Framing,
    pub(crate) resume: ResumeToken,
    /// Its tokens, kept until the client has received everything.
    pub(crate) log: Option<StreamLog>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Bytes to be sent.
pub(crate) struct Frames {
    bytes: Vec<u8>,
    framing: Framing,
    /// The ids of events, and which of them the client has already; lines have no ids. An error is not part of the
    /// answer: it has no id to resume from, and is always sent.
    resume: Option<ResumeToken>,
    next: u64,
}

impl Frames {
    /// An object, as an event without a name or as a line.
    pub(crate) fn object(&mut self, object: &Value) {
        self.text(None, &object.to_string());
    }

    /// An event whose name is the object's own `type`, as several protocols have it.
    pub(crate) fn typed(&mut self, object: &Value) {
        self.text(object["type"].as_str(), &object.to_string());
    }

    /// One event or line.
    pub(crate) fn text(&mut self, name: Option<&str>, data: &str) {
        if self.framing == Framing::Events {
            if let Some(resume) = &self.resume {
                let number = self.next;
                self.next += 1;
                if number < resume.seen {
                    return;
                }
                self.bytes.extend_from_slice(format!("id: {}\n", resume.event_id(number)).as_bytes());
            }
            if let Some(name) = name {
                self.bytes.extend_from_slice(format!("event: {name}\n").as_bytes());
            }
            self.bytes.extend_from_slice(b"data: ");
        }
        self.bytes.extend_from_slice(data.as_bytes());
        self.bytes.extend_from_slice(if self.framing == Framing::Events { b"\n\n" } else { b"\n" });
    }

    /// Whether the client has seen events that have not been made again yet.
    fn is_behind(&self) -> bool {
        self.resume.as_ref().is_some_and(|resume| self.next < resume.seen)
    }
}

/// The response that sends answers while they are generated.
pub(crate) fn respond(answers: AnswerStream, mut writer: Box<dyn EventWriter>, setup: StreamSetup) -> Response {
    let StreamSetup { framing, resume, log, metrics } = setup;
    let resume = (framing == Framing::Events).then_some(resume);
    let mut frames = Frames { bytes: Vec::new(), framing, resume, next: 0 };
    writer.begin(answers.prompt_tokens(), &mut frames);
    let keep_alive = Box::pin(sleep(KEEP_ALIVE));
    let stream = EventStream { answers, writer, frames, log, metrics, keep_alive, is_over: false };
    let mut response = Response::new(Body::new(stream));
    let content_type = match framing {
        Framing::Events => "text/event-stream",
        Framing::Lines => "application/x-ndjson",
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // A proxy that buffers responses would make a stream useless.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct EventStream {
    answers: AnswerStream,
    writer: Box<dyn EventWriter>,
    frames: Frames,
    log: Option<StreamLog>,
    metrics: Arc<Metrics>,
    /// Fires when nothing has been sent for a while.
    keep_alive: Pin<Box<Sleep>>,
    is_over: bool,
}

impl EventStream {
    /// Writes the events that have come so far.
    fn fill(&mut self, context: &mut Context<'_>) {
        for _ in 0..EVENTS_PER_POLL {
            if self.is_over || self.frames.bytes.len() >= FRAME_BYTES {
                return;
            }
            let Poll::Ready(event) = self.answers.poll_event(context) else { return };
            let was_behind = self.frames.is_behind();
            match event {
                Some(event) => self.write(event),
                None => self.is_over = true,
            }
            if was_behind && !self.frames.is_behind() {
                self.metrics.regenerated.fetch_add(self.answers.generated(), Ordering::Relaxed);
            }
        }
        context.waker().wake_by_ref();
    }

    fn write(&mut self, event: AnswerEvent) {
        match event {
            AnswerEvent::Scored { choice, scores } => self.writer.scored(choice, scores, &mut self.frames),
            AnswerEvent::Delta(delta) => self.writer.delta(delta, &mut self.frames),
            // A deadline may fall elsewhere this time; all other ends are where they were.
            AnswerEvent::Ended { end, .. } if end.finish == FinishReason::Deadline && self.frames.is_behind() => {
                self.fail(&ResumeToken::fell_short());
            }
            AnswerEvent::Ended { choice, end } => self.writer.ended(choice, &end, &mut self.frames),
            AnswerEvent::Done(usage) => {
                self.writer.done(usage, &mut self.frames);
                if self.frames.is_behind() {
                    self.fail(&ResumeToken::fell_short());
                }
            }
            AnswerEvent::Failed(error) => self.fail(&error),
        }
    }

    /// Sends an error, and ends.
    fn fail(&mut self, error: &ApiError) {
        tracing::warn!(error = %error, "a stream ended early");
        // The client may resume it later.
        self.log = None;
        self.frames.resume = None;
        self.writer.failed(error, &mut self.frames);
        self.is_over = true;
    }
}

impl HttpBody for EventStream {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let stream = &mut *self;
        stream.fill(context);
        if stream.frames.bytes.is_empty() {
            if stream.is_over {
                if let Some(log) = stream.log.take() {
                    log.forget();
                }
                return Poll::Ready(None);
            }
            // Lines have no comments, so nothing can be sent to their readers.
            if stream.frames.framing == Framing::Lines || stream.keep_alive.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            stream.frames.bytes.extend_from_slice(b": still working\n\n");
        }
        stream.keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(std::mem::take(&mut stream.frames.bytes))))))
    }
}
