//! Writes a GGUF file with every kind of value, for `tests/check_gguf_py.py` to read with another implementation.

use std::path::Path;
use std::process::ExitCode;

#[path = "../tests/weights/sample.rs"]
mod sample;

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: write_sample OUT.gguf");
        return ExitCode::from(2);
    };
    match sample::write_sample(Path::new(&path)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
