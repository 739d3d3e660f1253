//! Nothing that people write in a conversation becomes a control token, and ordinary text keeps its tokens.

use std::sync::LazyLock;

use cascadia_text::{
    CHATML, ChatTemplate, Clock, Conversation, Prompt, SpecialTokens, TemplateLimits, TextError, Tokenizer, Vocabulary,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// One vocabulary of each make, with names that its users might type.
const KINDS: [&str; 7] = ["qwen2", "llama2", "phi3", "gemma", "kimi-k2", "gpt2", "falcon"];

/// Templates that print messages in different ways: joined, trimmed, cut, searched, as JSON, as Python.
const TEMPLATES: [&str; 7] = [
    CHATML,
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content | trim + '<|end|>\n' }}{% endfor %}",
    "{{ bos_token }}{% for m in messages %}[INST] {{ m.content.split('</think>')[-1].strip() }} [/INST]{% endfor %}",
    "{% for m in messages %}{{ m.content | replace('x', '') }}{% endfor %}{{ eos_token }}",
    "{% for m in messages %}{{ m.content[:7] }}{{ m.content[7:] }}<end_of_turn>{% endfor %}",
    "{{ messages | tojson }}{{ messages | tojson(ensure_ascii=true) }}",
    "{% for m in messages %}{{ [m.content] }}{{ m.content | upper | lower }}{% endfor %}",
];

fn tokenizer(kind: &str) -> Tokenizer {
    let path = format!("{}/../../fixtures/tokenizers/{kind}/tokenizer.json", env!("CARGO_MANIFEST_DIR"));
    Tokenizer::from_json(&std::fs::read(path).unwrap()).unwrap()
}

/// The same kinds and, as a GGUF file has it, a SentencePiece model.
static TOKENIZERS: LazyLock<Vec<(&str, Tokenizer)>> = LazyLock::new(|| {
    let data: Value = serde_json::from_str(include_str!("data/sentencepiece-prefix.json")).unwrap();
    let data = &data["vocabulary"];
    let tokens: Vec<String> = serde_json::from_value(data["tokens"].clone()).unwrap();
    let pieces = Vocabulary {
        model: "llama".into(),
        tokens: tokens.into_iter().map(String::into_bytes).collect(),
        scores: serde_json::from_value(data["scores"].clone()).unwrap(),
        types: serde_json::from_value(data["types"].clone()).unwrap(),
        add_space_prefix: true,
        ..Vocabulary::default()
    };
    let pieces = ("SentencePiece", Tokenizer::from_vocabulary(&pieces).unwrap());
    KINDS.into_iter().map(|kind| (kind, tokenizer(kind))).chain([pieces]).collect()
});

fn conversation(messages: &Value) -> Conversation<'_> {
    Conversation {
        messages,
        tools: None,
        documents: None,
        add_generation_prompt: true,
        prefill: None,
        bos_token: Some("<s>"),
        eos_token: Some("</s>"),
        extra: None,
        clock: Clock::default(),
    }
}

fn messages(contents: &[String]) -> Value {
    contents.iter().map(|content| json!({"role": "user", "content": content})).collect()
}

fn render(template: &str, messages: &Value, tokenizer: &Tokenizer) -> Result<Prompt, TextError> {
    ChatTemplate::new(template, TemplateLimits::default())?.render_prompt(&conversation(messages), tokenizer)
}

/// Ids of control tokens and of names that look like structure, in order.
fn structure(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<u32> {
    let named = |id: &u32| {
        let name = tokenizer.token_bytes(*id).unwrap_or_default();
        let ends = name.first().zip(name.last());
        name != b"<table>" && name.len() > 2 && matches!(ends, Some((b'<', b'>') | (b'[', b']') | (b'>', b'<')))
    };
    ids.iter().copied().filter(named).collect()
}

/// Pieces of text that together may spell control tokens, with an `x` that one template deletes.
fn content() -> impl Strategy<Value = String> {
    let pieces = [
        "<|im_end|>",
        "<|im_",
        "end|>",
        "<|",
        "|>",
        "<",
        ">",
        "im_start",
        "<s>",
        "</s>",
        "<",
        "s>",
        "<x|im_end|>",
        "<|enx",
        "d|>",
        "<|end|>",
        "<|user|>",
        "user",
        "[EOS]",
        "[",
        "EOS]",
        "[/INST]",
        "<end_of_turn>",
        "<end_of",
        "_turn>",
        ">>TITLE<<",
        ">",
        ">TITLE<<",
        "<|endoftext|>",
        "</think>",
        "<tool_call>",
        "<table>",
        "x",
        " ",
        "\n",
        "hello",
        "\u{338}",
        "é",
        "水",
        "▁",
        "\u{100000}",
        "\u{10fffd}",
        "\\udbc0\\udc00",
    ];
    prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn structure_comes_from_the_template_alone(contents in prop::collection::vec(content(), 1..4)) {
        let harmless = messages(&vec!["hello".to_owned(); contents.len()]);
        let messages = messages(&contents);
        for (kind, tokenizer) in TOKENIZERS.iter() {
            for template in TEMPLATES {
                let ids = |messages| tokenizer.encode_prompt(&render(template, messages, tokenizer).unwrap()).unwrap();
                let expected = structure(tokenizer, &ids(&harmless));
                prop_assert_eq!(structure(tokenizer, &ids(&messages)), expected, "{} {}", kind, template);
            }
        }
    }

    #[test]
    fn a_message_on_its_own_has_the_ids_of_plain_text(content in content()) {
        let messages = messages(std::slice::from_ref(&content));
        for (kind, tokenizer) in TOKENIZERS.iter() {
            let prompt = render("{{ messages[0].content }}", &messages, tokenizer).unwrap();
            prop_assert_eq!(prompt.text(), &*content);
            let expected = tokenizer.encode(&content, SpecialTokens::Plain).unwrap();
            prop_assert_eq!(tokenizer.encode_prompt(&prompt).unwrap(), expected, "{}", kind);
        }
    }

    #[test]
    fn ordinary_text_is_rendered_and_read_as_ever(contents in prop::collection::vec("[a-z .,\n水é]{0,20}", 1..4)) {
        let messages = messages(&contents);
        for (kind, tokenizer) in TOKENIZERS.iter() {
            for template in TEMPLATES {
                let plain = ChatTemplate::new(template, TemplateLimits::default()).unwrap();
                let plain = plain.render(&conversation(&messages)).unwrap();
                let prompt = render(template, &messages, tokenizer).unwrap();
                prop_assert_eq!(&prompt.text(), &plain);
                let expected = tokenizer.encode(&plain, SpecialTokens::Parse).unwrap();
                prop_assert_eq!(tokenizer.encode_prompt(&prompt).unwrap(), expected, "{} {}", kind, template);
            }
        }
    }
}

#[test]
fn a_model_may_write_its_own_tags() {
    let tokenizer = tokenizer("qwen2");
    let template = "{% for m in messages %}{{ m.content.split('</think>')[-1] }}|{% endfor %}";
    let said = "<think>no</think>yes<|im_end|>";
    let messages = json!([{"role": "assistant", "content": said}, {"role": "user", "content": said}]);
    let prompt = render(template, &messages, &tokenizer).unwrap();
    assert_eq!(prompt.text(), format!("yes<|im_end|>|{said}|"));
    assert!(structure(&tokenizer, &tokenizer.encode_prompt(&prompt).unwrap()).is_empty());
}

#[test]
fn roles_make_control_tokens_only_if_they_are_known() {
    let tokenizer = tokenizer("phi3");
    let template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}";
    let ids = |role: &str| {
        let messages = json!([{"role": role, "content": "hi"}]);
        Ok(tokenizer.encode_prompt(&render(template, &messages, &tokenizer)?).unwrap())
    };
    let user = tokenizer.token_id("<|user|>").unwrap();
    assert_eq!(ids("user").unwrap().first(), Some(&user));
    assert!(structure(&tokenizer, &ids("guest").unwrap()).is_empty());
    let error = ids("end").map_err(|error: TextError| error.to_string()).unwrap_err();
    assert!(error.contains("role `end`"), "{error}");
}

#[test]
fn tools_and_other_variables_are_guarded_too() {
    let tokenizer = tokenizer("qwen2");
    let tools = json!([{"name": "<|im_end|>", "<|im_start|>": 1}]);
    let extra = json!({"note": "<|im_end|>"});
    let messages = json!([]);
    let template = ChatTemplate::new("{{ tools | tojson }}{{ note }}<|im_end|>", TemplateLimits::default()).unwrap();
    let given = Conversation { tools: Some(&tools), extra: extra.as_object(), ..conversation(&messages) };
    let prompt = template.render_prompt(&given, &tokenizer).unwrap();
    assert_eq!(prompt.text(), r#"[{"name": "<|im_end|>", "<|im_start|>": 1}]<|im_end|><|im_end|>"#);
    let end = tokenizer.token_id("<|im_end|>").unwrap();
    assert_eq!(structure(&tokenizer, &tokenizer.encode_prompt(&prompt).unwrap()), [end]);
}

#[test]
fn a_rejection_shows_the_words_as_they_were_written() {
    let messages = json!([{"role": "user", "content": "<s>"}]);
    let error = render("{{ raise_exception('bad: ' + messages[0].content) }}", &messages, &tokenizer("llama2"));
    assert_eq!(error, Err(TextError::TemplateRejected { line: 1, message: "bad: <s>".into() }));
}
