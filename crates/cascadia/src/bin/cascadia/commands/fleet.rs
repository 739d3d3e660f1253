//! `cascadia fleet`.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use cascadia_fleet::{Arrival, HERE, Invitation, Listener, Manifest, Members, Shard, seconds_now};

use super::fleet_push::{Shipment, registry};
use crate::flags::{FleetInitFlags, FleetPushFlags, FleetRevokeFlags, FleetTrustFlags};
use crate::fleet_home::{CoordinatorSettings, FleetHome, reachable, usual_address};
use crate::handover::PushWish;
use crate::output::{print, remark};

/// Makes this machine a coordinator and invites others; waits for them unless told otherwise.
pub(crate) fn init(flags: &FleetInitFlags) -> anyhow::Result<()> {
    let home = FleetHome::find(flags.home.home.as_deref())?;
    let known = home.coordinator().ok();
    let listen = flags.listen.clone().or_else(|| known.as_ref().map(|known| known.listen.clone()));
    let mut listen = listen.unwrap_or_else(usual_address);
    let (key, members) = (home.coordinator_key()?, home.members());
    let listener = match flags.no_wait {
        true => None,
        false => {
            let listener = Listener::bind(&listen, &key, Arc::clone(&members))?;
            listen = listener.address()?.to_string();
            Some(listener)
        }
    };
    let silent = flags.no_announce;
    home.set_coordinator(&CoordinatorSettings { listen: listen.clone(), silent, ..known.unwrap_or_default() })?;
    let addresses = if flags.address.is_empty() { reachable(&listen) } else { flags.address.clone() };
    let invitation = Invitation::new(addresses, key.pin(), seconds_now() + 60 * flags.minutes)?;
    members.invite(&invitation, flags.uses)?;
    print(&format!("{invitation}\n"))?;
    let Some(listener) = listener else { return Ok(()) };
    remark("Run this on the other machine, while this one waits:  cascadia join <that line>");
    let (sender, joined) = channel();
    let (sender, auditor) = (Mutex::new(sender), home.auditor()?);
    listener.run(move |arrival| match arrival {
        Arrival::Joined { node } => drop(sender.lock().map(|sender| sender.send(node))),
        Arrival::TurnedAway { address, problem } => {
            auditor.refused(&address.ip().to_string(), &problem);
            remark(&format!("{address} was turned away: {problem}"));
        }
        Arrival::Member { .. } => {}
    });
    let end = Instant::now() + Duration::from_secs(60 * flags.minutes);
    for _ in 0..flags.uses {
        let node = joined.recv_timeout(end.saturating_duration_since(Instant::now()));
        let node = node.context("nobody joined in time; run `cascadia fleet init` again")?;
        remark(&format!("{node} has joined."));
    }
    Ok(())
}

/// Sends shards to machines as they connect.
pub(crate) fn push(flags: &FleetPushFlags) -> anyhow::Result<()> {
    let home = FleetHome::find(flags.home.home.as_deref())?;
    let settings = home.coordinator()?;
    let folder = flags.shards.canonicalize().with_context(|| format!("cannot open {}", flags.shards.display()))?;
    let manifest = Manifest::read(&folder)?;
    let names: Vec<String> = home.members().all()?.into_iter().map(|member| member.name).collect();
    let targets = targets(flags, &manifest, &names)?;
    let number = |shard: &Shard| manifest.stages.iter().position(|stage| stage == shard).unwrap_or_default();
    let numbered = targets.iter().map(|(node, shard)| (node.clone(), number(shard))).collect();
    if PushWish::new(folder.clone(), numbered, flags.wait_seconds).fulfil(&home)? {
        return Ok(());
    }
    let (own, others): (Vec<_>, Vec<_>) = targets.into_iter().partition(|(node, _)| node == HERE);
    if !others.is_empty() {
        let targets: Vec<_> = others.iter().map(|(node, shard)| (node.as_str(), *shard)).collect();
        let patience = Duration::from_secs(flags.wait_seconds);
        let shipment = Shipment { folder: &folder, targets: &targets, patience };
        shipment.send(&registry(home.arrivals(&settings)?), &home.audit_log(), &remark)?;
    }
    let own_stages = own.into_iter().map(|(_, shard)| number(shard) as u32).collect();
    home.set_coordinator(&CoordinatorSettings { pushed: Some(folder), own_stages, ..settings })
}

/// Takes a machine out of the fleet. A server that runs with it lets go of it by itself.
pub(crate) fn revoke(flags: &FleetRevokeFlags) -> anyhow::Result<()> {
    let members = FleetHome::find(flags.home.home.as_deref())?.members();
    if !members.revoke(&flags.node)? {
        return Err(unknown(&members, &flags.node)?);
    }
    remark(&format!("{} is revoked: its key opens nothing any more.", flags.node));
    Ok(())
}

/// Lets a machine take part again that was found to be wrong.
pub(crate) fn trust(flags: &FleetTrustFlags) -> anyhow::Result<()> {
    let members = FleetHome::find(flags.home.home.as_deref())?.members();
    if !members.trust(&flags.node)? {
        return Err(unknown(&members, &flags.node)?);
    }
    remark(&format!("{} may take part again.", flags.node));
    Ok(())
}

/// The error that a machine is none of the fleet.
fn unknown(members: &Members, node: &str) -> anyhow::Result<anyhow::Error> {
    let names: Vec<String> = members.all()?.into_iter().map(|member| member.name).collect();
    Ok(anyhow!("`{node}` is no machine of this fleet; there are {}", names.join(", ")))
}

/// Which machine gets which shard.
fn targets<'a>(
    flags: &FleetPushFlags,
    manifest: &'a Manifest,
    names: &[String],
) -> anyhow::Result<Vec<(String, &'a Shard)>> {
    let target = |text: &String| {
        let stages = || manifest.stages.iter().map(|stage| stage.file.trim_end_matches(".gguf"));
        let (node, stage) = text.split_once(':').context("a target is NODE:STAGE, such as node-00:stage-0")?;
        if node != HERE && !names.iter().any(|name| name == node) {
            bail!("`{node}` is no machine of this fleet; there are {}", names.join(", "));
        }
        match stages().position(|name| name == stage.trim_end_matches(".gguf")) {
            Some(at) => Ok((node.to_owned(), &manifest.stages[at])),
            None => {
                bail!("`{stage}` is no stage of this export; there are {}", stages().collect::<Vec<_>>().join(", "))
            }
        }
    };
    flags.targets.iter().map(target).collect()
}
