//! A fleet whose own keys are replaced, in simulated time: a coordinator, a worker that is connected and one that is away.

mod crashes;
mod following;
mod refusals;

use std::sync::Arc;
use std::time::Duration;

use super::worker_keys::WorkerKeys;
use crate::clock::{Clock, Simulation};
use crate::json_file::write_json;
use crate::membership::rotation::offer_rotation;
use crate::membership::shown_keys::ShownKeys;
use crate::wire::link::{LinkFaults, fair, timed_pair};
use crate::{
    AuditLog, Digest, FleetHome, FleetKey, FleetKeys, HeldKeys, Identity, KnownKeys, Members, Position, Rotation,
    SignedHead, SignedManifest, WorkerSettings,
};

const SESSION: [u8; 32] = [1; 32];
const SHARD: Digest = Digest([4; 32]);
const HOUR: Duration = Duration::from_secs(3600);
const NODES: [&str; 2] = ["near", "away"];

/// A coordinator and two workers.
struct Fleet {
    clock: Clock,
    folder: tempfile::TempDir,
    keys: Arc<FleetKeys>,
    members: Arc<Members>,
}

impl Fleet {
    fn new(clock: &Clock) -> Fleet {
        let folder = tempfile::tempdir().expect("a folder");
        let log = AuditLog::at(&folder.path().join("audit")).on_clock(clock);
        let keys = FleetKeys::at(&folder.path().join("coordinator")).audited(log).on_clock(clock);
        let members = Arc::new(Members::at(&folder.path().join("members.json")).on_clock(clock));
        let fleet = Fleet { clock: clock.clone(), folder, keys: Arc::new(keys), members };
        let joined = KnownKeys::invited(fleet.held().keys().coordinator.pin());
        let member = |node: &str| {
            let settings =
                WorkerSettings { addresses: Vec::new(), keys: joined, node: node.to_owned(), shards: Vec::new() };
            fleet.home(node).set_worker(&settings).expect("it is written");
            serde_json::json!({ "name": node, "key": fleet.home(node).worker_key().expect("a key").pin() })
        };
        let list = serde_json::json!({ "members": NODES.map(member), "invitations": [] });
        write_json(&fleet.folder.path().join("members.json"), &list).expect("it is written");
        fleet
    }

    fn home(&self, node: &str) -> FleetHome {
        FleetHome::open(self.folder.path().join(node)).expect("a folder")
    }

    /// A worker as it starts.
    fn worker(&self, node: &str) -> WorkerKeys {
        let home = self.home(node);
        WorkerKeys::open(&home, home.worker().expect("it has joined"), &self.clock).expect("it has a key")
    }

    fn held(&self) -> Arc<HeldKeys> {
        self.keys.current().expect("they can be read")
    }

    fn rotate(&self, which: &[FleetKey]) -> Arc<HeldKeys> {
        self.keys.rotate(Rotation { which, grace: HOUR, who: "admin" }).expect("it is written")
    }

    /// A worker asks its coordinator; what is new to it.
    fn ask(&self, worker: &WorkerKeys) -> Result<Vec<&'static str>, String> {
        let held = self.held();
        let shown = held.shown(&SESSION).expect("it signs");
        self.answered(worker, (shown, held.keys().coordinator.pin()), [fair(), fair()])
    }

    /// A worker asks, and whoever has proved the key `peer` shows it keys.
    fn answered(
        &self,
        worker: &WorkerKeys,
        (shown, peer): (ShownKeys, Digest),
        faults: [LinkFaults; 2],
    ) -> Result<Vec<&'static str>, String> {
        let (mut here, mut there) = timed_pair(&self.clock, Duration::ZERO, faults);
        let (members, own) = (Arc::clone(&self.members), worker.identity().pin());
        let task = self.clock.spawn(move || {
            let sent = shown.send(&mut here).map_err(|error| error.to_string());
            sent.and_then(|()| offer_rotation(&mut here, &members, (peer, own)))
        });
        let asked = worker.ask(&mut there, (peer, &SESSION));
        drop(there);
        task.join(None).expect("it ends").ok();
        asked
    }

    /// Whether a worker works for whoever proves this key.
    fn accepts(&self, worker: &WorkerKeys, key: &Identity) -> bool {
        worker.coordinator().is_ok_and(|may_speak| may_speak(key.pin()))
    }

    fn takes_push(&self, worker: &WorkerKeys, targets: &Identity) -> bool {
        let signed = SignedManifest::of(vec![SHARD], 7, targets).expect("it signs");
        signed.check(SHARD, &worker.known(), self.clock.unix_seconds()).is_ok()
    }

    fn takes_head(&self, worker: &WorkerKeys, signer: &Identity) -> bool {
        let head = SignedHead::new(signer, Position::START, 1).expect("it signs");
        worker.witnesses().see(head).is_ok()
    }
}

fn simulated(test: impl FnOnce(&Fleet)) {
    let simulation = Simulation::new(1);
    test(&Fleet::new(simulation.clock()));
    simulation.finish();
}
