//! The older binary form of llama.cpp's importance matrices (`.dat`).
//!
//! Little-endian: a count of entries; for each the length of its name, the name, a count of calls, a count of values
//! and the values (mean squares times calls). What follows is of no interest here.

use std::collections::BTreeMap;

/// No real tensor name is longer.
const LONGEST_NAME: usize = 1024;

/// Mean squares by tensor name; the error says what is wrong.
pub(super) fn tensors(bytes: &[u8]) -> Result<BTreeMap<String, Vec<f32>>, String> {
    let mut rest = bytes;
    let entries = count(&mut rest, "the number of entries")?;
    let mut tensors = BTreeMap::new();
    for entry in 0..entries {
        let length = count(&mut rest, &format!("the length of name {entry}"))?;
        if length > LONGEST_NAME {
            return Err(format!("name {entry} has {length} bytes, so this is no importance matrix"));
        }
        let name = take(&mut rest, length, "a name")?;
        let name = std::str::from_utf8(name).map_err(|_| format!("name {entry} is no text"))?.to_owned();
        let calls = count(&mut rest, &format!("the calls of `{name}`"))?.max(1);
        let values = count(&mut rest, &format!("the number of values of `{name}`"))?;
        let length = values.checked_mul(size_of::<f32>()).ok_or_else(|| format!("`{name}` has {values} values"))?;
        let values = take(&mut rest, length, &format!("the values of `{name}`"))?.as_chunks().0;
        let means = values.iter().map(|bytes| f32::from_le_bytes(*bytes) / calls as f32);
        tensors.insert(name, means.collect());
    }
    Ok(tensors)
}

fn count(rest: &mut &[u8], what: &str) -> Result<usize, String> {
    let bytes = take(rest, 4, what)?;
    let number = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    usize::try_from(number).map_err(|_| format!("{what} is {number}, so this is no importance matrix"))
}

fn take<'a>(rest: &mut &'a [u8], length: usize, what: &str) -> Result<&'a [u8], String> {
    let (front, back) =
        rest.split_at_checked(length).ok_or_else(|| format!("it ends inside {what}; copy or make the file again"))?;
    *rest = back;
    Ok(front)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Vec<u8> {
        let mut bytes = 1_i32.to_le_bytes().to_vec();
        bytes.extend(3_i32.to_le_bytes());
        bytes.extend(b"a.b");
        bytes.extend(2_i32.to_le_bytes());
        bytes.extend(2_i32.to_le_bytes());
        bytes.extend([3.0_f32, 5.0].iter().flat_map(|value| value.to_le_bytes()));
        bytes
    }

    #[test]
    fn values_are_divided_by_calls() {
        let mut bytes = file();
        assert_eq!(tensors(&bytes).expect("valid")["a.b"], [1.5, 2.5]);
        bytes.extend(b"anything after the entries");
        assert_eq!(tensors(&bytes).expect("valid").len(), 1);
    }

    #[test]
    fn every_cut_and_every_hostile_number_is_an_error() {
        let bytes = file();
        for length in 0..bytes.len() {
            assert!(tensors(&bytes[..length]).is_err(), "{length}");
        }
        for at in [0, 4, 15] {
            for number in [-1, i32::MAX, i32::MIN] {
                let mut bytes = file();
                bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
                assert!(tensors(&bytes).is_err(), "{number} at {at}");
            }
        }
    }
}
