//! Every instruction set this CPU has against the scalar specification: equal to the bit.

mod products;

use std::sync::Arc;

use cascadia_kernels::{
    Activation, ActivationPrecision, Activations, Attention, AttentionScratch, CachedRows, CodeBits, Codes, CodesMut,
    Dtype, Int8Block32, Int8Block256, KvPage, Layout, Matrix, Ops, Pool, Reading, RowPlace, SealScratch, Shape, Side,
    Stored, f32_to_byte, time_readings,
};

/// A small generator; the seed is in every failure message.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// Where the f16 numbers of a block lie.
fn halves_of(dtype: Dtype) -> &'static [usize] {
    match dtype {
        Dtype::Q4_K | Dtype::Q5_K | Dtype::Q4_1 | Dtype::Q5_1 => &[0, 2],
        Dtype::Q2_K => &[80, 82],
        Dtype::Q3_K => &[108],
        Dtype::Q6_K => &[208],
        Dtype::TQ1_0 => &[52],
        Dtype::TQ2_0 => &[64],
        Dtype::IQ1_M | Dtype::MXFP4 => &[],
        _ => &[0],
    }
}

/// The bytes of a block that make scales, of which random ones stay finite.
fn scale_bytes(dtype: Dtype) -> Vec<usize> {
    match dtype {
        Dtype::MXFP4 => vec![0],
        // Four nibbles of its last words make one f16.
        Dtype::IQ1_M => (48..56).collect(),
        _ => halves_of(dtype).iter().flat_map(|&at| [at, at + 1]).collect(),
    }
}

/// Random blocks: every bit is random but the f16 scales, which stay finite.
fn random_weights(random: &mut Random, dtype: Dtype, numbers: usize) -> Vec<u8> {
    let half = |random: &mut Random| half::f16::from_f32(random.float() * 0.1).to_le_bytes();
    match dtype {
        Dtype::F32 => random.floats(numbers).iter().flat_map(|value| value.to_le_bytes()).collect(),
        Dtype::F16 => (0..numbers).flat_map(|_| half(random)).collect(),
        Dtype::BF16 => random.floats(numbers).iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect(),
        // Without the two NaNs.
        Dtype::F8_E4M3 => {
            random.bytes(numbers).iter().map(|byte| if byte & 0x7f == 0x7f { 0 } else { *byte }).collect()
        }
        _ => {
            let mut bytes = random.bytes(numbers / dtype.block_elements() * dtype.block_bytes());
            for block in bytes.chunks_mut(dtype.block_bytes()) {
                halves_of(dtype).iter().for_each(|&at| block[at..at + 2].copy_from_slice(&half(random)));
                match dtype {
                    // An exponent near that of 1.
                    Dtype::MXFP4 => block[0] = 120 + (block[0] & 7),
                    // The top nibble of the last word is the top nibble of the scale: a small positive one.
                    Dtype::IQ1_M => block[55] = (block[55] & 15) | 0x20,
                    _ => {}
                }
            }
            bytes
        }
    }
}

/// A matrix of `bytes` in every layout that its format has, all of the same numbers.
fn in_every_layout(bytes: Vec<u8>, dtype: Dtype, shape: Shape) -> Vec<(Layout, Matrix)> {
    let rows = Matrix::new(Arc::new(bytes), dtype, shape).expect("a valid matrix");
    let interleaved = Layout::Interleaved.holds(dtype).then(|| (Layout::Interleaved, rows.clone().interleaved()));
    std::iter::once((Layout::Rows, rows)).chain(interleaved).collect()
}

fn scalar_and_others() -> (&'static Ops, Vec<&'static Ops>) {
    let mut tables = Ops::available();
    let scalar = tables.pop().expect("the scalar table is always there");
    assert_eq!(scalar.name(), "scalar");
    (scalar, tables)
}

/// Every table there is, best first for the CPUs that have it.
const TABLES: [&str; 6] = ["AVX-512 VNNI", "AVX-VNNI", "AVX2", "NEON with dot products", "NEON", "scalar"];

#[test]
fn tables_of_this_cpu() {
    let here: Vec<&str> = Ops::available().iter().map(|ops| ops.name()).collect();
    let (known, lacking): (Vec<&str>, Vec<&str>) = TABLES.iter().partition(|name| here.contains(name));
    assert_eq!(here, known, "best first");
    eprintln!("compared here: {here:?}; not compared, because this CPU lacks them: {lacking:?}");
}

fn assert_same_bits(expected: &[f32], actual: &[f32], what: &str) {
    assert_eq!(expected.len(), actual.len(), "{what}");
    for (at, (expected, actual)) in expected.iter().zip(actual).enumerate() {
        assert_eq!(expected.to_bits(), actual.to_bits(), "{what}: number {at} is {actual}, not {expected}");
    }
}

/// Rows of weights and of inputs: more and fewer than kernels take together, whole units and pieces of them.
const SHAPES: [(usize, usize); 16] = [
    (1, 1),
    (3, 2),
    (35, 1),
    (50, 2),
    (7, 5),
    (37, 3),
    (8, 67),
    (16, 4),
    (20, 6),
    (33, 8),
    (53, 77),
    (49, 9),
    (32, 110),
    // Several tasks, each with a last short unit.
    (75, 4),
    (83, 7),
    (91, 1),
];

#[test]
fn matrices_of_every_format() {
    let (one, three) = (Pool::new(1), Pool::new(3));
    let (scalar, others) = scalar_and_others();
    for dtype in Dtype::ALL {
        let widths: &[usize] = match dtype.block_elements() {
            1 => &[1, 15, 16, 48, 77],
            // Rows of fewer blocks than are taken together, of whole fours and others, of more than are kept at hand.
            32 => &[32, 64, 256, 288, 2144],
            64 => &[64, 192],
            128 => &[128, 384, 2176],
            _ => &[256, 768],
        };
        for (seed, &columns) in widths.iter().enumerate() {
            for (rows, inputs) in SHAPES {
                let what = format!("{dtype} {rows} × {columns}, {inputs} inputs, seed {seed}");
                let mut random = Random(seed as u64);
                let bytes = random_weights(&mut random, dtype, rows * columns);
                let matrices = in_every_layout(bytes, dtype, Shape { rows, columns });
                let values = random.floats(inputs * columns);
                // One precision for each shape, in turn.
                let precision = ActivationPrecision::ALL[(rows / 2 + inputs + seed) % 2];
                let what = format!("{what}, {precision}");
                let multiply = |matrix: &Matrix, with: (&Ops, &Pool, Reading)| {
                    let x = Activations::with_capacity(inputs, columns);
                    let mut x = x.with_precision(precision, with.1.threads());
                    x.reset(inputs, columns).copy_from_slice(&values);
                    let mut out = vec![f32::NAN; inputs * rows];
                    matrix.multiply(&mut x, &mut out, with);
                    out
                };
                let expected = multiply(&matrices[0].1, (scalar, &one, Reading::DEFAULT));
                assert!(expected.iter().all(|value| value.is_finite()), "{what}");
                // One of the ways for each shape, in turn: all of them would take minutes.
                let readings = [Reading::CANDIDATES[(rows + seed) % Reading::CANDIDATES.len()], Reading::DEFAULT];
                for (layout, matrix) in &matrices {
                    for (ops, reading) in others.iter().chain([&scalar]).flat_map(|ops| readings.map(|way| (ops, way)))
                    {
                        let what = format!("{} {what}, {layout}, {reading}", ops.name());
                        assert_same_bits(&expected, &multiply(matrix, (ops, &one, reading)), &what);
                        assert_same_bits(&expected, &multiply(matrix, (ops, &three, reading)), &what);
                    }
                }
            }
        }
    }
}

/// Where all quants and activations are as large as they can be, sums that a kernel keeps in few bits must still fit.
#[test]
fn matrices_of_the_greatest_numbers() {
    let pool = Pool::new(1);
    let (scalar, others) = scalar_and_others();
    for dtype in Dtype::ALL.into_iter().filter(|dtype| dtype.block_elements() > 1) {
        let shape = Shape { rows: 5, columns: 768 };
        for (seed, kept) in [0, 1].into_iter().enumerate() {
            let mut random = Random(seed as u64);
            let mut bytes = random_weights(&mut random, dtype, shape.rows * shape.columns);
            let scales = random_weights(&mut random, dtype, shape.rows * shape.columns);
            // All bits set, or every other byte; what the random generator gives a meaning stays finite.
            bytes.iter_mut().enumerate().filter(|(at, _)| at % 2 >= kept).for_each(|(_, byte)| *byte = 0xff);
            for (block, scales) in bytes.chunks_mut(dtype.block_bytes()).zip(scales.chunks(dtype.block_bytes())) {
                for at in scale_bytes(dtype) {
                    block[at] = scales[at];
                }
            }
            for sign in [1.0, -1.0] {
                for inputs in [1, 5] {
                    let values = vec![sign; inputs * shape.columns];
                    let multiply = |matrix: &Matrix, ops: &Ops| {
                        let mut x = Activations::with_capacity(inputs, shape.columns);
                        x.reset(inputs, shape.columns).copy_from_slice(&values);
                        let mut out = vec![f32::NAN; inputs * shape.rows];
                        matrix.multiply(&mut x, &mut out, (ops, &pool, Reading::DEFAULT));
                        out
                    };
                    let matrices = in_every_layout(bytes.clone(), dtype, shape);
                    let expected = multiply(&matrices[0].1, scalar);
                    assert!(expected.iter().all(|value| value.is_finite()), "{dtype} {expected:?}");
                    for (layout, matrix) in &matrices {
                        for ops in &others {
                            let what = format!("{} {dtype}, {layout}, {inputs} of {sign}, seed {seed}", ops.name());
                            assert_same_bits(&expected, &multiply(matrix, ops), &what);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_measurement_chooses_one_of_the_ways() {
    let mut random = Random(3);
    let shape = Shape { rows: 40, columns: 256 };
    let matrix = |random: &mut Random| {
        let bytes = random_weights(random, Dtype::Q4_K, shape.rows * shape.columns);
        Matrix::new(Arc::new(bytes), Dtype::Q4_K, shape).expect("a valid matrix")
    };
    let timed = time_readings(&[matrix(&mut random), matrix(&mut random)], Ops::best(), &Pool::new(2));
    assert!(Reading::CANDIDATES.contains(&timed.reading) && timed.speed > 0.0, "{timed:?}");
}

/// The kernels against double precision on the decoded weights: quantised formats may differ by the rounding of the
/// activations to bytes, at most half a step of 1/127 of the block's greatest, and with a second term half a step of
/// 1/127 of that.
#[test]
fn matrices_agree_with_decoded_weights() {
    let pool = Pool::new(1);
    for dtype in Dtype::ALL {
        let columns = 512;
        let mut random = Random(7);
        let bytes = random_weights(&mut random, dtype, columns);
        let matrices = in_every_layout(bytes, dtype, Shape { rows: 1, columns });
        let matrix = &matrices[0].1;
        let values = random.floats(columns);
        let mut decoded = vec![0.0; columns];
        matrix.decode_row(0, &mut decoded);
        for (layout, matrix) in &matrices {
            let mut again = vec![f32::NAN; columns];
            matrix.decode_row(0, &mut again);
            assert_same_bits(&decoded, &again, &format!("{dtype}, {layout}"));
        }
        let exact: f64 = decoded.iter().zip(&values).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
        let magnitude: f64 = decoded.iter().map(|w| f64::from(w.abs())).sum();
        // Random roundings cancel; a tenth of the worst case still catches any wrong bit of a weight.
        for (precision, bound) in ActivationPrecision::ALL.into_iter().zip([0.05 / 127.0, 0.05 / 127.0 / 127.0]) {
            let mut x = Activations::with_capacity(1, columns).with_precision(precision, 1);
            x.reset(1, columns).copy_from_slice(&values);
            let mut out = [0.0];
            matrix.multiply(&mut x, &mut out, (Ops::best(), &pool, Reading::DEFAULT));
            let bound = magnitude * if dtype.is_float() { 1e-6 } else { bound };
            assert!((f64::from(out[0]) - exact).abs() <= bound, "{dtype}, {precision}: {} is not {exact}", out[0]);
        }
    }
}

const ACTIVATIONS: [Activation; 7] = [
    Activation::Silu,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Relu,
    Activation::ReluSquared,
    Activation::GeluSigmoid,
    Activation::Sigmoid,
];

#[test]
fn element_wise_operations() {
    let (scalar, others) = scalar_and_others();
    for length in [1, 16, 31, 256, 1000] {
        let mut random = Random(length as u64);
        let (row, weight) = (random.floats(length), random.floats(length));
        let loud: Vec<f32> = row.iter().map(|value| value * 90.0).collect();
        let run = |ops: &Ops| {
            let (mut norm, mut layer, mut sum) = (row.clone(), row.clone(), weight.clone());
            ops.rows.rms_norm(&row, &weight, 1e-5, &mut norm);
            ops.rows.layer_norm(&row, (&weight, &loud), 1e-5, &mut layer);
            ops.rows.add(&row, &mut sum);
            let mut results = vec![norm, layer, sum];
            for activation in ACTIVATIONS {
                let (mut values, mut gated) = (loud.clone(), weight.clone());
                ops.rows.activate(activation, &mut values);
                ops.rows.activate_multiply(activation, &loud, &mut gated);
                results.extend([values, gated]);
            }
            let (mut weights, mut capped) = (loud.clone(), loud.clone());
            let total = ops.attention.exp_weights(&mut weights, 3.0);
            ops.rows.soft_cap(30.0, &mut capped);
            let (mut cut, mut matched) = (loud.clone(), loud.clone());
            ops.rows.cut_below(0.5, &mut cut);
            ops.rows.match_magnitude(&weight, 1e-5, &mut matched);
            let mut halves = vec![0; length];
            ops.attention.to_f16(&loud, &mut halves);
            let halves = halves.iter().map(|&bits| f32::from(bits)).collect();
            results.extend([weights, vec![total], capped, cut, matched, halves]);
            results.concat()
        };
        for ops in &others {
            assert_same_bits(&run(scalar), &run(ops), &format!("{}, {length} numbers", ops.name()));
        }
    }
}

#[test]
fn activations_as_bytes() {
    let (scalar, others) = scalar_and_others();
    for scale in [0.0, 1e-35, 1e-6, 1.0, 1e20] {
        let row: Vec<f32> = Random(3).floats(512).iter().map(|value| value * scale).collect();
        let quantize = |ops: &Ops| {
            let (mut small, mut large) = ([Int8Block32::ZERO; 16], [Int8Block256::ZERO; 2]);
            ops.products.quantize_blocks32(&row, &mut small);
            ops.products.quantize_blocks256(&row, &mut large);
            (small, large)
        };
        let expected = quantize(scalar);
        for (block, row) in expected.0.iter().zip(row.chunks(32)) {
            let error = |(&byte, x): (&i8, &f32)| (f32::from(byte) * block.scale - x).abs();
            let worst = block.values.iter().zip(row).map(error).fold(0.0, f32::max);
            assert!(worst <= block.scale * 0.501 + 1e-30, "scale {scale}: off by {worst}");
        }
        others.iter().for_each(|ops| assert_eq!(expected, quantize(ops), "{} at scale {scale}", ops.name()));
    }
}

/// Keys and values of `CONTEXT` positions, in pages.
struct Cache {
    shape: Attention,
    /// Whether values are the first numbers of keys, in the same rows; where they are integers, each has its own.
    shares_rows: bool,
    numbers: Vec<f32>,
    halves: Vec<u16>,
    brains: Vec<u16>,
    bytes: Vec<u8>,
    /// By bits: codes, scales and means of every page of every head, keys and then values.
    sealed: [Vec<[SealedPage; 2]>; CodeBits::ALL.len()],
}

/// One head's keys or values in one page, as small integers.
#[derive(Debug, Default, PartialEq)]
struct SealedPage {
    codes: Vec<u8>,
    scales: Vec<u16>,
    means: Vec<u16>,
    apart: Vec<u16>,
}

/// How the cache is stored.
#[derive(Clone, Copy, Debug)]
enum Form {
    F32,
    F16,
    Bf16,
    F8,
    /// The page of the token itself is half precision, all before it are integers.
    Sealed(CodeBits),
}

const CONTEXT: usize = 192;
const POSITIONS: [usize; 6] = [0, 7, 40, 79, 127, 190];

impl Cache {
    fn random(shape: &Attention, shares_rows: bool, random: &mut Random) -> Cache {
        let numbers = random.floats(shape.kv_heads * CONTEXT * (shape.head + shape.value_head));
        let halves = numbers.iter().map(|&value| half::f16::from_f32(value).to_bits()).collect();
        let brains = numbers.iter().map(|&value| half::bf16::from_f32(value).to_bits()).collect();
        let bytes = numbers.iter().map(|&value| f32_to_byte(value)).collect();
        let shape = shape.clone();
        let mut cache = Cache { shape, shares_rows, numbers, halves, brains, bytes, sealed: Default::default() };
        cache.sealed = CodeBits::ALL.map(|bits| cache.seal(bits));
        cache
    }

    fn range(&self, kind: usize, kv_head: usize, page: usize) -> std::ops::Range<usize> {
        let Attention { kv_heads, head, value_head, page_tokens, .. } = self.shape;
        let (before, length) = match (self.shares_rows, kind) {
            (true, _) | (false, 0) => (0, head),
            (false, _) => (kv_heads * CONTEXT * head, value_head),
        };
        let start = before + (kv_head * (CONTEXT / page_tokens) + page) * page_tokens * length;
        start..start + page_tokens * length
    }

    /// Where number `at` of a token lies in its page.
    fn index(&self, kind: usize, token: usize, at: usize) -> usize {
        let Attention { head, value_head, page_tokens, .. } = self.shape;
        match (self.shares_rows, kind) {
            (true, _) => token * head + at,
            (false, 0) => at * page_tokens + token,
            (false, _) => token * value_head + at,
        }
    }

    fn seal(&self, bits: CodeBits) -> Vec<[SealedPage; 2]> {
        let Attention { kv_heads, head, value_head, page_tokens: tokens, .. } = self.shape;
        let sealed = |ops: &Ops, (side, kv_head, page): (Side, usize, usize)| {
            let numbers = &self.numbers[self.range(side as usize, kv_head, page)];
            let mut sealed = SealedPage { scales: vec![0; tokens], ..SealedPage::default() };
            let mut scratch = SealScratch::default();
            let (bytes, head) = match side {
                Side::Keys => (bits.bytes(head, tokens), head),
                Side::Values => (bits.bytes(tokens, value_head), value_head),
            };
            sealed.codes = vec![0; bytes];
            sealed.means = vec![0; if side == Side::Keys { head } else { 0 }];
            sealed.apart = vec![0; if side == Side::Keys { 1 + head } else { 0 }];
            let SealedPage { codes, scales, means, apart } = &mut sealed;
            for (place, number) in scratch.room(tokens * head).iter_mut().enumerate() {
                *number = numbers[self.index(side as usize, place / head, place % head)];
            }
            CodesMut { bits, codes, scales, means, apart }.seal(side, head, &mut scratch, ops);
            sealed
        };
        let (scalar, others) = scalar_and_others();
        let same = |place: (Side, usize, usize)| {
            let expected = sealed(scalar, place);
            others.iter().for_each(|ops| assert_eq!(sealed(ops, place), expected, "{bits:?}, {}", ops.name()));
            expected
        };
        let pages = (0..kv_heads).flat_map(|kv_head| (0..CONTEXT / tokens).map(move |page| (kv_head, page)));
        pages.map(|(kv_head, page)| [Side::Keys, Side::Values].map(|side| same((side, kv_head, page)))).collect()
    }

    fn attend(&self, queries: &[f32], ops: &Ops, form: Form, threads: usize) -> Vec<f32> {
        let page = |row: usize, kv_head: usize, page: usize| {
            let rows = |kind, head| {
                let range = self.range(kind, kv_head, page);
                let stored = match form {
                    Form::F32 => Stored::F32(&self.numbers[range]),
                    Form::Sealed(bits) if page < POSITIONS[row] / self.shape.page_tokens => {
                        let pages = &self.sealed[bits as usize];
                        let sealed = &pages[kv_head * (CONTEXT / self.shape.page_tokens) + page][kind];
                        let SealedPage { codes, scales, means, apart } = sealed;
                        Stored::Codes(Codes { bits, codes, scales, means, apart })
                    }
                    Form::Bf16 => Stored::Bf16(&self.brains[range]),
                    Form::F8 => Stored::F8(&self.bytes[range]),
                    Form::F16 | Form::Sealed(_) => Stored::F16(&self.halves[range]),
                };
                match self.shares_rows && !matches!(stored, Stored::Codes(_)) {
                    true => CachedRows::new(stored, head).in_shared_rows(self.shape.head),
                    false => CachedRows::new(stored, head),
                }
            };
            KvPage { keys: rows(0, self.shape.head), values: rows(1, self.shape.value_head) }
        };
        let mut out = vec![f32::NAN; queries.len() / self.shape.head * self.shape.value_head];
        let mut scratch: Vec<_> = (0..threads).map(|_| AttentionScratch::new(&self.shape, CONTEXT)).collect();
        let machine = (ops, &Pool::new(threads), &mut scratch[..]);
        self.shape.run(queries, &mut out, |row| RowPlace { position: POSITIONS[row], end: CONTEXT }, page, machine);
        out
    }

    /// One query head by the book, in double precision.
    fn textbook(&self, query: &[f32], query_head: usize, position: usize) -> Vec<f64> {
        let Attention { heads, kv_heads, head, value_head, scale, window, sees_later, page_tokens, .. } = self.shape;
        let kv_head = query_head / (heads / kv_heads);
        let of_head = |numbers: &Option<Vec<f32>>| numbers.as_ref().map(|numbers| f64::from(numbers[query_head]));
        let (slope, sink) = (of_head(&self.shape.slopes), of_head(&self.shape.sinks));
        let cached = |kind: usize, token: usize, at: usize| {
            let page = &self.numbers[self.range(kind, kv_head, token / page_tokens)];
            f64::from(page[self.index(kind, token % page_tokens, at)])
        };
        let dot = |token: usize| -> f64 { (0..head).map(|at| f64::from(query[at]) * cached(0, token, at)).sum() };
        let first = window.map_or(0, |window| (position + 1).saturating_sub(window));
        let last = window.map_or(CONTEXT - 1, |window| (position + window - 1).min(CONTEXT - 1));
        let visible = first..=if sees_later { last } else { position };
        let score = |token: usize| {
            let score = dot(token) * f64::from(scale);
            let score = self.shape.soft_cap.map_or(score, |cap| libm::tanh(score / f64::from(cap)) * f64::from(cap));
            score - slope.unwrap_or(0.0) * (position as f64 - token as f64)
        };
        let weights: Vec<f64> = visible.clone().map(|token| libm::exp(score(token))).collect();
        let total: f64 = weights.iter().sum::<f64>() + sink.map_or(0.0, libm::exp);
        let value = |at: usize| -> f64 {
            visible.clone().zip(&weights).map(|(token, weight)| cached(1, token, at) * weight).sum()
        };
        (0..value_head).map(|at| value(at) / total).collect()
    }

    /// Every table gives the scalar one's bits in every form, and floats what the book says.
    fn check(&self, queries: &[f32]) {
        let (scalar, others) = scalar_and_others();
        let shape = &self.shape;
        for form in [Form::F32, Form::F16, Form::Bf16, Form::F8].into_iter().chain(CodeBits::ALL.map(Form::Sealed)) {
            let expected = self.attend(queries, scalar, form, 1);
            for ops in &others {
                let actual = self.attend(queries, ops, form, 2);
                assert_same_bits(&expected, &actual, &format!("{} {form:?} {shape:?}", ops.name()));
            }
        }
        let actual = self.attend(queries, Ops::best(), Form::F32, 1);
        for (index, (query, actual)) in queries.chunks(shape.head).zip(actual.chunks(shape.value_head)).enumerate() {
            let (position, query_head) = (POSITIONS[index / shape.heads], index % shape.heads);
            for (expected, actual) in self.textbook(query, query_head, position).iter().zip(actual) {
                assert!((expected - f64::from(*actual)).abs() < 1e-5, "{shape:?}: {actual} is not {expected}");
            }
        }
    }
}

const PLAIN: Attention = Attention {
    heads: 4,
    kv_heads: 4,
    head: 16,
    value_head: 16,
    scale: 0.25,
    soft_cap: None,
    slopes: None,
    sinks: None,
    window: None,
    sees_later: false,
    page_tokens: 16,
};

#[test]
fn attention_over_pages() {
    let mut random = Random(17);
    let shapes = [
        PLAIN,
        Attention { heads: 8, kv_heads: 2, head: 64, value_head: 64, ..PLAIN },
        Attention { heads: 6, kv_heads: 1, head: 20, value_head: 20, window: Some(5), ..PLAIN },
        Attention { heads: 5, kv_heads: 5, head: 33, value_head: 33, window: Some(70), ..PLAIN },
        Attention { heads: 6, kv_heads: 1, head: 40, value_head: 24, soft_cap: Some(1.5), ..PLAIN },
        Attention { slopes: Some(vec![0.5, 0.25, 0.125, 1.0]), ..PLAIN },
        Attention { sinks: Some(random.floats(4)), window: Some(9), ..PLAIN },
        Attention { sees_later: true, ..PLAIN },
        Attention { sees_later: true, window: Some(9), ..PLAIN },
        Attention { heads: 8, kv_heads: 1, head: 64, value_head: 64, page_tokens: 64, ..PLAIN },
        Attention { heads: 15, kv_heads: 1, head: 72, value_head: 80, window: Some(70), page_tokens: 64, ..PLAIN },
        Attention { heads: 4, kv_heads: 2, head: 128, value_head: 48, page_tokens: 64, ..PLAIN },
        Attention { heads: 3, kv_heads: 1, head: 96, value_head: 20, window: Some(130), page_tokens: 64, ..PLAIN },
    ];
    for shape in shapes {
        let cache = Cache::random(&shape, false, &mut random);
        let queries = random.floats(POSITIONS.len() * shape.heads * shape.head);
        cache.check(&queries);
        let exact = cache.attend(&queries, Ops::best(), Form::F32, 1);
        for (bits, most) in CodeBits::ALL.into_iter().zip([0.4, 0.2, 0.1, 0.01]) {
            let form = Form::Sealed(bits);
            let rounded = cache.attend(&queries, Ops::best(), form, 1);
            let error: f32 = rounded.iter().zip(&exact).map(|(a, b)| (a - b) * (a - b)).sum();
            let size: f32 = exact.iter().map(|number| number * number).sum();
            assert!((error / size).sqrt() < most, "{form:?} {shape:?}: {} of the size", (error / size).sqrt());
        }
    }
}

#[test]
fn attention_over_shared_rows() {
    let mut random = Random(18);
    let shapes = [
        Attention { heads: 4, kv_heads: 1, head: 28, value_head: 20, ..PLAIN },
        Attention { heads: 3, kv_heads: 1, head: 33, value_head: 33, window: Some(5), ..PLAIN },
        Attention { heads: 6, kv_heads: 2, head: 100, value_head: 7, ..PLAIN },
        Attention { heads: 16, kv_heads: 1, head: 80, value_head: 64, page_tokens: 64, ..PLAIN },
        // As many heads as kernels take together, some more and one, and tokens from within a page on.
        Attention { heads: 13, kv_heads: 1, head: 72, value_head: 48, window: Some(70), page_tokens: 64, ..PLAIN },
    ];
    for shape in shapes {
        let cache = Cache::random(&shape, true, &mut random);
        cache.check(&random.floats(POSITIONS.len() * shape.heads * shape.head));
    }
}
