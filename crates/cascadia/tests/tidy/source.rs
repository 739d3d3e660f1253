//! Files of the repository, and Rust source with comments and literals told apart from code.

use std::fs;
use std::path::{Path, PathBuf};

/// One text file of the repository.
pub(crate) struct SourceFile {
    /// Path from the root of the repository, with forward slashes.
    pub(crate) path: String,
    /// The file as it is.
    pub(crate) text: String,
    /// Rust only: comments and literals blanked out, lines kept.
    pub(crate) code: String,
    /// Rust only: comments blanked out, literals and lines kept.
    pub(crate) code_and_literals: String,
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies in crates/cascadia").to_owned()
}

/// Every text file of the repository, without what builds and set-ups leave behind.
pub(crate) fn files() -> Vec<SourceFile> {
    let root = root();
    let mut paths = Vec::new();
    collect(&root, &mut paths);
    paths.sort();
    paths.iter().filter_map(|path| read(&root, path)).collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    // What .gitignore names, and the seeds of fuzz targets; a walk instead of `git ls-files` so that an unpacked archive passes too.
    const SKIPPED: [&str; 5] = [".git", "target", ".venv", "__pycache__", "corpus"];
    for entry in fs::read_dir(folder).expect("a folder of the repository can be listed") {
        let entry = entry.expect("a folder of the repository can be listed");
        let kind = entry.file_type().expect("an entry of the repository has a type");
        if SKIPPED.iter().any(|skipped| entry.file_name() == *skipped) {
            continue;
        }
        if kind.is_dir() {
            collect(&entry.path(), paths);
        } else if kind.is_file() {
            paths.push(entry.path());
        }
    }
}

fn read(root: &Path, path: &Path) -> Option<SourceFile> {
    let text = String::from_utf8(fs::read(path).ok()?).ok()?;
    let relative = path.strip_prefix(root).expect("the walk starts at the root");
    let path = relative.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/");
    let classified = if path.ends_with(".rs") { classify(&text) } else { Vec::new() };
    let keep = |kinds: &[Kind]| classified.iter().map(|(c, kind)| blank_unless(*c, kinds.contains(kind))).collect();
    let (code, code_and_literals) = (keep(&[Kind::Code]), keep(&[Kind::Code, Kind::Literal]));
    Some(SourceFile { path, text, code, code_and_literals })
}

fn blank_unless(character: char, kept: bool) -> char {
    if kept || character == '\n' { character } else { ' ' }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Literal,
    Comment,
}

/// Says of every character whether it is code, inside a literal or inside a comment.
fn classify(text: &str) -> Vec<(char, Kind)> {
    let characters: Vec<char> = text.chars().collect();
    let mut out = Vec::with_capacity(characters.len());
    while out.len() < characters.len() {
        let rest = &characters[out.len()..];
        let after_word = out.last().is_some_and(|(c, _): &(char, Kind)| c.is_alphanumeric() || *c == '_');
        let (length, kind) = match (comment_length(rest), literal_length(rest, after_word)) {
            (Some(length), _) => (length, Kind::Comment),
            (None, Some(length)) => (length, Kind::Literal),
            (None, None) => (1, Kind::Code),
        };
        out.extend(rest[..length.min(rest.len())].iter().map(|c| (*c, kind)));
    }
    out
}

fn comment_length(rest: &[char]) -> Option<usize> {
    if rest.starts_with(&['/', '/']) {
        return Some(rest.iter().position(|c| *c == '\n').unwrap_or(rest.len()));
    }
    if !rest.starts_with(&['/', '*']) {
        return None;
    }
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    Some(at)
}

fn literal_length(rest: &[char], after_word: bool) -> Option<usize> {
    // A prefix such as `br` belongs to the literal only where no identifier is under way.
    let prefix = if after_word { 0 } else { rest.iter().take(2).take_while(|c| "bcr".contains(**c)).count() };
    let body = &rest[prefix..];
    let raw = rest[..prefix].contains(&'r');
    let hashes = if raw { body.iter().take_while(|c| **c == '#').count() } else { 0 };
    match body.get(hashes)? {
        '"' if raw => {
            let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
            let inside = &body[hashes + 1..];
            let length = inside.windows(end.len()).position(|window| window == end).unwrap_or(inside.len());
            Some(prefix + hashes + 1 + length + end.len())
        }
        '"' => Some(prefix + quoted_length(body, '"')),
        // A quote opens a character only if it closes soon; otherwise it is a lifetime.
        '\'' if !raw && (body.get(1) == Some(&'\\') || body.get(2) == Some(&'\'')) => {
            Some(prefix + quoted_length(body, '\''))
        }
        _ => None,
    }
}

/// Length of a literal that starts with `quote`, both quotes included.
fn quoted_length(body: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < body.len() && body[at] != quote {
        at += if body[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// Name, first line and number of lines of every function with a body.
pub(crate) fn functions(code: &str) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for (start, _) in code.match_indices("fn ") {
        let separate = start == 0 || !code[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let name: String = code[start + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let Some(length) = body_length(&code[start..]).filter(|_| separate && !name.is_empty()) else { continue };
        let lines = code[start..start + length].lines().count();
        found.push((name, code[..start].lines().count().max(1), lines));
    }
    found
}

/// Bytes from the word `fn` to the brace that closes its body; nothing for a declaration without one.
fn body_length(code: &str) -> Option<usize> {
    let (mut braces, mut brackets) = (0_i32, 0_i32);
    for (at, character) in code.char_indices() {
        match character {
            ';' if braces == 0 && brackets == 0 => return None,
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            '{' => braces += 1,
            '}' => braces -= 1,
            _ => continue,
        }
        if character == '}' && braces == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// The words of an identifier in lower case: those of `StageWorkers`, `stage_workers` and `STAGE_WORKERS` are the same.
pub(crate) fn words(identifier: &str) -> Vec<String> {
    let (mut words, mut before) = (vec![String::new()], '_');
    for character in identifier.chars() {
        if character == '_' || (character.is_uppercase() && !before.is_uppercase()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| character != '_') {
            word.extend(character.to_lowercase());
        }
        before = character;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn identifiers_are_made_of_words() {
    for identifier in ["StageWorkers", "stage_workers", "STAGE_WORKERS", "_stageWorkers"] {
        assert_eq!(words(identifier), ["stage", "workers"], "{identifier}");
    }
    assert_eq!(words(""), [""; 0]);
}

#[test]
fn tells_code_from_literals_and_comments() {
    let check = |text: &str, code: &str| {
        let kept: String = classify(text).iter().map(|(c, kind)| blank_unless(*c, *kind == Kind::Code)).collect();
        assert_eq!(kept, code, "{text}");
    };
    check("a // b\nc", "a     \nc");
    check("a /* b /* c */ d */ e", "a                   e");
    check("f(\"x\\\"y\") + 1", "f(      ) + 1");
    check("r#\"a\"b\"# + bar\"x\"", "         + bar   ");
    check("&'a str, 'x', '\\'', b'{'", "&'a str,    ,     ,     ");
    check("\"unterminated", "             ");
}

#[test]
fn measures_functions() {
    let check = |code: &str, expected: &[(&str, usize, usize)]| {
        let found = functions(code);
        let found: Vec<_> = found.iter().map(|(name, line, lines)| (name.as_str(), *line, *lines)).collect();
        assert_eq!(found, expected, "{code}");
    };
    check("fn a() {\n}\n\npub fn b(x: [u8; 4]) -> u8 {\n    {}\n    1\n}", &[("a", 1, 2), ("b", 4, 4)]);
    check("trait T { fn a(&self); fn b() {} }\nlet f: fn (u8) = g; let often = 1;", &[("b", 1, 1)]);
}
