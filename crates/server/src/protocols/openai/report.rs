//! What chat and text completions report: log-probabilities, usage, finish reasons.

use cascadia_engine::FinishReason;
use cascadia_engine::service::TokenLogprobs;
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

/// Log-probabilities as text completions report them: four lists with an entry for each token.
pub(crate) struct TextLogprobs<'a> {
    tokenizer: &'a Tokenizer,
    tokens: Vec<String>,
    chosen: Vec<Value>,
    tops: Vec<Value>,
    offsets: Vec<usize>,
    /// Characters before the next token.
    offset: usize,
}

impl<'a> TextLogprobs<'a> {
    /// No tokens yet, after so many characters.
    pub(crate) fn new(tokenizer: &'a Tokenizer, offset: usize) -> TextLogprobs<'a> {
        let (tokens, chosen, tops, offsets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        TextLogprobs { tokenizer, tokens, chosen, tops, offsets, offset }
    }

    /// Adds a prompt: nothing is said of its first token, because nothing precedes it.
    pub(crate) fn add_prompt(&mut self, tokens: &[u32], scores: &[TokenLogprobs]) {
        let scores = std::iter::once(None).chain(scores.iter().map(Some));
        tokens.iter().zip(scores).for_each(|(token, score)| self.add(*token, score));
    }

    /// Adds tokens of an answer.
    pub(crate) fn add_tokens<'b>(&mut self, tokens: impl IntoIterator<Item = &'b TokenLogprob>) {
        tokens.into_iter().for_each(|(token, logprobs)| self.add(*token, Some(logprobs)));
    }

    fn add(&mut self, token: u32, logprobs: Option<&TokenLogprobs>) {
        let name = self.name(token);
        self.offsets.push(self.offset);
        self.offset += name.chars().count();
        let Some(TokenLogprobs { log_probability, alternatives }) = logprobs else {
            self.chosen.push(Value::Null);
            self.tops.push(Value::Null);
            return self.tokens.push(name);
        };
        let mut top = serde_json::Map::new();
        for other in alternatives {
            // Of tokens with the same text, the most likely one.
            top.entry(self.name(other.token)).or_insert_with(|| other.log_probability.into());
        }
        // The token itself is there too, as OpenAI has it; not where only its own probability was asked for.
        if !alternatives.is_empty() {
            top.entry(name.clone()).or_insert_with(|| (*log_probability).into());
        }
        self.chosen.push((*log_probability).into());
        self.tops.push(top.into());
        self.tokens.push(name);
    }

    fn name(&self, token: u32) -> String {
        String::from_utf8_lossy(self.tokenizer.token_bytes(token).unwrap_or_default()).into_owned()
    }

    /// The lists.
    pub(crate) fn into_value(self) -> Value {
        let TextLogprobs { tokens, chosen, tops, offsets, .. } = self;
        json!({"tokens": tokens, "token_logprobs": chosen, "top_logprobs": tops, "text_offset": offsets})
    }
}
