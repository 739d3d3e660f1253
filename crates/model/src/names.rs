//! Tensor names: what GGUF calls a tensor and what Hugging Face calls the same one.

use cascadia_weights::FileKind;

/// (GGUF, Hugging Face) names without a layer.
const MODEL: [(&str, &str); 3] = [
    ("token_embd.weight", "model.embed_tokens.weight"),
    ("output_norm.weight", "model.norm.weight"),
    ("output.weight", "lm_head.weight"),
];

/// (GGUF, Hugging Face) names of the parts of a layer, without `.weight` or `.bias`.
const LAYER: [(&str, &str); 9] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// The name that a file of `kind` has for the tensor GGUF calls `gguf`, one of those this module knows.
pub(crate) fn in_file(kind: FileKind, gguf: &str) -> String {
    match kind {
        FileKind::Gguf => gguf.to_owned(),
        FileKind::HuggingFace => hugging_face_name(gguf).unwrap_or_else(|| gguf.to_owned()),
    }
}

fn hugging_face_name(gguf: &str) -> Option<String> {
    if let Some((_, name)) = MODEL.iter().find(|(name, _)| *name == gguf) {
        return Some((*name).to_owned());
    }
    let (layer, part) = gguf.strip_prefix("blk.")?.split_once('.')?;
    let (part, suffix) = part.rsplit_once('.')?;
    let (_, name) = LAYER.iter().find(|(name, _)| *name == part)?;
    Some(format!("model.layers.{layer}.{name}.{suffix}"))
}

/// The GGUF name of the tensor that Hugging Face calls `name`; `None` for tensors that no forward pass uses.
pub fn gguf_name(name: &str) -> Option<String> {
    if let Some((gguf, _)) = MODEL.iter().find(|(_, hugging_face)| *hugging_face == name) {
        return Some((*gguf).to_owned());
    }
    let (layer, part) = name.strip_prefix("model.layers.")?.split_once('.')?;
    layer.parse::<u32>().ok()?;
    let (part, suffix) = part.rsplit_once('.')?;
    let (gguf, _) = LAYER.iter().find(|(_, hugging_face)| *hugging_face == part)?;
    matches!(suffix, "weight" | "bias").then(|| format!("blk.{layer}.{gguf}.{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_map_both_ways() {
        let layer = LAYER.iter().flat_map(|(name, _)| [format!("blk.7.{name}.weight"), format!("blk.12.{name}.bias")]);
        for gguf in layer.chain(MODEL.iter().map(|(name, _)| (*name).to_owned())) {
            let name = in_file(FileKind::HuggingFace, &gguf);
            assert_ne!(name, gguf);
            assert_eq!(gguf_name(&name).as_deref(), Some(gguf.as_str()));
        }
        for unused in
            ["model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.x.mlp.up_proj.weight", "", "lm_head"]
        {
            assert_eq!(gguf_name(unused), None);
        }
    }
}
