//! Which records there are, how many bytes they take, and which goes first to make room.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::record::RecordId;

/// Files take whole blocks of a disk.
const DISK_BLOCK: u64 = 4096;

/// The most records; further ones take the places of others.
const MOST_RECORDS: usize = 1 << 18;

/// All records of one folder.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: HashMap<RecordId, Entry>,
    /// Files that can be read, by whose texts they are of.
    owners: BTreeMap<Salt, Owner>,
    /// Files that are to be removed.
    unusable: BTreeSet<RecordId>,
    clock: u64,
    disk_bytes: u64,
    waiting_bytes: u64,
}

/// Whose text a record is of; not known of files that an earlier process left.
type Salt = Option<u64>;

#[derive(Debug, Default)]
struct Owner {
    bytes: u64,
    /// By last use.
    records: BTreeSet<(u64, RecordId)>,
}

#[derive(Debug)]
struct Entry {
    salt: Salt,
    used: u64,
    place: Place,
}

/// Where a record is; bytes are those of whole disk blocks.
#[derive(Debug)]
enum Place {
    /// It waits to be written.
    Waiting(Arc<Vec<u8>>),
    /// It is being written.
    Writing(Arc<Vec<u8>>, u64),
    Disk(u64),
    /// A file that must not be read, and is to be removed.
    Unusable(u64),
}

/// Where a record is found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Not encrypted yet.
    Memory(Arc<Vec<u8>>),
    Disk,
}

impl Index {
    /// Where a record is, if it can be used.
    pub(super) fn find(&self, id: &RecordId) -> Option<Found> {
        match &self.entries.get(id)?.place {
            Place::Waiting(plain) | Place::Writing(plain, _) => Some(Found::Memory(Arc::clone(plain))),
            Place::Disk(_) => Some(Found::Disk),
            Place::Unusable(_) => None,
        }
    }

    /// Whether there is a record or a file of this name.
    pub(super) fn contains(&self, id: &RecordId) -> bool {
        self.entries.contains_key(id)
    }

    /// A record counts as used now.
    pub(super) fn touch(&mut self, id: &RecordId) {
        if let Some(entry) = self.take(id) {
            self.clock += 1;
            self.put(*id, Entry { used: self.clock, ..entry });
        }
    }

    /// A record of somebody's text that waits to be written from now on.
    pub(super) fn wait(&mut self, id: RecordId, salt: u64, plain: Vec<u8>) {
        self.clock += 1;
        self.put(id, Entry { salt: Some(salt), used: self.clock, place: Place::Waiting(Arc::new(plain)) });
    }

    /// What a record that waits holds.
    pub(super) fn waiting(&self, id: &RecordId) -> Option<Arc<Vec<u8>>> {
        match &self.entries.get(id)?.place {
            Place::Waiting(plain) => Some(Arc::clone(plain)),
            Place::Writing(..) | Place::Disk(_) | Place::Unusable(_) => None,
        }
    }

    /// A file that an earlier process left.
    pub(super) fn add_file(&mut self, id: RecordId, bytes: u64) {
        self.clock += 1;
        self.put(id, Entry { salt: None, used: self.clock, place: Place::Disk(disk_bytes(bytes)) });
    }

    /// Whether a file of so many bytes fits beside the others within `most`.
    pub(super) fn has_room(&self, bytes: u64, most: u64) -> bool {
        self.entries.len() <= MOST_RECORDS && self.disk_bytes.saturating_add(disk_bytes(bytes)) <= most
    }

    /// The file of a record that waits is being written from now on, and takes room.
    pub(super) fn begin_write(&mut self, id: &RecordId, bytes: u64) {
        let Some(plain) = self.waiting(id) else { return };
        if let Some(entry) = self.take(id) {
            self.put(*id, Entry { place: Place::Writing(plain, disk_bytes(bytes)), ..entry });
        }
    }

    /// The file is complete. One that was given up meanwhile stays so.
    pub(super) fn end_write(&mut self, id: &RecordId) {
        let Some(Entry { place: Place::Writing(_, bytes), .. }) = self.entries.get(id) else { return };
        let bytes = *bytes;
        if let Some(entry) = self.take(id) {
            self.put(*id, Entry { place: Place::Disk(bytes), ..entry });
        }
    }

    /// A record must not be used; its file is to be removed, if there is one.
    pub(super) fn spoil(&mut self, id: &RecordId) {
        let Some(entry) = self.take(id) else { return };
        match entry.place {
            Place::Waiting(_) => {}
            Place::Writing(_, bytes) | Place::Disk(bytes) | Place::Unusable(bytes) => {
                self.put(*id, Entry { place: Place::Unusable(bytes), ..entry });
            }
        }
    }

    /// The same of all records.
    pub(super) fn spoil_all(&mut self) {
        let all: Vec<RecordId> = self.entries.keys().copied().collect();
        all.iter().for_each(|id| self.spoil(id));
    }

    /// Records that wait are not written; returns how many those were.
    pub(super) fn discard_waiting(&mut self) -> u64 {
        let is_waiting = |(_, entry): &(&RecordId, &Entry)| matches!(entry.place, Place::Waiting(_));
        let waiting: Vec<RecordId> = self.entries.iter().filter(is_waiting).map(|(id, _)| *id).collect();
        waiting.iter().for_each(|id| self.remove(id));
        waiting.len() as u64
    }

    /// There is no such record any more, nor its file.
    pub(super) fn remove(&mut self, id: &RecordId) {
        self.take(id);
    }

    /// The file that goes first to make room: the one used longest ago, but everybody keeps half of a fair share of `most` bytes.
    pub(super) fn oldest(&self, most: u64) -> Option<RecordId> {
        let floor = most / (2 * self.owners.len().max(1) as u64);
        let oldest = |above: u64| {
            let owners = self.owners.values().filter(|owner| owner.bytes > above);
            owners.filter_map(|owner| owner.records.first()).min().map(|(_, id)| *id)
        };
        self.unusable().or_else(|| oldest(floor)).or_else(|| oldest(0))
    }

    /// A file that is of no use.
    pub(super) fn unusable(&self) -> Option<RecordId> {
        self.unusable.first().copied()
    }

    /// Records whose files can be read.
    pub(super) fn records(&self) -> u64 {
        self.owners.values().map(|owner| owner.records.len() as u64).sum()
    }

    /// Bytes of all files.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// Bytes that wait to be written.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    fn put(&mut self, id: RecordId, entry: Entry) {
        self.take(&id);
        let (waiting, disk) = entry.place.bytes();
        self.waiting_bytes += waiting;
        self.disk_bytes += disk;
        match entry.place {
            Place::Waiting(_) | Place::Writing(..) => {}
            Place::Disk(bytes) => {
                let owner = self.owners.entry(entry.salt).or_default();
                owner.bytes += bytes;
                owner.records.insert((entry.used, id));
            }
            Place::Unusable(_) => _ = self.unusable.insert(id),
        }
        self.entries.insert(id, entry);
    }

    fn take(&mut self, id: &RecordId) -> Option<Entry> {
        let entry = self.entries.remove(id)?;
        let (waiting, disk) = entry.place.bytes();
        self.waiting_bytes -= waiting;
        self.disk_bytes -= disk;
        self.unusable.remove(id);
        if let (Place::Disk(bytes), Some(owner)) = (&entry.place, self.owners.get_mut(&entry.salt)) {
            owner.bytes -= bytes;
            owner.records.remove(&(entry.used, *id));
            if owner.records.is_empty() {
                self.owners.remove(&entry.salt);
            }
        }
        Some(entry)
    }
}

impl Place {
    /// Bytes in memory, and on disk.
    fn bytes(&self) -> (u64, u64) {
        match self {
            Place::Waiting(plain) => (plain.len() as u64, 0),
            Place::Writing(plain, bytes) => (plain.len() as u64, *bytes),
            Place::Disk(bytes) | Place::Unusable(bytes) => (0, *bytes),
        }
    }
}

/// What a file of so many bytes takes.
pub(super) fn disk_bytes(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(DISK_BLOCK).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use cascadia_model::PageClass;

    use super::*;

    const MOST: u64 = 1 << 20;

    fn id(number: u8) -> RecordId {
        RecordId { name: [number; 32], class: PageClass::Full }
    }

    fn write(index: &mut Index, salt: u64, number: u8) {
        index.wait(id(number), salt, vec![number; 10]);
        index.begin_write(&id(number), 5000);
        index.end_write(&id(number));
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let mut index = Index::default();
        (1..5).for_each(|number| write(&mut index, 0, number));
        assert_eq!((index.records(), index.disk_bytes(), index.waiting_bytes()), (4, 4 * 8192, 0));
        assert!(index.has_room(8192, 5 * 8192) && !index.has_room(8193, 5 * 8192));
        index.touch(&id(1));
        assert_eq!(index.oldest(MOST), Some(id(2)));
        index.spoil(&id(4));
        index.touch(&id(4));
        assert_eq!((index.oldest(MOST), index.unusable(), index.find(&id(4))), (Some(id(4)), Some(id(4)), None));
        assert!(index.contains(&id(4)), "its file is still there");
        let mut order = Vec::new();
        while let Some(oldest) = index.oldest(MOST) {
            order.push(oldest);
            index.remove(&oldest);
        }
        assert_eq!(order, [4, 2, 3, 1].map(id));
        assert_eq!((index.records(), index.disk_bytes()), (0, 0));
    }

    #[test]
    fn a_flood_leaves_everybody_half_of_a_fair_share() {
        let mut index = Index::default();
        let most = 16 * 8192;
        (1..13).for_each(|number| write(&mut index, 1, number));
        for number in 20..120 {
            while !index.has_room(5000, most) {
                let oldest = index.oldest(most).unwrap();
                index.remove(&oldest);
            }
            write(&mut index, 2, number);
        }
        let kept: Vec<u8> = (1..13).filter(|number| index.find(&id(*number)).is_some()).collect();
        assert_eq!(kept, [9, 10, 11, 12], "a quarter of the disk, what was used last");
        assert_eq!(index.disk_bytes(), most);
    }

    #[test]
    fn a_record_is_found_wherever_it_is() {
        let mut index = Index::default();
        index.wait(id(1), 0, vec![1; 10]);
        assert_eq!(index.find(&id(1)), Some(Found::Memory(Arc::new(vec![1; 10]))));
        assert_eq!((index.oldest(MOST), index.disk_bytes(), index.waiting_bytes()), (None, 0, 10));
        index.begin_write(&id(1), 100);
        assert_eq!(index.find(&id(1)), Some(Found::Memory(Arc::new(vec![1; 10]))));
        assert_eq!((index.oldest(MOST), index.disk_bytes(), index.waiting_bytes()), (None, 4096, 10));
        index.end_write(&id(1));
        assert_eq!((index.find(&id(1)), index.waiting_bytes()), (Some(Found::Disk), 0));
    }

    #[test]
    fn what_is_given_up_while_it_is_written_stays_so() {
        let mut index = Index::default();
        index.wait(id(1), 0, vec![1; 10]);
        index.wait(id(2), 0, vec![2; 10]);
        index.begin_write(&id(1), 100);
        index.spoil_all();
        index.end_write(&id(1));
        assert_eq!((index.find(&id(1)), index.unusable()), (None, Some(id(1))));
        assert!(!index.contains(&id(2)), "it has no file");
        assert_eq!((index.disk_bytes(), index.waiting_bytes()), (4096, 0));
        index.wait(id(3), 0, vec![3; 10]);
        assert_eq!(index.discard_waiting(), 1);
        assert_eq!((index.unusable(), index.waiting_bytes()), (Some(id(1)), 0));
    }
}
