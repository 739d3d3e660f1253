//! Reading the values of GGUF metadata.

use super::cursor::Cursor;
use super::value_type;
use crate::{MetadataArray, MetadataValue, StringArray, WeightsError};

/// How deep arrays may nest; no known file nests at all.
const MAX_ARRAY_DEPTH: usize = 4;

/// Arrays inside arrays in one file. An empty one takes 12 bytes in the file and four times that in memory.
const MAX_NESTED_ARRAYS: usize = 4096;

/// Reads values one after the other, with a budget for nested arrays that they share.
pub(super) struct ValueReader {
    nested_arrays_left: usize,
}

impl ValueReader {
    pub(super) fn new() -> ValueReader {
        ValueReader { nested_arrays_left: MAX_NESTED_ARRAYS }
    }

    /// A type number and the value that follows it.
    pub(super) fn value(&mut self, cursor: &mut Cursor<'_>) -> Result<MetadataValue, WeightsError> {
        Ok(match cursor.u32()? {
            value_type::U8 => u8::from_le_bytes(cursor.array()?).into(),
            value_type::I8 => i8::from_le_bytes(cursor.array()?).into(),
            value_type::U16 => u16::from_le_bytes(cursor.array()?).into(),
            value_type::I16 => i16::from_le_bytes(cursor.array()?).into(),
            value_type::U32 => cursor.u32()?.into(),
            value_type::I32 => i32::from_le_bytes(cursor.array()?).into(),
            value_type::F32 => f32::from_le_bytes(cursor.array()?).into(),
            value_type::BOOL => boolean(cursor)?.into(),
            value_type::STRING => cursor.string()?.into(),
            value_type::ARRAY => self.array(cursor, 1)?.into(),
            value_type::U64 => cursor.u64()?.into(),
            value_type::I64 => i64::from_le_bytes(cursor.array()?).into(),
            value_type::F64 => f64::from_le_bytes(cursor.array()?).into(),
            unknown => return Err(unknown_type(cursor, unknown)),
        })
    }

    fn array(&mut self, cursor: &mut Cursor<'_>, depth: usize) -> Result<MetadataArray, WeightsError> {
        Ok(match cursor.u32()? {
            value_type::U8 => MetadataArray::U8(numbers(cursor, u8::from_le_bytes)?),
            value_type::I8 => MetadataArray::I8(numbers(cursor, i8::from_le_bytes)?),
            value_type::U16 => MetadataArray::U16(numbers(cursor, u16::from_le_bytes)?),
            value_type::I16 => MetadataArray::I16(numbers(cursor, i16::from_le_bytes)?),
            value_type::U32 => MetadataArray::U32(numbers(cursor, u32::from_le_bytes)?),
            value_type::I32 => MetadataArray::I32(numbers(cursor, i32::from_le_bytes)?),
            value_type::F32 => MetadataArray::F32(numbers(cursor, f32::from_le_bytes)?),
            value_type::BOOL => MetadataArray::Bool(booleans(cursor)?),
            value_type::STRING => MetadataArray::String(strings(cursor)?),
            value_type::ARRAY => MetadataArray::Array(self.arrays(cursor, depth + 1)?),
            value_type::U64 => MetadataArray::U64(numbers(cursor, u64::from_le_bytes)?),
            value_type::I64 => MetadataArray::I64(numbers(cursor, i64::from_le_bytes)?),
            value_type::F64 => MetadataArray::F64(numbers(cursor, f64::from_le_bytes)?),
            unknown => return Err(unknown_type(cursor, unknown)),
        })
    }

    fn arrays(&mut self, cursor: &mut Cursor<'_>, depth: usize) -> Result<Box<[MetadataArray]>, WeightsError> {
        if depth > MAX_ARRAY_DEPTH {
            return Err(cursor.malformed(format!("arrays nest deeper than {MAX_ARRAY_DEPTH} levels")));
        }
        // A type number and a count.
        let count = cursor.count(4 + 8)?;
        self.nested_arrays_left = self
            .nested_arrays_left
            .checked_sub(count)
            .ok_or_else(|| cursor.malformed(format!("holds more than {MAX_NESTED_ARRAYS} nested arrays")))?;
        (0..count).map(|_| self.array(cursor, depth)).collect()
    }
}

fn numbers<T, const N: usize>(cursor: &mut Cursor<'_>, convert: fn([u8; N]) -> T) -> Result<Box<[T]>, WeightsError> {
    let count = cursor.count(N)?;
    let bytes = cursor.take(count * N)?;
    Ok(bytes.as_chunks().0.iter().map(|chunk| convert(*chunk)).collect())
}

fn booleans(cursor: &mut Cursor<'_>) -> Result<Box<[bool]>, WeightsError> {
    let count = cursor.count(1)?;
    (0..count).map(|_| boolean(cursor)).collect()
}

fn boolean(cursor: &mut Cursor<'_>) -> Result<bool, WeightsError> {
    match cursor.array()? {
        [0] => Ok(false),
        [1] => Ok(true),
        [other] => Err(cursor.malformed(format!("a bool is stored as 0 or 1, not {other}"))),
    }
}

/// Walks the strings twice, so that what is allocated is exactly what is there.
fn strings(cursor: &mut Cursor<'_>) -> Result<StringArray, WeightsError> {
    let count = cursor.count(8)?;
    let start = cursor.position();
    let mut byte_len = 0;
    for _ in 0..count {
        byte_len += cursor.string()?.len();
    }
    cursor.rewind(start);
    let mut strings = StringArray::with_capacity(count, byte_len);
    for _ in 0..count {
        strings.push(cursor.string()?);
    }
    Ok(strings)
}

fn unknown_type(cursor: &Cursor<'_>, id: u32) -> WeightsError {
    cursor.malformed(format!("value type {id} does not exist"))
}
