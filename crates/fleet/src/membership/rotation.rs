//! New keys for members: a worker asks whether it is time, and signs the new key with the old one.
//!
//! Both sides write one file each, one after the other. Whatever happens between, one of the worker's keys is known: the
//! coordinator knows the new key before the worker uses it, and forgets the old one when the new one is first used.

use std::path::Path;
use std::time::Duration;

use crate::audit::{SEAL_BYTES, Seal};
use crate::wire::frame::{Bounds, Frame, Kind, Outgoing, Wait, receive};
use crate::wire::link::{Link, LinkError};
use crate::wire::message::{MOST_MESSAGE, Reader, Writer, reason, refuse};
use crate::wire::verbs::Expecting;
use crate::{Digest, FleetError, Identity, Members};

/// How often a worker asks.
pub(crate) const ASKING: Duration = Duration::from_secs(60);
/// How long an answer may take, with a disk that takes its time.
const PATIENCE: Duration = Duration::from_secs(30);
/// What the signatures are made for, so that they are of no use for anything else.
const SUCCESSION: &[u8] = b"cascadia fleet key succession, version 1";

/// A new key: the old one signs it, and it signs that it is one.
pub(crate) struct Succession {
    pub(super) old: Seal,
    pub(super) new: Seal,
}

impl Succession {
    fn message(coordinator: Digest, old: Digest, new: Digest) -> Vec<u8> {
        [SUCCESSION, &coordinator.0, &old.0, &new.0].concat()
    }

    pub(super) fn new(coordinator: Digest, old: &Identity, new: &Identity) -> Result<Succession, FleetError> {
        let message = Succession::message(coordinator, old.pin(), new.pin());
        Ok(Succession { old: Seal::new(old, &message)?, new: Seal::new(new, &message)? })
    }

    /// The new key, if a machine with this key has chosen it for this coordinator.
    pub(super) fn check(&self, coordinator: Digest, key: Digest) -> Option<Digest> {
        let new = self.new.pin();
        let message = Succession::message(coordinator, key, new);
        // auth: succession-old, succession-new, succession-coordinator, succession-machine
        (self.old.pin() == key && self.old.holds(&message) && self.new.holds(&message)).then_some(new)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        Writer::default().bytes(&self.old.0).bytes(&self.new.0).0
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Succession, LinkError> {
        let mut reader = Reader(bytes);
        let (old, new) = (Seal(reader.array::<SEAL_BYTES>()?), Seal(reader.array::<SEAL_BYTES>()?));
        reader.end()?;
        Ok(Succession { old, new })
    }
}

/// Tells a worker with this key whether it should have a new one, and remembers it; whether there is one.
pub(crate) fn offer_rotation(
    link: &mut dyn Link,
    members: &Members,
    (coordinator, key): (Digest, Digest),
) -> Result<bool, String> {
    let said = |error: LinkError| error.to_string();
    let (due, mut frame) = (members.is_rotation_due(key), Frame::default());
    let message = Writer::default().number(due.into()).0;
    Outgoing::message(Kind::Rotate, &message).send(link, &mut Vec::new()).map_err(said)?;
    if !due {
        return Ok(false);
    }
    receive(link, &Bounds::table(Expecting::Succession, MOST_MESSAGE), &mut frame, Wait::For(PATIENCE))
        .map_err(said)?;
    let next = Succession::parse(frame.table()).map_err(said)?.check(coordinator, key);
    let remembered = match next {
        Some(next) => members.succeed(key, next).map_err(|error| error.to_string()),
        None => Err("its new key is not signed by the old one".to_owned()),
    };
    let problem = match remembered {
        Ok(true) => {
            Outgoing::message(Kind::Succeeded, &[]).send(link, &mut Vec::new()).map_err(said)?;
            return Ok(true);
        }
        Ok(false) => {
            "its new key is another machine's, or not the one it chose before; `cascadia fleet rotate` on the \
            coordinator lets it choose again"
                .to_owned()
        }
        Err(problem) => problem,
    };
    refuse(link, problem.clone());
    Err(problem)
}

/// Asks whether the key in a file should be replaced, and if so replaces it; gives the new one.
pub(crate) fn ask_rotation(
    link: &mut dyn Link,
    (path, identity): (&Path, &Identity),
    coordinator: Digest,
) -> Result<Option<Identity>, String> {
    let (mut frame, bounds) = (Frame::default(), Bounds::table(Expecting::Rotation, MOST_MESSAGE));
    let mut hear = |link: &mut dyn Link, awaited: Kind| {
        receive(link, &bounds, &mut frame, Wait::For(PATIENCE))?;
        match frame.header.kind {
            kind if kind == awaited => Ok(frame.table().to_vec()),
            Kind::Refused => Err(LinkError::Broken(reason(frame.table())?)),
            kind => Err(LinkError::Broken(format!("the coordinator answered {kind:?}"))),
        }
    };
    let failed = |error: &dyn std::fmt::Display| format!("this machine gets no new key: {error}");
    if hear(link, Kind::Rotate).map_err(|error| failed(&error))? != 1_u32.to_le_bytes() {
        return Ok(None);
    }
    let next = Identity::next(path).map_err(|error| failed(&error))?;
    let succession = Succession::new(coordinator, identity, &next).map_err(|error| failed(&error))?;
    let sent = Outgoing::message(Kind::Succeed, &succession.bytes()).send(link, &mut Vec::new());
    sent.and_then(|_| hear(link, Kind::Succeeded)).map_err(|error| failed(&error))?;
    // Used only once it is in its place: after a crash, the key that is there is one that the coordinator knows.
    Identity::replace(path).map_err(|error| failed(&error))?;
    Ok(Some(next))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Member;
    use crate::clock::{Clock, Simulation};
    use crate::json_file::{read_json, write_json};
    use crate::membership::member::{KEY_EXPIRES, KEY_ROTATES, Standing};
    use crate::wire::link::{LinkFaults, fair, timed_pair};

    /// A coordinator and one worker, in simulated time.
    struct Pair {
        clock: Clock,
        coordinator: Digest,
        members: Arc<Members>,
        folder: tempfile::TempDir,
    }

    impl Pair {
        /// With a list as older versions wrote it.
        fn new(clock: &Clock) -> Pair {
            let folder = tempfile::tempdir().expect("a folder");
            let list = folder.path().join("members.json");
            let members = Arc::new(Members::at(&list).on_clock(clock));
            let pair = Pair { clock: clock.clone(), coordinator: Digest::of(b"coordinator"), members, folder };
            let member = serde_json::json!({ "name": "node-00", "key": pair.key().pin() });
            write_json(&list, &serde_json::json!({ "members": [member], "invitations": [] })).expect("it is written");
            pair
        }

        /// The key that the worker has after a restart.
        fn key(&self) -> Identity {
            Identity::open_or_make(&self.folder.path().join("key")).expect("a key")
        }

        /// The worker connects; whether it may.
        fn connects(&self, key: Digest) -> bool {
            let may = self.members.name_of(key).as_deref() == Some("node-00");
            if may {
                self.members.came(key).expect("it is written");
            }
            may
        }

        /// Asks on a connection with faults; whether the worker has a new key.
        fn ask(&self, faults: [LinkFaults; 2]) -> Result<bool, String> {
            let (mut here, mut there) = timed_pair(&self.clock, Duration::ZERO, faults);
            let (key, members, coordinator) = (self.key(), Arc::clone(&self.members), self.coordinator);
            let pin = key.pin();
            let task = self.clock.spawn(move || offer_rotation(&mut here, &members, (coordinator, pin)));
            let asked = ask_rotation(&mut there, (&self.folder.path().join("key"), &key), coordinator);
            drop(there);
            task.join(None).expect("it ends").ok();
            asked.map(|new| new.is_some())
        }

        fn sleep(&self, seconds: u64) {
            self.clock.sleep(Duration::from_secs(seconds));
        }

        fn member(&self) -> Member {
            self.members.all().expect("it can be read").remove(0)
        }
    }

    fn simulated(test: impl FnOnce(&Clock)) {
        let simulation = Simulation::new(1);
        test(simulation.clock());
        simulation.finish();
    }

    #[test]
    fn a_key_is_replaced_after_thirty_days_and_the_old_one_refused_once_the_new_one_is_used() {
        simulated(|clock| {
            let pair = Pair::new(clock);
            let old = pair.key().pin();
            // Without a date, a key is as old as its first connection.
            pair.sleep(10 * KEY_EXPIRES);
            assert!(pair.connects(old));
            pair.sleep(KEY_ROTATES - 1);
            assert_eq!(pair.ask([fair(), fair()]), Ok(false));
            pair.sleep(1);
            assert_eq!(pair.ask([fair(), fair()]), Ok(true));
            let new = pair.key().pin();
            assert!(new != old && pair.connects(old) && pair.connects(new));
            assert!(!pair.connects(old), "the new one was used");
            assert_eq!((pair.member().key, pair.member().issued), (new, Some(clock.unix_seconds())));
            // People need not wait for that day.
            assert_eq!(pair.ask([fair(), fair()]), Ok(false));
            assert!(pair.members.rotate("node-00").expect("it is written"));
            assert!(pair.ask([fair(), fair()]) == Ok(true) && pair.connects(pair.key().pin()));
            assert_eq!(pair.ask([fair(), fair()]), Ok(false), "once is enough");
        });
    }

    #[test]
    fn a_key_of_ninety_days_is_refused_until_it_is_trusted_again() {
        simulated(|clock| {
            let pair = Pair::new(clock);
            let old = pair.key().pin();
            assert!(pair.connects(old));
            pair.sleep(KEY_EXPIRES - 1);
            assert!(pair.connects(old) && pair.members.has("node-00"));
            pair.sleep(1);
            assert!(!pair.connects(old) && !pair.members.has("node-00"));
            assert_eq!(pair.members.standing(old), Standing::Expired("node-00".to_owned()));
            assert!(pair.members.trust("node-00").expect("it is written"));
            assert!(pair.connects(old) && pair.ask([fair(), fair()]) == Ok(true) && pair.connects(pair.key().pin()));
        });
    }

    /// Fair for so many pieces, then cut.
    fn cut_after(pieces: usize) -> LinkFaults {
        let mut left = pieces;
        Box::new(move |piece| {
            left = left.checked_sub(1)?;
            Some(vec![piece])
        })
    }

    #[test]
    fn no_interruption_locks_a_machine_out() {
        for (from_coordinator, from_worker) in [(0, 9), (1, 0), (1, 9), (2, 9)] {
            simulated(|clock| {
                let pair = Pair::new(clock);
                let old = pair.key().pin();
                pair.members.rotate("node-00").expect("it is written");
                let rotated = pair.ask([cut_after(from_coordinator), cut_after(from_worker)]) == Ok(true);
                assert_eq!(rotated, from_coordinator == 2);
                // Whatever was lost, the worker comes with the key that it has, and gets its new one in the end.
                let has = pair.key().pin();
                assert!(pair.connects(has), "{from_coordinator} and {from_worker} pieces");
                assert!(pair.ask([fair(), fair()]) == Ok(!rotated) && pair.connects(pair.key().pin()));
                assert!(pair.key().pin() != old && !pair.connects(old));
            });
        }
    }

    #[test]
    fn a_crash_before_the_new_key_is_in_its_place_changes_nothing() {
        simulated(|clock| {
            let pair = Pair::new(clock);
            let (old, path) = (pair.key(), pair.folder.path().join("key"));
            pair.members.rotate("node-00").expect("it is written");
            // It was made and remembered; the worker ended before it could put it there.
            let next = Identity::next(&path).expect("a key");
            assert!(pair.members.succeed(old.pin(), next.pin()).expect("it is written"));
            assert!(pair.connects(pair.key().pin()) && pair.key().pin() == old.pin());
            assert_eq!(pair.ask([fair(), fair()]), Ok(true));
            assert!(pair.key().pin() == next.pin() && pair.connects(next.pin()), "it is the same new key");
        });
    }

    #[test]
    fn only_the_old_key_makes_a_new_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = |name: &str| Identity::open_or_make(&folder.path().join(name)).expect("a key");
        let (old, new, other, fleet) = (key("old"), key("new"), key("other"), Digest::of(b"coordinator"));
        let right = Succession::new(fleet, &old, &new).expect("it signs");
        let read = Succession::parse(&right.bytes()).expect("it can be read");
        assert_eq!(read.check(fleet, old.pin()), Some(new.pin()));
        assert_eq!(read.check(fleet, other.pin()), None, "of another machine");
        assert_eq!(read.check(Digest::of(b"another"), old.pin()), None, "for another coordinator");
        let forged = Succession::new(fleet, &other, &new).expect("it signs");
        assert_eq!(Succession { old: right.old, new: forged.new }.check(fleet, old.pin()), None, "not by the new key");
        assert_eq!(Succession { old: forged.old, new: right.new }.check(fleet, old.pin()), None, "not by the old key");
    }

    #[test]
    fn a_machine_cannot_take_the_key_of_another() {
        simulated(|clock| {
            let pair = Pair::new(clock);
            let (own, other) = (pair.key().pin(), Digest::of(b"other"));
            let path = pair.folder.path().join("members.json");
            let mut list: serde_json::Value = read_json(&path).expect("it can be read").expect("it is there");
            list["members"]
                .as_array_mut()
                .expect("a list")
                .push(serde_json::json!({ "name": "node-01", "key": other }));
            write_json(&path, &list).expect("it is written");
            assert_eq!(pair.members.succeed(own, other).ok(), Some(false));
            assert_eq!(pair.members.succeed(own, own).ok(), Some(false));
            assert_eq!(pair.members.name_of(other).as_deref(), Some("node-01"));
            // It chooses once, and may say so again.
            let choose = |key: &[u8]| pair.members.succeed(own, Digest::of(key)).expect("it is written");
            assert_eq!([b"first", b"first", b"later"].map(|key| choose(key)), [true, true, false]);
            assert!(pair.members.rotate("node-00").expect("it is written") && choose(b"later"), "people let it");
        });
    }
}
