//! Compares token ids of every kind of vocabulary, from tokenizer.json and from GGUF, with the `tokenizers` package.

use std::path::{Path, PathBuf};

use cascadia_engine::ModelText;
use cascadia_text::{SpecialTokens, Tokenizer};
use cascadia_weights::ModelFiles;
use serde_json::{Value, json};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tokenizers")
}

fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn kinds() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(fixtures()).unwrap();
    let folders = entries.map(|entry| entry.unwrap().path()).filter(|path| path.join("ids.json").exists());
    folders.collect()
}

/// Encoders have no GGUF file.
fn from_gguf(folder: &Path) -> Option<ModelText> {
    let path = folder.join("vocabulary.gguf");
    let files = path.exists().then(|| ModelFiles::open(&path).unwrap())?;
    Some(ModelText::read(&files).unwrap_or_else(|error| panic!("{}: {error}", folder.display())))
}

/// Compares plain ids of all strings, and parsed ids of those in which names of special tokens make a difference.
fn check(name: &str, tokenizer: &Tokenizer, strings: &[String], expected: &Value) {
    for (index, string) in strings.iter().enumerate() {
        let plain = &expected["plain"][index];
        let parsed = expected["parsed"].get(index.to_string()).unwrap_or(plain);
        for (special, ids) in [(SpecialTokens::Plain, plain), (SpecialTokens::Parse, parsed)] {
            let found = tokenizer.encode(string, special).unwrap();
            assert!(tokenizer.least_tokens(string) <= found.len(), "{name}, string {index}: {string:?}");
            assert_eq!(serde_json::to_value(&found).unwrap(), *ids, "{name}, {special:?}, string {index}: {string:?}");
        }
    }
}

#[test]
fn every_kind_agrees_with_python_from_both_files() {
    let strings: Vec<String> = serde_json::from_value(read(&fixtures().join("strings.json"))).unwrap();
    assert!(kinds().len() >= 23);
    for folder in kinds() {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let ids = read(&folder.join("ids.json"));
        let expected = |source: &str| ids.get("both").unwrap_or(&ids[source]);
        let json = Tokenizer::from_json(&std::fs::read(folder.join("tokenizer.json")).unwrap()).unwrap();
        check(&format!("{name} from tokenizer.json"), &json, &strings, expected("tokenizer.json"));
        if let Some(gguf) = from_gguf(&folder) {
            check(&format!("{name} from GGUF"), gguf.tokenizer(), &strings, expected("vocabulary.gguf"));
        }
    }
}

#[test]
fn encoders_enclose_texts_as_python_does() {
    let strings: Vec<String> = serde_json::from_value(read(&fixtures().join("strings.json"))).unwrap();
    for kind in ["bert", "xlm-r"] {
        let folder = fixtures().join(kind);
        let tokenizer = Tokenizer::from_json(&std::fs::read(folder.join("tokenizer.json")).unwrap()).unwrap();
        let enclosure = tokenizer.enclosure().expect("special tokens around texts");
        let ids: Vec<Vec<u32>> =
            strings.iter().take(41).map(|text| tokenizer.encode(text, SpecialTokens::Parse).unwrap()).collect();
        let one: Vec<_> = ids.iter().take(40).map(|ids| enclosure.around(ids)).collect();
        let two: Vec<_> = ids.windows(2).map(|pair| enclosure.around_two(&pair[0], &pair[1]).unwrap().tokens).collect();
        let expected = &read(&folder.join("ids.json"))["enclosed"];
        assert_eq!((json!(one), json!(two)), (expected["one"].clone(), expected["two"].clone()), "{kind}");
    }
}

#[test]
fn no_text_has_fewer_tokens_than_its_length_tells() {
    let mut bounded = 0;
    for folder in kinds() {
        let json = Tokenizer::from_json(&std::fs::read(folder.join("tokenizer.json")).unwrap()).unwrap();
        let gguf = from_gguf(&folder);
        for tokenizer in gguf.iter().map(ModelText::tokenizer).chain([&json]) {
            // Texts of which one token covers the most: those of the longest tokens, and of names that swallow spaces.
            let mut longest: Vec<String> = (0..tokenizer.vocabulary_size() as u32)
                .filter_map(|id| String::from_utf8(tokenizer.token_bytes(id)?.to_vec()).ok())
                .collect();
            longest.sort_by_key(|text| std::cmp::Reverse(text.len()));
            let hard = longest.iter().take(40).flat_map(|text| [text.repeat(30), format!("{text}{:99}", "").repeat(9)]);
            let composed = ["\u{1100}\u{1161}\u{11a8}", "\u{212a}", "e\u{301}"].map(|text| text.repeat(200));
            for text in hard.chain(composed) {
                let (least, count) = (tokenizer.least_tokens(&text), tokenizer.encode(&text, SpecialTokens::Parse));
                assert!(least <= count.unwrap().len(), "{}: {text:?}", folder.display());
            }
            bounded += usize::from(tokenizer.least_tokens(&"many words ".repeat(1 << 17)) > 0);
        }
    }
    assert!(bounded >= 38, "only {bounded} of {} tokenizers bound anything", 2 * kinds().len());
}

#[test]
fn plain_text_survives_what_only_cuts_it() {
    let strings: Vec<String> = serde_json::from_value(read(&fixtures().join("strings.json"))).unwrap();
    for folder in kinds() {
        let document = read(&folder.join("tokenizer.json"));
        if !document["normalizer"].is_null() || document["model"]["byte_fallback"] == true {
            continue;
        }
        let gguf = from_gguf(&folder).unwrap();
        for string in &strings {
            let ids = gguf.tokenizer().encode(string, SpecialTokens::Plain).unwrap();
            assert_eq!(gguf.tokenizer().decode(&ids), string.as_bytes(), "{}: {string:?}", folder.display());
        }
    }
}

#[test]
fn an_unknown_way_of_cutting_is_refused_by_name() {
    let bytes = std::fs::read(fixtures().join("bloom/vocabulary.gguf")).unwrap();
    let key = b"tokenizer.ggml.pre";
    let at = bytes.windows(key.len()).position(|window| window == key).unwrap() + key.len() + 4 + 8;
    let mut other = bytes.clone();
    other[at..at + 5].copy_from_slice(b"gloom");
    let files = ModelFiles::from_vec("other.gguf", other).unwrap();
    let error = ModelText::read(&files).err().unwrap().to_string();
    assert!(error.contains("tokenizer.ggml.pre `gloom`") && error.contains("bloom"), "{error}");
}
