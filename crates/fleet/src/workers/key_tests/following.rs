//! Workers follow to the newest keys, wherever they were, and so does the audit log.

use std::time::Duration;

use super::{HOUR, NODES, simulated};
use crate::json_file::read_json;
use crate::membership::member::{KEY_EXPIRES, KEY_ROTATES};
use crate::{AuditLog, Auditor, Decision, Digest, Entry, FleetKey, SignedHead, Verb};

#[test]
fn workers_follow_to_the_newest_keys_wherever_they_were() {
    simulated(|fleet| {
        let (near, away) = (fleet.worker("near"), fleet.worker("away"));
        let first = fleet.held().keys().clone();
        assert_eq!(fleet.ask(&near), Ok(Vec::new()), "it learns the dates of keys that it has");
        assert_eq!(fleet.ask(&near).map(|news| news.len()), Ok(0));
        let changes: [(&[FleetKey], &[&str]); 3] = [
            (&[FleetKey::Coordinator], &["the coordinator has a new key, signed with the old one"]),
            (&[FleetKey::Targets], &["the fleet has a new targets key, signed with the old one"]),
            (
                &FleetKey::ALL,
                &[
                    "the coordinator has a new key, signed with the old one",
                    "the fleet has a new targets key, signed with the old one",
                ],
            ),
        ];
        for (which, news) in changes {
            let before = fleet.held().keys().clone();
            let after = fleet.rotate(which).keys().clone();
            // Until it has asked, it works for who it knows.
            assert!(fleet.accepts(&near, &before.coordinator) && fleet.takes_push(&near, &before.targets));
            assert_eq!(fleet.ask(&near).as_deref(), Ok(news));
            for keys in [&before, &after] {
                assert!(fleet.accepts(&near, &keys.coordinator) && fleet.takes_push(&near, &keys.targets));
                assert!(fleet.takes_head(&near, &keys.coordinator));
            }
        }
        assert!(fleet.ask(&away).is_ok_and(|news| news.len() == 1), "it had not heard of any targets key");
        assert_eq!(away.known(), near.known());
        for node in NODES {
            assert_eq!(fleet.worker(node).known(), near.known(), "it is so after a restart");
        }
        let newest = fleet.held().keys().clone();
        fleet.clock.sleep(HOUR);
        for worker in [&near, &away] {
            assert!(fleet.accepts(worker, &newest.coordinator) && fleet.takes_push(worker, &newest.targets));
            assert!(!fleet.accepts(worker, &first.coordinator) && !fleet.takes_push(worker, &first.targets));
            assert!(fleet.takes_head(worker, &newest.coordinator) && !fleet.takes_head(worker, &first.coordinator));
        }
    });
}

#[test]
fn keys_are_replaced_every_thirty_days_and_expire_after_ninety() {
    simulated(|fleet| {
        let (near, away) = (fleet.worker("near"), fleet.worker("away"));
        fleet.ask(&near).and_then(|_| fleet.ask(&away)).expect("it is the coordinator");
        let due = || fleet.keys.rotate_due().expect("it is written");
        for _ in 0..4 {
            fleet.clock.sleep(Duration::from_secs(KEY_ROTATES - 1));
            assert!(due().is_empty());
            fleet.clock.sleep(Duration::from_secs(1));
            assert_eq!(due(), FleetKey::ALL);
            assert_eq!((due(), fleet.ask(&near).map(|news| news.len())), (Vec::new(), Ok(2)));
        }
        // The other one was away for 120 days.
        let refused = fleet.ask(&away).expect_err("what it knows is too old");
        for part in ["expired 30 days ago", "cascadia fleet rotate --coordinator --targets", "cascadia join"] {
            assert!(refused.contains(part), "{refused}");
        }
        assert_eq!(away.coordinator().err(), Some(refused));
        // A coordinator that was off for so long is refused too, and so is what it pushes.
        assert!(fleet.takes_push(&near, &fleet.held().keys().targets));
        fleet.clock.sleep(Duration::from_secs(KEY_EXPIRES));
        assert!(fleet.ask(&near).is_err_and(|problem| problem.contains("the coordinator's key expired 0 days ago")));
        assert!(!fleet.takes_push(&near, &fleet.held().keys().targets));
        // One key that is replaced does not make the other one younger.
        let before = *fleet.held().newest();
        let after = *fleet.rotate(&[FleetKey::Targets]).newest();
        assert!(after.coordinator == before.coordinator && after.targets.expires > before.targets.expires);
    });
}

#[test]
fn every_change_is_in_the_audit_log_which_all_keys_have_signed() {
    simulated(|fleet| {
        let log = AuditLog::at(&fleet.folder.path().join("audit")).on_clock(&fleet.clock);
        let auditor = Auditor::new(log.clone(), fleet.held().keys().coordinator.clone()).with_keys(&fleet.keys);
        let (near, mut heads) = (fleet.worker("near"), Vec::new());
        for which in [&[FleetKey::Coordinator][..], &[FleetKey::Targets], &FleetKey::ALL] {
            auditor.record(Entry::admin(Verb::Invite)).expect("it is written");
            heads.push(log.own_heads().expect("they can be read")[0]);
            let now = fleet.rotate(which);
            fleet.ask(&near).expect("it is the coordinator");
            let mut records = Vec::new();
            log.read(|record, _| records.push(record.entry.clone())).expect("it is whole");
            let last = records.last().expect("there are some");
            assert_eq!((last.verb, last.decision, last.who.as_str()), (Verb::Rotate, Decision::Allowed, "admin"));
            assert_eq!(last.digest, Some(now.newest().key(which[0]).pin));
            assert!(which.iter().all(|key| last.note.contains(key.name())), "{}", last.note);
        }
        let signers: Vec<Digest> = heads.iter().map(|head| head.seal.pin()).collect();
        assert!(signers[0] != signers[1] && signers[1] == signers[2], "only the coordinator's key signs heads");
        let pins = fleet.held().coordinator_pins();
        let verify = |keys: &[Digest]| log.verify(keys, &log.own_heads().expect("heads"), &[heads.clone()]);
        assert!(verify(&pins).is_ok() && verify(&pins[pins.len() - 1..]).is_err());
        // Countersigned with what it has learned, the newest head is kept.
        let newest: SignedHead = read_json(&log.folder().join("head.json")).expect("it can be read").expect("a head");
        assert!(near.witnesses().see(newest).is_ok());
    });
}
