//! Writing the values of GGUF metadata.

use std::io::{self, Write};

use super::value_type;
use crate::{MetadataArray, MetadataValue};

/// A length-prefixed string.
pub(super) fn write_string(file: &mut dyn Write, text: &[u8]) -> io::Result<()> {
    file.write_all(&(text.len() as u64).to_le_bytes())?;
    file.write_all(text)
}

/// A type number and the value.
pub(super) fn write_value(file: &mut dyn Write, value: &MetadataValue) -> io::Result<()> {
    let scalar = |file: &mut dyn Write, kind: u32, bytes: &[u8]| {
        file.write_all(&kind.to_le_bytes())?;
        file.write_all(bytes)
    };
    match value {
        MetadataValue::U8(value) => scalar(file, value_type::U8, &value.to_le_bytes()),
        MetadataValue::I8(value) => scalar(file, value_type::I8, &value.to_le_bytes()),
        MetadataValue::U16(value) => scalar(file, value_type::U16, &value.to_le_bytes()),
        MetadataValue::I16(value) => scalar(file, value_type::I16, &value.to_le_bytes()),
        MetadataValue::U32(value) => scalar(file, value_type::U32, &value.to_le_bytes()),
        MetadataValue::I32(value) => scalar(file, value_type::I32, &value.to_le_bytes()),
        MetadataValue::F32(value) => scalar(file, value_type::F32, &value.to_le_bytes()),
        MetadataValue::Bool(value) => scalar(file, value_type::BOOL, &[u8::from(*value)]),
        MetadataValue::U64(value) => scalar(file, value_type::U64, &value.to_le_bytes()),
        MetadataValue::I64(value) => scalar(file, value_type::I64, &value.to_le_bytes()),
        MetadataValue::F64(value) => scalar(file, value_type::F64, &value.to_le_bytes()),
        MetadataValue::String(text) => {
            file.write_all(&value_type::STRING.to_le_bytes())?;
            write_string(file, text)
        }
        MetadataValue::Array(array) => {
            file.write_all(&value_type::ARRAY.to_le_bytes())?;
            write_array(file, array)
        }
    }
}

/// An element type number, a count and the elements.
fn write_array(file: &mut dyn Write, array: &MetadataArray) -> io::Result<()> {
    match array {
        MetadataArray::U8(values) => write_numbers(file, value_type::U8, values, u8::to_le_bytes),
        MetadataArray::I8(values) => write_numbers(file, value_type::I8, values, i8::to_le_bytes),
        MetadataArray::U16(values) => write_numbers(file, value_type::U16, values, u16::to_le_bytes),
        MetadataArray::I16(values) => write_numbers(file, value_type::I16, values, i16::to_le_bytes),
        MetadataArray::U32(values) => write_numbers(file, value_type::U32, values, u32::to_le_bytes),
        MetadataArray::I32(values) => write_numbers(file, value_type::I32, values, i32::to_le_bytes),
        MetadataArray::F32(values) => write_numbers(file, value_type::F32, values, f32::to_le_bytes),
        MetadataArray::Bool(values) => write_numbers(file, value_type::BOOL, values, |value| [u8::from(value)]),
        MetadataArray::U64(values) => write_numbers(file, value_type::U64, values, u64::to_le_bytes),
        MetadataArray::I64(values) => write_numbers(file, value_type::I64, values, i64::to_le_bytes),
        MetadataArray::F64(values) => write_numbers(file, value_type::F64, values, f64::to_le_bytes),
        MetadataArray::String(strings) => {
            write_array_head(file, value_type::STRING, strings.len())?;
            strings.iter().try_for_each(|text| write_string(file, text))
        }
        MetadataArray::Array(arrays) => {
            write_array_head(file, value_type::ARRAY, arrays.len())?;
            arrays.iter().try_for_each(|array| write_array(file, array))
        }
    }
}

fn write_array_head(file: &mut dyn Write, kind: u32, count: usize) -> io::Result<()> {
    file.write_all(&kind.to_le_bytes())?;
    file.write_all(&(count as u64).to_le_bytes())
}

fn write_numbers<T: Copy, const N: usize>(
    file: &mut dyn Write,
    kind: u32,
    values: &[T],
    convert: fn(T) -> [u8; N],
) -> io::Result<()> {
    write_array_head(file, kind, values.len())?;
    values.iter().try_for_each(|&value| file.write_all(&convert(value)))
}
