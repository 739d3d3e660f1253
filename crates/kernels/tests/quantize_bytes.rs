//! The bytes that the quantiser writes: the same on every instruction set, and those that were written before.

use cascadia_kernels::Dtype;
use cascadia_kernels::quantize::{QuantizeError, Quantizer, TARGETS};

/// Columns of the rows: whole blocks of every format, and no multiple of the blocks that are searched side by side.
const COLUMNS: usize = 256 * 3;
const ROWS: usize = 3;

/// A kind of numbers, each from a stream of numbers that are even in [-1, 1).
type Sample = fn(&mut dyn FnMut() -> f32, usize) -> f32;

const SAMPLES: [(&str, Sample); 12] = [
    ("even", |even, _| even()),
    ("bell", |even, _| 0.02 * (even() + even() + even() + even())),
    ("heavy-tailed", |even, _| 0.05 * even() / (even().abs() + 0.004)),
    ("outliers", |even, at| if at.is_multiple_of(97) { 8.0 * even() } else { 0.1 * (even() + even()) }),
    ("shifted", |even, _| 1.0 + 0.3 * even()),
    ("coarse", |even, _| (even() * 6.0).trunc() * 0.125),
    ("constant", |_, _| -0.37),
    ("zero", |_, at| if at.is_multiple_of(2) { 0.0 } else { -0.0 }),
    ("mostly zero", |even, at| if at % 512 < 300 { 0.0 } else { even().powi(9) }),
    ("subnormal", |even, _| even() * f32::MIN_POSITIVE),
    ("tiny", |even, _| even() * 3.0e-8),
    ("huge", |even, _| even() * 65_000.0),
];

/// What columns count: without importances, by a wide range of them, and with some that are zero.
const IMPORTANCES: [(&str, Option<Sample>); 3] = [
    ("equal", None),
    ("wide", Some(|even, _| even().powi(8) * 40.0)),
    ("gaps", Some(|even, at| if at % 640 < 320 { 0.0 } else { even().abs() })),
];

#[test]
fn every_instruction_set_writes_the_same_bytes_as_ever() {
    let expected: Vec<&str> = include_str!("data/quantized_digests.txt").lines().collect();
    let mut found = Vec::new();
    for (sample, number) in SAMPLES {
        let values = numbers(number, ROWS * COLUMNS);
        for (weighing, importance) in IMPORTANCES {
            let importance = importance.map(|importance| numbers(importance, COLUMNS));
            for dtype in TARGETS.into_iter().filter(|dtype| !dtype.is_float()) {
                let case = format!("{dtype} {sample} {weighing}");
                found.push(format!("{case} {:016x}", digest(&case, dtype, &values, importance.as_deref())));
            }
        }
    }
    let changed = found.iter().zip(&expected).find(|(found, expected)| found != expected);
    assert!(changed.is_none(), "{changed:?} (what is written now, and what was)");
    assert_eq!(found.len(), expected.len(), "all cases in order:\n{}", found.join("\n"));
}

/// The digest of what every instruction set writes.
fn digest(case: &str, dtype: Dtype, values: &[f32], importance: Option<&[f32]>) -> u64 {
    let written = Quantizer::available().into_iter().map(|quantizer| {
        let mut bytes = vec![0xaa; dtype.row_bytes(values.len() as u64).expect("whole blocks") as usize];
        quantizer.quantize(dtype, values, importance, &mut bytes).unwrap_or_else(|error| panic!("{case}: {error}"));
        (quantizer.name(), bytes)
    });
    let written: Vec<(&str, Vec<u8>)> = written.collect();
    let (plain, specified) = written.last().expect("one runs everywhere");
    for (name, bytes) in &written {
        let first = bytes.iter().zip(specified).position(|(left, right)| left != right);
        assert_eq!(first, None, "{case}: the first byte that differs between {name} and {plain}");
    }
    specified.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Numbers of one kind, from exact arithmetic only: the same on every machine.
fn numbers(sample: Sample, count: usize) -> Vec<f32> {
    let mut state = 14_u64;
    let mut even = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    (0..count).map(|at| sample(&mut even, at)).collect()
}

#[test]
fn every_instruction_set_refuses_the_same() {
    for quantizer in Quantizer::available() {
        for (bad, at) in [(f32::NAN, 3), (f32::INFINITY, 200), (-1e38, 255)] {
            let mut values = [0.5; 256];
            values[at] = bad;
            let error = quantizer.quantize(Dtype::Q4_K, &values, None, &mut [0; 144]).expect_err("a bad number");
            let index = match error {
                QuantizeError::NotFinite { index, .. } | QuantizeError::TooLarge { index, .. } => index,
                other => panic!("{}: {other}", quantizer.name()),
            };
            assert_eq!(index, at, "{}", quantizer.name());
        }
    }
}
