//! Writes some tensors of a model as a file of its own that still describes the whole architecture.

use std::path::Path;

use cascadia_kernels::Pool;
use cascadia_weights::gguf::shard::elsewhere;
use cascadia_weights::gguf::write::TensorEntry;
use cascadia_weights::{MetadataValue, ModelFiles};

use super::{Content, Planned, QuantizeProgress, entries, format_fields, plan};
use crate::pack::refuse_packed;
use crate::{QuantizeError, Recipe};

/// Which part of a model to write, and in what formats.
pub struct ShardJob<'a> {
    /// The model.
    pub files: &'a ModelFiles,
    /// The GGUF file to write.
    pub out: &'a Path,
    /// The formats of the result; `None` keeps those of the source.
    pub recipe: Option<&'a Recipe>,
    /// Which tensors it holds, by their GGUF names; it describes the others.
    pub holds_tensor: &'a dyn Fn(&str) -> bool,
    /// Which metadata it keeps, by its keys.
    pub keeps_metadata: &'a dyn Fn(&str) -> bool,
    /// The threads to compute with.
    pub pool: &'a Pool,
}

/// Writes a shard; gives what it holds. The same model gives the same bytes, and no more than a tensor is in memory.
/// The file appears under its name only when it is complete.
pub fn write_shard(
    job: &ShardJob<'_>,
    mut progress: impl FnMut(QuantizeProgress<'_>),
) -> Result<Vec<TensorEntry>, QuantizeError> {
    refuse_packed(job.files)?;
    let (fields, numbers) = plan(job.files)?;
    let planned = numbers.planned();
    // The recipe looks at the whole model: a shard has the formats that one file would have.
    let entries = match job.recipe {
        Some(recipe) => entries(recipe.clone(), &planned)?,
        None => planned.iter().map(|tensor: &Planned| tensor.entry(tensor.dtype)).collect(),
    };
    let mut fields: Vec<(String, MetadataValue)> =
        fields.into_iter().filter(|(key, _)| (job.keeps_metadata)(key)).collect();
    let file_type = match job.recipe {
        Some(recipe) => Some(recipe.file_type()),
        None => job.files.metadata().value("general.file_type")?,
    };
    fields.extend(file_type.map(format_fields).into_iter().flatten());
    let (chosen, held): (Vec<usize>, Vec<TensorEntry>) =
        entries.iter().cloned().enumerate().filter(|(_, entry)| (job.holds_tensor)(&entry.name)).unzip();
    fields.push(elsewhere(entries.iter().filter(|entry| !(job.holds_tensor)(&entry.name))));
    let content = Content { fields: &fields, entries: &held, numbers: &numbers, chosen, merging: None };
    content.write(job.out, (None, job.pool), &mut progress)?;
    job.files.check_intact()?;
    Ok(held)
}
