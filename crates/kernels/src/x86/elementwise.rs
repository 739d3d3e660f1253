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
            specification::rms_norm::<Instruction>(row, weight, epsilon, out);
        }

        #[target_feature(enable = $features)]
        pub(super) fn add(row: &[f32], out: &mut [f32]) {
            specification::add(row, out);
        }

        #[target_feature(enable = $features)]
        pub(super) fn layer_norm(row: &[f32], scale: (&[f32], &[f32]), epsilon: f32, out: &mut [f32]) {
            specification::layer_norm::<Instruction>(row, scale, epsilon, out);
        }

        #[target_feature(enable = $features)]
        pub(super) fn activate(activation: Activation, values: &mut [f32]) {
            specification::activate::<Instruction>(activation, values);
        }

        #[target_feature(enable = $features)]
        pub(super) fn activate_multiply(activation: Activation, gate: &[f32], out: &mut [f32]) {
            specification::activate_multiply::<Instruction>(activation, gate, out);
        }

        #[target_feature(enable = $features)]
        pub(super) fn soft_cap(cap: f32, values: &mut [f32]) {
            specification::soft_cap::<Instruction>(cap, values);
        }

        #[target_feature(enable = $features)]
        pub(super) fn cut_below(deviations: f32, values: &mut [f32]) {
            specification::cut_below::<Instruction>(deviations, values);
        }

        #[target_feature(enable = $features)]
        pub(super) fn match_magnitude(like: &[f32], least: f32, values: &mut [f32]) {
            specification::match_magnitude::<Instruction>(like, least, values);
        }

        #[target_feature(enable = $features)]
        pub(super) fn greatest(values: &[f32], least: f32) -> f32 {
            specification::greatest_of_many(values, least)
        }
    };
}

pub(crate) use elementwise_kernels;
