//! Exceptions from a mix: `PATTERN=TYPE`.

use std::fmt;
use std::str::FromStr;

use cascadia_kernels::Dtype;
use cascadia_kernels::quantize::TARGETS;

use crate::QuantizeError;

/// Tensors that get a format of their own.
///
/// The pattern is a tensor's whole name, its name without `.weight`, or what it is called within its layer
/// (`ffn_down`); `*` stands for anything. `output` is also the token embedding where that makes the logits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    pattern: String,
    pub(crate) dtype: Dtype,
}

impl Keep {
    /// An exception for one tensor.
    pub(crate) fn one(name: &str, dtype: Dtype) -> Keep {
        Keep { pattern: name.to_owned(), dtype }
    }

    /// Whether it is for the tensor with this GGUF name.
    pub(super) fn matches(&self, name: &str) -> bool {
        let short = name.strip_suffix(".weight").unwrap_or(name);
        let within = short.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).map(|(_, part)| part);
        [Some(name), Some(short), within].into_iter().flatten().any(|name| fits(&self.pattern, name))
    }
}

/// Whether a pattern with stars is for the whole name.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((front, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(front) else { return false };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        let Some(at) = name.find(piece) else { return false };
        name = &name[at + piece.len()..];
    }
    name.ends_with(last)
}

impl FromStr for Keep {
    type Err = QuantizeError;

    fn from_str(text: &str) -> Result<Keep, QuantizeError> {
        let refuse = |allowed: &'static str| QuantizeError::Setting { name: "keep", value: text.to_owned(), allowed };
        let Some((pattern, kind)) = text.split_once('=').filter(|(pattern, _)| !pattern.is_empty()) else {
            return Err(refuse("PATTERN=TYPE, for example output=q6_k or blk.0.*=q8_0"));
        };
        let dtype = TARGETS.into_iter().find(|dtype| dtype.name().eq_ignore_ascii_case(kind));
        let dtype = dtype.ok_or_else(|| {
            refuse(
                "PATTERN=TYPE with one of the types f32, f16, bf16, q8_0, q6_k, q5_k, q5_0, q4_k, q4_0, iq4_nl, iq4_xs, \
                 nf4, int4_g128, q3_k, q2_k",
            )
        })?;
        Ok(Keep { pattern: pattern.to_owned(), dtype })
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.pattern, self.dtype.name().to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_for_whole_names_or_parts_of_layers() {
        let cases = [
            ("output", "output.weight", true),
            ("output", "blk.0.attn_output.weight", false),
            ("ffn_down", "blk.7.ffn_down.weight", true),
            ("blk.0.*", "blk.0.attn_q.weight", true),
            ("blk.0.*", "blk.10.attn_q.weight", false),
            ("attn_*", "blk.3.attn_v.weight", true),
            ("*_exps", "blk.3.ffn_up_exps.weight", true),
            ("blk.*.ffn_*.weight", "blk.3.ffn_up.weight", true),
            ("blk.1.ffn_up.weight", "blk.1.ffn_up.weight", true),
            ("*", "token_embd.weight", true),
            ("a*a", "a", false),
        ];
        for (pattern, name, expected) in cases {
            let keep: Keep = format!("{pattern}=Q8_0").parse().expect(pattern);
            assert_eq!(keep.matches(name), expected, "{pattern} for {name}");
        }
    }

    #[test]
    fn messages_say_what_is_allowed() {
        for text in ["output", "=q6_k"] {
            let message = text.parse::<Keep>().expect_err(text).to_string();
            assert!(message.contains("PATTERN=TYPE"), "{message}");
        }
        let message = "output=q7".parse::<Keep>().expect_err("no such type").to_string();
        for dtype in TARGETS {
            assert!(message.contains(&dtype.name().to_lowercase()), "{dtype} is missing in: {message}");
        }
    }
}
