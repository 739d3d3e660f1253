//! Decoding compared bit by bit with what gguf-py makes of the same bytes (`data/make.py`), or with the definition.

use cascadia_kernels::{Dtype, decode_row};

/// Numbers that one digest in the file stands for.
const PIECE: usize = 4096;

/// SplitMix64 as bytes, as `make.py` makes them.
fn random_bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed;
    let mut word = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)).to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..count.div_ceil(8)).flat_map(|_| word()).collect();
    bytes.truncate(count);
    bytes
}

/// 32 bits that depend on all bits of some numbers; every NaN counts as the same.
fn digest(numbers: &[f32]) -> u32 {
    let bits = numbers.iter().map(|number| if number.is_nan() { 0x7fc0_0000 } else { number.to_bits() });
    let all = bits.fold(0_u64, |state, bits| {
        let state = (state ^ u64::from(bits)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        state ^ (state >> 32)
    });
    all as u32
}

fn same(ours: f32, theirs: f32) -> bool {
    ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan())
}

#[test]
fn every_format_of_gguf_decodes_to_the_bits_of_the_reference() {
    let mut checked = Vec::new();
    for (seed, line) in include_str!("data/decoded.txt").lines().enumerate() {
        let (name, digests) = line.split_once(' ').expect("a name and digests");
        let dtype = Dtype::ALL.into_iter().find(|dtype| dtype.name() == name).expect("a known format");
        let pieces: Vec<&str> =
            digests.as_bytes().as_chunks::<8>().0.iter().map(|d| str::from_utf8(d).unwrap()).collect();
        let piece_bytes = dtype.row_bytes(PIECE as u64).expect("whole blocks") as usize;
        // Any alignment will do: the first byte is not ours.
        let bytes = [vec![0], random_bytes(seed as u64, piece_bytes * pieces.len())].concat();
        let mut decoded = vec![0.0; PIECE];
        for (piece, (bytes, expected)) in bytes[1..].chunks_exact(piece_bytes).zip(&pieces).enumerate() {
            decode_row(dtype, bytes, &mut decoded);
            assert_eq!(format!("{:08x}", digest(&decoded)), **expected, "{dtype} in piece {piece}");
        }
        checked.push(dtype);
    }
    let own = [Dtype::F8_E4M3, Dtype::Nf4, Dtype::Int4Group128, Dtype::Int4Zero32];
    let all = Dtype::ALL.into_iter().filter(|dtype| !own.contains(dtype));
    assert_eq!(checked, all.collect::<Vec<_>>());
}

#[test]
fn every_byte_widens_to_its_float() {
    let bytes: Vec<u8> = (0..=255).collect();
    let mut decoded = [0.0; 256];
    decode_row(Dtype::F8_E4M3, &bytes, &mut decoded);
    for (bits, value) in (0..=255_u8).zip(decoded) {
        let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f32::from(bits & 7));
        let magnitude = match exponent {
            0 => mantissa * 2.0_f32.powi(-9),
            15 if mantissa == 7.0 => f32::NAN,
            _ => (1.0 + mantissa / 8.0) * 2.0_f32.powi(exponent - 7),
        };
        let expected = if bits < 128 { magnitude } else { -magnitude };
        assert!(same(value, expected), "byte {bits:#04x}: {value} instead of {expected}");
    }
}

/// Our own formats as `docs/format.md` defines them, number by number.
#[test]
fn our_own_formats_follow_their_definition() {
    const LEVELS: [i32; 16] = [-127, -88, -67, -50, -36, -23, -12, 0, 10, 20, 31, 43, 56, 71, 92, 127];
    type Code = fn(&[u8], i32) -> i32;
    let cases: [(Dtype, usize, Code); 3] = [
        (Dtype::Nf4, 2, |_, nibble| LEVELS[nibble as usize]),
        (Dtype::Int4Group128, 2, |_, nibble| nibble - 8),
        (Dtype::Int4Zero32, 4, |block, nibble| nibble - i32::from(block[2])),
    ];
    for (dtype, header, code) in cases {
        let (elements, size) = (dtype.block_elements(), dtype.block_bytes());
        assert_eq!(size, header + elements / 2, "{dtype}");
        let bytes = random_bytes(elements as u64, 64 * size);
        let mut decoded = vec![0.0; 64 * elements];
        decode_row(dtype, &bytes, &mut decoded);
        for (at, &number) in decoded.iter().enumerate() {
            let block = &bytes[at / elements * size..][..size];
            let scale = half::f16::from_le_bytes([block[0], block[1]]).to_f32();
            let (run, within) = (at % elements / 32, at % 32);
            let byte = block[header + 16 * run + within % 16];
            let nibble = if within < 16 { byte & 15 } else { byte >> 4 };
            let expected = scale * code(block, i32::from(nibble)) as f32;
            assert!(same(number, expected), "{dtype} number {at}: {number} instead of {expected}");
        }
    }
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
