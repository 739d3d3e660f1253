//! What a line of input asks for.

/// What encloses a message of several lines.
pub(super) const QUOTES: &str = "\"\"\"";

/// A command: its name, what follows it, and what it does.
pub(super) struct ChatCommand {
    pub(super) name: &'static str,
    rest: &'static str,
    does: &'static str,
}

/// In the order in which the help shows them.
pub(super) const COMMANDS: &[ChatCommand] = &[
    command(
        "system",
        "[TEXT]",
        "tell the model something before the conversation, which starts afresh; alone: show it",
    ),
    command("set", "[NAME VALUE]", "change a setting, such as temperature 0.5; alone: show all"),
    command("model", "[NAME]", "continue with another model; alone: show which it is"),
    command("save", "FILE", "write the conversation, as the web page exports it"),
    command("load", "FILE", "continue a conversation that was saved or exported"),
    command("reset", "", "forget the conversation"),
    command("help", "", "show this"),
    command("bye", "", "leave (so does Ctrl-D)"),
];

const fn command(name: &'static str, rest: &'static str, does: &'static str) -> ChatCommand {
    ChatCommand { name, rest, does }
}

/// What people can type, a line each.
pub(super) fn help() -> String {
    let line = |ChatCommand { name, rest, does }: &ChatCommand| format!("{:<22} {does}\n", format!("/{name} {rest}"));
    let commands: String = COMMANDS.iter().map(line).collect();
    format!(
        "{commands}{QUOTES} begins and ends a message of several lines.\n\
         Ctrl-C stops an answer; what was written of it stays in the conversation."
    )
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Nothing,
    Say(&'a str),
    System(&'a str),
    /// A setting and its value; both empty to see all.
    Set(&'a str, &'a str),
    Model(&'a str),
    Save(&'a str),
    Load(&'a str),
    Reset,
    Help,
    Leave,
    Unknown(&'a str),
}

impl<'a> Line<'a> {
    pub(super) fn parse(line: &'a str) -> Line<'a> {
        let line = line.trim();
        if let Some(quoted) = line.strip_prefix(QUOTES) {
            let text = quoted.strip_suffix(QUOTES).unwrap_or(quoted).trim_matches('\n');
            return if text.trim().is_empty() { Line::Nothing } else { Line::Say(text) };
        }
        let Some(command) = line.strip_prefix('/') else {
            return if line.is_empty() { Line::Nothing } else { Line::Say(line) };
        };
        let parted = |text: &'a str| {
            let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
            (first, rest.trim())
        };
        let (name, rest) = parted(command);
        match name {
            "system" => Line::System(rest),
            "set" => {
                let (name, value) = parted(rest);
                Line::Set(name, value)
            }
            "model" => Line::Model(rest),
            "save" => Line::Save(rest),
            "load" => Line::Load(rest),
            "reset" | "clear" => Line::Reset,
            "help" | "?" => Line::Help,
            "bye" | "exit" | "quit" => Line::Leave,
            _ => Line::Unknown(name),
        }
    }

    /// Whether a message of several lines has begun and not ended.
    pub(super) fn is_open(line: &str) -> bool {
        line.trim_start().strip_prefix(QUOTES).is_some_and(|rest| !rest.trim_end().ends_with(QUOTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        let cases = [
            ("  ", Line::Nothing),
            (" hello / there ", Line::Say("hello / there")),
            ("/system  be brief ", Line::System("be brief")),
            ("/system", Line::System("")),
            ("/set temperature  0.5", Line::Set("temperature", "0.5")),
            ("/set", Line::Set("", "")),
            ("/save my chat.json", Line::Save("my chat.json")),
            ("/bye", Line::Leave),
            ("/exit", Line::Leave),
            ("/nonsense 1", Line::Unknown("nonsense")),
            ("\"\"\"one\n  two\n\"\"\"", Line::Say("one\n  two")),
            ("\"\"\"\n/reset\n\"\"\"", Line::Say("/reset")),
            ("\"\"\"\"\"\"", Line::Nothing),
        ];
        for (line, expected) in cases {
            assert_eq!(Line::parse(line), expected);
        }
        for command in COMMANDS {
            assert!(!matches!(Line::parse(&format!("/{}", command.name)), Line::Unknown(_)), "{}", command.name);
            assert!(help().contains(&format!("/{}", command.name)));
        }
    }

    #[test]
    fn quotes_stay_open_until_they_are_closed() {
        for open in ["\"\"\"", "\"\"\"one", " \"\"\"one\ntwo"] {
            assert!(Line::is_open(open), "{open}");
        }
        for closed in ["one", "\"\"\"one\"\"\"", "\"\"\"one\ntwo\"\"\" ", "one \"\"\"", "\"\"\"\"\"\""] {
            assert!(!Line::is_open(closed), "{closed}");
        }
    }
}
