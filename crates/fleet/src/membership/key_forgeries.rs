//! Forgeries of the fleet's own keys: statements, what is shown of them, and what keys do that were replaced.

use std::time::Duration;

use super::forgeries::{Case, Fleet, SESSION, SHARD};
use super::key_statement::{DatedKey, KeyPair, KeyStatement, SignedKeys};
use super::known_keys::KnownKeys;
use super::member::KEY_EXPIRES;
use super::shown_keys::ShownKeys;
use crate::Digest;
use crate::audit::Witnesses;

pub(super) const CASES: &[(&str, Case)] = &[
    ("keys-old-coordinator", |fleet, forged| {
        let [first, mut second] = fleet.chain();
        second.old[0] = forged.or(fleet.stolen(&second.statement).old[0], second.old[0]);
        fleet.follows(&[first, second], &fleet.pair("-2"))
    }),
    ("keys-old-targets", |fleet, forged| {
        let [first, mut second] = fleet.chain();
        second.old[1] = forged.or(fleet.stolen(&second.statement).old[1], second.old[1]);
        fleet.follows(&[first, second], &fleet.pair("-2"))
    }),
    ("keys-new-coordinator", |fleet, forged| {
        let [first, mut second] = fleet.chain();
        second.new[0] = forged.or(fleet.stolen(&second.statement).new[0], second.new[0]);
        fleet.follows(&[first, second], &fleet.pair("-2"))
    }),
    ("keys-new-targets", |fleet, forged| {
        let [first, mut second] = fleet.chain();
        second.new[1] = forged.or(fleet.stolen(&second.statement).new[1], second.new[1]);
        fleet.follows(&[first, second], &fleet.pair("-2"))
    }),
    ("keys-fleet", |fleet, forged| {
        let [first, second] = fleet.chain();
        let other = KeyStatement { fleet: Digest::of(b"another fleet"), ..second.statement };
        fleet.follows(&[first, fleet.sign(forged.or(other, second.statement))], &fleet.pair("-2"))
    }),
    ("keys-order", |fleet, forged| {
        let [first, second] = fleet.chain();
        let later = KeyStatement { number: 2, ..second.statement };
        fleet.follows(&[first, fleet.sign(forged.or(later, second.statement))], &fleet.pair("-2"))
    }),
    ("keys-peer", |fleet, forged| {
        // Who has the old keys shows what was true before.
        let (chain, known) = (fleet.chain(), fleet.knows(2));
        let (chain, keys) = forged.or((&chain[..1], fleet.pair("")), (&chain[..], fleet.pair("-2")));
        fleet.shown_to(&known, chain, &keys)
    }),
    ("keys-proof", |fleet, forged| {
        // Who has stolen the coordinator's key alone, and not the other.
        let right = fleet.pair("-2");
        let thief = KeyPair { targets: fleet.key("thief"), ..right.clone() };
        fleet.shown_to(&fleet.knows(2), &fleet.chain(), &forged.or(thief, right))
    }),
    ("keys-invitation", |fleet, forged| {
        let [_, newest] = fleet.chain();
        let invited = fleet.key(forged.or("coordinator", "coordinator-2")).pin();
        KnownKeys::joined(invited, &newest, fleet.clock.unix_seconds()).is_ok()
    }),
    ("coordinator-old-key", |fleet, forged| {
        let known = fleet.knows(2);
        fleet.clock.sleep(GRACE - forged.or(Duration::ZERO, SECOND));
        known.accepts_coordinator(fleet.key("coordinator").pin(), fleet.clock.unix_seconds())
    }),
    ("manifest-old-key", |fleet, forged| {
        let known = fleet.knows(2);
        fleet.clock.sleep(GRACE - forged.or(Duration::ZERO, SECOND));
        fleet.manifest("targets", 7).check(SHARD, &known, fleet.clock.unix_seconds()).is_ok()
    }),
    ("head-old-key", |fleet, forged| {
        let witnesses = Witnesses::at(&fleet.path("heads.json"), fleet.key("node"), fleet.key("coordinator").pin());
        let witnesses = witnesses.on_clock(&fleet.clock);
        witnesses.accept(fleet.knows(2));
        fleet.clock.sleep(GRACE - forged.or(Duration::ZERO, SECOND));
        witnesses.see(fleet.head("coordinator")).is_ok()
    }),
    ("coordinator-expiry", |fleet, forged| {
        let known = fleet.knows(2);
        fleet.clock.sleep(Duration::from_secs(KEY_EXPIRES) - forged.or(Duration::ZERO, SECOND));
        known.check_expiry(fleet.clock.unix_seconds()).is_ok()
    }),
    ("manifest-expiry", |fleet, forged| {
        let known = fleet.knows(2);
        fleet.clock.sleep(Duration::from_secs(KEY_EXPIRES) - forged.or(Duration::ZERO, SECOND));
        fleet.manifest("targets-2", 7).check(SHARD, &known, fleet.clock.unix_seconds()).is_ok()
    }),
];

const SECOND: Duration = Duration::from_secs(1);
/// How long the keys before are accepted.
const GRACE: Duration = Duration::from_secs(3600);

impl Fleet {
    fn pair(&self, generation: &str) -> KeyPair {
        let key = |name: &str| self.key(&format!("{name}{generation}"));
        KeyPair { coordinator: key("coordinator"), targets: key("targets") }
    }

    /// The first keys of the fleet, and those that have taken their place.
    fn chain(&self) -> [SignedKeys; 2] {
        let (now, [first, second]) = (self.clock.unix_seconds(), ["", "-2"].map(|generation| self.pair(generation)));
        let statement = |number: u64, keys: &KeyPair| KeyStatement {
            fleet: first.coordinator.pin(),
            number,
            coordinator: DatedKey::new(keys.coordinator.pin(), now),
            targets: DatedKey::new(keys.targets.pin(), now),
            previous_until: now + number * GRACE.as_secs(),
        };
        let begin = SignedKeys::new(statement(0, &first), &first, &first).expect("they sign");
        [begin, self.sign(statement(1, &second))]
    }

    /// Signs that the second keys take the place of the first.
    fn sign(&self, statement: KeyStatement) -> SignedKeys {
        SignedKeys::new(statement, &self.pair(""), &self.pair("-2")).expect("they sign")
    }

    /// The same, signed by somebody else.
    fn stolen(&self, statement: &KeyStatement) -> SignedKeys {
        let thief = KeyPair { coordinator: self.key("thief"), targets: self.key("thief") };
        SignedKeys::new(*statement, &thief, &thief).expect("it signs")
    }

    /// What a member knows that has followed so many statements.
    fn knows(&self, count: usize) -> KnownKeys {
        let (chain, keys) = (self.chain(), self.pair(["", "-2"][count - 1]));
        let shown = ShownKeys::new(&chain[..count], &keys, &SESSION).expect("it signs");
        let member = KnownKeys::invited(chain[0].statement.coordinator.pin);
        let peer = (keys.coordinator.pin(), &SESSION);
        member.follow(&shown, peer, self.clock.unix_seconds()).expect("nothing is forged")
    }

    /// Whether a member that knows the first keys follows those that whoever has these keys shows.
    fn follows(&self, chain: &[SignedKeys], keys: &KeyPair) -> bool {
        self.shown_to(&self.knows(1), chain, keys)
    }

    fn shown_to(&self, known: &KnownKeys, chain: &[SignedKeys], keys: &KeyPair) -> bool {
        let shown = ShownKeys::new(chain, keys, &SESSION).expect("it signs");
        known.follow(&shown, (keys.coordinator.pin(), &SESSION), self.clock.unix_seconds()).is_ok()
    }
}
