//! Chat templates: the Jinja dialect of Hugging Face, rendered within strict limits.

mod builtins;
mod clock;
mod guard;
mod meter;
mod operators;
mod python;
mod scan;
mod text_methods;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value as JinjaValue};
use minijinja::{AutoEscape, machinery};
use serde_json::{Map, Value};

use crate::guard::{self as text_guard, Author, Prompt};
use crate::{TextError, Tokenizer};
pub use clock::Clock;
use meter::Meter;

/// The ChatML format, for models that come without a template of their own.
pub const CHATML: &str = "{% for message in messages %}\
    {{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\
    {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// The names under which templates look for a message's reasoning.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// What a template may use up in one rendering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TemplateLimits {
    /// Instructions of the template engine.
    pub instructions: u64,
    /// Bytes of the rendered prompt.
    pub output_bytes: usize,
    /// Bytes of all intermediate values together.
    pub work_bytes: usize,
}

impl TemplateLimits {
    /// Limits for a model that reads `tokens` tokens at once: the prompt may have four times the bytes of a full
    /// context, taking four bytes for a token, and the other limits grow along.
    pub fn for_context(tokens: usize) -> TemplateLimits {
        let least = TemplateLimits::default();
        let output_bytes = tokens.saturating_mul(16).clamp(64 << 10, 16 << 20);
        TemplateLimits {
            instructions: least.instructions.max(tokens as u64),
            output_bytes,
            work_bytes: least.work_bytes.max(output_bytes * 16),
        }
    }
}

impl Default for TemplateLimits {
    fn default() -> TemplateLimits {
        TemplateLimits { instructions: 100_000, output_bytes: 1 << 20, work_bytes: 32 << 20 }
    }
}

/// What a template is rendered with.
#[derive(Debug, Clone, Copy)]
pub struct Conversation<'a> {
    /// An array of objects with at least `role` and `content`.
    pub messages: &'a Value,
    /// Functions the model may call, as an array of JSON schemas.
    pub tools: Option<&'a Value>,
    /// Documents for retrieval-augmented generation.
    pub documents: Option<&'a Value>,
    /// Whether the prompt ends with the opening of an answer.
    pub add_generation_prompt: bool,
    /// How the answer begins: [`ChatTemplate::render_prompt`] ends with it, and the model continues it.
    pub prefill: Option<&'a str>,
    /// Text of the begin-of-text token, if the model has one.
    pub bos_token: Option<&'a str>,
    /// Text of the end-of-text token, if the model has one.
    pub eos_token: Option<&'a str>,
    /// More variables (`enable_thinking`, …); those above win over variables of the same name.
    pub extra: Option<&'a Map<String, Value>>,
    /// The time that `strftime_now` formats.
    pub clock: Clock,
}

/// A chat template that has passed the checks on its source.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    source: String,
    limits: TemplateLimits,
}

impl ChatTemplate {
    /// Checks a template: at most 1 MiB, nested at most 128 deep, and of valid syntax.
    pub fn new(source: &str, limits: TemplateLimits) -> Result<ChatTemplate, TextError> {
        let source = scan::prepare(source)?;
        guard::compile(&source)?;
        Ok(ChatTemplate { source, limits })
    }

    /// Whether a text stands in the template's source.
    pub fn mentions(&self, text: &str) -> bool {
        self.source.contains(text)
    }

    /// Renders a conversation so that nothing in its messages can become a control token of `tokenizer`.
    ///
    /// Signs that begin control tokens are hidden from the template inside messages, so it cannot look for them there;
    /// the tags that a model itself writes (`</think>`) it does see, in the model's own messages.
    pub fn render_prompt(&self, conversation: &Conversation<'_>, tokenizer: &Tokenizer) -> Result<Prompt, TextError> {
        let guard = tokenizer.guard();
        let values = [Some(conversation.messages), conversation.tools, conversation.documents];
        let extra = conversation.extra.cloned().map(Value::Object);
        let texts = values.into_iter().flatten().chain(&extra).flat_map(text_guard::texts);
        let tokens = [conversation.bos_token, conversation.eos_token];
        let texts = texts.chain(tokens.into_iter().flatten()).chain([self.source.as_str()]).chain(conversation.prefill);
        let stand_ins = guard.stand_ins(texts)?;
        let hide = |value: &Value| guard.hide(value, Author::Anyone, &stand_ins);
        let messages = guard.hide_messages(conversation.messages, &stand_ins)?;
        let (tools, documents) = (conversation.tools.map(hide), conversation.documents.map(hide));
        let extra = extra.as_ref().map(hide);
        let rendered = self.render(&Conversation {
            messages: &messages,
            tools: tools.as_ref(),
            documents: documents.as_ref(),
            extra: extra.as_ref().and_then(Value::as_object),
            ..*conversation
        });
        let prefill = conversation.prefill.map(|text| guard.hide_text(text, Author::Model, &stand_ins));
        match rendered {
            Ok(text) => {
                let mut hidden = if self.source.contains("ensure_ascii") { stand_ins.unescape(text) } else { text };
                hidden.push_str(prefill.as_deref().unwrap_or_default());
                Ok(Prompt { hidden, stand_ins })
            }
            Err(TextError::TemplateRejected { line, message }) => {
                Err(TextError::TemplateRejected { line, message: stand_ins.reveal(&message) })
            }
            Err(error) => Err(error),
        }
    }

    /// Renders the prompt of a conversation as text.
    pub fn render(&self, conversation: &Conversation<'_>) -> Result<String, TextError> {
        let meter = Meter::new(self.limits.work_bytes);
        let environment = builtins::environment(&meter, conversation.clock, self.limits.instructions);
        let compiled = guard::compile(&self.source)?;
        let mut text = String::new();
        let rendered = machinery::eval(
            &environment,
            &compiled.instructions,
            variables(conversation),
            &compiled.blocks,
            &mut machinery::make_string_output(&mut text),
            AutoEscape::None,
        );
        let rendered = rendered.map(|_| ()).map_err(|error| meter::render_error(&error));
        meter.unlink_namespaces();
        rendered?;
        if text.len() > self.limits.output_bytes {
            let limit = format!("output ({} bytes)", self.limits.output_bytes);
            return Err(TextError::TemplateLimit { line: 1, limit });
        }
        Ok(text)
    }
}

/// Spaces and line breaks around blocks, as Hugging Face sets them.
fn syntax() -> SyntaxConfig {
    SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().unwrap_or_default()
}

fn variables(conversation: &Conversation<'_>) -> JinjaValue {
    let mut variables = conversation.extra.cloned().unwrap_or_default();
    let optional = |value: Option<&Value>| value.cloned().unwrap_or(Value::Null);
    variables.insert("messages".into(), alias_reasoning(conversation.messages));
    variables.insert("tools".into(), optional(conversation.tools));
    variables.insert("documents".into(), optional(conversation.documents));
    variables.insert("add_generation_prompt".into(), conversation.add_generation_prompt.into());
    for (name, token) in [("bos_token", conversation.bos_token), ("eos_token", conversation.eos_token)] {
        match token {
            Some(token) => variables.insert(name.into(), token.into()),
            None => variables.remove(name),
        };
    }
    JinjaValue::from(Serde(variables))
}

/// Sets a message's reasoning under every name that templates use, as Hugging Face does.
fn alias_reasoning(messages: &Value) -> Value {
    let alias = |message: &Value| {
        let fields = message.as_object()?;
        let known = REASONING.iter().find_map(|name| fields.get(*name).filter(|value| !value.is_null()))?;
        let mut aliased = Map::new();
        aliased.insert("thinking".into(), known.clone());
        aliased.extend(fields.clone());
        aliased.insert("reasoning_content".into(), known.clone());
        Some(Value::Object(aliased))
    };
    match messages {
        Value::Array(list) => list.iter().map(|message| alias(message).unwrap_or_else(|| message.clone())).collect(),
        other => other.clone(),
    }
}
