//! A push to a running server: the new model is made ready beside the old one, and then takes its place.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use cascadia_engine::service::Service;
use cascadia_fleet::{FleetPlan, HERE, Manifest, ModelWorkers, Shard};
use cascadia_server::{ModelSlot, Replaced};

use super::fleet_push::Shipment;
use super::replan;
use super::serve::{Preparation, start_service};
use super::serve_fleet::{Cast, Fleet};
use crate::flags::ServeFlags;
use crate::handover::{LOOK, PushWish};
use crate::output::remark;

/// How long machines that have their shards may take to load them.
const LOADING: Duration = Duration::from_secs(120);

/// A server whose model can be replaced.
pub(super) struct LiveReplacement {
    pub(super) fleet: Fleet,
    pub(super) slot: ModelSlot,
    pub(super) flags: ServeFlags,
    /// The service of the model that is served; nothing once the server has ended.
    pub(super) service: Arc<Mutex<Option<Service>>>,
}

/// A model that was replaced: its requests end on it.
pub(super) struct Old {
    model_workers: Arc<ModelWorkers>,
    desk: Replaced,
    service: Option<Service>,
}

impl LiveReplacement {
    /// Does what is pushed for as long as the program runs, and plans again when a stage has nobody left.
    pub(super) fn watch(self) {
        let mut replan = replan::timer(&self.flags);
        thread::spawn(move || {
            loop {
                thread::sleep(LOOK);
                if let Some(wish) = PushWish::take(&self.fleet.home) {
                    self.obey(&wish);
                }
                let missing = self.fleet.missing();
                if replan.is_due(&missing, Instant::now()) {
                    self.plan_again(&missing);
                }
            }
        });
    }

    /// Pushes, and says how it ended before the old model has.
    fn obey(&self, wish: &PushWish) {
        let Some(teller) = wish.teller(&self.fleet.home) else { return };
        let teller = Mutex::new(teller);
        let say = |line: &str| {
            remark(line);
            teller.lock().unwrap_or_else(PoisonError::into_inner).say(line);
        };
        let pushed = self.push(wish, None, &say);
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
    pub(super) fn push(
        &self,
        wish: &PushWish,
        plan: Option<FleetPlan>,
        say: &(dyn Fn(&str) + Sync),
    ) -> anyhow::Result<Option<Old>> {
        let PushWish { folder, targets, wait_seconds, .. } = wish;
        let manifest = Manifest::read(folder)?;
        let model_workers = self.fleet.served().context("no model is served yet")?;
        let patience = Duration::from_secs(*wait_seconds);
        if manifest.model == model_workers.manifest().model && !model_workers.is_closed() {
            // Loaded twice, it would be its own spare.
            let (has, lacks): (Vec<_>, Vec<_>) =
                targets.iter().cloned().partition(|(node, stage)| self.fleet.has(node, *stage));
            has.iter().for_each(|(node, stage)| say(&format!("{node} has stage {stage} already")));
            if lacks.iter().any(|(node, _)| node == HERE) {
                bail!("`{HERE}` cannot be added to the model that is served; end the server, then push again");
            }
            let targets = elsewhere(&lacks, &manifest)?;
            self.fleet.send(&Shipment { folder, targets: &targets, patience }, say)?;
            return Ok(None);
        }
        let mut every = 0..manifest.stages.len();
        if let Some(stage) = every.find(|stage| !targets.iter().any(|(_, target)| target == stage)) {
            bail!("no machine is named for stage {stage}; a model takes over when all its stages are there");
        }
        let Preparation { options, draft } = Preparation::new(&self.flags)?;
        let own = targets.iter().filter(|(node, _)| node == HERE).map(|(_, stage)| *stage as u32).collect();
        let cast = Cast { folder: folder.clone(), own, plan };
        let others = elsewhere(targets, &manifest)?;
        let stages: Vec<usize> = targets.iter().filter(|(node, _)| node != HERE).map(|(_, stage)| *stage).collect();
        let (name, engine) = self.fleet.open(&cast, &options, |model_workers| {
            self.fleet.send(&Shipment { folder, targets: &others, patience }, say)?;
            Ok(self.fleet.registry.fill(model_workers, &stages, Instant::now() + LOADING)?)
        })?;
        let started = start_service(&self.flags, (name.clone(), engine, Some(manifest.model)), draft);
        let forget = || self.fleet.served().iter().for_each(|opened| self.fleet.retire(opened));
        // On the disk before anyone is told that it is served.
        let remembered = started.and_then(|started| self.fleet.remember(&cast).map(|()| started));
        let (service, model) = remembered.inspect_err(|_| forget())?;
        let desk = self.slot.replace(model);
        let old = self.service.lock().unwrap_or_else(PoisonError::into_inner).replace(service);
        say(&format!("{name} ({}) is served now.", manifest.model.short()));
        Ok(Some(Old { model_workers, desk, service: old }))
    }

    /// Lets the requests of the old model end, then its machines go.
    pub(super) fn end(&self, old: Old) {
        while old.desk.is_used() {
            thread::sleep(LOOK);
        }
        old.service.into_iter().for_each(Service::drain);
        self.fleet.retire(&old.model_workers);
    }
}

/// Sends machines their shards of a model that is to be served as soon as each of its stages has one.
pub(super) fn push_to_waiting(fleet: &Fleet, awaited: &Manifest, wish: &PushWish) {
    let Some(teller) = wish.teller(&fleet.home) else { return };
    let teller = Mutex::new(teller);
    let say = |line: &str| {
        remark(line);
        teller.lock().unwrap_or_else(PoisonError::into_inner).say(line);
    };
    let push = || {
        let manifest = Manifest::read(&wish.folder)?;
        if manifest.model != awaited.model {
            bail!("the server waits for machines with {}; end it, push, and start it again", awaited.name);
        }
        let targets = elsewhere(&wish.targets, &manifest)?;
        let patience = Duration::from_secs(wish.wait_seconds);
        fleet.send(&Shipment { folder: &wish.folder, targets: &targets, patience }, &say)
    };
    let outcome = push().map_err(|error: anyhow::Error| format!("{error:#}"));
    teller.into_inner().unwrap_or_else(PoisonError::into_inner).end(outcome);
}

/// Which machine other than this one gets which shard.
pub(super) fn elsewhere<'a>(
    wished: &'a [(String, usize)],
    manifest: &'a Manifest,
) -> anyhow::Result<Vec<(&'a str, &'a Shard)>> {
    let target = |(node, stage): &'a (String, usize)| {
        let shard = manifest.stages.get(*stage);
        Ok((node.as_str(), shard.with_context(|| format!("there is no stage {stage} in this export"))?))
    };
    wished.iter().filter(|(node, _)| node != HERE).map(target).collect()
}
