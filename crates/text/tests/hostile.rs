//! Hostile vocabularies and tokenizer files give an error or a working tokenizer, never a panic or a hang.

use std::time::{Duration, Instant};

use cascadia_text::{SpecialTokens, TextError, Tokenizer, Vocabulary};
use proptest::prelude::*;
use serde_json::{Value, json};

/// What takes longer than this hangs; how long it does take is no business of a test.
const HANG: Duration = Duration::from_secs(60);

const TEXT: &str = "hello wörld <s> <0x41> 🙂\n\u{0} ▁▁ aaaaaaaaaaaaaaaaaa";

fn vocabulary(model: &str, tokens: &[&str]) -> Vocabulary {
    Vocabulary {
        model: model.into(),
        tokens: tokens.iter().map(|token| token.as_bytes().to_vec()).collect(),
        scores: vec![0.0; tokens.len()],
        types: vec![1; tokens.len()],
        add_space_prefix: true,
        ..Vocabulary::default()
    }
}

/// Uses a tokenizer in every way; an error from `encode` is fine.
fn exercise(tokenizer: &Tokenizer) {
    let start = Instant::now();
    for special in [SpecialTokens::Parse, SpecialTokens::Plain] {
        for text in ["", TEXT] {
            if let Ok(ids) = tokenizer.encode(text, special) {
                tokenizer.decode(&ids);
                assert!(ids.iter().all(|&id| tokenizer.token_bytes(id).is_some()));
            }
        }
    }
    let ids: Vec<u32> = (0..tokenizer.vocabulary_size().min(600) as u32).chain([u32::MAX]).collect();
    let mut decoder = tokenizer.stream_decoder();
    let streamed: String = ids.iter().map(|&id| decoder.push(id)).collect::<String>() + &decoder.finish();
    assert_eq!(streamed, String::from_utf8_lossy(&tokenizer.decode(&ids)));
    tokenizer.token_id("<s>");
    assert!(start.elapsed() < HANG);
}

fn refused(vocabulary: &Vocabulary) -> TextError {
    Tokenizer::from_vocabulary(vocabulary).expect_err("a hostile vocabulary")
}

#[test]
fn malformed_vocabularies_are_refused() {
    let good = vocabulary("llama", &["<unk>", "a", "<0x41>"]);
    Tokenizer::from_vocabulary(&good).unwrap();
    for name in ["<0x-1>", "<0xZZ>", "<0x>", "<0x100>", "<0x+1>", "", "a"] {
        for model in ["llama", "gpt2"] {
            let bad = Vocabulary { types: vec![6], ..vocabulary(model, &[name]) };
            assert!(matches!(refused(&bad), TextError::Vocabulary { index: 0, .. }), "{name}");
        }
    }
    for (what, bad) in [
        ("no tokens", vocabulary("llama", &[])),
        ("no byte-level tokens", vocabulary("gpt2", &[])),
        ("types too short", Vocabulary { types: vec![1], ..good.clone() }),
        ("types too long", Vocabulary { types: vec![1; 9], ..good.clone() }),
        ("unknown type", Vocabulary { types: vec![1, 77, 1], ..good.clone() }),
        ("negative type", Vocabulary { types: vec![1, i32::MIN, 1], ..good.clone() }),
        ("scores too short", Vocabulary { scores: vec![1.0], ..good.clone() }),
        ("no scores", Vocabulary { scores: vec![], ..good.clone() }),
        ("NaN", Vocabulary { scores: vec![0.0, f32::NAN, 0.0], ..good.clone() }),
        ("infinity", Vocabulary { scores: vec![0.0, f32::INFINITY, 0.0], ..good.clone() }),
        (
            "one huge token",
            Vocabulary { tokens: vec![b"a".to_vec(), vec![b'x'; 1 << 20], b"b".to_vec()], ..good.clone() },
        ),
        ("unknown model", vocabulary("bert", &["a"])),
        ("merge of unknown tokens", Vocabulary { merges: vec!["x y".into()], ..vocabulary("gpt2", &["a"]) }),
        ("merge into an unknown token", Vocabulary { merges: vec!["a b".into()], ..vocabulary("gpt2", &["a", "b"]) }),
        ("merge without a space", Vocabulary { merges: vec!["ab".into()], ..vocabulary("gpt2", &["a", "b", "ab"]) }),
        ("empty merge", Vocabulary { merges: vec![String::new()], ..vocabulary("gpt2", &["a"]) }),
        ("too many control tokens", Vocabulary { types: vec![3; 70_000], ..vocabulary("gpt2", &vec!["<x>"; 70_000]) }),
    ] {
        let message = refused(&bad).to_string();
        assert!(message.contains(';'), "{what}: the message says what to do: {message}");
    }
}

#[test]
fn odd_vocabularies_work() {
    let odd = [
        ("duplicates", vocabulary("llama", &["a", "a", "h", "h", "<unk>"])),
        ("empty tokens", vocabulary("llama", &["", "", "a"])),
        (
            "unknown id beyond the vocabulary",
            Vocabulary { unknown_token: Some(u32::MAX), ..vocabulary("llama", &["a"]) },
        ),
        ("all unknown", Vocabulary { types: vec![2; 2], ..vocabulary("llama", &["a", "b"]) }),
        ("all unused", Vocabulary { types: vec![5; 3], ..vocabulary("llama", &["a", "aa", "aaaa"]) }),
        ("all user-defined", Vocabulary { types: vec![4; 3], ..vocabulary("llama", &["a", "", "▁"]) }),
        ("all control", Vocabulary { types: vec![3; 3], ..vocabulary("gpt2", &["a", "", "hello"]) }),
        ("not UTF-8", Vocabulary { tokens: vec![vec![0xFF, 0xC3], vec![0x80]], ..vocabulary("llama", &["", ""]) }),
        (
            "not UTF-8, byte-level",
            Vocabulary { tokens: vec![vec![0xFF, 0xC3], vec![0x80]], ..vocabulary("gpt2", &["", ""]) },
        ),
        ("pieces with merges", Vocabulary { merges: vec!["a a".into()], ..vocabulary("gemma4", &["a", "aa", "▁"]) }),
        ("pieces, all control", Vocabulary { types: vec![3; 3], ..vocabulary("gemma4", &["a", "", "hello"]) }),
        ("a merge twice", Vocabulary { merges: vec!["a a".into(), "a a".into()], ..vocabulary("gpt2", &["a", "aa"]) }),
        ("no types", Vocabulary { types: vec![], ..vocabulary("llama", &["<0x68>", "<0x-1>", "a"]) }),
    ];
    for (what, vocabulary) in odd {
        let tokenizer = Tokenizer::from_vocabulary(&vocabulary).unwrap_or_else(|error| panic!("{what}: {error}"));
        exercise(&tokenizer);
    }
}

#[test]
fn long_repetitive_text_is_tokenised_quickly() {
    let doubling: Vec<String> = (0..12).map(|power| "a".repeat(1 << power)).collect();
    let tokens: Vec<&str> = doubling.iter().map(String::as_str).collect();
    let mut vocabulary = vocabulary("llama", &tokens);
    vocabulary.add_space_prefix = false;
    vocabulary.scores = (0..12).map(|index| index as f32).collect();
    let tokenizer = Tokenizer::from_vocabulary(&vocabulary).unwrap();
    let text = "a".repeat(1_000_001);
    let start = Instant::now();
    let ids = tokenizer.encode(&text, SpecialTokens::Plain).unwrap();
    assert!(start.elapsed() < HANG, "{:?}", start.elapsed());
    assert_eq!(tokenizer.decode(&ids), text.as_bytes());
    let too_long = "a".repeat(cascadia_text::MAX_TEXT_BYTES + 1);
    assert!(matches!(tokenizer.encode(&too_long, SpecialTokens::Plain), Err(TextError::TooLarge { .. })));
}

#[test]
fn whole_word_lookup_does_not_forge_control_tokens() {
    let mut json = tokenizer_json();
    json["model"] =
        json!({"type": "BPE", "ignore_merges": true, "merges": [], "vocab": {"P": 0, "A": 1, "D": 2, "PAD": 3}});
    json["added_tokens"] = json!([{"id": 3, "content": "PAD", "special": true}]);
    let tokenizer = Tokenizer::from_json(json.to_string().as_bytes()).unwrap();
    assert_eq!(tokenizer.encode("PAD", SpecialTokens::Parse).unwrap(), [3]);
    assert_eq!(tokenizer.encode("PAD", SpecialTokens::Plain).unwrap(), [0, 1, 2]);
}

fn tokenizer_json() -> Value {
    json!({
        "added_tokens": [{"id": 3, "content": "<s>", "special": true}],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
    })
}

fn with(pointer: &str, value: Value) -> String {
    let mut json = tokenizer_json();
    *json.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
    json.to_string()
}

fn assert_refused(what: &str, json: &str) {
    let start = Instant::now();
    let result = Tokenizer::from_json(json.as_bytes());
    let error = result.err().unwrap_or_else(|| panic!("{what} must be refused"));
    assert!(error.to_string().len() < 1000, "{what}: {error}");
    assert!(start.elapsed() < HANG, "{what} took {:?}", start.elapsed());
}

#[test]
fn malformed_tokenizer_files_are_refused() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for (what, json) in [
        ("empty", String::new()),
        ("not JSON", "{".into()),
        ("an array", "[]".into()),
        ("null", "null".into()),
        ("no model", "{}".into()),
        ("deep", nested(100_000)),
        ("deep inside", format!("{{\"model\": {}}}", nested(100_000))),
        ("huge id", with("/model/vocab", json!({"a": 4_294_967_295_u32}))),
        ("id beyond 32 bits", with("/model/vocab", json!({"a": 1_u64 << 40}))),
        ("negative id", with("/model/vocab", json!({"a": -1}))),
        ("float id", with("/model/vocab", json!({"a": 1.5}))),
        ("shared id", with("/model/vocab", json!({"a": 0, "b": 0}))),
        ("huge added id", with("/added_tokens", json!([{"id": 4_294_967_295_u32, "content": "x"}]))),
        ("huge token", with("/model/vocab", json!({"x".repeat(1 << 20): 0}))),
        ("merge of unknown tokens", with("/model/merges", json!(["x y"]))),
        ("merge without a space", with("/model/merges", json!(["ab"]))),
        ("merge with two spaces", with("/model/merges", json!(["a b c"]))),
        ("merge triple", with("/model/merges", json!([["a", "b", "c"]]))),
        ("merge number", with("/model/merges", json!([1]))),
        ("unknown token missing", with("/model", json!({"type": "BPE", "vocab": {}, "merges": [], "unk_token": "x"}))),
        (
            "subword prefix",
            with(
                "/model",
                json!({"type": "BPE", "vocab": {"a": 0, "é": 1}, "merges": [["a", "é"]], "continuing_subword_prefix": "#"}),
            ),
        ),
        ("unigram", with("/model", json!({"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 99}))),
        ("word level", with("/model", json!({"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}))),
    ] {
        assert_refused(what, &json);
    }
    Tokenizer::from_json(tokenizer_json().to_string().as_bytes()).unwrap();
}

#[test]
fn malformed_steps_are_refused() {
    let split =
        |regex: &str| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
    for (what, json) in [
        ("bad regex", with("/pre_tokenizer", split("("))),
        ("long regex", with("/pre_tokenizer", split(&"a".repeat(10_000)))),
        ("deep regex", with("/pre_tokenizer", split(&format!("{}a{}", "(".repeat(1900), ")".repeat(1900))))),
        ("huge repetition", with("/pre_tokenizer", split(r"(?:(?:\p{L}{1000}){1000}){1000}"))),
        ("huge fancy repetition", with("/pre_tokenizer", split(r"(?:(?:(?=a)\p{L}{1000}){1000}){1000}"))),
        ("unknown pre-tokenizer", with("/pre_tokenizer", json!({"type": "FixedLength", "length": 0}))),
        ("many steps", with("/pre_tokenizer", json!({"type": "Sequence", "pretokenizers": vec![split("a"); 1000]}))),
        (
            "byte level again and again",
            with(
                "/pre_tokenizer",
                json!({"type": "Sequence", "pretokenizers": vec![tokenizer_json()["pre_tokenizer"].clone(); 9]}),
            ),
        ),
        (
            "regex normalizer",
            with("/normalizer", json!({"type": "Replace", "pattern": {"Regex": "a*"}, "content": "b"})),
        ),
        ("empty pattern", with("/normalizer", json!({"type": "Replace", "pattern": {"String": ""}, "content": "b"}))),
        (
            "long insertion",
            with("/normalizer", json!({"type": "Replace", "pattern": {"String": "a"}, "content": "b".repeat(1 << 20)})),
        ),
        ("precompiled", with("/normalizer", json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"}))),
        ("unknown decoder", with("/decoder", json!({"type": "CTC"}))),
        (
            "strip decoder",
            with(
                "/decoder",
                json!({"type": "Strip", "content": " ", "start": 0, "stop": 18_446_744_073_709_551_615_u64}),
            ),
        ),
        (
            "too many added tokens",
            with("/added_tokens", (0..70_000).map(|id| json!({"id": id, "content": format!("<{id}>")})).collect()),
        ),
    ] {
        assert_refused(what, &json);
    }
}

#[test]
fn regular_expressions_cannot_hang() {
    for regex in ["(a+)+$", "(?=(a+)+b)c", "(a|aa)+(?=b)", "(?:a*)*(?!a)b", "(?<=(a)|b)(a*)*\\2$", ""] {
        let split = json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
        if let Ok(tokenizer) = Tokenizer::from_json(with("/pre_tokenizer", split).as_bytes()) {
            let start = Instant::now();
            let _ = tokenizer.encode(&"a".repeat(3000), SpecialTokens::Plain);
            assert!(start.elapsed() < HANG, "{regex} took {:?}", start.elapsed());
        }
    }
}

#[test]
fn normalizers_cannot_blow_up_the_text() {
    let replace = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaaaaaaaa"});
    let json = with("/normalizer", json!({"type": "Sequence", "normalizers": vec![replace; 12]}));
    let tokenizer = Tokenizer::from_json(json.as_bytes()).unwrap();
    assert!(matches!(tokenizer.encode("aaaa", SpecialTokens::Plain), Err(TextError::Encode { .. })));
}

proptest! {
    #[test]
    fn random_vocabularies_never_panic(
        model in prop::sample::select(vec!["llama", "gpt2", "gemma4"]),
        pre in prop::sample::select(vec!["gpt-2", "llama-bpe", "qwen2", "tekken", "smollm"]),
        tokens in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..4),
            "[ab▁Ġ<>h ]{0,4}".prop_map(String::into_bytes),
            "<0x[0-9A-Z-]{0,3}>".prop_map(String::into_bytes),
        ], 0..30),
        types in prop::collection::vec(0..8_i32, 0..30),
        scores in prop::collection::vec(any::<f32>(), 0..30),
        merges in prop::collection::vec("[ab h]{0,5}", 0..5),
        unknown_token in any::<Option<u32>>(),
        fit in any::<bool>(),
    ) {
        let (mut types, mut scores) = (types, scores);
        if fit {
            types.resize(tokens.len(), 1);
            scores.resize(tokens.len(), 0.0);
            types.iter_mut().for_each(|kind| *kind = 1 + (*kind).rem_euclid(5));
            scores.iter_mut().for_each(|score| *score = if score.is_finite() { *score } else { 1.0 });
        }
        let vocabulary = Vocabulary { model: model.into(), pre: Some(pre.into()), tokens, scores, types, merges, strip_right: false, add_space_prefix: fit, unknown_token };
        if let Ok(tokenizer) = Tokenizer::from_vocabulary(&vocabulary) {
            exercise(&tokenizer);
        }
    }

    #[test]
    fn damaged_tokenizer_files_never_panic(position in 0_usize..600, byte in any::<u8>(), cut in any::<bool>()) {
        let mut json = tokenizer_json().to_string().into_bytes();
        let position = position % json.len();
        if cut { json.truncate(position) } else { json[position] = byte }
        if let Ok(tokenizer) = Tokenizer::from_json(&json) {
            exercise(&tokenizer);
        }
    }
}
