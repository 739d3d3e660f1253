//! Answers drawn at random from the masks of a format always have that format.

mod walk;

use cascadia_text::{Constraint, FormatWork, GrammarCompiler, OutputFormat, SpecialTokens};
use serde_json::{Value, json};

use walk::{Dice, Forced, Model, models};

/// Every random answer passes, and at least one gets to its end with each tokenizer.
fn check(name: &str, format: OutputFormat, is_right: &dyn Fn(&str) -> bool) {
    for model in models() {
        let compiler = model.compiler();
        let mut finished = 0;
        for seed in 0..12 {
            for forced in [Forced::AtOnce, Forced::OneByOne] {
                let constraint = compiler.compile(&format).unwrap_or_else(|error| panic!("{name}: {error}"));
                if let Some(answer) = model.walk(constraint, &mut Dice(seed), forced) {
                    let text = model.text(&answer);
                    assert!(is_right(&text), "{name}, seed {seed}, {forced:?}: {text:?}");
                    finished += 1;
                }
            }
        }
        assert!(finished > 0, "{name}: no answer came to its end");
        assert_eq!(compiler.cached(), 1, "{name}");
    }
}

fn check_schema(name: &str, schema: Value, is_right: &dyn Fn(&Value) -> bool) {
    let passes = |text: &str| serde_json::from_str(text).is_ok_and(|value: Value| is_right(&value));
    check(name, OutputFormat::JsonSchema(schema), &passes);
}

#[test]
fn any_object() {
    // Numbers may be too large for a parser that wants their value.
    check("object", OutputFormat::JsonObject, &|text| {
        text.starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
    });
}

#[test]
fn schemas_of_scalars() {
    check_schema("enum", json!({"enum": ["red", "green", 3, null]}), &|value| {
        [json!("red"), json!("green"), json!(3), Value::Null].contains(value)
    });
    check_schema("integer", json!({"type": "integer", "minimum": -5, "maximum": 112}), &|value| {
        value.as_i64().is_some_and(|number| (-5..=112).contains(&number))
    });
    check_schema("string", json!({"type": "string", "minLength": 2, "maxLength": 5}), &|value| {
        value.as_str().is_some_and(|text| (2..=5).contains(&text.chars().count()))
    });
    check_schema("pattern", json!({"type": "string", "pattern": "^[A-Z]{2}[0-9]+$"}), &|value| {
        let text = value.as_str().unwrap_or_default();
        text.len() > 2 && text[..2].bytes().all(|b| b.is_ascii_uppercase()) && text[2..].parse::<f64>().is_ok()
    });
}

#[test]
fn schemas_of_objects() {
    let person = json!({
        "type": "object", "additionalProperties": false, "required": ["name", "tags"],
        "properties": {
            "name": {"type": "string", "maxLength": 8},
            "age": {"type": "integer", "minimum": 0},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 3},
        },
    });
    check_schema("person", person, &|value| {
        let keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        let tags = value["tags"].as_array().unwrap();
        value["name"].is_string()
            && keys.iter().all(|key| ["name", "age", "tags"].contains(key))
            && (1..=3).contains(&tags.len())
            && tags.iter().all(|tag| tag == "a" || tag == "b")
            && value.get("age").is_none_or(|age| age.as_f64().is_some_and(|age| age >= 0.0 && age.fract() == 0.0))
    });
    let tree = json!({
        "$ref": "#/$defs/node",
        "$defs": {"node": {
            "type": "object", "required": ["leaf"], "additionalProperties": false,
            "properties": {"leaf": {"type": "boolean"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
        }},
    });
    fn is_tree(value: &Value) -> bool {
        value["leaf"].is_boolean() && value.get("next").is_none_or(|next| next.is_null() || is_tree(next))
    }
    check_schema("tree", tree, &is_tree);
}

#[test]
fn expressions_and_grammars() {
    check("expression", OutputFormat::Regex(r"^(\d{3}-)?[a-f]+/é$".into()), &|text| {
        let rest = text.strip_suffix("/é").unwrap_or("!");
        let rest = rest.split_once('-').map_or(rest, |(digits, rest)| if digits.len() == 3 { rest } else { "!" });
        !rest.is_empty() && rest.chars().all(|c| ('a'..='f').contains(&c))
    });
    let sums = "start: NUMBER (\" + \" NUMBER)*\nNUMBER: /[0-9]{1,3}/\n";
    check("grammar", OutputFormat::Lark(sums.into()), &|text| {
        text.split(" + ").all(|number| number.len() <= 3 && number.parse::<u32>().is_ok())
    });
    let embedded = "start: \"call \" %json {\"type\": \"array\", \"items\": {\"const\": 1}} \"!\"";
    check("JSON in a grammar", OutputFormat::Lark(embedded.into()), &|text| {
        let inner = text.strip_prefix("call ").and_then(|rest| rest.strip_suffix('!')).unwrap_or_default();
        serde_json::from_str::<Vec<u8>>(inner).is_ok_and(|list| list.iter().all(|&one| one == 1))
    });
}

#[test]
fn every_choice_can_come() {
    let choices: Vec<String> = ["yes", "yes, but", "no", "say \"\u{7f}\\ü\n\"", "<|eot_id|>"].map(Into::into).to_vec();
    check("choice", OutputFormat::Choice(choices.clone()), &|text| choices.iter().any(|choice| choice == text));
    for model in models() {
        let (compiler, tokenizer) = (model.compiler(), &model.tokenizer);
        for choice in &choices {
            let mut constraint = compiler.compile(&OutputFormat::Choice(choices.clone())).unwrap();
            for byte in choice.bytes() {
                let single = (0..tokenizer.vocabulary_size() as u32)
                    .find(|&id| tokenizer.token_bytes(id) == Some(&[byte]) && constraint.clone().accept(id).is_ok());
                constraint.accept(single.expect("a token for every byte")).unwrap();
            }
            assert!(constraint.may_end(), "{choice:?}");
        }
    }
}

#[test]
fn text_never_becomes_a_control_token() {
    let Model { tokenizer, ends } = models().swap_remove(0);
    let compiler = GrammarCompiler::new(&tokenizer, &ends).unwrap();
    let mut constraint = compiler.compile(&OutputFormat::JsonSchema(json!({"type": "string"}))).unwrap();
    for token in tokenizer.encode("\"", SpecialTokens::Plain).unwrap() {
        constraint.accept(token).unwrap();
    }
    for name in ["<|eot_id|>", "<|begin_of_text|>", "<|end_of_text|>"] {
        let token = tokenizer.token_id(name).unwrap();
        assert!(!constraint.mask().unwrap().allows(token), "{name}");
        assert!(constraint.accept(token).is_err(), "{name}");
        assert!(constraint.mask().is_ok(), "a refused token changes nothing");
    }
}

#[test]
fn forced_tokens_are_the_tokenizers_own() {
    for model in models() {
        let (compiler, tokenizer) = (model.compiler(), &model.tokenizer);
        let text = "the number of the day is 12";
        let mut constraint = compiler.compile(&OutputFormat::Choice(vec![text.into()])).unwrap();
        let forced = constraint.forced();
        assert!(!forced.is_empty(), "{tokenizer:?}");
        let mut one_by_one = constraint.clone();
        for &token in &forced {
            assert_eq!(one_by_one.mask().unwrap().tokens(), [token], "{tokenizer:?}");
            one_by_one.accept(token).unwrap();
            constraint.accept(token).unwrap();
        }
        let bytes: Vec<u8> = forced.iter().flat_map(|&id| tokenizer.token_bytes(id).unwrap().to_vec()).collect();
        assert!(text.as_bytes().starts_with(&bytes), "{tokenizer:?}");
        let plain = tokenizer.encode(text, SpecialTokens::Plain).unwrap();
        if tokenizer.token_bytes(plain[0]).is_some_and(|bytes| !bytes.starts_with(b" ")) {
            assert!(plain.starts_with(&forced), "{tokenizer:?}: {forced:?} {plain:?}");
        }
    }
}

#[test]
fn the_end_is_allowed_exactly_when_the_format_is_complete() {
    let Model { tokenizer, ends } = models().swap_remove(0);
    let compiler = GrammarCompiler::new(&tokenizer, &ends).unwrap();
    let mut constraint = compiler.compile(&OutputFormat::Regex("ab?".into())).unwrap();
    let token = |text: &str| tokenizer.encode(text, SpecialTokens::Plain).unwrap()[0];
    let ends_allowed = |constraint: &mut Constraint| {
        ends.iter().map(|&end| constraint.mask().unwrap().allows(end)).collect::<Vec<_>>()
    };
    assert!(!constraint.may_end() && !constraint.must_end());
    assert_eq!(ends_allowed(&mut constraint), [false, false]);
    constraint.accept(token("a")).unwrap();
    assert!(constraint.may_end() && !constraint.must_end());
    assert_eq!(ends_allowed(&mut constraint), [true, true]);
    let mut ended = constraint.clone();
    ended.accept(ends[1]).unwrap();
    assert!(ended.must_end());
    assert!(ended.accept(ends[1]).is_err());
    constraint.accept(token("b")).unwrap();
    assert!(constraint.must_end() && constraint.may_end());
    assert_eq!(
        constraint.mask().unwrap().tokens(),
        ends.iter().copied().collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    );
    assert!(constraint.accept(token("b")).is_err() && constraint.accept(u32::MAX).is_err());
    constraint.accept(ends[0]).unwrap();
}

#[test]
fn a_mask_leaves_the_scores_of_its_tokens_alone() {
    let Model { tokenizer, ends } = models().swap_remove(0);
    let compiler = GrammarCompiler::new(&tokenizer, &ends).unwrap();
    for format in [OutputFormat::JsonObject, OutputFormat::Regex("[^a]*".into())] {
        let mut constraint = compiler.compile(&format).unwrap();
        let mask = constraint.mask().unwrap();
        let mut logits: Vec<f32> = (0..tokenizer.vocabulary_size() + 77).map(|id| id as f32).collect();
        mask.apply(&mut logits);
        for (id, &score) in logits.iter().enumerate() {
            let expected = if mask.allows(id as u32) { id as f32 } else { f32::NEG_INFINITY };
            assert_eq!(score, expected, "token {id}");
        }
        assert_eq!(mask.count(), logits.iter().filter(|score| score.is_finite()).count());
    }
}

/// A text without repetitions that all tokenizers divide differently.
fn long_text(bytes: usize) -> String {
    (0..)
        .map(|number| format!("{number} is not {}; ", number * 7 + 3))
        .flat_map(|s| s.into_bytes())
        .take(bytes)
        .map(char::from)
        .collect()
}

/// Accepts tokens until the answer ends, as a service does: forced tokens are looked at before every step, a few are
/// taken, one is sampled. Returns the answer and its work.
fn generate(compiler: &GrammarCompiler, constraint: &mut Constraint) -> (Vec<u32>, FormatWork) {
    let (before, mut answer) = (compiler.work(), Vec::new());
    while !constraint.must_end() {
        let drafts = constraint.forced();
        for draft in drafts.iter().take(3) {
            assert_eq!(constraint.mask().unwrap().tokens(), [*draft]);
            constraint.accept(*draft).unwrap();
            answer.push(*draft);
        }
        if drafts.is_empty() {
            let token = constraint.mask().unwrap().tokens()[0];
            constraint.accept(token).unwrap();
            answer.push(token);
        }
    }
    let after = compiler.work();
    let work = FormatWork {
        tokens: after.tokens - before.tokens,
        masks: after.masks - before.masks,
        items: after.items - before.items,
        tokenized_bytes: after.tokenized_bytes - before.tokenized_bytes,
    };
    (answer, work)
}

#[test]
fn a_long_forced_text_is_tokenised_about_once() {
    for model in models() {
        let compiler = model.compiler();
        for text in [long_text(12_000), "a".repeat(12_000), "ü€ ".repeat(2_000)] {
            let format = OutputFormat::Choice(vec![text.clone()]);
            let (answer, work) = generate(&compiler, &mut compiler.compile(&format).unwrap());
            assert_eq!(model.text(&answer), text);
            assert_eq!(work.tokens, answer.len() as u64);
            let bytes = text.len() as u64;
            assert!(
                work.tokenized_bytes <= 4 * bytes,
                "{} of {bytes} bytes, {:?}",
                work.tokenized_bytes,
                model.tokenizer
            );
        }
    }
}
