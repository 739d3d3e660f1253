//! API keys: a file with their hashes, and what each key allows.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use cascadia_engine::service::{Priority, Tenant};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use tokio::sync::Semaphore;

use crate::error::ServerError;
use crate::model::frontend::Caller;
use crate::request::validate::named_priority;

/// How keys begin, so that people and scanners recognise them.
const PREFIX: &str = "csk-";
/// Random bytes of a key.
const KEY_BYTES: usize = 24;

/// A key as the file describes it; the key itself is not there.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyEntry {
    /// Whose key it is; log lines carry this name.
    pub name: String,
    /// BLAKE3 of the key, in hexadecimal.
    pub hash: String,
    /// The tenant of its requests; keys of one tenant share the prefix cache and a fair share. The name by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// `high`, `normal` or `low`; requests may ask for less. `normal` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// The most requests at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_requests: Option<u32>,
    /// The most tokens of one answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
}

/// All accepted keys.
pub(crate) struct KeyRing {
    keys: Vec<Key>,
}

/// One key, ready for use.
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) caller: Caller,
    /// Requests it may still begin.
    pub(crate) requests: Option<Arc<Semaphore>>,
    hash: [u8; 32],
}

impl KeyRing {
    /// Reads a file of keys.
    pub(crate) fn read(path: &Path) -> Result<KeyRing, ServerError> {
        let entries = read_entries(path)?;
        if entries.is_empty() {
            return Err(file_error(path, "it has no keys; make one with `cascadia keys new`"));
        }
        let keys = entries.into_iter().map(Key::new).collect::<Result<_, _>>();
        Ok(KeyRing { keys: keys.map_err(|problem| file_error(path, problem))? })
    }

    /// The key that a client sent. Takes the same time whichever it is, and whether there is one.
    pub(crate) fn find(&self, sent: &[u8]) -> Option<&Key> {
        let hash = *blake3::hash(sent).as_bytes();
        let (mut found, mut index) = (Choice::from(0), 0u32);
        for (position, key) in self.keys.iter().enumerate() {
            let equal = key.hash.ct_eq(&hash);
            index.conditional_assign(&(position as u32), equal);
            found |= equal;
        }
        bool::from(found).then(|| &self.keys[index as usize])
    }
}

impl Key {
    fn new(entry: KeyEntry) -> Result<Key, String> {
        let KeyEntry { name, hash, tenant, priority, max_requests, max_tokens } = entry;
        let wrong = |what: &str| format!("the key `{name}` has {what}");
        let hash = blake3::Hash::from_hex(&hash).map_err(|_| wrong("no hash of 64 hexadecimal digits"))?;
        let priority = match &priority {
            None => Priority::Normal,
            Some(word) => named_priority(word).ok_or_else(|| wrong("a priority other than high, normal and low"))?,
        };
        if max_requests == Some(0) || max_tokens == Some(0) {
            return Err(wrong("a limit of 0; remove the key instead"));
        }
        let tenant = blake3::hash(tenant.as_ref().unwrap_or(&name).as_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&tenant.as_bytes()[..8]);
        Ok(Key {
            caller: Caller { tenant: Tenant(u64::from_le_bytes(first)), priority, may_raise: false, max_tokens },
            requests: max_requests.map(|most| Arc::new(Semaphore::new(most as usize))),
            hash: *hash.as_bytes(),
            name,
        })
    }
}

/// Makes a key, adds its hash to a file, and returns the key, which cannot be recovered later.
pub fn new_key(path: &Path, entry: KeyEntry) -> Result<String, ServerError> {
    let mut entries = if path.exists() { read_entries(path)? } else { Vec::new() };
    if entry.name.is_empty() || entries.iter().any(|known| known.name == entry.name) {
        return Err(file_error(path, format!("the name `{}` is empty or already used; choose another", entry.name)));
    }
    let mut random = [0; KEY_BYTES];
    let filled = SystemRandom::new().fill(&mut random);
    filled.map_err(|_| file_error(path, "the system provides no random numbers; try again later"))?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let key = format!("{PREFIX}{digits}");
    let entry = KeyEntry { hash: blake3::hash(key.as_bytes()).to_hex().to_string(), ..entry };
    Key::new(entry.clone()).map_err(|problem| file_error(path, problem))?;
    entries.push(entry);
    write_entries(path, &entries).map_err(|error| file_error(path, format!("{error}; is the folder writable?")))?;
    Ok(key)
}

fn read_entries(path: &Path) -> Result<Vec<KeyEntry>, ServerError> {
    let text = fs::read_to_string(path).map_err(|error| file_error(path, error.to_string()))?;
    let advice = "it should be a JSON list of objects with `name` and `hash`, as `cascadia keys new` writes it";
    serde_json::from_str(&text).map_err(|error| file_error(path, format!("{error}; {advice}")))
}

/// Replaces the file in one step, so that a crash leaves the old or the new one.
fn write_entries(path: &Path, entries: &[KeyEntry]) -> std::io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = fs::File::create(&temporary)?;
    file.write_all(serde_json::to_string_pretty(entries)?.as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    // The name is kept too when the power goes; where folders cannot be synced, the system does so itself.
    let _ = path.parent().map(|folder| fs::File::open(folder).and_then(|folder| folder.sync_all()));
    Ok(())
}

fn file_error(path: &Path, problem: impl Into<String>) -> ServerError {
    ServerError::File { what: "the key file", path: path.to_path_buf(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_its_hash_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        let entry = |name: &str| KeyEntry { name: name.to_owned(), ..KeyEntry::default() };
        let first = new_key(&path, KeyEntry { max_tokens: Some(7), ..entry("anna") }).unwrap();
        let second = new_key(&path, KeyEntry { priority: Some("low".to_owned()), ..entry("ben") }).unwrap();
        assert!(new_key(&path, entry("anna")).is_err(), "a name is used once");
        assert!(new_key(&path, KeyEntry { priority: Some("urgent".to_owned()), ..entry("carl") }).is_err());
        assert!(new_key(&path, KeyEntry { max_requests: Some(0), ..entry("carl") }).is_err());
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&first) && !text.contains(&first[PREFIX.len()..]), "the file does not hold the key");
        let ring = KeyRing::read(&path).unwrap();
        let found = ring.find(first.as_bytes()).unwrap();
        assert_eq!((found.name.as_str(), found.caller.max_tokens), ("anna", Some(7)));
        assert_eq!(ring.find(second.as_bytes()).unwrap().caller.priority, Priority::Low);
        assert_ne!(ring.keys[0].caller.tenant, ring.keys[1].caller.tenant);
        for wrong in ["", "csk-", &first[1..], &format!("{first}0")] {
            assert!(ring.find(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }

    #[test]
    fn wrong_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        assert!(KeyRing::read(&path).is_err());
        for text in ["", "[]", "{}", r#"[{"name": "a", "hash": "00"}]"#, r#"[{"name": "a", "key": "csk-1"}]"#] {
            fs::write(&path, text).unwrap();
            assert!(KeyRing::read(&path).is_err(), "{text}");
        }
    }
}
