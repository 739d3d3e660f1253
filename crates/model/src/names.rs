//! Tensor names: what GGUF calls a tensor and what Hugging Face calls the same one.

/// One tensor, or one per layer or expert, under both its names. `{}` stands for the number of the layer; one more, only in
/// the stored name, for that of an expert or of another matrix that GGUF has together with its like. Without `.weight` or `.bias` a name stands for both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rename {
    pub(crate) gguf: &'static str,
    pub(crate) stored: &'static str,
    pub(crate) form: Form,
}

/// How the numbers of a stored tensor become those of the GGUF tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are.
    Same,
    /// One is added to each.
    OnePlus,
    /// Rows and columns, of every expert, change places. Formats of blocks cannot be turned and are stored turned.
    Transposed,
    /// Without the outermost size, which is one.
    Row,
    /// Some of the rows of every expert.
    Rows(Half),
    /// Some of the columns of every expert, which then become rows. Formats of blocks are stored turned already.
    Columns(Half),
    /// Rows of all queries, then of all keys, then of all values, where the stored tensor has them together for every
    /// key/value head.
    GroupedHeads { heads: usize, kv_heads: usize },
    /// The rows of every head that make its keys, with rows and columns in each other's place.
    KeysOfHeads(HeadRows),
    /// The rows of every head that make its values.
    ValuesOfHeads(HeadRows),
}

/// Rows of a tensor that has them together for every head: first those for its key, then those for its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadRows {
    pub(crate) key: usize,
    pub(crate) value: usize,
}

/// Which half of a tensor that holds gates and what they multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    First,
    Second,
    /// The first, third and so on.
    Odd,
    /// The second, fourth and so on.
    Even,
}

impl Form {
    /// Which outputs of a stored matrix with so many the GGUF tensor has: all of them, or some of the rows or columns.
    pub(crate) fn outputs_of(self, count: usize) -> impl Iterator<Item = usize> {
        let (start, end, step) = match self {
            Form::Rows(Half::First) | Form::Columns(Half::First) => (0, count / 2, 1),
            Form::Rows(Half::Second) | Form::Columns(Half::Second) => (count / 2, count, 1),
            Form::Rows(Half::Odd) | Form::Columns(Half::Odd) => (0, count, 2),
            Form::Rows(Half::Even) | Form::Columns(Half::Even) => (1, count, 2),
            _ => (0, count, 1),
        };
        (start..end).step_by(step)
    }
}

/// A tensor that both sides store alike.
pub(crate) const fn same(gguf: &'static str, stored: &'static str) -> Rename {
    Rename { gguf, stored, form: Form::Same }
}

/// The names that most families share.
pub(crate) const COMMON: [Rename; 12] = [
    same("token_embd", "model.embed_tokens"),
    same("output_norm", "model.norm"),
    same("output", "lm_head"),
    same("blk.{}.attn_norm", "model.layers.{}.input_layernorm"),
    same("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"),
    same("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
    same("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
    same("blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"),
    same("blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"),
    same("blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"),
    same("blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"),
    same("blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"),
];

/// What some GGUF files have in place of one tensor for all experts: a tensor for each, or gates and what they multiply
/// together.
pub(crate) const GGUF_VARIANTS: [Rename; 5] = [
    same("blk.{}.ffn_gate_exps", "blk.{}.ffn_gate.{}"),
    same("blk.{}.ffn_up_exps", "blk.{}.ffn_up.{}"),
    same("blk.{}.ffn_down_exps", "blk.{}.ffn_down.{}"),
    Rename { gguf: "blk.{}.ffn_gate_exps", stored: "blk.{}.ffn_gate_up_exps", form: Form::Rows(Half::First) },
    Rename { gguf: "blk.{}.ffn_up_exps", stored: "blk.{}.ffn_gate_up_exps", form: Form::Rows(Half::Second) },
];

/// What some files put before the names that others have: models that also see or hear, and models saved with or
/// without their head.
const PREFIXES: [(&str, &str); 7] = [
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),
    ("language_model.", ""),
    ("transformer.", ""),
    ("bert.", ""),
    ("roberta.", ""),
    ("nomic_bert.", ""),
];

/// The common names with some of them replaced, and others added.
pub(crate) fn common_but(changes: &[Rename]) -> Vec<Rename> {
    let kept = COMMON.iter().filter(|name| changes.iter().all(|change| change.gguf != name.gguf));
    kept.chain(changes).copied().collect()
}

/// A name without the prefixes that only some files have.
pub(crate) fn plain(stored: &str) -> String {
    let prefix = PREFIXES.iter().find_map(|(long, short)| Some((stored.strip_prefix(long)?, short)));
    prefix.map_or_else(|| stored.to_owned(), |(rest, short)| format!("{short}{rest}"))
}

impl Rename {
    /// The GGUF name of `stored`, and the number of the expert if it is one of several.
    pub(crate) fn gguf_name(&self, stored: &str) -> Option<(String, Option<usize>)> {
        let (numbers, suffix) = captures(self.stored, stored)?;
        let layers = self.gguf.matches("{}").count();
        Some((filled(self.gguf, &numbers) + suffix, numbers.get(layers).copied()))
    }

    /// What `gguf` is stored as, the first of several experts.
    pub(crate) fn stored_name(&self, gguf: &str) -> Option<String> {
        let (numbers, suffix) = captures(self.gguf, gguf)?;
        Some(filled(self.stored, &numbers) + suffix)
    }
}

/// The pattern with numbers in place of its braces, zero where there are no more of them.
fn filled(pattern: &str, numbers: &[usize]) -> String {
    let mut numbers = numbers.iter();
    pattern
        .split("{}")
        .map(str::to_owned)
        .reduce(|name, piece| {
            let number = numbers.next().copied().unwrap_or(0);
            format!("{name}{number}{piece}")
        })
        .unwrap_or_default()
}

/// The numbers in place of the braces of `pattern`, and the `.weight` or `.bias` that it leaves open.
fn captures<'a>(pattern: &str, mut name: &'a str) -> Option<(Vec<usize>, &'a str)> {
    let mut pieces = pattern.split("{}");
    name = name.strip_prefix(pieces.next()?)?;
    let mut numbers = Vec::new();
    for piece in pieces {
        let digits = name.bytes().take_while(u8::is_ascii_digit).count();
        numbers.push(name[..digits].parse().ok()?);
        name = name[digits..].strip_prefix(piece)?;
    }
    matches!(name, "" | ".weight" | ".bias").then_some((numbers, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_map_both_ways() {
        for rename in COMMON {
            for suffix in [".weight", ".bias"] {
                let gguf = rename.gguf.replace("{}", "12") + suffix;
                let stored = rename.stored_name(&gguf).expect("its own name");
                assert_eq!(rename.gguf_name(&stored), Some((gguf, None)));
            }
        }
        let unknown = ["model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.x.mlp.up_proj.weight", "lm_heads"];
        for name in unknown {
            assert!(COMMON.iter().all(|rename| rename.gguf_name(name).is_none()), "{name}");
        }
    }

    #[test]
    fn experts_are_numbered() {
        let rename = same("blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.{}.gate_proj");
        let (name, expert) = rename.gguf_name("model.layers.3.mlp.experts.11.gate_proj.weight").expect("a match");
        assert_eq!((name.as_str(), expert), ("blk.3.ffn_gate_exps.weight", Some(11)));
        assert_eq!(rename.stored_name(&name).as_deref(), Some("model.layers.3.mlp.experts.0.gate_proj.weight"));
        let rename = same("altup_proj", "model.altup_projections.{}");
        let (name, matrix) = rename.gguf_name("model.altup_projections.2.weight").expect("a match");
        assert_eq!((name.as_str(), matrix), ("altup_proj.weight", Some(2)));
        assert_eq!(rename.stored_name(&name).as_deref(), Some("model.altup_projections.0.weight"));
    }

    #[test]
    fn text_is_found_beside_other_senses() {
        assert_eq!(plain("model.language_model.layers.0.x"), "model.layers.0.x");
        assert_eq!(plain("language_model.model.norm.weight"), "model.norm.weight");
        assert_eq!(plain("language_model.lm_head.weight"), "lm_head.weight");
        assert_eq!(plain("model.norm.weight"), "model.norm.weight");
        assert_eq!(plain("transformer.h.0.x"), "h.0.x");
    }
}
