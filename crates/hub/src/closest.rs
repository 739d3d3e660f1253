//! Names that somebody may have meant who typed another.

/// How many names are suggested.
const MOST: usize = 3;

/// The names that are most like `typed`: those that begin with it, or differ in a third of its letters at most.
pub(crate) fn closest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let most = (typed.chars().count() / 3).max(1);
    let distance = |name: &str| if name.starts_with(typed) { 0 } else { edits(typed, name) };
    let mut near: Vec<(usize, &str)> =
        names.map(|name| (distance(name), name)).filter(|(far, _)| *far <= most).collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(MOST).map(|(_, name)| name).collect()
}

/// How many letters have to be added, left out or replaced to make one text of the other.
fn edits(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, against) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *against);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::{closest, edits};

    #[test]
    fn distances() {
        for (one, other, expected) in [("", "", 0), ("a", "", 1), ("kitten", "sitting", 3), ("flaw", "lawn", 2)] {
            assert_eq!((edits(one, other), edits(other, one)), (expected, expected), "{one} {other}");
        }
    }

    #[test]
    fn what_was_meant_comes_first() {
        let check = |typed: &str, expected: &[&str]| {
            let names = ["smollm2", "smollm3", "qwen3", "qwen2.5", "qwen2.5-coder", "gemma3"];
            assert_eq!(closest(typed, names.into_iter()), expected, "{typed}");
        };
        check("smolm2", &["smollm2", "smollm3"]);
        check("qwen", &["qwen2.5", "qwen2.5-coder", "qwen3"]);
        check("gema3", &["gemma3"]);
        check("unheard-of", &[]);
    }
}
