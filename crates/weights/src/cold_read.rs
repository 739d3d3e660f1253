//! How fast a disk gives a file that is not in memory.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::{WeightsError, os};

/// Bytes of one request to the disk.
const PIECE: u64 = 2 << 20;
/// Where buffers begin, which reading past the system's cache demands.
const ALIGNMENT: usize = 4096;
/// Requests under way at once; disks are fastest with a few.
const REQUESTS: usize = 4;

/// What reading took.
#[derive(Clone, Copy, Debug)]
pub struct ColdRead {
    /// Bytes read.
    pub bytes: u64,
    /// Time they took.
    pub time: Duration,
}

/// Reads the first `most` bytes of a file from its disk, past the system's cache where the system allows that.
pub fn read_cold(path: &Path, most: u64) -> Result<ColdRead, WeightsError> {
    let file = os::open_uncached(path).map_err(WeightsError::io("open", path))?;
    let length = file.metadata().map_err(WeightsError::io("open", path))?.len().min(most);
    let next = AtomicU64::new(0);
    let begin = Instant::now();
    let bytes = thread::scope(|scope| {
        let readers: Vec<_> = (0..REQUESTS).map(|_| scope.spawn(|| read_pieces(&file, length, &next))).collect();
        readers.into_iter().map(|reader| reader.join().expect("reading does not panic")).sum::<Result<u64, _>>()
    });
    Ok(ColdRead { bytes: bytes.map_err(WeightsError::io("read", path))?, time: begin.elapsed() })
}

/// Reads pieces that nobody has read; returns how many bytes that were.
fn read_pieces(file: &File, length: u64, next: &AtomicU64) -> std::io::Result<u64> {
    let mut room = vec![0u8; PIECE as usize + ALIGNMENT];
    let start = room.as_ptr().align_offset(ALIGNMENT);
    let buffer = &mut room[start..start + PIECE as usize];
    let mut read = 0;
    loop {
        let offset = next.fetch_add(PIECE, Ordering::Relaxed);
        if offset >= length {
            return Ok(read);
        }
        read += os::read_at(file, buffer, offset)? as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_beginning_of_a_file_is_read() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![7; 3 * PIECE as usize + 100]).unwrap();
        assert_eq!(read_cold(file.path(), u64::MAX).unwrap().bytes, 3 * PIECE + 100);
        assert_eq!(read_cold(file.path(), 2 * PIECE).unwrap().bytes, 2 * PIECE);
        assert!(read_cold(Path::new("does-not-exist"), 1).is_err());
    }
}
