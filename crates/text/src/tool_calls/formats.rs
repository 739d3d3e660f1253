//! How model families write tool calls and reasoning, as a table, and how a chat template shows which one it is.

/// How a model writes calls of functions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ToolCallFormat(pub(crate) &'static CallFormat);

/// How a model marks its reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasoningFormat {
    pub(crate) open: &'static str,
    pub(crate) close: &'static str,
}

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CallFormat {
    pub(crate) name: &'static str,
    /// Texts that the templates of such models contain, all of them.
    detected_by: &'static [&'static str],
    /// What comes before a call or a list of calls.
    pub(crate) open: &'static str,
    pub(crate) shape: Shape,
    /// What comes after it.
    pub(crate) close: &'static str,
    /// What surrounds all calls together.
    pub(crate) section: [&'static str; 2],
    /// What else may surround calls without a meaning.
    pub(crate) fillers: &'static [&'static str],
}

/// What a call contains between `open` and `close`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Objects with a name and arguments, in a list or alone.
    Json {
        /// The field of the arguments, where calls are required.
        arguments: &'static str,
        list: List,
    },
    /// The name, a separator, and the arguments as JSON.
    Named { separator: &'static str, prefix: &'static str },
    /// The name and each argument between marks of their own.
    Tagged(Tags),
    /// The name, and an object whose keys are bare and whose strings stand between marks.
    BareWords { quote: &'static str },
    /// Messages with headers that say whom they are for.
    Channels,
}

/// How an answer with calls as JSON looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    /// A list of all calls.
    Always,
    /// One object for each opening.
    Never,
    /// As never, and an answer that begins with an object is a call without any opening.
    Bare,
}

/// The marks of a call that is written as tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tags {
    /// Around the name; the second ends it.
    pub(crate) name: [&'static str; 2],
    pub(crate) key: [&'static str; 2],
    pub(crate) value: [&'static str; 2],
    pub(crate) end: &'static str,
}

/// Rows with more to tell them by come first.
const FORMATS: [CallFormat; 16] = [
    CallFormat {
        name: "harmony",
        detected_by: &["<|channel|>", "functions.", "<|message|>"],
        open: "<|channel|>",
        shape: Shape::Channels,
        close: "<|call|>",
        section: ["", ""],
        fillers: &["<|start|>", "<|end|>", "<|return|>", "<|message|>", "<|constrain|>"],
    },
    CallFormat {
        name: "kimi-k2",
        detected_by: &["<|tool_call_argument_begin|>"],
        open: "<|tool_call_begin|>",
        shape: Shape::Named { separator: "<|tool_call_argument_begin|>", prefix: "functions." },
        close: "<|tool_call_end|>",
        section: ["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"],
        fillers: &[],
    },
    CallFormat {
        name: "deepseek-v3",
        detected_by: &["<｜tool▁sep｜>", "```json"],
        open: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        shape: Shape::Named { separator: "\n```json\n", prefix: "" },
        close: "\n```<｜tool▁call▁end｜>",
        section: ["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"],
        fillers: &["<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"],
    },
    CallFormat {
        name: "deepseek-v3.1",
        detected_by: &["<｜tool▁sep｜>"],
        open: "<｜tool▁call▁begin｜>",
        shape: Shape::Named { separator: "<｜tool▁sep｜>", prefix: "" },
        close: "<｜tool▁call▁end｜>",
        section: ["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"],
        fillers: &[],
    },
    CallFormat {
        name: "glm-4.5",
        detected_by: &["<arg_key>", "<arg_value>"],
        open: "<tool_call>",
        shape: Shape::Tagged(Tags {
            name: ["", "\n"],
            key: ["<arg_key>", "</arg_key>"],
            value: ["<arg_value>", "</arg_value>"],
            end: "</tool_call>",
        }),
        close: "</tool_call>",
        section: ["", ""],
        fillers: &[],
    },
    CallFormat {
        name: "qwen3-coder",
        detected_by: &["<function=", "<parameter="],
        open: "<tool_call>",
        shape: Shape::Tagged(Tags {
            name: ["<function=", ">"],
            key: ["<parameter=", ">"],
            value: ["", "</parameter>"],
            end: "</function>",
        }),
        close: "</tool_call>",
        section: ["", ""],
        fillers: &[],
    },
    CallFormat {
        name: "gemma4",
        detected_by: &["<|tool_call>call:"],
        open: "<|tool_call>call:",
        shape: Shape::BareWords { quote: "<|\"|>" },
        close: "<tool_call|>",
        section: ["", ""],
        fillers: &["<|tool_call>", "<|tool_response>"],
    },
    CallFormat {
        name: "functiongemma",
        detected_by: &["<start_function_call>"],
        open: "<start_function_call>call:",
        shape: Shape::BareWords { quote: "<escape>" },
        close: "<end_function_call>",
        section: ["", ""],
        fillers: &["<start_function_call>", "<start_function_response>"],
    },
    CallFormat {
        name: "mistral-args",
        detected_by: &["[TOOL_CALLS]", "[ARGS]"],
        open: "[TOOL_CALLS]",
        shape: Shape::Named { separator: "[ARGS]", prefix: "" },
        close: "",
        section: ["", ""],
        fillers: &[],
    },
    CallFormat {
        name: "mistral",
        detected_by: &["[TOOL_CALLS]"],
        open: "[TOOL_CALLS]",
        shape: Shape::Json { arguments: "arguments", list: List::Always },
        close: "",
        section: ["", ""],
        fillers: &[],
    },
    CallFormat {
        name: "command-a",
        detected_by: &["<|START_ACTION|>"],
        open: "<|START_ACTION|>",
        shape: Shape::Json { arguments: "parameters", list: List::Always },
        close: "<|END_ACTION|>",
        section: ["", ""],
        fillers: &["<|START_RESPONSE|>", "<|END_RESPONSE|>"],
    },
    CallFormat {
        name: "phi-4",
        detected_by: &["<|/tool|>"],
        open: "<|tool_call|>",
        shape: Shape::Json { arguments: "arguments", list: List::Always },
        close: "<|/tool_call|>",
        section: ["", ""],
        fillers: &[],
    },
    CallFormat {
        name: "granite",
        detected_by: &["<|tool_call|>"],
        open: "<|tool_call|>",
        shape: Shape::Json { arguments: "arguments", list: List::Always },
        close: "",
        section: ["", ""],
        fillers: &[],
    },
    CallFormat {
        name: "tool-calls-list",
        detected_by: &["<tool_calls>"],
        open: "<tool_calls>",
        shape: Shape::Json { arguments: "arguments", list: List::Always },
        close: "</tool_calls>",
        section: ["", ""],
        fillers: &[],
    },
    CallFormat {
        name: "hermes",
        detected_by: &["<tool_call>"],
        open: "<tool_call>",
        shape: Shape::Json { arguments: "arguments", list: List::Never },
        close: "</tool_call>",
        section: ["", ""],
        fillers: &[],
    },
    CallFormat {
        name: "llama-json",
        detected_by: &["\"parameters\": dictionary"],
        open: "<|python_tag|>",
        shape: Shape::Json { arguments: "parameters", list: List::Bare },
        close: "",
        section: ["", ""],
        fillers: &["<|python_start|>", "<|python_end|>"],
    },
];

/// Reasoning formats by what their templates contain.
const REASONING: [(&str, ReasoningFormat); 5] = [
    ("</think>", ReasoningFormat { open: "<think>", close: "</think>" }),
    ("<|channel>thought", ReasoningFormat { open: "<|channel>thought\n", close: "<channel|>" }),
    ("<|START_THINKING|>", ReasoningFormat { open: "<|START_THINKING|>", close: "<|END_THINKING|>" }),
    ("[/THINK]", ReasoningFormat { open: "[THINK]", close: "[/THINK]" }),
    ("<|inner_prefix|>", ReasoningFormat { open: "<|inner_prefix|>", close: "<|inner_suffix|>" }),
];

impl ToolCallFormat {
    /// The format that a chat template asks for, if it knows about calls.
    pub fn detect(template: &str) -> Option<ToolCallFormat> {
        let has_all = |format: &&CallFormat| format.detected_by.iter().all(|text| template.contains(text));
        FORMATS.iter().find(has_all).map(ToolCallFormat)
    }

    /// The format of this name.
    pub fn named(name: &str) -> Option<ToolCallFormat> {
        FORMATS.iter().find(|format| format.name == name).map(ToolCallFormat)
    }

    /// The names of all formats.
    pub fn names() -> Vec<&'static str> {
        FORMATS.iter().map(|format| format.name).collect()
    }

    /// The name of this format.
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// Everything that this format writes around calls, each for [`KeptTokens`](crate::KeptTokens).
    pub fn markers(&self) -> Vec<&'static str> {
        let shape: Vec<&'static str> = match &self.0.shape {
            Shape::Json { .. } | Shape::Channels => Vec::new(),
            Shape::Named { separator, .. } => vec![separator],
            Shape::Tagged(tags) => [tags.name, tags.key, tags.value].concat().into_iter().chain([tags.end]).collect(),
            Shape::BareWords { quote } => vec![quote],
        };
        let around = [self.0.open, self.0.close].into_iter().chain(self.0.section);
        around.chain(self.0.fillers.iter().copied()).chain(shape).filter(|marker| !marker.is_empty()).collect()
    }
}

impl std::fmt::Debug for ToolCallFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ToolCallFormat").field(&self.name()).finish()
    }
}

impl ReasoningFormat {
    /// How the model of this chat template marks its reasoning, if it does.
    pub fn detect(template: &str) -> Option<ReasoningFormat> {
        REASONING.iter().find(|(tell, _)| template.contains(tell)).map(|(_, format)| *format)
    }

    /// The marks, each for [`KeptTokens`](crate::KeptTokens).
    pub fn markers(&self) -> Vec<&'static str> {
        vec![self.open, self.close]
    }
}

/// Whether a marker is a name that only control tokens have, which readers are never shown.
pub(crate) fn is_control(marker: &str) -> bool {
    ["<|", "<｜", "["].iter().any(|start| marker.starts_with(start)) || marker.ends_with("|>")
}
