//! What differs between operating systems when a file gets a second name, or Python is started.

use std::io;
use std::path::Path;

/// What people call Python in a terminal.
#[cfg(unix)]
pub const PYTHON: &str = "python3";

/// What people call Python in a terminal.
#[cfg(windows)]
pub const PYTHON: &str = "python";

/// Makes `link` another name of the file `target`, which is relative to the folder of `link` and lies at `_path`.
#[cfg(unix)]
pub(crate) fn link_file(target: &Path, _path: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

/// Makes `link` another name of the file `target`, which is relative to the folder of `link` and lies at `path`.
///
/// Symbolic links need a right that few users have, so there are two other ways.
#[cfg(windows)]
pub(crate) fn link_file(target: &Path, path: &Path, link: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, link)
        .or_else(|_| std::fs::hard_link(path, link))
        .or_else(|_| std::fs::copy(path, link).map(drop))
}
