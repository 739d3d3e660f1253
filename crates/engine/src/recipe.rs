//! Which number format each tensor of a model gets.

use std::fmt;
use std::str::FromStr;

use cascadia_kernels::Dtype;

use crate::EngineError;

/// A named choice of formats, knowing the model it is for once [`Recipe::for_model`] has seen its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    mix: Mix,
    layers: u64,
    output: Output,
}

/// Where the matrix that makes logits lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    /// It is the token embedding.
    Tied,
    /// A tensor of its own.
    Own,
}

/// The mixes by the names that the GGUF world gives them; `S` and `M` differ in how many matrices get more bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "the field writes these names with underscores")]
enum Mix {
    F32,
    F16,
    BF16,
    Q8_0,
    Q4_0,
    Q4_K_S,
    Q4_K_M,
    Q5_K_S,
    Q5_K_M,
    Q6_K,
}

/// A mix with its name, the format of most of its matrices and its number in `general.file_type`.
const MIXES: [(Mix, &str, Dtype, u32); 10] = [
    (Mix::F32, "f32", Dtype::F32, 0),
    (Mix::F16, "f16", Dtype::F16, 1),
    (Mix::BF16, "bf16", Dtype::BF16, 32),
    (Mix::Q8_0, "q8_0", Dtype::Q8_0, 7),
    (Mix::Q4_0, "q4_0", Dtype::Q4_0, 2),
    (Mix::Q4_K_S, "q4_k_s", Dtype::Q4_K, 14),
    (Mix::Q4_K_M, "q4_k_m", Dtype::Q4_K, 15),
    (Mix::Q5_K_S, "q5_k_s", Dtype::Q5_K, 16),
    (Mix::Q5_K_M, "q5_k_m", Dtype::Q5_K, 17),
    (Mix::Q6_K, "q6_k", Dtype::Q6_K, 18),
];

/// Matrices with fewer numbers than this cost nothing in full precision.
const TINY: u64 = 1024;

/// Parts of names of matrices that are small or steer everything after them, so that quantising them never pays.
const KEPT: [&str; 2] = ["_norm.weight", "ffn_gate_inp.weight"];

impl Recipe {
    /// The recipe for a model with these tensors: how many layers it has decides which of them get more bits.
    pub fn for_model<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Recipe {
        names.into_iter().fold(Recipe { layers: 0, output: Output::Tied, ..self }, |recipe, name| Recipe {
            layers: layer(name).map_or(recipe.layers, |layer| recipe.layers.max(layer.saturating_add(1))),
            output: if name == "output.weight" { Output::Own } else { recipe.output },
            ..recipe
        })
    }

    /// The format of a tensor, by its GGUF name and its shape with rows outermost.
    pub fn dtype(&self, name: &str, shape: &[u64]) -> Dtype {
        let numbers = shape.iter().fold(1, |product: u64, &size| product.saturating_mul(size));
        let matrix = shape.len() >= 2 && numbers >= TINY && name.ends_with("weight");
        if !matrix || KEPT.iter().any(|part| name.contains(part)) {
            return Dtype::F32;
        }
        fitting(self.wanted(name), shape.last().copied().unwrap_or(0))
    }

    /// The number of this mix in `general.file_type`.
    pub fn file_type(&self) -> u32 {
        self.row().3
    }

    fn row(&self) -> &'static (Mix, &'static str, Dtype, u32) {
        MIXES.iter().find(|row| row.0 == self.mix).expect("every mix has its row")
    }

    /// The format a matrix should have when its rows allow it.
    fn wanted(&self, name: &str) -> Dtype {
        let usual = self.row().2;
        let makes_logits = name == "output.weight" || (name == "token_embd.weight" && self.output == Output::Tied);
        if makes_logits && !usual.is_float() && usual != Dtype::Q8_0 {
            return Dtype::Q6_K;
        }
        let Some(layer) = layer(name) else { return usual };
        let values = ["attn_v.weight", "attn_qkv.weight", "attn_kv_b.weight"].iter().any(|part| name.ends_with(part));
        let down = name.contains("ffn_down");
        match self.mix {
            Mix::Q4_K_M | Mix::Q5_K_M if (values || down) && self.gets_more_bits(layer) => Dtype::Q6_K,
            Mix::Q4_K_S if values && layer < 4 => Dtype::Q5_K,
            Mix::Q4_K_S if down && layer < self.layers / 8 => Dtype::Q5_K,
            _ => usual,
        }
    }

    /// The first and last eighth of the layers and every third between them.
    fn gets_more_bits(&self, layer: u64) -> bool {
        let eighth = self.layers / 8;
        layer < eighth || layer >= self.layers.saturating_mul(7) / 8 || (layer - eighth) % 3 == 2
    }
}

/// The number of the layer a tensor belongs to.
fn layer(name: &str) -> Option<u64> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// The wanted format, or the next better one whose blocks fill rows of `columns` numbers.
fn fitting(wanted: Dtype, columns: u64) -> Dtype {
    let fits = |dtype: &Dtype| columns.is_multiple_of(dtype.block_elements() as u64);
    [wanted, Dtype::Q8_0, Dtype::F16].into_iter().find(fits).unwrap_or(Dtype::F32)
}

impl FromStr for Recipe {
    type Err = EngineError;

    fn from_str(name: &str) -> Result<Recipe, EngineError> {
        let found = MIXES.iter().find(|row| row.1.eq_ignore_ascii_case(name));
        found.map(|row| Recipe { mix: row.0, layers: 0, output: Output::Tied }).ok_or_else(|| EngineError::Setting {
            name: "type",
            value: name.to_owned(),
            allowed: "one of f32, f16, bf16, q8_0, q4_0, q4_k_s, q4_k_m, q5_k_s, q5_k_m, q6_k",
        })
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mix: &str, cases: &[(&str, &[u64], Dtype)]) {
        let recipe: Recipe = mix.parse().expect(mix);
        assert_eq!(recipe.to_string(), mix);
        let names: Vec<String> = (0..9).map(|layer| format!("blk.{layer}.attn_v.weight")).collect();
        let recipe = recipe.for_model(names.iter().map(String::as_str));
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
                ("blk.8.tiny.weight", &[4, 4], Dtype::F32),
            ],
        );
        check("q5_k_m", &[("blk.3.attn_qkv.weight", &[768, 512], Dtype::Q6_K)]);
        check("q5_k_m", &[("blk.2.attn_qkv.weight", &[768, 512], Dtype::Q5_K)]);
        check("q5_k_s", &[("blk.3.attn_v.weight", &[256, 512], Dtype::Q5_K)]);
        check("q4_k_s", &[("blk.3.attn_v.weight", &[256, 512], Dtype::Q5_K)]);
        check("q4_k_s", &[("blk.4.attn_v.weight", &[256, 512], Dtype::Q4_K)]);
        check("q4_k_s", &[("blk.0.ffn_down.weight", &[512, 1536], Dtype::Q5_K)]);
        check("q6_k", &[("blk.0.ffn_down.weight", &[512, 1536], Dtype::Q6_K)]);
        check("q4_0", &[("token_embd.weight", &[8192, 512], Dtype::Q6_K)]);
        check("q8_0", &[("token_embd.weight", &[8192, 512], Dtype::Q8_0)]);
        check("bf16", &[("token_embd.weight", &[8192, 512], Dtype::BF16)]);
        check("f32", &[("token_embd.weight", &[8192, 512], Dtype::F32)]);
    }

    #[test]
    fn rows_that_blocks_do_not_fill_get_a_format_that_fits() {
        check("q4_k_m", &[("blk.1.attn_q.weight", &[96, 96], Dtype::Q8_0)]);
        check("q4_0", &[("blk.1.attn_q.weight", &[96, 100], Dtype::F16)]);
        check("f16", &[("blk.1.attn_q.weight", &[96, 33], Dtype::F16)]);
    }

    #[test]
    fn an_output_of_its_own_frees_the_embedding() {
        let recipe: Recipe = "Q4_K_M".parse().expect("names may be in capitals");
        let recipe = recipe.for_model(["token_embd.weight", "output.weight", "blk.0.attn_v.weight"]);
        assert_eq!(recipe.dtype("token_embd.weight", &[8192, 512]), Dtype::Q4_K);
        assert_eq!(recipe.dtype("output.weight", &[8192, 512]), Dtype::Q6_K);
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let message = "q3_k_m".parse::<Recipe>().expect_err("no such mix").to_string();
        for (_, name, _, _) in MIXES {
            assert!(message.contains(name), "{name} is missing in: {message}");
        }
    }

    #[test]
    fn a_hostile_layer_number_is_harmless() {
        let name = "blk.18446744073709551615.attn_v.weight";
        let recipe = "q4_k_m".parse::<Recipe>().expect("known").for_model([name]);
        assert!(!recipe.dtype(name, &[256, 512]).is_float());
    }
}
