//! Values as Python writes them: `str`, `repr` and `json.dumps`.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

use crate::template::meter::{MAX_DEPTH, Meter, limit_error};

/// A string that the meter pays for while it grows.
pub(crate) struct MeteredText<'a> {
    pub(crate) text: String,
    meter: &'a Meter,
}

impl<'a> MeteredText<'a> {
    pub(crate) fn new(meter: &'a Meter) -> MeteredText<'a> {
        MeteredText { text: String::new(), meter }
    }

    pub(crate) fn push_str(&mut self, text: &str) -> Result<(), Error> {
        self.meter.write(text.len())?;
        self.text.push_str(text);
        Ok(())
    }

    fn push_char(&mut self, character: char) -> Result<(), Error> {
        self.push_str(character.encode_utf8(&mut [0; 4]))
    }

    /// Appends `str(value)`.
    pub(crate) fn push_value(&mut self, value: &Value) -> Result<(), Error> {
        match value.as_str() {
            Some(text) => self.push_str(text),
            None if value.is_undefined() => Ok(()),
            None => self.push_repr(value, 0),
        }
    }

    fn push_repr(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        check_depth(depth)?;
        match value.kind() {
            ValueKind::String => self.push_quoted(value.as_str().unwrap_or_default()),
            ValueKind::None => self.push_str("None"),
            ValueKind::Bool => self.push_str(if value.is_true() { "True" } else { "False" }),
            ValueKind::Number => self.push_number(value),
            ValueKind::Map => {
                self.push_str("{")?;
                for (index, key) in value.try_iter()?.enumerate() {
                    self.push_str(if index == 0 { "" } else { ", " })?;
                    self.push_repr(&key, depth + 1)?;
                    self.push_str(": ")?;
                    self.push_repr(&value.get_item(&key)?, depth + 1)?;
                }
                self.push_str("}")
            }
            ValueKind::Seq | ValueKind::Iterable => {
                let (open, close) = match (value.is_tuple(), value.len()) {
                    (true, Some(1)) => ("(", ",)"),
                    (true, _) => ("(", ")"),
                    (false, _) => ("[", "]"),
                };
                self.push_str(open)?;
                for (index, item) in value.try_iter()?.enumerate() {
                    self.push_str(if index == 0 { "" } else { ", " })?;
                    self.push_repr(&item, depth + 1)?;
                }
                self.push_str(close)
            }
            ValueKind::Undefined => self.push_str("Undefined"),
            other => self.push_str(&format!("<{other}>")),
        }
    }

    fn push_quoted(&mut self, text: &str) -> Result<(), Error> {
        let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
        self.push_char(quote)?;
        for character in text.chars() {
            match character {
                '\\' => self.push_str("\\\\")?,
                '\n' => self.push_str("\\n")?,
                '\r' => self.push_str("\\r")?,
                '\t' => self.push_str("\\t")?,
                _ if character == quote => self.push_str(if quote == '"' { "\\\"" } else { "\\'" })?,
                '\0'..='\x1f' | '\x7f'..='\u{a0}' => self.push_str(&format!("\\x{:02x}", u32::from(character)))?,
                _ => self.push_char(character)?,
            }
        }
        self.push_char(quote)
    }

    fn push_number(&mut self, value: &Value) -> Result<(), Error> {
        if value.is_integer() {
            return self.push_str(&value.to_string());
        }
        let number = f64::try_from(value.clone())?;
        self.push_str(&float(number))
    }

    /// Appends `json.dumps(value)`.
    pub(crate) fn push_json(&mut self, value: &Value, style: &JsonStyle) -> Result<(), Error> {
        self.push_json_nested(value, style, 0)
    }

    fn push_json_nested(&mut self, value: &Value, style: &JsonStyle, depth: usize) -> Result<(), Error> {
        check_depth(depth)?;
        match value.kind() {
            ValueKind::String => self.push_json_string(value.as_str().unwrap_or_default(), style),
            ValueKind::None => self.push_str("null"),
            ValueKind::Bool => self.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => match f64::try_from(value.clone()) {
                Ok(number) if number.is_nan() => self.push_str("NaN"),
                Ok(number) if number.is_infinite() => {
                    self.push_str(if number > 0.0 { "Infinity" } else { "-Infinity" })
                }
                _ => self.push_number(value),
            },
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if style.sort_keys {
                    keys.sort();
                }
                let items = keys.iter().map(|key| Ok((Some(key), value.get_item(key)?)));
                self.push_json_items(('{', '}'), items, style, depth)
            }
            ValueKind::Seq | ValueKind::Iterable => {
                self.push_json_items(('[', ']'), value.try_iter()?.map(|item| Ok((None, item))), style, depth)
            }
            kind => {
                let reason = format!("tojson cannot write a value of type {kind}");
                Err(Error::new(ErrorKind::InvalidOperation, reason))
            }
        }
    }

    fn push_json_items<'v>(
        &mut self,
        brackets: (char, char),
        items: impl Iterator<Item = Result<(Option<&'v Value>, Value), Error>>,
        style: &JsonStyle,
        depth: usize,
    ) -> Result<(), Error> {
        let mut is_empty = true;
        self.push_char(brackets.0)?;
        for item in items {
            let (key, item) = item?;
            if !is_empty {
                self.push_str(&style.item_separator)?;
            }
            is_empty = false;
            self.push_json_line(style, depth + 1)?;
            if let Some(key) = key {
                self.push_json_key(key, style)?;
            }
            self.push_json_nested(&item, style, depth + 1)?;
        }
        if !is_empty {
            self.push_json_line(style, depth)?;
        }
        self.push_char(brackets.1)
    }

    fn push_json_key(&mut self, key: &Value, style: &JsonStyle) -> Result<(), Error> {
        match key.as_str() {
            Some(key) => self.push_json_string(key, style)?,
            None => self.push_json_string(&key.to_string(), style)?,
        }
        self.push_str(&style.key_separator)
    }

    fn push_json_line(&mut self, style: &JsonStyle, depth: usize) -> Result<(), Error> {
        let Some(indent) = &style.indent else { return Ok(()) };
        self.push_str("\n")?;
        (0..depth).try_for_each(|_| self.push_str(indent))
    }

    fn push_json_string(&mut self, text: &str, style: &JsonStyle) -> Result<(), Error> {
        self.push_char('"')?;
        for character in text.chars() {
            match character {
                '"' => self.push_str("\\\"")?,
                '\\' => self.push_str("\\\\")?,
                '\n' => self.push_str("\\n")?,
                '\r' => self.push_str("\\r")?,
                '\t' => self.push_str("\\t")?,
                '\x08' => self.push_str("\\b")?,
                '\x0c' => self.push_str("\\f")?,
                '\0'..='\x1f' => self.push_str(&format!("\\u{:04x}", u32::from(character)))?,
                _ if style.ensure_ascii && !(' '..='~').contains(&character) => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        self.push_str(&format!("\\u{unit:04x}"))?;
                    }
                }
                _ => self.push_char(character)?,
            }
        }
        self.push_char('"')
    }
}

/// The keyword arguments of `tojson`.
pub(crate) struct JsonStyle {
    /// What a level of nesting is indented with; everything on one line without it.
    pub(crate) indent: Option<String>,
    pub(crate) item_separator: String,
    pub(crate) key_separator: String,
    pub(crate) ensure_ascii: bool,
    pub(crate) sort_keys: bool,
}

fn check_depth(depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH { Err(limit_error(format!("nesting of values ({MAX_DEPTH} levels)"))) } else { Ok(()) }
}

/// `repr` of a float: the shortest digits that read back, with an exponent only for very large and small numbers.
fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) || number == 0.0 {
        let plain = number.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}
