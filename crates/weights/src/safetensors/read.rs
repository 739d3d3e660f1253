//! Reading one safetensors file, with limits in front of the parser.

use std::path::Path;
use std::sync::Arc;

use cascadia_kernels::Dtype;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype as StoredDtype, SafeTensorError, TensorInfo};

use super::header_scan::count_entries;
use super::{Contents, SetAside, Stored};
use crate::WeightsError;
use crate::file_bytes::FileBytes;
use crate::tensor::{Tensor, TensorBytes};

/// Bytes of the length that precedes the header.
const PREFIX_LEN: usize = 8;

/// Largest header; the largest known models need about a tenth of it.
const MAX_HEADER_LEN: u64 = 16 * 1024 * 1024;

/// Most tensors in one file.
const MAX_TENSORS: usize = 65_536;

pub(crate) fn read(file: &Arc<FileBytes>) -> Result<Contents, WeightsError> {
    let path = file.path();
    let malformed = |problem: String| WeightsError::malformed(path, "header", problem);
    let header = header_bytes(file)?;
    let entries = count_entries(header).map_err(malformed)?;
    if entries > MAX_TENSORS {
        return Err(malformed(format!("announces {entries} tensors, more than the {MAX_TENSORS} allowed")));
    }
    // The parser also checks that the tensors follow each other without a gap and end where the file ends.
    let (header_len, parsed) = SafeTensors::read_metadata(file.bytes()).map_err(|error| explain(path, error))?;
    let data_start = PREFIX_LEN + header_len;
    let names = parsed.offset_keys();
    if names.len() + usize::from(parsed.metadata().is_some()) != entries {
        return Err(malformed("a tensor name occurs twice".to_owned()));
    }
    let mut contents = Contents { files: vec![Arc::clone(file)], ..Contents::default() };
    for name in names {
        let info = parsed.info(&name).expect("the name comes from the parser");
        let (start, end) = info.data_offsets;
        let bytes = view(file, &name, data_start.checked_add(start).zip(data_start.checked_add(end)))?;
        let shape = info.shape.iter().map(|&dimension| dimension as u64).collect();
        match usable_dtype(info) {
            Err(reason) => {
                let stored = Stored { dtype: info.dtype, shape, bytes };
                contents.set_aside.push(SetAside { name, reason, stored });
            }
            Ok(dtype) => contents.tensors.push(Tensor::new(name, dtype, shape, bytes)),
        }
    }
    contents.tensors.sort_unstable_by_key(Tensor::start);
    Ok(contents)
}

/// Whether the first bytes could be a safetensors file: a sane length, then a JSON object.
pub(crate) fn looks_like_safetensors(bytes: &[u8]) -> bool {
    bytes.len() > PREFIX_LEN && bytes[PREFIX_LEN] == b'{' && bytes[PREFIX_LEN - 1] == 0
}

fn header_bytes(file: &FileBytes) -> Result<&[u8], WeightsError> {
    let bytes = file.bytes();
    let malformed = |problem: String| WeightsError::malformed(file.path(), "header length", problem);
    let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX_LEN>() else {
        return Err(malformed(format!("the file has {} bytes; the length alone takes {PREFIX_LEN}", bytes.len())));
    };
    let length = u64::from_le_bytes(*prefix);
    if length > MAX_HEADER_LEN {
        return Err(malformed(format!("{length} bytes are more than the {MAX_HEADER_LEN} allowed")));
    }
    rest.get(..length as usize)
        .ok_or_else(|| malformed(format!("{length} bytes are more than the {} left in the file", rest.len())))
}

fn usable_dtype(info: &TensorInfo) -> Result<Dtype, String> {
    if info.shape.contains(&0) {
        return Err(format!("has no elements (shape {:?})", info.shape));
    }
    match info.dtype {
        StoredDtype::F32 => Ok(Dtype::F32),
        StoredDtype::F16 => Ok(Dtype::F16),
        StoredDtype::BF16 => Ok(Dtype::BF16),
        StoredDtype::F8_E4M3 => Ok(Dtype::F8_E4M3),
        other => Err(format!("is stored as {other}, which cannot be computed with; convert it to F32, F16 or BF16")),
    }
}

fn view(file: &Arc<FileBytes>, name: &str, range: Option<(usize, usize)>) -> Result<TensorBytes, WeightsError> {
    range.and_then(|(start, end)| TensorBytes::new(file, start..end)).ok_or_else(|| {
        WeightsError::malformed(file.path(), format!("tensor `{name}`"), "reaches beyond the end of the file")
    })
}

fn explain(path: &Path, error: SafeTensorError) -> WeightsError {
    match error {
        SafeTensorError::InvalidOffset(name) => WeightsError::malformed(
            path,
            format!("tensor `{name}`"),
            "its bytes overlap the previous tensor or leave a gap after it",
        ),
        SafeTensorError::MetadataIncompleteBuffer => WeightsError::malformed(
            path,
            "data",
            "the tensors do not end where the file ends, so it was cut or extended",
        ),
        other => WeightsError::malformed(path, "header", other.to_string()),
    }
}
