//! `cascadia fleet`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use cascadia_fleet::{
    CoordinatorSettings, FleetError, FleetEvent, FleetHome, FleetKey, HERE, Invitation, Manifest, Members, PushJob,
    PushRequest, Rotation, SeenRequests, Shard, reachable, receive_workers, seconds_now,
};

use crate::flags::{
    FleetDecisionFlags, FleetInviteFlags, FleetPushFlags, FleetRevokeFlags, FleetRotateFlags, FleetTrustFlags,
};
use crate::home::home;
use crate::output::{print, remark};

/// Prints an invitation for more machines.
pub(crate) fn invite(flags: &FleetInviteFlags) -> anyhow::Result<()> {
    let home = home(flags.home.home.as_deref())?;
    let listen = home.coordinator()?.listen;
    let addresses = if flags.address.is_empty() { reachable(&listen) } else { flags.address.clone() };
    let expires = seconds_now() + flags.ttl.as_secs();
    let invitation = Invitation::new(addresses, home.coordinator_key()?.pin(), expires)?;
    open(&home.members(), &invitation, (flags.uses, flags.approve))?;
    print(&format!("{invitation}\n"))?;
    remark("While `cascadia serve --fleet` runs here, run this on the other machines:  cascadia join <that line>");
    Ok(())
}

pub(super) fn open(members: &Members, invitation: &Invitation, (uses, approve): (u32, bool)) -> Result<(), FleetError> {
    match approve {
        true => members.invite_for_approval(invitation, uses),
        false => members.invite(invitation, uses),
    }
}

/// Makes a machine a member that waits for it.
pub(crate) fn approve(flags: &FleetDecisionFlags) -> anyhow::Result<()> {
    let members = coordinator_members(flags.home.home.as_deref())?;
    let node = members.approve(&flags.node)?.ok_or_else(|| nobody_waits(&members, &flags.node))?;
    remark(&format!("{node} is a member now."));
    Ok(())
}

/// Sends a machine away that waits to become a member.
pub(crate) fn reject(flags: &FleetDecisionFlags) -> anyhow::Result<()> {
    let members = coordinator_members(flags.home.home.as_deref())?;
    let node = members.reject(&flags.node)?.ok_or_else(|| nobody_waits(&members, &flags.node))?;
    remark(&format!("{node} is sent away."));
    Ok(())
}

/// The error that no such machine waits.
fn nobody_waits(members: &Members, which: &str) -> anyhow::Error {
    let waiting = members.pending().unwrap_or_default();
    let waiting: Vec<String> = waiting.iter().map(|pending| format!("{} ({})", pending.name, pending.code)).collect();
    let waiting = if waiting.is_empty() { "none does".to_owned() } else { waiting.join(", ") };
    anyhow!("no machine with the name or code `{which}` waits for approval; waiting: {waiting}")
}

/// Sends shards to machines as they connect.
pub(crate) fn push(flags: &FleetPushFlags) -> anyhow::Result<()> {
    let home = home(flags.home.home.as_deref())?;
    let settings = home.coordinator()?;
    let folder = flags.shards.canonicalize().with_context(|| format!("cannot open {}", flags.shards.display()))?;
    let manifest = Manifest::read(&folder)?;
    let names = home.member_names()?;
    let targets = targets(flags, &manifest, &names)?;
    let number = |shard: &Shard| manifest.stages.iter().position(|stage| stage == shard).unwrap_or_default();
    let numbered = targets.iter().map(|(node, shard)| (node.clone(), number(shard))).collect();
    if PushRequest::new(folder.clone(), numbered, flags.wait_seconds).hand_over(&home)? {
        return Ok(());
    }
    let (own, others): (Vec<_>, Vec<_>) = targets.into_iter().partition(|(node, _)| node == HERE);
    if !others.is_empty() {
        let targets: Vec<_> = others.iter().map(|(node, shard)| (node.as_str(), *shard)).collect();
        let patience = Duration::from_secs(flags.wait_seconds);
        let say = |note: &str| home.notify(FleetEvent::Push { note: note.to_owned() });
        let push = PushJob { folder: &folder, targets: &targets, patience };
        // Whoever only waits for machines gives up the port for it.
        let _serving = home.serve()?;
        push.send(&receive_workers(home.arrivals(&settings)?), &home, &say)?;
    }
    let own_stages = own.into_iter().map(|(_, shard)| number(shard) as u32).collect();
    Ok(home.set_coordinator(&CoordinatorSettings { pushed: Some(folder), own_stages, ..settings })?)
}

/// Takes a machine out of the fleet. A running server releases it by itself.
pub(crate) fn revoke(flags: &FleetRevokeFlags) -> anyhow::Result<()> {
    let members = coordinator_members(flags.home.home.as_deref())?;
    if !members.revoke(&flags.node)? {
        return Err(unknown(&members, &flags.node)?.into());
    }
    remark(&format!("{} is revoked: its key opens nothing any more.", flags.node));
    let seen = SeenRequests::of(home(flags.home.home.as_deref())?.audit_log().folder(), &flags.node)?;
    Ok(print(&super::audit::seen_by(&flags.node, &seen))?)
}

/// Lets a machine take part again that was found to be wrong.
pub(crate) fn trust(flags: &FleetTrustFlags) -> anyhow::Result<()> {
    let members = coordinator_members(flags.home.home.as_deref())?;
    if !members.trust(&flags.node)? {
        return Err(unknown(&members, &flags.node)?.into());
    }
    remark(&format!("{} may take part again.", flags.node));
    Ok(())
}

/// Replaces the fleet's own keys, and wants machines to have new ones, which they make themselves.
pub(crate) fn rotate(flags: &FleetRotateFlags) -> anyhow::Result<()> {
    let members = coordinator_members(flags.home.home.as_deref())?;
    let asked = [(FleetKey::Coordinator, flags.coordinator), (FleetKey::Targets, flags.targets)];
    let which: Vec<FleetKey> = asked.into_iter().filter(|(_, is_asked)| *is_asked).map(|(key, _)| key).collect();
    if !which.is_empty() {
        replace_keys(&home(flags.home.home.as_deref())?, &which, flags.grace)?;
    }
    let Some(node) = &flags.node else { return Ok(()) };
    let all = || Ok::<_, FleetError>(members.all()?.into_iter().map(|member| member.name).collect());
    let nodes: Vec<String> = if node == "all" { all()? } else { vec![node.clone()] };
    for node in nodes {
        if !members.rotate(&node)? {
            return Err(unknown(&members, &node)?.into());
        }
        remark(&format!("{node} makes a new key within about a minute after it is connected to this coordinator."));
    }
    Ok(())
}

/// Replaces keys of the fleet that this machine leads.
fn replace_keys(home: &FleetHome, which: &[FleetKey], grace: Duration) -> anyhow::Result<()> {
    let held = home.keys().rotate(Rotation { which, grace, who: "admin" })?;
    for key in which {
        remark(&format!("The fleet has a new {}: {}.", key.name(), held.newest().key(*key).pin.short()));
    }
    remark(
        "Workers that are connected learn it within about a minute, the others when they next connect; until then the old \
        ones lead them to it.",
    );
    if which.contains(&FleetKey::Coordinator) {
        remark("Invitations that were printed before are of no more use; print new ones with `cascadia fleet invite`.");
    }
    Ok(())
}

/// The members of the fleet that this machine leads; an error if it leads none.
fn coordinator_members(folder: Option<&Path>) -> anyhow::Result<Arc<Members>> {
    let home = home(folder)?;
    home.coordinator()?;
    Ok(home.members())
}

/// The error that a machine is not a member.
fn unknown(members: &Members, node: &str) -> Result<FleetError, FleetError> {
    let members = members.all()?.into_iter().map(|member| member.name).collect();
    Ok(FleetError::UnknownNode { node: node.to_owned(), members })
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
            bail!(FleetError::UnknownNode { node: node.to_owned(), members: names.to_vec() });
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
