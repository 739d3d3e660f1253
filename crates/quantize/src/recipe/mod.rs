//! Which number format each tensor of a model gets.

mod keep;
mod mix;

use std::fmt;
use std::str::FromStr;

use cascadia_kernels::Dtype;

pub use self::keep::Keep;
use self::mix::{MIXES, MatrixRole, Mix};
use crate::QuantizeError;

/// A mix of formats with exceptions, knowing the model it is for once [`Recipe::for_model`] has seen its tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    mix: &'static Mix,
    keep: Vec<Keep>,
    model: Model,
}

/// What a recipe has to know of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Model {
    layers: u64,
    /// The matrix that makes logits is a tensor of its own, not the token embedding.
    own_output: bool,
    query_rows: u64,
    value_rows: u64,
}

/// Matrices with fewer numbers than this cost nothing in full precision.
const TINY: u64 = 1024;

/// Matrices that are small or steer everything after them, so that quantising them never pays, by a piece of their name.
const KEPT: [&str; 3] = ["_norm.weight", "ffn_gate_inp.weight", "altup_router.weight"];

/// Names of tensors in a message.
const SHOWN_NAMES: usize = 8;

impl Recipe {
    /// The widest mix that is mostly of one format.
    pub(crate) fn mostly(dtype: Dtype) -> Option<Recipe> {
        let mix = MIXES.iter().find(|mix| mix.usual == dtype)?;
        Some(Recipe { mix, keep: Vec::new(), model: Model::default() })
    }

    /// The same mix with exceptions; the first that matches a tensor counts.
    pub fn keeping(self, keep: Vec<Keep>) -> Recipe {
        Recipe { keep, ..self }
    }

    /// The recipe for a model with these tensors (name and shape): how many layers it has decides which of them get
    /// more bits. An error when an exception is for none of them.
    pub fn for_model<'a>(
        self,
        tensors: impl IntoIterator<Item = (&'a str, &'a [u64])> + Clone,
    ) -> Result<Recipe, QuantizeError> {
        let mut model = Model::default();
        for (name, shape) in tensors.clone() {
            let rows = shape.first().copied().unwrap_or(0);
            model.layers = layer(name).map_or(model.layers, |layer| model.layers.max(layer.saturating_add(1)));
            model.own_output |= name == "output.weight";
            match name {
                "blk.0.attn_q.weight" => model.query_rows = rows,
                "blk.0.attn_v.weight" => model.value_rows = rows,
                _ => {}
            }
        }
        let recipe = Recipe { model, ..self };
        for keep in &recipe.keep {
            if !tensors.clone().into_iter().any(|(name, _)| recipe.keeps(keep, name)) {
                let names = tensors.into_iter().map(|(name, _)| name).filter(|name| name.ends_with("weight"));
                let names = names.take(SHOWN_NAMES).collect::<Vec<_>>().join(", ");
                return Err(QuantizeError::Setting {
                    name: "keep",
                    value: format!("{keep}, which fits no tensor of this model ({names}, …)"),
                    allowed: "a tensor's name, its part within a layer such as ffn_down, or a pattern with stars",
                });
            }
        }
        Ok(recipe)
    }

    /// The format of a tensor, by its GGUF name and its shape with rows outermost.
    pub fn dtype(&self, name: &str, shape: &[u64]) -> Dtype {
        if !is_quantized(name, shape) {
            return Dtype::F32;
        }
        let kept = self.keep.iter().find(|keep| self.keeps(keep, name));
        let wanted = kept.map_or_else(|| self.wanted(name), |keep| keep.dtype);
        fitting(wanted, shape.last().copied().unwrap_or(0))
    }

    /// The number of this mix in `general.file_type`.
    pub fn file_type(&self) -> u32 {
        self.mix.file_type
    }

    fn makes_logits(&self, name: &str) -> bool {
        name == "output.weight" || (name == "token_embd.weight" && !self.model.own_output)
    }

    fn keeps(&self, keep: &Keep, name: &str) -> bool {
        keep.matches(name) || (self.makes_logits(name) && keep.matches("output"))
    }

    /// The format a matrix should have when its rows allow it.
    fn wanted(&self, name: &str) -> Dtype {
        let usual = self.mix.usual;
        if self.makes_logits(name) && !usual.is_float() && usual != Dtype::Q8_0 {
            return Dtype::Q6_K;
        }
        let (Some(layer), Some(role)) = (layer(name), MatrixRole::of(name)) else { return usual };
        let shared_values = self.model.query_rows >= self.model.value_rows.saturating_mul(4);
        let applies =
            |rule: &&mix::Rule| rule.role == role && rule.layers.contain(layer, self.model.layers, shared_values);
        self.mix.rules.iter().find(applies).map_or(usual, |rule| rule.dtype)
    }
}

/// Whether a tensor is a matrix for which fewer bits pay at all.
pub(crate) fn is_quantized(name: &str, shape: &[u64]) -> bool {
    let numbers = shape.iter().fold(1, |product: u64, &size| product.saturating_mul(size));
    let matrix = shape.len() >= 2 && numbers >= TINY && name.ends_with("weight");
    matrix && !KEPT.iter().any(|piece| name.contains(piece))
}

/// The number of the layer a tensor belongs to.
pub(crate) fn layer(name: &str) -> Option<u64> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// The wanted format, or the next better one whose blocks fill rows of `columns` numbers.
pub(crate) fn fitting(wanted: Dtype, columns: u64) -> Dtype {
    let small = match wanted {
        Dtype::Q2_K | Dtype::Q3_K | Dtype::IQ4_XS | Dtype::Nf4 | Dtype::Int4Group128 => Dtype::IQ4_NL,
        Dtype::Q4_K => Dtype::Q5_0,
        _ => Dtype::Q8_0,
    };
    let fits = |dtype: &Dtype| columns.is_multiple_of(dtype.block_elements() as u64);
    [wanted, small, Dtype::F16].into_iter().find(fits).unwrap_or(Dtype::F32)
}

impl FromStr for Recipe {
    type Err = QuantizeError;

    fn from_str(name: &str) -> Result<Recipe, QuantizeError> {
        let found = MIXES.iter().find(|mix| mix.name.eq_ignore_ascii_case(name));
        let recipe = found.map(|mix| Recipe { mix, keep: Vec::new(), model: Model::default() });
        recipe.ok_or_else(|| QuantizeError::Setting {
            name: "type",
            value: name.to_owned(),
            allowed: "one of f32, f16, bf16, q8_0, q6_k, q5_k_m, q5_k_s, q5_0, q4_k_m, q4_k_s, q4_0, iq4_nl, iq4_xs, \
                      nf4, int4, q3_k_l, q3_k_m, q3_k_s, q2_k, q2_k_s",
        })
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.mix.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mix: &str, cases: &[(&str, &[u64], Dtype)]) {
        let recipe: Recipe = mix.parse().expect(mix);
        assert_eq!(recipe.to_string(), mix);
        let names: Vec<String> = (0..9).map(|layer| format!("blk.{layer}.attn_v.weight")).collect();
        let tensors = names.iter().map(|name| (name.as_str(), &[256, 512][..]));
        let tensors = tensors.chain([("blk.0.attn_q.weight", &[512, 512][..])]);
        let recipe = recipe.for_model(tensors).expect("no exceptions");
        for (name, shape, expected) in cases {
            assert_eq!(recipe.dtype(name, shape), *expected, "{mix}: {name} {shape:?}");
        }
    }

    #[test]
    fn mixes_give_more_bits_where_they_matter() {
        check(
            "q4_k_m",
            &[
                ("token_embd.weight", &[8192, 512], Dtype::Q6_K),
                ("output_norm.weight", &[512], Dtype::F32),
                ("blk.0.attn_norm.weight", &[512], Dtype::F32),
                ("blk.0.attn_q.weight", &[512, 512], Dtype::Q4_K),
                ("blk.0.attn_q.bias", &[512], Dtype::F32),
                ("blk.0.attn_v.weight", &[256, 512], Dtype::Q6_K),
                ("blk.1.attn_v.weight", &[256, 512], Dtype::Q4_K),
                ("blk.2.ffn_down.weight", &[512, 1536], Dtype::Q4_K),
                ("blk.3.ffn_down.weight", &[512, 1536], Dtype::Q6_K),
                ("blk.6.ffn_down.weight", &[512, 1536], Dtype::Q6_K),
                ("blk.8.ffn_down.weight", &[512, 1536], Dtype::Q6_K),
                ("blk.8.ffn_gate.weight", &[1536, 512], Dtype::Q4_K),
                ("blk.8.ffn_gate_inp.weight", &[8, 512], Dtype::F32),
                ("blk.8.altup_router.weight", &[4, 512], Dtype::F32),
                ("blk.8.tiny.weight", &[4, 4], Dtype::F32),
            ],
        );
        check("q5_k_m", &[("blk.3.attn_qkv.weight", &[768, 512], Dtype::Q6_K)]);
        check("q5_k_m", &[("blk.2.attn_qkv.weight", &[768, 512], Dtype::Q5_K)]);
        check("q5_k_s", &[("blk.3.attn_v.weight", &[256, 512], Dtype::Q5_K)]);
        check("q4_k_s", &[("blk.3.attn_v.weight", &[256, 512], Dtype::Q5_K)]);
        check("q4_k_s", &[("blk.4.attn_v.weight", &[256, 512], Dtype::Q4_K)]);
        check("q4_k_s", &[("blk.0.ffn_down.weight", &[512, 1536], Dtype::Q5_K)]);
        check("q3_k_m", &[("blk.1.attn_v.weight", &[256, 512], Dtype::Q5_K)]);
        check("q3_k_m", &[("blk.2.attn_v.weight", &[256, 512], Dtype::Q4_K)]);
        check("q3_k_m", &[("blk.2.ffn_down.weight", &[512, 1536], Dtype::Q4_K)]);
        check("q3_k_m", &[("blk.2.ffn_up.weight", &[1536, 512], Dtype::Q3_K)]);
        check("q3_k_l", &[("blk.2.attn_output.weight", &[512, 512], Dtype::Q5_K)]);
        check("q3_k_s", &[("blk.2.attn_v.weight", &[256, 512], Dtype::Q3_K)]);
        check("q2_k", &[("blk.2.attn_v.weight", &[256, 512], Dtype::Q3_K)]);
        check("q2_k", &[("blk.2.attn_k.weight", &[256, 512], Dtype::Q2_K)]);
        check("q2_k", &[("blk.2.ffn_down_exps.weight", &[8, 512, 1536], Dtype::Q3_K)]);
        check("iq4_xs", &[("blk.0.ffn_down.weight", &[512, 1536], Dtype::Q5_K)]);
        check("iq4_nl", &[("blk.1.ffn_down.weight", &[512, 1536], Dtype::IQ4_NL)]);
        check("nf4", &[("blk.1.ffn_down.weight", &[512, 1536], Dtype::Nf4)]);
        check("int4", &[("blk.1.ffn_down.weight", &[512, 1536], Dtype::Int4Group128)]);
        check("q5_0", &[("blk.1.ffn_down.weight", &[512, 1536], Dtype::Q5_0)]);
        check("q6_k", &[("blk.0.ffn_down.weight", &[512, 1536], Dtype::Q6_K)]);
        check("q4_0", &[("token_embd.weight", &[8192, 512], Dtype::Q6_K)]);
        check("q8_0", &[("token_embd.weight", &[8192, 512], Dtype::Q8_0)]);
        check("bf16", &[("token_embd.weight", &[8192, 512], Dtype::BF16)]);
        check("f32", &[("token_embd.weight", &[8192, 512], Dtype::F32)]);
    }

    #[test]
    fn rows_that_blocks_do_not_fill_get_a_format_that_fits() {
        check("q4_k_m", &[("blk.1.attn_q.weight", &[96, 96], Dtype::Q5_0)]);
        check("q3_k_s", &[("blk.1.attn_q.weight", &[96, 96], Dtype::IQ4_NL)]);
        check("int4", &[("blk.1.attn_q.weight", &[96, 96], Dtype::IQ4_NL)]);
        check("q6_k", &[("blk.1.attn_q.weight", &[96, 96], Dtype::Q8_0)]);
        check("q4_0", &[("blk.1.attn_q.weight", &[96, 100], Dtype::F16)]);
        check("f16", &[("blk.1.attn_q.weight", &[96, 33], Dtype::F16)]);
    }

    #[test]
    fn an_output_of_its_own_frees_the_embedding() {
        let recipe: Recipe = "Q4_K_M".parse().expect("names may be in capitals");
        let shape = &[8192, 512][..];
        let tensors = ["token_embd.weight", "output.weight", "blk.0.attn_v.weight"].map(|name| (name, shape));
        let recipe = recipe.for_model(tensors).expect("no exceptions");
        assert_eq!(recipe.dtype("token_embd.weight", &[8192, 512]), Dtype::Q4_K);
        assert_eq!(recipe.dtype("output.weight", &[8192, 512]), Dtype::Q6_K);
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let message = "q9_k_m".parse::<Recipe>().expect_err("no such mix").to_string();
        for mix in MIXES {
            assert!(message.contains(mix.name), "{} is missing in: {message}", mix.name);
        }
    }

    #[test]
    fn exceptions_come_before_the_mix() {
        let keep = |text: &str| vec![text.parse::<Keep>().expect(text)];
        let shape = &[512, 512][..];
        let tensors = ["token_embd.weight", "blk.0.attn_output.weight", "blk.1.ffn_down.weight"];
        let recipe = |text: &str| {
            let recipe = "q4_k_m".parse::<Recipe>().expect("known").keeping(keep(text));
            recipe.for_model(tensors.map(|name| (name, shape)))
        };
        let dtypes = |text: &str| tensors.map(|name| recipe(text).expect(text).dtype(name, shape));
        assert_eq!(dtypes("output=q8_0"), [Dtype::Q8_0, Dtype::Q4_K, Dtype::Q6_K]);
        assert_eq!(dtypes("ffn_*=f16"), [Dtype::Q6_K, Dtype::Q4_K, Dtype::F16]);
        let message = recipe("ffn_dwn=f16").expect_err("a typing error").to_string();
        assert!(message.contains("blk.1.ffn_down.weight"), "{message}");
    }

    #[test]
    fn a_hostile_layer_number_is_harmless() {
        let name = "blk.18446744073709551615.attn_v.weight";
        let recipe = "q4_k_m".parse::<Recipe>().expect("known").for_model([(name, &[256, 512][..])]);
        let recipe = recipe.expect("no exceptions");
        assert!(!recipe.dtype(name, &[256, 512]).is_float());
    }
}
