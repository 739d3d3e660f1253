//! API keys: those of a file, as it is now.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cascadia_engine::service::{Priority, Tenant};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use tokio::sync::Semaphore;

use crate::error::ServerError;
use crate::http::key_file::{KeyEntry, file_error, read_entries};
use crate::model::adapters::check_name;
use crate::model::frontend::Caller;
use crate::os::{self, FileStamp};
use crate::request::validate::named_priority;

/// All accepted keys. The file is read again when it has changed, so that a key that was added or revoked needs no
/// restart.
pub(crate) struct KeyRing {
    path: PathBuf,
    current: Mutex<Current>,
}

/// The file as it was read last.
struct Current {
    /// None while the file is gone.
    stamp: Option<FileStamp>,
    keys: Vec<Arc<Key>>,
}

/// One key, ready for use.
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) caller: Caller,
    /// Requests it may still begin.
    pub(crate) requests: Option<Arc<Semaphore>>,
    max_requests: Option<u32>,
    hash: [u8; 32],
}

impl KeyRing {
    /// Reads a file of keys.
    pub(crate) fn read(path: &Path) -> Result<KeyRing, ServerError> {
        let stamp = os::file_stamp(path).ok();
        let keys = read_keys(path)?;
        if keys.is_empty() {
            return Err(file_error(path, "it has no keys; make one with `cascadia keys new`"));
        }
        Ok(KeyRing { path: path.to_owned(), current: Mutex::new(Current { stamp, keys }) })
    }

    /// The key that a client sent. Takes the same time whichever it is, and whether there is one.
    pub(crate) fn find(&self, sent: &[u8]) -> Option<Arc<Key>> {
        let current = self.current();
        let hash = *blake3::hash(sent).as_bytes();
        let (mut found, mut index) = (Choice::from(0), 0u32);
        for (position, key) in current.keys.iter().enumerate() {
            let equal = key.hash.ct_eq(&hash);
            index.conditional_assign(&(position as u32), equal);
            found |= equal;
        }
        bool::from(found).then(|| Arc::clone(&current.keys[index as usize]))
    }

    /// The keys, read again if the file is another one now. One that cannot be read changes nothing.
    fn current(&self) -> MutexGuard<'_, Current> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the file is read: if it changes in between, it is read once more.
        let stamp = os::file_stamp(&self.path).ok();
        if stamp != current.stamp {
            current.stamp = stamp;
            match read_keys(&self.path) {
                Ok(keys) => current.replace(keys),
                Err(error) => tracing::warn!(%error, "the keys stay as they were"),
            }
        }
        current
    }
}

impl Current {
    /// Takes new keys. What is left of a key's requests is not affected by that.
    fn replace(&mut self, mut keys: Vec<Arc<Key>>) {
        for key in keys.iter_mut().filter_map(Arc::get_mut) {
            let before = self.keys.iter().find(|old| old.hash == key.hash && old.max_requests == key.max_requests);
            if let Some(before) = before {
                key.requests.clone_from(&before.requests);
            }
        }
        tracing::info!(keys = keys.len(), "read the key file again");
        self.keys = keys;
    }
}

fn read_keys(path: &Path) -> Result<Vec<Arc<Key>>, ServerError> {
    let keys = read_entries(path)?.into_iter().map(|entry| Key::new(entry).map(Arc::new));
    keys.collect::<Result<_, _>>().map_err(|problem| file_error(path, problem))
}

impl Key {
    pub(crate) fn new(entry: KeyEntry) -> Result<Key, String> {
        let KeyEntry { name, hash, tenant, priority, max_requests, max_tokens, adapters, admin } = entry;
        let wrong = |what: &str| format!("the key `{name}` has {what}");
        let hash = blake3::Hash::from_hex(&hash).map_err(|_| wrong("no hash of 64 hexadecimal digits"))?;
        let priority = match &priority {
            None => Priority::Normal,
            Some(word) => named_priority(word).ok_or_else(|| wrong("a priority other than high, normal and low"))?,
        };
        if max_requests == Some(0) || max_tokens == Some(0) {
            return Err(wrong("a limit of 0; remove the key instead"));
        }
        if let Some(problem) = adapters.iter().flatten().find_map(|adapter| check_name(adapter).err()) {
            return Err(wrong(&format!("a wrong adapter: {problem}")));
        }
        let tenant = blake3::hash(tenant.as_ref().unwrap_or(&name).as_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&tenant.as_bytes()[..8]);
        Ok(Key {
            caller: Caller {
                tenant: Tenant(u64::from_le_bytes(first)),
                priority,
                may_raise: false,
                max_tokens,
                adapters: adapters.map(Arc::from),
                is_admin: admin,
            },
            requests: max_requests.map(|most| Arc::new(Semaphore::new(most as usize))),
            max_requests,
            hash: *hash.as_bytes(),
            name,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::http::key_file::{PREFIX, list_keys, new_key, revoke_key};

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
        let adapters = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        assert!(new_key(&path, KeyEntry { adapters: adapters(&["pepys", "../rust"]), ..entry("carl") }).is_err());
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&first) && !text.contains(&first[PREFIX.len()..]), "the file does not hold the key");
        let ring = KeyRing::read(&path).unwrap();
        let found = ring.find(first.as_bytes()).unwrap();
        assert_eq!((found.name.as_str(), found.caller.max_tokens), ("anna", Some(7)));
        assert_eq!(ring.find(second.as_bytes()).unwrap().caller.priority, Priority::Low);
        assert_ne!(found.caller.tenant, ring.find(second.as_bytes()).unwrap().caller.tenant);
        for wrong in ["", "csk-", &first[1..], &format!("{first}0")] {
            assert!(ring.find(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }

    #[test]
    fn changes_of_the_file_count_from_the_next_request_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        let entry = |name: &str| KeyEntry { name: name.to_owned(), max_requests: Some(1), ..KeyEntry::default() };
        let anna = new_key(&path, entry("anna")).unwrap();
        let ring = KeyRing::read(&path).unwrap();
        let running = ring.find(anna.as_bytes()).unwrap().requests.clone().unwrap().try_acquire_owned().unwrap();
        let ben = new_key(&path, entry("ben")).unwrap();
        assert!(ring.find(ben.as_bytes()).is_some(), "no restart is needed");
        let known = ring.find(anna.as_bytes()).unwrap().requests.clone().unwrap();
        assert_eq!(known.available_permits(), 0, "its request still counts");
        drop(running);
        fs::write(&path, "not finished").unwrap();
        assert!(ring.find(anna.as_bytes()).is_some(), "a damaged file changes nothing");
        fs::remove_file(&path).unwrap();
        assert!(ring.find(anna.as_bytes()).is_some(), "nor does one that is gone");
        let carl = new_key(&path, entry("carl")).unwrap();
        assert!(ring.find(anna.as_bytes()).is_none() && ring.find(carl.as_bytes()).is_some());
        assert!(revoke_key(&path, "anna").is_err(), "it is not there");
        revoke_key(&path, "carl").unwrap();
        assert!(ring.find(carl.as_bytes()).is_none(), "the last key may be revoked too");
        assert!(list_keys(&path).unwrap().is_empty());
    }

    #[test]
    fn a_key_may_use_all_adapters_unless_it_lists_some() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        let entry = |name: &str| KeyEntry { name: name.to_owned(), ..KeyEntry::default() };
        let any = new_key(&path, entry("anna")).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("adapters") && !text.contains("admin"), "older servers read it too: {text}");
        let one = new_key(&path, KeyEntry { adapters: Some(vec!["pepys".to_owned()]), ..entry("ben") }).unwrap();
        let none = new_key(&path, KeyEntry { adapters: Some(Vec::new()), admin: true, ..entry("carl") }).unwrap();
        let ring = KeyRing::read(&path).unwrap();
        for (key, expected) in [(any, (true, true, false)), (one, (true, false, false)), (none, (false, false, true))] {
            let caller = ring.find(key.as_bytes()).unwrap().caller.clone();
            assert_eq!((caller.may_use("pepys"), caller.may_use("rust"), caller.is_admin), expected);
        }
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_can_read_the_file() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        fs::write(&path, "[]").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(path.with_extension("new"), "of an interrupted run").unwrap();
        new_key(&path, KeyEntry { name: "anna".to_owned(), ..KeyEntry::default() }).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
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
