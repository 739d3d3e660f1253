//! What a machine keeps of its fleet: keys, members, where the coordinator is, which shard to run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock};

use anyhow::{Context, bail};
use cascadia_fleet::{
    Arrival, AuditLog, Auditor, Digest, FleetError, FleetPlan, Identity, Listener, Members, OwnerLimits, StageStatus,
    read_json, write_json,
};
use serde::{Deserialize, Serialize};

use crate::commands::tell;
use crate::known_machines::KnownMachines;
use crate::output::remark;

/// The port for workers unless another is asked for.
const PORT: u16 = 7420;

/// The folder with all of it.
#[derive(Clone)]
pub(crate) struct FleetHome {
    folder: PathBuf,
    /// One for the whole process.
    auditor: OnceLock<Arc<Auditor>>,
}

/// A file in that folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part(pub(crate) &'static str);

/// What a coordinator remembers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CoordinatorSettings {
    /// Where it listens for workers.
    pub(crate) listen: String,
    /// The folder that was pushed last.
    #[serde(default)]
    pub(crate) pushed: Option<PathBuf>,
    /// Its stages that the coordinator runs itself.
    #[serde(default)]
    pub(crate) own_stages: Vec<u32>,
    /// Whether it keeps silent in the local network about where it is.
    #[serde(default)]
    pub(crate) silent: bool,
}

/// What a worker remembers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WorkerSettings {
    /// Where its coordinator listens.
    pub(crate) addresses: Vec<String>,
    /// The coordinator's key.
    pub(crate) coordinator: Digest,
    /// What this machine is called there.
    pub(crate) node: String,
    /// The shards that it was sent and that were of use.
    #[serde(default)]
    pub(crate) shards: Vec<Digest>,
}

/// How the machines of a fleet are while it serves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FleetStatus {
    /// When this was written, in seconds since 1970.
    pub(crate) time: u64,
    /// The model that is served.
    pub(crate) model: Digest,
    /// Its stages in order.
    pub(crate) stages: Vec<StageStatus>,
    /// What was expected of them, where the fleet was planned.
    #[serde(default)]
    pub(crate) plan: Option<FleetPlan>,
    /// Machines that were lost too often, and for how many seconds more they are held back.
    #[serde(default)]
    pub(crate) quarantined: BTreeMap<String, u64>,
}

impl FleetHome {
    /// The folder that was asked for, or the usual one.
    pub(crate) fn find(asked: Option<&Path>) -> anyhow::Result<FleetHome> {
        let folder = match asked {
            Some(folder) => folder.to_owned(),
            None => std::env::home_dir().context("there is no home folder; give one with --home")?.join(".cascadia"),
        };
        for part in ["coordinator", "worker"] {
            let folder = folder.join(part);
            fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        Ok(FleetHome { folder, auditor: OnceLock::new() })
    }

    /// Where it is.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The coordinator's key.
    pub(crate) fn coordinator_key(&self) -> anyhow::Result<Identity> {
        Ok(Identity::open_or_make(&self.folder.join("coordinator/key"))?)
    }

    /// A worker's key.
    pub(crate) fn worker_key(&self) -> PathBuf {
        self.folder.join("worker/key")
    }

    /// Where a worker keeps the files it is sent.
    pub(crate) fn blobs(&self) -> PathBuf {
        self.folder.join("worker/blobs")
    }

    /// The members of the fleet.
    pub(crate) fn members(&self) -> Arc<Members> {
        let members = Members::at(&self.folder.join("coordinator/members.json"));
        Arc::new(members.audited(self.audit_log()))
    }

    /// Where the coordinator writes down what is done with the fleet.
    pub(crate) fn audit_log(&self) -> AuditLog {
        AuditLog::at(&self.folder.join("coordinator/audit"))
    }

    /// Who writes it down for as long as the program runs.
    pub(crate) fn auditor(&self) -> anyhow::Result<Arc<Auditor>> {
        if let Some(auditor) = self.auditor.get() {
            return Ok(Arc::clone(auditor));
        }
        let auditor = Arc::new(Auditor::new(self.audit_log(), self.coordinator_key()?));
        let auditor = self.auditor.get_or_init(|| {
            auditor.run(tell());
            auditor
        });
        Ok(Arc::clone(auditor))
    }

    /// Where a worker remembers how far that goes.
    pub(crate) fn heads(&self) -> PathBuf {
        self.folder.join("worker/heads.json")
    }

    /// What the coordinator remembers.
    pub(crate) fn coordinator(&self) -> anyhow::Result<CoordinatorSettings> {
        match read_json(&self.folder.join("coordinator/fleet.json"))? {
            Some(settings) => Ok(settings),
            None => bail!("this machine leads no fleet; begin with `cascadia fleet init`"),
        }
    }

    /// Remembers it.
    pub(crate) fn set_coordinator(&self, settings: &CoordinatorSettings) -> anyhow::Result<()> {
        Ok(write_json(&self.folder.join("coordinator/fleet.json"), settings)?)
    }

    /// What is known of the machines' speed.
    pub(crate) fn machines(&self) -> anyhow::Result<KnownMachines> {
        Ok(read_json(&self.folder.join("coordinator/machines.json"))?.unwrap_or_default())
    }

    /// Remembers it.
    pub(crate) fn set_machines(&self, machines: &KnownMachines) -> anyhow::Result<()> {
        Ok(write_json(&self.folder.join("coordinator/machines.json"), machines)?)
    }

    /// Where models lie that were exported for this fleet.
    pub(crate) fn exports(&self) -> PathBuf {
        self.folder.join("coordinator/exports")
    }

    /// Listens for machines; everyone who comes is told here.
    pub(crate) fn arrivals(&self, settings: &CoordinatorSettings) -> anyhow::Result<Receiver<Arrival>> {
        let key = self.coordinator_key()?;
        let mut listener = Listener::bind(&settings.listen, &key, self.members())?;
        if !settings.silent && !listener.address()?.ip().is_loopback() {
            // Who knows the address needs no announcement.
            listener.announce(&key).unwrap_or_else(|error| remark(&error.to_string()));
        }
        let (sender, arrivals) = channel();
        let (sender, auditor) = (Mutex::new(sender), self.auditor()?);
        listener.run(move |arrival| {
            if let Arrival::TurnedAway { address, problem } = &arrival {
                auditor.refused(&address.ip().to_string(), problem);
            }
            drop(sender.lock().map(|sender| sender.send(arrival)));
        });
        Ok(arrivals)
    }

    /// How the fleet was when it last served; nothing if the power went while that was written.
    pub(crate) fn status(&self) -> anyhow::Result<Option<FleetStatus>> {
        match read_json(&self.folder.join("coordinator/status.json")) {
            Err(FleetError::File { .. }) => Ok(None),
            read => Ok(read?),
        }
    }

    /// Writes down how it is.
    pub(crate) fn set_status(&self, status: &FleetStatus) -> anyhow::Result<()> {
        show(&self.folder.join("coordinator/status.json"), status)
    }

    /// Makes sure that no other worker runs with this folder for as long as the result is held.
    pub(crate) fn lock_worker(&self) -> anyhow::Result<File> {
        let lock = self.lock(Part("worker/lock"))?;
        lock.with_context(|| format!("a worker runs with {}; end it first", self.folder.display()))
    }

    /// Has a file to itself for as long as the result is held; nothing if another process has it.
    pub(crate) fn lock(&self, part: Part) -> anyhow::Result<Option<File>> {
        let path = self.folder.join(part.0);
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(file.try_lock().is_ok().then_some(file))
    }

    /// Reads a file of this folder, if it is there.
    pub(crate) fn read<T: for<'de> Deserialize<'de>>(&self, part: Part) -> anyhow::Result<Option<T>> {
        Ok(read_json(&self.folder.join(part.0))?)
    }

    /// Shows one to other processes.
    pub(crate) fn show(&self, part: Part, value: &impl Serialize) -> anyhow::Result<()> {
        show(&self.folder.join(part.0), value)
    }

    /// Whether one is there.
    pub(crate) fn has(&self, part: Part) -> bool {
        self.folder.join(part.0).exists()
    }

    /// Gives one another name, which needs no room; whether that was possible.
    pub(crate) fn rename(&self, from: Part, to: Part) -> bool {
        fs::rename(self.folder.join(from.0), self.folder.join(to.0)).is_ok()
    }

    /// Removes one, if it is there.
    pub(crate) fn remove(&self, part: Part) -> anyhow::Result<()> {
        let path = self.folder.join(part.0);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Removes everything that a worker keeps: its key, its shards, and where its coordinator is.
    pub(crate) fn remove_worker(&self) -> anyhow::Result<()> {
        let folder = self.folder.join("worker");
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))
    }

    /// What the owner of this machine lends.
    pub(crate) fn limits(&self) -> anyhow::Result<OwnerLimits> {
        Ok(read_json(&self.folder.join("worker/limits.json"))?.unwrap_or_default())
    }

    /// Remembers it.
    pub(crate) fn set_limits(&self, limits: &OwnerLimits) -> anyhow::Result<()> {
        Ok(write_json(&self.folder.join("worker/limits.json"), limits)?)
    }

    /// What the worker remembers.
    pub(crate) fn worker(&self) -> anyhow::Result<WorkerSettings> {
        match read_json(&self.folder.join("worker/fleet.json"))? {
            Some(settings) => Ok(settings),
            None => bail!("this machine belongs to no fleet; join one with the line that `cascadia fleet init` prints"),
        }
    }

    /// Remembers it.
    pub(crate) fn set_worker(&self, settings: &WorkerSettings) -> anyhow::Result<()> {
        Ok(write_json(&self.folder.join("worker/fleet.json"), settings)?)
    }
}

/// Shows something that nobody needs once the system has ended: whoever looks sees a whole file, and no disk is waited
/// for.
fn show(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_vec_pretty(value)?;
    let beside = path.with_extension("new");
    fs::write(&beside, text)
        .and_then(|()| fs::rename(&beside, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The address of this machine on its network.
pub(crate) fn usual_address() -> String {
    SocketAddr::new(own_addresses(Ipv4Addr::UNSPECIFIED.into())[0], PORT).to_string()
}

/// Where others reach what listens there: at that address, or at those of this machine if it is all of them.
pub(crate) fn reachable(listen: &str) -> Vec<String> {
    match listen.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_unspecified() => {
            let own = own_addresses(address.ip()).into_iter();
            own.map(|own| SocketAddr::new(own, address.port()).to_string()).collect()
        }
        _ => vec![listen.to_owned()],
    }
}

/// Addresses nobody has, behind the default route and on the usual private networks.
const ELSEWHERE: [&str; 5] =
    ["192.0.2.1:9", "192.168.255.254:9", "10.255.255.254:9", "172.31.255.254:9", "[2001:db8::1]:9"];

/// The addresses from which the system would reach others, and so about those at which others reach it: at least
/// one. Nothing is sent for that.
fn own_addresses(listening: IpAddr) -> Vec<IpAddr> {
    let mut own = Vec::new();
    for elsewhere in ELSEWHERE.iter().filter_map(|address| address.parse::<SocketAddr>().ok()) {
        let any: IpAddr = if elsewhere.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let found = UdpSocket::bind((any, 0)).and_then(|socket| {
            socket.connect(elsewhere)?;
            socket.local_addr()
        });
        // Who listens at all addresses of the fourth version hears nothing at those of the sixth.
        let heard = |found: &IpAddr| found.is_ipv4() || listening.is_ipv6();
        own.extend(found.ok().map(|found| found.ip()).filter(|found| heard(found) && !own.contains(found)));
    }
    if own.is_empty() {
        own.push(Ipv4Addr::LOCALHOST.into());
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_means_all_is_no_place_to_go_to() {
        for listen in ["192.168.1.20:7420", "pc.example:7420", "127.0.0.1:9"] {
            assert_eq!(reachable(listen), [listen]);
        }
        for listen in ["0.0.0.0:7421", "[::]:7421"] {
            let addresses = reachable(listen);
            assert!(!addresses.is_empty());
            for address in addresses {
                let address: SocketAddr = address.parse().expect("an address");
                assert!(!address.ip().is_unspecified() && address.port() == 7421, "{address}");
            }
        }
    }
}
