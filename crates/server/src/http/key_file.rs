//! The file of API keys: hashes of keys, and what each key allows.

use std::fs;
use std::io::Write;
use std::path::Path;

use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use crate::error::ServerError;
use crate::http::keys::Key;
use crate::os;

/// How keys begin, so that people and scanners recognise them.
pub(crate) const PREFIX: &str = "csk-";
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
    /// The adapters that it may use; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapters: Option<Vec<String>>,
    /// Whether it may add, replace and remove adapters.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub admin: bool,
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
    write_entries(path, &entries)?;
    Ok(key)
}

/// The keys of a file, without what opens anything.
pub fn list_keys(path: &Path) -> Result<Vec<KeyEntry>, ServerError> {
    read_entries(path)
}

/// Removes the key of this name from a file. Servers with that file refuse it from the next request on.
pub fn revoke_key(path: &Path, name: &str) -> Result<(), ServerError> {
    let mut entries = read_entries(path)?;
    let before = entries.len();
    entries.retain(|entry| entry.name != name);
    if entries.len() == before {
        return Err(file_error(path, format!("it has no key `{name}`; see `cascadia keys list`")));
    }
    write_entries(path, &entries)
}

pub(crate) fn read_entries(path: &Path) -> Result<Vec<KeyEntry>, ServerError> {
    let text = fs::read_to_string(path).map_err(|error| file_error(path, error.to_string()))?;
    let advice = "it should be a JSON list of objects with `name` and `hash`, as `cascadia keys new` writes it";
    serde_json::from_str(&text).map_err(|error| file_error(path, format!("{error}; {advice}")))
}

fn write_entries(path: &Path, entries: &[KeyEntry]) -> Result<(), ServerError> {
    replace_file(path, entries).map_err(|error| file_error(path, format!("{error}; is the folder writable?")))
}

/// Replaces the file in one step, so that a crash leaves the old or the new one. Only its owner can read it.
fn replace_file(path: &Path, entries: &[KeyEntry]) -> std::io::Result<()> {
    let temporary = path.with_extension("new");
    // One that an interrupted run has left may be readable by others.
    if let Err(error) = fs::remove_file(&temporary)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = os::private_file().create_new(true).open(&temporary)?;
    file.write_all(serde_json::to_string_pretty(entries)?.as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    // The name is kept too when the power goes; where folders cannot be synced, the system does so itself.
    let _ = path.parent().map(|folder| fs::File::open(folder).and_then(|folder| folder.sync_all()));
    Ok(())
}

pub(crate) fn file_error(path: &Path, problem: impl Into<String>) -> ServerError {
    ServerError::File { what: "the key file", path: path.to_path_buf(), problem: problem.into() }
}
