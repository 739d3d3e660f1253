//! What answers of both text doors report: chances of tokens, usage, why they ended.

use cascadia_engine::FinishReason;
use cascadia_engine::service::TokenLogprobs;
use cascadia_text::Tokenizer;
use serde_json::{Value, json};

use crate::answer::{End, Usage};

/// One token of an answer and its chance.
pub(crate) type Spoken = (u32, TokenLogprobs);

/// Why an answer ended, in OpenAI's words.
pub(crate) fn finish_reason(end: &End) -> &'static str {
    match end.finish {
        _ if end.calls_functions() => "tool_calls",
        FinishReason::Stop | FinishReason::Cancelled => "stop",
        FinishReason::Length | FinishReason::Deadline => "length",
    }
}

/// Tokens that a request used.
pub(crate) fn usage(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.answer,
        "total_tokens": usage.prompt + usage.answer,
        "prompt_tokens_details": {"cached_tokens": usage.reused},
    })
}

/// Chances as chat answers report them.
pub(crate) fn chat_logprobs(tokenizer: &Tokenizer, spoken: &[Spoken]) -> Value {
    let entry = |token: u32, log_probability: f32| {
        let bytes = tokenizer.token_bytes(token).unwrap_or_default();
        json!({"token": String::from_utf8_lossy(bytes), "logprob": log_probability, "bytes": bytes})
    };
    let content = spoken.iter().map(|(token, chance)| {
        let mut object = entry(*token, chance.log_probability);
        let others = chance.alternatives.iter().map(|other| entry(other.token, other.log_probability));
        object["top_logprobs"] = others.collect();
        object
    });
    json!({"content": content.collect::<Vec<_>>()})
}

/// Chances as plain completions report them; `offset` is the number of characters before the first token.
pub(crate) fn text_logprobs(tokenizer: &Tokenizer, spoken: &[Spoken], mut offset: usize) -> Value {
    let text = |token: u32| String::from_utf8_lossy(tokenizer.token_bytes(token).unwrap_or_default()).into_owned();
    let (mut tokens, mut chances, mut tops, mut offsets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (token, chance) in spoken {
        let name = text(*token);
        offsets.push(offset);
        offset += name.chars().count();
        tokens.push(name);
        chances.push(chance.log_probability);
        let others = chance.alternatives.iter().map(|other| (text(other.token), other.log_probability.into()));
        tops.push(others.collect::<serde_json::Map<String, Value>>());
    }
    json!({"tokens": tokens, "token_logprobs": chances, "top_logprobs": tops, "text_offset": offsets})
}
