//! Builds tokenizers from arbitrary tokenizer.json files and GGUF vocabularies, and uses them.
#![no_main]

use cascadia_fuzz::bounded;
use cascadia_text::{SpecialTokens, Tokenizer, Vocabulary};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    bounded(|| {
        if let Ok(tokenizer) = Tokenizer::from_json(data) {
            exercise(&tokenizer);
        }
        if let Ok(tokenizer) = Tokenizer::from_vocabulary(&vocabulary(data)) {
            exercise(&tokenizer);
        }
    });
});

/// One line is one token: its type and score are taken from its first two bytes.
fn vocabulary(data: &[u8]) -> Vocabulary {
    let (&choice, rest) = data.split_first().unwrap_or((&0, &[]));
    let entries: Vec<&[u8]> = rest.split(|&byte| byte == b'\n').collect();
    let names: Vec<Vec<u8>> = entries.iter().map(|entry| entry.get(2..).unwrap_or_default().to_vec()).collect();
    let merges = names.iter().filter(|name| name.contains(&b' '));
    Vocabulary {
        model: if choice & 1 == 0 { "llama" } else { "gpt2" }.into(),
        pre: ["gpt-2", "llama-bpe", "qwen2", "smollm"].get(usize::from(choice >> 1 & 3)).map(|pre| (*pre).into()),
        merges: merges.map(|name| String::from_utf8_lossy(name).into_owned()).collect(),
        types: entries.iter().map(|entry| i32::from(entry.first().copied().unwrap_or(1)) % 8).collect(),
        scores: entries.iter().map(|entry| f32::from(entry.get(1).copied().unwrap_or(0))).collect(),
        tokens: names,
        add_space_prefix: choice & 8 == 0,
        strip_right: false,
        unknown_token: None,
    }
}

fn exercise(tokenizer: &Tokenizer) {
    for special in [SpecialTokens::Parse, SpecialTokens::Plain] {
        for text in ["", "hello wörld <s>a 🙂\n\t 12345 ▁▁ 's", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
        {
            if let Ok(ids) = tokenizer.encode(text, special) {
                let mut decoder = tokenizer.stream_decoder();
                let streamed: String = ids.iter().map(|&id| decoder.push(id)).collect::<String>() + &decoder.finish();
                assert_eq!(streamed, String::from_utf8_lossy(&tokenizer.decode(&ids)));
            }
        }
    }
}
