//! Which way of reading each kind of matrix is fastest here: measured on a model's own weights when it is loaded, and
//! kept in a file, so that it is measured once. Every way gives the same bits.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use cascadia_kernels::{Matrix, MatrixKind, Reading, Readings, Shape, TimedReading, time_readings};
use cascadia_weights::{ModelFiles, Tensor};
use serde_json::{Map, Value, json};

use crate::LoadOptions;

/// Kinds whose matrices are smaller together stay in the caches, and any way will do.
const LEAST_BYTES: u64 = 8 << 20;
/// Bytes of a kind that are enough to measure: more than the caches hold, little enough for milliseconds.
const SAMPLE_BYTES: u64 = 128 << 20;
/// Kinds that a file may hold; a file with more is begun anew.
const MOST_KINDS: usize = 4096;

/// Chooses for every kind of matrix in `files` that nothing is known of yet.
pub(crate) fn choose(files: &ModelFiles, options: &LoadOptions) {
    let Some(path) = options.ops.choices() else { return };
    let (mut kept, mut readings) = (read(&path), Readings::clone(&options.ops.readings()));
    let mut measured = false;
    for (kind, tensors) in kinds(files) {
        if readings.knows(kind) {
            continue;
        }
        let timed = kept.get(&kind.to_string()).and_then(parse).unwrap_or_else(|| {
            measured = true;
            time_readings(&sample(kind, &tensors), options.ops.current(), &options.pool)
        });
        kept.insert(kind.to_string(), json!({"reading": timed.reading.to_string(), "gb_s": timed.speed / 1e9}));
        readings.choose(kind, timed);
    }
    options.ops.set_readings(readings);
    if measured {
        write(&path, kept);
    }
}

/// Every kind of matrix in `files` that is worth a measurement, with what the file at `choices` says of it.
pub fn remembered_readings(files: &ModelFiles, choices: &Path) -> Vec<(MatrixKind, Option<TimedReading>)> {
    let kept = read(choices);
    kinds(files).into_iter().map(|(kind, _)| (kind, kept.get(&kind.to_string()).and_then(parse))).collect()
}

/// The tensors of every kind that is worth a measurement.
fn kinds(files: &ModelFiles) -> Vec<(MatrixKind, Vec<&Tensor>)> {
    let mut found: Vec<(MatrixKind, Vec<&Tensor>)> = Vec::new();
    for tensor in files.tensors() {
        let ([rows, columns] | [_, rows, columns]) = *tensor.shape() else { continue };
        let shape = Shape { rows: rows as usize, columns: columns as usize };
        let kind = MatrixKind { dtype: tensor.dtype(), layout: tensor.layout(), shape };
        match found.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, tensors)) => tensors.push(tensor),
            None => found.push((kind, vec![tensor])),
        }
    }
    found.retain(|(_, tensors)| tensors.iter().map(|tensor| tensor.byte_len()).sum::<u64>() >= LEAST_BYTES);
    found
}

/// Enough matrices of a kind to measure; of a tensor for several experts each is one.
fn sample(kind: MatrixKind, tensors: &[&Tensor]) -> Vec<Matrix> {
    let (mut matrices, mut bytes) = (Vec::new(), 0);
    for tensor in tensors {
        let experts = if let [experts, _, _] = *tensor.shape() { experts as usize } else { 1 };
        let shape = Shape { rows: experts * kind.shape.rows, ..kind.shape };
        let whole = Matrix::with_layout(Arc::new(tensor.bytes()), kind.dtype, kind.layout, shape);
        // What cannot be a matrix is refused where it is used.
        let Ok(whole) = whole else { continue };
        for expert in 0..experts {
            let matrix = whole.rows(expert * kind.shape.rows..(expert + 1) * kind.shape.rows);
            bytes += matrix.bytes();
            matrices.push(matrix);
            if bytes >= SAMPLE_BYTES {
                return matrices;
            }
        }
    }
    matrices
}

/// What the file holds by kind; nothing, if it cannot be read.
fn read(path: &Path) -> BTreeMap<String, Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let kept: Map<String, Value> = serde_json::from_str(&text).unwrap_or_default();
    if kept.len() > MOST_KINDS { BTreeMap::new() } else { kept.into_iter().collect() }
}

fn parse(kept: &Value) -> Option<TimedReading> {
    let reading: Reading = kept["reading"].as_str()?.parse().ok()?;
    Some(TimedReading { reading, speed: kept["gb_s"].as_f64()? * 1e9 })
}

/// Keeps the choices for the next time. Where that fails, they are measured again.
fn write(path: &Path, kept: BTreeMap<String, Value>) {
    let text = serde_json::to_string_pretty(&kept).expect("texts and numbers");
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    let written = folder.and_then(|()| fs::write(&beside, text)).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        drop(fs::remove_file(&beside));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("new").join("choices.json");
        assert!(read(&path).is_empty(), "there is none yet");
        let kept = json!({"reading": "near:l1:2048", "gb_s": 12.5});
        write(&path, BTreeMap::from([("Q4_K 32x256 rows".to_owned(), kept.clone())]));
        let again = read(&path);
        assert_eq!(again.get("Q4_K 32x256 rows"), Some(&kept));
        let timed = parse(&again["Q4_K 32x256 rows"]).expect("what was written");
        assert_eq!((timed.reading.to_string().as_str(), timed.speed), ("near:l1:2048", 12.5e9));
        assert_eq!(fs::read_dir(folder.path().join("new")).expect("the folder").count(), 1, "nothing else is left");
    }

    #[test]
    fn a_damaged_file_is_no_choice() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("choices.json");
        for text in ["", "{", "[1]", "\u{0}"] {
            fs::write(&path, text).expect("written");
            assert!(read(&path).is_empty(), "{text:?}");
        }
        for kept in [json!(1), json!({}), json!({"reading": "sideways", "gb_s": 1}), json!({"reading": "far:none"})] {
            assert_eq!(parse(&kept), None, "{kept}");
        }
    }
}
