//! What all fuzz targets share: a limit on memory, and files that exist while a parser reads them.
#![forbid(unsafe_code)]

use std::alloc::System;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use cap::Cap;
use tempfile::TempDir;

/// Memory that the parsing of one input may take.
const MOST_BYTES: usize = 64 << 20;

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// Runs a parser. An allocation beyond 64 MiB fails, which ends the process as any crash does.
pub fn bounded<T>(parse: impl FnOnce() -> T) -> T {
    MEMORY.set_limit(MEMORY.allocated() + MOST_BYTES).expect("the limit is above what is in use");
    parse()
}

/// A folder of this process, in `TMPDIR`; whoever starts the process removes it.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| TempDir::new().expect("a folder can be made")).path()
}

/// Runs a parser on a file of this name with these bytes.
pub fn with_file<T>(name: &str, bytes: &[u8], parse: impl FnOnce(&Path) -> T) -> T {
    let path = folder().join(name);
    fs::write(&path, bytes).expect("the file can be written");
    bounded(|| parse(&path))
}

/// Lets panics pass in silence that the code under test catches itself; those that it does not catch still end the
/// process.
pub fn allow_caught_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}
