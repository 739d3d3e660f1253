//! A cache of the compiled formats that were used last.

use std::collections::HashMap;
use std::sync::Arc;

/// A bounded map in which the entry unused for longest makes room for a new one.
pub(super) struct Cache<T> {
    entries: HashMap<String, Entry<T>>,
    most_entries: usize,
    most_bytes: usize,
    bytes: usize,
    clock: u64,
}

struct Entry<T> {
    value: Arc<T>,
    bytes: usize,
    used: u64,
}

impl<T> Cache<T> {
    pub(super) fn new(most_entries: usize, most_bytes: usize) -> Cache<T> {
        Cache { entries: HashMap::new(), most_entries, most_bytes, bytes: 0, clock: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&mut self, key: &str) -> Option<Arc<T>> {
        self.clock += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.clock;
        Some(Arc::clone(&entry.value))
    }

    /// Keeps a value of about this many bytes, unless it alone would drive out most others.
    pub(super) fn insert(&mut self, key: String, value: Arc<T>, bytes: usize) {
        if bytes > self.most_bytes / 4 {
            return;
        }
        self.remove(&key);
        while self.entries.len() >= self.most_entries || self.bytes + bytes > self.most_bytes {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            self.remove(&oldest);
        }
        self.clock += 1;
        self.bytes += bytes;
        self.entries.insert(key, Entry { value, bytes, used: self.clock });
    }

    fn remove(&mut self, key: &str) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_unused_for_longest_leaves() {
        let mut cache = Cache::new(3, 100);
        for (key, bytes) in [("a", 10), ("b", 10), ("c", 10)] {
            cache.insert(key.into(), Arc::new(key), bytes);
        }
        assert!(cache.get("a").is_some());
        cache.insert("d".into(), Arc::new("d"), 10);
        assert!(cache.get("b").is_none() && cache.get("a").is_some());
        cache.insert("e".into(), Arc::new("e"), 25);
        cache.insert("f".into(), Arc::new("f"), 25);
        cache.insert("g".into(), Arc::new("g"), 25);
        assert_eq!(cache.bytes, 75);
        cache.insert("h".into(), Arc::new("h"), 26);
        assert!(cache.get("h").is_none());
        assert_eq!(cache.len(), 3);
    }
}
