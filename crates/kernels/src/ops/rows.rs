//! Element-wise work on rows of activations: norms, activations, sums.
#![expect(unsafe_code, reason = "kernels compiled for an instruction set may only be called where the CPU has it")]

use crate::Activation;

/// Row, weight and bias, epsilon, result.
type LayerNorm = unsafe fn(&[f32], (&[f32], &[f32]), f32, &mut [f32]);

/// Element-wise kernels of one instruction set.
pub struct RowOps {
    pub(crate) rms_norm: unsafe fn(&[f32], &[f32], f32, &mut [f32]),
    pub(crate) add: unsafe fn(&[f32], &mut [f32]),
    pub(crate) layer_norm: LayerNorm,
    pub(crate) activate: unsafe fn(Activation, &mut [f32]),
    pub(crate) activate_multiply: unsafe fn(Activation, &[f32], &mut [f32]),
    pub(crate) soft_cap: unsafe fn(f32, &mut [f32]),
    pub(crate) cut_below: unsafe fn(f32, &mut [f32]),
    pub(crate) match_magnitude: unsafe fn(&[f32], f32, &mut [f32]),
}

impl RowOps {
    /// out = row / root-mean-square(row) × weight.
    pub fn rms_norm(&self, row: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
        assert!(row.len() == weight.len() && row.len() == out.len());
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { (self.rms_norm)(row, weight, epsilon, out) }
    }

    /// out += row.
    pub fn add(&self, row: &[f32], out: &mut [f32]) {
        assert_eq!(row.len(), out.len());
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { (self.add)(row, out) }
    }

    /// out = (row − mean) / standard deviation × weight + bias.
    pub fn layer_norm(&self, row: &[f32], (weight, bias): (&[f32], &[f32]), epsilon: f32, out: &mut [f32]) {
        assert!([weight.len(), bias.len(), out.len()] == [row.len(); 3]);
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { (self.layer_norm)(row, (weight, bias), epsilon, out) }
    }

    /// values = activation(values).
    pub fn activate(&self, activation: Activation, values: &mut [f32]) {
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { (self.activate)(activation, values) }
    }

    /// out = activation(gate) × out.
    pub fn activate_multiply(&self, activation: Activation, gate: &[f32], out: &mut [f32]) {
        assert_eq!(gate.len(), out.len());
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { (self.activate_multiply)(activation, gate, out) }
    }

    /// values = cap × tanh(values / cap).
    pub fn soft_cap(&self, cap: f32, values: &mut [f32]) {
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { (self.soft_cap)(cap, values) }
    }

    /// values = what they exceed their mean plus so many standard deviations by, zero where they do not.
    pub fn cut_below(&self, deviations: f32, values: &mut [f32]) {
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { (self.cut_below)(deviations, values) }
    }

    /// Scales `values` to the mean square that `like` has. Their own counts as no less than `least`.
    pub fn match_magnitude(&self, like: &[f32], least: f32, values: &mut [f32]) {
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { (self.match_magnitude)(like, least, values) }
    }
}
