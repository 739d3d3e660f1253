//! Products that are computed in one job, and products that are added, have the bits of those computed one by one.

use std::sync::Arc;

use cascadia_kernels::{
    ActivationPrecision, Activations, Dtype, Groups, Matrix, Ops, Pool, Product, Reading, Shape, add_all, multiply_all,
    multiply_groups,
};

use super::{Random, assert_same_bits, random_weights, scalar_and_others};

const ROWS: usize = 9;
const COLUMNS: usize = 256;
const GROUPS: Groups<'_> = Groups { members: &[2, 0, 1], starts: &[0, 1, 4, ROWS] };
const WHOLE: Groups<'_> = Groups { members: &[0], starts: &[0, ROWS] };
const READING: Reading = Reading::DEFAULT;

/// A matrix, and small ones that change it.
struct Adapted {
    base: Matrix,
    downs: [Matrix; 3],
    ups: [Matrix; 3],
}

#[test]
fn products_beside_others_and_added_ones() {
    let (one, three) = (Pool::new(1), Pool::new(3));
    let (scalar, others) = scalar_and_others();
    let dtypes = [Dtype::Q8_0, Dtype::F32].into_iter();
    let kinds = dtypes.flat_map(|small| ActivationPrecision::ALL.map(|precision| (small, precision)));
    for (seed, (small, precision)) in kinds.enumerate() {
        let mut random = Random(seed as u64 + 40);
        let mut matrix = |dtype, rows, columns| {
            let bytes = random_weights(&mut random, dtype, rows * columns);
            Matrix::new(Arc::new(bytes), dtype, Shape { rows, columns }).expect("a valid matrix").interleaved()
        };
        let maps = [(83, 32), (1, 96), (130, 64)].map(|(outputs, rank)| Adapted {
            base: matrix(Dtype::Q4_K, outputs, COLUMNS),
            downs: [(); 3].map(|()| matrix(small, rank, COLUMNS)),
            ups: [(); 3].map(|()| matrix(small, outputs, rank)),
        });
        let x = activations(&random.floats(ROWS * COLUMNS), precision);
        let expected = maps.each_ref().map(|map| one_by_one(map, &x, (scalar, &one)));
        for ops in others.iter().chain([&scalar]) {
            for pool in [&one, &three] {
                let what = format!("{small}, {precision}, {} on {} threads", ops.name(), pool.threads());
                for ((between, out), expected) in together(&maps, &x, (ops, pool)).iter().zip(&expected) {
                    assert_same_bits(&expected.0, between, &what);
                    assert_same_bits(&expected.1, out, &what);
                }
            }
        }
    }
}

/// What is between the small matrices, and what comes out.
fn one_by_one(map: &Adapted, x: &Values, (ops, pool): (&Ops, &Pool)) -> (Vec<f32>, Vec<f32>) {
    let Adapted { base, downs, ups } = map;
    let with = (ops, pool, READING);
    let room = |matrix: &Matrix| vec![0.0; ROWS * matrix.shape().rows];
    let (mut out, mut between, mut added) = (room(base), room(&downs[0]), room(base));
    base.multiply(&mut x.rows(pool), &mut out, with);
    multiply_groups(downs, GROUPS, &mut x.rows(pool), &mut between, with);
    multiply_groups(ups, GROUPS, &mut activations(&between, x.precision).rows(pool), &mut added, with);
    out.iter_mut().zip(added).for_each(|(out, added)| *out += added);
    (between, out)
}

/// The same of several in one job for each half.
fn together<const N: usize>(maps: &[Adapted; N], x: &Values, (ops, pool): (&Ops, &Pool)) -> [(Vec<f32>, Vec<f32>); N] {
    let mut each = maps.each_ref().map(|map| {
        let between = activations(&vec![f32::NAN; ROWS * map.downs[0].shape().rows], x.precision).rows(pool);
        (map, between, vec![f32::NAN; ROWS * map.base.shape().rows])
    });
    let mut beside = Vec::new();
    let products = each.each_mut().map(|(map, between, out)| {
        let small = between.reset(ROWS, map.downs[0].shape().rows);
        beside.push(Product { matrices: &map.downs, groups: GROUPS, reading: READING, out: small });
        Product { matrices: std::slice::from_ref(&map.base), groups: WHOLE, reading: READING, out }
    });
    let beside = beside.try_into().unwrap_or_else(|_| unreachable!("one for each"));
    multiply_all(products, beside, &mut x.rows(pool), (ops, pool));
    let halves = each
        .each_mut()
        .map(|(map, between, out)| (Product { matrices: &map.ups, groups: GROUPS, reading: READING, out }, between));
    add_all(halves, &mut Vec::new(), (ops, pool));
    each.map(|(_, between, out)| ((0..ROWS).flat_map(|row| between.float().row(row).to_vec()).collect(), out))
}

/// Rows of numbers, and with which precision they are multiplied.
struct Values {
    numbers: Vec<f32>,
    precision: ActivationPrecision,
}

fn activations(numbers: &[f32], precision: ActivationPrecision) -> Values {
    Values { numbers: numbers.to_vec(), precision }
}

impl Values {
    fn rows(&self, pool: &Pool) -> Activations {
        let mut x = Activations::with_capacity(ROWS, COLUMNS).with_precision(self.precision, pool.threads());
        x.reset(ROWS, self.numbers.len() / ROWS).copy_from_slice(&self.numbers);
        x
    }
}
