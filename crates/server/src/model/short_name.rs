//! What people type for a model whose whole name says its size and its type.

use super::frontend::LATEST;

/// Whether a name is the whole name of a model, or that up to its size or its type: `qwen3` and `qwen3:4b` are
/// `qwen3:4b-q4_k_m`. As in Ollama, `:latest` may follow.
pub(super) fn is_short_for(name: &str, model: &str) -> bool {
    let name = name.strip_suffix(LATEST).and_then(|name| name.strip_suffix(':')).unwrap_or(name);
    let Some(rest) = model.strip_prefix(name).filter(|_| !name.is_empty()) else { return false };
    let has_tag = name.contains(':');
    rest.is_empty() || !has_tag && rest.starts_with(':') || has_tag && rest.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::is_short_for;

    #[test]
    fn names_end_where_a_part_ends() {
        let model = "qwen3:4b-q4_k_m";
        for name in [model, "qwen3", "qwen3:4b", "qwen3:latest", "qwen3:4b:latest"] {
            assert!(is_short_for(name, model), "{name}");
        }
        for name in [
            "",
            ":latest",
            "qwen",
            "qwen3:",
            "qwen3:4",
            "qwen3:4b-",
            "qwen3:4b-q4",
            "qwen3:8b",
            "qwen3:4b-q4_k_m:pepys",
        ] {
            assert!(!is_short_for(name, model), "{name}");
        }
        assert!(is_short_for("org/name", "org/name") && !is_short_for("org", "org/name"));
        assert!(!is_short_for("smol", "smol-lm"));
    }
}
