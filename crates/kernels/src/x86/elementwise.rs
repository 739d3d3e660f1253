//! The element-wise kernels of the specification, compiled for one instruction set.

macro_rules! elementwise_kernels {
    ($features:literal) => {
        #[target_feature(enable = $features)]
        pub(super) fn quantize_blocks32(row: &[f32], out: &mut [Int8Block32]) {
            specification::quantize_blocks32(row, out);
        }

        #[target_feature(enable = $features)]
        pub(super) fn quantize_blocks256(row: &[f32], out: &mut [Int8Block256]) {
            specification::quantize_blocks256(row, out);
        }

        #[target_feature(enable = $features)]
        pub(super) fn rms_norm(row: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
            specification::rms_norm(row, weight, epsilon, out);
        }

        #[target_feature(enable = $features)]
        pub(super) fn add(row: &[f32], out: &mut [f32]) {
            specification::add(row, out);
        }

        #[target_feature(enable = $features)]
        pub(super) fn silu_multiply(gate: &[f32], out: &mut [f32]) {
            specification::silu_multiply(gate, out);
        }

        #[target_feature(enable = $features)]
        pub(super) fn exp_weights(scores: &mut [f32]) -> f32 {
            specification::exp_weights(scores)
        }
    };
}

pub(crate) use elementwise_kernels;
