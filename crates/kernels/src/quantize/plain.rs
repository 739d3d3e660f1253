//! Plain floats: one number after the other.

/// Writes every value as `number` encodes it.
pub(super) fn write<const N: usize>(values: &[f32], out: &mut [u8], number: impl Fn(f32) -> [u8; N]) {
    for (word, &value) in out.as_chunks_mut::<N>().0.iter_mut().zip(values) {
        *word = number(value);
    }
}
