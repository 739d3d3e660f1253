//! How exactly cached keys and values are stored.

use cascadia_kernels::{CodeBits, Dtype};

use crate::{ModelSpec, PAGE_TOKENS};

/// Tokens that are stored as exactly as they were computed, at least, where older ones are quantised.
const TAIL_TOKENS: u32 = 128;

/// The storage format of cached keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheFormat {
    /// Four bytes a number.
    F32,
    /// Two bytes a number.
    F16,
    /// One byte a number, and a scale for each token.
    Int8,
    /// Half a byte a number, and a scale for each token.
    Int4,
}

/// The newest tokens of layers whose older ones are quantised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// How many, at least.
    pub(crate) tokens: u32,
    /// How they are stored.
    pub(crate) format: KvFormat,
}

/// The formats of one layer's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvFormat {
    /// How keys are stored.
    pub keys: CacheFormat,
    /// How values are stored.
    pub values: CacheFormat,
}

/// The formats of a model's cache, chosen when it is loaded. All stages of a model must be loaded with the same ones:
/// tokens depend on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KvFormats {
    /// Follows the weights: float weights keep f32, so that results stay those of the authors' code; quantised weights
    /// have lost more than f16 takes away.
    #[default]
    Auto,
    /// The same in every layer.
    Uniform(KvFormat),
    /// One for each layer of the model, counted from the first.
    PerLayer(Vec<KvFormat>),
}

impl CacheFormat {
    /// All formats by their names.
    pub const ALL: [(&'static str, CacheFormat); 4] = [
        ("f32", CacheFormat::F32),
        ("f16", CacheFormat::F16),
        ("int8", CacheFormat::Int8),
        ("int4", CacheFormat::Int4),
    ];

    /// What people and files call it.
    pub fn name(self) -> &'static str {
        CacheFormat::ALL.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }

    /// The format that goes by this name.
    pub fn from_name(name: &str) -> Option<CacheFormat> {
        CacheFormat::ALL.iter().find(|(known, _)| *known == name).map(|(_, format)| *format)
    }

    /// The bits of a number where it is an integer: a whole page is quantised at once.
    pub(crate) fn bits(self) -> Option<CodeBits> {
        match self {
            CacheFormat::F32 | CacheFormat::F16 => None,
            CacheFormat::Int8 => Some(CodeBits::Eight),
            CacheFormat::Int4 => Some(CodeBits::Four),
        }
    }

    /// Bytes that the keys of one head take in a page.
    pub(crate) fn key_bytes(self, head: usize) -> u64 {
        let codes = |bits: CodeBits| bits.bytes(head, TOKENS) + 2 * TOKENS + 2 * head;
        self.bits().map_or_else(|| self.plain_bytes(head), |bits| aligned(codes(bits)))
    }

    /// Bytes that the values of one head take in a page.
    pub(crate) fn value_bytes(self, head: usize) -> u64 {
        let codes = |bits: CodeBits| bits.bytes(TOKENS, head) + 2 * TOKENS;
        self.bits().map_or_else(|| self.plain_bytes(head), |bits| aligned(codes(bits)))
    }

    fn plain_bytes(self, head: usize) -> u64 {
        let number = if self == CacheFormat::F32 { 4 } else { 2 };
        (head as u64).saturating_mul(u64::from(PAGE_TOKENS) * number)
    }
}

const TOKENS: usize = PAGE_TOKENS as usize;

/// Every head begins on the boundary of a cache line.
fn aligned(bytes: usize) -> u64 {
    bytes.next_multiple_of(64) as u64
}

impl KvFormat {
    /// Keys and values alike.
    pub const fn both(format: CacheFormat) -> KvFormat {
        KvFormat { keys: format, values: format }
    }

    /// Whether tokens are quantised once they are old enough.
    pub(crate) fn is_quantised(self) -> bool {
        self.keys.bits().is_some() || self.values.bits().is_some()
    }

    /// The format that suits weights of `dtype`.
    fn for_weights(dtype: Dtype) -> KvFormat {
        KvFormat::both(if dtype.is_float() { CacheFormat::F32 } else { CacheFormat::F16 })
    }
}

impl KvFormats {
    /// The format of one layer of a model.
    pub fn of(&self, spec: &ModelSpec, layer: usize) -> KvFormat {
        match self {
            KvFormats::Auto => KvFormat::for_weights(spec.weights),
            KvFormats::Uniform(format) => *format,
            KvFormats::PerLayer(formats) => {
                formats.get(layer).copied().unwrap_or_else(|| KvFormat::for_weights(spec.weights))
            }
        }
    }

    /// What is left as it was computed where older tokens are quantised.
    pub(crate) fn tail(&self, spec: &ModelSpec) -> Tail {
        Tail { tokens: TAIL_TOKENS, format: KvFormat::for_weights(spec.weights) }
    }

    /// The formats as one word: `f16`, `f16/f32` for keys and values, or one such word per layer, joined by commas.
    /// What depends on the cache's bits (a manifest, a resume token) includes it.
    pub fn describe(&self, spec: &ModelSpec) -> String {
        let word = |format: KvFormat| match format {
            KvFormat { keys, values } if keys == values => keys.name().to_owned(),
            KvFormat { keys, values } => format!("{}/{}", keys.name(), values.name()),
        };
        let formats: Vec<KvFormat> = (0..spec.layers.len()).map(|layer| self.of(spec, layer)).collect();
        match formats.split_first() {
            Some((first, rest)) if rest.iter().all(|format| format == first) => word(*first),
            _ => formats.into_iter().map(word).collect::<Vec<_>>().join(","),
        }
    }
}
