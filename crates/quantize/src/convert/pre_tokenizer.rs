//! Finds the name by which GGUF readers know a byte-level tokenizer's way of cutting text.

use std::collections::HashSet;

use cascadia_text::{SpecialTokens, TextError, Tokenizer, Vocabulary, pre_tokenizer_names};
use serde_json::{Map, Value, json};

/// Text on which the known ways of cutting differ: digits, contractions, case, spaces, line ends, other scripts, marks.
const PROBE: &str = "Hello World! I'll see HELLO'S they'Re iPhone camelCaseWord 3 33 333 3333 33333 3.14 $5,000\n \n\n \
    \t\t tabs   spaces\r\nline\n  indented(foo_bar[0]) != x/y/z;\n// ---===--- \u{e9}t\u{e9} na\u{ef}ve \
    \u{4f60}\u{597d}\u{4e16}\u{754c} \u{43f}\u{440}\u{438}\u{432}\u{435}\u{442} \u{645}\u{631}\u{62d}\u{628}\u{627} \
    \u{1f680}\u{1f469}\u{200d}\u{1f4bb} 1\u{b2} \u{2167} e\u{301}te\u{301} \
    \u{4f60}\u{597d}Hello\u{3053}\u{3093} \u{d55c}\u{ae00}a.B,c\u{3002}d #x <y> a\u{b4} b(c|d)e \u{2018}q\u{2019} \
    1234567\u{661}\u{662} kj\u{323} HELLO'll We'Re end   ";

/// A word of the probe that no merges make: a token of it is found only where whole words are looked up first.
const WHOLE_WORD: &str = "Hello";

/// The name under which a GGUF reader cuts text as the tokenizer in `json` does. What comes out is compared, so neither
/// side's spelling of its rules has to be known.
pub(crate) fn find_name(json: &Value) -> Result<Option<&'static str>, TextError> {
    let trials = [trial(json, pairs().collect())?, trial(json, pairs().rev().collect())?];
    for name in pre_tokenizer_names() {
        let mut same = true;
        for (expected, vocabulary) in &trials {
            let candidate = Vocabulary { pre: Some(name.to_owned()), ..vocabulary.clone() };
            same &= encode(&Tokenizer::from_vocabulary(&candidate)?)? == *expected;
        }
        if same {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Whether `vocabulary` cuts and merges text exactly as `original` does.
pub(crate) fn agrees(original: &Tokenizer, vocabulary: &Vocabulary) -> Result<bool, TextError> {
    Ok(encode(&Tokenizer::from_vocabulary(vocabulary)?)? == encode(original)?)
}

fn encode(tokenizer: &Tokenizer) -> Result<Vec<u32>, TextError> {
    tokenizer.encode(PROBE, SpecialTokens::Plain)
}

/// The rules of `json` on a vocabulary of bytes and pairs of bytes, in which a cut shows as a pair that did not merge.
/// (The model's own vocabulary may be too small to show it.) Returns what comes out and the vocabulary.
fn trial(json: &Value, merges: Vec<(char, char)>) -> Result<(Vec<u32>, Vocabulary), TextError> {
    let bytes = (0..=255).map(|byte| byte_letter(byte).to_string());
    let pairs = merges.iter().map(|(left, right)| format!("{left}{right}"));
    let tokens: Vec<String> = bytes.chain(pairs).chain([WHOLE_WORD.to_owned()]).collect();
    let merges: Vec<String> = merges.iter().map(|(left, right)| format!("{left} {right}")).collect();
    let ids: Map<String, Value> = tokens.iter().zip(0u32..).map(|(token, id)| (token.clone(), json!(id))).collect();
    let same_rules = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": json["normalizer"],
        "pre_tokenizer": json["pre_tokenizer"],
        "post_processor": null,
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": ids, "merges": merges, "ignore_merges": json["model"]["ignore_merges"] == true},
    });
    let expected = encode(&Tokenizer::from_json(same_rules.to_string().as_bytes())?)?;
    let tokens = tokens.into_iter().map(String::into_bytes).collect();
    Ok((expected, Vocabulary { model: "gpt2".into(), tokens, merges, ..Vocabulary::default() }))
}

/// Every two bytes that follow each other in the probe, once.
fn pairs() -> std::vec::IntoIter<(char, char)> {
    let mut seen = HashSet::new();
    let all = PROBE.as_bytes().windows(2).map(|pair| (byte_letter(pair[0]), byte_letter(pair[1])));
    all.filter(|pair| seen.insert(*pair)).collect::<Vec<_>>().into_iter()
}

/// The letter by which byte-level vocabularies write a byte: itself where it is visible, a letter from U+0100 on where not.
fn byte_letter(byte: u8) -> char {
    let visible = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    if visible(byte) {
        return char::from(byte);
    }
    let hidden_before = (0..byte).filter(|other| !visible(*other)).count() as u32;
    char::from_u32(256 + hidden_before).expect("at most 68 bytes are hidden")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_every_kind_are_recognised() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tokenizers");
        let names = [
            ("gpt2", "gpt-2"),
            ("gpt-neox", "mpt"),
            ("starcoder2", "smollm"),
            ("command-r", "command-r"),
            ("llama3", "llama-bpe"),
            ("olmo2", "dbrx"),
            ("qwen2", "qwen2"),
            ("qwen3.5", "qwen35"),
            ("tekken", "tekken"),
            ("gpt-oss", "gpt-4o"),
            ("kimi-k2", "kimi-k2"),
            ("deepseek-llm", "deepseek-llm"),
            ("deepseek-coder", "deepseek-coder"),
            ("deepseek-v3", "deepseek-v3"),
            ("falcon", "falcon"),
            ("bloom", "bloom"),
        ];
        for (kind, expected) in names {
            let text = std::fs::read_to_string(format!("{folder}/{kind}/tokenizer.json")).unwrap();
            let json: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(find_name(&json).unwrap(), Some(expected), "{kind}");
        }
        let pattern = json!({"Regex": r"\p{L}+|\s+"});
        let unknown = json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        ]});
        assert_eq!(find_name(&json!({"pre_tokenizer": unknown, "normalizer": null})).unwrap(), None);
    }

    #[test]
    fn letters_of_bytes_are_the_customary_ones() {
        let cases = [(b'a', 'a'), (b' ', '\u{120}'), (b'\n', '\u{10a}'), (0, '\u{100}'), (173, '\u{143}')];
        cases.into_iter().for_each(|(byte, letter)| assert_eq!(byte_letter(byte), letter));
    }
}
