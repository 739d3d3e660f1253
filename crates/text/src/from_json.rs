//! Reads Hugging Face `tokenizer.json` files.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokenizers::{NormalizedString, NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

use crate::added::{AddedToken, AddedTokens, Standing};
use crate::enclosure::Enclosure;
use crate::from_gguf::byte_level_bytes;
use crate::json_models::{BpeEntry, ModelEntry, UnigramEntry, WordPieceEntry};
use crate::pieces::{Leading, Pieces, Visibility};
use crate::pipeline::{Normalizers, Pipeline};
use crate::pre_tokenizer::{PreTokenizers, RegexSplit, Step};
use crate::tokenizer::{Encoder, Inner};
use crate::vocabulary::byte_of_token;
use crate::{MAX_TOKEN_BYTES, MAX_TOKENIZER_JSON_BYTES, TextError, charsmap};

const MAX_STEPS: usize = 16;
const MAX_PATTERN_BYTES: usize = 4096;
/// Longest text that a normalizer may insert in one place.
const MAX_INSERTED_BYTES: usize = 16;
const SUPPORTED_NORMALIZERS: &str = "Sequence, BertNormalizer, NFC, NFD, NFKC, NFKD, Lowercase, Nmt, Precompiled, Prepend, Replace of a string or of runs \
     of spaces, Strip, StripAccents";
const SUPPORTED_PRE_TOKENIZERS: &str =
    "Sequence, BertPreTokenizer, ByteLevel, Digits, Metaspace, Punctuation, Split, Whitespace, WhitespaceSplit";
const SUPPORTED_DECODERS: &str = "ByteLevel, Metaspace, WordPiece, Sequence of Replace, ByteFallback, Fuse and Strip";
/// The one regular expression that normalizers of models in use replace; any other might take for ever.
const RUNS_OF_SPACES: &str = " {2,}";

/// Builds the tokenizer that the file describes; its padding and truncation are ignored.
pub(crate) fn read(json: &[u8]) -> Result<Inner, TextError> {
    if json.len() > MAX_TOKENIZER_JSON_BYTES {
        let (size, limit) = (json.len(), MAX_TOKENIZER_JSON_BYTES);
        return Err(TextError::TooLarge { what: "tokenizer.json", size, limit, unit: "bytes" });
    }
    let kind: ModelKind = parse(json)?;
    match kind.model.name.as_deref().unwrap_or("BPE") {
        "BPE" => build::<BpeEntry>(json),
        "WordPiece" => build::<WordPieceEntry>(json),
        "Unigram" => build::<UnigramEntry>(json),
        other => {
            let (found, supported) = (other.chars().take(80).collect(), "BPE, WordPiece, Unigram");
            Err(TextError::Unsupported { field: "model.type", found, supported })
        }
    }
}

fn build<M: ModelEntry>(json: &[u8]) -> Result<Inner, TextError> {
    let file: File<M> = parse(json)?;
    let normalizers = normalizers(&file.normalizer)?;
    let steps = pre_tokenizers(&file.pre_tokenizer)?;
    let style = PieceStyle::read(&file.decoder)?;
    let pieces = pieces(&file, &style)?;
    let kind = file.model.kind(style.byte_level);
    let enclosure = Enclosure::of_post_processor(&file.post_processor);
    let is_reserved = |token: &&AddedEntry| token.standing() != Standing::Text;
    let reserved = file.added_tokens.iter().filter(is_reserved).map(|token| token.content.as_str()).collect();
    let model = file.model.build(&reserved, &steps)?;
    let (added, added_normalized) = added_tokens(file.added_tokens, &normalizers)?;
    let pre_tokenizers = PreTokenizers(steps);
    let pipeline = Pipeline { added, added_normalized, normalizers, pre_tokenizers, model };
    Ok(Inner { encoder: Encoder::Pipeline(Box::new(pipeline)), pieces, kind, enclosure })
}

#[derive(Deserialize)]
struct ModelKind {
    model: ModelName,
}

#[derive(Deserialize)]
struct ModelName {
    #[serde(rename = "type")]
    name: Option<String>,
}

#[derive(Deserialize)]
struct File<M> {
    #[serde(default)]
    added_tokens: Vec<AddedEntry>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    decoder: Value,
    #[serde(default)]
    post_processor: Value,
    model: M,
}

#[derive(Deserialize)]
struct AddedEntry {
    id: u32,
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    special: bool,
}

impl AddedEntry {
    fn standing(&self) -> Standing {
        Standing::of(&self.content, self.special)
    }
}

fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, TextError> {
    serde_json::from_slice(json).map_err(|error| malformed("(whole file)", error))
}

pub(crate) fn malformed(field: impl Into<String>, reason: impl ToString) -> TextError {
    TextError::TokenizerJson { field: field.into(), reason: reason.to_string() }
}

/// Added tokens found before and after normalisation.
fn added_tokens(entries: Vec<AddedEntry>, normalizers: &Normalizers) -> Result<(AddedTokens, AddedTokens), TextError> {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for entry in entries {
        let mut token = AddedToken {
            id: entry.id,
            standing: entry.standing(),
            text: entry.content,
            single_word: entry.single_word,
            strip_left: entry.lstrip,
            strip_right: entry.rstrip,
        };
        if entry.normalized {
            let mut text = NormalizedString::from(token.text.as_str());
            normalizers.apply(&mut text).map_err(|error| malformed("added_tokens", error))?;
            token.text = text.get().to_owned();
            after.push(token);
        } else {
            before.push(token);
        }
    }
    Ok((AddedTokens::new(before)?, AddedTokens::new(after)?))
}

fn normalizers(value: &Value) -> Result<Normalizers, TextError> {
    let mut found = Vec::new();
    for value in flatten(value, "normalizers", "normalizer")? {
        let name = type_name(value);
        let inserted = value.get("content").or_else(|| value.get("prepend")).and_then(Value::as_str).unwrap_or("");
        let pattern = &value["pattern"];
        let is_replaced =
            || pattern["Regex"] == RUNS_OF_SPACES || pattern["String"].as_str().is_some_and(|text| !text.is_empty());
        let allowed = match name {
            "NFC" | "NFD" | "NFKC" | "NFKD" | "Lowercase" | "Strip" => true,
            "BertNormalizer" | "Nmt" | "StripAccents" => true,
            "Precompiled" => {
                let map = value["precompiled_charsmap"].as_str().unwrap_or_default();
                charsmap::check(map).map_err(|problem| malformed("normalizer.precompiled_charsmap", problem))?;
                true
            }
            "Prepend" => inserted.len() <= MAX_INSERTED_BYTES,
            "Replace" => inserted.len() <= MAX_INSERTED_BYTES && is_replaced(),
            _ => false,
        };
        if !allowed {
            let (field, found) = ("normalizer", describe(value));
            return Err(TextError::Unsupported { field, found, supported: SUPPORTED_NORMALIZERS });
        }
        let normalizer = NormalizerWrapper::deserialize(value).map_err(|error| malformed("normalizer", error))?;
        found.push(normalizer);
    }
    Ok(Normalizers(found))
}

fn pre_tokenizers(value: &Value) -> Result<Vec<Step>, TextError> {
    let mut steps = Vec::new();
    let mut growing = 0;
    for value in flatten(value, "pretokenizers", "pre_tokenizer")? {
        match type_name(value) {
            "Split" => steps.push(Step::Split(regex_split(value)?)),
            name @ ("BertPreTokenizer" | "ByteLevel" | "Digits" | "Metaspace" | "Punctuation" | "Whitespace"
            | "WhitespaceSplit") => {
                growing += usize::from(matches!(name, "ByteLevel" | "Metaspace"));
                let step =
                    PreTokenizerWrapper::deserialize(value).map_err(|error| malformed("pre_tokenizer", error))?;
                steps.push(Step::Other(step));
            }
            _ => {
                let (field, found) = ("pre_tokenizer", describe(value));
                return Err(TextError::Unsupported { field, found, supported: SUPPORTED_PRE_TOKENIZERS });
            }
        }
    }
    if growing > 2 {
        return Err(malformed("pre_tokenizer", "has more than two steps of type ByteLevel or Metaspace"));
    }
    Ok(steps)
}

fn regex_split(value: &Value) -> Result<RegexSplit, TextError> {
    #[derive(Deserialize)]
    struct Entry {
        pattern: PatternEntry,
        behavior: SplitDelimiterBehavior,
        #[serde(default)]
        invert: bool,
    }
    #[derive(Deserialize)]
    enum PatternEntry {
        String(String),
        Regex(String),
    }
    let entry = Entry::deserialize(value).map_err(|error| malformed("pre_tokenizer", error))?;
    let pattern = match entry.pattern {
        PatternEntry::String(text) => fancy_regex::escape(&text).into_owned(),
        PatternEntry::Regex(regex) => regex,
    };
    if pattern.len() > MAX_PATTERN_BYTES {
        let (size, limit) = (pattern.len(), MAX_PATTERN_BYTES);
        return Err(TextError::TooLarge { what: "a pattern of the pre_tokenizer", size, limit, unit: "bytes" });
    }
    let split = RegexSplit::new(&pattern, entry.behavior).map_err(|error| malformed("pre_tokenizer.pattern", error))?;
    Ok(if entry.invert { split.inverted() } else { split })
}

/// The parts of a `Sequence`, of `Sequence`s inside it, or the one value itself.
fn flatten<'a>(value: &'a Value, list: &str, field: &'static str) -> Result<Vec<&'a Value>, TextError> {
    let mut found = Vec::new();
    let mut stack = vec![value];
    while let Some(value) = stack.pop() {
        match value.get(list).and_then(Value::as_array) {
            Some(parts) if type_name(value) == "Sequence" => stack.extend(parts.iter().rev()),
            _ if value.is_null() => {}
            _ => found.push(value),
        }
        if found.len() > MAX_STEPS {
            return Err(malformed(field, format!("has more than {MAX_STEPS} steps")));
        }
    }
    Ok(found)
}

fn type_name(value: &Value) -> &str {
    value.get("type").and_then(Value::as_str).unwrap_or("")
}

/// A short form of a setting for an error message.
fn describe(value: &Value) -> String {
    value.to_string().chars().take(80).collect()
}

/// How the decoder turns token names into bytes.
#[derive(Default)]
struct PieceStyle {
    byte_level: bool,
    /// What begins the name of a token that continues a word; all others have a space before them.
    continuing: Option<String>,
    byte_fallback: bool,
    space: Option<char>,
    leading: Leading,
}

impl PieceStyle {
    fn read(decoder: &Value) -> Result<PieceStyle, TextError> {
        let mut style = PieceStyle::default();
        for value in flatten(decoder, "decoders", "decoder")? {
            style.add(value)?;
        }
        Ok(style)
    }

    fn add(&mut self, decoder: &Value) -> Result<(), TextError> {
        let text = |field: &str| decoder.get(field).and_then(Value::as_str);
        let pattern = || decoder.get("pattern")?.get("String")?.as_str();
        match type_name(decoder) {
            "ByteLevel" => self.byte_level = true,
            "ByteFallback" => self.byte_fallback = true,
            "Fuse" => {}
            "WordPiece" => {
                self.continuing = Some(text("prefix").unwrap_or_default().to_owned());
                self.leading = Leading::StripOne;
            }
            "Metaspace" => {
                self.space = text("replacement").and_then(|text| text.chars().next());
                let prefixed = text("prepend_scheme") != Some("never")
                    && decoder.get("add_prefix_space").and_then(Value::as_bool) != Some(false);
                self.leading = if prefixed { Leading::StripFirstToken } else { Leading::Keep };
            }
            "Replace" if text("content") == Some(" ") && pattern().is_some_and(|text| text.chars().count() == 1) => {
                self.space = pattern().and_then(|text| text.chars().next());
            }
            "Strip" if text("content") == Some(" ") && decoder.get("stop") == Some(&Value::from(0)) => {
                self.leading = match decoder.get("start").and_then(Value::as_u64) {
                    Some(0) => Leading::Keep,
                    Some(1) => Leading::StripOne,
                    _ => return Err(unsupported_decoder(decoder)),
                };
            }
            _ => return Err(unsupported_decoder(decoder)),
        }
        Ok(())
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        if let Some(byte) = self.byte_fallback.then(|| byte_of_token(name)).flatten() {
            return vec![byte];
        }
        if let Some(bytes) = self.byte_level.then(|| byte_level_bytes(name)).flatten() {
            return bytes;
        }
        if let Some(prefix) = &self.continuing {
            return name.strip_prefix(prefix.as_str()).map_or_else(|| format!(" {name}").into(), |rest| rest.into());
        }
        match self.space {
            Some(space) => name.replace(space, " ").into_bytes(),
            None => name.as_bytes().to_vec(),
        }
    }
}

fn unsupported_decoder(decoder: &Value) -> TextError {
    TextError::Unsupported { field: "decoder", found: describe(decoder), supported: SUPPORTED_DECODERS }
}

fn pieces<M: ModelEntry>(file: &File<M>, style: &PieceStyle) -> Result<Pieces, TextError> {
    let mut pieces = Pieces::new(style.leading);
    for (name, id) in file.model.tokens() {
        if name.len() > MAX_TOKEN_BYTES {
            let (size, limit) = (name.len(), MAX_TOKEN_BYTES);
            return Err(TextError::TooLarge { what: "the text of a token", size, limit, unit: "bytes" });
        }
        if pieces.contains(id) {
            return Err(malformed("model.vocab", format!("two tokens have the id {id}, one of them is `{name}`")));
        }
        pieces.set(id, &style.bytes(name), Visibility::Shown)?;
    }
    for token in &file.added_tokens {
        let visibility = if token.special { Visibility::Hidden } else { Visibility::Shown };
        let bytes = match style.space {
            Some(space) => token.content.replace(space, " ").into_bytes(),
            None => token.content.as_bytes().to_vec(),
        };
        pieces.set(token.id, &bytes, visibility)?;
    }
    Ok(pieces)
}
