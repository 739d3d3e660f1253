//! How many draft tokens of each sequence to compute: as many as make the most tokens per second.

use super::cost::MeasuredCosts;

/// Draft tokens are computed only if they promise this much more tokens per second: what is promised is an estimate.
const WORTH: f64 = 1.05;

/// How many draft tokens to compute of each sequence that continues, given for each of its draft tokens the probability that
/// it and those before it are accepted. Of all sequences together there are at most `most`.
///
/// The most probable ones come first, whichever sequence they belong to. Each adds its probability to the tokens of the step
/// and a row to its cost; the best ratio wins.
pub(crate) fn draft_lengths(probabilities: &[&[f32]], most: usize, costs: &MeasuredCosts) -> Vec<usize> {
    let streams = probabilities.len();
    let each = probabilities.iter().enumerate();
    let mut drafts: Vec<(f32, usize)> =
        each.flat_map(|(sequence, drafts)| drafts.iter().map(move |probability| (*probability, sequence))).collect();
    // Probabilities of one sequence never rise, and the sort is stable, so a token never comes before its predecessor.
    drafts.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    drafts.truncate(most.min(costs.most_rows().saturating_sub(streams)));
    let (mut tokens, mut best, mut count) = (streams as f64, WORTH * streams as f64 / costs.of(streams.max(1)), 0);
    for (index, (probability, _)) in drafts.iter().enumerate() {
        tokens += f64::from(*probability);
        let speed = tokens / costs.of(streams + index + 1);
        if speed > best {
            (best, count) = (speed, index + 1);
        }
    }
    let mut lengths = vec![0; streams];
    drafts[..count].iter().for_each(|(_, sequence)| lengths[*sequence] += 1);
    lengths
}

/// How many tokens a draft model should propose for a sequence, if each is accepted with this probability and costs so many
/// seconds before the step.
pub(crate) fn draft_model_length(
    acceptance: f32,
    (streams, most): (usize, usize),
    token_seconds: f64,
    costs: &MeasuredCosts,
) -> usize {
    let base = WORTH / costs.of(streams);
    let most = most.min(costs.most_rows().saturating_sub(streams) / streams);
    let (mut tokens, mut probability, mut best, mut length) = (1.0, 1.0, base, 0);
    for drafted in 1..=most {
        probability *= f64::from(acceptance);
        tokens += probability;
        let speed = tokens / (costs.of(streams * (drafted + 1)) + drafted as f64 * token_seconds);
        if speed > best {
            (best, length) = (speed, drafted);
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::StepCosts;

    fn costs(steps: &[(usize, f64)]) -> MeasuredCosts {
        let mut costs = MeasuredCosts::new(StepCosts::Measured);
        steps.iter().for_each(|(rows, seconds)| costs.record(*rows, *seconds));
        costs
    }

    fn falling(share: f32, count: i32) -> Vec<f32> {
        (1..=count).map(|power| share.powi(power)).collect()
    }

    #[test]
    fn the_length_follows_acceptance_and_cost() {
        // Reading the weights takes 10, a row 1.
        let memory_bound = costs(&(1..=17).map(|rows| (rows, 10.0 + rows as f64)).collect::<Vec<_>>());
        // Every row costs as much as the first.
        let compute_bound = costs(&(1..=17).map(|rows| (rows, rows as f64)).collect::<Vec<_>>());
        // Steps of 4 to 8 rows cost the same.
        let uneven = costs(&[(1, 4.0), (2, 7.0), (3, 10.0), (4, 17.0), (8, 17.5)]);
        for (share, costs, most, expected) in [
            (0.99, &memory_bound, 16, 16),
            (0.99, &memory_bound, 5, 5),
            (0.5, &memory_bound, 16, 2),
            (0.05, &memory_bound, 16, 0),
            (0.99, &compute_bound, 16, 0),
            (0.98, &uneven, 7, 7),
            (0.95, &uneven, 2, 2),
            (0.5, &uneven, 7, 0),
        ] {
            let found = draft_lengths(&[&falling(share, 16)], most, costs);
            assert_eq!(found, [expected], "{share} {most}");
        }
    }

    #[test]
    fn the_rows_go_where_they_are_accepted() {
        let costs = costs(&(1..=40).map(|rows| (rows, 30.0 + rows as f64)).collect::<Vec<_>>());
        let (sure, maybe, never) = (falling(0.95, 8), falling(0.6, 8), falling(0.01, 8));
        let lengths = draft_lengths(&[&maybe, &sure, &never, &[]], 10, &costs);
        assert_eq!(lengths.iter().sum::<usize>(), 10);
        assert!(lengths[1] > lengths[0] && lengths[0] > 0 && lengths[2..] == [0, 0], "{lengths:?}");
        assert!(draft_lengths(&[], 10, &costs).is_empty());
    }

    #[test]
    fn untried_steps_are_tried_twice_as_large_at_a_time() {
        let mut costs = costs(&[(1, 10.0)]);
        for expected in [1, 3, 7, 15] {
            let sure = vec![1.0; 16];
            assert_eq!(draft_lengths(&[&sure], 16, &costs), [expected]);
            costs.record(expected + 1, 10.0 + 0.1 * expected as f64);
        }
    }

    #[test]
    fn a_draft_model_is_asked_where_its_time_pays() {
        let costs = costs(&(1..=17).map(|rows| (rows, 10.0 + rows as f64)).collect::<Vec<_>>());
        assert!(draft_model_length(0.8, (1, 16), 1.0, &costs) > 2);
        assert_eq!(draft_model_length(0.8, (1, 2), 1.0, &costs), 2);
        assert_eq!(draft_model_length(0.8, (1, 16), 9.0, &costs), 0);
        assert_eq!(draft_model_length(0.1, (1, 16), 1.0, &costs), 0);
    }
}
