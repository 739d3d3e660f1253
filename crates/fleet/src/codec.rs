//! Hidden rows as bytes: the one place to change for another format on the wire.

/// Bytes of one number.
pub(crate) const NUMBER_BYTES: usize = 4;

/// Appends rows as they are sent: floats of four bytes, so that no bit is lost.
pub(crate) fn encode(values: &[f32], bytes: &mut Vec<u8>) {
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

/// Reads rows back; `false` if one of the numbers is none. The lengths have been compared.
pub(crate) fn decode(bytes: &[u8], values: &mut [f32]) -> bool {
    let mut finite = true;
    for (value, bytes) in values.iter_mut().zip(bytes.as_chunks::<NUMBER_BYTES>().0) {
        *value = f32::from_le_bytes(*bytes);
        finite &= value.is_finite();
    }
    finite
}
