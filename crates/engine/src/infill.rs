//! Tokens of models that fill in the middle of a text: what marks the text before the gap, the text after it, and the gap.

use cascadia_weights::{FileKind, ModelFiles};

/// What families call the three, in the order of [`InfillTokens`].
const NAMES: [[&str; 3]; 4] = [
    ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
    ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
    ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
    ["▁<PRE>", "▁<SUF>", "▁<MID>"],
];
/// Where GGUF files have them, in newer and in older ones.
const KEYS: [[&str; 3]; 2] = [
    ["fim_pre_token_id", "fim_suf_token_id", "fim_mid_token_id"],
    ["prefix_token_id", "suffix_token_id", "middle_token_id"],
];
/// Marks that such models write after what they filled in.
const ENDS: [&str; 6] = ["<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<fim_pad>", "<file_sep>", "▁<EOT>"];

/// The tokens around the parts of a text with a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfillTokens {
    /// Before the text in front of the gap.
    pub prefix: u32,
    /// Before the text behind the gap.
    pub suffix: u32,
    /// Before what fills the gap.
    pub middle: u32,
    /// What else ends the answer.
    pub ends: Vec<u32>,
}

impl InfillTokens {
    /// Those that the files name, or that the vocabulary has; `find` looks up a token by its text.
    pub(crate) fn read(files: &ModelFiles, find: &dyn Fn(&str) -> Option<u32>) -> Option<InfillTokens> {
        let in_metadata = |key: &str| match files.kind() {
            FileKind::Gguf => files.metadata().value::<u32>(&format!("tokenizer.ggml.{key}")).ok().flatten(),
            _ => None,
        };
        let all = |names: &[&str; 3], find: &dyn Fn(&str) -> Option<u32>| {
            Some([find(names[0])?, find(names[1])?, find(names[2])?])
        };
        let by_key = KEYS.iter().find_map(|keys| all(keys, &in_metadata));
        let [prefix, suffix, middle] = by_key.or_else(|| NAMES.iter().find_map(|names| all(names, find)))?;
        Some(InfillTokens { prefix, suffix, middle, ends: ENDS.into_iter().filter_map(find).collect() })
    }
}
