//! Rotary position encodings as the two kinds of files describe them.

use cascadia_weights::FileKind;
use serde_json::Value;

use super::Source;
use super::keys::*;
use crate::rope::{RopeScaling, RopeSpec, WavelengthScaling};
use crate::settings::json_float;
use crate::{ModelError, RopeStyle};

/// The position encoding of a model that has one for all its layers.
pub(super) fn rope(source: &Source<'_>, head: usize) -> Result<RopeSpec, ModelError> {
    // Newer configurations keep everything in `rope_parameters`, older ones in `rope_scaling` and `rope_theta`.
    let config = source.settings.config();
    let nested =
        if config["rope_parameters"].is_object() { &config["rope_parameters"] } else { &config["rope_scaling"] };
    rope_with(source, nested, head)
}

/// A position encoding whose scaling, and perhaps base, is in `nested`.
pub(super) fn rope_with(source: &Source<'_>, nested: &Value, head: usize) -> Result<RopeSpec, ModelError> {
    let settings = &source.settings;
    let nested_base = json_float(&nested["rope_theta"]).map_err(|problem| settings.error(ROPE_BASE, problem))?;
    let base = match nested_base {
        Some(base) if base.is_finite() && base > 0.0 => base,
        Some(base) => {
            return Err(settings.error(ROPE_BASE, format!("is {base}, which should be finite and above zero")));
        }
        None => settings.positive(ROPE_BASE)?.unwrap_or(10_000.0),
    };
    let nested_part =
        json_float(&nested["partial_rotary_factor"]).map_err(|problem| settings.error(ROPE_PART, problem))?;
    let part = match nested_part {
        Some(part) => Some(part),
        None => settings.positive(ROPE_PART)?,
    };
    let dimensions = match (settings.count(ROPE_DIMENSIONS, MOST_WIDTH)?, part) {
        (Some(dimensions), _) => dimensions,
        (None, Some(part)) => (head as f32 * part) as usize,
        (None, None) => head,
    };
    let scaling = match settings.files.kind() {
        FileKind::HuggingFace => scaling_by_config(source, nested)?,
        FileKind::Gguf => scaling_by_metadata(source, dimensions)?,
    };
    Ok(RopeSpec { style: source.rope_style, base, dimensions, scaling })
}

/// A position encoding with nothing but a base.
pub(super) fn plain_rope(style: RopeStyle, base: f32, dimensions: usize) -> RopeSpec {
    RopeSpec { style, base, dimensions, scaling: RopeScaling::None }
}

fn scaling_by_config(source: &Source<'_>, scaling: &Value) -> Result<RopeScaling, ModelError> {
    let number = |name: &str| match json_float(&scaling[name]) {
        Ok(Some(number)) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err(source.settings.error(ROPE_SCALING, format!("has no usable `{name}`: {}", scaling[name]))),
    };
    match scaling["rope_type"].as_str().or(scaling["type"].as_str()).unwrap_or("default") {
        "default" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear(number("factor")?)),
        "llama3" => Ok(RopeScaling::Wavelengths(WavelengthScaling {
            factor: number("factor")?,
            low: number("low_freq_factor")?,
            high: number("high_freq_factor")?,
            original_context: number("original_max_position_embeddings")?,
        })),
        other => {
            let problem = format!("is of type `{other}`; this version runs default, linear and llama3");
            Err(source.settings.error(ROPE_SCALING, problem))
        }
    }
}

fn scaling_by_metadata(source: &Source<'_>, dimensions: usize) -> Result<RopeScaling, ModelError> {
    let settings = &source.settings;
    // Llama 3's scaling arrives as a tensor of divisors.
    if let Some(divisors) = source.catalog.vector("rope_freqs.weight", dimensions / 2)? {
        if let Some(bad) = divisors.iter().find(|divisor| !(divisor.is_finite() && **divisor > 0.0)) {
            return Err(settings.error(ROPE_SCALING, format!("comes with a divisor of {bad} in `rope_freqs.weight`")));
        }
        return Ok(RopeScaling::Divisors(divisors));
    }
    match settings.files.metadata().value::<&str>(&settings.name(ROPE_SCALING))? {
        None | Some("none") => Ok(RopeScaling::None),
        Some("linear") => {
            let factor = settings.positive(ROPE_FACTOR)?.ok_or_else(|| settings.error(ROPE_FACTOR, "is missing"))?;
            Ok(RopeScaling::Linear(factor))
        }
        Some(other) => Err(settings.error(ROPE_SCALING, format!("is `{other}`; this version runs none and linear"))),
    }
}
