//! Llama 1 to 3.x, and what is built like it: Mistral, DeepSeek LLM, Yi, SmolLM 1 and 2.

use super::decoder::{each_attention, gated_decoder, window};
use super::{Family, GgufHabits, Source};
use crate::names::COMMON;
use crate::rope::RopeStyle;
use crate::{ModelError, ModelSpec};

pub(super) const FAMILY: Family = Family {
    names: &["llama", "mistral"],
    tensors: |_| Ok(COMMON.to_vec()),
    spec,
    // GGUF reorders the rows of queries and keys for interleaved rotation.
    gguf: GgufHabits { architecture: "llama", rope: RopeStyle::Interleaved },
};

fn spec(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let mut spec = gated_decoder(source)?;
    let window = window(source)?;
    each_attention(&mut spec, |_, attention| attention.window = window);
    Ok(spec)
}
