//! Random numbers that depend on nothing but a seed and a position: Philox4x32-10.

/// A number in `[0, 1)` for this seed and position. Always the same number: sampling carries no state, so a replayed,
/// resumed or speculated sequence samples the same tokens.
pub(crate) fn uniform(seed: u64, position: u64) -> f64 {
    let key = [low(seed), high(seed)];
    let block = philox([low(position), high(position), 0, 0], key);
    let bits = (u64::from(block[1]) << 32 | u64::from(block[0])) >> 11;
    bits as f64 / (1u64 << 53) as f64
}

/// Ten rounds of the Philox4x32 block function (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
        }
        let first = 0xD251_1F53 * u64::from(counter[0]);
        let second = 0xCD9E_8D57 * u64::from(counter[2]);
        counter = [high(second) ^ counter[1] ^ key[0], low(second), high(first) ^ counter[3] ^ key[1], low(first)];
    }
    counter
}

fn low(value: u64) -> u32 {
    value as u32
}

fn high(value: u64) -> u32 {
    (value >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers published with the reference implementation (Random123).
    #[test]
    fn philox_gives_the_published_answers() {
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox(counter, key), expected);
        }
    }

    #[test]
    fn numbers_are_uniform_and_differ_between_seeds_and_positions() {
        let count = 20_000;
        let mean = (0..count).map(|position| uniform(7, position)).sum::<f64>() / count as f64;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
        assert_ne!(uniform(1, 0), uniform(0, 1));
        assert_eq!(uniform(42, 9), uniform(42, 9));
        assert!((0..count).all(|position| (0.0..1.0).contains(&uniform(position, 3))));
    }
}
