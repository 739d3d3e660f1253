//! Groups of numbers that share a scale, side by side: one group per lane, so that loops over lanes become vector code.
//!
//! Everything here and in the searches is `inline(always)`: a function is compiled for the instruction set of the one it
//! is inlined into, and [`super::instruction_sets`] has one for each. The order of operations within a lane is fixed, and no
//! operation crosses lanes, so the instruction set cannot change a bit.

/// Groups side by side. With fewer, compilers would unroll the loops over them before they become vector code.
pub(super) const LANES: usize = 16;

/// A number of every group.
pub(super) type Lanes = [f32; LANES];

/// The numbers of groups and how much each counts: row `i` has element `i` of every group.
pub(super) struct Groups<const E: usize> {
    pub(super) values: [Lanes; E],
    pub(super) weights: [Lanes; E],
}

/// Sums of several quantities, by lanes.
type Sums<const S: usize> = [Lanes; S];

/// How a group's numbers are added up: in eight sums, element `i` into sum `i mod 8`.
const SUMS: usize = 8;

impl<const E: usize> Groups<E> {
    /// Puts every group into a lane; lanes without a group get zeros.
    #[inline(always)]
    pub(super) fn of(values: &[[f32; E]], weights: &[[f32; E]]) -> Self {
        let mut groups = Groups { values: [[0.0; LANES]; E], weights: [[1.0; LANES]; E] };
        for (lane, (values, weights)) in values.iter().zip(weights).enumerate() {
            for at in 0..E {
                groups.values[at][lane] = values[at];
                groups.weights[at][lane] = weights[at];
            }
        }
        groups
    }

    /// The number with the largest magnitude of every group, sign included; the first of several.
    #[inline(always)]
    pub(super) fn largest(&self) -> Lanes {
        let mut found = [0.0; LANES];
        for values in &self.values {
            for lane in 0..LANES {
                found[lane] = larger(found[lane], values[lane]);
            }
        }
        found
    }

    /// Adds up `S` quantities of every element, in the one order that all searches have.
    #[inline(always)]
    pub(super) fn add_up<const S: usize>(&self, element: &impl Element<S>) -> Sums<S> {
        let mut quarters = [[[0.0; LANES]; S]; SUMS / 2];
        for (first, quarter) in quarters.iter_mut().enumerate() {
            *quarter = add(&self.every_eighth(first, element), &self.every_eighth(first + SUMS / 2, element));
        }
        add(&add(&quarters[0], &quarters[1]), &add(&quarters[2], &quarters[3]))
    }

    #[inline(always)]
    fn every_eighth<const S: usize>(&self, first: usize, element: &impl Element<S>) -> Sums<S> {
        let mut sums = [[0.0; LANES]; S];
        for at in 0..E / SUMS {
            let (values, weights) = (&self.values[SUMS * at + first], &self.weights[SUMS * at + first]);
            for lane in 0..LANES {
                let terms = element.terms(lane, values[lane], weights[lane]);
                for (sum, term) in sums.iter_mut().zip(terms) {
                    sum[lane] += term;
                }
            }
        }
        sums
    }
}

/// What one element adds to each of `S` sums.
pub(super) trait Element<const S: usize> {
    /// The terms of a number in a lane, with its weight.
    fn terms(&self, lane: usize, value: f32, weight: f32) -> [f32; S];
}

#[inline(always)]
fn add<const S: usize>(left: &Sums<S>, right: &Sums<S>) -> Sums<S> {
    let mut sums = *left;
    for (sums, right) in sums.iter_mut().zip(right) {
        for lane in 0..LANES {
            sums[lane] += right[lane];
        }
    }
    sums
}

/// The number with the larger magnitude, the first of equals.
#[inline(always)]
fn larger(first: f32, second: f32) -> f32 {
    if second.abs() > first.abs() { second } else { first }
}

/// The number with the largest magnitude, sign included; the first of several.
#[inline(always)]
pub(super) fn largest(numbers: &[f32]) -> f32 {
    let mut found = 0.0;
    for &number in numbers {
        found = larger(found, number);
    }
    found
}

/// Whether two numbers are equal in every lane.
#[inline(always)]
pub(super) fn equal(left: &Lanes, right: &Lanes) -> bool {
    let mut equal = true;
    for lane in 0..LANES {
        equal &= left[lane] == right[lane];
    }
    equal
}

/// One over a number, or zero for none.
#[inline(always)]
pub(super) fn inverse(numbers: &Lanes) -> Lanes {
    let mut inverse = [0.0; LANES];
    for lane in 0..LANES {
        inverse[lane] = if numbers[lane] == 0.0 { 0.0 } else { 1.0 / numbers[lane] };
    }
    inverse
}
