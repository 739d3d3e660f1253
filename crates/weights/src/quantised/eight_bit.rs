//! Weights in 8-bit floats with scales: one for all, one per row, or one per block of rows and columns.

use safetensors::tensor::Dtype as StoredDtype;

use super::Weight;
use super::codes::Along;
use super::compressed::row_layout;
use super::parts::Parts;
use super::scaled_floats::ScaledFloats;
use super::scales::{Groups, Layout, Scales};
use crate::WeightsError;

/// The weight `stem.weight`, whose scales are called `stem` + `suffix`.
pub(super) fn weight(
    parts: &Parts,
    stem: &str,
    suffix: &str,
    block: Option<[usize; 2]>,
) -> Result<Weight, WeightsError> {
    let main = parts.require(stem, ".weight")?;
    let [rows, columns] = main.matrix(StoredDtype::F8_E4M3)?;
    let scales = parts.require(stem, suffix)?;
    let (layout, run) = match block {
        Some([height, width]) if scales.shape() == [rows.div_ceil(height), columns.div_ceil(width)] => {
            let layout = Layout {
                rows: rows.div_ceil(height),
                groups: columns.div_ceil(width),
                major: Along::Row,
                row_span: height,
            };
            (layout, width)
        }
        _ => {
            let layout = row_layout(scales, rows)?;
            if !columns.is_multiple_of(layout.groups) {
                let groups = layout.groups;
                return Err(scales.malformed(format!("has {groups} groups, which do not divide {columns} columns")));
            }
            (layout, columns / layout.groups)
        }
    };
    let scales = Scales::new(scales, layout)?;
    let recipe = ScaledFloats::new(main.bytes().clone(), columns, scales, Groups::Runs(run));
    let (name, dtype) = (format!("{stem}.weight"), recipe.dtype);
    Ok(Weight { name, dtype, shape: vec![rows, columns], recipe: Box::new(recipe) })
}
