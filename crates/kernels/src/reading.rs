//! How weights are read from memory where only a few columns are multiplied, so that reading is what takes the time.

use std::fmt;
use std::str::FromStr;

/// How far ahead of what is multiplied a kernel asks memory for more, in bytes of each stream, and into which cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAhead {
    /// It leaves that to the hardware.
    None,
    /// Into the nearest cache.
    L1(usize),
    /// Into the next one, which has more room for what comes too early.
    L2(usize),
}

impl ReadAhead {
    /// How far.
    #[inline]
    pub fn bytes(self) -> usize {
        match self {
            ReadAhead::None => 0,
            ReadAhead::L1(bytes) | ReadAhead::L2(bytes) => bytes,
        }
    }
}

/// A way to read weights. Every way gives the same bits, so that a measurement may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// A thread's four streams are the quarters of all that it reads; otherwise those of each task.
    pub far: bool,
    /// What is asked for early.
    pub ahead: ReadAhead,
}

impl Reading {
    /// What is good on most machines.
    pub const DEFAULT: Reading = Reading { far: true, ahead: ReadAhead::L2(4096) };

    /// Those among which a measurement chooses, the default first.
    pub const CANDIDATES: [Reading; 7] = [
        Reading::DEFAULT,
        Reading { far: true, ahead: ReadAhead::L2(8192) },
        Reading { far: true, ahead: ReadAhead::L2(32_768) },
        Reading { far: true, ahead: ReadAhead::None },
        Reading { far: true, ahead: ReadAhead::L1(2048) },
        Reading { far: false, ahead: ReadAhead::L1(2048) },
        Reading { far: false, ahead: ReadAhead::L2(32_768) },
    ];
}

/// As people write it: `far:l2:4096`, `near:l1:2048`, `far:none`.
impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.far { "far:" } else { "near:" })?;
        match self.ahead {
            ReadAhead::None => f.write_str("none"),
            ReadAhead::L1(bytes) => write!(f, "l1:{bytes}"),
            ReadAhead::L2(bytes) => write!(f, "l2:{bytes}"),
        }
    }
}

/// A text that is no [`Reading`].
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is no way to read weights; write far or near, then none, l1:BYTES or l2:BYTES, as in far:l2:4096")]
pub struct ReadingError {
    /// The text.
    pub text: String,
}

impl FromStr for Reading {
    type Err = ReadingError;

    fn from_str(text: &str) -> Result<Reading, ReadingError> {
        let error = || ReadingError { text: text.to_owned() };
        let (streams, ahead) = text.split_once(':').ok_or_else(error)?;
        let far = match streams {
            "far" => true,
            "near" => false,
            _ => return Err(error()),
        };
        // No farther than a page table's reach, so that sums with addresses stay far from any limit.
        let bytes = |bytes: &str| bytes.parse().ok().filter(|bytes| *bytes <= 1 << 20).ok_or_else(error);
        let ahead = match ahead.split_once(':') {
            None if ahead == "none" => ReadAhead::None,
            Some(("l1", distance)) => ReadAhead::L1(bytes(distance)?),
            Some(("l2", distance)) => ReadAhead::L2(bytes(distance)?),
            _ => return Err(error()),
        };
        Ok(Reading { far, ahead })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_what_it_was_written_as() {
        for reading in Reading::CANDIDATES {
            assert_eq!(reading.to_string().parse::<Reading>().expect("its own text"), reading);
        }
        for text in
            ["", "far", "far:", "far:l2", "far:l2:x", "far:l3:1", "middle:none", "near:none:1", "far:l1:9999999999"]
        {
            let error = text.parse::<Reading>().expect_err(text).to_string();
            assert!(error.contains("far:l2:4096"), "{error}");
        }
    }
}
