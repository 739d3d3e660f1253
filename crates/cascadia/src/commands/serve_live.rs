//! A push to a running server: the new model is made ready beside the old one, and then takes its place.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use cascadia_engine::service::Service;
use cascadia_fleet::{Digest, Entry, HERE, Manifest, Shard, Verb};
use cascadia_server::{ModelSlot, Replaced};

use super::serve::{Preparation, start_service};
use super::serve_fleet::{Cast, Fleet};
use crate::flags::ServeFlags;
use crate::fleet_home::CoordinatorSettings;
use crate::handover::{LOOK, PushTeller, PushWish};
use crate::output::remark;

/// How long machines that have their shards may take to load them.
const LOADING: Duration = Duration::from_secs(120);

/// A server whose model can be replaced.
pub(super) struct Live {
    pub(super) fleet: Fleet,
    pub(super) slot: ModelSlot,
    pub(super) flags: ServeFlags,
    /// The service of the model that is served; nothing once the server has ended.
    pub(super) service: Arc<Mutex<Option<Service>>>,
}

/// A model that was replaced: its requests end on it.
struct Old {
    model: Digest,
    desk: Replaced,
    service: Option<Service>,
}

impl Live {
    /// Does what is pushed for as long as the program runs.
    pub(super) fn watch(self) {
        thread::spawn(move || {
            loop {
                thread::sleep(LOOK);
                if let Some(wish) = PushWish::take(&self.fleet.home) {
                    self.obey(&wish);
                }
            }
        });
    }

    /// Pushes, and says how it ended before the old model has.
    fn obey(&self, wish: &PushWish) {
        let teller = Mutex::new(wish.teller(&self.fleet.home));
        let pushed = self.push(wish, &teller);
        let outcome = pushed.as_ref().map(|_| ()).map_err(|error| format!("{error:#}"));
        if let Err(problem) = &outcome {
            remark(&format!("A push failed, and nothing has changed: {problem}"));
        }
        teller.into_inner().unwrap_or_else(PoisonError::into_inner).end(outcome);
        if let Ok(Some(old)) = pushed {
            self.end(old);
        }
    }

    /// Sends machines their shards; when these are of another model, that is the one that new requests get from now on.
    fn push(&self, wish: &PushWish, teller: &Mutex<PushTeller<'_>>) -> anyhow::Result<Option<Old>> {
        let say = |line: &str| {
            remark(line);
            teller.lock().unwrap_or_else(PoisonError::into_inner).say(line);
        };
        let manifest = Manifest::read(&wish.folder)?;
        let served = self.fleet.model().context("no model is served yet")?;
        let (own, mut elsewhere): (Vec<_>, Vec<_>) = wish.targets.iter().partition(|(node, _)| node == HERE);
        if manifest.model == served {
            if !own.is_empty() {
                bail!("`{HERE}` cannot be added to the model that is served; end the server, then push again");
            }
            // Loaded twice, it would be its own spare.
            let has = elsewhere.extract_if(.., |(node, stage)| self.fleet.has(node, *stage));
            has.for_each(|(node, stage)| say(&format!("{node} has stage {stage} already")));
        }
        let targets = targets(&elsewhere, &manifest)?;
        let patience = Duration::from_secs(wish.wait_seconds);
        elsewhere.iter().for_each(|(node, _)| self.fleet.invite(node));
        record(&self.fleet, &targets)?;
        if manifest.model == served {
            self.fleet.quay.send(&wish.folder, &targets, patience, say)?;
            return Ok(None);
        }
        let mut every = 0..manifest.stages.len();
        if let Some(stage) = every.find(|stage| !wish.targets.iter().any(|(_, target)| target == stage)) {
            bail!("no machine is named for stage {stage}; a model takes over when all its stages are there");
        }
        let Preparation { options, draft } = Preparation::new(&self.flags)?;
        let own: Vec<u32> = own.iter().map(|(_, stage)| *stage as u32).collect();
        let cast = Cast { folder: wish.folder.clone(), own, plan: None };
        let stages: Vec<usize> = elsewhere.iter().map(|(_, stage)| *stage).collect();
        let (name, engine) = self.fleet.open(&cast, &options, |harbour| {
            self.fleet.quay.send(&cast.folder, &targets, patience, say)?;
            Ok(self.fleet.quay.fill(harbour, &stages, Instant::now() + LOADING)?)
        })?;
        let started = start_service(&self.flags, (name.clone(), engine, Some(manifest.model)), draft);
        let (service, model) = started.inspect_err(|_| self.fleet.retire(manifest.model))?;
        let desk = self.slot.replace(model);
        let old = self.service.lock().unwrap_or_else(PoisonError::into_inner).replace(service);
        say(&format!("{name} ({}) is served now.", manifest.model.short()));
        if let Err(error) = self.remember(cast) {
            say(&format!("The next server will begin with the model before it: {error:#}"));
        }
        Ok(Some(Old { model: served, desk, service: old }))
    }

    /// Lets the next server begin with what was pushed.
    fn remember(&self, Cast { folder, own, .. }: Cast) -> anyhow::Result<()> {
        let settings = self.fleet.home.coordinator()?;
        let settings = CoordinatorSettings { pushed: Some(folder), own_stages: own, ..settings };
        self.fleet.home.set_coordinator(&settings)
    }

    /// Lets the requests of the old model end, then its machines go.
    fn end(&self, old: Old) {
        while old.desk.is_used() {
            thread::sleep(LOOK);
        }
        old.service.into_iter().for_each(Service::drain);
        self.fleet.retire(old.model);
    }
}

/// Sends machines their shards of a model that is to be served as soon as each of its stages has one.
pub(super) fn push_to_waiting(fleet: &Fleet, awaited: &Manifest, wish: &PushWish) {
    let teller = Mutex::new(wish.teller(&fleet.home));
    let say = |line: &str| {
        remark(line);
        teller.lock().unwrap_or_else(PoisonError::into_inner).say(line);
    };
    let push = || {
        let manifest = Manifest::read(&wish.folder)?;
        if manifest.model != awaited.model {
            bail!("the server waits for machines with {}; end it, push, and start it again", awaited.name);
        }
        let elsewhere: Vec<_> = wish.targets.iter().filter(|(node, _)| node != HERE).collect();
        let targets = targets(&elsewhere, &manifest)?;
        elsewhere.iter().for_each(|(node, _)| fleet.invite(node));
        record(fleet, &targets)?;
        fleet.quay.send(&wish.folder, &targets, Duration::from_secs(wish.wait_seconds), say)?;
        Ok(())
    };
    let outcome = push().map_err(|error: anyhow::Error| format!("{error:#}"));
    teller.into_inner().unwrap_or_else(PoisonError::into_inner).end(outcome);
}

/// Writes down what is pushed, before it is.
fn record(fleet: &Fleet, targets: &[(&str, &Shard)]) -> anyhow::Result<()> {
    for (node, shard) in targets {
        let nodes = vec![(*node).to_owned()];
        fleet.auditor.record(Entry { digest: Some(shard.digest), nodes, ..Entry::admin(Verb::Push) })?;
    }
    Ok(())
}

/// Which machine gets which shard.
fn targets<'a>(wished: &[&'a (String, usize)], manifest: &'a Manifest) -> anyhow::Result<Vec<(&'a str, &'a Shard)>> {
    let target = |(node, stage): &&'a (String, usize)| {
        let shard = manifest.stages.get(*stage);
        Ok((node.as_str(), shard.with_context(|| format!("there is no stage {stage} in this export"))?))
    };
    wished.iter().map(target).collect()
}
