//! Text to tokens and back: tokenizers, incremental decoding, stop strings, chat templates, structured output, tool calls.
#![forbid(unsafe_code)]

mod added;
mod charsmap;
mod coverage;
mod cuts;
mod decoder;
mod enclosure;
mod error;
mod from_gguf;
mod from_json;
mod grammar;
mod guard;
mod json_models;
mod messages;
mod os;
mod pieces;
mod pipeline;
mod pre_tokenizer;
mod presets;
mod sentencepiece;
mod stop;
mod template;
mod tokenizer;
mod tool_calls;
mod vocabulary;

pub use decoder::{KeptTokens, StreamDecoder};
pub use enclosure::{EnclosedPair, Enclosure};
pub use error::TextError;
pub use grammar::{
    Constraint, FormatWork, GrammarCompiler, MAX_CACHED_FORMATS, MAX_CHOICES, MAX_FORMAT_BYTES, MAX_FORMAT_DEPTH,
    OutputFormat, TokenMask,
};
pub use guard::Prompt;
pub use presets::pre_tokenizer_names;
pub use stop::{MAX_STOP_STRING_BYTES, MAX_STOP_STRINGS, StopOutput, StopStrings};
pub use template::{CHATML, ChatTemplate, Clock, Conversation, TemplateLimits};
pub use tokenizer::{MAX_TEXT_BYTES, MAX_TOKEN_BYTES, MAX_TOKENIZER_JSON_BYTES, MAX_TOKENS, SpecialTokens, Tokenizer};
pub use tool_calls::{AnswerFormat, AnswerParser, Piece, ReasoningFormat, RequiredCalls, ToolCallFormat, ToolChoice};
pub use vocabulary::Vocabulary;
