//! Files that have no name until they are complete.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "naming an open file has no safe interface"))]

#[cfg(target_os = "linux")]
pub(crate) use linux::{name_file, nameless_file};
#[cfg(not(target_os = "linux"))]
pub(crate) use others::{name_file, nameless_file};

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::CString;
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::Path;

    /// An empty file in a folder that has no name there: if the process ends before [`name_file`], nothing is left of it.
    pub(crate) fn nameless_file(folder: &Path) -> io::Result<File> {
        let mut options = File::options();
        let file = options.read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o666).open(folder)?;
        // Without it the file could never be named, and that must not be found out when everything is written.
        std::fs::metadata(own_path(&file))?;
        Ok(file)
    }

    /// Gives such a file a name that is free, on the same file system.
    pub(crate) fn name_file(file: &File, path: &Path) -> io::Result<()> {
        let from = CString::new(own_path(file))?;
        let to = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: both are strings with a zero at their end that live for the whole call, which only reads them.
        let code = unsafe {
            libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
        };
        if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Where the system shows an open file.
    fn own_path(file: &File) -> String {
        format!("/proc/self/fd/{}", file.as_raw_fd())
    }
}

#[cfg(not(target_os = "linux"))]
mod others {
    use std::fs::File;
    use std::io;
    use std::path::Path;

    /// Other systems have no such files.
    pub(crate) fn nameless_file(_folder: &Path) -> io::Result<File> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The twin of what gives such a file its name.
    pub(crate) fn name_file(_file: &File, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
