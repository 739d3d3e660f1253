//! Breaks the lines of an answer between words at the edge of the terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Text that comes in pieces. A word is held back until it ends, because its end decides on which line it is. Lines of code
/// stay as they are.
pub(super) struct Wrap {
    columns: usize,
    /// Columns of the line that are taken.
    taken: usize,
    /// The word whose end has not come, as far as it is held back.
    word: String,
    /// Whether the beginning of that word has been printed.
    begun: bool,
    /// What the line began with, as far as it says whether it is of code.
    start: String,
    in_code: bool,
}

/// What encloses code.
const FENCE: &str = "```";

impl Wrap {
    /// For a terminal of so many columns.
    pub(super) fn new(columns: usize) -> Wrap {
        Wrap {
            columns: columns.max(1),
            taken: 0,
            word: String::new(),
            begun: false,
            start: String::new(),
            in_code: false,
        }
    }

    /// What to print for the next piece.
    pub(super) fn push(&mut self, piece: &str) -> String {
        let mut out = String::new();
        for character in piece.chars() {
            if self.start.len() < FENCE.len() {
                self.start.push(character);
            }
            match character {
                '\n' => {
                    self.end_word(&mut out);
                    out.push('\n');
                    self.in_code ^= self.start.starts_with(FENCE);
                    self.start.clear();
                    self.taken = 0;
                }
                character if character.is_whitespace() => {
                    self.end_word(&mut out);
                    // No line begins with the space between two words.
                    if self.taken < self.columns || self.is_code() {
                        out.push(character);
                        self.taken += character.width().unwrap_or(1);
                    }
                }
                character => {
                    self.word.push(character);
                    // A word that is no longer than a line may still be broken; one that is goes out as it comes.
                    if self.is_code() || self.begun || self.word.width() >= self.columns {
                        self.put_word(&mut out);
                        self.begun = true;
                    }
                }
            }
        }
        out
    }

    /// What is left at the end.
    pub(super) fn finish(mut self) -> String {
        let mut out = String::new();
        self.end_word(&mut out);
        out
    }

    fn is_code(&self) -> bool {
        self.in_code || self.start.starts_with(FENCE)
    }

    fn end_word(&mut self, out: &mut String) {
        self.put_word(out);
        self.begun = false;
    }

    fn put_word(&mut self, out: &mut String) {
        let width = self.word.width();
        let fits = self.taken + width <= self.columns || width >= self.columns;
        if self.taken > 0 && !fits && !self.begun && !self.is_code() {
            out.push('\n');
            self.taken = 0;
        }
        out.push_str(&self.word);
        self.taken += width;
        self.word.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(columns: usize, text: &str, piece: usize) -> String {
        let mut wrap = Wrap::new(columns);
        let characters: Vec<char> = text.chars().collect();
        let mut out: String =
            characters.chunks(piece).map(|part| wrap.push(&part.iter().collect::<String>())).collect();
        out.push_str(&wrap.finish());
        out
    }

    #[test]
    fn lines_end_between_words_however_the_text_comes() {
        let text = "The ship left the harbour at dawn, with all sails set.\nAnd then:\n```\nlet code = stays(as, it, is);\n```\nEnd.";
        for piece in [1, 2, 3, 7, 100] {
            let shown = wrapped(20, text, piece);
            let prose = shown.split("```").next().unwrap();
            assert!(prose.lines().all(|line| line.trim_end().width() <= 20), "{shown:?}");
            assert!(shown.contains("let code = stays(as, it, is);"), "{shown:?}");
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(&shown), words(text));
            assert_eq!(shown, wrapped(20, text, 1));
        }
    }

    #[test]
    fn long_words_and_wide_characters_are_not_lost() {
        let address = "https://example.org/a/very/long/address";
        assert_eq!(wrapped(10, address, 4), address);
        assert_eq!(wrapped(6, "a 漢字 漢字", 1), "a 漢字\n漢字");
    }
}
