//! compressed-tensors: whole numbers packed along the inputs, or plain bytes, with scales per row and group.

use safetensors::tensor::Dtype as StoredDtype;

use super::Weight;
use super::affine::{Affine, Zeros};
use super::codes::{Along, Codes, Word};
use super::parts::{Part, Parts};
use super::scales::{Groups, Layout, Scales};
use super::{eight_bit, mxfp4};
use crate::WeightsError;

/// The settings that the tensors themselves do not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compressed {
    /// Rows and columns that share a scale, for weights that are scaled in blocks.
    pub(super) block: Option<[usize; 2]>,
}

/// The weight whose parts are called `stem.weight_packed` and so on.
pub(super) fn packed_weight(parts: &Parts, stem: &str) -> Result<Weight, WeightsError> {
    let main = parts.require(stem, ".weight_packed")?;
    if main.dtype() == StoredDtype::U8 {
        return mxfp4::packed_weight(parts, stem);
    }
    let [rows, words] = main.matrix(StoredDtype::I32)?;
    let columns = columns(parts, stem, rows)?;
    let fits = |bits: &u32| columns.checked_mul(*bits as usize).is_some_and(|all| all.div_ceil(32) == words);
    let word = [4, 8].iter().find(|bits| fits(bits)).and_then(|bits| Word::of_bits(*bits)).ok_or_else(|| {
        main.unsupported(format!("has {words} words for {columns} columns; this version reads 4 and 8 bits only"))
    })?;
    let scales = parts.require(stem, ".weight_scale")?;
    let layout = row_layout(scales, rows)?;
    let zeros = match parts.find(stem, ".weight_zero_point") {
        None => Zeros::Middle,
        Some(part) => {
            part.expect_dtype(&[StoredDtype::I32])?;
            let codes = Codes {
                bytes: part.bytes().clone(),
                rows,
                columns: layout.groups,
                word,
                along: Along::Column,
                major: Along::Row,
            };
            part.expect_shape(&codes.stored_shape())?;
            Zeros::Stored { codes, offset: 0 }
        }
    };
    let codes = Codes { bytes: main.bytes().clone(), rows, columns, word, along: Along::Row, major: Along::Row };
    let scales = Scales::new(scales, layout)?;
    let groups = groups(parts, stem, columns, scales.groups())?;
    Ok(Weight::affine(stem, Affine { codes, zeros, groups, scales }))
}

/// The weight that is stored byte by byte as `stem.weight`; `None` when it is not quantised after all.
pub(super) fn plain_weight(parts: &Parts, stem: &str, settings: Compressed) -> Result<Option<Weight>, WeightsError> {
    let main = parts.require(stem, ".weight")?;
    match main.dtype() {
        StoredDtype::I8 => {}
        StoredDtype::F8_E4M3 => return eight_bit::weight(parts, stem, ".weight_scale", settings.block).map(Some),
        StoredDtype::F32 | StoredDtype::F16 | StoredDtype::BF16 => return Ok(None),
        other => return Err(main.unsupported(format!("is stored as {other}; this version reads I8 and F8_E4M3 only"))),
    }
    let [rows, columns] = main.matrix(StoredDtype::I8)?;
    let scales = parts.require(stem, ".weight_scale")?;
    let layout = row_layout(scales, rows)?;
    let bytes = |bytes: &_, columns| Codes {
        bytes: Clone::clone(bytes),
        rows,
        columns,
        word: Word::SignedByte,
        along: Along::Row,
        major: Along::Row,
    };
    let zeros = match parts.find(stem, ".weight_zero_point") {
        None => Zeros::Middle,
        Some(part) if layout.row_span == 1 => {
            part.expect_dtype(&[StoredDtype::I8])?;
            part.expect_shape(&scales.shape())?;
            Zeros::Stored { codes: bytes(part.bytes(), layout.groups), offset: 0 }
        }
        Some(part) => return Err(part.unsupported("one zero point for the whole weight is not read yet".to_owned())),
    };
    let (codes, scales) = (bytes(main.bytes(), columns), Scales::new(scales, layout)?);
    let groups = groups(parts, stem, columns, scales.groups())?;
    Ok(Some(Weight::affine(stem, Affine { codes, zeros, groups, scales })))
}

/// Scales of shape `[rows, groups]`, `[rows]` or one for all.
pub(super) fn row_layout(scales: Part<'_>, rows: usize) -> Result<Layout, WeightsError> {
    let layout = |rows, groups, row_span| Ok(Layout { rows, groups, major: Along::Row, row_span });
    match *scales.shape() {
        [] | [1] | [1, 1] => layout(1, 1, rows),
        [found] if found == rows => layout(rows, 1, 1),
        [found, groups] if found == rows && groups > 0 => layout(rows, groups, 1),
        _ => {
            let found = scales.shape();
            Err(scales.malformed(format!("should have shape [{rows}, groups] or [1] but has {found:?}")))
        }
    }
}

/// The number of columns, which the packed words give only to within a word.
fn columns(parts: &Parts, stem: &str, rows: usize) -> Result<usize, WeightsError> {
    let part = parts.require(stem, ".weight_shape")?;
    let shape = part.integers()?;
    match *shape {
        [found, columns] if found == rows as i64 && columns > 0 => {
            usize::try_from(columns).map_err(|_| part.malformed(format!("holds {columns} columns")))
        }
        _ => Err(part.malformed(format!("should hold {rows} and a number of columns but holds {shape:?}"))),
    }
}

/// Columns in equal runs, unless the weight has a list of its own.
fn groups(parts: &Parts, stem: &str, columns: usize, groups: usize) -> Result<Groups, WeightsError> {
    if let Some(index) = parts.find(stem, ".weight_g_idx") {
        index.expect_shape(&[columns])?;
        let listed = index.integers()?;
        // A list of −1 is one that was never filled in.
        if !listed.iter().all(|&group| group == -1) {
            return Groups::listed(&listed, groups).map_err(|problem| index.malformed(problem));
        }
    }
    if !columns.is_multiple_of(groups) {
        let scales = parts.require(stem, ".weight_scale")?;
        return Err(scales.malformed(format!("has {groups} groups, which do not divide {columns} columns")));
    }
    Ok(Groups::Runs(columns / groups))
}
