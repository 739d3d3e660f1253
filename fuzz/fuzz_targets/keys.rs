//! Reads arbitrary bytes as the file of API keys: as a server does, and as the commands do that change it.
#![no_main]

use cascadia_fuzz::{folder, with_file};
use cascadia_server::fuzzing::check_keys;
use cascadia_server::{KeyEntry, list_keys, new_key, revoke_key};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (listed, accepted) = with_file("keys.json", bytes, |path| (list_keys(path), check_keys(path)));
    let Ok(entries) = listed else {
        assert!(accepted.is_err(), "a server accepts a file that cannot be listed");
        return;
    };
    let path = folder().join("keys.json");
    let entry = KeyEntry { name: "one more".to_owned(), ..KeyEntry::default() };
    if new_key(&path, entry).is_ok() {
        revoke_key(&path, "one more").expect("it has just been added");
        assert_eq!(list_keys(&path).expect("it was written by this program").len(), entries.len());
    }
});
