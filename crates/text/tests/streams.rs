//! Streaming gives the same text as doing everything at once.

use cascadia_text::{MAX_STOP_STRING_BYTES, MAX_STOP_STRINGS, StopStrings, TextError, Tokenizer, Vocabulary};
use proptest::prelude::*;
use serde_json::json;

/// A SentencePiece vocabulary of bytes, pieces with spaces, and the odd control token.
fn sentencepiece(add_space_prefix: bool) -> Tokenizer {
    let mut tokens: Vec<Vec<u8>> = (0..=255_u8).map(|byte| format!("<0x{byte:02X}>").into_bytes()).collect();
    let mut types = vec![6; 256];
    for (text, kind) in [("<s>", 3), ("<unk>", 2), ("▁", 1), ("▁▁a", 1), ("é", 1), ("🙂", 1), ("", 1), ("▁x▁", 4)]
    {
        tokens.push(text.into());
        types.push(kind);
    }
    tokens.push(vec![0xC3]);
    types.push(1);
    let scores = vec![0.0; tokens.len()];
    let model = "llama".into();
    Tokenizer::from_vocabulary(&Vocabulary { model, tokens, types, scores, add_space_prefix, ..Vocabulary::default() })
        .unwrap()
}

/// A byte-level vocabulary whose tokens cut characters in half.
fn byte_level() -> Tokenizer {
    let tokens: Vec<Vec<u8>> =
        ["a", "Ġ", "Ã", "©", "ðŁ", "ĺ", "Ģ", "ĠÃ", "©Ã", "Ċ", "ÿ", "日本"].map(|text| text.into()).to_vec();
    let model = "gpt2".into();
    Tokenizer::from_vocabulary(&Vocabulary { model, tokens, ..Vocabulary::default() }).unwrap()
}

/// A tokenizer.json with the Metaspace decoder, which strips the first token.
fn metaspace() -> Tokenizer {
    let json = json!({
        "model": {"type": "BPE", "vocab": {"▁▁a": 0, "▁b": 1, "c": 2, "▁": 3, "<0x41>": 4}, "merges": []},
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "added_tokens": [{"id": 5, "content": "<s>", "special": true}],
    });
    Tokenizer::from_json(json.to_string().as_bytes()).unwrap()
}

fn check_stream(tokenizer: &Tokenizer, ids: &[u32]) {
    let mut decoder = tokenizer.stream_decoder();
    let mut streamed: String = ids.iter().map(|&id| decoder.push(id)).collect();
    streamed.push_str(&decoder.finish());
    assert_eq!(streamed, String::from_utf8_lossy(&tokenizer.decode(ids)), "{ids:?}");
}

proptest! {
    #[test]
    fn streamed_decoding_equals_decoding_at_once(ids in prop::collection::vec(0_u32..270, 0..40)) {
        for tokenizer in [sentencepiece(true), sentencepiece(false), byte_level(), metaspace()] {
            check_stream(&tokenizer, &ids);
        }
        let few: Vec<u32> = ids.iter().map(|id| id % 12).collect();
        check_stream(&byte_level(), &few);
        check_stream(&metaspace(), &few);
        // Mostly lead and continuation bytes, so that characters are often cut.
        let bytes: Vec<u32> = ids.iter().map(|id| [0xC3, 0xA9, 0xF0, 0x9F, 0x99, 0x82, 0x20, 0xE2, 0x96, 0x81, 0x41, 0xFF][*id as usize % 12]).collect();
        check_stream(&sentencepiece(true), &bytes);
    }

    #[test]
    fn stop_strings_are_found_however_the_text_is_cut(
        text in "[ab\n🙂é]{0,40}",
        stops in prop::collection::vec("[ab\n🙂é]{1,5}", 0..4),
        cuts in prop::collection::vec(1_usize..5, 0..40),
    ) {
        let mut watcher = StopStrings::new(&stops).unwrap();
        let (mut emitted, mut hit, mut characters) = (String::new(), None, text.chars());
        let mut cuts = cuts.into_iter().cycle();
        loop {
            let piece: String = characters.by_ref().take(cuts.next().unwrap_or(3)).collect();
            if piece.is_empty() {
                break;
            }
            let output = watcher.push(&piece);
            emitted.push_str(&output.text);
            hit = hit.or(output.hit);
            if hit.is_none() {
                let seen = text.len() - characters.as_str().len();
                prop_assert_eq!(&emitted, &text[..seen - held_back(&text[..seen], &stops)]);
            }
        }
        emitted.push_str(&watcher.finish());
        let (expected, expected_hit) = naive(&text, &stops);
        prop_assert_eq!(emitted, expected);
        prop_assert_eq!(hit.map(|index| &stops[index]), expected_hit.map(|index| &stops[index]));
    }
}

/// The text before the stop string that is completed first; of several, the longest.
fn naive<'a>(text: &'a str, stops: &[String]) -> (&'a str, Option<usize>) {
    for end in 1..=text.len() {
        let ending = (0..stops.len()).filter(|&index| text.as_bytes()[..end].ends_with(stops[index].as_bytes()));
        if let Some(index) = ending.max_by_key(|&index| stops[index].len()) {
            return (&text[..end - stops[index].len()], Some(index));
        }
    }
    (text, None)
}

/// The longest ending that could become a stop string.
fn held_back(text: &str, stops: &[String]) -> usize {
    let could_grow = |length: &usize| {
        let ending = &text.as_bytes()[text.len() - length..];
        stops.iter().any(|stop| stop.len() > *length && stop.as_bytes().starts_with(ending))
    };
    (0..=text.len()).rev().find(could_grow).unwrap_or(0)
}

#[test]
fn the_prefix_space_is_stripped_once() {
    let tokenizer = sentencepiece(true);
    let space = tokenizer.token_id("▁").unwrap();
    let start = tokenizer.token_id("<s>").unwrap();
    assert_eq!(tokenizer.decode(&[start, space, space]), b" ");
    assert_eq!(metaspace().decode(&[5, 0, 1, 0]), b"a b  a");
}

#[test]
fn half_a_character_waits_for_the_other_half() {
    let tokenizer = sentencepiece(true);
    let mut decoder = tokenizer.stream_decoder();
    assert_eq!(decoder.push(0xF0), "");
    assert_eq!(decoder.push(0x9F), "");
    assert_eq!(decoder.push(0x99), "");
    assert_eq!(decoder.push(0x82), "🙂");
    assert_eq!(decoder.push(0xC3), "");
    assert_eq!(decoder.push(0x41), "\u{FFFD}A");
    assert_eq!(decoder.push(0xC3), "");
    assert_eq!(decoder.finish(), "\u{FFFD}");
}

#[test]
fn nothing_follows_a_stop() {
    let mut stops = StopStrings::new(&["END".into(), "\n\n".into()]).unwrap();
    assert_eq!(stops.push("one E").text, "one ");
    let output = stops.push("ND two");
    assert_eq!((output.text.as_str(), output.hit), ("", Some(0)));
    assert_eq!(stops.push("three").text, "");
    assert_eq!(stops.finish(), "");
}

#[test]
fn stop_strings_have_limits() {
    let refused = |stops: Vec<String>| StopStrings::new(&stops).unwrap_err();
    assert!(matches!(refused(vec!["a".into(), String::new()]), TextError::StopString { index: 1, .. }));
    assert!(matches!(refused(vec!["a".repeat(MAX_STOP_STRING_BYTES + 1)]), TextError::StopString { index: 0, .. }));
    assert!(matches!(refused(vec!["a".into(); MAX_STOP_STRINGS + 1]), TextError::TooLarge { .. }));
}
