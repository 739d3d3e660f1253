//! A Hugging Face folder as the metadata and tensors of a GGUF file.

use cascadia_engine::SuggestedSampling;
use cascadia_model::{GgufExport, ModelSpec, gguf_export};
use cascadia_weights::{MetadataValue, ModelFiles};

use super::Fields;
use super::tokenizer::tokenizer_fields;
use crate::QuantizeError;

/// What the converted file will hold. Tensors that no forward pass uses are left out.
pub(crate) fn plan(files: &ModelFiles) -> Result<(Fields, GgufExport<'_>), QuantizeError> {
    let spec = ModelSpec::from_files(files)?;
    let mut export = gguf_export(files, &spec)?;
    let mut fields = std::mem::take(&mut export.settings);
    if let Some(name) = model_name(files) {
        fields.push(("general.name".into(), name.as_str().into()));
    }
    fields.extend(tokenizer_fields(files, spec.vocabulary)?);
    fields.extend(sampling_fields(&SuggestedSampling::read(files)?));
    Ok((fields, export))
}

/// The folder's name, whatever way its path was written.
pub(crate) fn model_name(files: &ModelFiles) -> Option<String> {
    let path = files.path().canonicalize().ok()?;
    let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
    Some(name?.to_string_lossy().into_owned())
}

/// How the model's authors want tokens to be chosen, under the names that GGUF readers know.
fn sampling_fields(suggested: &SuggestedSampling) -> Fields {
    let SuggestedSampling { temperature, top_k, top_p, min_p, repetition_penalty } = suggested;
    let numbers = [("temp", temperature), ("top_p", top_p), ("min_p", min_p), ("penalty_repeat", repetition_penalty)];
    let numbers = numbers.into_iter().filter_map(|(name, number)| Some((name, MetadataValue::F32((*number)?))));
    let count = top_k.and_then(|count| i32::try_from(count).ok()).map(|count| ("top_k", MetadataValue::I32(count)));
    numbers.chain(count).map(|(name, value)| (format!("general.sampling.{name}"), value)).collect()
}
