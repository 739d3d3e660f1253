//! A first look at a safetensors header, before a JSON parser spends memory on it.

/// A header is an object of objects that hold lists: deeper is something else.
const MAX_DEPTH: usize = 3;

/// Counts the entries of the outermost JSON object without building anything.
///
/// The count bounds what the parser will allocate and, compared with the number of distinct names that the parser
/// finds, tells whether a name occurs twice. Text that is not JSON is not noticed here but by the parser.
pub(super) fn count_entries(json: &[u8]) -> Result<usize, String> {
    let mut depth = 0usize;
    let mut entries = 0;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => skip_string(&mut bytes),
            b'{' | b'[' if depth == MAX_DEPTH => return Err(format!("nests deeper than {MAX_DEPTH} levels")),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b':' if depth == 1 => entries += 1,
            _ => {}
        }
    }
    Ok(entries)
}

fn skip_string<'a>(bytes: &mut impl Iterator<Item = &'a u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::count_entries;

    #[test]
    fn only_outer_entries_count_and_strings_hide_everything() {
        for (json, expected) in [
            (r#"{}"#, Ok(0)),
            (r#"{"a":{"b":[1,2],"c":"d"},"e":{}}"#, Ok(2)),
            (r#"{"a:{[\"":{"b":"}}:"}}"#, Ok(1)),
            (r#"{"a":{"b":[[1]]}}"#, Err("nests deeper than 3 levels".to_owned())),
            (r#"}}}]:::"#, Ok(0)),
            (r#"{"unfinished\"#, Ok(0)),
        ] {
            assert_eq!(count_entries(json.as_bytes()), expected, "{json}");
        }
    }
}
