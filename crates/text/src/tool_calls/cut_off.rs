//! Completes arguments of calls whose end is missing, because the answer with them was cut off.

use serde_json::Value;

/// Deeper than this nothing is completed.
const MAX_DEPTH: usize = 128;

/// The object that a text is the beginning of: open strings, lists and objects are closed, and a field or word that is not
/// whole is left out. `None` where it begins no object.
pub(crate) fn completed(text: &str) -> Option<Value> {
    let beginning = Beginning::read(text)?;
    // Without the last part, which may be half a number, word or field.
    let candidates = [text, beginning.whole];
    let close = |part: &str| {
        let Beginning { open, in_string, escaped, .. } = Beginning::read(part)?;
        let part = if escaped { &part[..part.len() - 1] } else { part };
        let quote = if in_string { "\"" } else { "" };
        let closing: String = open.iter().rev().collect();
        serde_json::from_str(&format!("{part}{quote}{closing}")).ok()
    };
    candidates.into_iter().find_map(close).filter(Value::is_object)
}

/// What a text has opened and not closed.
struct Beginning<'a> {
    /// What closes it, the outermost first.
    open: Vec<char>,
    in_string: bool,
    /// It ends with the sign that changes the next one.
    escaped: bool,
    /// The text up to the last part of the innermost list or object.
    whole: &'a str,
}

impl Beginning<'_> {
    fn read(text: &str) -> Option<Beginning<'_>> {
        let mut found = Beginning { open: Vec::new(), in_string: false, escaped: false, whole: "" };
        for (at, character) in text.char_indices() {
            match character {
                _ if found.escaped => found.escaped = false,
                '\\' if found.in_string => found.escaped = true,
                '"' => found.in_string = !found.in_string,
                _ if found.in_string => {}
                '{' | '[' => {
                    found.open.push(if character == '{' { '}' } else { ']' });
                    found.whole = &text[..=at];
                }
                '}' | ']' => _ = found.open.pop().filter(|closing| *closing == character)?,
                ',' => found.whole = &text[..at],
                _ => {}
            }
            if found.open.len() > MAX_DEPTH {
                return None;
            }
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_beginning_of_an_object_is_completed() {
        let whole = r#"{"city": "Sète \"x\\", "days": -12.5, "tags": [true, {"a": null}], "z": {}}"#;
        for (at, _) in whole.char_indices().skip(1) {
            let found = completed(&whole[..at]);
            assert!(found.as_ref().is_some_and(Value::is_object), "{}: {found:?}", &whole[..at]);
        }
    }

    #[test]
    fn what_is_whole_stays() {
        let check = |text: &str, expected: Value| assert_eq!(completed(text), Some(expected), "{text}");
        check(r#"{"a": 1, "b": "two"#, json!({"a": 1, "b": "two"}));
        check(r#"{"a": 1, "b": tr"#, json!({"a": 1}));
        check(r#"{"a": 1, "b"#, json!({"a": 1}));
        check(r#"{"a": [1, {"b": "c\"#, json!({"a": [1, {"b": "c"}]}));
        check(r#"{"a": "x\u00"#, json!({}));
        check("{", json!({}));
        for wrong in ["", "x", "[1", "7", r#"{"a": 1}]"#, &"[".repeat(300)] {
            assert_eq!(completed(wrong), None, "{wrong}");
        }
    }
}
