//! Reads an audit log from its first record to its last, and compares it with what was signed.

use std::fs;

use super::log::{forgotten, parse_header};
use super::record::{Position, Record};
use super::{AuditLog, SignedHead};
use crate::{Digest, FleetError};

/// A log that is what was signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Records before the first that is kept.
    pub forgotten: u64,
    /// How far the log goes.
    pub end: Position,
    /// Bytes of an unfinished record, as a crash leaves them; the next record is written in their place.
    pub torn: u64,
    /// Heads that were found in the log.
    pub heads: usize,
}

impl AuditLog {
    /// Checks that every record is what was written, in the order in which it was, and that all records are there that
    /// were ever signed. `heads` are those that others remember.
    pub fn verify(&self, coordinator: Digest, heads: &[SignedHead]) -> Result<Verdict, FleetError> {
        let refuse = |problem: String| FleetError::file(self.folder(), problem);
        if let Some(head) = heads.iter().find(|head| !head.is_signed_by(coordinator)) {
            return Err(refuse(format!(
                "the head of {} records was not signed with this coordinator's key",
                head.head.count
            )));
        }
        let mut heads: Vec<&SignedHead> = heads.iter().collect();
        heads.sort_by_key(|head| head.head.count);
        let (mut waiting, mut found) = (heads.iter().peekable(), 0);
        let mut mismatch = None;
        let mut verdict = self.read(|_, position| {
            while let Some(head) = waiting.next_if(|head| head.head.count <= position.count) {
                match (head.head.count == position.count, head.head.hash == position.hash) {
                    (true, true) => found += 1,
                    (true, false) => mismatch = mismatch.or(Some(position.count)),
                    // Signed before the oldest record that is kept.
                    (false, _) => {}
                }
            }
        })?;
        if let Some(count) = mismatch {
            return Err(refuse(format!("the first {count} records are not those that were signed")));
        }
        if let Some(head) = waiting.last() {
            let (signed, kept) = (head.head.count, verdict.end.count);
            return Err(refuse(format!("it ends after {kept} records, but {signed} were signed")));
        }
        verdict.heads = found;
        Ok(verdict)
    }

    /// Reads all records, each of which must follow on the one before; `hear` is told of each, and where the log is
    /// with it.
    pub fn read(&self, mut hear: impl FnMut(&Record, Position)) -> Result<Verdict, FleetError> {
        let files = self.files()?;
        let (mut verdict, mut gone) = (Verdict { forgotten: 0, end: Position::START, torn: 0, heads: 0 }, 0);
        for (index, path) in files.iter().enumerate() {
            let bytes = fs::read(path).map_err(FleetError::io("read", path))?;
            let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            verdict.torn = (bytes.len() - whole) as u64;
            if verdict.torn > 0 && index + 1 < files.len() {
                return Err(FleetError::file(path, "its last line is cut off, and a later file follows"));
            }
            for (number, line) in bytes[..whole].split_inclusive(|byte| *byte == b'\n').enumerate() {
                let refuse = |problem: String| FleetError::file(path, format!("line {}: {problem}", number + 1));
                let line = std::str::from_utf8(&line[..line.len() - 1]).map_err(|error| refuse(error.to_string()))?;
                if number == 0 {
                    let begin =
                        parse_header(line).ok_or_else(|| refuse("it does not begin an audit log".to_owned()))?;
                    if index == 0 {
                        (verdict.forgotten, verdict.end) = (begin.count, begin);
                    } else if begin != verdict.end {
                        return Err(refuse("it does not go on where the file before ends".to_owned()));
                    }
                    continue;
                }
                let (record, position) = Record::check(line, verdict.end).map_err(refuse)?;
                gone = gone.max(forgotten(&record.entry).unwrap_or(0));
                verdict.end = position;
                hear(&record, position);
            }
        }
        if verdict.forgotten > gone {
            let (missing, said) = (verdict.forgotten, gone);
            let problem = format!("records up to {missing} are missing; the log says that it let go of {said}");
            return Err(FleetError::file(self.folder(), problem));
        }
        Ok(verdict)
    }
}
