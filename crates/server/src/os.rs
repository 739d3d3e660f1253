//! What differs between operating systems: signals, and what tells files apart.

use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;

pub(crate) use cascadia_engine::{private_file, private_folder};

/// What tells a file from the one that was there before: its time, its length, and where there is one its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    modified: Option<SystemTime>,
    bytes: u64,
    number: u64,
}

/// The stamp of the file that is at `path` now.
pub(crate) fn file_stamp(path: &Path) -> io::Result<FileStamp> {
    let metadata = fs::metadata(path)?;
    #[cfg(unix)]
    let number = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let number = 0;
    Ok(FileStamp { modified: metadata.modified().ok(), bytes: metadata.len(), number })
}

/// Waits for Ctrl-C or for the signal that service managers send.
#[cfg(unix)]
pub(crate) async fn shutdown_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
        (Ok(mut interrupt), Ok(mut terminate)) => {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
        // Without signals only `ServerStop` stops the server.
        _ => std::future::pending().await,
    }
}

/// Waits for Ctrl-C.
#[cfg(not(unix))]
pub(crate) async fn shutdown_signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        // Without signals only `ServerStop` stops the server.
        std::future::pending::<()>().await;
    }
}
