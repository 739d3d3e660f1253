//! Writing that fails leaves nothing behind; writing that works leaves one good file.

use std::path::Path;

use cascadia_kernels::Dtype;
use cascadia_weights::gguf::write::{Outline, TensorEntry, TensorSink, write};
use cascadia_weights::{MetadataValue, ModelFiles, WeightsError};
use tempfile::TempDir;

fn entry(name: &str, shape: &[u64]) -> TensorEntry {
    TensorEntry { name: name.to_owned(), dtype: Dtype::Q8_0, shape: shape.to_vec() }
}

fn zeros(_: usize, sink: &mut TensorSink<'_>) -> Result<(), WeightsError> {
    sink.write(&vec![0; sink.left() as usize])
}

/// Writing fails with all of `parts` in the message and leaves the old file, and only it, in the folder.
fn check(outline: Outline<'_>, parts: &[&str], fill: fn(usize, &mut TensorSink<'_>) -> Result<(), WeightsError>) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("out.gguf");
    std::fs::write(&path, "old").unwrap();
    let message = write(&path, outline, fill).expect_err(&format!("expected {parts:?}")).to_string();
    parts.iter().for_each(|part| assert!(message.contains(part), "{part:?} is not in: {message}"));
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    assert_eq!(folder.path().read_dir().unwrap().count(), 1);
}

#[test]
fn failures_leave_nothing_behind() {
    let good = [entry("a", &[2, 32]), entry("b", &[32])];
    let outline = Outline { metadata: &[], tensors: &good };
    check(outline, &["out.gguf", "tensor `a` of 68 bytes got 67 bytes too few"], |_, sink| sink.write(&[0]));
    check(outline, &["tensor `a` of 68 bytes got 2 bytes more"], |_, sink| sink.write(&[0; 70]));
    check(outline, &["model gave up"], |index, sink| match index {
        0 => zeros(index, sink),
        _ => Err(WeightsError::Write { path: "x".into(), problem: "model gave up".to_owned() }),
    });
    let bad_tensors = |tensors: &[TensorEntry], parts: &[&str]| check(Outline { metadata: &[], tensors }, parts, zeros);
    bad_tensors(&[entry("a", &[32]), entry("a", &[32])], &["tensor `a` occurs twice"]);
    bad_tensors(&[entry("a", &[33])], &["tensor `a`", "Q8_0 blocks of 32"]);
    bad_tensors(&[entry("a", &[0, 32])], &["tensor `a`", "dimension of zero"]);
    bad_tensors(&[entry("a", &[])], &["tensor `a`", "no dimensions"]);
    bad_tensors(&[entry("a", &[1, 1, 1, 1, 32])], &["tensor `a`", "more than 4 dimensions"]);
    bad_tensors(&[entry("a", &[1 << 60, 32])], &["tensor `a`", "larger than any file"]);
    bad_tensors(&[entry("a", &[1 << 58, 32]), entry("b", &[1 << 58, 32])], &["together are larger"]);
    let twice: Vec<(String, MetadataValue)> = vec![("k".to_owned(), 1u8.into()), ("k".to_owned(), 2u8.into())];
    check(Outline { metadata: &twice, tensors: &[] }, &["metadata key `k` occurs twice"], zeros);
}

#[test]
fn a_missing_folder_is_named() {
    let path = Path::new("no/such/folder/out.gguf");
    let message = write(path, Outline { metadata: &[], tensors: &[] }, zeros).unwrap_err().to_string();
    assert!(message.starts_with("cannot create a file in no/such/folder"), "{message}");
}

#[test]
fn alignment_is_the_writers_choice() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("out.gguf");
    let metadata = vec![("general.alignment".to_owned(), 4096u32.into()), ("a".to_owned(), 1u8.into())];
    let tensors = [entry("w", &[32])];
    write(&path, Outline { metadata: &metadata, tensors: &tensors }, zeros).unwrap();
    let files = ModelFiles::open(&path).unwrap();
    assert_eq!(files.metadata().entries(), &metadata[1..]);
    assert!(std::fs::metadata(&path).unwrap().len() < 4096);
}

#[cfg(unix)]
#[test]
fn the_file_is_as_readable_as_any_new_file() {
    use std::os::unix::fs::PermissionsExt;

    let folder = TempDir::new().unwrap();
    let (path, plain) = (folder.path().join("out.gguf"), folder.path().join("plain"));
    write(&path, Outline { metadata: &[], tensors: &[] }, zeros).unwrap();
    std::fs::write(&plain, "").unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&path), mode(&plain));
}
