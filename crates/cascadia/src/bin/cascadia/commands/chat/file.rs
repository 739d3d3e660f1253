//! Conversations in files, in the form in which the web page exports and imports them.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use cascadia_engine::Message;
use serde::Deserialize;
use serde_json::json;

/// The most characters of a title.
const TITLE: usize = 60;

/// What a file has of a conversation.
pub(super) struct Saved {
    pub(super) system: Option<String>,
    pub(super) messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Exported {
    #[serde(default)]
    settings: ExportedSettings,
    messages: Vec<ExportedMessage>,
}

#[derive(Default, Deserialize)]
struct ExportedSettings {
    #[serde(default)]
    system: String,
}

#[derive(Deserialize)]
struct ExportedMessage {
    role: String,
    content: String,
}

/// Writes a conversation.
pub(super) fn save(path: &Path, model: &str, saved: &Saved) -> anyhow::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let first = saved.messages.first().map_or("", |message| message.content.as_str());
    let title: String = first.lines().next().unwrap_or_default().chars().take(TITLE).collect();
    let message = |message: &Message| json!({"role": message.role, "content": message.content});
    let conversation = json!({
        "id": format!("run-{now}"),
        "title": title,
        "created": now,
        "updated": now,
        "model": model,
        "settings": {"system": saved.system.as_deref().unwrap_or_default()},
        "messages": saved.messages.iter().map(message).collect::<Vec<_>>(),
    });
    fs::write(path, format!("{conversation:#}\n")).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads a conversation; of several in one file, the first.
pub(super) fn load(path: &Path) -> anyhow::Result<Saved> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let is_none = || format!("{} is no conversation that was saved here or exported by the page", path.display());
    let value: serde_json::Value = serde_json::from_str(&text).with_context(is_none)?;
    let first = value.as_array().and_then(|all| all.first()).cloned().unwrap_or(value);
    let exported: Exported = serde_json::from_value(first).with_context(is_none)?;
    let role = |name: &str| ["system", "user", "assistant"].into_iter().find(|known| *known == name);
    let message = |message: ExportedMessage| Some(Message { role: role(&message.role)?, content: message.content });
    let messages = exported.messages.into_iter().map(message).collect::<Option<_>>().with_context(is_none)?;
    Ok(Saved { system: Some(exported.settings.system).filter(|text| !text.is_empty()), messages })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_comes_back_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chat.json");
        let message = |role, content: &str| Message { role, content: content.to_owned() };
        let messages = vec![message("user", "Hello\n\"there\""), message("assistant", "Good day.")];
        save(&path, "rainier", &Saved { system: Some("Be brief.".to_owned()), messages: messages.clone() }).unwrap();
        let Saved { system, messages: loaded } = load(&path).unwrap();
        assert_eq!((system.as_deref(), loaded), (Some("Be brief."), messages));
        // As the page exports all conversations: a list, and more than is needed.
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("[{text}]")).unwrap();
        assert_eq!(load(&path).unwrap().messages.len(), 2);
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other");
        for text in ["", "[]", "{}", "no JSON", r#"{"messages": [{"role": "robot", "content": "x"}]}"#] {
            fs::write(&path, text).unwrap();
            let error = load(&path).err().expect("it is refused").to_string();
            assert!(error.contains("is no conversation"), "{text}: {error}");
        }
        assert!(load(&folder.path().join("none")).err().expect("it is not there").to_string().contains("cannot read"));
    }
}
