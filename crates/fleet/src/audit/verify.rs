//! Reads an audit log from its first record to its last, and compares it with what was signed.

use std::collections::BTreeMap;
use std::fs;

use super::log::{forgotten, parse_header};
use super::record::{Position, Record};
use super::{AuditLog, SignedHead};
use crate::{Digest, FleetError};

/// A log that is what was signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Where the oldest file that is kept begins.
    pub begin: Position,
    /// How far the log goes.
    pub end: Position,
    /// Bytes of an unfinished record, as a crash leaves them; the next record is written in their place.
    pub torn: u64,
    /// Heads that were found in the log.
    pub heads: usize,
}

impl AuditLog {
    /// Checks that every record is what was written, in the order in which it was, and that all records are there that
    /// were ever signed with one of the coordinator's keys. `own` heads lie beside the log, where whoever changes it can change them too; of what each
    /// other machine has `remembered`, the newest must be in it.
    pub fn verify(
        &self,
        coordinator: &[Digest],
        own: &[SignedHead],
        remembered: &[Vec<SignedHead>],
    ) -> Result<Verdict, FleetError> {
        let refuse = |problem: String| FleetError::file(self.folder(), problem);
        let mut signed: BTreeMap<u64, Vec<Digest>> = BTreeMap::new();
        for head in own.iter().chain(remembered.iter().flatten()) {
            let count = head.head.count;
            if !coordinator.iter().any(|key| head.is_signed_by(*key)) {
                return Err(refuse(format!("the head of {count} records was not signed with this coordinator's key")));
            }
            signed.entry(count).or_default().push(head.head.hash);
        }
        let (mut found, mut mismatch) = (0, None);
        let mut compare = |position: Position| {
            for hash in signed.get(&position.count).into_iter().flatten() {
                match *hash == position.hash {
                    true => found += 1,
                    false => mismatch = mismatch.or(Some(position.count)),
                }
            }
        };
        let mut verdict = self.read(|_, position| compare(position))?;
        let (begin, end) = (verdict.begin, verdict.end);
        compare(begin);
        if let Some(count) = mismatch {
            return Err(refuse(format!("the first {count} records are not those that were signed")));
        }
        if let Some((count, _)) = signed.last_key_value().filter(|(count, _)| **count > end.count) {
            return Err(refuse(format!("it ends after {} records, but {count} were signed", end.count)));
        }
        let newest = remembered.iter().filter_map(|heads| heads.iter().map(|head| head.head.count).max());
        if let Some(count) = newest.into_iter().find(|count| *count < begin.count) {
            let problem =
                "whether these were those that were signed cannot be told; ask a machine that was there later";
            return Err(refuse(format!("the first {count} records are no longer kept, and {problem}")));
        }
        verdict.heads = found;
        Ok(verdict)
    }

    /// Reads all records, each of which must follow on the one before; `hear` is told of each, and where the log is
    /// with it.
    pub fn read(&self, mut hear: impl FnMut(&Record, Position)) -> Result<Verdict, FleetError> {
        let files = self.files()?;
        let mut verdict = Verdict { begin: Position::START, end: Position::START, torn: 0, heads: 0 };
        let (mut gone, mut full) = (0, 0);
        for (index, path) in files.iter().enumerate() {
            let bytes = fs::read(path).map_err(FleetError::io("read", path))?;
            full += usize::from(bytes.len() as u64 >= self.limits().file_bytes);
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
                        (verdict.begin, verdict.end) = (begin, begin);
                    } else if begin != verdict.end {
                        return Err(refuse("it does not continue where the file before ends".to_owned()));
                    }
                    continue;
                }
                let (record, position) = Record::check(line, verdict.end).map_err(refuse)?;
                gone = gone.max(forgotten(&record.entry).unwrap_or(0));
                verdict.end = position;
                hear(&record, position);
            }
        }
        let missing = verdict.begin.count;
        let refuse =
            |why: String| FleetError::file(self.folder(), format!("records up to {missing} are missing; {why}"));
        if missing > gone {
            return Err(refuse(format!("the log says that it dropped {gone}")));
        }
        // Only who has filled so many files drops the oldest, and begins a new one then.
        let expected = self.limits().files.max(1) - 1;
        match missing > 0 && full < expected {
            true => Err(refuse(format!("{full} full files are here, and {expected} are kept before any goes"))),
            false => Ok(verdict),
        }
    }
}
