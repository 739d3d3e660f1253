//! `cascadia fleet status`.

use std::thread;
use std::time::Duration;

use cascadia_fleet::{FleetKey, FleetStatus, HERE, KeyStatement, Member, PendingMember, StageStatus, seconds_now};
use serde_json::{Value, json};

use crate::flags::FleetStatusFlags;
use crate::home::home;
use crate::output::{print, print_json};

/// A server writes every second; what is older than this is from one that has ended.
const CURRENT: u64 = 5;

/// Shows the machines of a fleet, and which of them run what.
pub(crate) fn status(flags: &FleetStatusFlags) -> anyhow::Result<()> {
    let home = home(flags.home.home.as_deref())?;
    home.coordinator()?;
    loop {
        let (members, pending) = (home.members().all()?, home.members().pending()?);
        let status = home.status()?.filter(|status| seconds_now().abs_diff(status.time) <= CURRENT);
        // On a disk that fails, all else can still be shown.
        let keys = home.keys().current().ok().map(|held| *held.newest());
        if flags.json {
            let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
            let waits = |waits: &PendingMember| json!({ "name": waits.name, "code": waits.code });
            let waiting: Vec<Value> = pending.iter().map(waits).collect();
            let connected = status.as_ref().map(|status| status.connected.clone()).unwrap_or_default();
            let serving = status.filter(|status| status.model.is_some());
            let object = json!({
                "machines": names, "connected": connected, "pending": waiting, "serving": serving, "keys": keys,
            });
            return Ok(print_json(&object)?);
        }
        let dated = keys.map(|keys| key_ages(&keys, seconds_now())).unwrap_or_default();
        let serves = home.is_served();
        let text = table(&members, status.as_ref(), serves) + &waiting(&pending) + &dated;
        if !flags.watch {
            return Ok(print(&text)?);
        }
        // Clears the screen and begins at its top.
        print(&format!("\x1b[2J\x1b[H{text}"))?;
        thread::sleep(Duration::from_secs(1));
    }
}

fn table(members: &[Member], status: Option<&FleetStatus>, serves: bool) -> String {
    let mut text = match status.and_then(|status| Some((status, status.model?))) {
        Some((status, model)) => format!("Serving {} ({}).\n{}", status.name, model.short(), stages(status)),
        None if serves => "A server is getting its model ready.\n".to_owned(),
        None => "No server runs with this fleet; start one with `cascadia serve MODEL --fleet all`.\n".to_owned(),
    };
    let role = |member: &Member| {
        let Member { name, distrusted, .. } = member;
        if let Some(why) = distrusted {
            return format!("excluded, because {why}; `cascadia fleet trust {name}` readmits it");
        }
        if member.is_expired(seconds_now()) {
            return format!("refused, because its key has expired; `cascadia fleet trust {name}` readmits it");
        }
        let stages = || status.into_iter().flat_map(|status| status.stages.iter().enumerate());
        let runs = stages().find(|(_, stage)| stage.node.as_ref() == Some(name));
        let waits = stages().find(|(_, stage)| stage.spares.contains(name));
        let held_back = status.and_then(|status| status.quarantined.get(name));
        let held_back = held_back.map(|seconds| format!("quarantined for {seconds} s more, because it was lost often"));
        let is_doubted = stages().any(|(_, stage)| stage.doubted.contains(name));
        let doubted = is_doubted.then(|| "doubted, because its results differed from another machine's".to_owned());
        let is_slow = stages().any(|(_, stage)| stage.slow.contains(name));
        let slow = is_slow.then(|| "slow: its steps take more than four times as long as before".to_owned());
        let part = match (runs, waits) {
            (Some((stage, _)), _) => Some(format!("computes stage {stage}")),
            (None, Some((number, stage))) if stage.standby.as_ref() == Some(name) => {
                let warm = if stage.standby_is_warm { "warm" } else { "caches are not copied yet" };
                Some(format!("standby for stage {number}, in lockstep, {warm}"))
            }
            (None, Some((stage, _))) => Some(format!("standby for stage {stage}")),
            (None, None) if status.is_some_and(|status| status.connected.contains(name)) => {
                Some("connected, computes nothing".to_owned())
            }
            (None, None) => held_back.is_none().then(|| "not connected".to_owned()),
        };
        let sandbox = stages().find_map(|(_, stage)| stage.sandboxes.get(name));
        let sandbox = sandbox.map(|sandbox| format!("sandbox: {sandbox}"));
        [part, sandbox, held_back, slow, doubted].into_iter().flatten().collect::<Vec<_>>().join("; ")
    };
    for member in members {
        text += &format!("{:<16} {}\n", member.name, role(member));
    }
    text
}

/// How old the fleet's own keys are.
fn key_ages(keys: &KeyStatement, now: u64) -> String {
    const DAY: u64 = 86_400;
    let line = |which: FleetKey| {
        let key = keys.key(which);
        let (age, left) = (now.saturating_sub(key.issued) / DAY, key.expires.saturating_sub(now) / DAY);
        let state = match now < key.expires {
            true => format!("{age} days old, expires in {left} days"),
            false => {
                "expired, so that workers refuse it; replace it with `cascadia fleet rotate --coordinator --targets`, \
                and let them leave and join again"
                    .to_owned()
            }
        };
        format!("{:<16} {state}\n", which.name())
    };
    FleetKey::ALL.map(line).concat()
}

fn waiting(pending: &[PendingMember]) -> String {
    let line = |PendingMember { name, code, .. }: &PendingMember| {
        format!("{name:<16} waits for approval with the code {code}; `cascadia fleet approve {name}` lets it join\n")
    };
    pending.iter().map(line).collect()
}

fn stages(FleetStatus { stages, plan, .. }: &FleetStatus) -> String {
    let mut text =
        "stage  layers    machine           rows    ms/step        network  expected  lost  bypassed\n".to_owned();
    for (number, stage) in stages.iter().enumerate() {
        let StageStatus { layers: [first, end], rows, lost, bypassed, .. } = stage;
        let node = stage.node.as_deref().unwrap_or("-");
        let layers = format!("{first}-{}", end.saturating_sub(1));
        let a_step = |microseconds: u64| microseconds as f64 / 1e3 / stage.steps.max(1) as f64;
        let all = a_step(stage.microseconds);
        let network = a_step(stage.microseconds.saturating_sub(stage.computing_microseconds));
        // For a step of one row; a plan that was made for other machines has other stages.
        let planned = plan.as_ref().and_then(|plan| plan.stages.get(number));
        let expected = planned.map(|stage| format!("{:.2}", 1e3 * (stage.seconds + stage.network_seconds)));
        let expected = expected.unwrap_or_else(|| "-".to_owned());
        text += &format!("{number:<6} {layers:<9} {node:<12} {rows:>9}  {all:>9.2}  {network:>13.2}  ");
        text += &format!("{expected:>8}  {lost:>4}  {bypassed:>8}\n");
    }
    for (number, stage) in stages.iter().enumerate().filter(|(_, stage)| stage.copied_pages + stage.bad_pages > 0) {
        let StageStatus { copied_pages, copied_bytes, bad_pages, .. } = stage;
        let bad = if *bad_pages > 0 { format!("; {bad_pages} copies were wrong and not used") } else { String::new() };
        let megabytes = *copied_bytes as f64 / 1e6;
        text += &format!("Stage {number}: {copied_pages} cache pages ({megabytes:.1} MB) copied to standbys{bad}.\n");
    }
    let is_unchecked = |stage: &StageStatus| stage.node.as_ref().is_some_and(|node| node != HERE) && !stage.is_checked;
    for (number, _) in stages.iter().enumerate().filter(|(_, stage)| is_unchecked(stage)) {
        text += &format!("Stage {number} is unchecked: nobody else computes what its machine computes.\n");
    }
    text
}
