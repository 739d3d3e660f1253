//! How much each number of a block counts in the error that quantisation keeps small.

use super::half_grid::magnitude;

/// Weights for a block from the importances of its columns, the largest being about one.
///
/// Without importances all numbers count the same: on a trained model that kept the predictions closer than every
/// mix with the numbers' own squares. Columns that never mattered keep a trace of weight, so that no sum is zero.
#[inline(always)]
pub(super) fn weigh<const E: usize>(importance: &[f32; E]) -> [f32; E] {
    const TRACE: f32 = 1e-6;
    let largest = magnitude(importance);
    let mut weights = [1.0; E];
    if largest > 0.0 {
        for at in 0..E {
            weights[at] = importance[at] / largest + TRACE;
        }
    }
    weights
}
