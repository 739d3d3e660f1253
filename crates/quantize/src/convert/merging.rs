//! Writes a model with an adapter merged into its weights.

use std::collections::BTreeMap;
use std::path::Path;

use cascadia_kernels::{Dtype, Pool};
use cascadia_model::Adapter;
use cascadia_weights::ModelFiles;
use cascadia_weights::gguf::write::TensorEntry;

use super::rows::RowChange;
use super::{Content, Planned, QuantizeProgress, QuantizeSummary, bytes_of, entries, format_fields, plan};
use crate::pack::refuse_packed;
use crate::recipe::is_quantized;
use crate::{QuantizeError, Recipe};

/// The matrices at both ends of a model, which may be one tensor.
const EMBEDDING: &str = "token_embd.weight";
const OUTPUT: &str = "output.weight";

/// What to merge, and into what.
pub struct MergeJob<'a> {
    /// The model.
    pub files: &'a ModelFiles,
    /// The adapter, loaded for this model.
    pub adapter: &'a Adapter,
    /// The GGUF file to write.
    pub out: &'a Path,
    /// The formats of the result; `None` keeps those of the source, but quantised weights that the adapter changes
    /// become f16.
    pub recipe: Option<Recipe>,
    /// The threads to compute with.
    pub pool: &'a Pool,
}

/// Merges an adapter. The file appears under its name only when it is complete; a failure leaves nothing behind.
pub fn merge(
    job: &MergeJob<'_>,
    mut progress: impl FnMut(QuantizeProgress<'_>),
) -> Result<QuantizeSummary, QuantizeError> {
    refuse_packed(job.files)?;
    let (mut fields, numbers) = plan(job.files)?;
    let merging = Merging { adapter: job.adapter, targets: job.adapter.targets() };
    let (planned, chosen) = merging.untied(numbers.planned());
    merging.check(job.files, &planned)?;
    let (entries, file_type) = match &job.recipe {
        Some(recipe) => (entries(recipe.clone(), &planned)?, Some(recipe.file_type())),
        None => {
            let kept = |tensor: &Planned| tensor.entry(merging.kept_dtype(tensor));
            let entries: Vec<TensorEntry> = planned.iter().map(kept).collect();
            let file_type = file_type(job.files, &entries)?;
            (entries, file_type)
        }
    };
    fields.extend(file_type.map(format_fields).into_iter().flatten());
    let content = Content { fields: &fields, entries: &entries, numbers: &numbers, chosen, merging: Some(&merging) };
    content.write(job.out, (None, job.pool), &mut progress)?;
    job.files.check_intact()?;
    Ok(QuantizeSummary::of(job.files, &entries))
}

/// The number of the mix that a file is, by the format of most of its bytes: the source's own where that is still the same.
fn file_type(files: &ModelFiles, entries: &[TensorEntry]) -> Result<Option<u32>, QuantizeError> {
    let mut bytes: BTreeMap<&str, (u64, Dtype)> = BTreeMap::new();
    for entry in entries {
        bytes.entry(entry.dtype.name()).or_insert((0, entry.dtype)).0 += bytes_of(entry).unwrap_or(0);
    }
    let Some((name, (_, dtype))) = bytes.into_iter().max_by_key(|(_, (bytes, _))| *bytes) else { return Ok(None) };
    let own = files.metadata().value("general.file_type")?;
    let usual = Recipe::mostly(dtype).map(|recipe| recipe.file_type());
    Ok(if files.main_format() == Some(name) { own.or(usual) } else { usual })
}

/// An adapter that is merged into the tensors of a model.
pub(super) struct Merging<'a> {
    adapter: &'a Adapter,
    /// The tensors that it changes.
    targets: Vec<&'a str>,
}

impl Merging<'_> {
    /// What happens to the rows of a tensor, if the adapter changes it. `source_row` is where the model's own files have a row.
    pub(super) fn change<'a>(
        &'a self,
        entry: &'a TensorEntry,
        source_row: impl Fn(usize) -> usize + Sync + 'a,
    ) -> Option<RowChange<'a>> {
        let TensorEntry { name, shape, .. } = entry;
        match (shape.as_slice(), name.strip_suffix(".bias")) {
            ([_], Some(part)) => {
                let bias = self.adapter.bias(&format!("{part}.weight"))?;
                Some(Box::new(move |_: usize, values: &mut [f32]| {
                    values.iter_mut().enumerate().for_each(|(at, value)| *value = bias[source_row(at)]);
                }))
            }
            (&[rows, columns] | &[_, rows, columns], None) if self.targets.contains(&name.as_str()) => {
                let (rows, columns) = (rows as usize, columns as usize);
                Some(Box::new(move |row: usize, values: &mut [f32]| {
                    self.adapter.merge(name, row / rows, source_row(row % rows), columns, values);
                }))
            }
            _ => None,
        }
    }

    /// The tensors of the result, and which one of the source each is. A model that has one tensor for embedding and output gets
    /// two of them where the adapter changes one.
    fn untied(&self, mut planned: Vec<Planned>) -> (Vec<Planned>, Vec<usize>) {
        let mut chosen: Vec<usize> = (0..planned.len()).collect();
        let place = |name: &str| planned.iter().position(|tensor| tensor.name == name);
        let changed = [EMBEDDING, OUTPUT].iter().any(|name| self.targets.contains(name));
        if let (Some(embedding), None, true) = (place(EMBEDDING), place(OUTPUT), changed) {
            let Planned { shape, dtype, .. } = &planned[embedding];
            let output = Planned { name: OUTPUT.to_owned(), shape: shape.clone(), dtype: *dtype };
            planned.push(output);
            chosen.push(embedding);
        }
        (planned, chosen)
    }

    /// An error where the adapter changes something that the result has no place for.
    fn check(&self, files: &ModelFiles, planned: &[Planned]) -> Result<(), QuantizeError> {
        let has = |name: &str| planned.iter().any(|tensor| tensor.name == name);
        let refuse = |what: String, value: &str, advice: &'static str| QuantizeError::Convert {
            path: files.path().to_owned(),
            what,
            value: value.to_owned(),
            advice,
        };
        for target in &self.targets {
            let (part, what) = (target.strip_suffix(".weight").unwrap_or(target), format!("tensor `{target}`"));
            if !has(target) {
                return Err(refuse(what, "stored in another form", "merge into the folder that it was converted from"));
            }
            if self.adapter.bias(target).is_some() && !has(&format!("{part}.bias")) {
                let advice = "such an adapter can be run with the model, and not be merged";
                return Err(refuse(what, "without a bias, which the adapter adds", advice));
            }
        }
        Ok(())
    }

    /// The format of a tensor where nobody asked for another.
    fn kept_dtype(&self, Planned { name, shape, dtype }: &Planned) -> Dtype {
        let changes = self.targets.contains(&name.as_str());
        match dtype {
            dtype if dtype.is_float() && !is_quantized(name, shape) => Dtype::F32,
            Dtype::F32 | Dtype::F16 | Dtype::BF16 => *dtype,
            _ if changes => Dtype::F16,
            _ => *dtype,
        }
    }
}
