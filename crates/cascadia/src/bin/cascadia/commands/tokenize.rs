//! `cascadia tokenize`.

use std::io::{self, BufRead, BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, bail};
use cascadia_engine::ModelText;
use cascadia_text::{Clock, Conversation, SpecialTokens, Tokenizer};
use serde_json::{Map, Value, json};

use crate::flags::TokenizeFlags;
use crate::output::print;
use crate::source::find;

/// Shows the tokens of texts and conversations.
pub(crate) fn tokenize(flags: &TokenizeFlags) -> anyhow::Result<()> {
    let reader = Reader::open(flags)?;
    if flags.json {
        return answer_lines(&reader);
    }
    let text = match &flags.prompt {
        Some(text) => text.clone(),
        None => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).context("cannot read the text from standard input as UTF-8")?;
            text
        }
    };
    let tokens = reader.text(&text)?.into_iter().map(|id| {
        let bytes = reader.tokenizer.token_bytes(id).unwrap_or_default();
        format!("{id:>7}  {:?}\n", String::from_utf8_lossy(bytes))
    });
    Ok(print(&tokens.collect::<String>())?)
}

/// One answer for each line of standard input.
fn answer_lines(reader: &Reader<'_>) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for (index, line) in io::stdin().lock().lines().enumerate() {
        let place = || format!("line {} of standard input: give one JSON value per line", index + 1);
        let value: Value = serde_json::from_str(&line.with_context(place)?).with_context(place)?;
        let answer = match reader.answer(&value) {
            Ok((ids, text)) => json!({"ids": ids, "text": text}),
            Err(error) => json!({"error": format!("{error:#}")}),
        };
        writeln!(out, "{answer}")?;
    }
    Ok(out.flush()?)
}

/// A tokenizer, with the rest of the model's text side if it came with one.
struct Reader<'a> {
    flags: &'a TokenizeFlags,
    tokenizer: Tokenizer,
    model: Option<ModelText>,
}

impl<'a> Reader<'a> {
    fn open(flags: &'a TokenizeFlags) -> anyhow::Result<Reader<'a>> {
        let path = Path::new(&flags.model);
        if path.extension().is_some_and(|extension| extension == "json") {
            let reading = || format!("cannot read the tokenizer {}", path.display());
            let tokenizer = Tokenizer::from_json(&std::fs::read(path).with_context(reading)?).with_context(reading)?;
            return Ok(Reader { flags, tokenizer, model: None });
        }
        let mut model = ModelText::read(&find(&flags.model)?.files()?)?;
        if let Some(path) = &flags.template {
            let reading = || format!("cannot read the template {}", path.display());
            model = model.with_template(std::fs::read_to_string(path).with_context(reading)?);
        }
        Ok(Reader { flags, tokenizer: model.tokenizer().clone(), model: Some(model) })
    }

    /// The tokens of one JSON value, and the text that they stand for.
    fn answer(&self, value: &Value) -> anyhow::Result<(Vec<u32>, String)> {
        match value {
            Value::String(text) => {
                let ids = self.text(text)?;
                let decoded = String::from_utf8_lossy(&self.tokenizer.decode(&ids)).into_owned();
                Ok((ids, decoded))
            }
            Value::Array(_) => self.conversation(value, &Map::new()),
            Value::Object(fields) => match fields.get("messages") {
                Some(messages) => self.conversation(messages, fields),
                None => bail!("a conversation needs the field `messages`"),
            },
            _ => bail!("give a string, a list of messages, or an object with `messages`"),
        }
    }

    fn text(&self, text: &str) -> anyhow::Result<Vec<u32>> {
        let special = if self.flags.plain { SpecialTokens::Plain } else { SpecialTokens::Parse };
        let mut ids = self.tokenizer.encode(text, special)?;
        let known = self.model.as_ref().map(ModelText::special);
        let bos = known.filter(|known| known.add_bos && !self.flags.no_bos).and_then(|known| known.bos);
        if let Some(bos) = bos.filter(|bos| ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    fn conversation(&self, messages: &Value, fields: &Map<String, Value>) -> anyhow::Result<(Vec<u32>, String)> {
        let Some(model) = &self.model else { bail!("a tokenizer.json has no chat template; give the model") };
        let given = |name: &str| fields.get(name).filter(|value| !value.is_null());
        let usual = model.conversation(messages);
        let now = given("now").and_then(Value::as_i64);
        let prompt = model.render(&Conversation {
            tools: given("tools"),
            documents: given("documents"),
            add_generation_prompt: given("add_generation_prompt").is_none_or(|value| value == true),
            prefill: None,
            extra: Some(fields),
            clock: now.map_or(usual.clock, |unix_seconds| Clock { unix_seconds, utc_offset_seconds: 0 }),
            ..usual
        })?;
        Ok((self.tokenizer.encode_prompt(&prompt)?, prompt.text()))
    }
}
