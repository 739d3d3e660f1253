//! Qwen2 and Qwen2.5.

use super::{GgufHabits, MOST_CONTEXT, WINDOW, gated_decoder};
use crate::rope::RopeStyle;
use crate::settings::Settings;
use crate::{ModelError, ModelSpec};

/// GGUF keeps the rows as they are.
pub(super) const GGUF: GgufHabits = GgufHabits { architecture: "qwen2", rope: RopeStyle::Halves };

pub(super) fn spec(settings: &Settings<'_>) -> Result<ModelSpec, ModelError> {
    let mut spec = gated_decoder(settings, RopeStyle::Halves)?;
    spec.layers.iter_mut().for_each(|layer| layer.qkv_bias = true);
    // The window is written down even where it is switched off.
    if settings.config()["use_sliding_window"].as_bool() == Some(true) {
        let window = settings.count(WINDOW, MOST_CONTEXT)?.map(|window| window as u32);
        let first = settings.config()["max_window_layers"].as_u64().unwrap_or(0) as usize;
        spec.layers.iter_mut().skip(first).for_each(|layer| layer.window = window);
    }
    Ok(spec)
}
