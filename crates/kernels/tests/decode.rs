//! Decoding compared bit by bit with what gguf-py makes of the same bytes (`data/make.py`).

use cascadia_kernels::{Dtype, decode_row};

/// Takes `count` bytes off the front.
fn take<'a>(data: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (front, rest) = data.split_at(count);
    *data = rest;
    front
}

fn same(ours: f32, theirs: f32) -> bool {
    ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan())
}

#[test]
fn every_format_decodes_to_the_bits_of_the_reference() {
    let mut data: &[u8] = include_bytes!("data/quants.bin");
    for dtype in Dtype::ALL {
        let count = u32::from_le_bytes(take(&mut data, 4).try_into().expect("four bytes")) as usize;
        let bytes = take(&mut data, dtype.row_bytes(count as u64).expect("whole blocks") as usize);
        let expected = take(&mut data, 4 * count).as_chunks::<4>().0;
        // Any alignment will do: the same bytes one further on.
        let shifted: Vec<u8> = [0].iter().chain(bytes).copied().collect();
        for bytes in [bytes, &shifted[1..]] {
            let mut decoded = vec![0.0; count];
            decode_row(dtype, bytes, &mut decoded);
            for (i, (&ours, theirs)) in decoded.iter().zip(expected).enumerate() {
                let theirs = f32::from_le_bytes(*theirs);
                assert!(same(ours, theirs), "{dtype} number {i}: {ours} instead of {theirs}");
            }
        }
    }
    assert!(data.is_empty(), "the fixture holds more than the known formats");
}

#[test]
fn every_half_widens_to_its_value() {
    let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let mut decoded = vec![0.0; 1 << 16];
    decode_row(Dtype::F16, &bytes, &mut decoded);
    for (bits, value) in (0..=u16::MAX).zip(decoded) {
        let expected = half::f16::from_bits(bits).to_f32();
        assert!(same(value, expected), "half {bits:#06x}: {value} instead of {expected}");
    }
}

#[test]
fn nothing_decodes_to_nothing() {
    for dtype in Dtype::ALL {
        decode_row(dtype, &[], &mut []);
    }
}

#[test]
#[should_panic(expected = "143 bytes cannot be 256 numbers of Q4_K")]
fn a_wrong_length_is_refused() {
    decode_row(Dtype::Q4_K, &[0; 143], &mut [0.0; 256]);
}
