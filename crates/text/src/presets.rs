//! The pre-tokenizers that `tokenizer.ggml.pre` names, as data.

use crate::TextError;

/// What a name says about a byte-level tokenizer.
pub(crate) struct Preset {
    /// The names that mean this; the first is the one we write.
    pub(crate) names: &'static [&'static str],
    /// How text is cut, in order.
    pub(crate) cuts: &'static [Cut],
    /// Whether text is brought to Unicode normal form C first.
    pub(crate) compose: bool,
    /// Whether a word which is itself a token skips the merges.
    pub(crate) whole_words: bool,
}

/// One step of cutting text into words.
pub(crate) enum Cut {
    /// Every match of this expression is a word of its own.
    Split(&'static str),
    /// Every digit is a word of its own.
    Digits,
    /// Every run of digits is a word of its own.
    Numbers,
    /// Every run of punctuation is a word of its own.
    Punctuation,
    /// Bytes are spelled as letters; no cut.
    Bytes,
    /// The first of these tokenizers' expression, then bytes are spelled as letters.
    WordsAndBytes,
}

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Marks belong to the word they stand on.
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Words also end where lower case turns into upper case.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The same with contractions kept on their word.
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The same with Han characters apart from other scripts.
const KIMI_K2: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK_V3: &str = r#"[!"\#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"#;
/// Letters with case, as the makers of that tokenizer listed them.
const CASED_WORDS: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
/// Chinese, Japanese and Korean, as the same makers listed them.
const EAST_ASIAN: &str = r"[一-龥ࠀ-一가-퟿]+";
const BLOOM: &str = r" ?[^(\s|[.,!?…。，、।۔،])]+";

const SUPPORTED: &str = "gpt-2, mpt, smollm, command-r, llama-bpe, dbrx, qwen2, stablelm2, qwen35, tekken, gpt-4o, \
    kimi-k2, deepseek-llm, deepseek-coder, deepseek-v3, falcon, bloom, and other names of these";

/// Plainest first: where several names cut a text alike, the first is written.
pub(crate) const PRESETS: [Preset; 17] = [
    plain(
        &[
            "gpt-2",
            "default",
            "phi-2",
            "roberta-bpe",
            "gigachat",
            "mellum",
            "exaone4",
            "jais",
            "trillion",
            "granite-docling",
        ],
        &[Cut::WordsAndBytes],
    ),
    Preset { compose: true, ..plain(&["mpt", "olmo"], &[Cut::WordsAndBytes]) },
    plain(
        &["smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[Cut::Digits, Cut::WordsAndBytes],
    ),
    Preset { compose: true, ..plain(&["command-r"], &[Cut::Digits, Cut::WordsAndBytes]) },
    Preset {
        whole_words: true,
        ..plain(
            &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
            &[Cut::Split(LLAMA3), Cut::Bytes],
        )
    },
    plain(&["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], &[Cut::Split(LLAMA3), Cut::Bytes]),
    Preset { compose: true, ..plain(&["qwen2", "deepseek-r1-qwen", "megrez"], &[Cut::Split(QWEN2), Cut::Bytes]) },
    plain(&["stablelm2", "hunyuan", "solar-open", "grok-2"], &[Cut::Split(QWEN2), Cut::Bytes]),
    Preset { compose: true, ..plain(&["qwen35"], &[Cut::Split(QWEN35), Cut::Bytes]) },
    Preset { whole_words: true, ..plain(&["tekken"], &[Cut::Split(TEKKEN), Cut::Bytes]) },
    Preset { whole_words: true, ..plain(&["gpt-4o", "llama4", "kanana2"], &[Cut::Split(GPT4O), Cut::Bytes]) },
    Preset { whole_words: true, ..plain(&["kimi-k2"], &[Cut::Split(KIMI_K2), Cut::Bytes]) },
    plain(
        &["deepseek-llm"],
        &[
            Cut::Split(r"[\r\n]"),
            Cut::Split(CASED_WORDS),
            Cut::Split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
            Cut::Split(r"\s+$"),
            Cut::Split(EAST_ASIAN),
            Cut::Digits,
            Cut::Bytes,
        ],
    ),
    plain(
        &["deepseek-coder"],
        &[
            Cut::Split(r"[\r\n]"),
            Cut::Split(r"\s?\p{L}+"),
            Cut::Split(r"\s?\p{P}+"),
            Cut::Split(EAST_ASIAN),
            Cut::Digits,
            Cut::Bytes,
        ],
    ),
    plain(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        &[Cut::Split(r"\p{N}{1,3}"), Cut::Split(r"[一-龥぀-ゟ゠-ヿ]+"), Cut::Split(DEEPSEEK_V3), Cut::Bytes],
    ),
    plain(&["falcon"], &[Cut::Punctuation, Cut::WordsAndBytes, Cut::Numbers, Cut::Split("[0-9][0-9][0-9]")]),
    plain(&["bloom", "poro-chat", "gpt3-finnish"], &[Cut::Split(BLOOM), Cut::Bytes]),
];

const fn plain(names: &'static [&'static str], cuts: &'static [Cut]) -> Preset {
    Preset { names, cuts, compose: false, whole_words: false }
}

/// The preset of a name; files that name none are older than the names and mean the first.
pub(crate) fn find(name: Option<&str>) -> Result<&'static Preset, TextError> {
    let name = name.unwrap_or("default");
    PRESETS.iter().find(|preset| preset.names.contains(&name)).ok_or_else(|| {
        let found = name.chars().take(80).collect();
        TextError::Unsupported { field: "tokenizer.ggml.pre", found, supported: SUPPORTED }
    })
}

/// One name for each way of cutting text, plainest first.
pub fn pre_tokenizer_names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().filter_map(|preset| preset.names.first().copied())
}
