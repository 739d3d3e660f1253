//! A Hugging Face folder as the metadata and tensors of a GGUF file.

use cascadia_model::{ExportSource, ModelSpec, gguf_export};
use cascadia_weights::ModelFiles;

use super::rows::RowOrder;
use super::tokenizer::tokenizer_fields;
use super::{Fields, Numbers, Planned};
use crate::EngineError;

/// What the converted file will hold. Tensors that no forward pass uses are left out.
pub(crate) fn plan(files: &ModelFiles) -> Result<(Fields, Vec<Planned<'_>>), EngineError> {
    let spec = ModelSpec::from_files(files)?;
    let export = gguf_export(files, &spec)?;
    let mut fields = export.settings;
    if let Some(name) = model_name(files) {
        fields.push(("general.name".into(), name.as_str().into()));
    }
    fields.extend(tokenizer_fields(files, spec.vocabulary)?);
    let mut planned = Vec::new();
    for exported in export.tensors {
        let (tensor, order) = match exported.source {
            ExportSource::Values(values) => {
                let shape = vec![values.len() as u64];
                planned.push(Planned { name: exported.name, shape, numbers: Numbers::Computed(values) });
                continue;
            }
            ExportSource::Tensor(tensor) => (tensor, RowOrder::Same),
            ExportSource::InterleavedRows { tensor, heads } => (tensor, RowOrder::PairsTogether { heads }),
        };
        let tensor = files.require(&tensor)?;
        let shape = tensor.shape().to_vec();
        if let RowOrder::PairsTogether { heads } = order
            && !shape.first().is_some_and(|&rows| rows > 0 && rows.is_multiple_of(2 * heads as u64))
        {
            return Err(EngineError::Convert {
                path: files.path().to_path_buf(),
                what: format!("the shape of tensor `{}`", tensor.name()),
                value: format!("{shape:?} for {heads} heads"),
                advice: "each head needs an even number of rows, so the file is damaged",
            });
        }
        planned.push(Planned { name: exported.name, shape, numbers: Numbers::Stored { tensor, order } });
    }
    Ok((fields, planned))
}

/// The folder's name, whatever way its path was written.
fn model_name(files: &ModelFiles) -> Option<String> {
    let path = files.path().canonicalize().ok()?;
    let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
    Some(name?.to_string_lossy().into_owned())
}
