//! For which requests each machine was sent hidden states: numbers and times beside the audit log, never text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Digest, FleetError};

/// Bytes of the file after which another begins; the one before it is kept, older ones are not.
const FILE_BYTES: u64 = 4 << 20;
/// Requests of one machine that are told apart from new ones. Older ones that still run are noted once more.
const MOST_KNOWN: usize = 1024;
/// Machines of which that is remembered.
const MOST_MACHINES: usize = 64;
/// Requests that wait to be written.
const MOST_WAITING: usize = 1 << 16;
/// Bytes of a line that is read.
const MOST_LINE: usize = 1 << 20;

/// A model that is served: its requests are numbered from its beginning on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ServedModel {
    /// The model.
    pub model: Digest,
    /// When it was opened, in seconds since 1970.
    pub since: u64,
}

/// Requests of one model that a machine computed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRequests {
    /// The model.
    pub served: ServedModel,
    /// When the first of them came to the machine, and the last, in seconds since 1970.
    pub time: [u64; 2],
    /// Their numbers.
    pub requests: BTreeSet<u64>,
}

/// One line of the file: requests that came to a machine at about the same time.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    time: u64,
    node: String,
    #[serde(flatten)]
    served: ServedModel,
    /// First and last numbers.
    requests: Vec<[u64; 2]>,
}

/// What the machines of one stage have seen lately.
#[derive(Default)]
pub(crate) struct KnownRequests(BTreeMap<String, BTreeSet<u64>>);

impl KnownRequests {
    /// Those requests that are new to a machine.
    pub(crate) fn add(&mut self, node: &str, requests: impl Iterator<Item = u64>) -> Vec<u64> {
        if !self.0.contains_key(node) {
            if self.0.len() >= MOST_MACHINES {
                self.0.clear();
            }
            self.0.insert(node.to_owned(), BTreeSet::new());
        }
        let Some(known) = self.0.get_mut(node) else { return Vec::new() };
        let new = requests.filter(|request| known.insert(*request)).collect();
        while known.len() > MOST_KNOWN {
            known.pop_first();
        }
        new
    }
}

/// What is going to be written.
#[derive(Default)]
pub(crate) struct WaitingRequests {
    of: BTreeMap<(String, ServedModel), BTreeSet<u64>>,
    count: usize,
}

impl WaitingRequests {
    /// Notes that requests came to a machine. A disk that takes nothing for long loses the rest.
    pub(crate) fn add(&mut self, node: &str, served: ServedModel, requests: &[u64]) {
        let room = MOST_WAITING - self.count.min(MOST_WAITING);
        let requests = &requests[..requests.len().min(room)];
        self.count += requests.len();
        self.of.entry((node.to_owned(), served)).or_default().extend(requests);
    }

    /// Puts back what could not be written.
    pub(crate) fn merge(&mut self, other: WaitingRequests) {
        for ((node, served), requests) in other.of {
            self.add(&node, served, &requests.into_iter().collect::<Vec<_>>());
        }
    }

    /// Writes them at the end of the file in a folder, as of this time. What cannot be written waits on.
    pub(crate) fn write(&mut self, folder: &Path, time: u64) -> Result<(), FleetError> {
        if self.of.is_empty() {
            return Ok(());
        }
        let [path, older] = paths(folder);
        let mut text = String::new();
        for ((node, served), requests) in &self.of {
            let line = Line { time, node: node.clone(), served: *served, requests: ranges(requests) };
            text += &serde_json::to_string(&line).map_err(|error| FleetError::file(&path, error.to_string()))?;
            text.push('\n');
        }
        if fs::metadata(&path).is_ok_and(|metadata| metadata.len() >= FILE_BYTES) {
            fs::rename(&path, &older).map_err(FleetError::io("rename", &path))?;
        }
        fs::create_dir_all(folder).map_err(FleetError::io("make the folder", folder))?;
        let mut file =
            OpenOptions::new().append(true).create(true).open(&path).map_err(FleetError::io("open", &path))?;
        file.write_all(text.as_bytes()).map_err(FleetError::io("write", &path))?;
        *self = WaitingRequests::default();
        Ok(())
    }
}

/// The file that is written, and the one before it.
fn paths(folder: &Path) -> [PathBuf; 2] {
    ["requests.seen", "requests-before.seen"].map(|name| folder.join(name))
}

/// First and last numbers of those that follow each other.
fn ranges(requests: &BTreeSet<u64>) -> Vec<[u64; 2]> {
    let mut ranges: Vec<[u64; 2]> = Vec::new();
    for request in requests {
        match ranges.last_mut() {
            Some([_, last]) if last.checked_add(1) == Some(*request) => *last = *request,
            _ => ranges.push([*request; 2]),
        }
    }
    ranges
}

impl SeenRequests {
    /// What a machine has seen, by the files in a folder, from the oldest model to the newest.
    pub fn of(folder: &Path, node: &str) -> Result<Vec<SeenRequests>, FleetError> {
        let mut seen: BTreeMap<(u64, ServedModel), SeenRequests> = BTreeMap::new();
        let [path, older] = paths(folder);
        for path in [older, path] {
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(FleetError::io("open", &path)(error)),
            };
            for line in BufReader::new(file).lines() {
                let line = line.map_err(FleetError::io("read", &path))?;
                // What a crash left of a line says nothing.
                let line = serde_json::from_str::<Line>(&line[..line.floor_char_boundary(MOST_LINE)]).ok();
                let Some(Line { time, served, requests, .. }) = line.filter(|line| line.node == node) else { continue };
                let new = SeenRequests { served, time: [time; 2], requests: BTreeSet::new() };
                let of = seen.entry((served.since, served)).or_insert(new);
                of.time = [of.time[0].min(time), of.time[1].max(time)];
                // More than ever wait at a time were not written here.
                let numbers = requests.iter().flat_map(|[first, last]| *first..=*last);
                of.requests.extend(numbers.take(MOST_WAITING));
            }
        }
        Ok(seen.into_values().collect())
    }

    /// Their numbers for people, such as `0-7, 9`.
    pub fn numbers(&self) -> String {
        let range =
            |[first, last]: &[u64; 2]| if first == last { first.to_string() } else { format!("{first}-{last}") };
        ranges(&self.requests).iter().map(range).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(since: u64) -> ServedModel {
        ServedModel { model: Digest::of(b"model"), since }
    }

    #[test]
    fn what_a_machine_saw_is_found_by_model_and_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut known, mut waiting) = (KnownRequests::default(), WaitingRequests::default());
        let mut saw = |node: &str, since: u64, requests: &[u64]| {
            let new = known.add(node, requests.iter().copied());
            waiting.add(node, served(since), &new);
            new.len()
        };
        assert_eq!((saw("node-00", 5, &[0, 1, 2]), saw("node-01", 5, &[2])), (3, 1));
        assert_eq!(saw("node-00", 5, &[1, 2]), 0, "every step of them is not news");
        waiting.write(folder.path(), 10).expect("it can be written");
        waiting.add("node-00", served(5), &[4]);
        waiting.add("node-00", served(20), &[0]);
        waiting.write(folder.path(), 21).expect("it can be written");
        // A crash in the middle of a line.
        let mut file = OpenOptions::new().append(true).open(paths(folder.path())[0].clone()).expect("it is there");
        file.write_all(b"{\"time\":30,\"node\":\"node-00\"").expect("it can be written");
        let seen = SeenRequests::of(folder.path(), "node-00").expect("it can be read");
        let told: Vec<_> = seen.iter().map(|seen| (seen.served.since, seen.time, seen.numbers())).collect();
        assert_eq!(told, [(5, [10, 21], "0-2, 4".to_owned()), (20, [21, 21], "0".to_owned())]);
        assert!(SeenRequests::of(folder.path(), "node-07").expect("it can be read").is_empty());
    }

    #[test]
    fn memory_and_disk_are_bounded() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut known, mut waiting) = (KnownRequests::default(), WaitingRequests::default());
        for node in 0..3 * MOST_MACHINES {
            assert_eq!(known.add(&node.to_string(), 0..2 * MOST_KNOWN as u64).len(), 2 * MOST_KNOWN);
        }
        assert!(known.0.len() <= MOST_MACHINES && known.0.values().all(|known| known.len() <= MOST_KNOWN));
        // Numbers that never follow each other, which take the most room.
        let numbers: Vec<u64> = (0..2 * MOST_WAITING as u64).map(|number| 10_000_000_000 + 2 * number).collect();
        for time in 0..8 {
            waiting.add("node-00", served(1), &numbers);
            assert_eq!(waiting.count, MOST_WAITING);
            waiting.write(folder.path(), time).expect("it can be written");
        }
        let bytes: u64 =
            fs::read_dir(folder.path()).expect("a folder").map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert!(bytes > FILE_BYTES && bytes < 4 * FILE_BYTES, "{bytes}");
    }
}
