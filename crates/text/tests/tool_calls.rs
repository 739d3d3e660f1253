//! Calls and thoughts come out of an answer the same however it is cut into pieces.

use cascadia_text::{AnswerFormat, AnswerParser, Piece, ReasoningFormat, ToolCallFormat};
use proptest::prelude::*;
use serde_json::{Value, json};

/// An answer as people would note it down.
#[derive(Debug, Default, PartialEq)]
struct Read {
    content: String,
    reasoning: String,
    calls: Vec<(String, String)>,
}

fn read<'a>(answer: &AnswerFormat<'_>, pieces: impl Iterator<Item = &'a str>) -> Read {
    let mut parser = AnswerParser::new(answer);
    let mut out: Vec<Piece> = pieces.flat_map(|piece| parser.push(piece)).collect();
    out.extend(parser.finish());
    let mut read = Read::default();
    for piece in out {
        match piece {
            Piece::Content(text) => read.content += &text,
            Piece::Reasoning(text) => read.reasoning += &text,
            Piece::ToolStart { index, name } => {
                assert_eq!(index, read.calls.len());
                read.calls.push((name, String::new()));
            }
            Piece::ToolArguments { index, fragment } => {
                assert_eq!(index + 1, read.calls.len());
                read.calls[index].1 += &fragment;
            }
        }
    }
    read
}

/// Reads an answer whole, cut in two at every place, and character by character.
fn read_every_way(answer: &AnswerFormat<'_>, text: &str) -> Read {
    let whole = read(answer, [text].into_iter());
    for (at, _) in text.char_indices() {
        let cut = read(answer, [&text[..at], &text[at..]].into_iter());
        assert_eq!(cut, whole, "cut at {at}: {text:?}");
    }
    let characters: Vec<String> = text.chars().map(String::from).collect();
    assert_eq!(read(answer, characters.iter().map(String::as_str)), whole, "{text:?}");
    whole
}

fn format(name: &str) -> ToolCallFormat {
    ToolCallFormat::named(name).unwrap_or_else(|| panic!("no format {name}"))
}

fn thinking() -> Option<ReasoningFormat> {
    ReasoningFormat::detect("<think></think>")
}

const WEATHER: &str = r#"{"city": "Rome", "note": "a \"}\\ <b>"}"#;

#[test]
fn calls_of_every_format() {
    let json = format!(r#"{{"name": "get", "arguments": {WEATHER}}}"#);
    let parameters = format!(r#"{{"name": "get", "parameters": {WEATHER}}}"#);
    let two = [("get", WEATHER), ("noop", "{}")];
    let one = [("get", WEATHER)];
    let noop = r#"{"name": "noop", "arguments": {}}"#;
    for (name, text, content, calls) in [
        ("hermes", format!("Hi.\n<tool_call>\n{json}\n</tool_call>\n<tool_call>\n{noop}\n</tool_call>"), "Hi.", &two[..]),
        ("hermes", format!("<tool_call>{json}</tool_call>\n\nDone."), "Done.", &one),
        ("hermes", format!("<tool_call>\n{json}"), "", &one),
        ("hermes", format!("<tool_call>{{\"arguments\": {WEATHER}, \"id\": [1], \"name\": \"get\"}}</tool_call>"), "", &one),
        ("hermes", format!("<tool_call>{{\"name\": \"get\", \"arguments\": {}}}", Value::from(WEATHER)), "", &one),
        ("llama-json", parameters.clone(), "", &one),
        ("llama-json", format!("<|python_tag|>{parameters}; {noop}"), "", &two),
        ("llama-json", format!(" {{\"type\": \"function\", \"function\": {parameters}}}"), "", &one),
        ("mistral", format!("[TOOL_CALLS] [{json}, {noop}]"), "", &two),
        ("mistral-args", format!("[TOOL_CALLS]get[ARGS]{WEATHER}[TOOL_CALLS]noop[CALL_ID]ab1[ARGS]{{}}"), "", &two),
        (
            "deepseek-v3",
            format!(
                "Hi.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get\n```json\n{WEATHER}\n```<｜tool▁call▁end｜>\n\
                 <｜tool▁call▁begin｜>function<｜tool▁sep｜>noop\n```json\n{{}}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
            ),
            "Hi.",
            &two,
        ),
        (
            "deepseek-v3.1",
            format!("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>{WEATHER}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
            "",
            &one,
        ),
        (
            "kimi-k2",
            format!(
                "Hi.<|tool_calls_section_begin|><|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>{WEATHER}<|tool_call_end|>\
                 <|tool_call_begin|>functions.noop:1<|tool_call_argument_begin|>{{}}<|tool_call_end|><|tool_calls_section_end|>"
            ),
            "Hi.",
            &two,
        ),
        ("granite", format!("<|tool_call|>[{json}, {noop}]"), "", &two),
        ("phi-4", format!("<|tool_call|>[{json}]<|/tool_call|>"), "", &one),
        ("command-a", format!("<|START_ACTION|>[\n {{\"tool_call_id\": \"0\", \"tool_name\": \"get\", \"parameters\": {WEATHER}}}\n]<|END_ACTION|>"), "", &one),
        ("functiongemma", "<start_function_call>call:get{city:<escape>Rome<escape>,note:<escape>a \"}\\ <b><escape>}<end_function_call>".into(), "", &one),
        ("gemma4", "<|tool_call>call:get{city:<|\"|>Rome<|\"|>, note:<|\"|>a \"}\\ <b><|\"|>}<tool_call|><|tool_call>call:noop{}<tool_call|>Hi.".into(), "Hi.", &two),
        ("glm-4.5", "Hi.\n<tool_call>get\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>note</arg_key>\n<arg_value>a \"}\\ <b></arg_value>\n</tool_call>\n<tool_call>noop</tool_call>".into(), "Hi.", &two),
        ("qwen3-coder", "<tool_call>\n<function=get>\n<parameter=city>\nRome\n</parameter>\n<parameter=note>\na \"}\\ <b>\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=noop>\n</function>\n</tool_call>".into(), "", &two),
        ("harmony", format!("<|channel|>final<|message|>Hi.<|end|><|start|>assistant<|channel|>commentary to=functions.get <|constrain|>json<|message|>{WEATHER}<|call|>"), "Hi.", &one),
        ("harmony", format!(" to=functions.get<|channel|>commentary json<|message|>{WEATHER}"), "", &one),
    ] {
        let answer = AnswerFormat { calls: Some(format(name)), ..AnswerFormat::default() };
        let read = read_every_way(&answer, &text);
        assert_eq!(read.content, content, "{name}: {text}");
        let found: Vec<(&str, Value)> =
            read.calls.iter().map(|(name, arguments)| (name.as_str(), serde_json::from_str(arguments).expect(arguments))).collect();
        let expected: Vec<(&str, Value)> =
            calls.iter().map(|(name, arguments)| (*name, serde_json::from_str(arguments).unwrap())).collect();
        assert_eq!(found, expected, "{name}: {text}");
    }
}

#[test]
fn what_is_no_call_is_text() {
    for (name, text, shown) in [
        ("hermes", "Write <tool_call> and </tool_call> around it.", "Write <tool_call>and </tool_call> around it."),
        (
            "hermes",
            "<tool_call>\n{\"name\": \"get\", \"arguments\": 3}",
            "<tool_call>\n{\"name\": \"get\", \"arguments\": 3}",
        ),
        ("hermes", "<tool_call>{\"title\": 1}</tool_call>", "<tool_call>{\"title\": 1}"),
        (
            "hermes",
            "<tool_call>{\"name\": \"get the\", \"arguments\": {}}",
            "<tool_call>{\"name\": \"get the\", \"arguments\": {}}",
        ),
        ("hermes", "a <", "a <"),
        ("hermes", "1 < 2 <tool 3\n", "1 < 2 <tool 3\n"),
        ("llama-json", "{\"name\": \"Bob\", \"age\": 3}", "{\"name\": \"Bob\", \"age\": 3}"),
        ("llama-json", "{\"a\": {\"name\": \"x\"}} tail", "{\"a\": {\"name\": \"x\"}} tail"),
        ("llama-json", "{} and {", "{} and {"),
        (
            "llama-json",
            "Look: {\"name\": \"get\", \"parameters\": {}}",
            "Look: {\"name\": \"get\", \"parameters\": {}}",
        ),
        ("llama-json", "<|python_tag|>print(1)", "print(1)"),
        ("mistral", "[TOOL_CALLS] none", " none"),
        ("mistral-args", "[TOOL_CALLS]get the weather[ARGS]{}", "get the weather[ARGS]{}"),
        ("glm-4.5", "<tool_call>{\"name\": 1}</tool_call>", "<tool_call>{\"name\": 1}"),
        ("qwen3-coder", "<tool_call>\nget()", "<tool_call>\nget()"),
        ("harmony", "Hello, I am here.", "Hello, I am here."),
        ("harmony", "<|channel|>final<|message|>Hi <|en", "Hi <|en"),
    ] {
        let read = read_every_way(&AnswerFormat { calls: Some(format(name)), ..AnswerFormat::default() }, text);
        assert_eq!(read.calls, [], "{name}: {text}");
        let without_spaces = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(
            without_spaces(&read.content).replace("</tool_call>", ""),
            without_spaces(shown).replace("</tool_call>", ""),
            "{name}: {text}"
        );
    }
}

#[test]
fn calls_that_break_off_keep_what_they_have() {
    for (name, text, call, content) in [
        ("hermes", "<tool_call>{\"name\": \"get\", \"arguments\": {\"city\": \"Ro", ("get", "{\"city\": \"Ro"), ""),
        ("hermes", "<tool_call>{\"name\": \"get\", \"arguments\": {}, \"colour\": 1} ", ("get", "{}"), "\"colour\""),
        ("qwen3-coder", "<tool_call><function=get>\n<parameter=city>\nRo", ("get", "{\"city\": \"Ro"), ""),
        (
            "glm-4.5",
            "<tool_call>get\n<arg_key>city</arg_key><arg_value>Rome</arg_value>so",
            ("get", "{\"city\": \"Rome\"}"),
            "so",
        ),
        ("gemma4", "<|tool_call>call:get{city:<|\"|>Ro", ("get", "{city:<|\"|>Ro"), ""),
        ("harmony", "<|channel|>commentary to=functions.get<|message|>{\"ci", ("get", "{\"ci"), ""),
    ] {
        let read = read_every_way(&AnswerFormat { calls: Some(format(name)), ..AnswerFormat::default() }, text);
        assert_eq!(read.calls, [(call.0.to_owned(), call.1.to_owned())], "{name}: {text}");
        assert!(read.content.contains(content), "{name}: {:?}", read.content);
    }
}

#[test]
fn long_answers_of_marks_alone_are_read() {
    for name in ToolCallFormat::names() {
        let answer = AnswerFormat { calls: Some(format(name)), reasoning: thinking(), ..AnswerFormat::default() };
        for unit in format(name).markers().into_iter().chain([
            "<tool_call>{\"arguments\": {",
            "{\"name\": \"a\", ",
            "<think>",
            "\n",
        ]) {
            let text = unit.repeat((16 << 10) / unit.len());
            read(&answer, [text.as_str()].into_iter());
        }
    }
}

#[test]
fn arguments_without_types_get_those_of_the_schema() {
    let properties = json!({
        "zip": {"type": "string"}, "days": {"type": "integer"}, "size": {"type": ["number", "null"]},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "list": {"type": "array"},
    });
    let tools = json!([{"type": "function", "function": {"name": "get", "parameters": {"type": "object", "properties": properties}}}]);
    let arguments = [
        ("zip", "01234"),
        ("days", "3"),
        ("size", "null"),
        ("note", "null"),
        ("list", "[1, \"a\"]"),
        ("other", "true"),
        ("text", "3 days"),
    ];
    let pairs =
        arguments.map(|(key, value)| format!("<arg_key>{key}</arg_key><arg_value>{value}</arg_value>")).concat();
    let answer = AnswerFormat { calls: Some(format("glm-4.5")), tools: Some(&tools), ..AnswerFormat::default() };
    let read = read_every_way(&answer, &format!("<tool_call>get\n{pairs}</tool_call>"));
    let expected = json!({
        "zip": "01234", "days": 3, "size": null, "note": null, "list": [1, "a"], "other": true, "text": "3 days",
    });
    assert_eq!(serde_json::from_str::<Value>(&read.calls[0].1).unwrap(), expected);
}

#[test]
fn a_call_that_was_cut_off_leaves_no_marks() {
    let answer = AnswerFormat { calls: Some(format("hermes")), ..AnswerFormat::default() };
    let call = "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    let (text, first) = (format!("See.\n{call}\n{call}"), "See.\n".len() + 1);
    for (at, _) in text.char_indices() {
        let read = read_every_way(&answer, &text[..at]);
        // One sign after a text may be a part of it; after a call it is not.
        let allowed = if at <= first { "See.\n<" } else { "See." };
        assert!(allowed.starts_with(read.content.trim_end()), "{:?}: {read:?}", &text[..at]);
    }
    // Signs that only look like the beginning of a mark.
    for text in ["a < b", "1 <", "x <table>"] {
        assert_eq!(read_every_way(&answer, text).content, text);
    }
}

#[test]
fn reasoning_is_separated() {
    let call = "<tool_call>\n{\"name\": \"get\", \"arguments\": {}}\n</tool_call>";
    for (prompt, text, reasoning, content, calls) in [
        ("", "<think>\nHm <b>.\n</think>\n\nYes.", "Hm <b>.", "Yes.", 0),
        ("<think>\n", "Hm.\n</think>\n\nYes.\n", "Hm.", "Yes.\n", 0),
        ("<think>\n", "Hm", "Hm", "", 0),
        ("<think>\n\n</think>\n\n", "Yes.", "", "Yes.", 0),
        ("", "<think></think>Yes.", "", "Yes.", 0),
        ("", "<think>a</think>", "a", "", 1),
        ("", "Yes </think>.", "", "Yes </think>.", 0),
    ] {
        let text = if calls > 0 { format!("{text}\n{call}") } else { text.to_owned() };
        let answer = AnswerFormat { calls: Some(format("hermes")), reasoning: thinking(), prompt, tools: None };
        let read = read_every_way(&answer, &text);
        assert_eq!(
            (read.reasoning.as_str(), read.content.as_str(), read.calls.len()),
            (reasoning, content, calls),
            "{text:?}"
        );
    }
    let answer = AnswerFormat { calls: Some(format("harmony")), ..AnswerFormat::default() };
    let text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>";
    let read = read_every_way(&answer, text);
    assert_eq!((read.reasoning.as_str(), read.content.as_str()), ("Hm.", "Yes."));
}

#[test]
fn calls_of_public_templates_read_back() {
    let entries: Vec<Value> = serde_json::from_str(include_str!("data/calls.json")).unwrap();
    let weather = json!({"city": "Paris", "days": 2, "exact": 0.5, "names": ["é", null, true], "nested": {"a": {}}});
    assert!(entries.len() > 80);
    for entry in &entries {
        let text = |field: &str| entry[field].as_str().unwrap();
        let calls = Some(format(text("format")));
        let reasoning = ReasoningFormat::detect(&format!("{}{}", text("prompt"), text("answer")));
        let answer = AnswerFormat { calls, reasoning, tools: None, prompt: text("prompt") };
        let read = read_every_way(&answer, text("answer"));
        let found: Vec<(&str, Value)> = read
            .calls
            .iter()
            .map(|(name, arguments)| (name.as_str(), serde_json::from_str(arguments).expect(arguments)))
            .collect();
        let mut expected = vec![("get_weather", weather.clone())];
        if text("case") == "two" && text("answer").contains("noop") {
            expected.push(("noop", json!({})));
        }
        let is_cut = text("format") == "llama-json" && text("case") == "two";
        assert!(found == expected || is_cut, "{entry}: {read:?}");
        assert!(!read.content.contains(['<', '[', '|']) || is_cut, "{entry}: {read:?}");
    }
}

#[test]
fn templates_tell_their_format() {
    for (template, expected) in [
        ("{\"name\": <function-name>} within <tool_call></tool_call> XML tags", Some("hermes")),
        ("<tool_call>\\n<function=' + name + '>\\n<parameter='", Some("qwen3-coder")),
        ("<tool_call>{function-name}\\n<arg_key>{arg-key-1}</arg_key>\\n<arg_value>", Some("glm-4.5")),
        (
            "respond with {\"name\": function name, \"parameters\": dictionary of argument name and its value}",
            Some("llama-json"),
        ),
        ("{{ '[TOOL_CALLS]' + name + '[ARGS]' }}", Some("mistral-args")),
        ("{{ '[TOOL_CALLS]' }}", Some("mistral")),
        (
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + type + '<｜tool▁sep｜>' + name + '\\n```json\\n'",
            Some("deepseek-v3"),
        ),
        ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + name + '<｜tool▁sep｜>'", Some("deepseek-v3.1")),
        ("<|channel|>commentary to={{ 'functions.' + name }}<|message|>", Some("harmony")),
        ("{{ message.content }}", None),
    ] {
        assert_eq!(ToolCallFormat::detect(template).map(|format| format.name()), expected, "{template}");
    }
    assert_eq!(ToolCallFormat::names().len(), 16);
    assert!(ToolCallFormat::named("nothing").is_none());
}

proptest! {
    /// Marks and brackets in any order: no panic, nothing invented, and no dependence on where the text is cut.
    #[test]
    fn any_text_reads_the_same_in_any_pieces(parts in prop::collection::vec(0_usize..24, 0..30), choice in 0_usize..16, cut in 0_usize..200) {
        let call = format(ToolCallFormat::names()[choice]);
        let marks = call.markers();
        let words = [
            "{", "}", "[", "]", "\"", "name", "\"name\": \"get\", ", "\"arguments\": ", "\\", "\n", " ", "get", ",", "é", "<", "<think>",
            "</think>", "|>",
        ];
        let text: String = parts.iter().map(|&part| words.get(part).copied().unwrap_or_else(|| marks[part % marks.len()])).collect();
        let answer = AnswerFormat { calls: Some(call), reasoning: thinking(), tools: None, prompt: "" };
        let whole = read(&answer, [text.as_str()].into_iter());
        let at = (0..=cut.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        prop_assert_eq!(&read(&answer, [&text[..at], &text[at..]].into_iter()), &whole, "cut at {}: {:?}", at, &text);
        let characters: Vec<String> = text.chars().map(String::from).collect();
        prop_assert_eq!(&read(&answer, characters.iter().map(String::as_str)), &whole, "{:?}", &text);
    }
}
