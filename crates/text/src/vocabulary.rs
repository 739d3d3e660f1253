//! A vocabulary as a GGUF file stores it: plain data, not yet checked.

/// The `tokenizer.ggml.*` values of a GGUF file.
///
/// Nothing here is trusted: [`Tokenizer::from_vocabulary`](crate::Tokenizer::from_vocabulary) checks every entry.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Vocabulary {
    /// `tokenizer.ggml.model`: `llama` for SentencePiece's BPE, `gpt2` for byte-level BPE, `gemma4` for pieces with
    /// a list of merges.
    pub model: String,
    /// `tokenizer.ggml.pre`: which regular expression splits text before byte-level BPE.
    pub pre: Option<String>,
    /// `tokenizer.ggml.tokens`: the text of each token, by id.
    pub tokens: Vec<Vec<u8>>,
    /// `tokenizer.ggml.scores`: merge priority of each token (`llama` only), empty when absent.
    pub scores: Vec<f32>,
    /// `tokenizer.ggml.token_type`: kind of each token, empty when absent (all normal).
    pub types: Vec<i32>,
    /// `tokenizer.ggml.merges`: `left right` pairs in order of priority (`gpt2` only).
    pub merges: Vec<String>,
    /// `tokenizer.ggml.add_space_prefix`: whether text gets a leading space (`llama` only; GGUF's default is true).
    pub add_space_prefix: bool,
    /// Whether control tokens swallow white space on their right (`llama` only). No key says so: it goes with the
    /// architecture.
    pub strip_right: bool,
    /// `tokenizer.ggml.unknown_token_id`: stands for text which no other token covers.
    pub unknown_token: Option<u32>,
}

/// The kinds of `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenType {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl TokenType {
    pub(crate) fn from_gguf(number: i32) -> Option<TokenType> {
        Some(match number {
            1 => TokenType::Normal,
            2 => TokenType::Unknown,
            3 => TokenType::Control,
            4 => TokenType::UserDefined,
            5 => TokenType::Unused,
            6 => TokenType::Byte,
            _ => return None,
        })
    }
}

/// The byte that a token such as `<0x0A>` stands for.
pub(crate) fn byte_of_token(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let two_hex_digits = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    two_hex_digits.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}
