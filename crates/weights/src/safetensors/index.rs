//! Reading the safetensors files of a folder, following the index when there are several.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::{Contents, read};
use crate::file_bytes::FileBytes;
use crate::hf_folder::{is_plain_name, read_json};
use crate::{Tensor, WeightsError};

/// The file of a model that needs only one.
pub const SINGLE_FILE: &str = "model.safetensors";

/// The file that says which tensor is in which shard.
pub const INDEX_FILE: &str = "model.safetensors.index.json";

/// Most shards of one model; the largest known models have a few hundred.
const MAX_SHARDS: usize = 1024;

/// Reads the shards of the index when there is one, else the single file; `None` when the folder has neither.
pub(crate) fn read_folder(folder: &Path) -> Result<Option<Contents>, WeightsError> {
    if let Some(index) = read_json(folder, INDEX_FILE)? {
        return read_shards(folder, &index).map(Some);
    }
    let single = folder.join(SINGLE_FILE);
    if !single.exists() {
        return Ok(None);
    }
    read(&Arc::new(FileBytes::open(&single)?)).map(Some)
}

/// The shard file names of an index with the tensors each should hold.
pub(crate) fn shards_of<'a>(path: &Path, index: &'a Value) -> Result<BTreeMap<&'a str, Vec<&'a str>>, WeightsError> {
    let malformed = |problem: String| WeightsError::malformed(path, "weight_map", problem);
    let map = index.get("weight_map").and_then(Value::as_object);
    let map = map.ok_or_else(|| malformed("should be an object of tensor names and file names".to_owned()))?;
    let mut shards: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (tensor, file) in map {
        let file = file.as_str().filter(|file| is_plain_name(file) && file.ends_with(".safetensors"));
        let file = file.ok_or_else(|| {
            malformed(format!("the file of `{tensor}` should be the plain name of a .safetensors file in this folder"))
        })?;
        shards.entry(file).or_default().push(tensor);
    }
    match shards.len() {
        0 => Err(malformed("names no tensors".to_owned())),
        count if count > MAX_SHARDS => {
            Err(malformed(format!("names {count} files, more than the {MAX_SHARDS} allowed")))
        }
        _ => Ok(shards),
    }
}

fn read_shards(folder: &Path, index: &Value) -> Result<Contents, WeightsError> {
    let index_path = folder.join(INDEX_FILE);
    let mut whole = Contents::default();
    for (file_name, expected) in shards_of(&index_path, index)? {
        let shard = read(&Arc::new(open_shard(folder, file_name)?))?;
        compare(&index_path, file_name, &expected, &shard)?;
        whole.tensors.extend(shard.tensors);
        whole.set_aside.extend(shard.set_aside);
        whole.files.extend(shard.files);
    }
    Ok(whole)
}

fn open_shard(folder: &Path, file_name: &str) -> Result<FileBytes, WeightsError> {
    let path = folder.join(file_name);
    if !path.exists() {
        return Err(WeightsError::NotAModel {
            path: folder.to_owned(),
            problem: format!("lacks {file_name}, which {INDEX_FILE} lists"),
            advice: "download the missing file into the folder",
        });
    }
    FileBytes::open(&path)
}

/// Checks that a shard holds the tensors that the index puts there, and no others.
fn compare(index_path: &Path, file_name: &str, expected: &[&str], shard: &Contents) -> Result<(), WeightsError> {
    let mut expected = expected.to_vec();
    let set_aside = shard.set_aside.iter().map(|tensor| tensor.name.as_str());
    let mut found: Vec<&str> = shard.tensors.iter().map(Tensor::name).chain(set_aside).collect();
    expected.sort_unstable();
    found.sort_unstable();
    if expected == found {
        return Ok(());
    }
    let only_in = |these: &[&str], those: &[&str]| {
        these.iter().find(|name| those.binary_search(name).is_err()).map(|name| name.to_string())
    };
    let problem = match (only_in(&expected, &found), only_in(&found, &expected)) {
        (Some(name), _) => format!("puts tensor `{name}` into {file_name}, which does not hold it"),
        (None, name) => format!("leaves out tensor `{}` of {file_name}", name.unwrap_or_default()),
    };
    Err(WeightsError::malformed(index_path, "weight_map", problem))
}
