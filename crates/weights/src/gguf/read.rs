//! Reading a GGUF file: metadata and tensor positions, every number checked against the file.

use std::path::Path;
use std::sync::Arc;

use cascadia_kernels::{Dtype, Layout};

use super::cursor::Cursor;
use super::read_value::ValueReader;
use super::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, MAX_DIMENSIONS, ggml_type};
use crate::file_bytes::FileBytes;
use crate::tensor::{Tensor, TensorBytes};
use crate::{Metadata, WeightsError};

/// Most metadata keys and most tensors in a file; with these, memory stays below 16 MiB plus twice the header.
const MAX_ENTRIES: usize = 65_536;

/// Longest key, as the format's specification has it; tensor names get the same limit.
const MAX_NAME_LEN: usize = 65_535;

/// Largest distance between tensor starts that a file may ask for.
const MAX_ALIGNMENT: u64 = 64 * 1024;

/// The parsed header of a file.
pub(crate) struct Header {
    pub(crate) metadata: Metadata,
    /// Sorted by position.
    pub(crate) tensors: Vec<Tensor>,
}

/// Reads and checks everything but the numbers of the tensors.
pub(crate) fn read(file: &Arc<FileBytes>) -> Result<Header, WeightsError> {
    let mut cursor = Cursor::new(file.path(), file.bytes());
    read_preamble(&mut cursor)?;
    cursor.begin("tensor count");
    // A name of no bytes, one dimension, a type and an offset.
    let tensor_count = bounded_count(&mut cursor, 8 + 4 + 8 + 4 + 8)?;
    cursor.begin("metadata count");
    // A key of no bytes, a type and the smallest value.
    let key_count = bounded_count(&mut cursor, 8 + 4 + 1)?;

    let metadata = read_metadata(&mut cursor, file.path(), key_count)?;
    let mut pending = Vec::with_capacity(tensor_count);
    for index in 0..tensor_count {
        pending.push(read_tensor(&mut cursor, index)?);
    }
    let alignment = alignment(&mut cursor, &metadata)?;
    let data_start = (cursor.position() as u64).next_multiple_of(alignment);
    let tensors = place_tensors(file, pending, DataSection { start: data_start, alignment })?;
    Ok(Header { metadata, tensors })
}

fn read_preamble(cursor: &mut Cursor<'_>) -> Result<(), WeightsError> {
    cursor.begin("magic number");
    if &cursor.array::<4>()? != MAGIC {
        return Err(cursor.malformed("the file does not start with `GGUF`"));
    }
    cursor.begin("version");
    match cursor.u32()? {
        2 | 3 => Ok(()),
        1 => Err(cursor.unsupported("version 1 is too old; convert the model again with a current tool")),
        // A version is a small number: when it only makes sense backwards, so does the rest of the file.
        version if (1..=16).contains(&version.swap_bytes()) => {
            Err(cursor.unsupported("the file is big-endian; use the little-endian file of this model"))
        }
        version => Err(cursor.unsupported(format!("version {version} is unknown; versions 2 and 3 can be read"))),
    }
}

fn bounded_count(cursor: &mut Cursor<'_>, minimal_size: usize) -> Result<usize, WeightsError> {
    let count = cursor.count(minimal_size)?;
    if count > MAX_ENTRIES {
        return Err(cursor.malformed(format!("announces {count} items, more than the {MAX_ENTRIES} allowed")));
    }
    Ok(count)
}

fn read_metadata(cursor: &mut Cursor<'_>, path: &Path, count: usize) -> Result<Metadata, WeightsError> {
    let mut values = ValueReader::new();
    let mut entries = Vec::with_capacity(count);
    for index in 0..count {
        cursor.begin(format!("metadata key number {index}"));
        let key = cursor.name(MAX_NAME_LEN)?.to_owned();
        cursor.begin(format!("metadata key `{key}`"));
        entries.push((key, values.value(cursor)?));
    }
    Metadata::new(path, entries)
        .map_err(|key| WeightsError::malformed(path, format!("metadata key `{key}`"), "the key occurs twice"))
}

fn alignment(cursor: &mut Cursor<'_>, metadata: &Metadata) -> Result<u64, WeightsError> {
    cursor.begin(format!("metadata key `{ALIGNMENT_KEY}`"));
    let Some(value) = metadata.get(ALIGNMENT_KEY) else { return Ok(DEFAULT_ALIGNMENT) };
    let alignment = value.as_integer().and_then(|integer| u64::try_from(integer).ok());
    alignment.filter(|alignment| alignment.is_power_of_two() && *alignment <= MAX_ALIGNMENT).ok_or_else(|| {
        cursor.malformed(format!("should be an integer power of two from 1 to {MAX_ALIGNMENT} but is {value}"))
    })
}

/// A tensor as the header describes it, not yet checked against the data section.
struct PendingTensor {
    name: String,
    dtype: Dtype,
    layout: Layout,
    shape: Box<[u64]>,
    offset: u64,
    byte_len: u64,
}

fn read_tensor(cursor: &mut Cursor<'_>, index: usize) -> Result<PendingTensor, WeightsError> {
    cursor.begin(format!("tensor number {index}"));
    let name = cursor.name(MAX_NAME_LEN)?.to_owned();
    cursor.begin(format!("tensor `{name}`"));
    let rank = cursor.u32()? as usize;
    if rank == 0 || rank > MAX_DIMENSIONS {
        return Err(cursor.malformed(format!("has {rank} dimensions; 1 to {MAX_DIMENSIONS} are possible")));
    }
    let mut shape = (0..rank).map(|_| cursor.u64()).collect::<Result<Box<[u64]>, _>>()?;
    // The file lists the innermost dimension first.
    shape.reverse();
    let id = cursor.u32()?;
    let (dtype, layout) = ggml_type::stored(id).ok_or_else(|| {
        let kind = ggml_type::name(id).map_or_else(|| format!("number {id}"), str::to_owned);
        cursor.unread_type(&name, kind)
    })?;
    let offset = cursor.u64()?;
    let byte_len = byte_len((dtype, layout), &shape).map_err(|problem| cursor.malformed(problem))?;
    Ok(PendingTensor { name, dtype, layout, shape, offset, byte_len })
}

/// Bytes of a tensor of `shape` (outermost first), or why there is no such tensor.
pub(super) fn byte_len((dtype, layout): (Dtype, Layout), shape: &[u64]) -> Result<u64, String> {
    if shape.contains(&0) {
        return Err(format!("shape {shape:?} has a dimension of zero"));
    }
    let (&columns, outer) = shape.split_last().ok_or("has no dimensions")?;
    if !columns.is_multiple_of(dtype.block_elements() as u64) {
        return Err(format!(
            "rows of {columns} numbers do not fill whole {dtype} blocks of {}",
            dtype.block_elements()
        ));
    }
    if layout == Layout::Interleaved && outer.is_empty() {
        return Err(format!("shape {shape:?} is no matrix, and only matrices are interleaved"));
    }
    let rows = outer.iter().try_fold(1u64, |rows, &dimension| rows.checked_mul(dimension));
    rows.and_then(|rows| layout.matrix_bytes(dtype, rows, columns))
        .ok_or_else(|| format!("shape {shape:?} in {dtype} is larger than any file"))
}

/// Where tensor offsets count from, and what they must be multiples of.
struct DataSection {
    start: u64,
    alignment: u64,
}

fn place_tensors(
    file: &Arc<FileBytes>,
    pending: Vec<PendingTensor>,
    data: DataSection,
) -> Result<Vec<Tensor>, WeightsError> {
    let mut tensors = Vec::with_capacity(pending.len());
    for tensor in pending {
        let malformed =
            |problem: String| WeightsError::malformed(file.path(), format!("tensor `{}`", tensor.name), problem);
        if !tensor.offset.is_multiple_of(data.alignment) {
            return Err(malformed(format!("offset {} is not a multiple of {}", tensor.offset, data.alignment)));
        }
        let start = data.start.checked_add(tensor.offset);
        let end = start.and_then(|start| start.checked_add(tensor.byte_len));
        let range =
            start.and_then(|start| usize::try_from(start).ok()).zip(end.and_then(|end| usize::try_from(end).ok()));
        let bytes = range.and_then(|(start, end)| TensorBytes::new(file, start..end)).ok_or_else(|| {
            let PendingTensor { offset, byte_len, .. } = tensor;
            let (start, length) = (data.start, file.bytes().len());
            malformed(format!("{byte_len} bytes at {start} + {offset} reach beyond the file of {length} bytes"))
        })?;
        tensors.push(Tensor::new(tensor.name, tensor.dtype, tensor.shape, bytes).laid_out(tensor.layout));
    }
    tensors
        .sort_unstable_by(|left, right| left.start().cmp(&right.start()).then_with(|| left.name().cmp(right.name())));
    match tensors.windows(2).find(|pair| pair[0].start() as u64 + pair[0].byte_len() > pair[1].start() as u64) {
        Some(pair) => Err(WeightsError::malformed(
            file.path(),
            format!("tensor `{}`", pair[1].name()),
            format!("overlaps tensor `{}`", pair[0].name()),
        )),
        None => Ok(tensors),
    }
}
