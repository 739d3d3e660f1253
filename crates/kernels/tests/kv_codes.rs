//! Keys and values as small integers: how close they come, and what stays as it is.

use cascadia_kernels::{
    Attention, AttentionScratch, CachedRows, CodeBits, Codes, CodesMut, KvPage, Ops, Pool, RowPlace, SealScratch, Side,
    Stored, f32_to_byte,
};

const TOKENS: usize = 64;
const HEAD: usize = 64;
const QUERIES: usize = 16;

/// Normally distributed numbers, nearly: sums of twelve uniform ones.
fn normal(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..count).map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0).collect()
}

/// A page of keys, number by number of the head, as integers.
struct SealedKeys {
    bits: CodeBits,
    codes: Vec<u8>,
    scales: Vec<u16>,
    means: Vec<u16>,
    apart: Vec<u16>,
}

impl SealedKeys {
    fn new(bits: CodeBits, keys: &[f32]) -> SealedKeys {
        let (mut codes, mut scales) = (vec![0; bits.bytes(HEAD, TOKENS)], vec![0; TOKENS]);
        let (mut means, mut apart) = (vec![0; HEAD], vec![0; 1 + HEAD]);
        let mut scratch = SealScratch::default();
        let numbers = scratch.room(TOKENS * HEAD).iter_mut().enumerate();
        numbers.for_each(|(place, number)| *number = keys[place % HEAD * TOKENS + place / HEAD]);
        CodesMut { bits, codes: &mut codes, scales: &mut scales, means: &mut means, apart: &mut apart }.seal(
            Side::Keys,
            HEAD,
            &mut scratch,
            Ops::best(),
        );
        SealedKeys { bits, codes, scales, means, apart }
    }

    fn stored(&self) -> Stored<'_> {
        let SealedKeys { bits, codes, scales, means, apart } = self;
        Stored::Codes(Codes { bits: *bits, codes, scales, means, apart })
    }
}

/// What queries find in a page with these keys and exact values.
fn attend(keys: Stored<'_>, queries: &[f32], values: &[f32]) -> Vec<f32> {
    let shape = Attention {
        heads: QUERIES,
        kv_heads: 1,
        head: HEAD,
        value_head: HEAD,
        scale: 0.02,
        soft_cap: None,
        slopes: None,
        sinks: None,
        window: None,
        sees_later: false,
        page_tokens: TOKENS,
    };
    let mut out = vec![0.0; QUERIES * HEAD];
    let page =
        |_, _, _| KvPage { keys: CachedRows::new(keys, HEAD), values: CachedRows::new(Stored::F32(values), HEAD) };
    let mut scratch = [AttentionScratch::new(&shape, TOKENS)];
    shape.run(queries, &mut out, |_| RowPlace::last(TOKENS - 1), page, (Ops::best(), &Pool::new(1), &mut scratch));
    out
}

/// The part of what is found that is wrong with keys as integers.
fn error(bits: CodeBits, keys: &[f32]) -> f32 {
    let (queries, values) = (normal(QUERIES * HEAD, 2), normal(TOKENS * HEAD, 3));
    let exact = attend(Stored::F32(keys), &queries, &values);
    let rounded = attend(SealedKeys::new(bits, keys).stored(), &queries, &values);
    let squares = |numbers: &mut dyn Iterator<Item = f32>| numbers.map(|number| number * number).sum::<f32>();
    let wrong = squares(&mut exact.iter().zip(&rounded).map(|(exact, rounded)| exact - rounded));
    (wrong / squares(&mut exact.iter().copied())).sqrt()
}

#[test]
fn floats_of_eight_bits_are_the_nearest() {
    // What the format's definition gives, apart from the two codes that are no number.
    let value = |code: u8| {
        let (exponent, fraction) = (i32::from(code >> 3 & 15), f32::from(code & 7));
        let size = match exponent {
            0 => fraction / 512.0,
            _ => (1.0 + fraction / 8.0) * 2f32.powi(exponent - 7),
        };
        if code & 0x80 == 0 { size } else { -size }
    };
    let values: Vec<f32> = (0..=255).filter(|code| code & 0x7f != 0x7f).map(value).collect();
    for number in normal(4000, 5).into_iter().flat_map(|number| [number, number / 300.0, number * 100.0]) {
        let found = value(f32_to_byte(number));
        let nearest = values.iter().map(|value| (value - number).abs()).fold(f32::INFINITY, f32::min);
        assert_eq!((found - number).abs(), nearest, "{number} became {found}");
    }
    (0..0x7f).for_each(|code| assert_eq!(f32_to_byte(value(code)), code));
    assert_eq!([1e9, f32::INFINITY, 460.0].map(f32_to_byte), [0x7e; 3]);
    // Halfway between two, the even one.
    assert_eq!([17.0, 19.0].map(f32_to_byte), [16.0, 20.0].map(f32_to_byte));
}

#[test]
fn fewer_bits_are_less_exact() {
    let keys: Vec<f32> = normal(TOKENS * HEAD, 1).iter().map(|number| 4.0 * number).collect();
    let errors = CodeBits::ALL.map(|bits| error(bits, &keys));
    eprintln!("errors of {:?}: {errors:?}", CodeBits::ALL);
    assert!(errors.is_sorted_by(|few, more| more * 1.5 < *few), "{errors:?}");
    assert!(errors[0] < 0.4 && errors[2] < 0.1 && errors[3] < 0.01, "{errors:?}");
}

#[test]
fn what_all_keys_have_in_common_costs_nothing() {
    let keys = normal(TOKENS * HEAD, 1);
    let common = normal(HEAD, 4);
    let shifted: Vec<f32> = keys.iter().enumerate().map(|(at, key)| key + 20.0 * common[at / TOKENS]).collect();
    let [alone, with] = [&keys, &shifted].map(|keys| error(CodeBits::Four, keys));
    assert!(with < 1.5 * alone + 0.01, "{alone} and {with}");
}

#[test]
fn the_key_least_like_the_others_keeps_its_scores() {
    for large in [0, 17, TOKENS - 1] {
        let mut keys = normal(TOKENS * HEAD, 1);
        keys.iter_mut().skip(large).step_by(TOKENS).for_each(|number| *number *= 15.0);
        let sealed = SealedKeys::new(CodeBits::Two, &keys);
        assert_eq!(usize::from(sealed.apart[0]), large);
        // A key of that size would be wrong by a third of it, and with it what is found.
        let error = error(CodeBits::Two, &keys);
        assert!(error < 0.1, "key {large}: {error}");
    }
}
