//! The events of a response that is streamed.

use serde_json::{Value, json};

use super::{ResponsesProtocol, content};
use crate::answer::event_stream::{EventWriter, Frames};
use crate::answer::segments::{Segment, SegmentEvent, SegmentKind, Segmenter};
use crate::answer::{AnswerEnd, Delta, TokenLogprob, Usage};
use crate::error::ApiError;

/// Writes a response event by event.
pub(super) struct ResponsesEventWriter {
    protocol: ResponsesProtocol,
    segmenter: Segmenter,
    /// Segments that are complete.
    closed: Vec<Segment>,
    end: Option<AnswerEnd>,
    number: u64,
    /// Log-probabilities of tokens whose text is not sent yet, and of the text that is open.
    logprobs: (Vec<TokenLogprob>, Vec<TokenLogprob>),
}

/// The events for more of a segment's text and for all of it, and the type of its content part.
fn text_events(kind: SegmentKind) -> (&'static str, &'static str, &'static str) {
    match kind {
        SegmentKind::Reasoning => ("response.reasoning_text.delta", "response.reasoning_text.done", "reasoning_text"),
        SegmentKind::Text => ("response.output_text.delta", "response.output_text.done", "output_text"),
        SegmentKind::ToolCall => {
            ("response.function_call_arguments.delta", "response.function_call_arguments.done", "")
        }
    }
}

impl ResponsesEventWriter {
    pub(super) fn new(protocol: ResponsesProtocol) -> ResponsesEventWriter {
        let (segmenter, closed, logprobs) = (Segmenter::default(), Vec::new(), Default::default());
        ResponsesEventWriter { protocol, segmenter, closed, end: None, number: 0, logprobs }
    }

    /// One event with its number.
    fn event(&mut self, mut event: Value, out: &mut Frames) {
        event["sequence_number"] = self.number.into();
        self.number += 1;
        out.typed(&event);
    }

    /// One event about the content of an item; calls have no content, and so no index.
    fn content_event(&mut self, name: &str, (index, kind): (usize, SegmentKind), more: Value, out: &mut Frames) {
        let mut event = json!({"type": name, "item_id": self.protocol.item_id(index, kind), "output_index": index});
        if kind != SegmentKind::ToolCall {
            event["content_index"] = 0.into();
        }
        if let (Some(event), Value::Object(more)) = (event.as_object_mut(), more) {
            event.extend(more);
        }
        self.event(event, out);
    }

    fn write(&mut self, event: SegmentEvent, out: &mut Frames) {
        match event {
            SegmentEvent::Open(segment) => {
                let item = self.protocol.item(&segment, "in_progress");
                self.event(
                    json!({"type": "response.output_item.added", "output_index": segment.index, "item": item}),
                    out,
                );
                if segment.kind != SegmentKind::ToolCall {
                    let content = content(text_events(segment.kind).2, "");
                    let position = (segment.index, segment.kind);
                    self.content_event("response.content_part.added", position, json!({"part": content}), out);
                }
            }
            SegmentEvent::Append { index, kind, text } => {
                let mut more = json!({"delta": text});
                if kind == SegmentKind::Text {
                    let new = std::mem::take(&mut self.logprobs.0);
                    more["logprobs"] = self.protocol.logprobs(&new);
                    self.logprobs.1.extend(new);
                }
                self.content_event(text_events(kind).0, (index, kind), more, out);
            }
            SegmentEvent::Close(segment) => self.close(segment, out),
        }
    }

    fn close(&mut self, segment: Segment, out: &mut Frames) {
        let (_, done, kind) = text_events(segment.kind);
        let position = (segment.index, segment.kind);
        let logprobs = match segment.kind {
            SegmentKind::Text => {
                let (rest, mut all) = std::mem::take(&mut self.logprobs);
                all.extend(rest);
                self.protocol.logprobs(&all)
            }
            SegmentKind::Reasoning | SegmentKind::ToolCall => json!([]),
        };
        let whole = match segment.kind {
            SegmentKind::Reasoning => json!({"text": segment.text}),
            SegmentKind::Text => json!({"text": segment.text, "logprobs": logprobs}),
            SegmentKind::ToolCall => json!({"arguments": segment.text, "name": segment.name}),
        };
        self.content_event(done, position, whole, out);
        if segment.kind != SegmentKind::ToolCall {
            self.content_event(
                "response.content_part.done",
                position,
                json!({"part": content(kind, &segment.text)}),
                out,
            );
        }
        let item = self.protocol.item(&segment, "completed");
        self.event(json!({"type": "response.output_item.done", "output_index": segment.index, "item": item}), out);
        self.closed.push(segment);
    }
}

impl EventWriter for ResponsesEventWriter {
    fn begin(&mut self, _prompt_tokens: usize, out: &mut Frames) {
        for kind in ["response.created", "response.in_progress"] {
            let response = self.protocol.response_object(&[], None, None);
            self.event(json!({"type": kind, "response": response}), out);
        }
    }

    fn delta(&mut self, delta: Delta, out: &mut Frames) {
        self.logprobs.0.extend(delta.logprob);
        for event in self.segmenter.events(delta.pieces) {
            self.write(event, out);
        }
    }

    fn ended(&mut self, _choice: usize, end: &AnswerEnd, out: &mut Frames) {
        if let Some(event) = self.segmenter.close() {
            self.write(event, out);
        }
        self.end = Some(end.clone());
    }

    fn done(&mut self, used: Usage, out: &mut Frames) {
        let response = self.protocol.response_object(&self.closed, self.end.as_ref(), Some(used));
        self.protocol.keep(&self.closed, &response);
        let kind = if response["status"] == "incomplete" { "response.incomplete" } else { "response.completed" };
        self.event(json!({"type": kind, "response": response}), out);
    }

    fn failed(&mut self, error: &ApiError, out: &mut Frames) {
        let event = json!({"type": "error", "code": "server_error", "message": error.message, "param": error.param});
        self.event(event, out);
    }
}
