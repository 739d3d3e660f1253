//! The files of a Hugging Face folder: what they are called, and the small ones read whole under a size limit.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path};

use serde_json::Value;

use crate::WeightsError;
use crate::safetensors::shards_of;
pub use crate::safetensors::{INDEX_FILE, SINGLE_FILE};

/// Largest `tokenizer.json`; the largest vocabularies in use need about 35 MB.
const MAX_TOKENIZER_LEN: u64 = 64 * 1024 * 1024;

/// Largest of all other files.
const MAX_FILE_LEN: u64 = 16 * 1024 * 1024;

/// Whether `name` is the name of a file, not a way to somewhere else, on every operating system.
pub fn is_plain_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    let single = matches!((components.next(), components.next()), (Some(Component::Normal(_)), None));
    single && !name.contains(['/', '\\', ':', '\0'])
}

/// The text of `folder/file`, `None` when there is no such file.
pub(crate) fn read_text(folder: &Path, file: &str) -> Result<Option<String>, WeightsError> {
    assert!(is_plain_name(file), "the caller asks for a file of the folder by its name");
    let path = folder.join(file);
    match path.metadata() {
        // Opening a named pipe would wait for somebody to write.
        Ok(metadata) if !metadata.is_file() => {
            return Err(WeightsError::malformed(&path, "type", "is not a regular file"));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(WeightsError::io("open", &path))?,
    };
    let opened = File::open(&path).map_err(WeightsError::io("open", &path))?;
    let limit = if file == "tokenizer.json" { MAX_TOKENIZER_LEN } else { MAX_FILE_LEN };
    let mut bytes = Vec::new();
    opened.take(limit + 1).read_to_end(&mut bytes).map_err(WeightsError::io("read", &path))?;
    if bytes.len() as u64 > limit {
        return Err(WeightsError::malformed(&path, "length", format!("is above the {limit} bytes allowed")));
    }
    let text = String::from_utf8(bytes)
        .map_err(|error| WeightsError::malformed(&path, "text", format!("is not UTF-8: {}", error.utf8_error())))?;
    Ok(Some(text))
}

/// The JSON value of `folder/file`, `None` when there is no such file.
pub(crate) fn read_json(folder: &Path, file: &str) -> Result<Option<Value>, WeightsError> {
    let Some(text) = read_text(folder, file)? else { return Ok(None) };
    let value = serde_json::from_str(&text)
        .map_err(|error| WeightsError::malformed(&folder.join(file), "JSON", error.to_string()))?;
    Ok(Some(value))
}

/// The weight files that the index in `folder` lists.
pub fn shard_names(folder: &Path) -> Result<Vec<String>, WeightsError> {
    let index = read_json(folder, INDEX_FILE)?.unwrap_or_default();
    Ok(shards_of(&folder.join(INDEX_FILE), &index)?.into_keys().map(str::to_owned).collect())
}
