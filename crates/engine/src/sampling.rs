//! How the next token is chosen: the settings of a request, checked once.

use crate::EngineError;

/// Settings of the sampler. The defaults change nothing: temperature 1 over the whole vocabulary.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 picks the most likely token; 1 samples from the model's own distribution.
    pub temperature: f32,
    /// Keep only this many of the most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set of most likely tokens whose probability reaches this; in (0, 1], 1 keeps all.
    pub top_p: f32,
    /// Keep tokens at least this likely relative to the most likely one; in [0, 1], 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen in the prompt or the output; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted once from the logit of every token of the output; 0 is off.
    pub presence_penalty: f32,
    /// Subtracted from the logit of a token for each time it is in the output; 0 is off.
    pub frequency_penalty: f32,
    /// Added to the logits of single tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Together with the position it fixes every random number.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

impl Sampling {
    /// The most likely token, always.
    pub fn greedy() -> Sampling {
        Sampling { temperature: 0.0, ..Sampling::default() }
    }

    /// An error that names the first value outside its range.
    pub fn check(&self) -> Result<(), EngineError> {
        let ranges = [
            ("temperature", self.temperature, 0.0, f32::MAX, "a finite number of at least 0"),
            ("top_p", self.top_p, f32::MIN_POSITIVE, 1.0, "above 0 and at most 1"),
            ("min_p", self.min_p, 0.0, 1.0, "between 0 and 1"),
            (
                "repetition_penalty",
                self.repetition_penalty,
                f32::MIN_POSITIVE,
                f32::MAX,
                "a finite number above 0 (1 is off)",
            ),
            ("presence_penalty", self.presence_penalty, f32::MIN, f32::MAX, "a finite number"),
            ("frequency_penalty", self.frequency_penalty, f32::MIN, f32::MAX, "a finite number"),
        ];
        for (name, value, least, most, allowed) in ranges {
            // A comparison with NaN is false, so NaN fails here too.
            if !(value >= least && value <= most) {
                return Err(EngineError::Setting { name, value: value.to_string(), allowed });
            }
        }
        match self.logit_bias.iter().find(|(_, bias)| !bias.is_finite()) {
            None => Ok(()),
            Some((token, bias)) => Err(EngineError::Setting {
                name: "logit_bias",
                value: format!("{bias} for token {token}"),
                allowed: "a finite number",
            }),
        }
    }
}
