//! The events of a response that is streamed.

use serde_json::{Value, json};

use super::{ResponsesDoor, part};
use crate::answer::{End, Said, Usage};
use crate::error::ApiError;
use crate::stream::{Frames, Voice};

/// Tells a response event by event.
pub(super) struct ResponsesVoice {
    door: ResponsesDoor,
    text: String,
    end: Option<End>,
    number: u64,
}

impl ResponsesVoice {
    pub(super) fn new(door: ResponsesDoor) -> ResponsesVoice {
        ResponsesVoice { door, text: String::new(), end: None, number: 0 }
    }

    /// One event with its number.
    fn event(&mut self, mut event: Value, out: &mut Frames) {
        event["sequence_number"] = self.number.into();
        self.number += 1;
        out.typed(&event);
    }

    /// One event about the text of the one item.
    fn about_text(&mut self, kind: &str, (name, value): (&str, Value), out: &mut Frames) {
        let mut event = json!({"type": kind, "item_id": self.door.item, "output_index": 0, "content_index": 0});
        event[name] = value;
        if name != "part" {
            event["logprobs"] = json!([]);
        }
        self.event(event, out);
    }
}

impl Voice for ResponsesVoice {
    fn begin(&mut self, _prompt_tokens: usize, out: &mut Frames) {
        for kind in ["response.created", "response.in_progress"] {
            let response = self.door.response(None, None);
            self.event(json!({"type": kind, "response": response}), out);
        }
        let item = self.door.message("", None);
        self.event(json!({"type": "response.output_item.added", "output_index": 0, "item": item}), out);
        self.about_text("response.content_part.added", ("part", part("")), out);
    }

    fn said(&mut self, said: &Said, out: &mut Frames) {
        self.text.push_str(&said.text);
        self.about_text("response.output_text.delta", ("delta", json!(said.text)), out);
    }

    fn ended(&mut self, _choice: usize, end: &End, out: &mut Frames) {
        self.about_text("response.output_text.done", ("text", json!(self.text)), out);
        self.about_text("response.content_part.done", ("part", part(&self.text)), out);
        let item = self.door.message(&self.text, Some(end));
        self.event(json!({"type": "response.output_item.done", "output_index": 0, "item": item}), out);
        self.end = Some(end.clone());
    }

    fn done(&mut self, used: Usage, out: &mut Frames) {
        let answer = self.end.as_ref().map(|end| (self.text.as_str(), end));
        let response = self.door.response(answer, Some(used));
        let kind = if response["status"] == "incomplete" { "response.incomplete" } else { "response.completed" };
        self.event(json!({"type": kind, "response": response}), out);
    }

    fn failed(&mut self, error: &ApiError, out: &mut Frames) {
        let event = json!({"type": "error", "code": "server_error", "message": error.message, "param": error.param});
        self.event(event, out);
    }
}
