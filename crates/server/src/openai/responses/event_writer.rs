//! The events of a response that is streamed.

use serde_json::{Value, json};

use super::{ResponsesProtocol, content};
use crate::answer::{Delta, End, Usage};
use crate::error::ApiError;
use crate::parts::{Part, PartKind, Parts, Step};
use crate::stream::{EventWriter, Frames};

/// Tells a response event by event.
pub(super) struct ResponsesEventWriter {
    door: ResponsesProtocol,
    parts: Parts,
    /// Parts that are complete.
    closed: Vec<Part>,
    end: Option<End>,
    number: u64,
}

/// Names of the events about a part's text: more of it, and all of it.
fn text_events(kind: PartKind) -> (&'static str, &'static str, &'static str) {
    match kind {
        PartKind::Thought => ("response.reasoning_text.delta", "response.reasoning_text.done", "reasoning_text"),
        PartKind::Text => ("response.output_text.delta", "response.output_text.done", "output_text"),
        PartKind::Call => ("response.function_call_arguments.delta", "response.function_call_arguments.done", ""),
    }
}

impl ResponsesEventWriter {
    pub(super) fn new(door: ResponsesProtocol) -> ResponsesEventWriter {
        ResponsesEventWriter { door, parts: Parts::default(), closed: Vec::new(), end: None, number: 0 }
    }

    /// One event with its number.
    fn event(&mut self, mut event: Value, out: &mut Frames) {
        event["sequence_number"] = self.number.into();
        self.number += 1;
        out.typed(&event);
    }

    /// One event about the content of an item; calls have none, so that nothing says where in it.
    fn about(&mut self, name: &str, (index, kind): (usize, PartKind), more: Value, out: &mut Frames) {
        let mut event = json!({"type": name, "item_id": self.door.item_id(index, kind), "output_index": index});
        if kind != PartKind::Call {
            event["content_index"] = 0.into();
        }
        if let (Some(event), Value::Object(more)) = (event.as_object_mut(), more) {
            event.extend(more);
        }
        self.event(event, out);
    }

    fn tell(&mut self, step: Step, out: &mut Frames) {
        match step {
            Step::Open(part) => {
                let item = self.door.item(&part, "in_progress");
                self.event(
                    json!({"type": "response.output_item.added", "output_index": part.index, "item": item}),
                    out,
                );
                if part.kind != PartKind::Call {
                    let content = content(text_events(part.kind).2, "");
                    let place = (part.index, part.kind);
                    self.about("response.content_part.added", place, json!({"part": content}), out);
                }
            }
            Step::More { index, kind, text } => {
                let mut more = json!({"delta": text});
                if kind == PartKind::Text {
                    more["logprobs"] = json!([]);
                }
                self.about(text_events(kind).0, (index, kind), more, out);
            }
            Step::Close(part) => self.close(part, out),
        }
    }

    fn close(&mut self, part: Part, out: &mut Frames) {
        let (_, done, kind) = text_events(part.kind);
        let place = (part.index, part.kind);
        let whole = match part.kind {
            PartKind::Thought => json!({"text": part.text}),
            PartKind::Text => json!({"text": part.text, "logprobs": []}),
            PartKind::Call => json!({"arguments": part.text, "name": part.name}),
        };
        self.about(done, place, whole, out);
        if part.kind != PartKind::Call {
            self.about("response.content_part.done", place, json!({"part": content(kind, &part.text)}), out);
        }
        let item = self.door.item(&part, "completed");
        self.event(json!({"type": "response.output_item.done", "output_index": part.index, "item": item}), out);
        self.closed.push(part);
    }
}

impl EventWriter for ResponsesEventWriter {
    fn begin(&mut self, _prompt_tokens: usize, out: &mut Frames) {
        for kind in ["response.created", "response.in_progress"] {
            let response = self.door.response(&[], None, None);
            self.event(json!({"type": kind, "response": response}), out);
        }
    }

    fn said(&mut self, said: Delta, out: &mut Frames) {
        for step in self.parts.steps(said.pieces) {
            self.tell(step, out);
        }
    }

    fn ended(&mut self, _choice: usize, end: &End, out: &mut Frames) {
        if let Some(step) = self.parts.close() {
            self.tell(step, out);
        }
        self.end = Some(end.clone());
    }

    fn done(&mut self, used: Usage, out: &mut Frames) {
        let response = self.door.response(&self.closed, self.end.as_ref(), Some(used));
        let kind = if response["status"] == "incomplete" { "response.incomplete" } else { "response.completed" };
        self.event(json!({"type": kind, "response": response}), out);
    }

    fn failed(&mut self, error: &ApiError, out: &mut Frames) {
        let event = json!({"type": "error", "code": "server_error", "message": error.message, "param": error.param});
        self.event(event, out);
    }
}
