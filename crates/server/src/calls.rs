//! Functions the model may call: what doors say about them, and what calls look like in answers.

use cascadia_text::{
    AnswerParser, KeptTokens, OutputFormat, ReasoningFormat, RequiredCalls, Tokenizer, ToolCallFormat, ToolChoice,
};
use serde_json::{Value, json};

use crate::answer::Call;
use crate::error::ApiError;
use crate::validate::{Chat, MustCall, shortened};

/// The most functions of a request.
pub(crate) const MAX_TOOLS: usize = 128;

/// What the model's template says about calls and thoughts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplyFormat {
    calls: Option<ToolCallFormat>,
    thoughts: Option<ReasoningFormat>,
}

impl ReplyFormat {
    pub(crate) fn of_template(template: Option<&str>) -> ReplyFormat {
        ReplyFormat {
            calls: template.and_then(ToolCallFormat::detect),
            thoughts: template.and_then(ReasoningFormat::detect),
        }
    }

    /// Whether the model can call functions.
    pub(crate) fn knows_calls(&self) -> bool {
        self.calls.is_some()
    }

    /// Who reads thoughts and calls out of an answer to this prompt.
    pub(crate) fn reader(&self, prompt: &str, tools: Option<&Value>) -> AnswerParser {
        let calls = self.calls.filter(|_| tools.is_some());
        AnswerParser::new(&cascadia_text::Answer { calls, reasoning: self.thoughts, tools, prompt })
    }

    /// Control tokens that the marks of calls and thoughts are made of.
    pub(crate) fn kept_tokens(&self, tokenizer: &Tokenizer) -> KeptTokens {
        let mut marks: Vec<&str> = self.calls.iter().flat_map(ToolCallFormat::markers).collect();
        marks.extend(self.thoughts.iter().flat_map(ReasoningFormat::markers));
        KeptTokens::new(tokenizer, &marks)
    }

    /// The format of an answer to this prompt that has to be a call, if it has to.
    pub(crate) fn required(
        &self,
        chat: &Chat,
        prompt: &str,
        tokenizer: &Tokenizer,
    ) -> Result<Option<OutputFormat>, ApiError> {
        let choice = match &chat.must_call {
            MustCall::Nothing => return Ok(None),
            MustCall::Any => ToolChoice::Required,
            MustCall::Function(name) => ToolChoice::Function(name),
        };
        let Some(tools) = &chat.tools else {
            return Err(ApiError::invalid("tool_choice", "tool_choice asks for a call, and there are no tools"));
        };
        let Some(calls) = self.calls else {
            let message = "this model's template has no calls that this server knows; use tool_choice auto";
            return Err(ApiError::unsupported("tool_choice", message));
        };
        let is_open = |format: &ReasoningFormat| prompt.trim_end().ends_with(format.markers()[0].trim_end());
        let required = RequiredCalls { calls, tools, choice, open_reasoning: self.thoughts.filter(is_open) };
        Ok(Some(required.output_format(tokenizer)?))
    }
}

/// Functions as templates read them: each with a type, and a name of its own.
pub(crate) fn checked(tools: Vec<Value>) -> Result<Option<Value>, ApiError> {
    if let Some(tool) = tools.iter().find(|tool| tool["type"] != "function" || !tool["function"]["name"].is_string()) {
        let kind = shortened(&tool["type"].to_string());
        return Err(ApiError::unsupported("tools", format!("a tool is of type {kind}; give functions with a name")));
    }
    Ok((!tools.is_empty()).then_some(Value::Array(tools)))
}

/// Which function `tool_choice` asks for, by OpenAI's words; `None` forbids calls.
pub(crate) fn must_call(choice: Option<&Value>) -> Result<Option<MustCall>, ApiError> {
    match choice {
        None | Some(Value::Null) => Ok(Some(MustCall::Nothing)),
        Some(Value::String(word)) if word == "auto" => Ok(Some(MustCall::Nothing)),
        Some(Value::String(word)) if word == "none" => Ok(None),
        Some(Value::String(word)) if word == "required" => Ok(Some(MustCall::Any)),
        Some(choice) => match [&choice["function"]["name"], &choice["name"]].into_iter().find_map(Value::as_str) {
            Some(name) => Ok(Some(MustCall::Function(name.to_owned()))),
            None => {
                let message = "tool_choice must be auto, none, required, or a function with its name";
                Err(ApiError::invalid("tool_choice", message))
            }
        },
    }
}

/// A call's name in the answer with this name.
pub(crate) fn call_id(answer: &str, choice: usize, index: usize) -> String {
    let random = answer.rsplit(['-', '_']).next().unwrap_or(answer);
    format!("call_{random}_{choice}_{index}")
}

/// A call as OpenAI's clients read it.
pub(crate) fn written(call: &Call, id: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
}

/// The arguments as an object, for clients that want no text.
pub(crate) fn arguments(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Value::Object(object),
        _ => json!({}),
    }
}
