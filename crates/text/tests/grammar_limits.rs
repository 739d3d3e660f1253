//! Hostile formats give an error that says what is wrong, never a panic, a hang or memory that stays.

use std::time::{Duration, Instant};

use cascadia_text::{GrammarCompiler, MAX_CHOICES, OutputFormat, TextError, Tokenizer};
use serde_json::{Map, Value, json};

/// What takes longer than this hangs; how long it does take is no business of a test.
const HANG: Duration = Duration::from_secs(60);

fn compiler() -> GrammarCompiler {
    let path = format!("{}/../../fixtures/tokenizers/llama3/tokenizer.json", env!("CARGO_MANIFEST_DIR"));
    let tokenizer = Tokenizer::from_json(&std::fs::read(path).unwrap()).unwrap();
    let end = tokenizer.token_id("<|eot_id|>").unwrap();
    GrammarCompiler::new(&tokenizer, &[end]).unwrap()
}

fn schema(value: Value) -> OutputFormat {
    OutputFormat::JsonSchema(value)
}

fn regex(text: impl Into<String>) -> OutputFormat {
    OutputFormat::Regex(text.into())
}

fn lark(text: impl Into<String>) -> OutputFormat {
    OutputFormat::Lark(text.into())
}

fn around(open: &str, times: usize, inside: &str, close: &str) -> String {
    open.repeat(times) + inside + &close.repeat(times)
}

/// An object with many fields, each made from its number.
fn fields(keyword: &str, count: usize, field: &dyn Fn(usize) -> (String, Value)) -> Value {
    json!({"type": "object", keyword: (0..count).map(field).collect::<Map<_, _>>()})
}

#[test]
fn bad_formats_are_refused_with_a_reason() {
    let compiler = compiler();
    let deep = (0..200).fold(json!({"type": "string"}), |inner, _| json!({"properties": {"a": inner}}));
    let alternatives = |count: usize| {
        let options = |i| (0..8).map(|j| json!({"properties": {format!("a{i}{j}"): {}}, "required": ["a"]})).collect();
        json!({"allOf": (0..count).map(|i| json!({"anyOf": Value::Array(options(i))})).collect::<Vec<_>>()})
    };
    let doubling: String = (0..30).map(|i| format!("A{i}: A{} A{}\n", i + 1, i + 1)).collect();
    let many_optional = fields("properties", 7_000, &|i| (format!("p{i}"), json!({})));
    let patterns = fields("patternProperties", 400, &|i| (format!("^p{i}x(a|b){{0,30}}{i}$"), json!({})));
    for (name, format, word) in [
        ("deep schema", schema(deep), "levels"),
        ("many fields", schema(many_optional), "properties"),
        ("many patterns", schema(patterns), "pattern properties"),
        ("alternatives of alternatives", schema(alternatives(8)), "too large"),
        ("large remainder", schema(json!({"type": "integer", "multipleOf": 999_983})), "multipleOf"),
        ("largest bounds", schema(json!({"type": "integer", "minimum": i64::MIN})), "minimum"),
        ("wrong type", schema(json!({"properties": {"a": {"type": "strnig"}}})), "strnig"),
        ("unknown keyword", schema(json!({"not": {"type": "string"}})), "not"),
        ("contradiction", schema(json!({"type": "integer", "minimum": 5, "maximum": 3})), "minimum"),
        ("nothing", schema(json!(false)), "false"),
        ("number", schema(json!(3)), "object or boolean"),
        ("endless", schema(json!({"$ref": "#"})), "no text"),
        ("over the network", schema(json!({"$ref": "http://localhost/x"})), "localhost"),
        ("from a file", schema(json!({"$ref": "file:///etc/hostname"})), "retriev"),
        ("pattern", schema(json!({"type": "string", "pattern": "(a{1000}){1000}"})), "written out"),
        ("30000 groups", regex(around("(", 30_000, "a", ")")), "levels"),
        ("open group", regex("(a"), "unclosed group"),
        ("look-ahead", regex("(?=a)b"), "look-ahead"),
        ("back reference", regex(r"(a)\1"), "backreferences"),
        ("counted to death", regex("((a{1000}){1000}){1000}"), "written out"),
        ("many options", regex("a?b?".repeat(5_000)), "optional"),
        ("no choice", OutputFormat::Choice(Vec::new()), "empty"),
        ("too many choices", OutputFormat::Choice(vec!["a".into(); MAX_CHOICES + 1]), "entries"),
        ("long choice", OutputFormat::Choice(vec!["x".repeat(200_000)]), "bytes"),
        ("choice that takes much once compiled", OutputFormat::Choice(vec!["x".repeat(90_000)]), "compiled"),
        ("empty grammar", lark(""), "start"),
        ("unknown rule", lark("start: foo\n"), "at 1(8)"),
        ("open string", lark("start: \"a\n"), "1(10)"),
        ("30000 brackets", lark(format!("start: {}", around("(", 30_000, "\"a\"", ")"))), "levels"),
        ("doubling terminals", lark(format!("start: A0\n{doubling}A30: \"x\"\n")), "too big"),
        ("rule of itself", lark("start: start"), "no text"),
        ("unknown token", lark("start: <|nothing|>"), "special token"),
        ("token beyond all", lark("start: <[99999999]>"), "too large"),
        ("schema in a grammar", lark("start: %json {\"multipleOf\": 999983}"), "multipleOf"),
        ("wrong schema in a grammar", lark("start: %json {\"type\": 3}"), "at 1(8)"),
    ] {
        let start = Instant::now();
        let error = compiler.compile(&format).map(|_| ()).expect_err(name);
        let message = error.to_string();
        assert!(message.contains(word), "{name}: {message}");
        assert!(!message.contains("backtrace") && message.len() < 2_000, "{name}: {message}");
        assert!(start.elapsed() < HANG, "{name}");
    }
    assert_eq!(compiler.cached(), 0, "what was refused is not kept");
}

#[test]
fn demanding_formats_work_or_stop_with_an_error() {
    let compiler = compiler();
    let numbers =
        fields("properties", 300, &|i| (format!("n{i}"), json!({"type": "number", "minimum": i as f64 * 1.3})));
    let chain: String = (0..4_000).map(|i| format!("a{i}: a{}\n", i + 1)).collect();
    for (name, format) in [
        ("many numbers", schema(numbers)),
        ("long list", schema(json!({"type": "array", "items": {"type": "string"}, "minItems": 1_000_000}))),
        ("long string", schema(json!({"type": "string", "minLength": 1_000_000}))),
        (
            "many lists",
            schema(json!({"items": {"items": {"items": {}, "maxItems": 900}, "maxItems": 900}, "maxItems": 900})),
        ),
        ("exponential", regex("((a|b)*a(a|b){14}.*){3}")),
        ("long forced text", regex("a{20000}")),
        ("all letters", regex(r"(\p{L}{1,100}\p{N}{1,100}){1,40}")),
        ("nothing at all", OutputFormat::Choice(vec![String::new()])),
        ("chain of rules", lark(format!("start: a0\n{chain}a4000: \"x\"\n"))),
        ("ambiguous", lark("start: start start | \"a\" | ")),
        ("repeated rules", lark("start: ((\"a\" \"b\"){1,50}){1,50}")),
    ] {
        let start = Instant::now();
        let mut constraint = compiler.compile(&format).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(constraint.forced().len() <= 256, "{name}");
        for step in 0..200 {
            let Ok(mask) = constraint.mask() else { break };
            let allowed = mask.tokens();
            assert!(!allowed.is_empty(), "{name}, step {step}");
            constraint.accept(allowed[step * 7_919 % allowed.len()]).map_or_else(
                |error| assert!(matches!(error, TextError::Constraint { .. }), "{name}, step {step}: {error}"),
                |()| (),
            );
            if constraint.must_end() {
                break;
            }
        }
        assert!(start.elapsed() < HANG, "{name}");
    }
}

#[test]
fn a_remembered_format_gives_the_same_masks() {
    let format =
        schema(json!({"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}));
    let remembering = compiler();
    let mut first = remembering.compile(&format).unwrap();
    for step in 0..40 {
        let mut again = remembering.compile(&format).unwrap();
        let mut fresh = compiler().compile(&format).unwrap();
        assert_eq!(again.mask().unwrap().tokens(), fresh.mask().unwrap().tokens());
        let allowed = first.mask().unwrap().tokens();
        let mut copy = first.clone();
        assert_eq!(copy.mask().unwrap().tokens(), allowed);
        first.accept(allowed[step % allowed.len()]).unwrap();
        if first.must_end() {
            break;
        }
    }
}

/// A literal that rules without a choice repeat 65,536 times.
fn doubled(literal: &str) -> OutputFormat {
    let doubling: String = (0..16).map(|i| format!("a{i}: a{} a{}\n", i + 1, i + 1)).collect();
    lark(format!("start: /[xy]/ a0\n{doubling}a16: \"{literal}\"\n"))
}

#[test]
fn long_literals_that_rules_repeat_are_not_forced() {
    let compiler = compiler();
    for (length, is_forced) in [(10, true), (128, true), (129, false), (10_000, false)] {
        let literal = &"the".repeat(length)[..length];
        let mut constraint = compiler.compile(&doubled(literal)).unwrap();
        let first = constraint.mask().unwrap().tokens();
        constraint.accept(first[0]).unwrap();
        assert_eq!(!constraint.forced().is_empty(), is_forced, "{length}");
        let next = constraint.mask().unwrap().tokens();
        assert_eq!(next.len() == 1, is_forced, "{length}: the model chooses among tokens that fit");
        // What rules repeat so often is refused at some point, also where it is forced.
        let accepted = constraint.accept(next[0]);
        assert!(accepted.is_ok() || is_forced, "{length}: {accepted:?}");
    }
}

#[test]
fn a_mask_has_a_limit_on_parser_items() {
    let compiler = compiler();
    let letters: String = ('a'..='z').map(|letter| format!(" | \"{letter}\"")).collect();
    let mut constraint = compiler.compile(&lark(format!("start: start start | \" \"{letters}"))).unwrap();
    let mut before = compiler.work();
    let error = loop {
        let allowed = match constraint.mask() {
            Ok(mask) => mask.tokens(),
            Err(error) => break error,
        };
        let now = compiler.work();
        assert!((now.masks - before.masks, now.items - before.items) <= (1, 10_000), "{before:?} {now:?}");
        before = now;
        constraint.accept(allowed[allowed.len() / 2]).unwrap();
    };
    assert!(error.to_string().contains("Too many items"), "{error}");
}

#[test]
fn answers_that_have_not_begun_share_what_is_compiled() {
    let compiler = compiler();
    let literal = |letter: &str| OutputFormat::Choice(vec![letter.repeat(10_000)]);
    let waiting: Vec<_> = (0..100).map(|_| compiler.compile(&literal("a")).unwrap()).collect();
    let one = compiler.held_bytes();
    assert!(
        one > 0
            && one == {
                compiler.compile(&literal("a")).unwrap();
                compiler.held_bytes()
            }
    );
    // Formats that nobody waits with are held by the cache alone, which is bounded.
    let others = ["b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"];
    let more: Vec<_> = others.iter().map(|letter| compiler.compile(&literal(letter)).unwrap()).collect();
    assert_eq!(compiler.held_bytes(), 13 * one, "each counts once");
    drop((waiting, more));
    assert!(compiler.held_bytes() <= 32 << 20, "{}", compiler.held_bytes());
}
