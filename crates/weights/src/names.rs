//! Finding things by name, and suggesting a name when there is none.

/// Longest name for which a spelling distance is computed; real names have about forty characters.
const MAX_COMPARED_LEN: usize = 128;

/// Indices of `items` sorted by name; the first name that occurs twice is the error.
pub(crate) fn sorted_index<T>(items: &[T], name: impl Fn(&T) -> &str) -> Result<Vec<u32>, String> {
    let count = u32::try_from(items.len()).expect("readers accept far fewer items");
    let mut index: Vec<u32> = (0..count).collect();
    let name_at = |&position: &u32| name(&items[position as usize]);
    index.sort_unstable_by(|left, right| name_at(left).cmp(name_at(right)));
    match index.windows(2).find(|pair| name_at(&pair[0]) == name_at(&pair[1])) {
        Some(pair) => Err(name_at(&pair[0]).to_owned()),
        None => Ok(index),
    }
}

/// Up to three of `candidates` that are spelled almost like `wanted`, nearest first.
pub(crate) fn closest<'a>(wanted: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let limit = (wanted.len() / 4).max(2);
    let mut near: Vec<(usize, &str)> = candidates
        .filter(|candidate| candidate.len().abs_diff(wanted.len()) <= limit)
        .filter(|candidate| candidate.len() <= MAX_COMPARED_LEN)
        .map(|candidate| (distance(wanted.as_bytes(), candidate.as_bytes()), candidate))
        .filter(|&(distance, _)| distance <= limit)
        .collect();
    near.sort_unstable();
    near.into_iter().take(3).map(|(_, candidate)| candidate).collect()
}

/// Levenshtein distance: the insertions, deletions and replacements that turn one name into the other.
fn distance(left: &[u8], right: &[u8]) -> usize {
    let mut previous: Vec<usize> = (0..=right.len()).collect();
    let mut current = previous.clone();
    for (row, left_byte) in left.iter().enumerate() {
        current[0] = row + 1;
        for (column, right_byte) in right.iter().enumerate() {
            let replaced = previous[column] + usize::from(left_byte != right_byte);
            current[column + 1] = replaced.min(previous[column + 1] + 1).min(current[column] + 1);
        }
        std::mem::swap(&mut previous, &mut current);
    }
    previous[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested_nearest_first() {
        let names = ["model.norm.weight", "model.layers.1.weight", "model.layers.0.weight", "lm_head.weight"];
        assert_eq!(closest("model.layer.0.weight", names.into_iter())[0], "model.layers.0.weight");
        assert_eq!(closest("completely.different.thing", names.into_iter()), Vec::<&str>::new());
    }

    #[test]
    fn the_index_is_sorted_and_duplicates_are_named() {
        assert_eq!(sorted_index(&["b", "a", "c"], |name| name), Ok(vec![1, 0, 2]));
        assert_eq!(sorted_index(&["b", "a", "b"], |name| name), Err("b".to_owned()));
    }
}
