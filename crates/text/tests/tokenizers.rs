//! Compares token ids with those of `sentencepiece`, and checks what holds for every tokenizer.

use cascadia_text::{SpecialTokens, Tokenizer, Vocabulary};
use serde_json::Value;

fn read(name: &str) -> Value {
    let path = format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn list<T: serde::de::DeserializeOwned>(value: &Value) -> Vec<T> {
    serde_json::from_value(value.clone()).expect("a list in the test data")
}

fn vocabulary(model: &str, data: &Value) -> Vocabulary {
    let entries = &data["vocabulary"];
    let list_or_empty =
        |key: &str| if entries[key].is_null() { Value::Array(Vec::new()) } else { entries[key].clone() };
    Vocabulary {
        model: model.into(),
        pre: data["pre"].as_str().map(str::to_owned),
        tokens: list::<String>(&entries["tokens"]).into_iter().map(String::into_bytes).collect(),
        scores: list(&list_or_empty("scores")),
        types: list(&list_or_empty("types")),
        merges: list(&list_or_empty("merges")),
        add_space_prefix: data["add_space_prefix"].as_bool().unwrap_or(false),
        strip_right: false,
        unknown_token: None,
    }
}

fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/../../fixtures/tokenizers/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn strings() -> Vec<String> {
    serde_json::from_slice(&fixture("strings.json")).unwrap()
}

fn tokenizer(kind: &str) -> Tokenizer {
    Tokenizer::from_json(&fixture(&format!("{kind}/tokenizer.json"))).unwrap()
}

fn text(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    String::from_utf8_lossy(&tokenizer.decode(ids)).into_owned()
}

#[test]
fn sentencepiece_models_agree_with_sentencepiece() {
    let strings: Vec<String> = strings();
    for name in ["prefix", "bare", "symbols"] {
        let data = read(&format!("sentencepiece-{name}.json"));
        let tokenizer = Tokenizer::from_vocabulary(&vocabulary("llama", &data)).unwrap();
        let (ids, decoded): (Vec<Vec<u32>>, Vec<String>) = (list(&data["ids"]), list(&data["decoded"]));
        assert_eq!(tokenizer.kind(), "SentencePiece BPE");
        for (index, string) in strings.iter().enumerate() {
            let name = format!("{name}, string {index}: {string:?}");
            assert_eq!(tokenizer.encode(string, SpecialTokens::Plain).unwrap(), ids[index], "{name}");
            if !decoded[index].contains('⁇') {
                assert_eq!(text(&tokenizer, &ids[index]), decoded[index], "{name}");
            }
        }
    }
}

#[test]
fn control_tokens_cannot_be_forged_in_plain_text() {
    let piece = read("sentencepiece-prefix.json");
    for (tokenizer, names) in [
        (tokenizer("qwen2"), ["<|im_end|>", "<|im_start|>", "<tool_call>"]),
        (tokenizer("kimi-k2"), ["[EOS]", "<|im_end|>", "<|im_user|>"]),
        (tokenizer("gemma"), ["<bos>", "<end_of_turn>", "<start_of_turn>"]),
        (Tokenizer::from_vocabulary(&vocabulary("llama", &piece)).unwrap(), ["<s>", "</s>", "<unk>"]),
    ] {
        for name in names {
            let id = tokenizer.token_id(name).unwrap();
            assert_eq!(tokenizer.token_bytes(id), Some(name.as_bytes()));
            for text in [name.to_owned(), format!("a{name}b"), format!(" {name} "), format!("{name}{name}")] {
                let plain = tokenizer.encode(&text, SpecialTokens::Plain).unwrap();
                let parsed = tokenizer.encode(&text, SpecialTokens::Parse).unwrap();
                assert!(!plain.contains(&id), "{text}: {plain:?}");
                assert!(parsed.contains(&id), "{text}: {parsed:?}");
                assert_eq!(tokenizer.decode(&plain), text.as_bytes(), "{text}");
            }
        }
    }
}

#[test]
fn special_tokens_are_not_decoded() {
    let tokenizer = tokenizer("qwen2");
    let ids = tokenizer.encode("<|im_start|>hi<|im_end|>", SpecialTokens::Parse).unwrap();
    assert_eq!(text(&tokenizer, &ids), "hi");
    assert_eq!(tokenizer.decode(&[u32::MAX, 1 << 20]), b"");
    assert_eq!(tokenizer.token_bytes(u32::MAX), None);
    assert_eq!(tokenizer.vocabulary_size(), 467);
}

/// The tokenizer of a real model, which lies beside the repository and not in it.
#[test]
fn rainier_agrees_with_python_if_it_is_here() {
    let path = format!("{}/../../../shared/models/rainier-33m/tokenizer.json", env!("CARGO_MANIFEST_DIR"));
    let Ok(json) = std::fs::read(&path) else {
        eprintln!("skipped: {path} is not here");
        return;
    };
    let tokenizer = Tokenizer::from_json(&json).unwrap();
    let (strings, ids): (Vec<String>, Vec<Vec<u32>>) = (strings(), list(&read("rainier-ids.json")));
    for (string, ids) in strings.iter().zip(&ids) {
        assert_eq!(tokenizer.encode(string, SpecialTokens::Parse).unwrap(), *ids, "{string:?}");
    }
}
