//! Old keys, and statements that do not lead to the newest ones, are refused.

use super::{Fleet, HOUR, SESSION, simulated};
use crate::membership::key_statement::{KeyPair, SignedKeys};
use crate::membership::shown_keys::{MOST_STATEMENTS, ShownKeys};
use crate::wire::link::fair;
use crate::{FleetKey, Identity};

#[test]
fn old_keys_are_of_no_use_once_they_are_no_longer_accepted() {
    simulated(|fleet| {
        let (near, away) = (fleet.worker("near"), fleet.worker("away"));
        fleet.ask(&near).and_then(|_| fleet.ask(&away)).expect("it is the coordinator");
        let (old, chain_then) = (fleet.held().keys().clone(), fleet.held().shown(&SESSION).expect("it signs"));
        let new = fleet.rotate(&FleetKey::ALL).keys().clone();
        assert!(fleet.ask(&near).is_ok_and(|news| news.len() == 2));
        fleet.clock.sleep(HOUR);
        let of_old = |shown: &[u8]| ShownKeys::parse(shown).expect("it was written by this program");
        // Whoever has all old keys gets nothing from a worker that knows the new ones, also after its restart.
        for near in [near, fleet.worker("near")] {
            let known = near.known();
            let refused = fleet.answered(&near, (of_old(&chain_then.bytes()), old.coordinator.pin()), [fair(), fair()]);
            assert!(refused.is_err_and(|problem| problem.contains("newest keys that this machine has seen")));
            assert!(near.known() == known && !fleet.accepts(&near, &old.coordinator));
        }
        // Whoever has one of them gets nothing from one that was away either: it has to prove both first.
        let away = fleet.worker("away");
        assert!(!away.are_proved(), "nobody has proved anything since it started");
        let thief = Identity::open_or_make(&fleet.folder.path().join("thief")).expect("a key");
        let forged = ShownKeys::new(&chain_then.chain, &KeyPair { targets: thief, ..old.clone() }, &SESSION);
        let forged = forged.expect("it signs");
        let refused = fleet.answered(&away, (forged, old.coordinator.pin()), [fair(), fair()]);
        assert!(refused.is_err() && !away.are_proved());
        assert!(fleet.ask(&away).is_ok_and(|news| news.len() == 2) && away.are_proved());
        assert!(fleet.accepts(&away, &new.coordinator));
        fleet.clock.sleep(HOUR);
        assert!(!away.are_proved(), "it lasts for a while only");
    });
}

#[test]
fn statements_that_do_not_lead_to_the_coordinator_are_refused() {
    simulated(|fleet| {
        let other = Fleet::new(&fleet.clock);
        for fleet in [fleet, &other] {
            fleet.ask(&fleet.worker("near")).expect("it is the coordinator");
            (0..3).for_each(|_| drop(fleet.rotate(&FleetKey::ALL)));
        }
        let right = fleet.held().shown(&SESSION).expect("it signs").chain;
        let foreign = other.held().shown(&SESSION).expect("it signs").chain;
        let mut re_dated = right.clone();
        re_dated[3].statement.coordinator.expires += 1;
        let cases: [(&str, Vec<SignedKeys>, &str); 7] = [
            ("nothing", Vec::new(), "newest keys"),
            ("its end is missing", right[..3].to_vec(), "newest keys"),
            ("its beginning is missing", right[2..].to_vec(), "more often than it can show"),
            ("one is missing", vec![right[0], right[1], right[3]], "more often than it can show"),
            ("in another order", vec![right[0], right[2], right[1], right[3]], "more often than it can show"),
            ("another fleet's", foreign, "another fleet"),
            ("a date was changed", re_dated, "have not signed"),
        ];
        let peer = fleet.held().keys().coordinator.pin();
        for (what, chain, problem) in cases {
            let near = fleet.worker("near");
            let known = near.known();
            let shown = ShownKeys::new(&chain, fleet.held().keys(), &SESSION).expect("it signs");
            let refused = fleet.answered(&near, (shown, peer), [fair(), fair()]);
            assert!(refused.as_ref().is_err_and(|error| error.contains(problem)), "{what}: {refused:?}");
            assert!(near.known() == known && fleet.worker("near").known() == known, "{what}");
        }
        assert!(fleet.ask(&fleet.worker("near")).is_ok_and(|news| news.len() == 2), "the right ones are followed");
    });
}

#[test]
fn whoever_missed_too_many_statements_has_to_join_again() {
    simulated(|fleet| {
        let (near, away) = (fleet.worker("near"), fleet.worker("away"));
        fleet.ask(&near).and_then(|_| fleet.ask(&away)).expect("it is the coordinator");
        // The statement after the newest that it knows is still shown.
        (0..MOST_STATEMENTS).for_each(|_| drop(fleet.rotate(&[FleetKey::Targets])));
        assert!(fleet.ask(&near).is_ok_and(|news| news.len() == 1));
        fleet.rotate(&[FleetKey::Targets]);
        let refused = fleet.ask(&away).expect_err("one is missing");
        assert!(refused.contains("more often than it can show") && refused.contains("cascadia join"), "{refused}");
        assert!(fleet.ask(&near).is_ok_and(|news| news.len() == 1));
    });
}
