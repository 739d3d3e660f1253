//! The one error type of this crate.

use thiserror::Error;

/// What can go wrong between text and tokens.
///
/// Every message names the field or line at fault and says what to do next; the caller adds the file name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TextError {
    /// A field of `tokenizer.json` is missing, malformed or contradicts another one.
    #[error(
        "tokenizer.json, field `{field}`: {reason}; download the file again or ask the model's author for a valid one"
    )]
    TokenizerJson {
        /// Path of the field inside the file, such as `model.merges`.
        field: String,
        /// What is wrong with its value.
        reason: String,
    },
    /// The file is well formed but asks for something this crate does not do.
    #[error(
        "the tokenizer asks for {field} `{found}`, which is not supported (supported: {supported}); use another model or convert this one"
    )]
    Unsupported {
        /// The setting, such as `decoder` or `tokenizer.ggml.model`.
        field: &'static str,
        /// Its value in the file.
        found: String,
        /// The values that would have worked.
        supported: &'static str,
    },
    /// An entry of a GGUF vocabulary is malformed.
    #[error("vocabulary field `{field}`, entry {index}: {reason}; convert the model again with a current converter")]
    Vocabulary {
        /// GGUF key that holds the entry, such as `tokenizer.ggml.tokens`.
        field: &'static str,
        /// Position of the entry in the array.
        index: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// An input exceeds a fixed limit.
    #[error("{what} is {size} {unit}, more than the limit of {limit}; shorten it")]
    TooLarge {
        /// What was measured.
        what: &'static str,
        /// Its size.
        size: usize,
        /// The largest size accepted.
        limit: usize,
        /// The unit of both numbers.
        unit: &'static str,
    },
    /// Text could not be tokenised with this tokenizer.
    #[error("cannot tokenise {bytes} bytes of text: {reason}; the tokenizer's rules are at fault, not the text")]
    Encode {
        /// Length of the text.
        bytes: usize,
        /// What the tokenizer said.
        reason: String,
    },
    /// A stop string cannot be used.
    #[error("stop string {index}: {reason}")]
    StopString {
        /// Position in the list of stop strings.
        index: usize,
        /// What is wrong with it and what to do.
        reason: &'static str,
    },
    /// The chat template does not parse.
    #[error("chat template, line {line}: {reason}; fix the template or pass another one")]
    TemplateSyntax {
        /// Line of the template source, counted from 1.
        line: usize,
        /// What the parser expected.
        reason: String,
    },
    /// The chat template failed while rendering.
    #[error("chat template, line {line}: {reason}; change the conversation or pass another template")]
    TemplateRender {
        /// Line of the template source, counted from 1.
        line: usize,
        /// What the renderer said.
        reason: String,
    },
    /// The chat template itself refused the conversation with `raise_exception`.
    #[error("the chat template, line {line}, rejects this conversation: {message}")]
    TemplateRejected {
        /// Line of the template source, counted from 1.
        line: usize,
        /// The template author's words.
        message: String,
    },
    /// The chat template used up one of its limits.
    #[error(
        "chat template, line {line}: exceeds the limit on {limit}; shorten the conversation or pass a simpler template"
    )]
    TemplateLimit {
        /// Line of the template source, counted from 1.
        line: usize,
        /// Which limit, with its value.
        limit: String,
    },
    /// A format for an answer is malformed, asks for too much or cannot be met.
    #[error("the output format, a {format}, cannot be used: {reason}; correct or simplify it")]
    OutputFormat {
        /// Its kind, such as `JSON schema`.
        format: &'static str,
        /// What is wrong and where.
        reason: String,
    },
    /// An answer cannot continue within its format.
    #[error("cannot continue an answer in the given format, a {format}: {reason}; simplify the format")]
    Constraint {
        /// The kind of the format, such as `JSON schema`.
        format: &'static str,
        /// Which limit was reached, or what does not fit.
        reason: String,
    },
    /// A list of messages or tools is not what an API's is.
    #[error("{at}: {reason}")]
    Messages {
        /// The place, such as `messages[2].content`.
        at: String,
        /// What is wrong with it and what would be right.
        reason: String,
    },
}
