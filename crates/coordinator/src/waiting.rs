//! A coordinator while no server runs: machines join, connect, wait, and are measured.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use cascadia_fleet::{FleetError, FleetHome, FleetStatus, Listener, Listening, WorkerRegistry};

use crate::admission::Admissions;
use crate::coordinator::HEARTBEAT;

/// Holds the coordinator's port for as long as no server wants it.
pub struct WaitingCoordinator {
    home: FleetHome,
    registry: Arc<WorkerRegistry>,
    admissions: Arc<Admissions>,
    port: Option<Listening>,
    /// Whether it has the port.
    attends: Arc<AtomicBool>,
    /// Lets servers know that somebody gives up the port for them.
    _waiting: File,
}

impl WaitingCoordinator {
    /// Begins with a socket that listens already, or without one while a server runs.
    pub fn start(home: FleetHome, listener: Option<Listener>) -> Result<WaitingCoordinator, FleetError> {
        let waiting = home.wait_for_machines()?;
        let registry = Arc::<WorkerRegistry>::default();
        let admissions = Arc::new(Admissions::new(&home, &registry, Arc::default()));
        let (port, attends) = (None, Arc::default());
        let mut coordinator = WaitingCoordinator { home, registry, admissions, port, attends, _waiting: waiting };
        if let Some(listener) = listener {
            coordinator.listen(listener)?;
        }
        coordinator.beat();
        Ok(coordinator)
    }

    /// Gives the port to a server that has started, and takes it back from one that has ended. To be called often.
    pub fn attend(&mut self) -> Result<(), FleetError> {
        match (self.home.is_served(), self.port.take()) {
            (true, Some(port)) => {
                self.attends.store(false, Ordering::SeqCst);
                port.stop()?;
                // They connect to the server at once.
                self.registry.release_waiting();
            }
            (false, None) => {
                let (settings, key) = (self.home.coordinator()?, self.home.coordinator_key()?);
                // A server that ends still has it for a moment, and so may a command that looks for machines.
                if let Ok(listener) = Listener::bind(&settings.listen, &key, self.home.members()) {
                    self.listen(listener)?;
                }
            }
            (_, port) => self.port = port,
        }
        Ok(())
    }

    fn listen(&mut self, listener: Listener) -> Result<(), FleetError> {
        let (listening, arrivals) = self.home.receive(listener, &self.home.coordinator()?)?;
        let admissions = Arc::clone(&self.admissions);
        thread::spawn(move || {
            for arrival in arrivals {
                let admissions = Arc::clone(&admissions);
                thread::spawn(move || admissions.admit(arrival));
            }
        });
        self.port = Some(listening);
        self.attends.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Asks all workers for heartbeats for as long as the process runs, and writes down who is connected.
    fn beat(&self) {
        let (registry, attends, home) = (Arc::clone(&self.registry), Arc::clone(&self.attends), self.home.clone());
        let (members, clock) = (home.members(), registry.clock().clone());
        thread::spawn(move || -> ! {
            loop {
                registry.sweep(HEARTBEAT, |node| attends.load(Ordering::SeqCst) && members.has(node));
                if attends.load(Ordering::SeqCst) {
                    let (time, connected) = (clock.unix_seconds(), registry.connected());
                    // Where it cannot be written, readers see that it is old.
                    let _ = home.set_status(&FleetStatus { time, connected, ..FleetStatus::default() });
                }
                clock.sleep(HEARTBEAT);
            }
        });
    }
}

/// The machines that may take part; all of the fleet if none are named.
pub(crate) type Nodes = Arc<Mutex<Option<Vec<String>>>>;
