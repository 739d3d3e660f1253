//! Writes a model as a GGUF file in other number formats.

mod folder;
mod pre_tokenizer;
mod rows;
mod tokenizer;

use std::path::Path;

use cascadia_kernels::{Dtype, Pool};
use cascadia_weights::gguf::write::{Outline, TensorEntry, TensorSink, write};
use cascadia_weights::{FileKind, MetadataValue, ModelFiles, Tensor};

use self::rows::{RowJob, RowOrder, write_rows, write_values};
use crate::{EngineError, Recipe};

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

/// A tensor of the result and where its numbers come from.
pub(crate) struct Planned<'a> {
    pub(crate) name: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) numbers: Numbers<'a>,
}

/// Where the numbers of a tensor come from.
pub(crate) enum Numbers<'a> {
    /// Rows of a stored tensor, in some order.
    Stored { tensor: &'a Tensor, order: RowOrder },
    /// Computed while converting; always written as F32.
    Computed(Vec<f32>),
}

/// Converts a model. The file appears under its name only when it is complete; a failure leaves nothing behind.
pub fn quantize(
    job: &QuantizeJob<'_>,
    mut progress: impl FnMut(QuantizeProgress<'_>),
) -> Result<QuantizeSummary, EngineError> {
    let (mut fields, planned) = match job.files.kind() {
        FileKind::Gguf => same_tensors(job.files),
        FileKind::HuggingFace => folder::plan(job.files)?,
    };
    let entries = entries(job.recipe, &planned);
    fields.push(("general.quantization_version".into(), QUANTIZATION_VERSION.into()));
    fields.push(("general.file_type".into(), job.recipe.file_type().into()));
    let total = entries.iter().map(|entry| numbers_in(&entry.shape)).sum();
    let mut done = 0;
    let outline = Outline { metadata: &fields, tensors: &entries };
    write(job.out, outline, |index, sink| {
        let tensor = &entries[index].name;
        fill(job, &planned[index], entries[index].dtype, sink, &mut |written| {
            done += written;
            progress(QuantizeProgress { tensor, done, total });
        })
    })?;
    // A source that shrank while it was read would have been converted into zeros.
    job.files.check_intact()?;
    Ok(QuantizeSummary {
        tensors: entries.len(),
        parameters: total,
        bytes_before: job.files.tensors().iter().map(Tensor::byte_len).sum(),
        bytes_after: entries.iter().filter_map(bytes_of).sum(),
    })
}

fn same_tensors(files: &ModelFiles) -> (Fields, Vec<Planned<'_>>) {
    let replaced = ["general.quantization_version", "general.file_type"];
    let kept = files.metadata().entries().iter().filter(|(key, _)| !replaced.contains(&key.as_str()));
    let planned = files.tensors().iter().map(|tensor| Planned {
        name: tensor.name().to_owned(),
        shape: tensor.shape().to_vec(),
        numbers: Numbers::Stored { tensor, order: RowOrder::Same },
    });
    (kept.cloned().collect(), planned.collect())
}

fn entries(recipe: Recipe, planned: &[Planned<'_>]) -> Vec<TensorEntry> {
    let recipe = recipe.for_model(planned.iter().map(|tensor| tensor.name.as_str()));
    let entry = |tensor: &Planned<'_>| {
        let dtype = match tensor.numbers {
            Numbers::Computed(_) => Dtype::F32,
            Numbers::Stored { .. } => recipe.dtype(&tensor.name, &tensor.shape),
        };
        TensorEntry { name: tensor.name.clone(), dtype, shape: tensor.shape.clone() }
    };
    planned.iter().map(entry).collect()
}

fn fill(
    job: &QuantizeJob<'_>,
    planned: &Planned<'_>,
    dtype: Dtype,
    sink: &mut TensorSink<'_>,
    written: &mut dyn FnMut(u64),
) -> Result<(), EngineError> {
    match &planned.numbers {
        Numbers::Computed(values) => {
            write_values(values, sink)?;
            written(values.len() as u64);
            Ok(())
        }
        Numbers::Stored { tensor, order } => {
            let columns = match (planned.shape.as_slice(), order) {
                // The numbers of a bias move like the rows of the matrix it belongs to.
                ([_], RowOrder::PairsTogether { .. }) | ([], _) => 1,
                ([.., columns], _) => *columns as usize,
            };
            write_rows(&RowJob { tensor, order: *order, columns, dtype }, job.pool, sink, written)
        }
    }
}

fn numbers_in(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |product, &size| product.saturating_mul(size))
}

fn bytes_of(entry: &TensorEntry) -> Option<u64> {
    let columns = entry.shape.last().copied().unwrap_or(1);
    let rows = numbers_in(&entry.shape).checked_div(columns)?;
    entry.dtype.row_bytes(columns)?.checked_mul(rows)
}
