//! Parses calls that are JSON objects, alone or in a list.

use super::arguments::{JsonEnd, is_name};
use super::formats::List;
use super::{MAX_ARGUMENT_BYTES, MAX_HELD_BYTES, MAX_NAME_BYTES, Pieces, Progress};

/// The fields that calls have; an object with any other field is none.
const FIELDS: [(&str, Field); 9] = [
    ("name", Field::Name),
    ("tool_name", Field::Name),
    ("arguments", Field::Arguments),
    ("parameters", Field::Arguments),
    ("function", Field::Function),
    ("id", Field::Other),
    ("tool_call_id", Field::Other),
    ("type", Field::Other),
    ("index", Field::Other),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Arguments,
    /// The name itself, or an object with name and arguments.
    Function,
    Other,
}

#[derive(Debug, Clone)]
enum State {
    /// Before, between and after the objects.
    Outside,
    BeforeKey,
    Key(String),
    BeforeColon(Field),
    BeforeValue(Field),
    /// A string, as written; its quotes are not.
    Text {
        field: Field,
        written: String,
        escaped: bool,
    },
    /// The arguments, passed on as they come.
    Arguments(JsonEnd),
    /// A value that nobody needs: nested, or a number or word.
    Nested(JsonEnd),
    Word,
}

/// The calls behind one opening.
#[derive(Debug, Clone)]
pub(crate) struct JsonCalls {
    list: List,
    state: State,
    in_list: bool,
    /// Objects around the fields, below the outermost.
    level: usize,
    name: Option<String>,
    /// Arguments that came before the name.
    early: String,
    has_arguments: bool,
    started: bool,
    /// What was read and not passed on.
    pub(crate) raw: String,
}

impl JsonCalls {
    pub(crate) fn new(list: List) -> JsonCalls {
        JsonCalls {
            list,
            state: State::Outside,
            in_list: false,
            level: 0,
            name: None,
            early: String::new(),
            has_arguments: false,
            started: false,
            raw: String::new(),
        }
    }

    /// Whether part of the call that is being read is already out.
    pub(crate) fn has_started(&self) -> bool {
        self.started
    }

    pub(crate) fn read(&mut self, text: &str, out: &mut Pieces) -> Progress {
        for (at, character) in text.char_indices() {
            let is_out = matches!(self.state, State::Arguments(_) | State::Text { field: Field::Arguments, .. });
            if !(self.started && is_out) {
                self.raw.push(character);
            }
            let after = at + character.len_utf8();
            match self.step(character, out) {
                Some(true) => {}
                Some(false) => return Progress::Ended(after),
                None => return Progress::Broken(after),
            }
            if self.raw.len() > MAX_HELD_BYTES {
                return Progress::Broken(after);
            }
        }
        Progress::Reading
    }

    /// What there is of arguments inside a string whose end never came.
    pub(crate) fn finish(&mut self, out: &mut Pieces) {
        if let (State::Text { field: Field::Arguments, written, .. }, true) = (&self.state, self.started) {
            let whole = serde_json::from_str(&format!("\"{written}\""));
            out.arguments(&whole.unwrap_or_else(|_| written.clone()));
        }
    }

    /// Takes one character: whether there may be more, or `None` if this is no call.
    fn step(&mut self, character: char, out: &mut Pieces) -> Option<bool> {
        let state = std::mem::replace(&mut self.state, State::Outside);
        self.state = match state {
            State::Outside => return self.outside(character),
            State::BeforeKey if character.is_whitespace() || character == ',' => State::BeforeKey,
            State::BeforeKey if character == '"' => State::Key(String::new()),
            State::BeforeKey if character == '}' => return self.end_of_object(out),
            State::Key(key) if character == '"' => {
                State::BeforeColon(FIELDS.iter().find(|(name, _)| *name == key).map(|(_, field)| *field)?)
            }
            State::Key(mut key) if key.len() < MAX_NAME_BYTES => {
                key.push(character);
                State::Key(key)
            }
            State::BeforeColon(field) if character == ':' => State::BeforeValue(field),
            State::BeforeColon(field) if character.is_whitespace() => State::BeforeColon(field),
            State::BeforeValue(field) if character.is_whitespace() => State::BeforeValue(field),
            State::BeforeValue(field) => self.begin_value(field, character, out)?,
            State::Text { field, mut written, escaped } => {
                if character == '"' && !escaped {
                    self.end_of_text(field, &written, out)?;
                    State::BeforeKey
                } else if written.len() > MAX_ARGUMENT_BYTES {
                    self.pass_on(&written, out);
                    return None;
                } else {
                    written.push(character);
                    State::Text { field, written, escaped: character == '\\' && !escaped }
                }
            }
            State::Arguments(mut end) => {
                self.pass_on(character.encode_utf8(&mut [0; 4]), out);
                if end.feed(character) { State::BeforeKey } else { State::Arguments(end) }
            }
            State::Nested(mut end) => {
                if end.feed(character) {
                    State::BeforeKey
                } else {
                    State::Nested(end)
                }
            }
            State::Word if character == ',' => State::BeforeKey,
            State::Word if character == '}' => return self.end_of_object(out),
            State::Word if character.is_alphanumeric() || "+-. \n\t\r".contains(character) => State::Word,
            _ => return None,
        };
        Some(true)
    }

    fn outside(&mut self, character: char) -> Option<bool> {
        match character {
            '[' if !self.in_list && self.list != List::Bare => self.in_list = true,
            ']' if self.in_list => return Some(false),
            '{' => self.state = State::BeforeKey,
            ',' if self.in_list => {}
            _ if character.is_whitespace() => {}
            _ => return None,
        }
        Some(true)
    }

    fn begin_value(&mut self, field: Field, character: char, out: &mut Pieces) -> Option<State> {
        Some(match (field, character) {
            (Field::Arguments, _) if self.has_arguments => return None,
            (Field::Arguments, '{') => {
                self.has_arguments = true;
                self.start(out);
                self.pass_on("{", out);
                let mut end = JsonEnd::default();
                end.feed('{');
                State::Arguments(end)
            }
            (Field::Arguments, 'n') => State::Word,
            (Field::Function, '{') => {
                self.level += 1;
                State::BeforeKey
            }
            (Field::Arguments, '"') => {
                self.start(out);
                State::Text { field, written: String::new(), escaped: false }
            }
            (_, '"') => State::Text { field, written: String::new(), escaped: false },
            (Field::Other, '{' | '[') => {
                let mut end = JsonEnd::default();
                end.feed(character);
                State::Nested(end)
            }
            (Field::Other, _) if character.is_alphanumeric() || character == '-' => State::Word,
            _ => return None,
        })
    }

    fn end_of_text(&mut self, field: Field, written: &str, out: &mut Pieces) -> Option<()> {
        let text: String = serde_json::from_str(&format!("\"{written}\"")).ok()?;
        match field {
            Field::Name | Field::Function => {
                self.name = Some(text).filter(|name| is_name(name));
                self.name.as_ref()?;
                if self.has_arguments {
                    self.start(out);
                }
            }
            // Arguments that are JSON inside a string.
            Field::Arguments if !self.has_arguments => {
                self.has_arguments = true;
                self.start(out);
                self.pass_on(&text, out);
            }
            Field::Arguments => return None,
            Field::Other => {}
        }
        Some(())
    }

    /// Begins the call, as soon as its name is known.
    fn start(&mut self, out: &mut Pieces) {
        if let (Some(name), false) = (&self.name, self.started) {
            out.start(name);
            out.arguments(&std::mem::take(&mut self.early));
            self.started = true;
            self.raw.clear();
        }
    }

    fn pass_on(&mut self, arguments: &str, out: &mut Pieces) {
        if self.started {
            out.arguments(arguments);
        } else {
            self.early.push_str(arguments);
        }
    }

    fn end_of_object(&mut self, out: &mut Pieces) -> Option<bool> {
        if self.level > 0 {
            self.level -= 1;
            self.state = State::BeforeKey;
            return Some(true);
        }
        let is_complete = self.name.is_some() && (self.has_arguments || self.list != List::Bare);
        if !is_complete {
            return None;
        }
        if !self.has_arguments {
            self.early.push_str("{}");
        }
        self.start(out);
        let (list, in_list) = (self.list, self.in_list);
        *self = JsonCalls { in_list, ..JsonCalls::new(list) };
        Some(in_list)
    }
}
