//! An answer as a row of parts: thoughts, texts and calls, each opened, continued and closed.

use cascadia_text::Piece;

use crate::answer::{Answer, Call};

/// What a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartKind {
    Thought,
    Text,
    /// Its text is JSON: the arguments.
    Call,
}

/// One part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Its place among all parts.
    pub(crate) index: usize,
    pub(crate) kind: PartKind,
    /// The function, of a call.
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Part {
    /// The parts of a complete answer: thoughts before text before calls.
    pub(crate) fn all(answer: Answer) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut add = |kind, name, text| parts.push(Part { index: parts.len(), kind, name, text });
        if !answer.thoughts.is_empty() {
            add(PartKind::Thought, String::new(), answer.thoughts);
        }
        if !answer.text.is_empty() || answer.calls.is_empty() {
            add(PartKind::Text, String::new(), answer.text);
        }
        for Call { name, arguments } in answer.calls {
            add(PartKind::Call, name, arguments);
        }
        parts
    }
}

/// Something that happens to a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It begins; its text is empty.
    Open(Part),
    /// It has more text.
    More { index: usize, kind: PartKind, text: String },
    /// It is complete.
    Close(Part),
}

/// Keeps track of the part that is open.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    open: Option<Part>,
    next: usize,
}

impl Parts {
    /// What the next pieces of an answer do to its parts.
    pub(crate) fn steps(&mut self, pieces: Vec<Piece>) -> Vec<Step> {
        let mut steps = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Content(text) => self.more(PartKind::Text, text, &mut steps),
                Piece::Reasoning(text) => self.more(PartKind::Thought, text, &mut steps),
                Piece::ToolStart { name, .. } => self.begin(PartKind::Call, name, &mut steps),
                Piece::ToolArguments { fragment, .. } => self.more(PartKind::Call, fragment, &mut steps),
            }
        }
        steps
    }

    /// The end of the part that is open, if one is.
    pub(crate) fn close(&mut self) -> Option<Step> {
        self.open.take().map(Step::Close)
    }

    fn more(&mut self, kind: PartKind, text: String, steps: &mut Vec<Step>) {
        if self.open.as_ref().is_none_or(|part| part.kind != kind) {
            self.begin(kind, String::new(), steps);
        }
        if let Some(part) = &mut self.open {
            part.text.push_str(&text);
            steps.push(Step::More { index: part.index, kind, text });
        }
    }

    fn begin(&mut self, kind: PartKind, name: String, steps: &mut Vec<Step>) {
        steps.extend(self.close());
        let part = Part { index: self.next, kind, name, text: String::new() };
        self.next += 1;
        steps.push(Step::Open(part.clone()));
        self.open = Some(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_open_and_close_as_kinds_change() {
        let mut parts = Parts::default();
        let call = |index| Piece::ToolStart { index, name: "f".to_owned() };
        let mut steps = parts.steps(vec![Piece::Reasoning("hm".to_owned()), Piece::Content("a".to_owned())]);
        steps.extend(parts.steps(vec![Piece::Content("b".to_owned()), call(0), call(1)]));
        let arguments = Piece::ToolArguments { index: 1, fragment: "{}".to_owned() };
        steps.extend(parts.steps(vec![arguments]));
        steps.extend(parts.close());
        assert_eq!(parts.close(), None);
        let closed: Vec<(usize, PartKind, &str)> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Close(part) => Some((part.index, part.kind, part.text.as_str())),
                _ => None,
            })
            .collect();
        let expected = [
            (0, PartKind::Thought, "hm"),
            (1, PartKind::Text, "ab"),
            (2, PartKind::Call, ""),
            (3, PartKind::Call, "{}"),
        ];
        assert_eq!(closed, expected);
        assert_eq!(steps.iter().filter(|step| matches!(step, Step::Open(_))).count(), 4);
    }
}
