//! One line of the audit log: what was decided, chained to everything before it.

use serde::{Deserialize, Serialize};

use crate::Digest;

/// The most bytes of a line; what a record says is cut to fit.
pub(crate) const MOST_LINE: usize = 8192;
/// The most bytes of a note, and of who asked.
const MOST_NOTE: usize = 512;
/// The most machines that a record names, and the most bytes of their names.
const MOST_NODES: usize = 32;
const MOST_NAME: usize = 64;
/// What a digest of a record is made for, so that it is of no use for anything else.
const CHAIN: &str = "cascadia fleet audit record, chain";

/// What was asked for, or what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Someone may join.
    Invite,
    /// A machine becomes a member.
    Join,
    /// A machine that waited becomes a member.
    Approve,
    /// A machine that waited is sent away.
    Reject,
    /// A machine has a new key, or should have one.
    Rotate,
    /// A machine is taken out.
    Revoke,
    /// A shard goes to a machine.
    Push,
    /// A model is served with the fleet.
    ServeStart,
    /// It no longer is.
    ServeStop,
    /// Someone came to the door.
    Connect,
    /// A machine began to compute a stage.
    StageTaken,
    /// The machine of a stage was lost.
    StageLost,
    /// The machine of a stage had become slow, and another took its place.
    StageSlow,
    /// A machine was lost too often to be used for now.
    Quarantine,
    /// A machine computed other rows than another.
    RowsDiffer,
    /// A machine was found to be wrong, and is not used any more.
    Distrust,
    /// It may be used again.
    Trust,
    /// A machine was shown the head of this log.
    Witness,
    /// A crash had left a part of a record, which was cut off.
    Recover,
    /// Old records are no longer kept.
    Forget,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It may happen, and happens after this was written.
    Allowed,
    /// It may not.
    Refused,
    /// It was allowed, and did not work.
    Failed,
    /// It happened without being asked for.
    Noted,
}

/// What is written down. Never what people ask a model, nor what it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Who asked: the administrator, a machine by its name, or a stranger by its address.
    pub who: String,
    /// For what.
    pub verb: Verb,
    /// What became of it.
    pub decision: Decision,
    /// The key, shard or model that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The machines that it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Anything else in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Entry {
    /// Something that the administrator of the coordinator does.
    pub fn admin(verb: Verb) -> Entry {
        Entry::new("admin", verb, Decision::Allowed)
    }

    /// Something that someone does.
    pub fn new(who: &str, verb: Verb, decision: Decision) -> Entry {
        Entry { who: who.to_owned(), verb, decision, digest: None, nodes: Vec::new(), note: String::new() }
    }

    /// The same, cut so that a line has room for it.
    fn bounded(self) -> Entry {
        let nodes = self.nodes.iter().take(MOST_NODES).map(|node| plain(node, MOST_NAME)).collect();
        Entry { who: plain(&self.who, MOST_NOTE), nodes, note: plain(&self.note, MOST_NOTE), ..self }
    }
}

/// At most so many bytes of a text, on one line.
fn plain(text: &str, most: usize) -> String {
    let text = &text[..text.floor_char_boundary(most)];
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// An entry with its place in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Records up to this one.
    pub count: u64,
    /// When it was written, in seconds since 1970.
    pub time: u64,
    /// What it says.
    #[serde(flatten)]
    pub entry: Entry,
}

/// How far a log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Records so far.
    pub count: u64,
    /// The digest of all of them.
    pub hash: Digest,
}

impl Position {
    /// Before the first record.
    pub const START: Position = Position { count: 0, hash: Digest([0; 32]) };
}

impl Record {
    /// The record after `before`, and where the log is with it.
    pub(crate) fn after(before: Position, time: u64, entry: Entry) -> Option<(String, Record, Position)> {
        let record = Record { count: before.count.checked_add(1)?, time, entry: entry.bounded() };
        let text = serde_json::to_string(&record).ok()?;
        let position = Position { count: record.count, hash: chain(before.hash, text.as_bytes()) };
        let line = format!("{} {text}\n", position.hash);
        (line.len() <= MOST_LINE).then_some((line, record, position))
    }

    /// Reads a line without its end; the digest in it may be wrong.
    pub(crate) fn parse(line: &str) -> Result<(Digest, Record), String> {
        let (hash, text) = line.split_once(' ').ok_or("it is no line of an audit log")?;
        let (hash, record) = (hash.parse()?, serde_json::from_str(text).map_err(|error| error.to_string())?);
        Ok((hash, record))
    }

    /// Reads the line that must come after `before`, exactly as it would be written.
    pub(crate) fn check(line: &str, before: Position) -> Result<(Record, Position), String> {
        let (hash, record) = Record::parse(line)?;
        let next = Record::after(before, record.time, record.entry.clone());
        let (written, _, position) = next.ok_or("it cannot follow on the one before")?;
        if record.count != position.count {
            return Err(format!("it has number {} where {} should be", record.count, position.count));
        }
        if hash != position.hash || written.trim_end_matches('\n') != line {
            return Err("it is not what was written there, or the one before it is not".to_owned());
        }
        Ok((record, position))
    }
}

fn chain(before: Digest, text: &[u8]) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key(CHAIN);
    hasher.update(&before.0).update(text);
    Digest(*hasher.finalize().as_bytes())
}
