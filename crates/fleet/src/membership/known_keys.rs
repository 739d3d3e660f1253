//! What a member knows of the keys of its fleet, and how it learns of new ones.
//!
//! It follows statements from the newest that it knows, one after the other, and never back. What it learns is written
//! down before it is used.

use serde::{Deserialize, Serialize};

use super::key_statement::{KeyStatement, SignedKeys};
use super::shown_keys::ShownKeys;
use crate::{Digest, KnownTargets};

/// The keys that a member goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownKeys {
    /// The coordinator's key.
    pub coordinator: Digest,
    /// Whose signature it takes shards under, and the newest push. A machine that joined without knows it from the first
    /// shard on that it is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<KnownTargets>,
    /// What else the newest statement says. A machine that joined without knows it when it next connects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stated: Option<Stated>,
}

/// The newest statement that a member has followed, apart from the keys themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stated {
    fleet: Digest,
    number: u64,
    coordinator_expires: u64,
    targets_expires: u64,
    /// The coordinator's key and the targets key before, and until when they are good as well.
    previous: Option<(Digest, Digest)>,
    previous_until: u64,
}

/// What a machine does that can follow no more.
const JOIN_AGAIN: &str = "run `cascadia fleet invite` there, and here `cascadia leave` and `cascadia join` with the line \
    that it prints";

impl KnownKeys {
    /// The coordinator's key of an invitation, and nothing else.
    pub fn invited(coordinator: Digest) -> KnownKeys {
        KnownKeys { coordinator, targets: None, stated: None }
    }

    /// What a machine knows that joins with an invitation, and is shown the newest statement.
    pub(crate) fn joined(coordinator: Digest, newest: &SignedKeys, now: u64) -> Result<KnownKeys, String> {
        // auth: keys-invitation
        if newest.statement.coordinator.pin != coordinator || !newest.is_accepted() {
            let remedy = "if its key was replaced while this machine joined, ask for a new one";
            return Err(format!("the coordinator states other keys than the invitation says; {remedy}"));
        }
        let known = KnownKeys::invited(coordinator).with(&newest.statement, None);
        known.check_expiry(now).map(|()| known)
    }

    /// Which fleet this is, whatever its keys are by now.
    pub(crate) fn fleet(&self) -> Digest {
        self.stated.map_or(self.coordinator, |stated| stated.fleet)
    }

    /// How many statements were followed since the fleet began; nothing before the first.
    pub(crate) fn number(&self) -> Option<u64> {
        self.stated.map(|stated| stated.number)
    }

    /// Whether whoever proves this key is the coordinator.
    pub(crate) fn accepts_coordinator(&self, key: Digest, now: u64) -> bool {
        key == self.coordinator || self.previous(now).is_some_and(|(coordinator, _)| coordinator == key)
    }

    /// Whether pushes may be signed with this key.
    pub(crate) fn accepts_targets(&self, key: Digest, now: u64) -> bool {
        self.targets.is_none_or(|known| known.key == key)
            || self.previous(now).is_some_and(|(_, targets)| targets == key)
    }

    /// The keys that were replaced not long ago.
    fn previous(&self, now: u64) -> Option<(Digest, Digest)> {
        // auth: coordinator-old-key, manifest-old-key, head-old-key
        self.stated.filter(|stated| now < stated.previous_until)?.previous
    }

    /// An error that says what to do if the coordinator's key is too old.
    pub(crate) fn check_expiry(&self, now: u64) -> Result<(), String> {
        // auth: coordinator-expiry
        match self.stated.filter(|stated| now >= stated.coordinator_expires) {
            Some(stated) => Err(expired("the coordinator's key", now - stated.coordinator_expires)),
            None => Ok(()),
        }
    }

    /// An error that says what to do if the key that signs pushes is too old.
    pub(crate) fn check_targets_expiry(&self, now: u64) -> Result<(), String> {
        // auth: manifest-expiry
        match self.stated.filter(|stated| now >= stated.targets_expires) {
            Some(stated) => Err(expired("the targets key of this machine's fleet", now - stated.targets_expires)),
            None => Ok(()),
        }
    }

    /// What is known after whoever proved the key `peer` on a connection has shown its keys there.
    pub(crate) fn follow(
        &self,
        shown: &ShownKeys,
        (peer, session): (Digest, &[u8; 32]),
        now: u64,
    ) -> Result<KnownKeys, String> {
        // Keys that were good for too long may be anybody's by now, and so may what they sign.
        self.check_expiry(now)?;
        let mut known = *self;
        for next in &shown.chain {
            known = known.after(next)?;
        }
        let is_proved = known.targets.is_some_and(|known| shown.is_proved_by(known.key, session));
        // auth: keys-peer, keys-proof
        if known.coordinator != peer || !is_proved {
            return Err(
                "whoever answers for the coordinator does not have the newest keys that this machine has seen of its \
                fleet; it may be a copy of the coordinator, or a coordinator that was set back to an older state"
                    .to_owned(),
            );
        }
        known.check_expiry(now).map(|()| known)
    }

    /// What is known after one more statement.
    fn after(self, next: &SignedKeys) -> Result<KnownKeys, String> {
        let KeyStatement { fleet, number, .. } = next.statement;
        let expected = self.number().map_or(0, |number| number + 1);
        if number < expected {
            return Ok(self);
        }
        // auth: keys-fleet
        if fleet != self.fleet() {
            return Err("whoever answers for the coordinator shows the keys of another fleet".to_owned());
        }
        // auth: keys-order
        if number > expected {
            return Err(format!(
                "the coordinator has replaced its keys more often than it can show since this machine was last \
                connected; {JOIN_AGAIN}"
            ));
        }
        let targets = self.targets.map(|known| known.key);
        if !next.is_signed_with(self.coordinator, targets) || !next.is_accepted() {
            return Err("whoever answers for the coordinator shows keys that the old ones have not signed".to_owned());
        }
        Ok(self.with(&next.statement, Some(next)))
    }

    /// The same with what a statement says, which comes after another one or is the first that is heard.
    fn with(self, newest: &KeyStatement, signed: Option<&SignedKeys>) -> KnownKeys {
        let KeyStatement { fleet, number, coordinator, targets, previous_until } = *newest;
        let version = self.targets.map_or(0, |known| known.version);
        let previous = signed.map(|SignedKeys { old: [coordinator, targets], .. }| (coordinator.pin(), targets.pin()));
        let (coordinator_expires, targets_expires) = (coordinator.expires, targets.expires);
        let stated = Stated { fleet, number, coordinator_expires, targets_expires, previous, previous_until };
        let targets = Some(KnownTargets { key: targets.pin, version });
        KnownKeys { coordinator: coordinator.pin, targets, stated: Some(stated) }
    }
}

fn expired(which: &str, seconds: u64) -> String {
    let days = seconds / 86_400;
    format!(
        "{which} expired {days} days ago by this machine's clock; if that is right, run `cascadia fleet rotate \
        --coordinator --targets` on the coordinator, {JOIN_AGAIN}"
    )
}
