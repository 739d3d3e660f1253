//! The router of a mixture of experts: which experts a token uses, and how much each of them counts.

use cascadia_kernels::{Activation, Ops};

use crate::projection::Projection;
use crate::spec::{ExpertGroups, GroupRank, RouterScores, RouterSpec};
use crate::step::Step;

/// Keeps the sum of weights above zero where every score has vanished.
const LEAST_SUM: f32 = 1e-20;

/// A router with its weights.
pub(crate) struct Router {
    pub(crate) projection: Projection,
    /// Added to scores for the choice only.
    pub(crate) correction: Option<Vec<f32>>,
    /// What the weights of the experts are multiplied with in the end.
    pub(crate) expert_scales: Option<Vec<f32>>,
    pub(crate) spec: RouterSpec,
    /// Experts that a token uses.
    pub(crate) used: usize,
}

/// An expert that a token uses, and how much its result counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Choice {
    pub(crate) expert: usize,
    pub(crate) weight: f32,
}

/// What one thread needs to route a token.
pub(crate) struct RouterScratch {
    scores: Vec<f32>,
    ranking: Vec<f32>,
    /// Of groups.
    ranks: Vec<f32>,
}

impl RouterScratch {
    /// Room for `experts` scores.
    pub(crate) fn new(experts: usize) -> RouterScratch {
        let room = || Vec::with_capacity(experts);
        RouterScratch { scores: room(), ranking: room(), ranks: room() }
    }
}

impl Router {
    /// Fills `choices`, `used` for every row, from the router's outputs.
    pub(crate) fn choose(
        &self,
        outputs: &[f32],
        choices: &mut [Choice],
        scratch: &mut [RouterScratch],
        step: &Step<'_>,
    ) {
        let experts = self.projection.outputs();
        step.pool.chunks_with(choices, self.used, scratch, |_, row, choices, scratch| {
            let RouterScratch { scores, ranking, ranks } = scratch;
            scores.clear();
            scores.extend_from_slice(&outputs[row * experts..(row + 1) * experts]);
            self.score(scores, step.ops);
            ranking.clear();
            ranking.extend_from_slice(scores);
            if let Some(correction) = &self.correction {
                step.ops.rows.add(correction, ranking);
            }
            if let Some(groups) = &self.spec.groups {
                close_groups(groups, ranking, ranks);
            }
            for choice in choices.iter_mut() {
                choice.expert = greatest(ranking);
                choice.weight = scores[choice.expert];
                ranking[choice.expert] = f32::NEG_INFINITY;
            }
            self.weigh(choices, scores, step.ops);
        });
    }

    /// From the router's outputs to scores.
    fn score(&self, scores: &mut [f32], ops: &Ops) {
        match self.spec.scores {
            RouterScores::Softmax => softmax(scores, ops),
            RouterScores::Sigmoid => ops.rows.activate(Activation::Sigmoid, scores),
            RouterScores::SoftmaxOfChosen => {}
        }
    }

    /// From scores of the chosen experts to their weights.
    fn weigh(&self, choices: &mut [Choice], weights: &mut Vec<f32>, ops: &Ops) {
        weights.clear();
        weights.extend(choices.iter().map(|choice| choice.weight));
        if self.spec.scores == RouterScores::SoftmaxOfChosen {
            softmax(weights, ops);
        }
        let sum = if self.spec.normalized { weights.iter().sum::<f32>() + LEAST_SUM } else { 1.0 };
        for (choice, weight) in choices.iter_mut().zip(weights) {
            choice.weight = *weight / sum * self.spec.scale;
        }
        if let Some(scales) = &self.expert_scales {
            choices.iter_mut().for_each(|choice| choice.weight *= scales[choice.expert]);
        }
    }
}

fn softmax(values: &mut [f32], ops: &Ops) {
    let sum = ops.attention.exp_weights(values, f32::NEG_INFINITY);
    values.iter_mut().for_each(|value| *value /= sum);
}

/// Where the greatest number is; of equal ones the first.
fn greatest(values: &[f32]) -> usize {
    let better = |best: usize, at: usize| if values[at] > values[best] { at } else { best };
    (0..values.len()).fold(0, better)
}

/// Leaves only the best groups to choose from; of equal ones the first.
fn close_groups(groups: &ExpertGroups, ranking: &mut [f32], ranks: &mut Vec<f32>) {
    let members = ranking.len() / groups.count;
    ranks.clear();
    ranks.extend(ranking.chunks(members).map(|group| group_rank(groups.rank, group)));
    for (group, members) in ranking.chunks_mut(members).enumerate() {
        let own = ranks[group];
        let better = ranks.iter().enumerate().filter(|(at, rank)| **rank > own || (**rank == own && *at < group));
        if better.count() >= groups.used {
            members.fill(f32::NEG_INFINITY);
        }
    }
}

fn group_rank(rank: GroupRank, scores: &[f32]) -> f32 {
    let mut best = [f32::NEG_INFINITY; 2];
    for &score in scores {
        if score > best[0] {
            best = [score, best[0]];
        } else if score > best[1] {
            best[1] = score;
        }
    }
    match rank {
        GroupRank::Best => best[0],
        GroupRank::BestTwo => best[0] + best[1],
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cascadia_kernels::{ActivationPrecision, Dtype, Matrix, OpsSlot, Pool, Shape};

    use super::*;
    use crate::adapter::AdapterRows;
    use crate::plan::RowPlaces;
    use crate::{Compute, StepPlan};

    const PLAIN: RouterSpec = RouterSpec {
        scores: RouterScores::SoftmaxOfChosen,
        bias: false,
        correction: false,
        groups: None,
        normalized: false,
        scale: 1.0,
        expert_scaled: false,
    };

    /// Routes one token and compares the experts, and their weights to within rounding.
    fn check(spec: RouterSpec, correction: Option<Vec<f32>>, outputs: &[f32], expected: &[(usize, f32)]) {
        let shape = Shape { rows: outputs.len(), columns: 1 };
        let matrix = Matrix::new(Arc::new(vec![0; 4 * outputs.len()]), Dtype::F32, shape).expect("a matrix of zeros");
        let projection = Projection::new("router", matrix, None);
        let router = Router { projection, correction, expert_scales: None, spec, used: expected.len() };
        let mut choices = vec![Choice::default(); expected.len()];
        let compute = Compute { ops: OpsSlot::default(), pool: Arc::new(Pool::new(1)), profile: Arc::default() };
        let (plan, places) = (StepPlan::default(), RowPlaces::default());
        let adapters = AdapterRows::new(ActivationPrecision::default(), 1);
        let step = compute.step(&plan, (&places, &[], &adapters));
        router.choose(outputs, &mut choices, &mut [RouterScratch::new(outputs.len())], &step);
        for (choice, &(expert, weight)) in choices.iter().zip(expected) {
            assert_eq!(choice.expert, expert, "{choices:?}");
            assert!((choice.weight - weight).abs() < 1e-6, "{choices:?}");
        }
    }

    #[test]
    fn of_equal_experts_the_first_is_used() {
        check(PLAIN, None, &[0.0; 5], &[(0, 0.5), (1, 0.5)]);
        check(PLAIN, None, &[0.0, 1.0, 2.0, 1.0, 2.0], &[(2, 0.422_318_8), (4, 0.422_318_8), (1, 0.155_362_4)]);
        check(RouterSpec { scores: RouterScores::Softmax, ..PLAIN }, None, &[3.0; 4], &[(0, 0.25), (1, 0.25)]);
    }

    #[test]
    fn weights_are_normalised_and_scaled_as_the_specification_says() {
        let softmax = RouterSpec { scores: RouterScores::Softmax, ..PLAIN };
        let outputs = [0.0, libm::logf(1.0), libm::logf(2.0), libm::logf(4.0)];
        check(softmax.clone(), None, &outputs, &[(3, 0.5), (2, 0.25)]);
        check(RouterSpec { normalized: true, scale: 3.0, ..softmax }, None, &outputs, &[(3, 2.0), (2, 1.0)]);
        let sigmoid = RouterSpec { scores: RouterScores::Sigmoid, scale: 2.0, ..PLAIN };
        check(sigmoid, None, &[0.0, libm::logf(3.0)], &[(1, 1.5), (0, 1.0)]);
    }

    #[test]
    fn a_correction_moves_the_choice_and_not_the_weights() {
        let spec = RouterSpec { scores: RouterScores::Sigmoid, correction: true, ..PLAIN };
        check(spec, Some(vec![1.0, 0.0, 0.6]), &[0.0, libm::logf(3.0), 0.0], &[(0, 0.5), (2, 0.5)]);
    }

    #[test]
    fn only_the_best_groups_take_part() {
        let with = |rank| {
            let groups = ExpertGroups { count: 3, used: 1, rank };
            RouterSpec { scores: RouterScores::Sigmoid, groups: Some(groups), normalized: true, ..PLAIN }
        };
        let outputs = [9.0, -9.0, 1.0, 1.0, 1.0, 1.0];
        check(with(GroupRank::Best), None, &outputs, &[(0, 1.0)]);
        // The second and the third group are equal: the first of them is used, and both of its experts.
        check(with(GroupRank::BestTwo), None, &outputs, &[(2, 0.5), (3, 0.5)]);
    }
}
