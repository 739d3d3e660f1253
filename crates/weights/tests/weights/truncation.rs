//! A file that is cut or overwritten while it is mapped.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use cascadia_weights::ModelFiles;
use tempfile::TempDir;

use crate::raw_gguf::RawGguf;

/// A file with one tensor of `length` bytes, all seven.
fn big_file(length: usize) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("big.gguf");
    let mut file = RawGguf::new().tensor("w", &[length as u64 / 4], 0, 0);
    file.data = vec![7; length];
    std::fs::write(&path, file.bytes()).unwrap();
    (folder, path)
}

fn truncate(path: &Path, length: u64) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.set_len(length)
}

#[cfg(unix)]
#[test]
fn lost_pages_read_as_zeros_and_are_reported() {
    let (_folder, path) = big_file(1 << 20);
    let files = ModelFiles::open(&path).unwrap();
    let bytes = files.require("w").unwrap().bytes();
    files.check_intact().unwrap();
    truncate(&path, 5000).unwrap();
    // Two threads meet the same lost pages; both must come back.
    let sums: Vec<u64> = std::thread::scope(|scope| {
        let read = || bytes.as_ref().iter().map(|&byte| u64::from(byte)).sum::<u64>();
        let readers = [scope.spawn(read), scope.spawn(read)];
        readers.map(|reader| reader.join().unwrap()).into()
    });
    assert!(sums.iter().all(|&sum| sum < 7 * 8192), "{sums:?}");
    let message = files.check_intact().unwrap_err().to_string();
    let expected = format!("{} was truncated or replaced while in use; restore it and start again", path.display());
    assert_eq!(message, expected);
    // The damage does not heal, and another mapping knows nothing of it.
    truncate(&path, 1 << 21).unwrap();
    files.check_intact().unwrap_err();
    let (_other_folder, other) = big_file(1 << 16);
    let other = ModelFiles::open(&other).unwrap();
    assert!(other.require("w").unwrap().bytes().as_ref().iter().all(|&byte| byte == 7));
    other.check_intact().unwrap();
}

#[cfg(unix)]
#[test]
fn a_cut_inside_the_last_page_is_noticed_without_a_fault() {
    let (_folder, path) = big_file(6000);
    let files = ModelFiles::open(&path).unwrap();
    truncate(&path, 5000).unwrap();
    files.check_intact().unwrap_err();
}

#[cfg(unix)]
#[test]
fn guards_are_given_back() {
    let (_folder, path) = big_file(64);
    for _ in 0..5000 {
        ModelFiles::open(&path).unwrap();
    }
}

/// A bus error that has nothing to do with a model still ends the process the usual way.
#[cfg(unix)]
#[test]
fn other_bus_errors_are_passed_on() {
    use std::os::unix::process::ExitStatusExt;

    // To the test runner of the child this is one more filter, which matches nothing.
    const CHILD: &str = "this-is-the-child";
    if std::env::args().any(|argument| argument == CHILD) {
        let (_folder, path) = big_file(64);
        let _files = ModelFiles::open(&path).unwrap();
        // Rust's own handler, to which we pass the signal, takes the first one as a reason to step aside.
        for _ in 0..2 {
            let process = std::process::id().to_string();
            std::process::Command::new("kill").args(["-BUS", &process]).status().unwrap();
        }
        std::thread::sleep(std::time::Duration::from_secs(5));
        return;
    }
    let arguments = ["--exact", "truncation::other_bus_errors_are_passed_on", "--test-threads=1", CHILD];
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(arguments)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    let bus_error = if cfg!(target_os = "linux") { 7 } else { 10 };
    assert_eq!(status.signal(), Some(bus_error), "{status}");
}

#[test]
fn an_overwritten_file_is_noticed() {
    let (_folder, path) = big_file(1 << 16);
    let files = ModelFiles::open(&path).unwrap();
    let overwrite = OpenOptions::new().write(true).open(&path).unwrap();
    overwrite.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert!(files.check_intact().unwrap_err().to_string().contains("big.gguf was truncated or replaced"));
}

#[cfg(windows)]
#[test]
fn the_system_refuses_to_cut_a_mapped_file() {
    let (_folder, path) = big_file(1 << 20);
    let files = ModelFiles::open(&path).unwrap();
    truncate(&path, 5000).unwrap_err();
    assert!(files.require("w").unwrap().bytes().as_ref().iter().all(|&byte| byte == 7));
    files.check_intact().unwrap();
    drop(files);
    truncate(&path, 5000).unwrap();
}
