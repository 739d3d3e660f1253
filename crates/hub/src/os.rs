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
/// Symbolic links need a right that few users have, and a policy may keep the system from following them, so there are
/// two other ways.
#[cfg(windows)]
pub(crate) fn link_file(target: &Path, path: &Path, link: &Path) -> io::Result<()> {
    use std::fs;
    if std::os::windows::fs::symlink_file(target, link).is_ok() {
        if fs::metadata(link).is_ok() {
            return Ok(());
        }
        // It may not even be there.
        let _ = fs::remove_file(link);
    }
    fs::hard_link(path, link).or_else(|_| fs::copy(path, link).map(drop))
}
