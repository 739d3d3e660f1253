//! How a model writes tool calls and reasoning, detected from its chat template.

use cascadia_text::{
    AnswerFormat, AnswerParser, KeptTokens, OutputFormat, ReasoningFormat, RequiredCalls, Tokenizer, ToolCallFormat,
    ToolChoice,
};
use serde_json::Value;

use crate::error::ApiError;
use crate::request::validate::{Chat, MustCall};

/// How the model writes tool calls and reasoning, as far as its chat template shows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplyFormat {
    calls: Option<ToolCallFormat>,
    reasoning: Option<ReasoningFormat>,
}

impl ReplyFormat {
    pub(crate) fn of_template(template: Option<&str>) -> ReplyFormat {
        ReplyFormat {
            calls: template.and_then(ToolCallFormat::detect),
            reasoning: template.and_then(ReasoningFormat::detect),
        }
    }

    /// Whether the model can call functions.
    pub(crate) fn supports_tools(&self) -> bool {
        self.calls.is_some()
    }

    /// Whether the model marks its reasoning.
    pub(crate) fn reasons(&self) -> bool {
        self.reasoning.is_some()
    }

    /// The parser of an answer to this prompt.
    pub(crate) fn parser(&self, prompt: &str, tools: Option<&Value>) -> AnswerParser {
        let calls = self.calls.filter(|_| tools.is_some());
        AnswerParser::new(&AnswerFormat { calls, reasoning: self.reasoning, tools, prompt })
    }

    /// Control tokens that mark tool calls and reasoning, which the decoder must keep.
    pub(crate) fn kept_tokens(&self, tokenizer: &Tokenizer) -> KeptTokens {
        let mut markers: Vec<&str> = self.calls.iter().flat_map(ToolCallFormat::markers).collect();
        markers.extend(self.reasoning.iter().flat_map(ReasoningFormat::markers));
        KeptTokens::new(tokenizer, &markers)
    }

    /// The format of an answer that must call a function; `None` if it need not.
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
            return Err(ApiError::invalid("tool_choice", "tool_choice requires a call, but the request has no tools"));
        };
        let Some(calls) = self.calls else {
            let message =
                "this model's chat template has no tool calls that this server supports; use tool_choice auto";
            return Err(ApiError::unsupported("tool_choice", message));
        };
        let is_open = |format: &ReasoningFormat| prompt.trim_end().ends_with(format.markers()[0].trim_end());
        let required = RequiredCalls { calls, tools, choice, open_reasoning: self.reasoning.filter(is_open) };
        Ok(Some(required.output_format(tokenizer)?))
    }
}
