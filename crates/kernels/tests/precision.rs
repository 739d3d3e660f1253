//! Activations of sixteen bits: what they stand for, and that a row's bits depend on no other row.

use std::sync::Arc;

use cascadia_kernels::quantize::quantize;
use cascadia_kernels::{
    ActivationPrecision, Activations, Dtype, Groups, Int8Block32, Int8Block256, Matrix, Ops, Pool, Reading, Shape,
    multiply_groups,
};

/// Numbers in ±1, the same every time.
fn numbers(seed: u32, count: usize) -> Vec<f32> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

fn matrix(dtype: Dtype, shape: Shape, seed: u32) -> Matrix {
    let mut bytes = vec![0; dtype.row_bytes((shape.rows * shape.columns) as u64).expect("whole blocks") as usize];
    quantize(dtype, &numbers(seed, shape.rows * shape.columns), None, &mut bytes).expect("finite numbers");
    Matrix::new(Arc::new(bytes), dtype, shape).expect("a valid matrix")
}

fn activations(rows: usize, values: &[f32], (precision, pool): (ActivationPrecision, &Pool)) -> Activations {
    let width = values.len() / rows;
    let mut x = Activations::with_capacity(rows, width).with_precision(precision, pool.threads());
    x.reset(rows, width).copy_from_slice(values);
    x
}

fn multiply(matrix: &Matrix, values: &[f32], with: (ActivationPrecision, &Pool)) -> Vec<u32> {
    let Shape { rows, columns } = matrix.shape();
    let inputs = values.len() / columns;
    let mut out = vec![f32::NAN; inputs * rows];
    let mut x = activations(inputs, values, with);
    matrix.multiply(&mut x, &mut out, (Ops::best(), with.1, Reading::DEFAULT));
    out.iter().map(|number| number.to_bits()).collect()
}

/// The numbers that two terms stand for, in double precision.
fn twice_rounded(row: &[f32], block: usize) -> Vec<f64> {
    let term = |row: &[f32]| -> Vec<(f32, i8)> {
        let products = &Ops::best().products;
        if block == 32 {
            let mut blocks = vec![Int8Block32::ZERO; row.len() / 32];
            products.quantize_blocks32(row, &mut blocks);
            blocks.iter().flat_map(|block| block.values.map(|byte| (block.scale, byte))).collect()
        } else {
            let mut blocks = vec![Int8Block256::ZERO; row.len() / 256];
            products.quantize_blocks256(row, &mut blocks);
            blocks.iter().flat_map(|block| block.values.map(|byte| (block.scale, byte))).collect()
        }
    };
    let first = term(row);
    let rest: Vec<f32> = row.iter().zip(&first).map(|(x, (scale, byte))| x - scale * f32::from(*byte)).collect();
    let worth = |(scale, byte): &(f32, i8)| f64::from(*scale) * f64::from(*byte);
    first.iter().zip(&term(&rest)).map(|(first, second)| worth(first) + worth(second)).collect()
}

#[test]
fn a_product_is_that_of_both_terms() {
    let (pool, shape) = (Pool::new(1), Shape { rows: 64, columns: 1536 });
    for (dtype, block) in [(Dtype::Q8_0, 32), (Dtype::Q4_0, 32), (Dtype::Q4_K, 256), (Dtype::Q6_K, 256)] {
        let matrix = matrix(dtype, shape, 1);
        // Blocks of very different size, as outliers make them.
        let louder = |(at, x): (usize, &f32)| x * 4.0_f32.powi(at as i32 / 300);
        let row: Vec<f32> = numbers(2, shape.columns).iter().enumerate().map(louder).collect();
        let exact: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
        let rounded = twice_rounded(&row, block);
        let [bytes, words] = ActivationPrecision::ALL.map(|precision| multiply(&matrix, &row, (precision, &pool)));
        let mut squares = [0.0, 0.0];
        for output in 0..shape.rows {
            let mut weights = vec![0.0; shape.columns];
            matrix.decode_row(output, &mut weights);
            let dot = |x: &[f64]| weights.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum::<f64>();
            let magnitude: f64 = weights.iter().zip(&row).map(|(w, x)| f64::from((w * x).abs())).sum();
            let [bytes, words] = [bytes[output], words[output]].map(|bits| f64::from(f32::from_bits(bits)));
            let expected = dot(&rounded);
            assert!((words - expected).abs() < 1e-6 * magnitude, "{dtype}: {words} is not {expected}");
            for (squares, product) in squares.iter_mut().zip([bytes, words]) {
                *squares += (product - dot(&exact)).powi(2);
            }
        }
        let [error, lesser] = squares.map(f64::sqrt);
        assert!(lesser < error / 100.0, "{dtype}: off by {lesser} with two terms, by {error} with one");
    }
}

#[test]
fn a_row_has_the_same_bits_in_every_company() {
    let (one, three) = (Pool::new(1), Pool::new(3));
    for dtype in [Dtype::Q8_0, Dtype::Q4_0, Dtype::Q4_K, Dtype::Int4Group128, Dtype::F16] {
        let shape = Shape { rows: 83, columns: 512 };
        let matrix = matrix(dtype, shape, 3);
        // More rows than are added up at a time.
        let values = numbers(4, 150 * shape.columns);
        let together = multiply(&matrix, &values, (ActivationPrecision::Int16, &three));
        for count in [1, 2, 3, 31, 64] {
            let some = multiply(&matrix, &values[..count * shape.columns], (ActivationPrecision::Int16, &one));
            assert!(together[..some.len()] == some, "{dtype}: {count} of 150 rows");
        }
    }
}

#[test]
fn groups_have_the_bits_of_their_own_matrices() {
    let (pool, shape) = (Pool::new(2), Shape { rows: 70, columns: 256 });
    // Floats meet floats, whatever the others of a group do.
    let formats = [Dtype::Q8_0, Dtype::Q4_K, Dtype::F16, Dtype::Q8_0];
    let matrices: Vec<Matrix> = (0..).zip(formats).map(|(seed, dtype)| matrix(dtype, shape, seed)).collect();
    for starts in [[0, 1, 2, 3], [0, 2, 5, 6], [0, 70, 71, 140]] {
        let (members, rows) = ([3, 1, 2], starts[3]);
        let values = numbers(5, rows * shape.columns);
        for precision in ActivationPrecision::ALL {
            let mut out = vec![f32::NAN; rows * shape.rows];
            let mut x = activations(rows, &values, (precision, &pool));
            let groups = Groups { members: &members, starts: &starts };
            multiply_groups(&matrices, groups, &mut x, &mut out, (Ops::best(), &pool, Reading::DEFAULT));
            for (group, member) in members.into_iter().enumerate() {
                let range = |width: usize| starts[group] * width..starts[group + 1] * width;
                let alone = multiply(&matrices[member], &values[range(shape.columns)], (precision, &pool));
                let same = out[range(shape.rows)].iter().zip(&alone).all(|(out, alone)| out.to_bits() == *alone);
                assert!(same, "{precision}, group {group} of {starts:?}");
            }
        }
    }
}
