//! Writes a model as a GGUF file in other number formats.

mod folder;
mod merging;
mod pre_tokenizer;
mod rows;
mod shard;
mod tokenizer;

use std::path::Path;
use std::sync::Arc;

use cascadia_kernels::{Dtype, Pool, SharedBytes};
use cascadia_model::GgufExport;
use cascadia_weights::gguf::write::{Outline, TensorEntry, write};
use cascadia_weights::{FileKind, MetadataValue, ModelFiles, Tensor};

pub(crate) use self::folder::model_name;
pub use self::merging::{MergeJob, merge};
pub use self::shard::{ShardJob, write_shard};

use self::merging::Merging;
use self::rows::{RowJob, write_rows};
use crate::pack::refuse_packed;
use crate::{Importance, QuantizeError, Recipe};

/// The layout of quantised blocks that every current reader understands.
const QUANTIZATION_VERSION: u32 = 2;

/// Metadata in the order in which it is written.
pub(crate) type Fields = Vec<(String, MetadataValue)>;

/// What to convert, and into what.
pub struct QuantizeJob<'a> {
    /// The model.
    pub files: &'a ModelFiles,
    /// The GGUF file to write.
    pub out: &'a Path,
    /// The formats of the result.
    pub recipe: Recipe,
    /// How much each column of each matrix matters; without it all matter the same.
    pub importance: Option<&'a Importance>,
    /// The threads to compute with.
    pub pool: &'a Pool,
}

/// How far a conversion is.
#[derive(Clone, Copy, Debug)]
pub struct QuantizeProgress<'a> {
    /// The tensor that is being written.
    pub tensor: &'a str,
    /// Numbers written so far.
    pub done: u64,
    /// Numbers in all.
    pub total: u64,
}

/// What a conversion wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantizeSummary {
    /// Tensors written.
    pub tensors: usize,
    /// Numbers in them.
    pub parameters: u64,
    /// Bytes of the tensors as they were.
    pub bytes_before: u64,
    /// Bytes of the tensors as they are now.
    pub bytes_after: u64,
}

impl QuantizeSummary {
    fn of(files: &ModelFiles, entries: &[TensorEntry]) -> QuantizeSummary {
        QuantizeSummary {
            tensors: entries.len(),
            parameters: entries.iter().map(|entry| numbers_in(&entry.shape)).sum(),
            bytes_before: files.tensors().iter().map(Tensor::byte_len).sum(),
            bytes_after: entries.iter().filter_map(bytes_of).sum(),
        }
    }
}

/// A tensor of the result.
pub(crate) struct Planned {
    pub(crate) name: String,
    pub(crate) shape: Vec<u64>,
    /// The format of the source.
    dtype: Dtype,
}

impl Planned {
    fn entry(&self, dtype: Dtype) -> TensorEntry {
        TensorEntry { name: self.name.clone(), dtype, shape: self.shape.clone() }
    }
}

/// Where the numbers of the result come from.
pub(crate) enum Numbers<'a> {
    /// The tensors of a GGUF file, as they are.
    Copied(&'a [Tensor]),
    /// The tensors of a folder, in GGUF's form.
    Exported(GgufExport<'a>),
}

impl Numbers<'_> {
    /// The tensors of the result.
    pub(crate) fn planned(&self) -> Vec<Planned> {
        let plan = |name: &str, shape: &[u64], dtype| Planned { name: name.to_owned(), shape: shape.to_vec(), dtype };
        match self {
            Numbers::Copied(tensors) => {
                tensors.iter().map(|tensor| plan(tensor.name(), tensor.shape(), tensor.dtype())).collect()
            }
            Numbers::Exported(export) => {
                export.tensors.iter().map(|tensor| plan(&tensor.name, &tensor.shape, tensor.dtype)).collect()
            }
        }
    }

    /// The numbers of one tensor. No more than one tensor is held at a time.
    pub(crate) fn read(&self, index: usize) -> Result<(Dtype, SharedBytes), QuantizeError> {
        match self {
            Numbers::Copied(tensors) => Ok((tensors[index].dtype(), Arc::new(tensors[index].bytes()))),
            Numbers::Exported(export) => Ok(export.read(&export.tensors[index])?),
        }
    }

    /// Where the model's own files have a row of one tensor.
    fn source_row(&self, index: usize, row: usize) -> usize {
        match self {
            Numbers::Copied(_) => row,
            Numbers::Exported(export) => export.tensors[index].source_row(row),
        }
    }
}

/// Converts a model. The file appears under its name only when it is complete; a failure leaves nothing behind.
pub fn quantize(
    job: &QuantizeJob<'_>,
    mut progress: impl FnMut(QuantizeProgress<'_>),
) -> Result<QuantizeSummary, QuantizeError> {
    refuse_packed(job.files)?;
    let (mut fields, numbers) = plan(job.files)?;
    let entries = entries(job.recipe.clone(), &numbers.planned())?;
    fields.extend(format_fields(job.recipe.file_type()));
    let chosen = (0..entries.len()).collect();
    let content = Content { fields: &fields, entries: &entries, numbers: &numbers, chosen, merging: None };
    content.write(job.out, (job.importance, job.pool), &mut progress)?;
    // A source that shrank while it was read would have been converted into zeros.
    job.files.check_intact()?;
    Ok(QuantizeSummary::of(job.files, &entries))
}

/// What says how blocks are laid out and which mix of formats this is.
fn format_fields(file_type: u32) -> [(String, MetadataValue); 2] {
    [
        ("general.quantization_version".to_owned(), QUANTIZATION_VERSION.into()),
        ("general.file_type".to_owned(), file_type.into()),
    ]
}

/// What a file of the result holds.
struct Content<'a> {
    fields: &'a Fields,
    entries: &'a [TensorEntry],
    numbers: &'a Numbers<'a>,
    /// Of every entry, which tensor of `numbers` it is.
    chosen: Vec<usize>,
    /// The adapter that changes them.
    merging: Option<&'a Merging<'a>>,
}

impl Content<'_> {
    fn write(
        &self,
        out: &Path,
        (importance, pool): (Option<&Importance>, &Pool),
        progress: &mut dyn FnMut(QuantizeProgress<'_>),
    ) -> Result<(), QuantizeError> {
        let total = self.entries.iter().map(|entry| numbers_in(&entry.shape)).sum();
        let mut done = 0;
        let outline = Outline { metadata: self.fields, tensors: self.entries };
        write(out, outline, |index, sink| {
            let (entry, chosen) = (&self.entries[index], self.chosen[index]);
            let TensorEntry { name: tensor, dtype, shape } = entry;
            let (stored_dtype, stored) = self.numbers.read(chosen)?;
            let columns = shape.last().map_or(1, |&columns| columns as usize);
            let stored = (*stored).as_ref();
            let importance = importance.map(|importance| importance.of(tensor, shape)).transpose()?.flatten();
            let source_row = |row| self.numbers.source_row(chosen, row);
            let change = self.merging.and_then(|merging| merging.change(entry, source_row));
            let rows = RowJob { name: tensor, stored, stored_dtype, columns, dtype: *dtype, importance, change };
            write_rows(&rows, pool, sink, |written| {
                done += written;
                progress(QuantizeProgress { tensor, done, total });
            })
        })
    }
}

/// The metadata of a model's GGUF file, and its numbers.
pub(crate) fn plan(files: &ModelFiles) -> Result<(Fields, Numbers<'_>), QuantizeError> {
    match files.kind() {
        FileKind::Gguf => Ok((kept_fields(files), Numbers::Copied(files.tensors()))),
        FileKind::HuggingFace => folder::plan(files).map(|(fields, export)| (fields, Numbers::Exported(export))),
    }
}

fn kept_fields(files: &ModelFiles) -> Fields {
    let replaced = ["general.quantization_version", "general.file_type"];
    let kept = files.metadata().entries().iter().filter(|(key, _)| !replaced.contains(&key.as_str()));
    kept.cloned().collect()
}

fn entries(recipe: Recipe, planned: &[Planned]) -> Result<Vec<TensorEntry>, QuantizeError> {
    let recipe = recipe.for_model(planned.iter().map(|tensor| (tensor.name.as_str(), tensor.shape.as_slice())))?;
    let entry = |tensor: &Planned| {
        let dtype = recipe.dtype(&tensor.name, &tensor.shape);
        tensor.entry(dtype)
    };
    Ok(planned.iter().map(entry).collect())
}

fn numbers_in(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |product, &size| product.saturating_mul(size))
}

fn bytes_of(entry: &TensorEntry) -> Option<u64> {
    let columns = entry.shape.last().copied().unwrap_or(1);
    let rows = numbers_in(&entry.shape).checked_div(columns)?;
    entry.dtype.row_bytes(columns)?.checked_mul(rows)
}
