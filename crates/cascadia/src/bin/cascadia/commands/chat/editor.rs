//! Where people type: a line, or several between quotes, with completion and the history of earlier runs.

use std::borrow::Cow;
use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use rustyline::completion::Completer;
use rustyline::config::Config;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Editor, Helper};

use super::line::{COMMANDS, Line};
use super::settings::SETTINGS;
use crate::hub;

/// Lines of the history that are kept.
const KEPT: usize = 1000;

const PROMPT: &str = "> ";

/// What was typed.
pub(super) enum Typed {
    Line(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D.
    End,
}

/// A line editor with its history, which is written when it is dropped.
pub(super) struct LineEditor {
    editor: Editor<Help, FileHistory>,
    /// Where the history is kept; only its user can read it.
    file: Option<PathBuf>,
}

impl LineEditor {
    pub(super) fn new() -> anyhow::Result<LineEditor> {
        let advice = "cannot use the terminal; give a prompt with -p instead";
        let config = Config::builder().max_history_size(KEPT).context(advice)?.history_ignore_space(true).build();
        let mut editor = Editor::with_config(config).context(advice)?;
        editor.set_helper(Some(Help));
        let file = hub::state_folder().map(|folder| folder.join("cascadia").join("history"));
        if let Some(file) = &file {
            // There is none before the first run.
            let _ = editor.load_history(file);
        }
        Ok(LineEditor { editor, file })
    }

    pub(super) fn read(&mut self) -> anyhow::Result<Typed> {
        match self.editor.readline(PROMPT) {
            Ok(line) => {
                // A line that cannot be remembered is still answered.
                let _ = self.editor.add_history_entry(line.as_str());
                Ok(Typed::Line(line))
            }
            Err(ReadlineError::Interrupted) => Ok(Typed::Interrupted),
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(error) => Err(error).context("cannot read from the terminal"),
        }
    }
}

impl Drop for LineEditor {
    fn drop(&mut self) {
        let Some(file) = &self.file else { return };
        // Without a history, a chat is still a chat.
        let _ = file.parent().map(fs::create_dir_all);
        let _ = self.editor.save_history(file);
    }
}

/// Completes commands and their arguments, and waits for the end of quotes.
struct Help;

impl Helper for Help {}

impl Hinter for Help {
    type Hint = String;
}

impl Highlighter for Help {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _default: bool) -> Cow<'b, str> {
        Cow::Owned(format!("\x1b[1;32m{prompt}\x1b[0m"))
    }
}

impl Validator for Help {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match Line::is_open(context.input()) {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

impl Completer for Help {
    type Candidate = String;

    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(completions(&line[..position], &stored_models))
    }
}

fn stored_models() -> Vec<String> {
    let store = hub::store(cascadia_hub::Network::Offline);
    store.map(|store| store.list().into_iter().map(|model| model.name).collect()).unwrap_or_default()
}

/// Where the word before the cursor begins, and what it may become.
fn completions(line: &str, models: &dyn Fn() -> Vec<String>) -> (usize, Vec<String>) {
    let start = line.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let (before, word) = line.split_at(start);
    let commands = || COMMANDS.iter().map(|command| format!("/{} ", command.name)).collect();
    let all: Vec<String> = match before.trim() {
        "" if word.starts_with('/') => commands(),
        "/set" => SETTINGS.iter().map(|(name, ..)| format!("{name} ")).collect(),
        "/model" => models(),
        "/load" | "/save" => files(word),
        _ => Vec::new(),
    };
    (start, all.into_iter().filter(|candidate| candidate.starts_with(word)).collect())
}

/// Files and folders whose path begins like this.
fn files(word: &str) -> Vec<String> {
    let folder = word.rfind('/').map_or("", |at| &word[..=at]);
    let listed = fs::read_dir(if folder.is_empty() { "." } else { folder });
    let name = |entry: fs::DirEntry| {
        let end = if entry.path().is_dir() { "/" } else { "" };
        format!("{folder}{}{end}", entry.file_name().to_string_lossy())
    };
    let mut names: Vec<String> = listed.into_iter().flatten().flatten().map(name).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> (usize, Vec<String>) {
        completions(line, &|| vec!["smollm2:135m-q4_1".to_owned(), "qwen3:4b".to_owned()])
    }

    #[test]
    fn commands_settings_and_models_are_completed() {
        assert_eq!(found("/sy"), (0, vec!["/system ".to_owned()]));
        assert_eq!(found("/set te"), (5, vec!["temperature ".to_owned()]));
        assert_eq!(found("/model sm"), (7, vec!["smollm2:135m-q4_1".to_owned()]));
        assert_eq!(found("/model ").1.len(), 2);
        assert_eq!(found("say /sy").1.len(), 0);
        assert_eq!(found("hello").1.len(), 0);
    }

    #[test]
    fn files_are_completed_folder_by_folder() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("chats")).unwrap();
        fs::write(folder.path().join("chats/one.json"), "").unwrap();
        let line = format!("/load {}/ch", folder.path().display());
        assert_eq!(found(&line), (6, vec![format!("{}/chats/", folder.path().display())]));
        assert_eq!(found(&format!("{line}ats/o")).1, [format!("{}/chats/one.json", folder.path().display())]);
    }
}
