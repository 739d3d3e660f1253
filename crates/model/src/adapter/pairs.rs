//! The tensors of an adapter by the module that they change.

use std::collections::BTreeMap;

use cascadia_kernels::decode_row;
use cascadia_weights::{FileKind, ModelFiles, Tensor};

use super::files::error;
use crate::ModelError;

/// The greatest rank of an update.
pub(super) const MOST_RANK: u64 = 256;

/// More experts than any model has.
const MOST_EXPERTS: u64 = 1024;

/// What PEFT puts behind the name of a module that it has wrapped, once for every parameter but the last.
pub(super) const WRAPPED: &str = ".base_layer";

/// What PEFT puts before the names of a model's modules.
const PREFIX: &str = "base_model.model.";

/// What an adapter has for one module.
#[derive(Clone, Copy, Default)]
pub(super) struct Pair<'a> {
    /// To the few numbers between: `rank × inputs`.
    pub(super) down: Option<&'a Tensor>,
    /// From those: `outputs × rank`.
    pub(super) up: Option<&'a Tensor>,
    /// Whether `down` has a column for each token: it changes embeddings.
    pub(super) embeds: bool,
    /// What rows of the changed matrix are scaled to.
    pub(super) magnitude: Option<&'a Tensor>,
    /// Added to the update.
    pub(super) up_bias: Option<&'a Tensor>,
    /// Takes the place of the module's bias.
    pub(super) bias: Option<&'a Tensor>,
    /// Whether it changes a parameter of the module that holds the matrices of all experts: the updates of these lie together.
    pub(super) parameter: bool,
}

/// What a tensor is for its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Down,
    Up,
    EmbeddingDown,
    EmbeddingUp,
    Magnitude,
    UpBias,
    Bias,
    /// The base's own matrix, which PEFT saves along with changes of embeddings.
    Copy,
}

const PEFT_ENDINGS: [(&str, Role); 9] = [
    (".lora_A.weight", Role::Down),
    (".lora_B.weight", Role::Up),
    (".lora_embedding_A", Role::EmbeddingDown),
    (".lora_embedding_B", Role::EmbeddingUp),
    (".lora_magnitude_vector", Role::Magnitude),
    (".lora_magnitude_vector.weight", Role::Magnitude),
    (".lora_B.bias", Role::UpBias),
    (".bias", Role::Bias),
    (".base_layer.weight", Role::Copy),
];

const GGUF_ENDINGS: [(&str, Role); 2] = [(".lora_a", Role::Down), (".lora_b", Role::Up)];

impl Pair<'_> {
    /// The name of one of its tensors, for messages.
    pub(super) fn name(&self) -> &str {
        self.down.or(self.up).or(self.bias).map_or("", Tensor::name)
    }

    /// Numbers between its matrices, 0 where it has none; those of all experts together where it changes a parameter.
    pub(super) fn rank(&self) -> usize {
        self.up.and_then(|up| up.shape().last().copied()).unwrap_or(0) as usize
    }
}

/// All modules with their tensors, sorted: by the names of a model's modules for PEFT, by those of tensors for GGUF. `parameters`
/// are the ends of the names of those that are changed.
pub(super) fn read<'a>(files: &'a ModelFiles, parameters: &[String]) -> Result<Vec<(String, Pair<'a>)>, ModelError> {
    if let Some((name, reason)) = files.unusable().next() {
        return Err(error(files, name, reason));
    }
    let mut pairs: BTreeMap<String, Pair<'_>> = BTreeMap::new();
    for tensor in files.tensors() {
        let Some((module, role)) = parse(files.kind(), tensor.name()) else {
            let problem = "is no part of an update; whole copies of modules are not supported: merge the adapter with \
                           `peft`, or train it without modules_to_save";
            return Err(error(files, tensor.name(), problem));
        };
        let parameter = has_parameter(&module, parameters);
        let pair = pairs.entry(module).or_default();
        pair.parameter = parameter;
        let place = match role {
            // The base has it; if that is another, the shape of the update shows it.
            Role::Copy => continue,
            Role::Down | Role::EmbeddingDown => &mut pair.down,
            Role::Up | Role::EmbeddingUp => &mut pair.up,
            Role::Magnitude => &mut pair.magnitude,
            Role::UpBias => &mut pair.up_bias,
            Role::Bias => &mut pair.bias,
        };
        if let Some(other) = place.replace(tensor) {
            return Err(error(files, tensor.name(), format!("is there twice, also as `{}`", other.name())));
        }
        pair.embeds |= matches!(role, Role::EmbeddingDown | Role::EmbeddingUp);
    }
    pairs.values().try_for_each(|pair| check(files, pair))?;
    if pairs.values().all(|pair| pair.down.is_none()) {
        return Err(error(files, "lora_A", "is nowhere: the file has no update"));
    }
    Ok(pairs.into_iter().collect())
}

/// The module that a tensor belongs to, and what it is for it.
fn parse(kind: FileKind, name: &str) -> Option<(String, Role)> {
    match kind {
        FileKind::Gguf => {
            let (target, role) = GGUF_ENDINGS.iter().find_map(|(end, role)| Some((name.strip_suffix(end)?, *role)))?;
            Some((target.to_owned(), role))
        }
        FileKind::HuggingFace => {
            // Some files keep the name that PEFT has for the adapter while it is trained.
            let plain = name.strip_prefix(PREFIX).unwrap_or(name);
            let plain = if plain.contains(".lora_") { plain.replacen(".default", "", 1) } else { plain.to_owned() };
            let (module, role) = PEFT_ENDINGS.iter().find_map(|(end, role)| Some((plain.strip_suffix(end)?, *role)))?;
            let own = match role {
                Role::Down | Role::Up => module,
                _ => module.strip_suffix(WRAPPED).unwrap_or(module),
            };
            Some((own.to_owned(), role))
        }
    }
}

/// Whether a module has one of these parameters.
fn has_parameter(module: &str, parameters: &[String]) -> bool {
    let module = module.trim_end_matches(WRAPPED);
    parameters.iter().any(|parameter| {
        let owner = parameter.rsplit_once('.').map_or("experts", |(owner, _)| owner);
        module.strip_suffix(owner).is_some_and(|before| before.is_empty() || before.ends_with('.'))
    })
}

/// Makes sure that both halves of an update are there and fit each other.
fn check(files: &ModelFiles, pair: &Pair<'_>) -> Result<(), ModelError> {
    let (down, up) = match (pair.down, pair.up) {
        (Some(down), Some(up)) => (down, up),
        (None, None) if pair.magnitude.is_none() && pair.up_bias.is_none() => return Ok(()),
        _ => return Err(error(files, pair.name(), "has no counterpart: an update has two matrices")),
    };
    let (down_shape, up_shape) = (down.shape(), up.shape());
    // GGUF keeps the first matrix of embeddings turned, a row for each token.
    let turned = files.kind() == FileKind::Gguf && is_embedding(down.name());
    let rank = match (down_shape, turned) {
        ([rank, _] | [_, rank, _], false) | ([_, rank], true) => *rank,
        _ => return Err(error(files, down.name(), format!("has shape {down_shape:?}, which is no matrix"))),
    };
    if up_shape.len() != down_shape.len() || up_shape.last() != Some(&rank) {
        return Err(error(
            files,
            up.name(),
            format!("has shape {up_shape:?} beside {down_shape:?} of its counterpart"),
        ));
    }
    let most = if pair.parameter { MOST_RANK * MOST_EXPERTS } else { MOST_RANK };
    if rank == 0 || rank > most {
        return Err(error(files, down.name(), format!("has rank {rank}; 1 to {MOST_RANK} are possible")));
    }
    Ok(())
}

/// Whether a tensor of a GGUF adapter changes embeddings.
pub(super) fn is_embedding(name: &str) -> bool {
    name.starts_with(super::embedding::NAME)
}

/// The numbers of a tensor, all of them finite.
pub(super) fn floats(files: &ModelFiles, tensor: &Tensor) -> Result<Vec<f32>, ModelError> {
    if !tensor.dtype().is_float() {
        let problem = format!("holds {} numbers, where floats are needed", tensor.dtype().name());
        return Err(error(files, tensor.name(), problem));
    }
    let mut values = vec![0.0; tensor.shape().iter().product::<u64>() as usize];
    decode_row(tensor.dtype(), tensor.bytes().as_ref(), &mut values);
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(values),
        Some(at) => Err(error(files, tensor.name(), format!("has {} at place {at}", values[at]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let peft = |name: &str| parse(FileKind::HuggingFace, name);
        let q = "model.layers.0.self_attn.q_proj".to_owned();
        let cases = [
            ("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", Role::Down),
            ("base_model.model.model.layers.0.self_attn.q_proj.lora_B.default.weight", Role::Up),
            ("base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", Role::Magnitude),
            ("base_model.model.model.layers.0.self_attn.q_proj.base_layer.bias", Role::Bias),
            ("base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias", Role::UpBias),
        ];
        let inner = "base_model.model.model.layers.0.mlp.experts.base_layer.lora_A.weight";
        assert_eq!(peft(inner), Some(("model.layers.0.mlp.experts.base_layer".to_owned(), Role::Down)));
        for (name, role) in cases {
            assert_eq!(peft(name), Some((q.clone(), role)), "{name}");
        }
        assert_eq!(peft("base_model.model.lm_head.weight"), None);
        let gguf = parse(FileKind::Gguf, "blk.3.attn_q.weight.lora_b");
        assert_eq!(gguf, Some(("blk.3.attn_q.weight".to_owned(), Role::Up)));
    }

    #[test]
    fn parameters_belong_to_modules() {
        let parameters = ["mlp.experts.down_proj".to_owned(), "input_linear.weight".to_owned()];
        for (module, expected) in [
            ("model.layers.0.mlp.experts", true),
            ("model.layers.0.mlp.experts.base_layer.base_layer", true),
            ("layers.0.block_sparse_moe.input_linear", true),
            ("model.layers.0.shared_mlp.experts", false),
            ("model.layers.0.self_attn.q_proj", false),
        ] {
            assert_eq!(has_parameter(module, &parameters), expected, "{module}");
        }
        assert!(has_parameter("model.layers.0.mlp.experts", &["down_proj".to_owned()]));
        assert!(!has_parameter("model.layers.0.mlp.experts", &[]));
    }
}
