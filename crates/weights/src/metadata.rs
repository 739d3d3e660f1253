//! The key-values of a GGUF file, with getters that convert or explain.

use std::path::{Path, PathBuf};

use crate::{MetadataArray, MetadataValue, StringArray, WeightsError};

/// Ordered key-values of one file; empty for files that carry none.
#[derive(Clone, Debug)]
pub struct Metadata {
    path: PathBuf,
    entries: Vec<(String, MetadataValue)>,
    /// Indices of `entries` sorted by key.
    by_key: Vec<u32>,
}

impl Metadata {
    /// Takes entries in file order; gives back the first key that occurs twice.
    pub(crate) fn new(path: &Path, entries: Vec<(String, MetadataValue)>) -> Result<Metadata, String> {
        let by_key = crate::names::sorted_index(&entries, |(key, _)| key)?;
        Ok(Metadata { path: path.to_owned(), entries, by_key })
    }

    /// No entries at all.
    pub(crate) fn empty(path: &Path) -> Metadata {
        Metadata { path: path.to_owned(), entries: Vec::new(), by_key: Vec::new() }
    }

    /// The same entries in the same order but for those of `keys`.
    pub(crate) fn without(self, keys: &[&str]) -> Metadata {
        let entries = self.entries.into_iter().filter(|(key, _)| !keys.contains(&key.as_str())).collect();
        Metadata::new(&self.path, entries).expect("the keys were distinct before")
    }

    /// All entries in the order of the file.
    pub fn entries(&self) -> &[(String, MetadataValue)] {
        &self.entries
    }

    /// The value of `key` as it was written.
    pub fn get(&self, key: &str) -> Option<&MetadataValue> {
        let position = self.by_key.binary_search_by(|&index| self.entries[index as usize].0.as_str().cmp(key)).ok()?;
        Some(&self.entries[self.by_key[position] as usize].1)
    }

    /// The value of `key` as a `T`: `Ok(None)` when the key is absent, an error when it holds something else.
    ///
    /// `T` is one of `u32`, `u64`, `usize`, `i32`, `f32`, `bool`, `&str`, `&[u8]`, `&StringArray`, `Vec<&str>`,
    /// `Vec<f32>`, `Vec<i32>`, `Vec<u32>`. Integers convert between widths as long as the value fits.
    pub fn value<'a, T: FromMetadata<'a>>(&'a self, key: &str) -> Result<Option<T>, WeightsError> {
        let convert = |value| T::from_metadata(value).map_err(|problem| self.error(key, problem));
        self.get(key).map(convert).transpose()
    }

    /// Like [`Metadata::value`], with an error when the key is absent.
    pub fn require<'a, T: FromMetadata<'a>>(&'a self, key: &str) -> Result<T, WeightsError> {
        self.value(key)?.ok_or_else(|| self.error(key, "is missing"))
    }

    /// An error that names this file and `key`, for callers that find a value out of range.
    pub fn error(&self, key: &str, problem: impl Into<String>) -> WeightsError {
        WeightsError::Metadata { path: self.path.clone(), key: key.to_owned(), problem: problem.into() }
    }
}

/// What [`Metadata::value`] can convert to.
pub trait FromMetadata<'a>: Sized {
    /// The converted value, or how the sentence "metadata key `x` …" ends.
    fn from_metadata(value: &'a MetadataValue) -> Result<Self, String>;
}

fn expected(wanted: &str, value: &MetadataValue) -> String {
    format!("should be {wanted} but is {value}")
}

macro_rules! integer_from_metadata {
    ($($kind:ident),*) => {
        $(impl FromMetadata<'_> for $kind {
            fn from_metadata(value: &MetadataValue) -> Result<$kind, String> {
                let integer = value.as_integer().and_then(|integer| $kind::try_from(integer).ok());
                integer.ok_or_else(|| expected(concat!("an integer that fits ", stringify!($kind)), value))
            }
        })*
    };
}
integer_from_metadata!(u32, u64, usize, i32);

macro_rules! integers_from_metadata {
    ($($kind:ident),*) => {
        $(impl FromMetadata<'_> for Vec<$kind> {
            fn from_metadata(value: &MetadataValue) -> Result<Vec<$kind>, String> {
                let wanted = concat!("an array of integers that fit ", stringify!($kind));
                let MetadataValue::Array(array) = value else { return Err(expected(wanted, value)) };
                let integers = array.integers().ok_or_else(|| expected(wanted, value))?;
                let convert = |(index, integer)| {
                    $kind::try_from(integer).map_err(|_| format!("should be {wanted} but element {index} is {integer}"))
                };
                integers.enumerate().map(convert).collect()
            }
        })*
    };
}
integers_from_metadata!(u32, i32);

impl FromMetadata<'_> for f32 {
    fn from_metadata(value: &MetadataValue) -> Result<f32, String> {
        match *value {
            MetadataValue::F32(number) => Ok(number),
            MetadataValue::F64(number) => Ok(number as f32),
            _ => Err(expected("a float", value)),
        }
    }
}

impl FromMetadata<'_> for Vec<f32> {
    fn from_metadata(value: &MetadataValue) -> Result<Vec<f32>, String> {
        match value {
            MetadataValue::Array(MetadataArray::F32(numbers)) => Ok(numbers.to_vec()),
            MetadataValue::Array(MetadataArray::F64(numbers)) => {
                Ok(numbers.iter().map(|&number| number as f32).collect())
            }
            _ => Err(expected("an array of floats", value)),
        }
    }
}

impl FromMetadata<'_> for Vec<bool> {
    fn from_metadata(value: &MetadataValue) -> Result<Vec<bool>, String> {
        match value {
            MetadataValue::Array(MetadataArray::Bool(flags)) => Ok(flags.to_vec()),
            _ => Err(expected("an array of bools", value)),
        }
    }
}

impl FromMetadata<'_> for bool {
    fn from_metadata(value: &MetadataValue) -> Result<bool, String> {
        match *value {
            MetadataValue::Bool(flag) => Ok(flag),
            _ => Err(expected("a bool", value)),
        }
    }
}

impl<'a> FromMetadata<'a> for &'a [u8] {
    fn from_metadata(value: &'a MetadataValue) -> Result<&'a [u8], String> {
        match value {
            MetadataValue::String(bytes) => Ok(bytes),
            _ => Err(expected("a string", value)),
        }
    }
}

impl<'a> FromMetadata<'a> for &'a str {
    fn from_metadata(value: &'a MetadataValue) -> Result<&'a str, String> {
        std::str::from_utf8(FromMetadata::from_metadata(value)?).map_err(|_| expected("text in UTF-8", value))
    }
}

impl<'a> FromMetadata<'a> for &'a StringArray {
    fn from_metadata(value: &'a MetadataValue) -> Result<&'a StringArray, String> {
        match value {
            MetadataValue::Array(MetadataArray::String(strings)) => Ok(strings),
            _ => Err(expected("an array of strings", value)),
        }
    }
}

impl<'a> FromMetadata<'a> for Vec<&'a str> {
    fn from_metadata(value: &'a MetadataValue) -> Result<Vec<&'a str>, String> {
        let strings = <&StringArray>::from_metadata(value)?;
        let convert = |(index, bytes)| {
            std::str::from_utf8(bytes).map_err(|_| format!("should be text in UTF-8 but element {index} is not"))
        };
        strings.iter().enumerate().map(convert).collect()
    }
}
