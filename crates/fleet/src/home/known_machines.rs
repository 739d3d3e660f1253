//! What the coordinator knows of its machines' speed, also while they are not connected.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::arrivals::Arrivals;
use super::folder::FleetHome;
use crate::event::FleetEvent;
use crate::wire::link::LinkError;
use crate::{
    Arrival, Candidate, Clock, FleetError, HERE, LinkSpeed, MOST_MACHINES, MachineSpeed, PendingWorker, TcpLink,
    seconds_now,
};

/// Machines by name.
pub type KnownMachines = BTreeMap<String, KnownMachine>;

/// What was last measured of a machine.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct KnownMachine {
    /// What it can do.
    pub speed: MachineSpeed,
    /// The link to it.
    pub link: LinkSpeed,
    /// When, in seconds since 1970.
    pub time: u64,
}

/// Measures machines as they connect, until all of these have or time is up, and remembers the result. Each is
/// disconnected after that, and connects again.
pub fn gather(
    home: &FleetHome,
    arrivals: &Arrivals,
    expected: &[String],
    patience: Duration,
) -> Result<KnownMachines, FleetError> {
    let (deadline, mut found) = (Clock::system().now() + patience, BTreeMap::new());
    while expected.iter().any(|node| !found.contains_key(node)) {
        match arrivals.next_before(deadline) {
            Some(Arrival::Member { node, link }) if expected.contains(&node) => match measure(link, &node) {
                Ok(measured) => drop(found.insert(node, measured)),
                Err(error) => home.notify(FleetEvent::NotMeasured { node, problem: error.to_string() }),
            },
            Some(Arrival::TurnedAway { address, problem, is_news: true }) => {
                home.notify(FleetEvent::TurnedAway { address, problem });
            }
            Some(_) => {}
            None => break,
        }
    }
    remember(home, found)
}

/// Remembers what was just measured of machines, and of the links to them.
pub fn remember(
    home: &FleetHome,
    measured: BTreeMap<String, (MachineSpeed, LinkSpeed)>,
) -> Result<KnownMachines, FleetError> {
    let known = |(node, (speed, link))| (node, KnownMachine { speed, link, time: seconds_now() });
    let found: KnownMachines = measured.into_iter().map(known).collect();
    home.add_machines(&found)?;
    Ok(found)
}

fn measure(link: Box<TcpLink>, node: &str) -> Result<(MachineSpeed, LinkSpeed), LinkError> {
    let mut pending_worker = PendingWorker::hear(link, node)?;
    let measured = pending_worker.measure()?;
    pending_worker.send_away("it was measured, and may come back");
    Ok(measured)
}

/// This machine first, then others from the fastest on: the order of their stages.
pub fn candidates(here: Option<MachineSpeed>, others: &KnownMachines) -> Vec<Candidate> {
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
