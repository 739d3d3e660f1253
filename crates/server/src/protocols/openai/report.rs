//! What chat and text completions report: log-probabilities, usage, finish reasons.

use cascadia_engine::FinishReason;
use cascadia_text::Tokenizer;
use serde_json::{Value, json};

use crate::answer::{AnswerEnd, TokenLogprob, Usage};

/// Why an answer ended, in OpenAI's terms.
pub(crate) fn finish_reason(end: &AnswerEnd) -> &'static str {
    match end.finish {
        _ if end.awaits_tools() => "tool_calls",
        FinishReason::Stop | FinishReason::Cancelled => "stop",
        FinishReason::Length | FinishReason::Deadline => "length",
    }
}

/// Tokens that a request used.
pub(crate) fn usage(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.generated,
        "total_tokens": usage.prompt + usage.generated,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    })
}

/// Log-probabilities as chat completions report them.
pub(crate) fn chat_logprobs(tokenizer: &Tokenizer, tokens_logprobs: &[TokenLogprob]) -> Value {
    let entry = |token: u32, log_probability: f32| {
        let bytes = tokenizer.token_bytes(token).unwrap_or_default();
        json!({"token": String::from_utf8_lossy(bytes), "logprob": log_probability, "bytes": bytes})
    };
    let content = tokens_logprobs.iter().map(|(token, logprobs)| {
        let mut object = entry(*token, logprobs.log_probability);
        let others = logprobs.alternatives.iter().map(|other| entry(other.token, other.log_probability));
        object["top_logprobs"] = others.collect();
        object
    });
    json!({"content": content.collect::<Vec<_>>()})
}

/// Log-probabilities as text completions report them; `offset` is the number of characters before the first token.
pub(crate) fn text_logprobs(tokenizer: &Tokenizer, tokens_logprobs: &[TokenLogprob], mut offset: usize) -> Value {
    let text = |token: u32| String::from_utf8_lossy(tokenizer.token_bytes(token).unwrap_or_default()).into_owned();
    let (mut tokens, mut chosen, mut tops, mut offsets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (token, logprobs) in tokens_logprobs {
        let name = text(*token);
        offsets.push(offset);
        offset += name.chars().count();
        tokens.push(name);
        chosen.push(logprobs.log_probability);
        let others = logprobs.alternatives.iter().map(|other| (text(other.token), other.log_probability.into()));
        tops.push(others.collect::<serde_json::Map<String, Value>>());
    }
    json!({"tokens": tokens, "token_logprobs": chosen, "top_logprobs": tops, "text_offset": offsets})
}
