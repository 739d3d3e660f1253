//! One forgery for every check between a stranger and the fleet: right in everything but what that check looks at.
//!
//! Checks are marked in the code with `auth:` and their names. A mark without a forgery fails the test, and so does a
//! forgery that gets through because its check was removed.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::{key_forgeries, pairing_forgeries};
use crate::audit::{Auditor, SignedHead, Witnesses, testimony_bytes};
use crate::clock::Simulation;
use crate::membership::invitation::proof;
use crate::membership::member::{KEY_EXPIRES, Standing};
use crate::membership::members::{JoinRequest, Joining};
use crate::membership::rotation::Succession;
use crate::shards::{KnownTargets, SignedManifest};
use crate::{Arrival, AuditLog, Clock, Digest, Identity, Invitation, KnownKeys, Listener, Members, Position, TcpLink};

/// Whether what is shown is taken, with one thing forged or with nothing.
pub(super) type Case = fn(&Fleet, Forged) -> bool;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forged {
    Yes,
    No,
}

impl Forged {
    /// The forged one of two things, or the right one.
    pub(super) fn or<T>(self, forged: T, right: T) -> T {
        if self == Forged::Yes { forged } else { right }
    }
}

const CASES: &[(&str, Case)] = &[
    ("member-key", |fleet, forged| {
        // It is not even listened to.
        let arrival = fleet.arrives(&forged.or(fleet.key("stranger"), fleet.key("node")));
        !matches!(arrival, Arrival::TurnedAway { problem, .. } if problem.contains("key is not known"))
    }),
    ("member-standing", |fleet, forged| {
        fleet.members.invite(&fleet.invitation, 1).expect("it is written");
        fleet.connects(&forged.or(fleet.key("stranger"), fleet.key("node")))
    }),
    ("member-signature", |fleet, forged| {
        let (node, thief) = (fleet.key("node"), fleet.key("thief"));
        fleet.connects(&forged.or(thief.pretending_to_be(&node), node.clone()))
    }),
    ("coordinator-pin", |fleet, forged| {
        let listener = forged.or(fleet.key("other"), fleet.key("coordinator"));
        fleet.is_dialled(&listener)
    }),
    ("coordinator-signature", |fleet, forged| {
        let (coordinator, thief) = (fleet.key("coordinator"), fleet.key("thief"));
        fleet.is_dialled(&forged.or(thief.pretending_to_be(&coordinator), coordinator.clone()))
    }),
    ("member-trusted", |fleet, forged| {
        let wrong = forged.or("node", "other");
        fleet.members.distrust(wrong, "it was wrong").expect("it is written");
        fleet.stands("node")
    }),
    ("member-revoked", |fleet, forged| {
        fleet.members.revoke(forged.or("node", "other")).expect("it is written");
        fleet.stands("node")
    }),
    ("member-old-key", |fleet, forged| {
        let [old, new] = ["node", "new"].map(|name| fleet.key(name).pin());
        assert!(fleet.members.succeed(old, new).expect("it is written"));
        fleet.members.came(forged.or(new, old)).expect("it is written");
        fleet.stands("node")
    }),
    ("member-pending", |fleet, forged| {
        fleet.members.invite_for_approval(&fleet.invitation, 1).expect("it is written");
        fleet.joins(&fleet.invitation, "new").expect("it was invited");
        if forged == Forged::No {
            fleet.members.approve("new").expect("it is written");
        }
        fleet.stands("new")
    }),
    ("member-expiry", |fleet, forged| {
        fleet.members.came(fleet.key("node").pin()).expect("it is written");
        fleet.clock.sleep(Duration::from_secs(KEY_EXPIRES - forged.or(0, 1)));
        fleet.stands("node")
    }),
    ("invitation-secret", |fleet, forged| {
        fleet.members.invite(&fleet.invitation, 1).expect("it is written");
        let guessed = Invitation { secret: [7; 16].into(), ..fleet.invitation.clone() };
        fleet.joins(&forged.or(guessed, fleet.invitation.clone()), "new").is_some()
    }),
    ("invitation-session", |fleet, forged| {
        fleet.members.invite(&fleet.invitation, 1).expect("it is written");
        fleet.shows(&fleet.proof("new"), (&forged.or([2; 32], SESSION), "new")).is_some()
    }),
    ("invitation-key", |fleet, forged| {
        fleet.members.invite(&fleet.invitation, 1).expect("it is written");
        fleet.shows(&fleet.proof("new"), (&SESSION, forged.or("thief", "new"))).is_some()
    }),
    ("invitation-expiry", |fleet, forged| {
        fleet.members.invite(&fleet.invitation, 1).expect("it is written");
        fleet.clock.sleep(Duration::from_secs(OPEN - forged.or(0, 1)));
        fleet.joins(&fleet.invitation, "new").is_some()
    }),
    ("invitation-uses", |fleet, forged| {
        fleet.members.invite(&fleet.invitation, forged.or(1, 2)).expect("it is written");
        assert!(fleet.joins(&fleet.invitation, "first").is_some());
        fleet.joins(&fleet.invitation, "new").is_some()
    }),
    ("invitation-approval", |fleet, forged| {
        let invite: fn(&Members, &Invitation, u32) -> _ =
            if forged == Forged::Yes { Members::invite_for_approval } else { Members::invite };
        invite(&fleet.members, &fleet.invitation, 1).expect("it is written");
        matches!(fleet.joins(&fleet.invitation, "new"), Some(Joining::Joined(_)))
    }),
    ("succession-old", |fleet, forged| {
        let [right, other] = ["node", "thief"].map(|old| fleet.succession(old));
        let old = forged.or(other.old, right.old);
        Succession { old, new: right.new }.check(FLEET, fleet.key("node").pin()).is_some()
    }),
    ("succession-new", |fleet, forged| {
        // Who takes the place of the new key has not got it.
        let [right, other] = ["node", "thief"].map(|old| fleet.succession(old));
        let new = forged.or(other.new, right.new);
        Succession { old: right.old, new }.check(FLEET, fleet.key("node").pin()).is_some()
    }),
    ("succession-coordinator", |fleet, forged| {
        let to = forged.or(Digest::of(b"another fleet"), FLEET);
        fleet.succession("node").check(to, fleet.key("node").pin()).is_some()
    }),
    ("succession-machine", |fleet, forged| {
        let connected = fleet.key(forged.or("other", "node")).pin();
        fleet.succession("node").check(FLEET, connected).is_some()
    }),
    ("succession-foreign", |fleet, forged| {
        let next = fleet.key(forged.or("other", "new")).pin();
        fleet.members.succeed(fleet.key("node").pin(), next).expect("it is written")
    }),
    ("manifest-signature", |fleet, forged| {
        let right = fleet.manifest("targets", 7);
        let damaged = SignedManifest::of(vec![SHARD], 7, &fleet.key("thief").pretending_to_be(&fleet.key("targets")));
        forged.or(damaged.expect("it signs"), right).check(SHARD, &fleet.targets(7), 0).is_ok()
    }),
    ("manifest-key", |fleet, forged| {
        fleet.manifest(forged.or("thief", "targets"), 7).check(SHARD, &fleet.targets(7), 0).is_ok()
    }),
    ("manifest-version", |fleet, forged| {
        fleet.manifest("targets", 7).check(SHARD, &fleet.targets(forged.or(8, 7)), 0).is_ok()
    }),
    ("manifest-shard", |fleet, forged| {
        let shard = forged.or(Digest::of(b"another"), SHARD);
        fleet.manifest("targets", 7).check(shard, &fleet.targets(7), 0).is_ok()
    }),
    ("head-signer", |fleet, forged| {
        let head = fleet.head(forged.or("thief", "coordinator"));
        let pin = fleet.key("coordinator").pin();
        Witnesses::at(&fleet.path("heads.json"), fleet.key("node"), pin).see(head).is_ok()
    }),
    ("head-signature", |fleet, forged| {
        let (coordinator, thief) = (fleet.key("coordinator"), fleet.key("thief"));
        let signer = forged.or(thief.pretending_to_be(&coordinator), coordinator.clone());
        let head = SignedHead::new(&signer, Position::START, 1).expect("it signs");
        Witnesses::at(&fleet.path("heads.json"), fleet.key("node"), coordinator.pin()).see(head).is_ok()
    }),
    ("witness-signer", |fleet, forged| {
        let (node, thief) = (fleet.key("node"), fleet.key("thief"));
        fleet.witnessed(&forged.or(thief.pretending_to_be(&node), node.clone()), ("node", "coordinator"))
    }),
    ("witness-node", |fleet, forged| fleet.witnessed(&fleet.key(forged.or("other", "node")), ("node", "coordinator"))),
    ("witness-head", |fleet, forged| fleet.witnessed(&fleet.key("node"), ("node", forged.or("thief", "coordinator")))),
];

pub(super) const SESSION: [u8; 32] = [1; 32];
const FLEET: Digest = Digest([3; 32]);
pub(super) const SHARD: Digest = Digest([4; 32]);
/// Seconds for which the invitation is open.
pub(super) const OPEN: u64 = 600;

/// A fleet with the members `node` and `other`, in simulated time.
pub(super) struct Fleet {
    folder: tempfile::TempDir,
    pub(super) clock: Clock,
    pub(super) members: Arc<Members>,
    invitation: Invitation,
}

impl Fleet {
    fn new(clock: &Clock) -> Fleet {
        let folder = tempfile::tempdir().expect("a folder");
        let members = Arc::new(Members::at(&folder.path().join("members.json")).on_clock(clock));
        let invitation = Invitation::new(Vec::new(), FLEET, clock.unix_seconds() + OPEN).expect("random numbers");
        let fleet = Fleet { folder, clock: clock.clone(), members, invitation };
        for name in ["node", "other"] {
            let first = Invitation::new(Vec::new(), FLEET, clock.unix_seconds() + OPEN).expect("random numbers");
            fleet.members.invite(&first, 1).expect("it is written");
            assert_eq!(fleet.joins(&first, name), Some(Joining::Joined(name.to_owned())));
        }
        fleet
    }

    pub(super) fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn key(&self, name: &str) -> Identity {
        Identity::open_or_make(&self.path(&format!("{name}.key"))).expect("a key")
    }

    /// Whether the key of this name may take part.
    fn stands(&self, name: &str) -> bool {
        matches!(self.members.standing(self.key(name).pin()), Standing::Member(_))
    }

    /// Whether a machine gets in over a socket.
    fn connects(&self, key: &Identity) -> bool {
        matches!(self.arrives(key), Arrival::Member { .. })
    }

    /// What the coordinator tells of a machine that connects and says nothing.
    fn arrives(&self, key: &Identity) -> Arrival {
        let coordinator = self.key("coordinator");
        let (sender, arrivals) = channel();
        let listener = Listener::bind("127.0.0.1:0", &coordinator, Arc::clone(&self.members)).expect("a free port");
        let address = listener.address().expect("it listens").to_string();
        let sender = std::sync::Mutex::new(sender);
        listener.run(move |arrival| drop(sender.lock().map(|sender| sender.send(arrival))));
        drop(TcpLink::dial(&[address], key, coordinator.pin()));
        arrivals.recv().expect("it is answered")
    }

    /// Whether a worker speaks to whoever listens with this key in place of its coordinator.
    fn is_dialled(&self, listening: &Identity) -> bool {
        let listener = Listener::bind("127.0.0.1:0", listening, Arc::clone(&self.members)).expect("a free port");
        let address = listener.address().expect("it listens").to_string();
        listener.run(drop);
        TcpLink::dial(&[address], &self.key("node"), self.key("coordinator").pin()).is_ok()
    }

    /// What a machine shows that knows the invitation.
    fn proof(&self, name: &str) -> [u8; 32] {
        proof(&self.invitation.proof_key(), &SESSION, self.key(name).pin())
    }

    fn joins(&self, invitation: &Invitation, name: &str) -> Option<Joining> {
        let proof = proof(&invitation.proof_key(), &SESSION, self.key(name).pin());
        self.shows(&proof, (&SESSION, name))
    }

    /// What becomes of a machine that shows a proof on a connection.
    fn shows(&self, proof: &[u8; 32], (session, name): (&[u8; 32], &str)) -> Option<Joining> {
        let (key, code) = (self.key(name).pin(), "abcd-efgh".to_owned());
        self.members.join(JoinRequest { wanted: name, key, session, proof, code }).expect("it is written")
    }

    /// A new key, signed with the old one of this name.
    fn succession(&self, old: &str) -> Succession {
        Succession::new(FLEET, &self.key(old), &self.key("new")).expect("it signs")
    }

    pub(super) fn manifest(&self, signer: &str, version: u64) -> SignedManifest {
        SignedManifest::of(vec![SHARD], version, &self.key(signer)).expect("it signs")
    }

    /// What a member knows that has taken a shard of this push.
    fn targets(&self, version: u64) -> KnownKeys {
        let targets = Some(KnownTargets { key: self.key("targets").pin(), version });
        KnownKeys { targets, ..KnownKeys::invited(FLEET) }
    }

    pub(super) fn head(&self, signer: &str) -> SignedHead {
        SignedHead::new(&self.key(signer), Position::START, 1).expect("it signs")
    }

    /// Whether the coordinator believes that a member has seen a head, which a machine countersigned.
    fn witnessed(&self, signer: &Identity, (node, coordinator): (&str, &str)) -> bool {
        let head = self.head(coordinator);
        let seen = Witnesses::at(&self.path("heads.json"), signer.clone(), head.seal.pin()).see(head);
        let log = AuditLog::at(&self.path("audit")).on_clock(&self.clock);
        let auditor = Auditor::new(log, self.key("coordinator"));
        auditor.heard(node, &self.members, &testimony_bytes(&seen));
        auditor.tick(|_| {}).expect("it is written");
        self.path("audit/witnesses.json").exists()
    }
}

fn cases() -> impl Iterator<Item = &'static (&'static str, Case)> {
    CASES.iter().chain(key_forgeries::CASES).chain(pairing_forgeries::CASES)
}

#[test]
fn every_check_refuses_what_only_it_can_refuse() {
    let taken = |case: &Case, forged: Forged| {
        let simulation = Simulation::new(1);
        let taken = case(&Fleet::new(simulation.clock()), forged);
        simulation.finish();
        taken
    };
    let names = |forged: Forged| cases().filter(move |(_, case)| taken(case, forged)).map(|(name, _)| *name);
    assert_eq!(names(Forged::Yes).collect::<Vec<_>>(), [""; 0], "these forgeries were taken");
    assert_eq!(names(Forged::No).collect::<Vec<_>>(), cases().map(|(name, _)| *name).collect::<Vec<_>>());
}

#[test]
fn every_check_has_a_forgery() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut marked) = (vec![root], BTreeSet::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("forgeries.rs") {
                let text = std::fs::read_to_string(&path).expect("a file");
                let marks = text.lines().filter_map(|line| line.trim().strip_prefix("// auth: "));
                let names = marks.flat_map(|names| names.split(", ").map(str::to_owned).collect::<Vec<_>>());
                names.for_each(|name| assert!(marked.insert(name.clone()), "{name} is marked twice"));
            }
        }
    }
    let forged: BTreeSet<String> = cases().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(marked, forged);
}
