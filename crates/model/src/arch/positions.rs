//! Rotary position encodings as the two kinds of files describe them.

use cascadia_weights::FileKind;
use serde_json::Value;

use super::Source;
use super::decoder::context;
use super::keys::*;
use crate::rope::{DynamicScaling, LongScaling, RopeScaling, RopeSpec, WavelengthScaling, YarnScaling, yarn_magnitude};
use crate::settings::json_float;
use crate::{ModelError, RopeStyle};

/// Turns within the original context that YaRN's stretching lies between, unless the file says otherwise.
const YARN_FAST: f32 = 32.0;
const YARN_SLOW: f32 = 1.0;

/// What frequencies are divided by that should be zero: so much that no text is long enough for them to matter, and
/// the number that llama.cpp's conversions write.
const STILL: f32 = 1e30;

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
        // The part is one of the pairs, and pairs lie half a whole head apart.
        (None, _) if nested["rope_type"] == "proportional" => head,
        (None, Some(part)) => (head as f32 * part) as usize,
        (None, None) => head,
    };
    let scaling = match settings.files.kind() {
        FileKind::HuggingFace => scaling_by_config(source, nested, dimensions)?,
        FileKind::Gguf => scaling_by_metadata(source, dimensions)?,
    };
    Ok(RopeSpec { style: source.rope_style, base, dimensions, scaling })
}

/// A position encoding with nothing but a base.
pub(super) fn plain_rope(style: RopeStyle, base: f32, dimensions: usize) -> RopeSpec {
    RopeSpec { style, base, dimensions, scaling: RopeScaling::None }
}

/// Tokens that a model reads with its frequencies stretched, where the setting for its context leaves that out.
pub(super) fn reach(scaling: &RopeScaling) -> u32 {
    let (factor, original_context) = match scaling {
        RopeScaling::Dynamic(DynamicScaling { factor, original_context }) => (factor, original_context),
        RopeScaling::Yarn(YarnScaling { factor, original_context, .. }) => (factor, original_context),
        _ => return 0,
    };
    ((f64::from(*factor) * f64::from(*original_context)) as u32).min(MOST_CONTEXT)
}

/// The scaling in a configuration: `rope_parameters` or `rope_scaling`.
struct Nested<'a> {
    source: &'a Source<'a>,
    values: &'a Value,
}

impl Nested<'_> {
    fn error(&self, name: &str) -> ModelError {
        self.source.settings.error(ROPE_SCALING, format!("has no usable `{name}`: {}", self.values[name]))
    }

    /// A finite number above zero; null and zero stand for none.
    fn number(&self, name: &str) -> Result<Option<f32>, ModelError> {
        match json_float(&self.values[name]) {
            Ok(None) | Ok(Some(0.0)) => Ok(None),
            Ok(Some(number)) if number.is_finite() && number > 0.0 => Ok(Some(number)),
            _ => Err(self.error(name)),
        }
    }

    fn require(&self, name: &str) -> Result<f32, ModelError> {
        self.number(name)?.ok_or_else(|| self.error(name))
    }

    /// One divisor for every pair.
    fn divisors(&self, name: &str, pairs: usize) -> Result<Vec<f32>, ModelError> {
        let listed = self.values[name].as_array().filter(|listed| listed.len() == pairs);
        let numbers = listed.and_then(|listed| {
            let number = |value: &Value| value.as_f64().map(|number| number as f32);
            listed.iter().map(|value| number(value).filter(|number| number.is_finite() && *number > 0.0)).collect()
        });
        let problem = || format!("needs {pairs} numbers above zero as `{name}`, one for every rotated pair");
        numbers.ok_or_else(|| self.source.settings.error(ROPE_SCALING, problem()))
    }

    /// Some families write it beside the scaling, where it counts for more.
    fn original_context(&self) -> Result<u32, ModelError> {
        let settings = &self.source.settings;
        if let Some(beside) = settings.count(ROPE_ORIGINAL, MOST_CONTEXT)? {
            return Ok(beside as u32);
        }
        match self.number("original_max_position_embeddings")? {
            Some(number) if number >= 1.0 && number <= MOST_CONTEXT as f32 => Ok(number as u32),
            Some(_) => Err(self.error("original_max_position_embeddings")),
            None => context(self.source),
        }
    }

    /// By how much the context is stretched.
    fn factor(&self, original_context: u32) -> Result<f32, ModelError> {
        match self.number("factor")? {
            Some(factor) => Ok(factor),
            None => Ok(self.source.settings.require_count(CONTEXT, MOST_CONTEXT)? as f32 / original_context as f32),
        }
    }

    fn yarn(&self) -> Result<RopeScaling, ModelError> {
        let original_context = self.original_context()?;
        let factor = self.factor(original_context)?;
        let magnitude = match self.number("attention_factor")? {
            Some(magnitude) => magnitude,
            None => match (self.number("mscale")?, self.number("mscale_all_dim")?) {
                (Some(rotated), Some(all)) => yarn_magnitude(factor, rotated) / yarn_magnitude(factor, all),
                _ => yarn_magnitude(factor, 1.0),
            },
        };
        Ok(RopeScaling::Yarn(YarnScaling {
            factor,
            original_context,
            fast: self.number("beta_fast")?.unwrap_or(YARN_FAST),
            slow: self.number("beta_slow")?.unwrap_or(YARN_SLOW),
            whole_pairs: self.values["truncate"].as_bool().unwrap_or(true),
            magnitude,
        }))
    }

    /// The first pairs turn, the others stand still.
    fn proportional(&self, dimensions: usize) -> Result<RopeScaling, ModelError> {
        let part = self.number("partial_rotary_factor")?.unwrap_or(1.0);
        let factor = self.number("factor")?.unwrap_or(1.0);
        let turning = (f64::from(part) * dimensions as f64 / 2.0) as usize;
        let divisor = |pair: usize| if pair < turning { factor } else { STILL };
        Ok(RopeScaling::Divisors((0..dimensions / 2).map(divisor).collect()))
    }

    fn long(&self, pairs: usize) -> Result<RopeScaling, ModelError> {
        let original_context = self.original_context()?;
        let factor = f64::from(self.factor(original_context)?);
        let magnitude = match self.number("attention_factor")? {
            Some(magnitude) => magnitude,
            None if factor <= 1.0 => 1.0,
            None => (1.0 + libm::log(factor) / libm::log(f64::from(original_context))).sqrt() as f32,
        };
        let (short, long) = (self.divisors("short_factor", pairs)?, self.divisors("long_factor", pairs)?);
        Ok(RopeScaling::Long(LongScaling { short, long, original_context, magnitude }))
    }
}

fn scaling_by_config(source: &Source<'_>, values: &Value, dimensions: usize) -> Result<RopeScaling, ModelError> {
    let nested = Nested { source, values };
    // The first models with divisors for long texts called them by other names.
    if values["long_factor"].is_array() {
        return nested.long(dimensions / 2);
    }
    match values["rope_type"].as_str().or(values["type"].as_str()).unwrap_or("default") {
        "default" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear(nested.require("factor")?)),
        "llama3" => Ok(RopeScaling::Wavelengths(WavelengthScaling {
            factor: nested.require("factor")?,
            low: nested.require("low_freq_factor")?,
            high: nested.require("high_freq_factor")?,
            original_context: nested.original_context()? as f32,
        })),
        "dynamic" => Ok(RopeScaling::Dynamic(DynamicScaling {
            factor: nested.require("factor")?,
            original_context: context(source)?,
        })),
        "yarn" => nested.yarn(),
        "longrope" => nested.long(dimensions / 2),
        "proportional" => nested.proportional(dimensions),
        other => {
            let known = "default, linear, llama3, dynamic, yarn, longrope and proportional";
            Err(source.settings.error(ROPE_SCALING, format!("is of type `{other}`; this version runs {known}")))
        }
    }
}

fn scaling_by_metadata(source: &Source<'_>, dimensions: usize) -> Result<RopeScaling, ModelError> {
    let settings = &source.settings;
    let tensor = |name: &str| {
        let divisors = source.catalog.vector(name, dimensions / 2)?;
        match divisors.iter().flatten().find(|divisor| !(divisor.is_finite() && **divisor > 0.0)) {
            Some(bad) => Err(settings.error(ROPE_SCALING, format!("comes with a divisor of {bad} in `{name}`"))),
            None => Ok(divisors),
        }
    };
    // Llama 3's scaling arrives as a tensor of divisors.
    if let Some(divisors) = tensor("rope_freqs.weight")? {
        return Ok(RopeScaling::Divisors(divisors));
    }
    let original_context = match settings.count(ROPE_ORIGINAL, MOST_CONTEXT)? {
        Some(original) => original as u32,
        None => context(source)?,
    };
    let share = settings.positive(ROPE_MAGNITUDE)?.unwrap_or(1.0);
    if let (Some(short), Some(long)) = (tensor("rope_factors_short.weight")?, tensor("rope_factors_long.weight")?) {
        return Ok(RopeScaling::Long(LongScaling { short, long, original_context, magnitude: share }));
    }
    if let Some(factor) = settings.positive(ROPE_DYNAMIC)? {
        return Ok(RopeScaling::Dynamic(DynamicScaling { factor, original_context }));
    }
    let factor = settings.positive(ROPE_FACTOR)?;
    match (settings.files.metadata().value::<&str>(&settings.name(ROPE_SCALING))?, factor) {
        (Some("none" | "longrope"), _) | (None, None) => Ok(RopeScaling::None),
        (None | Some("linear"), Some(factor)) => Ok(RopeScaling::Linear(factor)),
        (Some("yarn"), Some(factor)) => Ok(RopeScaling::Yarn(YarnScaling {
            factor,
            original_context,
            fast: settings.positive(ROPE_FAST)?.unwrap_or(YARN_FAST),
            slow: settings.positive(ROPE_SLOW)?.unwrap_or(YARN_SLOW),
            whole_pairs: settings.flag(ROPE_WHOLE_PAIRS)?.unwrap_or(true),
            magnitude: share * yarn_magnitude(factor, 1.0) / yarn_magnitude(factor, yarn_log_multiplier(source)?),
        })),
        (Some("linear" | "yarn"), None) => Err(settings.error(ROPE_FACTOR, "is missing")),
        (Some(other), _) => {
            let problem = format!("is `{other}`; this version runs none, linear, yarn and longrope");
            Err(settings.error(ROPE_SCALING, problem))
        }
    }
}

/// The share of YaRN's magnitude that GGUF takes out of the rotation, because scores have it as a whole.
pub(super) fn yarn_log_multiplier(source: &Source<'_>) -> Result<f32, ModelError> {
    let settings = &source.settings;
    match settings.files.metadata().value::<f32>(&settings.name(ROPE_LOG_MULTIPLIER))?.unwrap_or(0.0) {
        share if share.is_finite() => Ok(share),
        share => Err(settings.error(ROPE_LOG_MULTIPLIER, format!("is {share}, not a finite number"))),
    }
}
