//! The smallest choice of formats whose predicted cost stays within a budget.

use cascadia_kernels::Dtype;

/// One way to store a matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) dtype: Dtype,
    pub(super) bytes: u64,
    /// What it is predicted to add to the divergence of the whole model.
    pub(super) cost: f64,
}

/// For every matrix the number of its choice, given their ways to be stored.
///
/// Every matrix starts with its smallest way; then, again and again, the step that saves the most cost per byte is
/// taken until the sum fits. On the lower hull of each matrix's ways this finds the choices that no other beats in both
/// size and cost.
pub(super) fn choose(matrices: &[Vec<Choice>], budget: f64) -> Vec<usize> {
    let hulls: Vec<Vec<usize>> = matrices.iter().map(|choices| hull(choices)).collect();
    let mut steps: Vec<(f64, usize, usize)> = Vec::new();
    for (matrix, hull) in hulls.iter().enumerate() {
        for (place, pair) in hull.windows(2).enumerate() {
            let (from, to) = (&matrices[matrix][pair[0]], &matrices[matrix][pair[1]]);
            steps.push((saving(from, to), matrix, place + 1));
        }
    }
    // Steps of one matrix come in their order, because on a hull each saves less per byte than the one before.
    steps.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let mut chosen: Vec<usize> = hulls.iter().map(|hull| hull[0]).collect();
    let mut steps = steps.into_iter();
    while total_cost(matrices, &chosen) > budget {
        let Some((_, matrix, place)) = steps.next() else { break };
        chosen[matrix] = hulls[matrix][place];
    }
    chosen
}

fn total_cost(matrices: &[Vec<Choice>], chosen: &[usize]) -> f64 {
    matrices.iter().zip(chosen).map(|(choices, &choice)| choices[choice].cost).sum()
}

/// Cost saved per byte.
fn saving(from: &Choice, to: &Choice) -> f64 {
    (from.cost - to.cost) / (to.bytes - from.bytes).max(1) as f64
}

/// The choices on the lower hull of cost over bytes, smallest first; at least one.
fn hull(choices: &[Choice]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..choices.len()).collect();
    order.sort_by(|&a, &b| {
        (choices[a].bytes, choices[a].cost).partial_cmp(&(choices[b].bytes, choices[b].cost)).expect("finite costs")
    });
    let mut hull: Vec<usize> = Vec::new();
    for next in order {
        if hull.last().is_some_and(|&last| choices[next].cost >= choices[last].cost) {
            continue;
        }
        while let [.., before, last] = hull[..] {
            if saving(&choices[before], &choices[last]) > saving(&choices[last], &choices[next]) {
                break;
            }
            hull.pop();
        }
        hull.push(next);
    }
    hull
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(list: &[(u64, f64)]) -> Vec<Choice> {
        list.iter().map(|&(bytes, cost)| Choice { dtype: Dtype::Q4_K, bytes, cost }).collect()
    }

    #[test]
    fn dominated_ways_are_never_chosen() {
        assert_eq!(hull(&ways(&[(10, 8.0), (20, 7.0), (30, 1.0), (40, 2.0), (50, 0.5)])), [0, 2, 4]);
        assert_eq!(hull(&ways(&[(10, 1.0)])), [0]);
        assert_eq!(hull(&ways(&[(10, 1.0), (10, 0.5)])), [1]);
    }

    #[test]
    fn bytes_go_where_they_save_most() {
        let matrices = [ways(&[(10, 8.0), (20, 2.0), (40, 1.0)]), ways(&[(10, 1.0), (20, 0.4), (40, 0.1)])];
        let cases = [(100.0, [0, 0]), (3.0, [1, 0]), (2.5, [1, 1]), (1.5, [2, 1]), (1.2, [2, 2]), (0.0, [2, 2])];
        for (budget, expected) in cases {
            assert_eq!(choose(&matrices, budget), expected, "{budget}");
        }
    }
}
