//! The values a GGUF file can attach to a key.

use std::fmt;

/// One value. Text is kept as bytes, because vocabularies hold pieces of characters.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant is named after the type it holds")]
pub enum MetadataValue {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(Box<[u8]>),
    Array(MetadataArray),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// Values of one type in a row.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant is named after the type it holds")]
pub enum MetadataArray {
    U8(Box<[u8]>),
    I8(Box<[i8]>),
    U16(Box<[u16]>),
    I16(Box<[i16]>),
    U32(Box<[u32]>),
    I32(Box<[i32]>),
    F32(Box<[f32]>),
    Bool(Box<[bool]>),
    String(StringArray),
    Array(Box<[MetadataArray]>),
    U64(Box<[u64]>),
    I64(Box<[i64]>),
    F64(Box<[f64]>),
}

impl MetadataValue {
    /// The value as an integer, whatever width it was written in.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            MetadataValue::U8(value) => value.into(),
            MetadataValue::I8(value) => value.into(),
            MetadataValue::U16(value) => value.into(),
            MetadataValue::I16(value) => value.into(),
            MetadataValue::U32(value) => value.into(),
            MetadataValue::I32(value) => value.into(),
            MetadataValue::U64(value) => value.into(),
            MetadataValue::I64(value) => value.into(),
            _ => return None,
        })
    }
}

impl MetadataArray {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            MetadataArray::U8(values) => values.len(),
            MetadataArray::I8(values) => values.len(),
            MetadataArray::U16(values) => values.len(),
            MetadataArray::I16(values) => values.len(),
            MetadataArray::U32(values) => values.len(),
            MetadataArray::I32(values) => values.len(),
            MetadataArray::F32(values) => values.len(),
            MetadataArray::Bool(values) => values.len(),
            MetadataArray::String(values) => values.len(),
            MetadataArray::Array(values) => values.len(),
            MetadataArray::U64(values) => values.len(),
            MetadataArray::I64(values) => values.len(),
            MetadataArray::F64(values) => values.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as integers, whatever width they were written in; `None` when they are something else.
    pub fn integers(&self) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
        Some(match self {
            MetadataArray::U8(values) => Box::new(values.iter().map(|&value| value.into())),
            MetadataArray::I8(values) => Box::new(values.iter().map(|&value| value.into())),
            MetadataArray::U16(values) => Box::new(values.iter().map(|&value| value.into())),
            MetadataArray::I16(values) => Box::new(values.iter().map(|&value| value.into())),
            MetadataArray::U32(values) => Box::new(values.iter().map(|&value| value.into())),
            MetadataArray::I32(values) => Box::new(values.iter().map(|&value| value.into())),
            MetadataArray::U64(values) => Box::new(values.iter().map(|&value| value.into())),
            MetadataArray::I64(values) => Box::new(values.iter().map(|&value| value.into())),
            _ => return None,
        })
    }

    fn element_name(&self) -> &'static str {
        match self {
            MetadataArray::U8(_) => "u8",
            MetadataArray::I8(_) => "i8",
            MetadataArray::U16(_) => "u16",
            MetadataArray::I16(_) => "i16",
            MetadataArray::U32(_) => "u32",
            MetadataArray::I32(_) => "i32",
            MetadataArray::F32(_) => "f32",
            MetadataArray::Bool(_) => "bool",
            MetadataArray::String(_) => "string",
            MetadataArray::Array(_) => "array",
            MetadataArray::U64(_) => "u64",
            MetadataArray::I64(_) => "i64",
            MetadataArray::F64(_) => "f64",
        }
    }
}

/// Says what a value is and, when it is short, what it holds: `u32 7`, `string "llama"`, `array of 32000 f32`.
impl fmt::Display for MetadataValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetadataValue::U8(value) => write!(f, "u8 {value}"),
            MetadataValue::I8(value) => write!(f, "i8 {value}"),
            MetadataValue::U16(value) => write!(f, "u16 {value}"),
            MetadataValue::I16(value) => write!(f, "i16 {value}"),
            MetadataValue::U32(value) => write!(f, "u32 {value}"),
            MetadataValue::I32(value) => write!(f, "i32 {value}"),
            MetadataValue::F32(value) => write!(f, "f32 {value}"),
            MetadataValue::Bool(value) => write!(f, "bool {value}"),
            MetadataValue::U64(value) => write!(f, "u64 {value}"),
            MetadataValue::I64(value) => write!(f, "i64 {value}"),
            MetadataValue::F64(value) => write!(f, "f64 {value}"),
            MetadataValue::String(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) if text.len() <= 60 => write!(f, "string {text:?}"),
                Ok(text) => write!(f, "string of {} bytes", text.len()),
                Err(_) => write!(f, "string of {} bytes that are not UTF-8", bytes.len()),
            },
            MetadataValue::Array(array) => write!(f, "array of {} {}", array.len(), array.element_name()),
        }
    }
}

/// Many strings in two allocations: a vocabulary of 150,000 tokens costs its bytes and eight per token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StringArray {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl StringArray {
    /// An empty array with room for `count` strings of `byte_len` bytes in total.
    pub fn with_capacity(count: usize, byte_len: usize) -> StringArray {
        StringArray { bytes: Vec::with_capacity(byte_len), ends: Vec::with_capacity(count) }
    }

    /// Appends one string.
    pub fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at `index`.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        Some(&self.bytes[start..end])
    }

    /// The strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index).expect("index below the length"))
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for StringArray {
    fn from_iter<I: IntoIterator<Item = T>>(strings: I) -> StringArray {
        let mut array = StringArray::default();
        strings.into_iter().for_each(|text| array.push(text.as_ref()));
        array
    }
}

/// Lets a writer say `("general.alignment".into(), 32u32.into())`.
macro_rules! value_from {
    ($($kind:ty => $variant:ident),*) => {
        $(impl From<$kind> for MetadataValue {
            fn from(value: $kind) -> MetadataValue {
                MetadataValue::$variant(value.into())
            }
        })*
    };
}
value_from!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, f32 => F32, bool => Bool,
    u64 => U64, i64 => I64, f64 => F64, &[u8] => String, Vec<u8> => String, MetadataArray => Array);

impl From<&str> for MetadataValue {
    fn from(text: &str) -> MetadataValue {
        text.as_bytes().into()
    }
}

impl From<StringArray> for MetadataValue {
    fn from(strings: StringArray) -> MetadataValue {
        MetadataValue::Array(MetadataArray::String(strings))
    }
}

/// The same for the arrays that vocabularies and layer lists are made of.
macro_rules! array_from {
    ($($kind:ty => $variant:ident),*) => {
        $(impl From<Vec<$kind>> for MetadataArray {
            fn from(values: Vec<$kind>) -> MetadataArray {
                MetadataArray::$variant(values.into())
            }
        })*
    };
}
array_from!(u32 => U32, i32 => I32, f32 => F32, bool => Bool);
