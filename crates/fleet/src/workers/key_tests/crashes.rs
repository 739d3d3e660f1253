//! Crashes, cut connections and disks that fail leave the old keys or the new ones, on both sides.

use std::fs;
use std::path::Path;

use super::{HOUR, SESSION, simulated};
use crate::wire::link::LinkFaults;
use crate::{FleetKey, FleetKeys, Rotation};

/// Fair for so many pieces, then cut.
fn cut_after(pieces: usize) -> LinkFaults {
    let mut left = pieces;
    Box::new(move |piece| {
        left = left.checked_sub(1)?;
        Some(vec![piece])
    })
}

/// Copies the files of a folder.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).expect("it can be copied");
    }
}

#[test]
fn nothing_is_used_before_it_is_written_down() {
    simulated(|fleet| {
        let near = fleet.worker("near");
        fleet.ask(&near).expect("it is the coordinator");
        let (known, new) = (near.known(), fleet.rotate(&FleetKey::ALL).keys().clone());
        // A folder cannot be replaced by a file.
        let path = fleet.folder.path().join("near/worker/fleet.json");
        let text = fs::read(&path).expect("it is there");
        fs::remove_file(&path).and_then(|()| fs::create_dir(&path)).expect("it can be replaced");
        assert!(fleet.ask(&near).is_err_and(|problem| problem.contains("cannot write down")));
        assert!(near.known() == known && !fleet.accepts(&near, &new.coordinator));
        assert!(!fleet.takes_head(&near, &new.coordinator));
        fs::remove_dir(&path).and_then(|()| fs::write(&path, text)).expect("it can be replaced");
        assert!(fleet.ask(&near).is_ok_and(|news| news.len() == 2) && fleet.accepts(&near, &new.coordinator));
    });
}

#[test]
fn no_interruption_of_a_worker_loses_its_coordinator() {
    for (from_coordinator, from_worker) in [(0, 9), (1, 9), (2, 0), (2, 9), (9, 9)] {
        simulated(|fleet| {
            let near = fleet.worker("near");
            fleet.ask(&near).expect("it is the coordinator");
            // It gets a key of its own too.
            fleet.members.rotate("near").expect("it is written");
            let (old, new) = (fleet.held().keys().clone(), fleet.rotate(&FleetKey::ALL).keys().clone());
            let shown = fleet.held().shown(&SESSION).expect("it signs");
            let faults = [cut_after(from_coordinator), cut_after(from_worker)];
            let asked = fleet.answered(&near, (shown, new.coordinator.pin()), faults);
            let follows = from_coordinator > 0;
            assert_eq!(asked.is_ok(), from_coordinator == 9, "{asked:?}");
            // The power goes.
            drop(near);
            let near = fleet.worker("near");
            let known = if follows { &new } else { &old };
            assert_eq!(near.known().coordinator, known.coordinator.pin());
            fleet.ask(&near).expect("it is the coordinator");
            assert!(near.known().coordinator == new.coordinator.pin() && fleet.accepts(&near, &new.coordinator));
        });
    }
}

#[test]
fn a_crash_at_any_write_leaves_the_old_keys_or_the_new_ones() {
    simulated(|fleet| {
        fleet.ask(&fleet.worker("near")).expect("it is the coordinator");
        let (folder, old) = (fleet.folder.path().join("coordinator"), *fleet.held().newest());
        let [before, after] = ["before", "after"].map(|name| fleet.folder.path().join(name));
        copy(&folder, &before);
        let new = *fleet.rotate(&FleetKey::ALL).newest();
        copy(&folder, &after);
        // What is written, one after the other: each is there as a whole or not at all.
        let writes: [(&str, &str); 5] = [
            ("key", "key.next"),
            ("targets", "targets.next"),
            ("keys.json", "keys.json"),
            ("key", ""),
            ("targets", ""),
        ];
        for count in 0..=writes.len() {
            let crashed = fleet.folder.path().join(format!("crashed-{count}"));
            copy(&before, &crashed);
            for (name, to) in &writes[..count] {
                match *to {
                    "" => fs::rename(crashed.join(name).with_extension("next"), crashed.join(name)).expect("renamed"),
                    to => drop(fs::copy(after.join(name), crashed.join(to)).expect("copied")),
                }
            }
            fs::write(crashed.join(".tmp-unfinished"), "{").expect("a file that a crash has left");
            let keys = FleetKeys::at(&crashed).on_clock(&fleet.clock);
            let held = keys.current().expect("it starts");
            assert_eq!(*held.newest(), if count < 3 { old } else { new }, "after {count} writes");
            let pins = [held.keys().coordinator.pin(), held.keys().targets.pin()];
            assert_eq!(pins, [held.newest().coordinator.pin, held.newest().targets.pin]);
            // It goes on from there, and a worker that knows the old keys follows.
            let again = keys.rotate(Rotation { which: &FleetKey::ALL, grace: HOUR, who: "admin" }).expect("written");
            assert_eq!(again.newest().number, held.newest().number + 1);
            assert_ne!(again.keys().coordinator.pin(), pins[0]);
            let (worker, shown) = (fleet.worker("near"), again.shown(&SESSION).expect("it signs"));
            let known =
                worker.known().follow(&shown, (again.keys().coordinator.pin(), &SESSION), fleet.clock.unix_seconds());
            assert_eq!(known.map(|known| known.number()), Ok(Some(again.newest().number)));
        }
    });
}

#[test]
fn what_cannot_be_written_or_recorded_changes_no_key() {
    simulated(|fleet| {
        let before = *fleet.held().newest();
        let rotation = Rotation { which: &FleetKey::ALL, grace: HOUR, who: "admin" };
        let (audit, statements) =
            (fleet.folder.path().join("audit"), fleet.folder.path().join("coordinator/keys.json"));
        fs::write(&audit, "no folder").expect("it can be written");
        assert!(fleet.keys.rotate(rotation).is_err(), "it cannot be recorded");
        assert_eq!(*fleet.held().newest(), before);
        fs::remove_file(&audit).expect("it can be removed");
        let text = fs::read(&statements).expect("it is there");
        fs::remove_file(&statements).and_then(|()| fs::create_dir(&statements)).expect("it can be replaced");
        // A running server goes on with what it has read.
        assert_eq!(*fleet.held().newest(), before);
        assert!(fleet.keys.rotate(rotation).is_err());
        fs::remove_dir(&statements).and_then(|()| fs::write(&statements, text)).expect("it can be replaced");
        assert_eq!(*fleet.held().newest(), before);
        assert_eq!(fleet.keys.rotate(rotation).expect("it is written").newest().number, 1);
    });
}
