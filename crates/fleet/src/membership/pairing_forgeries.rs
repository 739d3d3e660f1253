//! One forgery for every check of a pairing code: right in everything but what that check looks at.

use std::time::Duration;

use super::forgeries::{Case, Fleet, OPEN, SESSION};
use super::key_exchange::{Connection, End, KeyExchange};
use super::pairings::{MOST_WRONG, PairRefusal, PairedMachine, PairingTry, Pairings, ShownPairing};
use crate::{Digest, PairingCode};

pub(super) const CASES: &[(&str, Case)] = &[
    ("pairing-code", |fleet, forged| {
        let typed = forged.or("K7QF-3MXQ", CODE);
        proves(typed, [fleet.connection(), fleet.connection()], End::Joiner)
    }),
    ("pairing-joiner", |fleet, forged| {
        // Somebody between shows the code's proof on a connection with another key.
        let there =
            Connection { joiner: forged.or(Digest::of(b"thief"), fleet.connection().joiner), ..fleet.connection() };
        proves(CODE, [fleet.connection(), there], End::Joiner)
    }),
    ("pairing-coordinator", |fleet, forged| {
        let coordinator = forged.or(Digest::of(b"thief"), fleet.connection().coordinator);
        proves(CODE, [fleet.connection(), Connection { coordinator, ..fleet.connection() }], End::Joiner)
    }),
    ("pairing-session", |fleet, forged| {
        let there = Connection { session: forged.or(&[2; 32], &SESSION), ..fleet.connection() };
        proves(CODE, [fleet.connection(), there], End::Joiner)
    }),
    ("pairing-direction", |fleet, forged| {
        // The coordinator hears its own proof.
        proves(CODE, [fleet.connection(), fleet.connection()], forged.or(End::Coordinator, End::Joiner))
    }),
    ("pairing-expiry", |fleet, forged| {
        let shown = fleet.show(1);
        fleet.clock.sleep(Duration::from_secs(OPEN - forged.or(0, 1)));
        fleet.tries(&shown, &fleet.code(&shown), true).is_ok()
    }),
    ("pairing-tries", |fleet, forged| {
        let shown = fleet.show(1);
        let code = fleet.code(&shown);
        for wrong in 1..MOST_WRONG + forged.or(1, 0) {
            assert_eq!(fleet.tries(&shown, &code, false), Err(PairRefusal::Wrong(MOST_WRONG - wrong)));
        }
        fleet.tries(&shown, &code, true).is_ok()
    }),
    ("pairing-uses", |fleet, forged| {
        let shown = fleet.show(forged.or(1, 2));
        assert_eq!(fleet.tries(&shown, &fleet.code(&shown), true), Ok(()));
        fleet.tries(&shown, &fleet.code(&shown), true).is_ok()
    }),
    ("pairing-shown", |fleet, forged| {
        let shown = fleet.show(1);
        let (code, pairings) = (fleet.code(&shown), fleet.pairings());
        let _shown = forged.or(None, Some(shown));
        pairings.decide(&tried(&code, true)).is_ok()
    }),
    ("pairing-excluded", |fleet, forged| {
        fleet.members.distrust(forged.or("node", "other"), "it was wrong").expect("it is written");
        fleet.members.admit("node", fleet.key("node").pin(), String::new()).expect("it is written").is_some()
    }),
];

const CODE: &str = "K7QF-3MXP";

/// Whether the coordinator believes a machine whose code was typed so, on the connections that each of them sees.
fn proves(typed: &str, [here, there]: [Connection<'_>; 2], shown: End) -> bool {
    let code = |text: &str| text.parse::<PairingCode>().expect("a code");
    let (joiner, start) = KeyExchange::begin(End::Joiner, &code(typed), here);
    let (coordinator, answer) = KeyExchange::begin(End::Coordinator, &code(CODE), there);
    let [joiner, coordinator] =
        [joiner.finish(&answer, here), coordinator.finish(&start, there)].map(|shared| shared.expect("a point"));
    let proof = if shown == End::Joiner { joiner.proof(shown) } else { coordinator.proof(shown) };
    coordinator.is_proof(End::Joiner, &proof)
}

fn tried(code: &PairingCode, is_right: bool) -> PairingTry<'_> {
    PairingTry { code, address: "10.0.0.9".to_owned(), is_right, is_member: false }
}

impl Fleet {
    fn connection(&self) -> Connection<'static> {
        Connection { session: &SESSION, coordinator: self.key("coordinator").pin(), joiner: self.key("new").pin() }
    }

    fn pairings(&self) -> Pairings {
        Pairings::at(&self.path("pairing.json")).on_clock(&self.clock)
    }

    fn show(&self, machines: u32) -> ShownPairing {
        self.pairings().show(machines, self.clock.unix_seconds() + OPEN).expect("it is written")
    }

    fn code(&self, shown: &ShownPairing) -> PairingCode {
        shown.current().expect("it is read").expect("it is there").code
    }

    fn tries(&self, _shown: &ShownPairing, code: &PairingCode, is_right: bool) -> Result<(), PairRefusal> {
        // As another process does, which only listens.
        self.pairings().decide(&tried(code, is_right))
    }
}

#[test]
fn many_tries_at_a_time_are_three_and_the_right_one_comes_too_late() {
    let folder = tempfile::tempdir().expect("a folder");
    let pairings = || Pairings::at(&folder.path().join("pairing.json"));
    let shown = pairings().show(10, u64::MAX).expect("it is written");
    let code = shown.current().expect("it is read").expect("it is there").code;
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let tries: Vec<_> = (0..32).map(|_| scope.spawn(|| pairings().decide(&tried(&code, false)))).collect();
        tries.into_iter().map(|tried| tried.join().expect("it ends")).collect()
    });
    let told = |outcome: &&Result<(), PairRefusal>| matches!(outcome, Err(PairRefusal::Wrong(_)));
    assert_eq!(outcomes.iter().filter(told).count(), MOST_WRONG as usize);
    assert_eq!(pairings().decide(&tried(&code, true)), Err(PairRefusal::Burned));
    // The old code is refused after there is a new one, right or not.
    shown.renew().expect("it is written");
    let next = shown.current().expect("it is read").expect("it is there");
    assert!(next.code != code && next.wrong == 0);
    assert_eq!(pairings().decide(&tried(&code, true)), Err(PairRefusal::Burned));
    assert_eq!(pairings().decide(&tried(&next.code, true)), Ok(()));
}

#[test]
fn whoever_shows_a_code_again_shows_the_same_with_its_count_until_it_is_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let pairings = || Pairings::at(&folder.path().join("pairing.json"));
    let now = |shown: &ShownPairing| shown.current().expect("it is read").expect("it is there");
    let shown = pairings().show(2, u64::MAX).expect("it is written");
    assert!(pairings().show(2, u64::MAX).is_err(), "one process shows it");
    let code = now(&shown).code;
    assert_eq!(pairings().decide(&tried(&code, false)), Err(PairRefusal::Wrong(2)));
    let machine = PairedMachine { node: "library-pc".to_owned(), agreed: "abcd-efgh".to_owned() };
    assert_eq!(pairings().decide(&tried(&code, true)), Ok(()));
    pairings().joined(machine.clone()).expect("it is written");
    // One that has not heard of it comes again, and is one machine.
    pairings().joined(machine.clone()).expect("it is written");
    assert_eq!((now(&shown).joined, now(&shown).wrong), (vec![machine], 1));
    // A machine that is refused again and again is told of once.
    let mut refused = now(&shown).refused;
    assert_eq!(refused.pop().map(|refused| refused.refusal), Some(PairRefusal::Wrong(2)));
    drop(shown);
    assert_eq!(pairings().decide(&tried(&code, true)), Err(PairRefusal::NotShown));
    let again = pairings().show(1, u64::MAX).expect("it is written");
    assert_eq!((now(&again).code, now(&again).wrong, now(&again).machines), (code.clone(), 1, 1));
    assert_eq!(pairings().decide(&tried(&code, true)), Ok(()));
    for _ in 0..3 {
        assert_eq!(pairings().asked("10.0.0.9", false), Err(PairRefusal::UsedUp));
    }
    assert_eq!(now(&again).refused.len(), 1);
    drop(again);
    let next = pairings().show(1, u64::MAX).expect("it is written");
    assert!(now(&next).code != code, "one that is used up is not shown again");
}
