//! An answer as a sequence of segments: reasoning, text and tool calls, each opened, appended to and closed.

use cascadia_text::Piece;

use super::{Answer, ToolCall};

/// What a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentKind {
    Reasoning,
    Text,
    /// Its text is JSON: the arguments.
    ToolCall,
}

/// A stretch of an answer of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Its position among all segments.
    pub(crate) index: usize,
    pub(crate) kind: SegmentKind,
    /// The function of a tool call.
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Segment {
    /// The segments of a complete answer: reasoning, then text, then tool calls.
    pub(crate) fn all(answer: Answer) -> Vec<Segment> {
        let mut segments = Vec::new();
        let mut add = |kind, name, text| segments.push(Segment { index: segments.len(), kind, name, text });
        if !answer.reasoning.is_empty() {
            add(SegmentKind::Reasoning, String::new(), answer.reasoning);
        }
        if !answer.text.is_empty() || answer.tool_calls.is_empty() {
            add(SegmentKind::Text, String::new(), answer.text);
        }
        for ToolCall { name, arguments } in answer.tool_calls {
            add(SegmentKind::ToolCall, name, arguments);
        }
        segments
    }
}

/// What happens to a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SegmentEvent {
    /// It starts; its text is empty.
    Open(Segment),
    /// More text.
    Append { index: usize, kind: SegmentKind, text: String },
    /// It is complete.
    Close(Segment),
}

/// Splits the pieces of an answer into segments.
#[derive(Debug, Default)]
pub(crate) struct Segmenter {
    open: Option<Segment>,
    next: usize,
}

impl Segmenter {
    /// What the next pieces do to the segments.
    pub(crate) fn events(&mut self, pieces: Vec<Piece>) -> Vec<SegmentEvent> {
        let mut events = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Content(text) => self.append(SegmentKind::Text, text, &mut events),
                Piece::Reasoning(text) => self.append(SegmentKind::Reasoning, text, &mut events),
                Piece::ToolStart { name, .. } => self.begin(SegmentKind::ToolCall, name, &mut events),
                Piece::ToolArguments { fragment, .. } => self.append(SegmentKind::ToolCall, fragment, &mut events),
            }
        }
        events
    }

    /// Closes the open segment, if there is one.
    pub(crate) fn close(&mut self) -> Option<SegmentEvent> {
        self.open.take().map(SegmentEvent::Close)
    }

    fn append(&mut self, kind: SegmentKind, text: String, events: &mut Vec<SegmentEvent>) {
        if self.open.as_ref().is_none_or(|segment| segment.kind != kind) {
            self.begin(kind, String::new(), events);
        }
        if let Some(segment) = &mut self.open {
            segment.text.push_str(&text);
            events.push(SegmentEvent::Append { index: segment.index, kind, text });
        }
    }

    fn begin(&mut self, kind: SegmentKind, name: String, events: &mut Vec<SegmentEvent>) {
        events.extend(self.close());
        let segment = Segment { index: self.next, kind, name, text: String::new() };
        self.next += 1;
        events.push(SegmentEvent::Open(segment.clone()));
        self.open = Some(segment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_open_and_close_as_kinds_change() {
        let mut segments = Segmenter::default();
        let call = |index| Piece::ToolStart { index, name: "f".to_owned() };
        let mut events = segments.events(vec![Piece::Reasoning("hm".to_owned()), Piece::Content("a".to_owned())]);
        events.extend(segments.events(vec![Piece::Content("b".to_owned()), call(0), call(1)]));
        let arguments = Piece::ToolArguments { index: 1, fragment: "{}".to_owned() };
        events.extend(segments.events(vec![arguments]));
        events.extend(segments.close());
        assert_eq!(segments.close(), None);
        let closed: Vec<(usize, SegmentKind, &str)> = events
            .iter()
            .filter_map(|event| match event {
                SegmentEvent::Close(segment) => Some((segment.index, segment.kind, segment.text.as_str())),
                _ => None,
            })
            .collect();
        let expected = [
            (0, SegmentKind::Reasoning, "hm"),
            (1, SegmentKind::Text, "ab"),
            (2, SegmentKind::ToolCall, ""),
            (3, SegmentKind::ToolCall, "{}"),
        ];
        assert_eq!(closed, expected);
        assert_eq!(events.iter().filter(|event| matches!(event, SegmentEvent::Open(_))).count(), 4);
    }
}
