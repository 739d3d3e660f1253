//! The keys of a running worker: its own, and those of its fleet, each of them in its file before it counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::event::FleetEvent;
use crate::membership::rotation::ask_rotation;
use crate::membership::shown_keys::ShownKeys;
use crate::wire::link::Link;
use crate::wire::tls::MaySpeak;
use crate::{Clock, Digest, FleetError, FleetHome, Identity, KnownKeys, Witnesses, WorkerSettings};

/// How long it is enough that the coordinator proves its own key: a few times as long as between two questions for keys.
const PROOF_LASTS: Duration = Duration::from_secs(600);

/// What a worker remembers, and the keys that it goes by.
pub(super) struct WorkerKeys {
    home: FleetHome,
    settings: Mutex<WorkerSettings>,
    identity: Mutex<Identity>,
    witnesses: Arc<Witnesses>,
    /// When the coordinator last proved both keys of the fleet, in seconds since 1970; 0 before it did.
    proved: AtomicU64,
    clock: Clock,
}

impl WorkerKeys {
    /// Those of a machine that has joined a fleet.
    pub(super) fn open(home: &FleetHome, settings: WorkerSettings, clock: &Clock) -> Result<WorkerKeys, FleetError> {
        let identity = home.worker_key()?;
        let witnesses = Witnesses::at(&home.heads(), identity.clone(), settings.keys.coordinator).on_clock(clock);
        witnesses.accept(settings.keys);
        let (settings, identity, witnesses) = (Mutex::new(settings), Mutex::new(identity), Arc::new(witnesses));
        let (home, clock, proved) = (home.clone(), clock.clone(), AtomicU64::new(0));
        Ok(WorkerKeys { home, settings, identity, witnesses, proved, clock })
    }

    /// What is remembered.
    pub(super) fn settings(&self) -> MutexGuard<'_, WorkerSettings> {
        lock(&self.settings)
    }

    /// Changes what is remembered: in its file first, and only if it can be written there.
    pub(super) fn change(&self, change: impl FnOnce(&mut WorkerSettings)) -> Result<(), FleetError> {
        let mut settings = self.settings();
        let mut changed = settings.clone();
        change(&mut changed);
        self.home.set_worker(&changed)?;
        *settings = changed;
        Ok(())
    }

    /// Tells whoever runs this worker what is new.
    pub(super) fn tell(&self, news: &str) {
        self.home.notify(FleetEvent::Worker { note: news.to_owned() });
    }

    /// This machine's key.
    pub(super) fn identity(&self) -> Identity {
        lock(&self.identity).clone()
    }

    /// What is remembered of the coordinator's audit log.
    pub(super) fn witnesses(&self) -> &Arc<Witnesses> {
        &self.witnesses
    }

    /// Which keys of its fleet this machine knows.
    pub(super) fn known(&self) -> KnownKeys {
        self.settings().keys
    }

    /// Whom this machine works for: whoever has the coordinator's key. An error if that is too old.
    pub(super) fn coordinator(&self) -> Result<MaySpeak, String> {
        let (known, now) = (self.known(), self.clock.unix_seconds());
        known.check_expiry(now)?;
        Ok(Arc::new(move |key: Digest| known.accepts_coordinator(key, now)))
    }

    /// Whether the coordinator has proved both keys lately. Whoever has stolen one that was replaced since cannot.
    pub(super) fn are_proved(&self) -> bool {
        self.clock.unix_seconds().saturating_sub(self.proved.load(Ordering::SeqCst)) < PROOF_LASTS.as_secs()
    }

    /// Asks on a connection which keys the fleet has, and whether this machine should have a new one; says what is new.
    pub(super) fn ask(&self, link: &mut dyn Link, peer: (Digest, &[u8; 32])) -> Result<Vec<&'static str>, String> {
        let mut news = Vec::new();
        let shown = ShownKeys::receive(link).map_err(|error| error.to_string())?;
        let (before, now) = (self.known(), self.clock.unix_seconds());
        let known = before.follow(&shown, peer, now)?;
        if known != before {
            // A shard may have been taken meanwhile; the newest push is what that says.
            let keep = |settings: &mut WorkerSettings| {
                let version = settings.keys.targets.map(|targets| targets.version);
                settings.keys = known;
                if let Some((targets, version)) = settings.keys.targets.as_mut().zip(version) {
                    targets.version = version;
                }
            };
            self.change(keep).map_err(|error| format!("cannot write down the fleet's keys: {error}"))?;
            self.witnesses.accept(known);
        }
        if known.coordinator != before.coordinator {
            news.push("the coordinator has a new key, signed with the old one");
        }
        if before.targets.is_some_and(|before| known.targets.is_some_and(|known| known.key != before.key)) {
            news.push("the fleet has a new targets key, signed with the old one");
        }
        self.proved.store(now, Ordering::SeqCst);
        let own = (&*self.home.worker_key_path(), &self.identity());
        if let Some(new) = ask_rotation(link, own, peer.0)? {
            self.witnesses.sign_with(new.clone());
            *lock(&self.identity) = new;
            news.push("this machine has a new key");
        }
        Ok(news)
    }
}

/// Nothing behind these locks can be left half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
