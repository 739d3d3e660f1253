//! A pass over template sources before the parser sees them, so that no source can exhaust stack or memory.

use crate::TextError;

const MAX_SOURCE_BYTES: usize = 1 << 20;
/// Blocks within blocks plus brackets within brackets.
const MAX_DEPTH: usize = 128;
/// Operators of one expression: each may be a level of recursion in the parser, even without brackets.
const MAX_OPERATORS: usize = 512;
/// Anything in one tag: the code generator counts arguments with 16 bits.
const MAX_SYMBOLS: usize = 16 << 10;
/// Text between tags costs one instruction whatever its length, so long stretches are cut into pieces of this size.
const MAX_TEXT_BYTES: usize = 256;
/// White space at the edge of a tag has a meaning, and a `raw` block is one text: neither can be cut.
const MAX_UNCUT_BYTES: usize = 1 << 10;

/// Checks a source and brings it into the form that is compiled. Lines keep their numbers.
pub(crate) fn prepare(source: &str) -> Result<String, TextError> {
    if source.len() > MAX_SOURCE_BYTES {
        let (what, size) = ("the chat template", source.len());
        return Err(TextError::TooLarge { what, size, limit: MAX_SOURCE_BYTES, unit: "bytes" });
    }
    let mut scan = Scan { source, at: 0, prepared: String::with_capacity(source.len()), blocks: Vec::new(), depth: 0 };
    scan.run()?;
    Ok(scan.prepared)
}

struct Scan<'a> {
    source: &'a str,
    at: usize,
    prepared: String,
    /// Nesting added by each open block: one, plus one for every `elif`, which the parser nests.
    blocks: Vec<usize>,
    /// Sum of `blocks`.
    depth: usize,
}

impl Scan<'_> {
    fn run(&mut self) -> Result<(), TextError> {
        while let Some((offset, kind)) = next_tag(&self.source[self.at..]) {
            self.text(self.at + offset)?;
            match kind {
                Tag::Comment => self.copy_through("#}"),
                Tag::Expression => self.tag("}}")?,
                Tag::Block => self.tag("%}")?,
            }
        }
        self.text(self.source.len())
    }

    /// Copies text up to `end`, with an empty expression after every stretch of [`MAX_TEXT_BYTES`].
    fn text(&mut self, end: usize) -> Result<(), TextError> {
        let mut since_cut = 0;
        let mut spaces = 0;
        let mut after_space = true;
        for character in self.source[self.at..end].chars() {
            let is_space = character.is_whitespace();
            spaces = if is_space { spaces + character.len_utf8() } else { 0 };
            if spaces > MAX_UNCUT_BYTES {
                return Err(self.limit("white space in one place", MAX_UNCUT_BYTES));
            }
            if since_cut >= MAX_TEXT_BYTES && !is_space && !after_space && character != '{' {
                self.prepared.push_str("{{''}}");
                since_cut = 0;
            }
            self.prepared.push(character);
            since_cut += character.len_utf8();
            after_space = is_space || character == '{';
        }
        self.at = end;
        Ok(())
    }

    fn copy_through(&mut self, end: &str) {
        let rest = &self.source[self.at..];
        let length = rest.find(end).map_or(rest.len(), |position| position + end.len());
        self.prepared.push_str(&rest[..length]);
        self.at += length;
    }

    /// Copies one `{{ … }}` or `{% … %}`.
    fn tag(&mut self, end: &str) -> Result<(), TextError> {
        let start = self.at;
        let mut symbols = Symbols { rest: &self.source[start + 2..] };
        let mut count = Counts::default();
        let mut words = Vec::new();
        let mut previous = "(";
        self.prepared.push_str(&self.source[start..start + 2]);
        loop {
            if self.depth + count.brackets() > MAX_DEPTH {
                return Err(self.limit("nesting", MAX_DEPTH));
            }
            if count.brackets() == 0 && symbols.rest.trim_start_matches(['-', '+']).starts_with(end) {
                break;
            }
            let Some(symbol) = symbols.next() else { break };
            count.add(symbol);
            if count.nested_operators() > MAX_OPERATORS {
                return Err(self.limit("operators in one expression", MAX_OPERATORS));
            }
            if count.symbols > MAX_SYMBOLS {
                return Err(self.limit("symbols in one tag", MAX_SYMBOLS));
            }
            if words.len() < 3 && !symbol.trim().is_empty() && symbol != "-" && symbol != "+" {
                words.push(symbol);
            }
            let position =
                if end == "%}" && words.len() == 1 { SymbolPosition::BlockName } else { SymbolPosition::Expression };
            self.prepared.push_str(rewrite(symbol, previous, position));
            if !symbol.trim().is_empty() {
                previous = symbol;
            }
        }
        self.at = self.source.len() - symbols.rest.len();
        self.copy_through(end);
        if end == "%}" {
            self.block(&words)?;
        }
        Ok(())
    }

    /// Keeps track of the blocks that are open.
    fn block(&mut self, words: &[&str]) -> Result<(), TextError> {
        match words {
            ["raw", ..] => self.copy_raw()?,
            ["elif", ..] => {
                if let Some(nesting) = self.blocks.last_mut() {
                    *nesting += 1;
                    self.depth += 1;
                }
            }
            // `{% set x = 1 %}` stands alone, `{% set x %}` opens a block.
            ["set", _, "=" | "." | ","] | ["set", "(", ..] => {}
            [
                "set" | "if" | "for" | "macro" | "call" | "filter" | "with" | "autoescape" | "block" | "generation",
                ..,
            ] => {
                self.blocks.push(1);
                self.depth += 1;
            }
            [word, ..] if word.starts_with("end") => {
                self.depth -= self.blocks.pop().unwrap_or(0);
            }
            _ => {}
        }
        Ok(())
    }

    fn copy_raw(&mut self) -> Result<(), TextError> {
        let rest = &self.source[self.at..];
        let closing = |position: &usize| {
            let tag = rest[*position + 2..].trim_start_matches(['-', '+']).trim_start();
            tag.starts_with("endraw")
        };
        let length = rest.match_indices("{%").map(|(position, _)| position).find(closing).unwrap_or(rest.len());
        if length > MAX_UNCUT_BYTES {
            return Err(self.limit("bytes in one raw block", MAX_UNCUT_BYTES));
        }
        self.prepared.push_str(&rest[..length]);
        self.at += length;
        Ok(())
    }

    fn limit(&self, what: &str, limit: usize) -> TextError {
        let line = 1 + self.source[..self.at].matches('\n').count();
        TextError::TemplateLimit { line, limit: format!("{what} ({limit})") }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SymbolPosition {
    BlockName,
    Expression,
}

/// What one symbol becomes in the compiled source.
fn rewrite<'a>(symbol: &'a str, previous: &str, position: SymbolPosition) -> &'a str {
    match symbol {
        // Marks the assistant's words for training; rendering ignores it.
        "generation" if position == SymbolPosition::BlockName => "if true",
        "endgeneration" if position == SymbolPosition::BlockName => "endif",
        // The code generator computes products of constants itself, outside all limits. With a variable in between
        // (which is 1) they are computed while rendering. A star after `(` or `,` unpacks a list instead.
        "*" if !matches!(previous, "(" | ",") => "* one_ *",
        _ => symbol,
    }
}

/// What has been seen of one tag.
#[derive(Default)]
struct Counts {
    symbols: usize,
    /// Operators of the innermost expression so far.
    operators: usize,
    /// Operators of the expressions around it, one entry for each open bracket.
    outer: Vec<usize>,
}

impl Counts {
    fn add(&mut self, symbol: &str) {
        self.symbols += 1;
        match symbol {
            "(" | "[" | "{" => {
                self.outer.push(self.operators + 1);
                self.operators = 0;
            }
            ")" | "]" | "}" => self.operators = self.outer.pop().unwrap_or(self.operators),
            // Elements of a list are siblings: the operators of one do not nest inside those of the next.
            "," => self.operators = 0,
            "and" | "or" | "not" | "is" | "in" | "if" | "else" => self.operators += 1,
            _ => {
                let is_operator = |first: char| first.is_ascii_punctuation() && !"'\"_".contains(first);
                self.operators += usize::from(symbol.starts_with(is_operator));
            }
        }
    }

    fn brackets(&self) -> usize {
        self.outer.len()
    }

    /// How deep the parser may recurse where we are.
    fn nested_operators(&self) -> usize {
        self.operators + self.outer.iter().sum::<usize>()
    }
}

#[derive(Clone, Copy)]
enum Tag {
    Comment,
    Expression,
    Block,
}

fn next_tag(text: &str) -> Option<(usize, Tag)> {
    text.match_indices('{').find_map(|(position, _)| match text.as_bytes().get(position + 1)? {
        b'#' => Some((position, Tag::Comment)),
        b'{' => Some((position, Tag::Expression)),
        b'%' => Some((position, Tag::Block)),
        _ => None,
    })
}

/// Splits the inside of a tag into strings, words, white space and single characters.
struct Symbols<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Symbols<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let first = self.rest.chars().next()?;
        let is_word = |character: char| character.is_alphanumeric() || character == '_';
        let length = match first {
            '"' | '\'' => string_length(self.rest, first),
            '*' if self.rest.starts_with("**") => 2,
            _ if first.is_whitespace() => self.run(char::is_whitespace),
            _ if is_word(first) => self.run(is_word),
            _ => first.len_utf8(),
        };
        let (symbol, rest) = self.rest.split_at(length);
        self.rest = rest;
        Some(symbol)
    }
}

impl Symbols<'_> {
    fn run(&self, belongs: impl Fn(char) -> bool) -> usize {
        self.rest.find(|character| !belongs(character)).unwrap_or(self.rest.len())
    }
}

/// Length of a string literal with its quotes, or of the rest if it is not closed.
fn string_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (position, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return position + 1,
            _ => {}
        }
    }
    text.len()
}
