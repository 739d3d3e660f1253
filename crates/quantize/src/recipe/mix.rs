//! Mixes of formats by the names that GGUF tools use for them, as data.

use cascadia_kernels::Dtype;

/// A named choice of formats.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mix {
    /// Its name.
    pub(super) name: &'static str,
    /// The format of most of its matrices.
    pub(super) usual: Dtype,
    /// Its number in `general.file_type`.
    pub(super) file_type: u32,
    /// Matrices with another format; the first rule that applies counts.
    pub(super) rules: &'static [Rule],
}

/// Which matrices get which format.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// What they do.
    pub(super) role: MatrixRole,
    /// In which layers.
    pub(super) layers: Layers,
    /// Their format.
    pub(super) dtype: Dtype,
}

/// Matrices of a layer that lose most by few bits, by what they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatrixRole {
    /// What attention adds up, alone or together with queries and keys.
    Values,
    /// What turns attention back into hidden states.
    AttentionOutput,
    /// What turns the feed-forward network back into hidden states.
    Down,
}

/// Layers that a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layers {
    /// All.
    All,
    /// All, in models whose values serve four or more queries each and so are small.
    Shared,
    /// The first so many.
    First(u64),
    /// The first layers, one in so many.
    FirstFraction(u64),
    /// The first and last eighth, and every third between them.
    Spread,
}

impl MatrixRole {
    /// What a tensor of a layer does, if it is one of them.
    pub(super) fn of(name: &str) -> Option<MatrixRole> {
        let is = |end: &str| name.ends_with(end);
        match () {
            () if is("attn_v.weight") || is("attn_qkv.weight") || is("attn_kv_b.weight") => Some(MatrixRole::Values),
            () if is("attn_output.weight") => Some(MatrixRole::AttentionOutput),
            () if name.contains("ffn_down") => Some(MatrixRole::Down),
            () => None,
        }
    }
}

impl Layers {
    /// Whether `layer` of `count` is among them.
    pub(super) fn contain(self, layer: u64, count: u64, shared_values: bool) -> bool {
        let eighth = count / 8;
        match self {
            Layers::All => true,
            Layers::Shared => shared_values,
            Layers::First(first) => layer < first,
            Layers::FirstFraction(fraction) => layer < count / fraction,
            Layers::Spread => layer < eighth || layer >= count.saturating_mul(7) / 8 || (layer - eighth) % 3 == 2,
        }
    }
}

const fn mix(name: &'static str, usual: Dtype, file_type: u32, rules: &'static [Rule]) -> Mix {
    Mix { name, usual, file_type, rules }
}

const fn rule(role: MatrixRole, layers: Layers, dtype: Dtype) -> Rule {
    Rule { role, layers, dtype }
}

/// The number for mixes that other programs have no number for.
pub(super) const UNNAMED_FILE_TYPE: u32 = 1024;

/// Every mix, widest first. `S`, `M` and `L` differ in how many matrices get more bits.
pub(super) const MIXES: [Mix; 20] = [
    mix("f32", Dtype::F32, 0, &[]),
    mix("f16", Dtype::F16, 1, &[]),
    mix("bf16", Dtype::BF16, 32, &[]),
    mix("q8_0", Dtype::Q8_0, 7, &[]),
    mix("q6_k", Dtype::Q6_K, 18, &[]),
    mix("q5_k_m", Dtype::Q5_K, 17, SOME_Q6_K),
    mix("q5_k_s", Dtype::Q5_K, 16, &[]),
    mix("q5_0", Dtype::Q5_0, 8, &[]),
    mix("q4_k_m", Dtype::Q4_K, 15, SOME_Q6_K),
    mix(
        "q4_k_s",
        Dtype::Q4_K,
        14,
        &[
            rule(MatrixRole::Values, Layers::First(4), Dtype::Q5_K),
            rule(MatrixRole::Down, Layers::FirstFraction(8), Dtype::Q5_K),
        ],
    ),
    mix("q4_0", Dtype::Q4_0, 2, &[]),
    mix("iq4_nl", Dtype::IQ4_NL, 25, IQ4),
    mix("iq4_xs", Dtype::IQ4_XS, 30, IQ4),
    mix("nf4", Dtype::Nf4, UNNAMED_FILE_TYPE, &[]),
    mix("int4", Dtype::Int4Group128, UNNAMED_FILE_TYPE, &[]),
    mix(
        "q3_k_l",
        Dtype::Q3_K,
        13,
        &[
            rule(MatrixRole::Values, Layers::All, Dtype::Q5_K),
            rule(MatrixRole::Down, Layers::All, Dtype::Q5_K),
            rule(MatrixRole::AttentionOutput, Layers::All, Dtype::Q5_K),
        ],
    ),
    mix(
        "q3_k_m",
        Dtype::Q3_K,
        12,
        &[
            rule(MatrixRole::Values, Layers::First(2), Dtype::Q5_K),
            rule(MatrixRole::Values, Layers::All, Dtype::Q4_K),
            rule(MatrixRole::Down, Layers::FirstFraction(16), Dtype::Q5_K),
            rule(MatrixRole::Down, Layers::All, Dtype::Q4_K),
            rule(MatrixRole::AttentionOutput, Layers::All, Dtype::Q4_K),
        ],
    ),
    mix("q3_k_s", Dtype::Q3_K, 11, &[]),
    mix(
        "q2_k",
        Dtype::Q2_K,
        10,
        &[
            rule(MatrixRole::Values, Layers::Shared, Dtype::Q4_K),
            rule(MatrixRole::Values, Layers::All, Dtype::Q3_K),
            rule(MatrixRole::Down, Layers::All, Dtype::Q3_K),
            rule(MatrixRole::AttentionOutput, Layers::All, Dtype::Q3_K),
        ],
    ),
    mix(
        "q2_k_s",
        Dtype::Q2_K,
        21,
        &[
            rule(MatrixRole::Values, Layers::Shared, Dtype::Q4_K),
            rule(MatrixRole::Down, Layers::FirstFraction(8), Dtype::Q4_K),
        ],
    ),
];

const SOME_Q6_K: &[Rule] =
    &[rule(MatrixRole::Values, Layers::Spread, Dtype::Q6_K), rule(MatrixRole::Down, Layers::Spread, Dtype::Q6_K)];

const IQ4: &[Rule] = &[
    rule(MatrixRole::Values, Layers::Shared, Dtype::Q5_K),
    rule(MatrixRole::Down, Layers::FirstFraction(8), Dtype::Q5_K),
];
