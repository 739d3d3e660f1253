//! Compiles and renders arbitrary chat templates.
#![no_main]

use cascadia_fuzz::bounded;
use cascadia_text::{ChatTemplate, Clock, Conversation, TemplateLimits};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|source: &str| {
    bounded(|| render(source));
});

fn render(source: &str) {
    let limits = TemplateLimits { instructions: 20_000, output_bytes: 64 << 10, work_bytes: 8 << 20 };
    let Ok(template) = ChatTemplate::new(source, limits) else { return };
    let messages = serde_json::json!([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "ok"}]);
    let rendered = template.render(&Conversation {
        messages: &messages,
        tools: None,
        documents: None,
        add_generation_prompt: true,
        prefill: None,
        bos_token: Some("<s>"),
        eos_token: Some("</s>"),
        extra: None,
        clock: Clock::default(),
    });
    if let Ok(text) = rendered {
        assert!(text.len() <= limits.output_bytes);
    }
}
