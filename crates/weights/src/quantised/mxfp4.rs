//! MXFP4 in two tensors: pairs of 4-bit floats, and an exponent for every 32 of them.

use cascadia_kernels::Dtype;
use safetensors::tensor::Dtype as StoredDtype;

use super::Weight;
use super::pairs::{BLOCK_NIBBLES, Pairs};
use super::parts::{Part, Parts};
use crate::WeightsError;

/// Numbers of one block.
const BLOCK: usize = 2 * BLOCK_NIBBLES;

/// The weight `stem` from `stem_blocks`, `[…, blocks, 16]`, and `stem_scales`, `[…, blocks]`.
///
/// Its last dimension is the one that is multiplied with activations, as in every matrix of ours.
pub(super) fn blocks_weight(parts: &Parts, stem: &str) -> Result<Weight, WeightsError> {
    let (main, exponents) = (parts.require(stem, "_blocks")?, parts.require(stem, "_scales")?);
    let shape = main.shape();
    let [outer @ .., blocks, BLOCK_NIBBLES] = shape.as_slice() else {
        let problem = format!("should have shape […, blocks, {BLOCK_NIBBLES}] but has {shape:?}");
        return Err(main.malformed(problem));
    };
    let shape = [outer, &[blocks.checked_mul(BLOCK).ok_or_else(|| too_large(main))?]].concat();
    exponents.expect_shape(&[outer, &[*blocks]].concat())?;
    weight(stem.to_owned(), shape, main, exponents)
}

/// The weight `stem.weight` from `stem.weight_packed`, `[rows, columns / 2]`, and `stem.weight_scale`.
pub(super) fn packed_weight(parts: &Parts, stem: &str) -> Result<Weight, WeightsError> {
    let (main, exponents) = (parts.require(stem, ".weight_packed")?, parts.require(stem, ".weight_scale")?);
    let [rows, bytes] = main.matrix(StoredDtype::U8)?;
    if exponents.dtype() != StoredDtype::U8 || !bytes.is_multiple_of(BLOCK_NIBBLES) {
        let found = format!("{} scales of shape {:?}", exponents.dtype(), exponents.shape());
        return Err(main.unsupported(format!("comes with {found}; of 4-bit floats this version reads MXFP4 only")));
    }
    exponents.expect_shape(&[rows, bytes / BLOCK_NIBBLES])?;
    weight(format!("{stem}.weight"), vec![rows, bytes * 2], main, exponents)
}

fn weight(name: String, shape: Vec<usize>, main: Part<'_>, exponents: Part<'_>) -> Result<Weight, WeightsError> {
    main.expect_dtype(&[StoredDtype::U8])?;
    exponents.expect_dtype(&[StoredDtype::U8])?;
    if shape.contains(&0) || shape.len() > 4 {
        return Err(main.malformed(format!("gives a weight of shape {shape:?}")));
    }
    let recipe = Pairs { nibbles: main.bytes().clone(), exponents: exponents.bytes().clone() };
    Ok(Weight { name, dtype: Dtype::MXFP4, shape, recipe: Box::new(recipe) })
}

fn too_large(part: Part<'_>) -> WeightsError {
    part.malformed("has more blocks than any file".to_owned())
}
