//! A response that is written while the answer is being made: server-sent events, or one JSON object per line.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use cascadia_engine::FinishReason;
use hyper::body::Frame;
use serde_json::Value;
use tokio::time::{Instant, Sleep, sleep};

use crate::answer::{AnswerEvent, AnswerStream, Delta, End, Usage};
use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::resume::ResumeToken;
use crate::resume_log::StreamLog;

/// How long nothing may be sent before a comment shows that the connection is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Bytes after which a frame is sent even though more could be added to it.
const FRAME_BYTES: usize = 16 << 10;
/// Things that are told before others have a turn: much of a stream that goes on may be known at once.
const TOLD_AT_ONCE: usize = 256;

/// How a protocol tells an answer bit by bit.
pub(crate) trait EventWriter: Send {
    /// Before anything is said.
    fn begin(&mut self, _prompt_tokens: usize, _out: &mut Frames) {}
    /// A little more of an answer.
    fn said(&mut self, said: Delta, out: &mut Frames);
    /// One answer is complete.
    fn ended(&mut self, choice: usize, end: &End, out: &mut Frames);
    /// All answers are complete.
    fn done(&mut self, usage: Usage, out: &mut Frames);
    /// It went wrong; nothing follows.
    fn failed(&mut self, error: &ApiError, out: &mut Frames);
}

/// What separates the parts of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events.
    Events,
    /// One JSON object per line.
    Lines,
}

/// How a stream is told, and what becomes of it.
pub(crate) struct StreamSetup {
    pub(crate) framing: Framing,
    pub(crate) ticket: ResumeToken,
    /// What is kept of it until the client has all.
    pub(crate) log: Option<StreamLog>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Bytes on their way out.
pub(crate) struct Frames {
    bytes: Vec<u8>,
    framing: Framing,
    /// What events are called, and which the client has already; lines have no names. What tells of a failure is no
    /// part of the answer: it has no name to go on from, and is always told.
    ticket: Option<ResumeToken>,
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

    /// Whether the client has seen more than was said until now.
    fn is_behind(&self) -> bool {
        self.ticket.as_ref().is_some_and(|ticket| self.next < ticket.seen)
    }

    /// One event or line.
    pub(crate) fn text(&mut self, name: Option<&str>, data: &str) {
        if self.framing == Framing::Events {
            if let Some(ticket) = &self.ticket {
                let number = self.next;
                self.next += 1;
                if number < ticket.seen {
                    return;
                }
                self.bytes.extend_from_slice(format!("id: {}\n", ticket.event(number)).as_bytes());
            }
            if let Some(name) = name {
                self.bytes.extend_from_slice(format!("event: {name}\n").as_bytes());
            }
            self.bytes.extend_from_slice(b"data: ");
        }
        self.bytes.extend_from_slice(data.as_bytes());
        self.bytes.extend_from_slice(if self.framing == Framing::Events { b"\n\n" } else { b"\n" });
    }
}

/// The response that tells an answer while it is made.
pub(crate) fn respond(teller: AnswerStream, mut voice: Box<dyn EventWriter>, telling: StreamSetup) -> Response {
    let StreamSetup { framing, ticket, log, metrics } = telling;
    let ticket = (framing == Framing::Events).then_some(ticket);
    let mut frames = Frames { bytes: Vec::new(), framing, ticket, next: 0 };
    voice.begin(teller.prompt_tokens(), &mut frames);
    let quiet = Box::pin(sleep(KEEP_ALIVE));
    let mut response = Response::new(Body::new(Stream { teller, voice, frames, log, metrics, quiet, over: false }));
    let content_type = match framing {
        Framing::Events => "text/event-stream",
        Framing::Lines => "application/x-ndjson",
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies that gather responses would make a stream useless.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct Stream {
    teller: AnswerStream,
    voice: Box<dyn EventWriter>,
    frames: Frames,
    log: Option<StreamLog>,
    metrics: Arc<Metrics>,
    /// Rings when nothing has been sent for a while.
    quiet: Pin<Box<Sleep>>,
    over: bool,
}

impl Stream {
    /// Lets the voice tell what is known by now.
    fn gather(&mut self, context: &mut Context<'_>) {
        for _ in 0..TOLD_AT_ONCE {
            if self.over || self.frames.bytes.len() >= FRAME_BYTES {
                return;
            }
            let Poll::Ready(told) = self.teller.poll_told(context) else { return };
            let was_behind = self.frames.is_behind();
            match told {
                Some(AnswerEvent::Delta(said)) => self.voice.said(said, &mut self.frames),
                // Where time cut it may be different now; all other ends are as they were.
                Some(AnswerEvent::Ended { end, .. })
                    if end.finish == FinishReason::Deadline && self.frames.is_behind() =>
                {
                    self.fail(&ResumeToken::fell_short());
                }
                Some(AnswerEvent::Ended { choice, end }) => self.voice.ended(choice, &end, &mut self.frames),
                Some(AnswerEvent::Done(usage)) => {
                    self.voice.done(usage, &mut self.frames);
                    if self.frames.is_behind() {
                        self.fail(&ResumeToken::fell_short());
                    }
                }
                Some(AnswerEvent::Failed(error)) => self.fail(&error),
                None => self.over = true,
            }
            if was_behind && !self.frames.is_behind() {
                self.metrics.drawn_again.fetch_add(self.teller.drawn(), Ordering::Relaxed);
            }
        }
        context.waker().wake_by_ref();
    }

    /// Tells what went wrong, and ends.
    fn fail(&mut self, error: &ApiError) {
        tracing::warn!(error = %error, "a stream ended early");
        // It may be asked for again, and go on from there.
        self.log = None;
        self.frames.ticket = None;
        self.voice.failed(error, &mut self.frames);
        self.over = true;
    }
}

impl HttpBody for Stream {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let stream = &mut *self;
        stream.gather(context);
        if stream.frames.bytes.is_empty() {
            if stream.over {
                if let Some(log) = stream.log.take() {
                    log.forget();
                }
                return Poll::Ready(None);
            }
            // Lines have no comments: their readers wait.
            if stream.frames.framing == Framing::Lines || stream.quiet.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            stream.frames.bytes.extend_from_slice(b": still working\n\n");
        }
        stream.quiet.as_mut().reset(Instant::now() + KEEP_ALIVE);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(std::mem::take(&mut stream.frames.bytes))))))
    }
}
