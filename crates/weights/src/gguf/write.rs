//! Writing a GGUF file: version 3, the same input always giving the same bytes.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use cascadia_kernels::{Dtype, Layout};

use super::read::byte_len;
use super::write_value::{write_string, write_value};
use super::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, INTERLEAVED_ALIGNMENT, MAGIC, MAX_DIMENSIONS, ggml_type};
use crate::scratch_file::Unfinished;
use crate::{MetadataValue, WeightsError, names};

/// The version that is written.
const VERSION: u32 = 3;

/// Tensor data is collected to this many bytes before the system is asked to write.
const BUFFER_LEN: usize = 1 << 20;

/// A tensor that is going to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// Its name.
    pub name: String,
    /// How its numbers are stored.
    pub dtype: Dtype,
    /// Dimensions, outermost first.
    pub shape: Vec<u64>,
}

/// Everything of a file but the numbers.
#[derive(Clone, Copy, Debug)]
pub struct Outline<'a> {
    /// Key-values in the order in which they are written. `general.alignment` is left out: it is the writer's choice.
    pub metadata: &'a [(String, MetadataValue)],
    /// Tensors in the order in which they are written.
    pub tensors: &'a [TensorEntry],
}

/// How the tensors of an outline are placed.
struct Plan {
    layouts: Vec<Layout>,
    sizes: Vec<u64>,
    alignment: u64,
}

/// Writes a file at `path`, asking `fill` for the bytes of each tensor by its number, in order.
///
/// The file appears under its name only when it is complete and on disk. A failure, of `fill` or of the disk, leaves
/// an existing file as it was and nothing else behind.
pub fn write<E, F>(path: &Path, outline: Outline<'_>, fill: F) -> Result<(), E>
where
    E: From<WeightsError>,
    F: FnMut(usize, &mut TensorSink<'_>) -> Result<(), E>,
{
    write_laid_out(path, outline, |_| Layout::Rows, fill)
}

/// Like [`write()`], with the layout of every tensor; `fill` gives the bytes in that layout.
pub fn write_laid_out<E, F>(
    path: &Path,
    outline: Outline<'_>,
    layout: impl Fn(&TensorEntry) -> Layout,
    mut fill: F,
) -> Result<(), E>
where
    E: From<WeightsError>,
    F: FnMut(usize, &mut TensorSink<'_>) -> Result<(), E>,
{
    let layouts = outline.tensors.iter().map(layout).collect();
    let plan = check(outline, layouts).map_err(|problem| WeightsError::Write { path: path.to_owned(), problem })?;
    // Dropping it removes it, on every way out of this function but the last.
    let unfinished = Unfinished::create(path)?;
    let mut file = BufWriter::with_capacity(BUFFER_LEN, unfinished.file());
    write_header(&mut file, outline, &plan).map_err(WeightsError::io("write", path))?;
    for (index, &size) in plan.sizes.iter().enumerate() {
        let mut sink = TensorSink { path, file: &mut file, name: &outline.tensors[index].name, size, left: size };
        fill(index, &mut sink)?;
        sink.finish(plan.alignment)?;
    }
    file.flush().map_err(WeightsError::io("write", path))?;
    drop(file);
    Ok(unfinished.finish(path)?)
}

/// Takes the bytes of one tensor, in as many pieces as is convenient.
pub struct TensorSink<'a> {
    path: &'a Path,
    file: &'a mut dyn Write,
    name: &'a str,
    size: u64,
    left: u64,
}

impl TensorSink<'_> {
    /// Bytes that the tensor still needs.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Appends a piece of the tensor.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), WeightsError> {
        self.left = self
            .left
            .checked_sub(bytes.len() as u64)
            .ok_or_else(|| self.mismatch(format!("got {} bytes more than it takes", bytes.len() as u64 - self.left)))?;
        self.file.write_all(bytes).map_err(WeightsError::io("write", self.path))
    }

    fn finish(self, alignment: u64) -> Result<(), WeightsError> {
        if self.left > 0 {
            return Err(self.mismatch(format!("got {} bytes too few", self.left)));
        }
        write_padding(self.file, self.size, alignment).map_err(WeightsError::io("write", self.path))
    }

    fn mismatch(&self, problem: String) -> WeightsError {
        let problem = format!("tensor `{}` of {} bytes {problem}", self.name, self.size);
        WeightsError::Write { path: self.path.to_owned(), problem }
    }
}

/// Where everything goes, or why the outline does not describe a valid file.
fn check(outline: Outline<'_>, layouts: Vec<Layout>) -> Result<Plan, String> {
    names::sorted_index(outline.metadata, |(key, _)| key)
        .map_err(|key| format!("metadata key `{key}` occurs twice"))?;
    names::sorted_index(outline.tensors, |tensor| &tensor.name)
        .map_err(|name| format!("tensor `{name}` occurs twice"))?;
    let size = |(tensor, &layout): (&TensorEntry, &Layout)| {
        if tensor.shape.len() > MAX_DIMENSIONS {
            return Err(format!("tensor `{}` has more than {MAX_DIMENSIONS} dimensions", tensor.name));
        }
        byte_len((tensor.dtype, layout), &tensor.shape)
            .map_err(|problem| format!("tensor `{}`: {problem}", tensor.name))
    };
    let sizes = outline.tensors.iter().zip(&layouts).map(size).collect::<Result<Vec<u64>, String>>()?;
    let interleaved = layouts.contains(&Layout::Interleaved);
    let alignment = if interleaved { INTERLEAVED_ALIGNMENT } else { DEFAULT_ALIGNMENT };
    let add = |total: u64, &size: &u64| total.checked_add(size.checked_next_multiple_of(alignment)?);
    sizes.iter().try_fold(0, add).ok_or("the tensors together are larger than any file")?;
    Ok(Plan { layouts, sizes, alignment })
}

fn write_header(file: &mut dyn Write, outline: Outline<'_>, plan: &Plan) -> io::Result<()> {
    let mut file = Counted { file, written: 0 };
    let alignment = (ALIGNMENT_KEY.to_owned(), MetadataValue::U32(plan.alignment as u32));
    let own = (plan.alignment != DEFAULT_ALIGNMENT).then_some(&alignment);
    let metadata = || outline.metadata.iter().filter(|(key, _)| key != ALIGNMENT_KEY).chain(own);
    file.write_all(MAGIC)?;
    file.write_all(&VERSION.to_le_bytes())?;
    file.write_all(&(outline.tensors.len() as u64).to_le_bytes())?;
    file.write_all(&(metadata().count() as u64).to_le_bytes())?;
    for (key, value) in metadata() {
        write_string(&mut file, key.as_bytes())?;
        write_value(&mut file, value)?;
    }
    let mut offset = 0u64;
    for (index, (tensor, size)) in outline.tensors.iter().zip(&plan.sizes).enumerate() {
        write_string(&mut file, tensor.name.as_bytes())?;
        file.write_all(&(tensor.shape.len() as u32).to_le_bytes())?;
        // The file lists the innermost dimension first.
        for dimension in tensor.shape.iter().rev() {
            file.write_all(&dimension.to_le_bytes())?;
        }
        file.write_all(&ggml_type::stored_id(tensor.dtype, plan.layouts[index]).to_le_bytes())?;
        file.write_all(&offset.to_le_bytes())?;
        offset += size.next_multiple_of(plan.alignment);
    }
    let length = file.written;
    write_padding(&mut file, length, plan.alignment)
}

/// Fills up with zeros after `length` bytes, so that the next tensor starts where the format wants it.
fn write_padding(file: &mut dyn Write, length: u64, alignment: u64) -> io::Result<()> {
    const ZEROS: [u8; INTERLEAVED_ALIGNMENT as usize] = [0; INTERLEAVED_ALIGNMENT as usize];
    let padding = length.next_multiple_of(alignment) - length;
    file.write_all(&ZEROS[..padding as usize])
}

/// Passes bytes on and counts them.
struct Counted<'a> {
    file: &'a mut dyn Write,
    written: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
