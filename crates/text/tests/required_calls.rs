//! Calls that a model is made to write have arguments that fit, in every format that can be asked for.

mod walk;

use cascadia_text::{
    AnswerFormat, AnswerParser, KeptTokens, Piece, ReasoningFormat, RequiredCalls, StreamDecoder, TextError,
    ToolCallFormat, ToolChoice,
};
use serde_json::{Value, json};

use walk::{Dice, Forced, Model};

fn tools() -> Value {
    json!([
        {"type": "function", "function": {"name": "get_weather", "parameters": {
            "type": "object", "additionalProperties": false, "required": ["city", "days"],
            "properties": {
                "city": {"type": "string", "enum": ["Rome", "Oslo"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
                "note": {"type": "string", "maxLength": 6},
            }}}},
        {"type": "function", "function": {"name": "noop", "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}},
    ])
}

fn fits(name: &str, arguments: &Value) -> bool {
    match name {
        "noop" => *arguments == json!({}),
        "get_weather" => {
            let fields = arguments.as_object().unwrap();
            fields.keys().all(|key| ["city", "days", "note"].contains(&key.as_str()))
                && (arguments["city"] == "Rome" || arguments["city"] == "Oslo")
                && arguments["days"].as_u64().is_some_and(|days| (1..=9).contains(&days))
                && fields.get("note").is_none_or(Value::is_string)
        }
        _ => false,
    }
}

/// The calls and the rest of an answer, read as a server reads it.
fn read(model: &Model, answer: &AnswerFormat<'_>, tokens: &[u32]) -> (Vec<(String, String)>, String) {
    let mut markers = answer.calls.map(|format| format.markers()).unwrap_or_default();
    markers.extend(answer.reasoning.into_iter().flat_map(|format| format.markers()));
    let mut decoder = StreamDecoder::keeping(&model.tokenizer, &KeptTokens::new(&model.tokenizer, &markers));
    let mut parser = AnswerParser::new(answer);
    let mut pieces: Vec<Piece> = Vec::new();
    for &token in tokens {
        let text = decoder.push(token);
        pieces.extend(parser.push(&text));
    }
    pieces.extend(parser.push(&decoder.finish()));
    pieces.extend(parser.finish());
    let (mut calls, mut content): (Vec<(String, String)>, _) = (Vec::new(), String::new());
    for piece in pieces {
        match piece {
            Piece::ToolStart { name, .. } => calls.push((name, String::new())),
            Piece::ToolArguments { index, fragment } => calls[index].1 += &fragment,
            Piece::Content(text) => content += &text,
            Piece::Reasoning(_) => {}
        }
    }
    (calls, content)
}

#[test]
fn calls_fit_the_schemas_of_the_tools() {
    let tools = tools();
    let mut models = walk::models();
    models.push(Model::new("gpt-oss", &["<|return|>"]));
    models.push(Model::new("tekken", &["</s>"]));
    let models: Vec<_> = models.into_iter().map(|model| (model.compiler(), model)).collect();
    for name in ToolCallFormat::names() {
        let calls = ToolCallFormat::named(name).unwrap();
        let choices = [ToolChoice::Required, ToolChoice::Function("noop")];
        for ((compiler, model), choice) in models.iter().flat_map(|model| choices.map(|choice| (model, choice))) {
            let required = RequiredCalls { calls, tools: &tools, choice, open_reasoning: None };
            let format = match required.output_format(&model.tokenizer) {
                Ok(format) => format,
                Err(error) => {
                    assert!(
                        ["gemma4", "functiongemma"].contains(&name) && matches!(error, TextError::Messages { .. }),
                        "{name}: {error}"
                    );
                    continue;
                }
            };
            let mut finished = 0;
            for seed in 0..3 {
                let constraint =
                    compiler.compile(&format).unwrap_or_else(|error| panic!("{name}: {error}\n{format:?}"));
                let forced = if seed % 2 == 0 { Forced::AtOnce } else { Forced::OneByOne };
                let Some(tokens) = model.walk(constraint, &mut Dice(seed), forced) else { continue };
                let answer = AnswerFormat { calls: Some(calls), tools: Some(&tools), ..AnswerFormat::default() };
                let (found, content) = read(model, &answer, &tokens);
                assert!(!found.is_empty() && content.is_empty(), "{name}: {:?}", model.text(&tokens));
                for (function, arguments) in &found {
                    let arguments: Value = serde_json::from_str(arguments).expect(arguments);
                    assert!(fits(function, &arguments), "{name}: {:?}", model.text(&tokens));
                    assert!(
                        choice == ToolChoice::Required || (function == "noop" && found.len() == 1),
                        "{name}: {found:?}"
                    );
                }
                finished += 1;
            }
            assert!(finished > 0, "{name}: no answer came to its end");
        }
    }
}

#[test]
fn open_thoughts_end_before_the_call() {
    let tools = tools();
    let model = Model::new("qwen2", &["<|im_end|>"]);
    let calls = ToolCallFormat::named("hermes").unwrap();
    let reasoning = ReasoningFormat::detect("</think>");
    let required =
        RequiredCalls { calls, tools: &tools, choice: ToolChoice::Function("noop"), open_reasoning: reasoning };
    let compiler = model.compiler();
    let format = required.output_format(&model.tokenizer).unwrap();
    let walks =
        (0..20).filter_map(|seed| model.walk(compiler.compile(&format).unwrap(), &mut Dice(seed), Forced::AtOnce));
    let mut finished = 0;
    for tokens in walks {
        let answer = AnswerFormat { calls: Some(calls), reasoning, tools: Some(&tools), prompt: "<think>\n" };
        let (found, content) = read(&model, &answer, &tokens);
        assert_eq!(found.len(), 1);
        assert!(fits(&found[0].0, &serde_json::from_str(&found[0].1).unwrap()), "{:?}", model.text(&tokens));
        assert_eq!(content, "");
        finished += 1;
    }
    assert!(finished > 0);
}

#[test]
fn control_tokens_of_a_format_reach_the_parser_and_nobody_else() {
    let model = Model::new("gpt-oss", &["<|return|>"]);
    let text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|><|endoftext|>";
    let tokens = model.tokenizer.encode(text, cascadia_text::SpecialTokens::Parse).unwrap();
    let answer = AnswerFormat { calls: ToolCallFormat::named("harmony"), ..AnswerFormat::default() };
    assert_eq!(read(&model, &answer, &tokens), (Vec::new(), "Yes.".to_owned()));
    let mut plain = model.tokenizer.stream_decoder();
    let plain: String = tokens.iter().map(|&token| plain.push(token)).collect();
    assert_eq!(plain, "analysisHm.assistantfinalYes.");
}

#[test]
fn impossible_choices_are_refused() {
    let model = Model::new("qwen2", &["<|im_end|>"]);
    let calls = ToolCallFormat::named("hermes").unwrap();
    for (tools, choice, at) in [
        (json!([]), ToolChoice::Required, "tools"),
        (json!({}), ToolChoice::Required, "tools"),
        (json!([{"function": {"name": "a b"}}]), ToolChoice::Required, "tools[0].function.name"),
        (tools(), ToolChoice::Function("nothing"), "tool_choice"),
    ] {
        let required = RequiredCalls { calls, tools: &tools, choice, open_reasoning: None };
        let error = required.output_format(&model.tokenizer).expect_err(at);
        assert!(matches!(&error, TextError::Messages { at: found, .. } if found == at), "{error}");
    }
}
