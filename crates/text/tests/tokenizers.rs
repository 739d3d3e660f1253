//! Compares token ids with those of the Python packages `tokenizers` and `sentencepiece`.

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
        unknown_token: None,
    }
}

fn text(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    String::from_utf8_lossy(&tokenizer.decode(ids)).into_owned()
}

#[test]
fn byte_level_tokenizers_agree_with_python() {
    let strings: Vec<String> = list(&read("strings.json"));
    for pre in ["gpt-2", "llama-bpe", "qwen2", "tekken", "smollm"] {
        let data = read(&format!("byte-level-{pre}.json"));
        let json = serde_json::to_vec(&data["json"]).unwrap();
        let from_json = Tokenizer::from_json(&json).unwrap_or_else(|error| panic!("{pre}: {error}"));
        let from_vocabulary = Tokenizer::from_vocabulary(&vocabulary("gpt2", &data)).unwrap();
        let (parsed, plain): (Vec<Vec<u32>>, Vec<Vec<u32>>) = (list(&data["parsed"]), list(&data["plain"]));
        let decoded: Vec<String> = list(&data["decoded"]);
        for (source, tokenizer) in [("tokenizer.json", &from_json), ("vocabulary", &from_vocabulary)] {
            assert_eq!(tokenizer.kind(), "byte-level BPE");
            for (index, string) in strings.iter().enumerate() {
                let name = format!("{pre} from {source}, string {index}: {string:?}");
                assert_eq!(tokenizer.encode(string, SpecialTokens::Parse).unwrap(), parsed[index], "{name}");
                assert_eq!(tokenizer.encode(string, SpecialTokens::Plain).unwrap(), plain[index], "{name}");
                assert_eq!(text(tokenizer, &parsed[index]), decoded[index], "{name}");
                if pre != "qwen2" {
                    assert_eq!(text(tokenizer, &plain[index]), *string, "round trip, {name}");
                }
            }
        }
    }
}

#[test]
fn sentencepiece_models_agree_with_sentencepiece() {
    let strings: Vec<String> = list(&read("strings.json"));
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
fn a_sentencepiece_style_tokenizer_json_agrees_with_python() {
    let strings: Vec<String> = list(&read("strings.json"));
    let data = read("byte-fallback.json");
    let tokenizer = Tokenizer::from_json(&serde_json::to_vec(&data["json"]).unwrap()).unwrap();
    let (parsed, decoded): (Vec<Vec<u32>>, Vec<String>) = (list(&data["parsed"]), list(&data["decoded"]));
    assert_eq!(tokenizer.kind(), "SentencePiece BPE");
    for (index, string) in strings.iter().enumerate() {
        assert_eq!(tokenizer.encode(string, SpecialTokens::Parse).unwrap(), parsed[index], "{string:?}");
        assert_eq!(text(&tokenizer, &parsed[index]), decoded[index], "{string:?}");
    }
}

#[test]
fn control_tokens_cannot_be_forged_in_plain_text() {
    let byte_level = read("byte-level-llama-bpe.json");
    let json = serde_json::to_vec(&byte_level["json"]).unwrap();
    let piece = read("sentencepiece-prefix.json");
    for (tokenizer, names) in [
        (Tokenizer::from_json(&json).unwrap(), ["<|end|>", "<|begin|>", "<tool>"]),
        (Tokenizer::from_vocabulary(&vocabulary("gpt2", &byte_level)).unwrap(), ["<|end|>", "<|user|>", "<tool>"]),
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
    let data = read("byte-level-gpt-2.json");
    let tokenizer = Tokenizer::from_vocabulary(&vocabulary("gpt2", &data)).unwrap();
    let ids = tokenizer.encode("<|user|>hi<|end|>", SpecialTokens::Parse).unwrap();
    assert_eq!(text(&tokenizer, &ids), "hi");
    assert_eq!(tokenizer.decode(&[u32::MAX, 1 << 20]), b"");
    assert_eq!(tokenizer.token_bytes(u32::MAX), None);
    assert_eq!(tokenizer.vocabulary_size(), data["vocabulary"]["tokens"].as_array().unwrap().len());
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
    let (strings, ids): (Vec<String>, Vec<Vec<u32>>) = (list(&read("strings.json")), list(&read("rainier-ids.json")));
    for (string, ids) in strings.iter().zip(&ids) {
        assert_eq!(tokenizer.encode(string, SpecialTokens::Parse).unwrap(), *ids, "{string:?}");
    }
}
