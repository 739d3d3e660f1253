//! Which candidates deserve to be measured.

/// The candidates with the least predicted errors, best first, as a stable sort would put them and without neighbours
/// that are equal. Where there are fewer, the last is repeated.
pub(super) fn most_promising<T: Copy + PartialEq, const C: usize, const N: usize>(
    predicted: &[f32; C],
    candidates: &[T; C],
) -> [T; N] {
    let mut places = [0; C];
    for (at, place) in places.iter_mut().enumerate() {
        *place = (u64::from(ascending(predicted[at])) << 32) | at as u64;
    }
    // Few are wanted, so looking for them one by one is less work than sorting all.
    let best_from =
        |from: u64| places.iter().fold(u64::MAX, |best, &place| if place >= from { best.min(place) } else { best });
    let mut place = best_from(0);
    let mut last = candidates[place as u32 as usize];
    let mut chosen = [last; N];
    for chosen in &mut chosen[1..] {
        while place != u64::MAX && candidates[place as u32 as usize] == last {
            place = best_from(place + 1);
        }
        if place != u64::MAX {
            last = candidates[place as u32 as usize];
        }
        *chosen = last;
    }
    chosen
}

/// Bits that order as `f32::total_cmp` does.
fn ascending(number: f32) -> u32 {
    let bits = number.to_bits();
    if number.is_sign_negative() { !bits } else { bits | 1 << 31 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_a_stable_sort_without_equal_neighbours() {
        let mut state = 3_u32;
        for round in 0..200 {
            let mut next = |below: u32| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 16) % below
            };
            let candidates: [u32; 40] = std::array::from_fn(|_| next(30));
            let predicted: [f32; 40] = std::array::from_fn(|_| next(25) as f32 - 9.5);
            let mut sorted: Vec<(f32, u32)> = predicted.into_iter().zip(candidates).collect();
            sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
            sorted.dedup_by(|a, b| a.1 == b.1);
            let expected: Vec<u32> = sorted.iter().map(|(_, candidate)| *candidate).collect();
            let repeated = |at: usize| expected[at.min(expected.len() - 1)];
            assert_eq!(most_promising(&predicted, &candidates), std::array::from_fn::<_, 3, _>(repeated), "{round}");
            assert_eq!(most_promising(&predicted, &candidates), std::array::from_fn::<_, 40, _>(repeated), "{round}");
        }
    }
}
