//! Bytes that are fetched, given back and read again.

use cascadia_weights::{MemoryAdvice, ModelFiles, WeightPages, WeightsError};
use tempfile::TempDir;

use crate::raw_gguf::RawGguf;

const LENGTH: usize = 1 << 20;

/// Three tensors of a megabyte; the third lies far behind the other two.
fn three(folder: &TempDir) -> ModelFiles {
    let mut file = RawGguf::new();
    for (name, place) in [("blk.0.a", 0), ("blk.0.b", 1), ("blk.1.a", 3)] {
        file = file.tensor(name, &[LENGTH as u64 / 4], 0, (place * LENGTH) as u64);
    }
    file.data = (0..4 * LENGTH).map(|index| (index / 1000) as u8).collect();
    let path = folder.path().join("three.gguf");
    std::fs::write(&path, file.bytes()).unwrap();
    ModelFiles::open(&path).unwrap()
}

#[test]
fn neighbours_are_joined() {
    let folder = TempDir::new().unwrap();
    let files = three(&folder);
    let lengths = |wanted: fn(&str) -> bool| -> Vec<usize> {
        files.joined(|tensor| wanted(tensor.name())).iter().map(|part| part.as_ref().len()).collect()
    };
    assert_eq!(lengths(|_| true), [2 * LENGTH, LENGTH]);
    assert_eq!(lengths(|name| name.starts_with("blk.0.")), [2 * LENGTH]);
    assert_eq!(lengths(|name| name.ends_with(".a")), [LENGTH, LENGTH]);
    assert_eq!(lengths(|_| false), [0usize; 0]);
}

#[test]
fn bytes_of_a_file_are_found_and_copies_are_not() {
    let folder = TempDir::new().unwrap();
    let (files, others) = (three(&folder), three(&TempDir::new().unwrap()));
    let tensors: Vec<_> = files.tensors().iter().map(|tensor| tensor.bytes()).collect();
    for (index, tensor) in tensors.iter().enumerate() {
        let part = &tensor.as_ref()[10..20];
        let place = files.place_of(part).expect("a part of a file");
        assert_eq!(place.as_ref().as_ptr(), part.as_ptr());
        let overlaps: Vec<bool> = tensors.iter().map(|other| other.overlaps(&place)).collect();
        assert_eq!(overlaps, [0, 1, 2].map(|other| other == index));
        let copy = Vec::from(part);
        assert!(files.place_of(&copy).is_none(), "a copy");
        assert!(others.place_of(part).is_none(), "another file");
    }
}

#[test]
fn pages_are_prepared_and_read_the_same() {
    let folder = TempDir::new().unwrap();
    let files = three(&folder);
    files.prepare_pages(WeightPages { populate: true, lock: false }).unwrap();
    assert_eq!(files.tensors()[1].bytes().as_ref()[LENGTH - 1], ((2 * LENGTH - 1) / 1000) as u8);
    match files.prepare_pages(WeightPages { populate: false, lock: true }) {
        Ok(()) => {}
        // Where even this little is more than the system allows.
        Err(error @ WeightsError::Lock { .. }) => assert!(error.to_string().contains("lock the"), "{error}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_node_that_cannot_exist_is_refused() {
    assert!(cascadia_weights::interleave_memory(&[1 << 20]).is_err());
}

#[test]
fn bytes_that_were_given_back_read_the_same_again() {
    let folder = TempDir::new().unwrap();
    let files = three(&folder);
    let before: Vec<Vec<u8>> = files.tensors().iter().map(|tensor| tensor.bytes().as_ref().to_vec()).collect();
    for part in files.joined(|_| true) {
        for advice in [MemoryAdvice::WillNeed, MemoryAdvice::Sequential, MemoryAdvice::Random, MemoryAdvice::Release] {
            part.advise(advice).unwrap();
        }
        for advice in [MemoryAdvice::Unload, MemoryAdvice::Release] {
            part.fetch();
            part.advise(advice).unwrap();
        }
    }
    let after: Vec<Vec<u8>> = files.tensors().iter().map(|tensor| tensor.bytes().as_ref().to_vec()).collect();
    assert!(before == after);
    files.check_intact().unwrap();
}
