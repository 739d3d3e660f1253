//! What the layers of a model will cost the machines that run them, from names and shapes alone.

use cascadia_fleet::{Cost, ModelCosts, possible_starts};
use cascadia_kernels::Dtype;
use cascadia_model::{CacheDemand, CachePages, FeedForwardSpec, KvLayout, KvPolicy, ModelSpec, gguf_export};
use cascadia_quantize::Recipe;
use cascadia_weights::{FileKind, ModelFiles};

use crate::CoordinatorError;

/// Tensors of which a row uses only some experts.
const EXPERTS: &str = "_exps";

/// The costs of a model once it has these formats (`None`: those it has), with a cache for this demand, stored like
/// this.
pub fn model_costs(
    files: &ModelFiles,
    recipe: Option<&Recipe>,
    (demand, policy): (&CacheDemand, &KvPolicy),
) -> Result<ModelCosts, CoordinatorError> {
    let spec = ModelSpec::from_files(files)?;
    let tensors = tensors(files, &spec)?;
    let named = tensors.iter().map(|(name, shape, _)| (name.as_str(), shape.as_slice()));
    let recipe = recipe.map(|recipe| recipe.clone().for_model(named)).transpose()?;
    let written = |name: &str, shape: &[u64], dtype| recipe.as_ref().map_or(dtype, |recipe| recipe.dtype(name, shape));
    // How caches are stored depends on the format of most weights of a layer, as it will be then.
    let of_layer = tensors.iter().filter(|(name, shape, _)| name.starts_with("blk.0.") && shape.len() > 1);
    let largest = of_layer.max_by_key(|(_, shape, _)| shape.iter().copied().fold(1, u64::saturating_mul));
    let weights = largest.map_or(spec.weights, |(name, shape, dtype)| written(name, shape, *dtype));
    let spec = ModelSpec { weights, ..spec };
    let layout = KvLayout::whole(&spec, policy);
    let cache_bytes = CachePages::whole(&layout, demand).bytes(&layout) / spec.layers.len().max(1) as u64;
    let mut layers = vec![Cost { cache_bytes, ..Cost::default() }; spec.layers.len()];
    let mut ends = Cost::default();
    let tied = !tensors.iter().any(|(name, ..)| name == "output.weight");
    for (name, shape, dtype) in &tensors {
        let dtype = written(name, shape, *dtype);
        let numbers = shape.iter().try_fold(1u64, |product, size| product.checked_mul(*size));
        let columns = shape.last().copied().unwrap_or(1);
        let row_bytes = dtype.row_bytes(columns);
        let bytes = numbers.zip(row_bytes).and_then(|(numbers, row)| (numbers / columns.max(1)).checked_mul(row));
        let (numbers, bytes) = numbers.zip(bytes).ok_or_else(|| CoordinatorError::Size { tensor: name.clone() })?;
        let layer = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
        let (cost, used) = match layer.and_then(|layer| layers.get_mut(layer).zip(spec.layers.get(layer))) {
            Some((cost, layer)) if name.contains(EXPERTS) => (cost, experts_used(&layer.feed_forward.part)),
            Some((cost, _)) => (cost, 1.0),
            // Of embeddings a token reads a row, unless they make the logits too.
            None if name == "output.weight" || (tied && name == "token_embd.weight") => (&mut ends, 1.0),
            None => (&mut ends, 0.0),
        };
        cost.bytes = cost.bytes.saturating_add(bytes);
        cost.row_reads = cost.row_reads.saturating_add((bytes as f64 * used) as u64);
        cost.products = cost.products.saturating_add((numbers as f64 * used) as u64);
    }
    let row_bytes = 4 * spec.hidden_width() as u64;
    let needs_tokens = spec.per_layer.is_some();
    Ok(ModelCosts { layers, ends, starts: possible_starts(&spec), row_bytes, needs_tokens })
}

/// The part of all experts that one row uses.
fn experts_used(part: &FeedForwardSpec) -> f64 {
    let experts = match part {
        FeedForwardSpec::Experts(experts) => experts,
        FeedForwardSpec::DenseAndExperts(sides) => &sides.experts.part,
        FeedForwardSpec::Dense(_) => return 1.0,
    };
    experts.used as f64 / experts.count.max(1) as f64
}

/// Names, shapes and formats as an export would find them.
fn tensors(files: &ModelFiles, spec: &ModelSpec) -> Result<Vec<(String, Vec<u64>, Dtype)>, CoordinatorError> {
    Ok(match files.kind() {
        FileKind::HuggingFace => {
            let tensors = gguf_export(files, spec)?.tensors;
            tensors.into_iter().map(|tensor| (tensor.name, tensor.shape, tensor.dtype)).collect()
        }
        FileKind::Gguf => {
            let tensors = files.tensors().iter();
            tensors.map(|tensor| (tensor.name().to_owned(), tensor.shape().to_vec(), tensor.dtype())).collect()
        }
    })
}
