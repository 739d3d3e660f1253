//! The quantiser: properties on arbitrary numbers, and its error beside that of llama.cpp's on the same numbers.

use std::f64::consts::PI;

use cascadia_kernels::quantize::{QuantizeError, TARGETS, quantize};
use cascadia_kernels::{Dtype, decode_row};
use proptest::prelude::*;

/// The formats that are not plain floats.
fn blocks() -> impl Iterator<Item = Dtype> {
    TARGETS.into_iter().filter(|dtype| !dtype.is_float())
}

fn encode(dtype: Dtype, values: &[f32], importance: Option<&[f32]>) -> Result<Vec<u8>, QuantizeError> {
    let mut bytes = vec![0xaa; dtype.row_bytes(values.len() as u64).expect("whole blocks") as usize];
    quantize(dtype, values, importance, &mut bytes).map(|()| bytes)
}

fn round_trip(dtype: Dtype, values: &[f32]) -> Vec<f32> {
    let bytes = encode(dtype, values, None).expect("these numbers can be quantised");
    let mut decoded = vec![f32::NAN; values.len()];
    decode_row(dtype, &bytes, &mut decoded);
    decoded
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |largest, value| largest.max(value.abs()))
}

/// How far a number may be off, as a share of the largest magnitude in its block.
///
/// One step of a block whose range lies on both sides of zero is its width over the number of levels; the fit may move
/// a few extreme numbers further than half of that to bring many others closer.
fn tolerance(dtype: Dtype) -> f32 {
    match dtype {
        Dtype::F32 => 0.0,
        Dtype::F16 => 1.0 / 2048.0,
        Dtype::BF16 => 1.0 / 256.0,
        Dtype::Q8_0 => 0.51 / 127.0,
        Dtype::Q6_K => 2.5 / 32.0,
        Dtype::Q5_K => 5.0 / 31.0,
        Dtype::Q5_0 => 3.0 / 31.0,
        Dtype::Q4_0 | Dtype::Q4_K => 5.0 / 15.0,
        Dtype::IQ4_NL | Dtype::IQ4_XS | Dtype::Nf4 | Dtype::Int4Group128 => 6.0 / 15.0,
        Dtype::Q3_K => 4.0 / 7.0,
        Dtype::Q2_K => 1.0,
        _ => unreachable!("{dtype} is only read"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn error_is_bounded(values in prop::collection::vec(-1.0_f32..1.0, 256), exponent in -4_i32..12) {
        let values: Vec<f32> = values.iter().map(|value| value * 2.0_f32.powi(exponent)).collect();
        for dtype in TARGETS {
            let bound = tolerance(dtype) * largest(&values);
            for (i, (value, decoded)) in values.iter().zip(round_trip(dtype, &values)).enumerate() {
                prop_assert!((value - decoded).abs() <= bound, "{dtype} number {i}: {value} became {decoded}");
            }
        }
    }

    #[test]
    fn any_mix_of_magnitudes_gives_finite_blocks(numbers in prop::collection::vec((any::<u32>(), 0_u32..142), 256)) {
        // Random signs and digits under every exponent that all formats can hold, subnormals included.
        let values = numbers.iter().map(|(bits, exponent)| f32::from_bits((bits & 0x807f_ffff) | (exponent << 23)));
        let values: Vec<f32> = values.collect();
        for dtype in TARGETS {
            prop_assert!(round_trip(dtype, &values).iter().all(|value| value.is_finite()), "{dtype}");
        }
    }

    #[test]
    fn error_never_exceeds_that_of_zeros(values in prop::collection::vec(-1.0_f32..1.0, 256), exponent in -60_i32..15) {
        let values: Vec<f32> = values.iter().map(|value| value * 2.0_f32.powi(exponent)).collect();
        let square = |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v).powi(2)).sum::<f64>();
        for dtype in blocks() {
            let decoded = round_trip(dtype, &values);
            let error = square(&mut values.iter().zip(&decoded).map(|(a, b)| a - b));
            let zeros = square(&mut values.iter().copied());
            prop_assert!(error <= zeros * 1.000_001, "{dtype}: {error} is worse than zeros, {zeros}");
        }
    }

    #[test]
    fn q8_0_of_q8_0_is_the_same(values in prop::collection::vec(-1.0_f32..1.0, 64), exponent in -6_i32..12) {
        let mut values: Vec<f32> = values.iter().map(|value| value * 2.0_f32.powi(exponent)).collect();
        // Below this the f16 scale has too few bits left to repeat itself.
        (values[0], values[32]) = (2.0_f32.powi(-9), 2.0_f32.powi(-9));
        let once = round_trip(Dtype::Q8_0, &values);
        prop_assert_eq!(round_trip(Dtype::Q8_0, &once), once);
    }

    #[test]
    fn same_input_gives_same_bytes_and_rows_do_not_mix(values in prop::collection::vec(-1.0_f32..1.0, 512)) {
        let importance: Vec<f32> = values[..256].iter().map(|value| value.abs()).collect();
        for dtype in blocks() {
            let both = encode(dtype, &values, Some(&importance)).expect("finite");
            let rows = values.chunks(256).map(|row| encode(dtype, row, Some(&importance)).expect("finite"));
            prop_assert_eq!(both, rows.collect::<Vec<_>>().concat());
        }
    }
}

#[test]
fn special_rows_survive() {
    for dtype in TARGETS {
        assert_eq!(round_trip(dtype, &[0.0; 256]), [0.0; 256], "{dtype} of zeros");
        for constant in [1.0, -1.0, 0.37, -123.4, 60_000.0, 1e-3] {
            let off = round_trip(dtype, &[constant; 256]).iter().map(|v| (v - constant).abs()).fold(0.0, f32::max);
            assert!(off <= 0.01 * constant.abs(), "{dtype} of the constant {constant} is off by {off}");
        }
        let tiny = round_trip(dtype, &[f32::from_bits(1); 256]);
        assert!(largest(&tiny) <= f32::from_bits(1), "{dtype} of subnormals");
    }
}

#[test]
fn bad_numbers_are_named() {
    for dtype in TARGETS {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = [0.5; 256];
            values[77] = bad;
            let error = encode(dtype, &values, None).expect_err("not finite");
            assert!(matches!(error, QuantizeError::NotFinite { index: 77, .. }), "{dtype}: {error}");
        }
        let mut values = [0.5; 256];
        values[200] = -3.4e38;
        match encode(dtype, &values, None) {
            Ok(_) => assert!(dtype == Dtype::F32, "{dtype} took a number it cannot hold"),
            Err(error) => assert!(matches!(error, QuantizeError::TooLarge { index: 200, .. }), "{dtype}: {error}"),
        }
    }
    for bad in [-1.0, f32::NAN, f32::INFINITY] {
        let mut importance = [1.0; 256];
        importance[9] = bad;
        let error = encode(Dtype::Q4_K, &[0.5; 256], Some(&importance)).expect_err("bad importance");
        assert!(matches!(error, QuantizeError::Importance { column: 9, .. }), "{error}");
    }
}

#[test]
fn the_largest_numbers_of_a_format_stay_finite() {
    for dtype in blocks() {
        let Err(QuantizeError::TooLarge { limit, .. }) = encode(dtype, &[f32::MAX; 256], None) else {
            panic!("{dtype} took the largest float");
        };
        for values in [[limit; 256], [-limit; 256], std::array::from_fn(|i| if i < 99 { limit } else { -limit })] {
            let decoded = round_trip(dtype, &values);
            let close = |(value, decoded): (&f32, &f32)| (value - decoded).abs() <= 0.2 * limit;
            assert!(values.iter().zip(&decoded).all(close), "{dtype} at its limit {limit}: {:?}", &decoded[..4]);
        }
    }
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let refused = |values: usize, columns: usize, bytes: usize| {
        let result = quantize(Dtype::Q4_K, &vec![0.5; values], Some(&vec![1.0; columns]), &mut vec![0; bytes]);
        assert!(matches!(result, Err(QuantizeError::Length { .. })), "{values} {columns} {bytes}");
    };
    refused(255, 255, 144);
    refused(256, 256, 143);
    refused(512, 0, 288);
    refused(512, 1024, 288);
    refused(768, 512, 432);
    assert_eq!(quantize(Dtype::Q4_K, &[], None, &mut []), Ok(()));
}

#[test]
fn important_columns_are_kept_closer() {
    let values = samples("gaussian", 64 * 512);
    let importance: Vec<f32> = (0..512).map(|column| if column % 8 == 0 { 50.0 } else { 1.0 }).collect();
    let error = |decoded: &[f32]| {
        let squares = values.iter().zip(decoded).zip(importance.iter().cycle());
        squares.map(|((a, b), weight)| f64::from(weight * (a - b) * (a - b))).sum::<f64>()
    };
    for dtype in blocks().filter(|dtype| *dtype != Dtype::Q8_0) {
        let plain = error(&round_trip(dtype, &values));
        let bytes = encode(dtype, &values, Some(&importance)).expect("finite");
        let mut decoded = vec![0.0; values.len()];
        decode_row(dtype, &bytes, &mut decoded);
        assert!(error(&decoded) < 0.9 * plain, "{dtype}: {} beside {plain}", error(&decoded));
    }
    let none = encode(Dtype::Q4_K, &values[..512], Some(&[0.0; 512])).expect("zeros are importances too");
    assert_eq!(none, encode(Dtype::Q4_K, &values[..512], None).expect("finite"));
}

#[test]
fn error_is_below_that_of_llama_cpp() {
    for line in include_str!("data/ggml_rmse.txt").lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let dtype = Dtype::ALL.into_iter().find(|dtype| dtype.name() == fields[1]).expect("a known format");
        let values = samples(fields[0], 64 * 512);
        let squares = values.iter().zip(round_trip(dtype, &values)).map(|(a, b)| f64::from(a - b).powi(2));
        let ours = (squares.sum::<f64>() / values.len() as f64).sqrt();
        let theirs: f64 = fields[2].parse().expect("a number");
        // At 8 bits there is nothing to win; elsewhere the search must show.
        let share = if dtype == Dtype::Q8_0 { 1.0 } else { 0.985 };
        assert!(ours <= share * theirs, "{line}: ours is {ours:e}, {:.4} of it", ours / theirs);
    }
}

/// The numbers `data/make.py` makes under the same names.
fn samples(distribution: &str, count: usize) -> Vec<f32> {
    let mut state = 7_u64;
    let mut uniform = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((word ^ (word >> 31)) >> 11) as f64 + 0.5) / 2.0_f64.powi(53)
    };
    let sample = |index: usize| {
        let (first, second) = (uniform(), uniform());
        let gaussian = (-2.0 * libm::log(first)).sqrt() * libm::cos(2.0 * PI * second);
        let value = match distribution {
            "gaussian" => gaussian,
            "laplace" => libm::log(first) * if second < 0.5 { -1.0 } else { 1.0 },
            "outlier" => gaussian * if index.is_multiple_of(97) { 8.0 } else { 1.0 },
            "shifted" => gaussian * 0.3 + 1.0,
            _ => panic!("unknown distribution {distribution}"),
        };
        (0.02 * value) as f32
    };
    (0..count).map(sample).collect()
}
