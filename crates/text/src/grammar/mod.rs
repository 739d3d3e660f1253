//! Structured output: formats that an answer must have, compiled into masks over tokens.

mod cache;
mod compiled;
mod compiler;
mod constraint;
mod measure;
mod source;
mod token_trie;
mod work;

use serde_json::Value;

pub use compiler::GrammarCompiler;
pub use constraint::{Constraint, TokenMask};
pub(crate) use source::{quote, with_bounded_space};
pub use work::FormatWork;

/// Longest source of a format: schema, expression, grammar or all choices together.
pub const MAX_FORMAT_BYTES: usize = 128 << 10;
/// Deepest nesting of brackets in a format's source.
pub const MAX_FORMAT_DEPTH: usize = 64;
/// Most choices of [`OutputFormat::Choice`].
pub const MAX_CHOICES: usize = 4096;
/// Most compiled formats that a [`GrammarCompiler`] remembers.
pub const MAX_CACHED_FORMATS: usize = 64;

/// What an answer must look like, from its first character to its last.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputFormat {
    /// Any JSON object.
    JsonObject,
    /// JSON that this JSON schema allows.
    JsonSchema(Value),
    /// Text that matches this regular expression as a whole; `\d` and `\w` are ASCII, as in JSON schemas.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// Text that this grammar generates, in the dialect of Lark that `llguidance` reads.
    Lark(String),
}

impl OutputFormat {
    /// What a person calls the format.
    pub fn name(&self) -> &'static str {
        match self {
            OutputFormat::JsonObject => "JSON object",
            OutputFormat::JsonSchema(_) => "JSON schema",
            OutputFormat::Regex(_) => "regular expression",
            OutputFormat::Choice(_) => "list of choices",
            OutputFormat::Lark(_) => "Lark grammar",
        }
    }
}
