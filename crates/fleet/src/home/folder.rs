//! The folder in which a machine keeps its keys, its members or its coordinator, and its shards.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::arrivals::Arrivals;
use super::known_machines::KnownMachines;
use super::settings::{CoordinatorSettings, FleetStatus, WorkerSettings};
use crate::event::{FleetEvent, Notify};
use crate::membership::key_statement::FleetKey;
use crate::{
    Arrival, AuditLog, Auditor, Clock, Entry, FleetError, FleetKeys, Identity, Listener, Listening, Manifest, Members,
    OwnerLimits, Pairings, PendingIdentity, SignedManifest, Verb, read_json, seconds_now, write_json,
};

/// Held by the process that lets machines join while no server runs.
const WAITING: HomeFile = HomeFile("coordinator/waiting");
/// Held by the server for as long as it runs.
const SERVING: HomeFile = HomeFile("coordinator/serving");
/// How often it is tried to get a file or a port for which others make room.
const TRIES: u32 = 20;
/// The pause between.
const PAUSE: Duration = Duration::from_millis(100);

/// How often it is looked whether keys should be replaced.
const KEY_CHECK: Duration = Duration::from_secs(3600);

/// What a machine keeps of its fleet, and who is told what happens there.
#[derive(Clone)]
pub struct FleetHome {
    folder: PathBuf,
    notify: Notify,
    keys: Arc<FleetKeys>,
    /// One for the whole process.
    auditor: OnceLock<Arc<Auditor>>,
    keeps_keys: OnceLock<()>,
}

impl FleetHome {
    /// Keeps everything in this folder, which is made with the first file in it. Nobody is told of events.
    pub fn open(folder: impl Into<PathBuf>) -> Result<FleetHome, FleetError> {
        let folder = folder.into();
        if folder.exists() && !folder.is_dir() {
            return Err(FleetError::file(&folder, "it is no folder; choose another place for the fleet's data"));
        }
        let log = AuditLog::at(&folder.join("coordinator/audit"));
        let keys = Arc::new(FleetKeys::at(&folder.join("coordinator")).audited(log));
        Ok(FleetHome { folder, notify: Arc::new(|_| {}), keys, auditor: OnceLock::new(), keeps_keys: OnceLock::new() })
    }

    /// The same, telling `notify` of events.
    pub fn with_notify(self, notify: Notify) -> FleetHome {
        FleetHome { notify, ..self }
    }

    /// Tells of an event.
    pub fn notify(&self, event: FleetEvent) {
        (self.notify)(&event);
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The keys of the fleet that this machine leads.
    pub fn keys(&self) -> &Arc<FleetKeys> {
        &self.keys
    }

    /// The coordinator's key.
    pub fn coordinator_key(&self) -> Result<Identity, FleetError> {
        Ok(self.keys.current()?.keys().coordinator.clone())
    }

    /// The coordinator's key, not yet written if it is new.
    pub fn pending_coordinator_key(&self) -> Result<PendingIdentity, FleetError> {
        Identity::prepare(&self.keys.path(FleetKey::Coordinator))
    }

    /// Signs the next push of a model. Its number is larger than that of every push before, also if the file in which the
    /// last one is kept was lost.
    pub fn sign_manifest(&self, manifest: &Manifest) -> Result<SignedManifest, FleetError> {
        let path = self.folder.join("coordinator/pushes.json");
        let last: u64 = read_json(&path)?.unwrap_or_default();
        let version = last.saturating_add(1).max(seconds_now());
        write_json(&path, &version)?;
        SignedManifest::new(manifest, version, &self.keys.current()?.keys().targets)
    }

    /// This machine's key as a worker, not yet written if it is new.
    pub fn pending_worker_key(&self) -> Result<PendingIdentity, FleetError> {
        Identity::prepare(&self.worker_key_path())
    }

    /// This machine's key as a worker.
    pub fn worker_key(&self) -> Result<Identity, FleetError> {
        Identity::open_or_make(&self.worker_key_path())
    }

    /// Where that key is.
    pub(crate) fn worker_key_path(&self) -> PathBuf {
        self.folder.join("worker/key")
    }

    /// Where a worker keeps everything.
    pub fn worker_folder(&self) -> PathBuf {
        self.folder.join("worker")
    }

    /// Where a worker keeps the shards it is sent.
    pub fn blobs(&self) -> PathBuf {
        self.folder.join("worker/blobs")
    }

    /// The members of the fleet.
    pub fn members(&self) -> Arc<Members> {
        let members = Members::at(&self.folder.join("coordinator/members.json"));
        Arc::new(members.audited(self.audit_log()))
    }

    /// The pairing code with which machines may join.
    pub fn pairings(&self) -> Pairings {
        Pairings::at(&self.folder.join("coordinator/pairing.json")).audited(self.audit_log())
    }

    /// The names of the members.
    pub fn member_names(&self) -> Result<Vec<String>, FleetError> {
        Ok(self.members().all()?.into_iter().map(|member| member.name).collect())
    }

    /// The coordinator's audit log.
    pub fn audit_log(&self) -> AuditLog {
        AuditLog::at(&self.folder.join("coordinator/audit"))
    }

    /// Writes the audit log on a thread of its own for as long as the process runs.
    pub fn auditor(&self) -> Result<Arc<Auditor>, FleetError> {
        if let Some(auditor) = self.auditor.get() {
            return Ok(Arc::clone(auditor));
        }
        let auditor = Arc::new(Auditor::new(self.audit_log(), self.coordinator_key()?).with_keys(&self.keys));
        let auditor = self.auditor.get_or_init(|| {
            auditor.run(audit_events(Arc::clone(&self.notify)));
            auditor
        });
        Ok(Arc::clone(auditor))
    }

    /// Where a worker remembers the heads of its coordinator's audit log.
    pub fn heads(&self) -> PathBuf {
        self.folder.join("worker/heads.json")
    }

    /// What the coordinator remembers.
    pub fn coordinator(&self) -> Result<CoordinatorSettings, FleetError> {
        let settings = read_json(&self.folder.join("coordinator/fleet.json"))?;
        settings.ok_or_else(|| FleetError::NotSetUp {
            problem: "this machine leads no fleet; begin with `cascadia fleet init`".to_owned(),
        })
    }

    /// Remembers it.
    pub fn set_coordinator(&self, settings: &CoordinatorSettings) -> Result<(), FleetError> {
        write_json(&self.folder.join("coordinator/fleet.json"), settings)
    }

    /// What is known of the machines' speed.
    pub fn machines(&self) -> Result<KnownMachines, FleetError> {
        Ok(read_json(&self.folder.join("coordinator/machines.json"))?.unwrap_or_default())
    }

    /// Remembers what was measured of some machines, beside what is known of others.
    pub(super) fn add_machines(&self, machines: &KnownMachines) -> Result<(), FleetError> {
        let lock = self.path_to_write(HomeFile("coordinator/machines.lock"))?;
        let one_at_a_time = File::create(&lock).map_err(FleetError::io("write", &lock))?;
        one_at_a_time.lock().map_err(FleetError::io("lock", &lock))?;
        let mut all = self.machines()?;
        all.extend(machines.clone());
        write_json(&self.folder.join("coordinator/machines.json"), &all)
    }

    /// Where models are kept that were exported for this fleet.
    pub fn exports(&self) -> PathBuf {
        self.folder.join("coordinator/exports")
    }

    /// Listens for machines for as long as the process runs. Every connection is received here.
    pub fn arrivals(&self, settings: &CoordinatorSettings) -> Result<Arrivals, FleetError> {
        Ok(self.receive(self.bind(settings)?, settings)?.1)
    }

    /// Takes the coordinator's port. A process that only waits for machines gives it up when it sees that a server runs.
    fn bind(&self, settings: &CoordinatorSettings) -> Result<Listener, FleetError> {
        let bind = || Listener::bind(&settings.listen, &self.coordinator_key()?, self.members());
        let is_held = |error: &FleetError| matches!(error, FleetError::Io { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse);
        for _ in 0..TRIES {
            match bind() {
                Err(error) if is_held(&error) && self.is_held(WAITING) => Clock::system().sleep(PAUSE),
                bound => return bound,
            }
        }
        bind()
    }

    /// Receives connections from a socket that listens already, until that is stopped.
    pub fn receive(
        &self,
        listener: Listener,
        settings: &CoordinatorSettings,
    ) -> Result<(Listening, Arrivals), FleetError> {
        let mut listener = listener.with_keys(&self.keys).with_pairings(self.pairings());
        if !settings.silent && !listener.address()?.ip().is_loopback() {
            // Workers that know the address need no announcement.
            let announced = listener.announce(self.keys.current()?.newest().fleet);
            announced.unwrap_or_else(|error| self.notify(FleetEvent::NotAnnounced { problem: error.to_string() }));
        }
        if self.keeps_keys.set(()).is_ok() {
            self.keep_keys_new();
        }
        let ((sender, arrivals), auditor) = (Arrivals::queue(), self.auditor()?);
        let listening = listener.run(move |arrival| {
            if let Arrival::TurnedAway { address, problem, .. } = &arrival {
                auditor.refused(&address.ip().to_string(), problem);
            }
            sender.send(arrival);
        });
        Ok((listening, arrivals))
    }

    /// Lets other processes know that this one waits for machines, for as long as the result is held: it gives up the
    /// port when [`FleetHome::is_served`].
    pub fn wait_for_machines(&self) -> Result<File, FleetError> {
        self.lock_soon(WAITING)?.ok_or_else(another_waits)
    }

    /// An error if another process waits for machines, for which this one makes no folder.
    pub fn check_alone(&self) -> Result<(), FleetError> {
        match self.is_held(WAITING) {
            true => Err(another_waits()),
            false => Ok(()),
        }
    }

    /// Lets other processes know that this one serves, or needs the port for itself, for as long as the result is held.
    pub fn serve(&self) -> Result<File, FleetError> {
        self.lock_soon(SERVING)?.ok_or_else(|| FleetError::InUse {
            problem: "a server runs with this fleet already; end it first".to_owned(),
        })
    }

    /// Whether a server runs with this folder.
    pub fn is_served(&self) -> bool {
        self.is_held(SERVING)
    }

    /// Whether a process waits for machines, or serves.
    pub fn is_attended(&self) -> bool {
        self.is_held(WAITING) || self.is_served()
    }

    /// Replaces the fleet's keys when they are old enough, for as long as the process runs.
    fn keep_keys_new(&self) {
        let (keys, notify) = (Arc::clone(&self.keys), Arc::clone(&self.notify));
        Clock::system().spawn(move || -> ! {
            loop {
                match keys.rotate_due() {
                    Ok(rotated) => rotated.iter().for_each(|key| notify(&FleetEvent::KeyReplaced { key: *key })),
                    Err(error) => notify(&FleetEvent::KeysNotReplaced { problem: error.to_string() }),
                }
                Clock::system().sleep(KEY_CHECK);
            }
        });
    }

    /// How the fleet was when it last served; nothing if the power failed while that was written.
    pub fn status(&self) -> Result<Option<FleetStatus>, FleetError> {
        match read_json(&self.folder.join("coordinator/status.json")) {
            Err(FleetError::File { .. }) => Ok(None),
            read => read,
        }
    }

    /// Writes down how it is.
    pub fn set_status(&self, status: &FleetStatus) -> Result<(), FleetError> {
        self.show(HomeFile("coordinator/status.json"), status)
    }

    /// Makes sure that no other worker runs with this folder for as long as the result is held.
    pub fn lock_worker(&self) -> Result<File, FleetError> {
        self.lock(HomeFile("worker/lock"))?.ok_or_else(|| FleetError::InUse {
            problem: format!("a worker runs with {}; end it first", self.folder.display()),
        })
    }

    /// Removes everything that a worker keeps: its key, its shards, and where its coordinator is.
    pub fn remove_worker(&self) -> Result<(), FleetError> {
        let folder = self.worker_folder();
        fs::remove_dir_all(&folder).map_err(FleetError::io("remove", &folder))
    }

    /// What the owner of this machine lends.
    pub fn limits(&self) -> Result<OwnerLimits, FleetError> {
        Ok(read_json(&self.folder.join("worker/limits.json"))?.unwrap_or_default())
    }

    /// Remembers it.
    pub fn set_limits(&self, limits: &OwnerLimits) -> Result<(), FleetError> {
        write_json(&self.folder.join("worker/limits.json"), limits)
    }

    /// What the worker remembers.
    pub fn worker(&self) -> Result<WorkerSettings, FleetError> {
        let settings = read_json(&self.folder.join("worker/fleet.json"))?;
        settings.ok_or_else(|| FleetError::NotSetUp {
            problem: "this machine belongs to no fleet; run `cascadia join` while `cascadia fleet init` runs on the \
                coordinator"
                .to_owned(),
        })
    }

    /// Remembers it.
    pub fn set_worker(&self, settings: &WorkerSettings) -> Result<(), FleetError> {
        write_json(&self.folder.join("worker/fleet.json"), settings)
    }
}

/// A file in that folder.
#[derive(Clone, Copy, Debug)]
pub(super) struct HomeFile(pub(super) &'static str);

impl FleetHome {
    /// Locks a file for as long as the result is held; nothing if another process holds it.
    pub(super) fn lock(&self, file: HomeFile) -> Result<Option<File>, FleetError> {
        let path = self.path_to_write(file)?;
        let file = File::create(&path).map_err(FleetError::io("write", &path))?;
        Ok(file.try_lock().is_ok().then_some(file))
    }

    /// The same, after others that only look have let it go.
    fn lock_soon(&self, file: HomeFile) -> Result<Option<File>, FleetError> {
        for _ in 0..TRIES {
            if let Some(locked) = self.lock(file)? {
                return Ok(Some(locked));
            }
            Clock::system().sleep(PAUSE);
        }
        Ok(None)
    }

    /// Whether another process holds a file. Those who look do not see each other.
    fn is_held(&self, file: HomeFile) -> bool {
        File::open(self.folder.join(file.0)).is_ok_and(|file| file.try_lock_shared().is_err())
    }

    /// Where a file is, in a folder that is made if need be.
    fn path_to_write(&self, file: HomeFile) -> Result<PathBuf, FleetError> {
        let path = self.folder.join(file.0);
        let folder = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder).map_err(FleetError::io("make the folder", folder))?;
        Ok(path)
    }

    /// Reads a file, if it is there.
    pub(super) fn read<T: for<'de> Deserialize<'de>>(&self, file: HomeFile) -> Result<Option<T>, FleetError> {
        read_json(&self.folder.join(file.0))
    }

    /// Replaces a file that nobody needs after the system has ended: readers see a whole file, and no disk is waited for.
    pub(super) fn show(&self, file: HomeFile, value: &impl Serialize) -> Result<(), FleetError> {
        let path = self.path_to_write(file)?;
        let text = serde_json::to_vec_pretty(value).map_err(|error| FleetError::file(&path, error.to_string()))?;
        let beside = path.with_extension("new");
        let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path));
        written.map_err(FleetError::io("write", &path))
    }

    /// Whether a file is there.
    pub(super) fn has(&self, file: HomeFile) -> bool {
        self.folder.join(file.0).exists()
    }

    /// Renames a file, which needs no space on the disk; whether that was possible.
    pub(super) fn rename(&self, from: HomeFile, to: HomeFile) -> bool {
        fs::rename(self.folder.join(from.0), self.folder.join(to.0)).is_ok()
    }

    /// Removes a file, if it is there.
    pub(super) fn remove(&self, file: HomeFile) -> Result<(), FleetError> {
        let path = self.folder.join(file.0);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(FleetError::io("remove", &path)(error)),
            _ => Ok(()),
        }
    }
}

fn another_waits() -> FleetError {
    FleetError::InUse { problem: "another `cascadia fleet init` runs with this fleet; end it first".to_owned() }
}

/// Tells of what people should know of the audit log; of a disk that fails only once.
fn audit_events(notify: Notify) -> impl FnMut(Result<&Entry, FleetError>) + Send {
    let mut last = String::new();
    move |written| match written {
        Ok(Entry { verb: Verb::Witness, who, note, .. }) => {
            notify(&FleetEvent::NotCountersigned { node: who.clone(), problem: note.clone() });
        }
        Ok(Entry { verb: Verb::Quarantine, who, note, .. }) => {
            notify(&FleetEvent::Quarantined { node: who.clone(), note: note.clone() });
        }
        Ok(_) => last.clear(),
        Err(error) if last != error.to_string() => {
            last = error.to_string();
            notify(&FleetEvent::NotAudited { problem: last.clone() });
        }
        Err(_) => {}
    }
}
