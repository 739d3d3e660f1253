//! SmolLM3: every few layers, one without positions.

use cascadia_weights::FileKind;
use serde_json::Value;

use super::decoder::{each_attention, gated_decoder};
use super::{Family, GgufHabits, Source};
use crate::names::COMMON;
use crate::rope::RopeStyle;
use crate::{ModelError, ModelSpec};

/// One layer in so many has no positions, unless the file lists them.
const PERIOD: u64 = 4;

pub(super) const FAMILY: Family = Family {
    names: &["smollm3"],
    tensors: |_| Ok(COMMON.to_vec()),
    spec,
    gguf: GgufHabits { architecture: "smollm3", rope: RopeStyle::Interleaved },
};

fn spec(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let mut spec = gated_decoder(source)?;
    let config = source.settings.config();
    let period = match source.settings.files.kind() {
        FileKind::HuggingFace => config["no_rope_layer_interval"].as_u64().unwrap_or(PERIOD).max(1),
        FileKind::Gguf => PERIOD,
    };
    each_attention(&mut spec, |layer, attention| {
        let rotated = match &config["no_rope_layers"] {
            // Despite its name the list has a one where positions are used.
            Value::Array(listed) => listed.get(layer).is_none_or(|used| used != 0),
            _ => !(layer as u64 + 1).is_multiple_of(period),
        };
        attention.rope = attention.rope.filter(|_| rotated);
    });
    Ok(spec)
}
