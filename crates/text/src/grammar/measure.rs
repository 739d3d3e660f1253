//! The cost of a format, measured on its source before anything is built from it.
//!
//! The limits stand for about 200 ms and 64 MiB of compiling. They are counted, not timed, so that the same format is
//! refused everywhere, and they cover what the counters of `llguidance` itself do not see.

use serde_json::Value;

use super::MAX_FORMAT_DEPTH;
use crate::TextError;

/// Most characters of an expression once its counted repetitions are written out.
const MAX_EXPANDED: usize = 32 << 10;
/// Most optional parts of an expression: each state remembers all those that may still come.
const MAX_OPTIONAL: usize = 1_000;
/// Most fields of one object, and of all objects together.
const MAX_FIELDS: [usize; 2] = [500, 2_000];
/// Most `patternProperties` in a schema: each is compared with every other.
const MAX_PATTERNS: usize = 32;
/// Largest `multipleOf`, without its decimal point: remainders are states.
const MAX_MULTIPLE: u64 = 10_000;
/// Longest literal of a grammar whose rules may repeat it as forced text: all of that is parsed in one step.
const MAX_REPEATED_LITERAL: usize = 128;
/// Keywords of a JSON schema whose texts never come in an answer.
const ANNOTATIONS: [&str; 8] = ["$comment", "$id", "$ref", "$schema", "default", "description", "examples", "title"];
/// Numbers from here on do not fit the arithmetic of ranges.
const LARGEST_BOUND: f64 = 9.2e18;

/// Refuses JSON schemas that are too deep or ask for too much.
pub(super) fn check_schema(schema: &Value) -> Result<(), TextError> {
    let (mut fields, mut patterns) = (0, 0);
    let mut stack = vec![(schema, 0)];
    while let Some((value, depth)) = stack.pop() {
        within("the nesting of the output format", depth, MAX_FORMAT_DEPTH, "levels")?;
        match value {
            Value::Array(items) => stack.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(keywords) => {
                for (keyword, value) in keywords {
                    let size = value.as_object().map_or(0, |object| object.len());
                    match keyword.as_str() {
                        "properties" => {
                            within("an object in the JSON schema", size, MAX_FIELDS[0], "properties")?;
                            fields += size;
                        }
                        "patternProperties" => {
                            patterns += size;
                            let mut names = value.as_object().into_iter().flat_map(|object| object.keys());
                            names.try_for_each(|name| check_expression(name))?;
                        }
                        "pattern" => value.as_str().map_or(Ok(()), check_expression)?,
                        _ => check_number(keyword, value)?,
                    }
                    stack.push((value, depth + 1));
                }
            }
            _ => {}
        }
    }
    within("the JSON schema", fields, MAX_FIELDS[1], "properties in all")?;
    within("the JSON schema", patterns, MAX_PATTERNS, "pattern properties")
}

fn check_number(keyword: &str, value: &Value) -> Result<(), TextError> {
    let Some(number) = value.as_f64() else { return Ok(()) };
    let refuse = |rule: String| {
        let reason = format!("`{keyword}` is {value}, and {rule}");
        Err(TextError::OutputFormat { format: "JSON schema", reason })
    };
    match keyword {
        "multipleOf" => {
            let digits: String = value.to_string().chars().filter(char::is_ascii_digit).collect();
            let is_small = digits.parse().is_ok_and(|digits: u64| digits <= MAX_MULTIPLE);
            if is_small { Ok(()) } else { refuse(format!("its digits may be at most {MAX_MULTIPLE}")) }
        }
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" if number.abs() >= LARGEST_BOUND => {
            refuse(format!("bounds must be less than {LARGEST_BOUND:e} in size; leave it out"))
        }
        _ => Ok(()),
    }
}

/// Refuses grammars that are too deep, and what their expressions and schemas may not ask for.
pub(super) fn check_lark(grammar: &str) -> Result<(), TextError> {
    // Strings are skipped; comments count like everything else, which harms nobody.
    let (mut depth, mut in_string) = (0_usize, false);
    let mut characters = grammar.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            '\n' => in_string = false,
            '"' => in_string = !in_string,
            '(' | '[' | '{' if !in_string => depth += 1,
            ')' | ']' | '}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        within("the nesting of the output format", depth, MAX_FORMAT_DEPTH, "levels")?;
    }
    for (at, keyword) in grammar.match_indices("%json") {
        let schemas = serde_json::Deserializer::from_str(&grammar[at + keyword.len()..]);
        if let Some(Ok(schema)) = schemas.into_iter::<Value>().next() {
            check_schema(&schema)?;
        }
    }
    check_repetitions(grammar)
}

/// Whether rules of a grammar could repeat a literal until the forced text is too long for one step.
pub(super) fn may_force_too_much(grammar: &str) -> bool {
    let (mut rest, mut longest) = (grammar, 0);
    while let Some(at) = rest.find(['"', '/', '%']) {
        let (mark, after) = (rest.as_bytes()[at], &rest[at + 1..]);
        let schema =
            after.strip_prefix("json").map(|text| serde_json::Deserializer::from_str(text).into_iter::<Value>());
        rest = match schema.map(|mut schemas| (schemas.next(), schemas.byte_offset())) {
            Some((Some(Ok(schema)), bytes)) if mark == b'%' => {
                longest = longest.max(longest_literal(&schema));
                &after["json".len() + bytes..]
            }
            _ if mark == b'%' => after,
            _ => {
                let (literal, after) = until(after, mark);
                longest = longest.max(expanded(literal));
                after
            }
        };
    }
    longest > MAX_REPEATED_LITERAL
}

/// The rest of a literal that ends with `mark`, and what follows it.
fn until(text: &str, mark: u8) -> (&str, &str) {
    let mut escaped = false;
    let end = text.bytes().position(|byte| {
        let ends = !escaped && byte == mark;
        escaped = !escaped && byte == b'\\';
        ends
    });
    end.map_or((text, ""), |end| (&text[..end], &text[end + 1..]))
}

/// The longest text of a JSON schema that answers may contain as it is.
fn longest_literal(schema: &Value) -> usize {
    match schema {
        Value::String(text) => expanded(text).max(text.len()),
        Value::Array(items) => items.iter().map(longest_literal).max().unwrap_or(0),
        Value::Object(keywords) => {
            let shown = keywords.iter().filter(|(keyword, _)| !ANNOTATIONS.contains(&keyword.as_str()));
            shown.map(|(keyword, value)| keyword.len().max(longest_literal(value))).max().unwrap_or(0)
        }
        _ => 0,
    }
}

/// Refuses expressions with groups nested too deep or repeated too often.
pub(super) fn check_expression(expression: &str) -> Result<(), TextError> {
    let (mut depth, mut in_class) = (0_usize, false);
    let mut characters = expression.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => depth += 1,
            ')' if !in_class => depth = depth.saturating_sub(1),
            _ => {}
        }
        within("the nesting of the output format", depth, MAX_FORMAT_DEPTH, "levels")?;
    }
    check_repetitions(expression)
}

fn check_repetitions(source: &str) -> Result<(), TextError> {
    let optional = source.bytes().filter(|byte| b"?*".contains(byte)).count();
    within("the regular expression or grammar", optional, MAX_OPTIONAL, "optional parts")?;
    let limit = MAX_EXPANDED.max(source.len());
    within("the regular expression or grammar, repetitions written out,", expanded(source), limit, "characters")
}

/// Characters of an expression in which `(ab){3}` counts as `ababab`.
fn expanded(expression: &str) -> usize {
    let (mut outer, mut group, mut last) = (Vec::new(), 0_usize, 0_usize);
    let mut rest = expression;
    while let Some(character) = rest.chars().next() {
        rest = &rest[character.len_utf8()..];
        match character {
            '(' => {
                outer.push(group);
                (group, last) = (0, 0);
            }
            ')' => {
                last = group.max(1);
                group = outer.pop().unwrap_or(0).saturating_add(last);
            }
            '{' if let Some((times, after)) = repetitions(rest) => {
                rest = after;
                group = group.saturating_add(last.saturating_mul(times.saturating_sub(1)));
                last = last.saturating_mul(times);
            }
            _ => {
                last = 1;
                group = group.saturating_add(1);
            }
        }
    }
    outer.into_iter().fold(group, usize::saturating_add)
}

/// The larger number of `3}`, `3,}` or `3,5}` at the beginning of a text, and what follows it.
fn repetitions(text: &str) -> Option<(usize, &str)> {
    let (inside, after) = text.split_once('}')?;
    let counts: Vec<&str> = inside.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    let are_counts = counts.len() <= 2 && counts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    let most = counts.iter().map(|count| count.parse().unwrap_or(usize::MAX)).max()?;
    are_counts.then_some((most, after))
}

/// Refuses what is larger than its limit.
pub(super) fn within(what: &'static str, size: usize, limit: usize, unit: &'static str) -> Result<(), TextError> {
    if size > limit { Err(TextError::TooLarge { what, size, limit, unit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_written_out() {
        for (expression, size) in [
            ("", 0),
            ("abc", 3),
            ("a{3}", 3),
            ("(ab){3}c", 7),
            ("((a{2}b){3}){4}", 36),
            ("a{2,5}", 5),
            ("a{2,}", 2),
            ("{\"a\": 1}", 8),
            ("(((", 0),
            (")))", 1),
        ] {
            assert_eq!(expanded(expression), size, "{expression}");
        }
        assert_eq!(expanded("(((a{99999999999999999999}){9}){9}"), usize::MAX);
    }

    #[test]
    fn long_literals_are_seen_wherever_they_stand() {
        let (short, long) = ("s".repeat(MAX_REPEATED_LITERAL), "l".repeat(MAX_REPEATED_LITERAL + 1));
        for (grammar, expected) in [
            (format!("start: \"{short}\" \"{short}\" /{short}/ // {short}"), false),
            (format!("start: \"{long}\""), true),
            (format!("start: \"{short}\\\"\""), true),
            (format!("start: /{long}/"), true),
            ("start: /x{200}/".to_owned(), true),
            (format!("start: %json {{\"const\": \"{long}\"}}"), true),
            (format!("start: %json {{\"properties\": {{\"{long}\": {{}}}}}} \"a\""), true),
            (format!("start: %json {{\"enum\": [\"a\", 3], \"description\": \"{long}\"}} \"a\""), false),
            (format!("start: %json {{\"a\": 1}} \"{long}\""), true),
            ("start: \"a".to_owned(), false),
        ] {
            assert_eq!(may_force_too_much(&grammar), expected, "{grammar}");
        }
    }
}
