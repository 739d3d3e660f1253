//! How a model's authors want tokens to be chosen: read from its files, and used where a request says nothing else.

use cascadia_weights::{FileKind, FromMetadata, Metadata, ModelFiles};
use serde_json::Value;

use crate::{EngineError, Sampling};

/// Settings of the sampler that come with a model. What its files do not say is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SuggestedSampling {
    /// See [`Sampling`].
    pub temperature: Option<f32>,
    /// See [`Sampling`].
    pub top_k: Option<u32>,
    /// See [`Sampling`].
    pub top_p: Option<f32>,
    /// See [`Sampling`].
    pub min_p: Option<f32>,
    /// See [`Sampling`].
    pub repetition_penalty: Option<f32>,
}

impl SuggestedSampling {
    /// Reads `generation_config.json`, or the keys `general.sampling.…` of a GGUF file. A value that the sampler does not
    /// take is as good as none: it is only a suggestion.
    pub fn read(files: &ModelFiles) -> Result<SuggestedSampling, EngineError> {
        let read = match files.kind() {
            FileKind::Gguf => from_metadata(files.metadata()),
            _ => from_json(&files.json("generation_config.json")?.unwrap_or_default()),
        };
        Ok(read.checked())
    }

    /// These settings where there are any, and the others from `usual`.
    pub fn over(&self, usual: Sampling) -> Sampling {
        Sampling {
            temperature: self.temperature.unwrap_or(usual.temperature),
            top_k: self.top_k.unwrap_or(usual.top_k),
            top_p: self.top_p.unwrap_or(usual.top_p),
            min_p: self.min_p.unwrap_or(usual.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(usual.repetition_penalty),
            ..usual
        }
    }

    /// Those that there are, by the names of requests.
    pub fn named(&self) -> Vec<(&'static str, f32)> {
        let all = [
            ("temperature", self.temperature),
            ("top_k", self.top_k.map(|count| count as f32)),
            ("top_p", self.top_p),
            ("min_p", self.min_p),
            ("repetition_penalty", self.repetition_penalty),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Without those that are out of range.
    fn checked(self) -> SuggestedSampling {
        let fits = |sampling: Sampling| sampling.check().is_ok();
        let usual = Sampling::default;
        SuggestedSampling {
            temperature: self.temperature.filter(|&temperature| fits(Sampling { temperature, ..usual() })),
            top_k: self.top_k,
            top_p: self.top_p.filter(|&top_p| fits(Sampling { top_p, ..usual() })),
            min_p: self.min_p.filter(|&min_p| fits(Sampling { min_p, ..usual() })),
            repetition_penalty: self
                .repetition_penalty
                .filter(|&repetition_penalty| fits(Sampling { repetition_penalty, ..usual() })),
        }
    }
}

fn from_metadata(metadata: &Metadata) -> SuggestedSampling {
    fn value<'a, T: FromMetadata<'a>>(metadata: &'a Metadata, name: &str) -> Option<T> {
        metadata.value(&format!("general.sampling.{name}")).ok().flatten()
    }
    SuggestedSampling {
        temperature: value(metadata, "temp"),
        top_k: value::<i32>(metadata, "top_k").map(|count| count.max(0).cast_unsigned()),
        top_p: value(metadata, "top_p"),
        min_p: value(metadata, "min_p"),
        repetition_penalty: value(metadata, "penalty_repeat"),
    }
}

fn from_json(config: &Value) -> SuggestedSampling {
    let number = |name: &str| config[name].as_f64().map(|number| number as f32);
    SuggestedSampling {
        temperature: number("temperature"),
        top_k: config["top_k"].as_u64().and_then(|count| u32::try_from(count).ok()),
        top_p: number("top_p"),
        min_p: number("min_p"),
        repetition_penalty: number("repetition_penalty"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_model_says_holds_and_nonsense_does_not() {
        let check = |config: Value, expected: Sampling| {
            let found = from_json(&config).checked().over(Sampling { temperature: 0.8, ..Sampling::default() });
            assert_eq!(found, expected, "{config}");
        };
        let usual = Sampling { temperature: 0.8, ..Sampling::default() };
        check(json!({}), usual.clone());
        check(
            json!({"temperature": 0.5, "top_k": 20, "top_p": 0.75, "min_p": 0.0, "repetition_penalty": 1.5}),
            Sampling { temperature: 0.5, top_k: 20, top_p: 0.75, repetition_penalty: 1.5, ..Sampling::default() },
        );
        check(json!({"temperature": null, "top_k": null, "top_p": "x"}), usual.clone());
        check(json!({"temperature": -1, "top_p": 0, "min_p": 7, "repetition_penalty": 0, "top_k": -5}), usual);
    }
}
