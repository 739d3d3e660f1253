//! Models that were split into several GGUF files.

use std::path::{Path, PathBuf};

use cascadia_kernels::Dtype;
use cascadia_weights::gguf::write::{Outline, TensorEntry, write};
use cascadia_weights::{MetadataValue, ModelFiles, WeightsError};
use proptest::prelude::*;
use tempfile::TempDir;

/// What one part says about itself.
#[derive(Clone, Debug)]
struct Part {
    name: String,
    number: u16,
    count: u16,
    all_tensors: i32,
    tensors: Vec<&'static str>,
}

/// Three parts as tools write them: the first has the settings and here no tensors.
fn parts() -> Vec<Part> {
    let tensors = [vec![], vec!["a", "b"], vec!["c"]];
    let part = |(number, tensors)| {
        let name = format!("m-{:05}-of-00003.gguf", number + 1);
        Part { name, number, count: 3, all_tensors: 3, tensors }
    };
    (0..).zip(tensors).map(part).collect()
}

fn write_parts(parts: &[Part]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for part in parts {
        let keys: [(&str, MetadataValue); 4] = [
            ("general.name", part.name.as_str().into()),
            ("split.no", part.number.into()),
            ("split.count", part.count.into()),
            ("split.tensors.count", part.all_tensors.into()),
        ];
        let metadata = keys.map(|(key, value)| (key.to_owned(), value));
        let entry = |name: &&str| TensorEntry { name: name.to_string(), dtype: Dtype::F32, shape: vec![2] };
        let tensors: Vec<TensorEntry> = part.tensors.iter().map(entry).collect();
        let outline = Outline { metadata: &metadata, tensors: &tensors };
        write::<WeightsError, _>(&folder.path().join(&part.name), outline, |index, sink| {
            sink.write(&[part.tensors[index].as_bytes()[0]; 8])
        })
        .unwrap();
    }
    folder
}

fn check_error(folder: &TempDir, file: &str, expected: &[&str]) {
    let message = ModelFiles::open(&folder.path().join(file)).unwrap_err().to_string();
    expected.iter().for_each(|part| assert!(message.contains(part), "{part:?} is not in: {message}"));
}

#[test]
fn every_part_and_the_folder_open_the_whole() {
    let folder = write_parts(&parts());
    let paths: Vec<PathBuf> = parts().iter().map(|part| folder.path().join(&part.name)).collect();
    for path in paths.iter().map(PathBuf::as_path).chain([folder.path()]) {
        let files = ModelFiles::open(path).unwrap();
        let tensors: Vec<_> = files.tensors().iter().map(|t| (t.name(), t.bytes().as_ref()[0], t.file())).collect();
        let (second, third): (&Path, &Path) = (&paths[1], &paths[2]);
        assert_eq!(tensors, [("a", b'a', second), ("b", b'b', second), ("c", b'c', third)]);
        // The settings are the first part's, and the whole does not call itself a part.
        let keys: Vec<&str> = files.metadata().entries().iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["general.name"]);
        assert_eq!(files.metadata().require::<&str>("general.name").unwrap(), "m-00001-of-00003.gguf");
    }
}

#[test]
fn a_part_that_is_missing_or_another_is_named() {
    let folder = write_parts(&parts());
    std::fs::remove_file(folder.path().join("m-00002-of-00003.gguf")).unwrap();
    for file in ["m-00001-of-00003.gguf", "m-00003-of-00003.gguf", "."] {
        check_error(&folder, file, &["m-00002-of-00003.gguf is missing", "put all parts"]);
    }
    let changed = |change: fn(&mut [Part])| {
        let mut parts = parts();
        change(&mut parts);
        write_parts(&parts)
    };
    let first = "m-00001-of-00003.gguf";
    let swapped = changed(|parts| parts[1].number = 2);
    check_error(&swapped, first, &["m-00002-of-00003.gguf", "split.no", "is 2", "says 1"]);
    let other_count = changed(|parts| parts[2].count = 4);
    check_error(&other_count, first, &["m-00003-of-00003.gguf", "split.count", "is 4", "says 3"]);
    let fewer = changed(|parts| parts[0].all_tensors = 4);
    check_error(&fewer, first, &[first, "split.tensors.count", "announces 4", "hold 3"]);
    let negative = changed(|parts| parts[1].all_tensors = -1);
    check_error(&negative, first, &["m-00002-of-00003.gguf", "split.tensors.count", "-1"]);
    let twice = changed(|parts| parts[2].tensors = vec!["a"]);
    check_error(&twice, first, &["tensor `a`", "occurs twice"]);
    let renamed = changed(|parts| parts[0].name = "model.gguf".to_owned());
    check_error(&renamed, "model.gguf", &["one of 3 parts", "`-00001-of-00003.gguf`"]);
    let bytes = std::fs::read(folder.path().join(first)).unwrap();
    let message = ModelFiles::from_vec(first, bytes).unwrap_err().to_string();
    assert!(message.contains("in one piece"), "{message}");
}

proptest! {
    // Each case writes files.
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever the parts claim, there is an answer, and an opened model has the tensors of all parts.
    #[test]
    fn claims_are_compared(numbers in prop::collection::vec((0u16..4, 0u16..5, -1i32..5), 3)) {
        let mut claimed = parts();
        for (part, (number, count, all)) in claimed.iter_mut().zip(numbers) {
            (part.number, part.count, part.all_tensors) = (number, count, all);
        }
        let folder = write_parts(&claimed);
        for part in &claimed {
            if let Ok(files) = ModelFiles::open(&folder.path().join(&part.name)) {
                prop_assert!(files.tensors().len() == 3 || part.count <= 1);
            }
        }
    }
}
