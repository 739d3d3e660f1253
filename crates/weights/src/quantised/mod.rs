//! Checkpoints that were quantised for other engines, seen as weights in formats of ours.
//!
//! Such a checkpoint stores a weight in several tensors: packed codes, scales, perhaps zero points. Here they become
//! one tensor under the name that the weight has in every other checkpoint, so that nothing above knows. Its format is
//! the first that holds the checkpoint's numbers exactly; plain floats if no block format does.

mod affine;
mod awq;
mod codes;
mod compressed;
mod eight_bit;
mod floats;
mod gptq;
mod mxfp4;
mod pairs;
mod parts;
mod scaled_floats;
mod scales;
mod scheme;

use std::collections::BTreeSet;
use std::path::Path;

use cascadia_kernels::Dtype;

use self::affine::{Affine, AffineRecipe};
use self::parts::Parts;
use self::scheme::Scheme;
use crate::hf_folder::read_json;
use crate::made::{Made, Recipe};
use crate::safetensors::Contents;
use crate::{Tensor, WeightsError};

/// A weight that can be made from stored tensors.
struct Weight {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    recipe: Box<dyn Recipe>,
}

impl Weight {
    /// The weight of the layer `stem` in the format that suits it.
    fn affine(stem: &str, weight: Affine) -> Weight {
        let shape = vec![weight.codes.rows, weight.codes.columns];
        let recipe = AffineRecipe::new(weight);
        Weight { name: format!("{stem}.weight"), dtype: recipe.dtype, shape, recipe: Box::new(recipe) }
    }
}

/// Tensors that belong to one weight, by the ends of their names; the first is always there.
const GPTQ_PARTS: &[&str] = &[".qweight", ".qzeros", ".scales", ".g_idx"];
const PACKED_PARTS: &[&str] =
    &[".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_shape", ".weight_g_idx"];
const PLAIN_PARTS: &[&str] = &[".weight_scale", ".weight", ".weight_zero_point", ".weight_g_idx"];
const INVERSE_PARTS: &[&str] = &[".weight_scale_inv", ".weight"];
const BLOCK_PARTS: &[&str] = &["_blocks", "_scales"];

/// Replaces the parts of quantised weights in `contents` by the weights, if config.json in `folder` says that there
/// are any.
pub(crate) fn put_together(folder: &Path, contents: Contents) -> Result<Contents, WeightsError> {
    let Some(config) = read_json(folder, "config.json")? else { return Ok(contents) };
    let Some(settings) = config.get("quantization_config").filter(|settings| !settings.is_null()) else {
        return Ok(contents);
    };
    let scheme = Scheme::parse(&folder.join("config.json"), settings)?;
    let parts = Parts::new(folder.to_owned(), &contents);
    let mut used = BTreeSet::new();
    let mut made = Vec::new();
    for suffixes in scheme.families() {
        for stem in parts.stems(suffixes[0]) {
            let main = parts.require(stem, suffixes[0])?;
            if used.contains(&format!("{stem}{}", suffixes[0])) {
                continue;
            }
            let Some(weight) = scheme.weight(&parts, stem, suffixes)? else { continue };
            used.extend(suffixes.iter().map(|suffix| format!("{stem}{suffix}")));
            made.push(tensor(weight, main.bytes().file()));
        }
    }
    let Contents { mut tensors, mut set_aside, files } = contents;
    tensors.retain(|tensor| !used.contains(tensor.name()));
    set_aside.retain(|tensor| !used.contains(&tensor.name));
    tensors.extend(made);
    Ok(Contents { tensors, set_aside, files })
}

impl Scheme {
    /// The kinds of weights that a checkpoint may hold, each as the tensors that belong to one.
    fn families(&self) -> &'static [&'static [&'static str]] {
        match self {
            Scheme::Gptq(_) | Scheme::Awq { .. } => &[GPTQ_PARTS],
            Scheme::Compressed(_) => &[PACKED_PARTS, PLAIN_PARTS],
            Scheme::Fp8 { .. } => &[INVERSE_PARTS, PLAIN_PARTS],
            Scheme::Mxfp4 => &[BLOCK_PARTS],
        }
    }

    /// The weight of `stem`; `None` when it is stored as it is.
    fn weight(&self, parts: &Parts, stem: &str, suffixes: &[&str]) -> Result<Option<Weight>, WeightsError> {
        match self {
            Scheme::Gptq(settings) => gptq::weight(parts, stem, *settings).map(Some),
            Scheme::Awq { group_size } => awq::weight(parts, stem, *group_size).map(Some),
            Scheme::Compressed(_) if suffixes == PACKED_PARTS => compressed::packed_weight(parts, stem).map(Some),
            Scheme::Compressed(settings) => compressed::plain_weight(parts, stem, *settings),
            Scheme::Fp8 { block } => eight_bit::weight(parts, stem, suffixes[0], *block).map(Some),
            Scheme::Mxfp4 => mxfp4::blocks_weight(parts, stem).map(Some),
        }
    }
}

fn tensor(weight: Weight, path: &Path) -> Tensor {
    let Weight { name, dtype, shape, recipe } = weight;
    let (columns, outer) = shape.split_last().expect("a weight has dimensions");
    let row_bytes = dtype.row_bytes(*columns as u64).expect("the format suits the columns");
    let byte_len = outer.iter().fold(row_bytes, |bytes, &length| bytes * length as u64);
    let shape = shape.iter().map(|&length| length as u64).collect();
    Tensor::made(name, dtype, shape, Made::new(path, byte_len, recipe))
}
