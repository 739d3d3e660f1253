//! Compiles arbitrary output formats within the limits of a server, and follows what they allow for some tokens.
#![no_main]

use std::sync::OnceLock;

use cascadia_fuzz::{allow_caught_panics, bounded};
use cascadia_text::{GrammarCompiler, MAX_CHOICES, OutputFormat, Tokenizer, Vocabulary};
use libfuzzer_sys::fuzz_target;

/// Tokens that are taken of each format.
const STEPS: usize = 24;

fuzz_target!(init: { allow_caught_panics(); compiler(); }, |input: (u8, u8, &str)| {
    let (kind, choice, source) = input;
    let Some(format) = format(kind, source) else { return };
    let compiler = compiler();
    bounded(|| {
        let Ok(mut constraint) = compiler.compile(&format) else { return };
        for step in 0..STEPS {
            constraint.forced();
            let Ok(mask) = constraint.mask() else { return };
            let allowed = mask.tokens();
            let may_end = constraint.may_end();
            assert!(!allowed.is_empty() || may_end, "nothing is allowed, and it may not end");
            let Some(token) = allowed.get((usize::from(choice) + step) % allowed.len().max(1)) else { return };
            if constraint.must_end() || constraint.accept(*token).is_err() {
                return;
            }
        }
    });
});

fn format(kind: u8, source: &str) -> Option<OutputFormat> {
    Some(match kind % 4 {
        0 => OutputFormat::JsonSchema(serde_json::from_str(source).ok()?),
        1 => OutputFormat::Regex(source.to_owned()),
        2 => OutputFormat::Lark(source.to_owned()),
        _ => OutputFormat::Choice(source.split('\n').take(MAX_CHOICES + 1).map(str::to_owned).collect()),
    })
}

/// One for a vocabulary of single bytes and some short words.
fn compiler() -> &'static GrammarCompiler {
    static COMPILER: OnceLock<GrammarCompiler> = OnceLock::new();
    COMPILER.get_or_init(|| {
        let bytes = (0..=u8::MAX).map(|byte| format!("<0x{byte:02X}>"));
        let words = ["\u{2581}", "true", "\":", "\",", "{\"", "12", "ab", "e\u{301}"].map(str::to_owned);
        let tokens: Vec<Vec<u8>> = ["<unk>", "</s>"]
            .map(str::to_owned)
            .into_iter()
            .chain(bytes)
            .chain(words)
            .map(String::into_bytes)
            .collect();
        let types =
            (0..tokens.len()).map(|token| [2, 3].get(token).copied().unwrap_or(if token < 258 { 6 } else { 1 }));
        let vocabulary = Vocabulary {
            model: "llama".into(),
            pre: None,
            merges: Vec::new(),
            types: types.collect(),
            scores: vec![0.0; tokens.len()],
            tokens,
            add_space_prefix: false,
            strip_right: false,
            unknown_token: Some(0),
        };
        let tokenizer = Tokenizer::from_vocabulary(&vocabulary).expect("the vocabulary makes sense");
        GrammarCompiler::new(&tokenizer, &[1]).expect("the vocabulary is small")
    })
}
