//! How exactly cached keys and values are stored.

use cascadia_kernels::{CodeBits, Dtype, Side};

use crate::PAGE_TOKENS;

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
    /// Three bits a number, and a scale for each token.
    Int3,
    /// Two bits a number, and a scale for each token.
    Int2,
    /// Two bytes a number, with the range of four.
    Bf16,
    /// One byte a number: a float with four bits of exponent.
    Fp8,
}

/// The formats of one layer's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvFormat {
    /// How keys are stored.
    pub keys: CacheFormat,
    /// How values are stored.
    pub values: CacheFormat,
}

impl CacheFormat {
    /// All formats by their names.
    pub const ALL: [(&'static str, CacheFormat); 8] = [
        ("f32", CacheFormat::F32),
        ("f16", CacheFormat::F16),
        ("int8", CacheFormat::Int8),
        ("int4", CacheFormat::Int4),
        ("int3", CacheFormat::Int3),
        ("int2", CacheFormat::Int2),
        ("bf16", CacheFormat::Bf16),
        ("fp8", CacheFormat::Fp8),
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
            CacheFormat::F32 | CacheFormat::F16 | CacheFormat::Bf16 | CacheFormat::Fp8 => None,
            CacheFormat::Int8 => Some(CodeBits::Eight),
            CacheFormat::Int4 => Some(CodeBits::Four),
            CacheFormat::Int3 => Some(CodeBits::Three),
            CacheFormat::Int2 => Some(CodeBits::Two),
        }
    }

    /// Bytes that the keys of one head take in a page.
    pub(crate) fn key_bytes(self, head: usize) -> u64 {
        // Codes, scales, means, and the token apart with its number.
        let codes = |bits: CodeBits| bits.bytes(head, TOKENS) + 2 * (TOKENS + head + 1 + head);
        self.bits().map_or_else(|| self.plain_bytes(head), |bits| aligned(codes(bits)))
    }

    /// Bytes that the values of one head take in a page.
    pub(crate) fn value_bytes(self, head: usize) -> u64 {
        let codes = |bits: CodeBits| bits.bytes(TOKENS, head) + 2 * TOKENS;
        self.bits().map_or_else(|| self.plain_bytes(head), |bits| aligned(codes(bits)))
    }

    fn plain_bytes(self, head: usize) -> u64 {
        (head as u64).saturating_mul(u64::from(PAGE_TOKENS) * self.number_bytes() as u64)
    }

    /// Bytes of a number that is a float.
    pub(crate) fn number_bytes(self) -> usize {
        match self {
            CacheFormat::F32 => 4,
            CacheFormat::Fp8 => 1,
            _ => 2,
        }
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

    /// How keys or values are stored.
    pub(crate) fn of(self, side: Side) -> CacheFormat {
        match side {
            Side::Keys => self.keys,
            Side::Values => self.values,
        }
    }

    /// Its name: `f16`, or `int8/int4` where keys and values differ.
    pub fn name(self) -> String {
        match self {
            KvFormat { keys, values } if keys == values => keys.name().to_owned(),
            KvFormat { keys, values } => format!("{}/{}", keys.name(), values.name()),
        }
    }

    /// The format that goes by this name.
    pub fn from_name(name: &str) -> Option<KvFormat> {
        let (keys, values) = name.split_once('/').unwrap_or((name, name));
        Some(KvFormat { keys: CacheFormat::from_name(keys)?, values: CacheFormat::from_name(values)? })
    }

    /// Whether tokens are quantised once they are old enough.
    pub(crate) fn is_quantised(self) -> bool {
        self.keys.bits().is_some() || self.values.bits().is_some()
    }

    /// Whether keys and values are floats of one kind. Integers are not alike: keys lose the mean of their page, and products
    /// want the codes of the two in different orders.
    pub(crate) fn is_one_float(self) -> bool {
        self.keys == self.values && !self.is_quantised()
    }

    /// The format that loses nothing beside weights of `dtype`: float weights keep f32, so that results stay those of the
    /// authors' code; quantised weights have lost more than f16 takes away.
    pub(crate) fn for_weights(dtype: Dtype) -> KvFormat {
        KvFormat::both(if dtype.is_float() { CacheFormat::F32 } else { CacheFormat::F16 })
    }
}
