//! Renders chat templates and compares them byte for byte with transformers' own renderer.

use cascadia_text::{CHATML, ChatTemplate, Clock, Conversation, TemplateLimits, TextError};
use serde_json::{Value, json};

fn data() -> Value {
    serde_json::from_str(include_str!("data/templates.json")).expect("valid test data")
}

#[test]
fn templates_render_as_transformers_does() {
    let data = data();
    let clock = Clock { unix_seconds: data["unix_seconds"].as_i64().unwrap(), utc_offset_seconds: 0 };
    for case in data["cases"].as_array().unwrap() {
        let name = case["template"].as_str().unwrap();
        let template =
            ChatTemplate::new(data["templates"][name].as_str().unwrap(), TemplateLimits::default()).expect(name);
        let rendered = template.render(&Conversation {
            messages: &data["conversations"][case["conversation"].as_str().unwrap()],
            tools: case["tools"].as_bool().unwrap().then_some(&data["tools"]),
            documents: None,
            add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(),
            prefill: None,
            bos_token: Some("<s>"),
            eos_token: Some("</s>"),
            extra: None,
            clock,
        });
        let description = format!("{name}, {}, tools {}", case["conversation"], case["tools"]);
        match (case["expected"].as_str(), case["rejection"].as_str(), rendered) {
            (Some(expected), _, rendered) => {
                assert_eq!(rendered.as_deref().map_err(ToString::to_string), Ok(expected), "{description}")
            }
            (_, Some(expected), Err(TextError::TemplateRejected { message, .. })) => {
                assert_eq!(message, expected, "{description}")
            }
            (_, None, Err(_)) => {}
            (_, _, rendered) => panic!("{description}: got {rendered:?} instead of an error as in {case}"),
        }
    }
}

fn conversation(messages: &Value) -> Conversation<'_> {
    Conversation {
        messages,
        tools: None,
        documents: None,
        add_generation_prompt: true,
        prefill: None,
        bos_token: None,
        eos_token: None,
        extra: None,
        clock: Clock::default(),
    }
}

fn render(source: &str) -> Result<String, TextError> {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    ChatTemplate::new(source, TemplateLimits::default())?.render(&conversation(&messages))
}

#[test]
fn the_fallback_template_is_chatml() {
    assert_eq!(render(CHATML).unwrap(), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

#[test]
fn a_template_may_reject_a_conversation() {
    let error = render("line one\n{{ raise_exception('roles must alternate') }}").unwrap_err();
    assert_eq!(error, TextError::TemplateRejected { line: 2, message: "roles must alternate".into() });
}

#[test]
fn errors_name_the_line() {
    let syntax = ChatTemplate::new("one\ntwo\n{% if %}", TemplateLimits::default()).unwrap_err();
    assert!(matches!(syntax, TextError::TemplateSyntax { line: 3, .. }), "{syntax}");
    let unknown = render("one\n{{ messages | nonsense }}").unwrap_err();
    assert!(unknown.to_string().contains("line 2") && unknown.to_string().contains("nonsense"), "{unknown}");
    let undefined = render("{{ a.b.c }}").unwrap_err();
    assert!(matches!(undefined, TextError::TemplateRender { line: 1, .. }), "{undefined}");
}

#[test]
fn extra_variables_are_seen_but_override_nothing() {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let extra =
        json!({"enable_thinking": false, "messages": [], "add_generation_prompt": "forged", "bos_token": "forged"});
    let template =
        "{{ enable_thinking }} {{ messages | length }} {{ add_generation_prompt }} {{ bos_token is defined }}";
    let template = ChatTemplate::new(template, TemplateLimits::default()).unwrap();
    let rendered = template.render(&Conversation { extra: extra.as_object(), ..conversation(&messages) });
    assert_eq!(rendered.unwrap(), "False 1 True False");
}

#[test]
fn the_clock_is_the_one_passed_in() {
    for (unix_seconds, expected) in [
        (0, "1970-01-01 Thu"),
        (951_782_400, "2000-02-29 Tue"),
        (4_107_542_399, "2100-02-28 Sun"),
        (-86_400, "1969-12-31 Wed"),
        (1_735_603_200, "2024-12-31 Tue"),
    ] {
        let messages = json!([]);
        let template = ChatTemplate::new("{{ strftime_now('%Y-%m-%d %a') }}", TemplateLimits::default()).unwrap();
        let clock = Clock { unix_seconds, utc_offset_seconds: 0 };
        assert_eq!(template.render(&Conversation { clock, ..conversation(&messages) }).unwrap(), expected);
    }
}
