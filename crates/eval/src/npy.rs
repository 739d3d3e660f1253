//! Writes one float32 matrix as a `.npy` file, row by row.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::EvalError;

/// A `.npy` file (format 1.0, little-endian float32, C order) on its way. Until `finish` it has a temporary name, and
/// dropping the writer removes it: a failure leaves nothing behind.
pub struct NpyWriter {
    path: PathBuf,
    temporary: PathBuf,
    file: Option<BufWriter<File>>,
    columns: usize,
    rows_left: usize,
}

impl NpyWriter {
    /// Starts a file of `shape` (rows, columns).
    pub fn create(path: &Path, shape: (usize, usize)) -> Result<NpyWriter, EvalError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
        let failed = |source| EvalError::Write { path: path.to_path_buf(), source };
        if path.is_dir() {
            return Err(failed(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder")));
        }
        let file = File::create(&temporary).map_err(failed)?;
        let mut writer = NpyWriter {
            path: path.to_path_buf(),
            temporary,
            file: Some(BufWriter::with_capacity(1 << 20, file)),
            columns: shape.1,
            rows_left: shape.0,
        };
        writer.write(&header(shape))?;
        Ok(writer)
    }

    /// Adds a row.
    pub fn push_row(&mut self, row: &[f32]) -> Result<(), EvalError> {
        assert_eq!(row.len(), self.columns, "a row of another width");
        assert!(self.rows_left > 0, "more rows than announced");
        self.rows_left -= 1;
        let bytes: Vec<u8> = row.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.write(&bytes)
    }

    /// Completes the file and gives it its name.
    pub fn finish(mut self) -> Result<(), EvalError> {
        assert_eq!(self.rows_left, 0, "fewer rows than announced");
        let Some(file) = self.file.take() else { return Ok(()) };
        let closed = file.into_inner().map_err(|error| error.into_error()).and_then(|file| file.sync_all());
        let renamed = closed.and_then(|()| fs::rename(&self.temporary, &self.path));
        renamed.map_err(|source| EvalError::Write { path: self.path.clone(), source })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), EvalError> {
        let Some(file) = self.file.as_mut() else { return Ok(()) };
        file.write_all(bytes).map_err(|source| EvalError::Write { path: self.path.clone(), source })
    }
}

impl Drop for NpyWriter {
    fn drop(&mut self) {
        // After a successful finish the temporary name is gone and this does nothing.
        drop(self.file.take());
        let _ = fs::remove_file(&self.temporary);
    }
}

fn header(shape: (usize, usize)) -> Vec<u8> {
    let mut text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", shape.0, shape.1);
    // The data starts at a multiple of 64: magic, version and length take 10 bytes, and a newline ends the text.
    while (10 + text.len() + 1) % 64 != 0 {
        text.push(' ');
    }
    text.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_header_and_the_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logits.npy");
        let mut writer = NpyWriter::create(&path, (2, 3)).unwrap();
        writer.push_row(&[1.0, 2.0, 3.0]).unwrap();
        writer.push_row(&[-1.0, f32::MAX, 0.5]).unwrap();
        writer.finish().unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 128 + 6 * 4);
        assert!(bytes.starts_with(b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4'"));
        assert_eq!(bytes[127], b'\n');
        assert_eq!(bytes[128 + 20..], 0.5f32.to_le_bytes());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_unfinished_file_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let writer = NpyWriter::create(&folder.path().join("logits.npy"), (2, 3)).unwrap();
        drop(writer);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(NpyWriter::create(folder.path(), (1, 1)).is_err());
        assert!(NpyWriter::create(&folder.path().join("absent/logits.npy"), (1, 1)).is_err());
    }
}
