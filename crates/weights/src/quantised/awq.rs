//! AWQ: words packed along the outputs in an order of their own.

use safetensors::tensor::Dtype as StoredDtype;

use super::Weight;
use super::affine::{Affine, Zeros};
use super::codes::{Along, Codes, Word};
use super::parts::Parts;
use super::scales::{Groups, Layout, Scales};
use crate::WeightsError;

/// The output within its word whose number lies in bits `4 i` and up.
const WORD: Word = Word::Nibbles { order: [0, 2, 4, 6, 1, 3, 5, 7] };

/// The weight whose parts are called `stem.…`, with `group_size` inputs to a scale, −1 for all.
pub(super) fn weight(parts: &Parts, stem: &str, group_size: i64) -> Result<Weight, WeightsError> {
    let main = parts.require(stem, ".qweight")?;
    let [columns, words] = main.matrix(StoredDtype::I32)?;
    let rows = words.checked_mul(WORD.numbers()).expect("eight times what is mapped is an address");
    let scales = parts.require(stem, ".scales")?;
    let groups = match *scales.shape() {
        [groups, outputs] if groups > 0 && outputs == rows => groups,
        _ => return Err(scales.malformed(format!("should have shape [groups, {rows}] but has {:?}", scales.shape()))),
    };
    let zeros = parts.require(stem, ".qzeros")?;
    zeros.expect_dtype(&[StoredDtype::I32])?;
    zeros.expect_shape(&[groups, words])?;
    let packed = |bytes: &_, columns| Codes {
        bytes: Clone::clone(bytes),
        rows,
        columns,
        word: WORD,
        along: Along::Column,
        major: Along::Column,
    };
    Ok(Weight::affine(
        stem,
        Affine {
            codes: packed(main.bytes(), columns),
            zeros: Zeros::Stored { codes: packed(zeros.bytes(), groups), offset: 0 },
            groups: Groups::runs(group_size, columns, groups).map_err(|problem| scales.malformed(problem))?,
            scales: Scales::new(scales, Layout { rows, groups, major: Along::Column, row_span: 1 })?,
        },
    ))
}
