//! Checks SentencePiece's table of replaced characters, whose reader trusts every number in it.

use base64::prelude::{BASE64_STANDARD, Engine};

/// Longest replacement of a character; the longest in use have 33 bytes.
const MOST_REPLACEMENT_BYTES: usize = 64;

/// Says what is wrong with the table: a trie as a double array, then texts that end in zeros.
pub(crate) fn check(base64: &str) -> Result<(), &'static str> {
    let bytes = BASE64_STANDARD.decode(base64).map_err(|_| "is not base64")?;
    let (size, rest) = bytes.split_first_chunk::<4>().ok_or("is empty")?;
    let size = u32::from_le_bytes(*size) as usize / 4 * 4;
    let (trie, texts) = rest.split_at_checked(size).ok_or("is shorter than it says")?;
    let texts = std::str::from_utf8(texts).map_err(|_| "has texts that are not UTF-8")?;
    let units: Vec<usize> =
        trie.chunks_exact(4).map(|unit| u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]]) as usize).collect();
    if units.is_empty() {
        return Err("has no trie");
    }
    let mut seen = vec![false; units.len()];
    let mut stack = vec![0];
    while let Some(node) = stack.pop() {
        if std::mem::replace(&mut seen[node], true) {
            continue;
        }
        let unit = units[node];
        let children = node ^ ((unit >> 10) << ((unit & (1 << 9)) >> 6));
        // Whatever byte a text has next, its place is looked at.
        if children | 0xff >= units.len() {
            return Err("leads out of its trie");
        }
        if node != 0 && (unit >> 8) & 1 == 1 {
            check_text(texts, units[children] & ((1 << 31) - 1))?;
        }
        let has_label = |byte: &usize| units[children ^ byte] & ((1 << 31) | 0xff) == *byte;
        stack.extend((1..=0xff).filter(has_label).map(|byte| children ^ byte));
    }
    Ok(())
}

fn check_text(texts: &str, start: usize) -> Result<(), &'static str> {
    let text = texts.get(start..).ok_or("leads out of its texts")?;
    match text.find('\0').unwrap_or(text.len()) {
        0..=MOST_REPLACEMENT_BYTES => Ok(()),
        _ => Err("has a replacement of more than 64 bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trie whose root has the children of the first 256 places, and one unit among them.
    fn table(place: usize, unit: u32, leaf: u32, texts: &[u8]) -> String {
        let mut units = [0_u32; 512];
        units[place] = unit;
        units[256 ^ place] = leaf;
        let trie: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        BASE64_STANDARD.encode([&(trie.len() as u32).to_le_bytes(), trie.as_slice(), texts].concat())
    }

    #[test]
    fn every_way_is_followed() {
        // The unit of `A` is at 0x41, has a leaf, and its children 256 places away.
        let unit = |offset: u32| 0x41 | 1 << 8 | offset << 10;
        let good = table(0x41, unit(256), 2, b"x\0yz\0");
        assert_eq!(check(&good), Ok(()));
        let normalizer = tokenizers::normalizers::Precompiled::from(&BASE64_STANDARD.decode(&good).expect("base64"));
        assert_eq!(normalizer.expect("readable").normalize_string("AB"), "yzB");
        assert_eq!(check(&table(0x41, unit(512), 0, b"x\0")), Err("leads out of its trie"));
        assert_eq!(check(&table(0x41, unit(256), 9, b"x\0yz\0")), Err("leads out of its texts"));
        assert_eq!(check(&table(0x41, unit(256), 1, "é\0".as_bytes())), Err("leads out of its texts"));
        assert_eq!(check(&table(0x41, unit(256), 0, &[b'x'; 65])), Err("has a replacement of more than 64 bytes"));
        assert_eq!(check(&BASE64_STANDARD.encode(8_u32.to_le_bytes())), Err("is shorter than it says"));
        assert_eq!(check(""), Err("is empty"));
        assert_eq!(check("?"), Err("is not base64"));
    }
}
