//! Llama 1 to 3.x and Mistral.

use super::{GgufHabits, MOST_CONTEXT, WINDOW, gated_decoder};
use crate::rope::RopeStyle;
use crate::settings::Settings;
use crate::{ModelError, ModelSpec};
use cascadia_weights::FileKind;

/// GGUF stores both under one name, with the rows of queries and keys reordered for interleaved rotation.
pub(super) const GGUF: GgufHabits = GgufHabits { architecture: "llama", rope: RopeStyle::Interleaved };

pub(super) fn spec(settings: &Settings<'_>) -> Result<ModelSpec, ModelError> {
    let style = match settings.files.kind() {
        FileKind::Gguf => GGUF.rope,
        FileKind::HuggingFace => RopeStyle::Halves,
    };
    let mut spec = gated_decoder(settings, style)?;
    let window = settings.count(WINDOW, MOST_CONTEXT)?.map(|window| window as u32);
    spec.layers.iter_mut().for_each(|layer| layer.window = window);
    Ok(spec)
}
