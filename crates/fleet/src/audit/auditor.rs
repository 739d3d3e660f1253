//! Keeps the log of a coordinator that runs: writes what happens, signs heads, keeps what workers countersign.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::head::parse_testimony;
use super::record::{Decision, Entry, Verb};
use super::seen::{ServedModel, WaitingRequests};
use super::{AuditLog, Refusals, SignedHead, Witness};
use crate::json_file::{read_json, write_json};
use crate::{Clock, Digest, FleetError, FleetKeys, Identity, Members};

/// A head is signed after so many records, or so long after the one before if there is anything new.
const HEAD_RECORDS: u64 = 1000;
const HEAD_TIME: Duration = Duration::from_secs(60);
/// Events that wait to be written; more are counted.
const MOST_EVENTS: usize = 1024;
/// How often what waits is written.
const TICK: Duration = Duration::from_millis(500);

/// The log of a coordinator and who has seen how far it goes.
pub struct Auditor {
    log: AuditLog,
    identity: Identity,
    /// Where newer keys than that come from, if there can be any.
    keys: Option<Arc<FleetKeys>>,
    refusals: Mutex<Refusals>,
    /// Of workers that did not countersign a head.
    doubts: Mutex<Refusals>,
    pending: Mutex<Pending>,
    /// For which requests machines have computed.
    seen: Mutex<WaitingRequests>,
    head: Mutex<Option<(SignedHead, Instant)>>,
    /// Held by whoever writes what waits, which is written once.
    writing: Mutex<()>,
}

#[derive(Default)]
struct Pending {
    events: VecDeque<Entry>,
    missed: u64,
    /// One of each key, the latest.
    witnesses: Vec<WitnessedHead>,
}

/// What a worker has countersigned last.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WitnessedHead {
    node: String,
    witness: Witness,
}

impl Auditor {
    /// Keeps a log with the coordinator's key.
    pub fn new(log: AuditLog, identity: Identity) -> Auditor {
        let [refusals, doubts] = [Verb::Connect, Verb::Witness].map(|verb| Mutex::new(Refusals::of(verb)));
        let (pending, seen, head) = (Mutex::default(), Mutex::default(), Mutex::new(None));
        Auditor { log, identity, keys: None, refusals, doubts, pending, seen, head, writing: Mutex::new(()) }
    }

    /// The same with the keys of a fleet, which may be replaced meanwhile: every head is signed with the newest.
    pub fn with_keys(self, keys: &Arc<FleetKeys>) -> Auditor {
        Auditor { keys: Some(Arc::clone(keys)), ..self }
    }

    /// The coordinator's key.
    fn identity(&self) -> Result<Identity, FleetError> {
        match &self.keys {
            Some(keys) => Ok(keys.current()?.keys().coordinator.clone()),
            None => Ok(self.identity.clone()),
        }
    }

    /// Whether the coordinator has or had this key.
    fn had(&self, key: Digest) -> bool {
        match &self.keys {
            Some(keys) => keys.current().is_ok_and(|held| held.coordinator_pins().contains(&key)),
            None => self.identity.pin() == key,
        }
    }

    /// The clock of its log.
    fn clock(&self) -> &Clock {
        self.log.clock()
    }

    /// Adds a record of something that happens after this, and signs a head with it at once.
    pub fn record(&self, entry: Entry) -> Result<(), FleetError> {
        self.log.append(entry)?;
        self.sign(Duration::ZERO)
    }

    /// Adds a record of what happens last, after all that waits.
    pub fn conclude(&self, entry: Entry) -> Result<(), FleetError> {
        let written = self.tick(|_| {});
        self.log.append(entry)?;
        written
    }

    /// Remembers something that has happened, and waits for no disk.
    pub fn note(&self, entry: Entry) {
        let mut pending = hold(&self.pending);
        match pending.events.len() < MOST_EVENTS {
            true => pending.events.push_back(entry),
            false => pending.missed += 1,
        }
    }

    /// Remembers that a machine was sent hidden states of these requests, and waits for no disk.
    pub(crate) fn saw(&self, node: &str, served: ServedModel, requests: &[u64]) {
        hold(&self.seen).add(node, served, requests);
    }

    /// Records that someone was turned away.
    pub fn refused(&self, who: &str, problem: &str) {
        self.count(&self.refusals, who, problem);
    }

    fn count(&self, refusals: &Mutex<Refusals>, who: &str, problem: &str) {
        let entry = hold(refusals).count(who, problem, self.clock().now());
        entry.into_iter().for_each(|entry| self.note(entry));
    }

    /// Writes what waits as long as the program runs; `hear` is told of every record and of every failure.
    pub fn run(self: &Arc<Auditor>, mut hear: impl FnMut(Result<&Entry, FleetError>) + Send + 'static) {
        let auditor = Arc::clone(self);
        self.clock().spawn(move || -> ! {
            loop {
                if let Err(error) = auditor.tick(|entry| hear(Ok(entry))) {
                    hear(Err(error));
                }
                auditor.clock().sleep(TICK);
            }
        });
    }

    /// Writes what waits, and signs a head if it is time. What cannot be written waits on.
    pub fn tick(&self, mut hear: impl FnMut(&Entry)) -> Result<(), FleetError> {
        let _writing = hold(&self.writing);
        let mut seen = std::mem::take(&mut *hold(&self.seen));
        if let Err(error) = seen.write(self.log.folder(), self.clock().unix_seconds()) {
            hold(&self.seen).merge(seen);
            return Err(error);
        }
        for refusals in [&self.refusals, &self.doubts] {
            let over = hold(refusals).over(self.clock().now());
            over.into_iter().for_each(|entry| self.note(entry));
        }
        loop {
            let Some(entry) = hold(&self.pending).events.front().cloned() else { break };
            self.log.append(entry.clone())?;
            hold(&self.pending).events.pop_front();
            hear(&entry);
        }
        let missed = std::mem::take(&mut hold(&self.pending).missed);
        if missed > 0 {
            let note = format!("{missed} events came while nothing could be written");
            self.note(Entry { note, ..Entry::new("coordinator", Verb::Recover, Decision::Noted) });
        }
        self.sign(HEAD_TIME)?;
        let witnesses = hold(&self.pending).witnesses.clone();
        if witnesses.is_empty() {
            return Ok(());
        }
        self.keep(&witnesses)?;
        let kept = |new: &WitnessedHead| witnesses.iter().any(|kept| kept.witness == new.witness);
        hold(&self.pending).witnesses.retain(|new| !kept(new));
        Ok(())
    }

    /// Signs how far the log goes, if it has grown much, or grown at all since a head that is so old.
    fn sign(&self, age: Duration) -> Result<(), FleetError> {
        let position = self.log.position()?;
        let mut head = hold(&self.head);
        let due = match &*head {
            None => position.count > 0,
            Some((last, time)) => {
                let new = position.count.saturating_sub(last.head.count);
                new >= HEAD_RECORDS || (new > 0 && self.clock().since(*time) >= age)
            }
        };
        if due {
            let signed = SignedHead::new(&self.identity()?, position, self.clock().unix_seconds())?;
            write_json(&self.log.folder().join("head.json"), &signed)?;
            *head = Some((signed, self.clock().now()));
        }
        Ok(())
    }

    /// The newest head, if a worker that was told of `count` records does not know it.
    pub(crate) fn head_after(&self, count: u64) -> Option<SignedHead> {
        hold(&self.head).as_ref().map(|(head, _)| *head).filter(|head| head.head.count > count)
    }

    /// Takes what a worker says to a head. What is not a member's signature of a head of this log counts for nothing.
    pub(crate) fn heard(&self, node: &str, members: &Members, bytes: &[u8]) {
        let refused = |problem: String| self.count(&self.doubts, node, &problem);
        match parse_testimony(bytes) {
            Ok(Ok(witness)) => {
                let worker = witness.seal.pin();
                // auth: witness-signer, witness-node, witness-head
                let is_its = members.name_of(worker).as_deref() == Some(node) && witness.is_signed_by(worker);
                let signer = witness.seen.seal.pin();
                match is_its && witness.seen.is_signed_by(signer) && self.had(signer) {
                    true => {
                        replace(&mut hold(&self.pending).witnesses, WitnessedHead { node: node.to_owned(), witness })
                    }
                    false => refused("it countersigned something else".to_owned()),
                }
            }
            Ok(Err(problem)) => refused(problem),
            Err(error) => refused(error.to_string()),
        }
    }

    /// Keeps the last head that each worker has seen.
    fn keep(&self, new: &[WitnessedHead]) -> Result<(), FleetError> {
        let path = self.log.folder().join("witnesses.json");
        let mut kept: Vec<WitnessedHead> = read_json(&path)?.unwrap_or_default();
        new.iter().for_each(|new| replace(&mut kept, new.clone()));
        write_json(&path, &kept)
    }
}

impl AuditLog {
    /// The heads that lie beside the log: the last that was signed, and those that workers have countersigned.
    pub fn own_heads(&self) -> Result<Vec<SignedHead>, FleetError> {
        let head: Option<SignedHead> = read_json(&self.folder().join("head.json"))?;
        let kept: Option<Vec<WitnessedHead>> = read_json(&self.folder().join("witnesses.json"))?;
        let seen = kept.unwrap_or_default().into_iter().map(|kept| kept.witness.seen);
        Ok(head.into_iter().chain(seen).collect())
    }
}

/// Puts in what a worker has countersigned, in place of what it did before.
fn replace(kept: &mut Vec<WitnessedHead>, new: WitnessedHead) {
    kept.retain(|old| old.witness.seal.pin() != new.witness.seal.pin());
    kept.push(new);
}

/// Nothing in there can be left half done.
fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
