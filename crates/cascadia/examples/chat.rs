//! Chats with a model, printing the answer as it is generated: `cargo run --release --example chat [MODEL]`.

use std::io::{Write, stdout};

use cascadia::{EMBEDDED_MODEL, FinishReason, GenerateOptions, Message, Model, ModelSource};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = std::env::args().nth(1).map_or(EMBEDDED_MODEL, ModelSource::from);
    let model = Model::builder().context(1024).open(source)?;
    let options = GenerateOptions::greedy().max_tokens(96);
    let mut messages = Vec::new();
    for question in ["Tell me about the harbour at night.", "And in the morning?"] {
        writeln!(stdout(), "> {question}")?;
        messages.push(Message { role: "user", content: question.to_owned() });
        let mut generation = model.chat_with(&messages, &options)?;
        let mut answer = String::new();
        for delta in generation.by_ref() {
            let delta = delta?;
            write!(stdout(), "{}", delta.text)?;
            stdout().flush()?;
            answer += &delta.text;
        }
        let finished = generation.finished().ok_or("an answer that ends says how")?;
        let (stats, reused) = (&finished.stats, finished.stats.reused_tokens);
        let (prompt, decode) = (stats.prompt_tokens, stats.decode_rate());
        writeln!(stdout(), "\n[prompt {prompt} tokens ({reused} cached); {decode:.0} tokens/s]")?;
        assert!(!answer.is_empty());
        assert!(matches!(finished.reason, FinishReason::Stop | FinishReason::Length));
        // The second prompt begins with the first, whose keys and values are still cached.
        assert_eq!(reused > 0, messages.len() > 1);
        messages.push(Message { role: "assistant", content: answer });
    }
    Ok(())
}
