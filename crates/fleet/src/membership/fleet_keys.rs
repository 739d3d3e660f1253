//! The keys of a fleet on its coordinator: two private keys, the statements about them, and how they are replaced.
//!
//! The file of statements decides. A new key lies beside the old one before the statement about it is written, and takes
//! its place afterwards: whoever finds the two apart, after a crash, puts the key there that was stated.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::key_statement::{DatedKey, FleetKey, KeyPair, KeyStatement, SignedKeys};
use super::member::KEY_ROTATES;
use super::shown_keys::{MOST_STATEMENTS, ShownKeys};
use crate::audit::{AuditLog, Entry, Verb};
use crate::json_file::{read_json, write_json};
use crate::{Clock, Digest, FleetError, Identity};

/// How long members accept the keys before the newest ones, unless people want it otherwise.
pub const KEY_GRACE: Duration = Duration::from_secs(86_400);

/// The keys of a fleet in the folder of its coordinator.
pub struct FleetKeys {
    folder: PathBuf,
    /// Where every change is written down first, if anywhere.
    log: Option<AuditLog>,
    clock: Clock,
    /// What was there when it could last be read: a disk that fails ends no connection.
    held: Mutex<Option<Arc<HeldKeys>>>,
}

/// The newest keys, and the statements that lead to them.
pub struct HeldKeys {
    keys: KeyPair,
    newest: SignedKeys,
    chain: Vec<SignedKeys>,
}

impl HeldKeys {
    /// The private keys.
    pub fn keys(&self) -> &KeyPair {
        &self.keys
    }

    /// The newest statement.
    pub fn newest(&self) -> &KeyStatement {
        &self.newest.statement
    }

    /// The same with its signatures.
    pub(crate) fn signed(&self) -> &SignedKeys {
        &self.newest
    }

    /// All keys that the coordinator has had, as far as statements go back.
    pub fn coordinator_pins(&self) -> Vec<Digest> {
        self.chain.iter().map(|signed| signed.statement.coordinator.pin).collect()
    }

    /// What a member is shown on a connection.
    pub(crate) fn shown(&self, session: &[u8; 32]) -> Result<ShownKeys, FleetError> {
        ShownKeys::new(&self.chain, &self.keys, session)
    }

    /// Those that should be replaced at this time.
    fn due(&self, now: u64) -> Vec<FleetKey> {
        let is_due = |which: &FleetKey| now.saturating_sub(self.newest().key(*which).issued) >= KEY_ROTATES;
        FleetKey::ALL.into_iter().filter(is_due).collect()
    }
}

/// A change of keys.
#[derive(Clone, Copy, Debug)]
pub struct Rotation<'a> {
    /// Those that are replaced.
    pub which: &'a [FleetKey],
    /// How long the keys before are good as well.
    pub grace: Duration,
    /// Who wants it, for the audit log.
    pub who: &'a str,
}

impl FleetKeys {
    /// The keys in a folder. They are made when they are first needed.
    pub fn at(folder: &Path) -> FleetKeys {
        FleetKeys { folder: folder.to_owned(), log: None, clock: Clock::default(), held: Mutex::default() }
    }

    /// The same, with every change in an audit log before it is made: what cannot be recorded does not happen.
    pub fn audited(self, log: AuditLog) -> FleetKeys {
        FleetKeys { log: Some(log), ..self }
    }

    /// The same with dates of another clock than the system's.
    pub fn on_clock(self, clock: &Clock) -> FleetKeys {
        FleetKeys { clock: clock.clone(), ..self }
    }

    /// The newest keys. While they cannot be read, those that were there before.
    pub fn current(&self) -> Result<Arc<HeldKeys>, FleetError> {
        let read = match self.read() {
            Ok(None) => self.lock().and_then(|_alone| self.read_or_begin()),
            Ok(Some(held)) => Ok(held),
            Err(error) => Err(error),
        };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(newest) => Ok(Arc::clone(held.insert(Arc::new(newest)))),
            Err(error) => held.clone().ok_or(error),
        }
    }

    /// Replaces keys. When this returns without an error, the old ones are gone from this machine.
    pub fn rotate(&self, rotation: Rotation<'_>) -> Result<Arc<HeldKeys>, FleetError> {
        let alone = self.lock()?;
        let held = self.read_or_begin()?;
        self.replace(&held, rotation)?;
        drop(alone);
        self.current()
    }

    /// Replaces keys that are old enough; says which.
    pub fn rotate_due(&self) -> Result<Vec<FleetKey>, FleetError> {
        if self.current()?.due(self.clock.unix_seconds()).is_empty() {
            return Ok(Vec::new());
        }
        let _alone = self.lock()?;
        // Another process may have done so meanwhile.
        let held = self.read_or_begin()?;
        let due = held.due(self.clock.unix_seconds());
        if !due.is_empty() {
            self.replace(&held, Rotation { which: &due, grace: KEY_GRACE, who: "coordinator" })?;
        }
        Ok(due)
    }

    fn replace(&self, held: &HeldKeys, Rotation { which, grace, who }: Rotation<'_>) -> Result<(), FleetError> {
        let now = self.clock.unix_seconds();
        let next = |key: FleetKey| match which.contains(&key) {
            true => Identity::next(&self.path(key)),
            false => Ok(held.keys.key(key).clone()),
        };
        let keys = KeyPair { coordinator: next(FleetKey::Coordinator)?, targets: next(FleetKey::Targets)? };
        let date = |key: FleetKey| match which.contains(&key) {
            true => DatedKey::new(keys.key(key).pin(), now),
            false => *held.newest().key(key),
        };
        let statement = KeyStatement {
            number: held.newest().number + 1,
            coordinator: date(FleetKey::Coordinator),
            targets: date(FleetKey::Targets),
            previous_until: now.saturating_add(grace.as_secs()),
            fleet: held.newest().fleet,
        };
        let mut chain = held.chain.clone();
        chain.push(SignedKeys::new(statement, &held.keys, &keys)?);
        chain.drain(..chain.len().saturating_sub(MOST_STATEMENTS));
        let names: Vec<&str> = which.iter().map(|key| key.name()).collect();
        let note = format!(
            "{}, statement {}; the old key is accepted until {}",
            names.join(" and "),
            statement.number,
            statement.previous_until
        );
        let digest = which.first().map(|key| statement.key(*key).pin);
        let entry = Entry { who: who.to_owned(), digest, note, ..Entry::admin(Verb::Rotate) };
        let write = || write_json(&self.statements(), &chain);
        match &self.log {
            Some(log) => log.acting(entry, write),
            None => write(),
        }?;
        // From here on the new keys are the fleet's, whether they can be put in their place now or later.
        self.open(chain).map(|_| ())
    }

    /// What is there; whoever calls this has the lock.
    fn read_or_begin(&self) -> Result<HeldKeys, FleetError> {
        if let Some(held) = self.read()? {
            return Ok(held);
        }
        let key = |which: FleetKey| Identity::open_or_make(&self.path(which));
        let keys = KeyPair { coordinator: key(FleetKey::Coordinator)?, targets: key(FleetKey::Targets)? };
        // A fleet that was made before there were statements has the date of the first.
        let now = self.clock.unix_seconds();
        let date = |which: FleetKey| DatedKey::new(keys.key(which).pin(), now);
        let (coordinator, targets) = (date(FleetKey::Coordinator), date(FleetKey::Targets));
        let first = KeyStatement { fleet: coordinator.pin, number: 0, coordinator, targets, previous_until: now };
        let chain = vec![SignedKeys::new(first, &keys, &keys)?];
        write_json(&self.statements(), &chain)?;
        self.open(chain)
    }

    /// What is there, if anything was stated yet.
    fn read(&self) -> Result<Option<HeldKeys>, FleetError> {
        let chain: Option<Vec<SignedKeys>> = read_json(&self.statements())?;
        chain.map(|chain| self.open(chain)).transpose()
    }

    /// Finds the keys of the newest statement, and puts each in its place if it still lies beside it.
    fn open(&self, chain: Vec<SignedKeys>) -> Result<HeldKeys, FleetError> {
        let path = self.statements();
        let newest = *chain.last().ok_or_else(|| FleetError::file(&path, "it states no keys; restore the folder"))?;
        let key = |which: FleetKey| Identity::settle(&self.path(which), newest.statement.key(which).pin);
        let keys = KeyPair { coordinator: key(FleetKey::Coordinator)?, targets: key(FleetKey::Targets)? };
        Ok(HeldKeys { keys, newest, chain })
    }

    fn statements(&self) -> PathBuf {
        self.folder.join("keys.json")
    }

    pub(crate) fn path(&self, which: FleetKey) -> PathBuf {
        self.folder.join(match which {
            FleetKey::Coordinator => "key",
            FleetKey::Targets => "targets",
        })
    }

    /// Lets no other process change keys for as long as the result is held.
    fn lock(&self) -> Result<File, FleetError> {
        let path = self.folder.join("keys.lock");
        fs::create_dir_all(&self.folder).map_err(FleetError::io("make the folder", &self.folder))?;
        let file = File::create(&path).map_err(FleetError::io("create", &path))?;
        file.lock().map_err(FleetError::io("lock", &path))?;
        Ok(file)
    }
}
