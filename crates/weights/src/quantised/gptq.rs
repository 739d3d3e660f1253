//! GPTQ: words packed along the inputs, zero points along the outputs, scales, and perhaps a list of groups.

use safetensors::tensor::Dtype as StoredDtype;

use super::Weight;
use super::affine::{Affine, Zeros};
use super::codes::{Along, Codes, Word};
use super::parts::Parts;
use super::scales::{Groups, Layout, Scales};
use crate::WeightsError;

/// The settings that the tensors themselves do not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gptq {
    /// 4 or 8.
    pub(super) bits: u32,
    /// What to add to a stored zero point.
    pub(super) zero_offset: u8,
    /// Inputs that share a scale when no list says so; −1 for all.
    pub(super) group_size: i64,
}

/// The weight whose parts are called `stem.…`.
pub(super) fn weight(parts: &Parts, stem: &str, settings: Gptq) -> Result<Weight, WeightsError> {
    let main = parts.require(stem, ".qweight")?;
    let [words, rows] = main.matrix(StoredDtype::I32)?;
    let word = Word::of_bits(settings.bits).expect("the settings were checked");
    let columns = words.checked_mul(word.numbers()).expect("eight times what is mapped is an address");
    let scales = parts.require(stem, ".scales")?;
    let groups = match *scales.shape() {
        [groups, outputs] if groups > 0 && outputs == rows => groups,
        _ => return Err(scales.malformed(format!("should have shape [groups, {rows}] but has {:?}", scales.shape()))),
    };
    let zeros = parts.require(stem, ".qzeros")?;
    zeros.expect_dtype(&[StoredDtype::I32])?;
    let zero_codes =
        Codes { bytes: zeros.bytes().clone(), rows, columns: groups, word, along: Along::Column, major: Along::Column };
    zeros.expect_shape(&zero_codes.stored_shape())?;
    let index = parts.find(stem, ".g_idx");
    let groups_of_columns = match index {
        Some(index) => {
            index.expect_shape(&[columns])?;
            Groups::listed(&index.integers()?, groups).map_err(|problem| index.malformed(problem))?
        }
        None => Groups::runs(settings.group_size, columns, groups).map_err(|problem| scales.malformed(problem))?,
    };
    let codes = Codes { bytes: main.bytes().clone(), rows, columns, word, along: Along::Row, major: Along::Column };
    let scales = Scales::new(scales, Layout { rows, groups, major: Along::Column, row_span: 1 })?;
    let zeros = Zeros::Stored { codes: zero_codes, offset: settings.zero_offset };
    Ok(Weight::affine(stem, Affine { codes, zeros, scales, groups: groups_of_columns }))
}
