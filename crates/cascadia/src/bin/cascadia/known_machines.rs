//! What the coordinator knows of its machines' speed, also while they are not connected.

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use cascadia_fleet::link::LinkError;
use cascadia_fleet::{
    Arrival, Candidate, HERE, LinkSpeed, MOST_MACHINES, MachineSpeed, PendingWorker, TcpLink, seconds_now,
};
use cascadia_kernels::Pool;
use serde::{Deserialize, Serialize};

use crate::fleet_home::FleetHome;
use crate::os;
use crate::output::remark;

/// Machines by name.
pub(crate) type KnownMachines = BTreeMap<String, KnownMachine>;

/// What was last measured of a machine.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct KnownMachine {
    pub(crate) speed: MachineSpeed,
    pub(crate) link: LinkSpeed,
    /// When, in seconds since 1970.
    pub(crate) time: u64,
}

/// Memory that a machine is thought to have free where the system does not say.
const UNKNOWN_MEMORY: u64 = 4 << 30;

/// Measures this machine.
pub(crate) fn measure(pool: &Pool) -> MachineSpeed {
    MachineSpeed::measure(pool, os::free_memory().unwrap_or(UNKNOWN_MEMORY))
}

/// Measures machines as they come, until all of these have or time is up, and remembers them. Each is sent away after
/// that, and comes again.
pub(crate) fn gather(
    home: &FleetHome,
    arrivals: &Receiver<Arrival>,
    expected: &[String],
    patience: Duration,
) -> anyhow::Result<KnownMachines> {
    let (deadline, mut found) = (Instant::now() + patience, BTreeMap::new());
    while expected.iter().any(|node| !found.contains_key(node)) {
        let left = deadline.saturating_duration_since(Instant::now());
        match arrivals.recv_timeout(left) {
            Ok(Arrival::Member { node, link }) if expected.contains(&node) => match meet(link, &node) {
                Ok(measured) => drop(found.insert(node, measured)),
                Err(error) => remark(&format!("{node} could not be measured: {error}")),
            },
            Ok(Arrival::TurnedAway { address, problem }) => remark(&format!("{address} was turned away: {problem}")),
            Ok(Arrival::Member { .. } | Arrival::Joined { .. }) => {}
            Err(_) => break,
        }
    }
    remember(home, found)
}

/// Remembers what was just measured of machines, and of the ways to them.
pub(crate) fn remember(
    home: &FleetHome,
    measured: BTreeMap<String, (MachineSpeed, LinkSpeed)>,
) -> anyhow::Result<KnownMachines> {
    let known = |(node, (speed, link))| (node, KnownMachine { speed, link, time: seconds_now() });
    let found: KnownMachines = measured.into_iter().map(known).collect();
    let mut all = home.machines()?;
    all.extend(found.clone());
    home.set_machines(&all)?;
    Ok(found)
}

fn meet(link: Box<TcpLink>, node: &str) -> Result<(MachineSpeed, LinkSpeed), LinkError> {
    let mut pending_worker = PendingWorker::hear(link, node)?;
    let measured = pending_worker.measure()?;
    pending_worker.send_away("it was measured, and may come back");
    Ok(measured)
}

/// This machine first, then others from the fastest on: the order of their stages.
pub(crate) fn candidates(here: Option<MachineSpeed>, others: &KnownMachines) -> Vec<Candidate> {
    let candidate = |(name, known): (&String, &KnownMachine)| Candidate {
        name: name.clone(),
        speed: known.speed,
        link: Some(known.link),
    };
    let mut others: Vec<Candidate> = others.iter().map(candidate).collect();
    others.sort_by_key(|machine| std::cmp::Reverse(machine.speed.read_bytes_per_second));
    let here = here.map(|speed| Candidate { name: HERE.to_owned(), speed, link: None });
    here.into_iter().chain(others).take(MOST_MACHINES).collect()
}
