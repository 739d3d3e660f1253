//! `cascadia fleet init`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use anyhow::bail;
use cascadia_coordinator::WaitingCoordinator;
use cascadia_fleet::{
    CoordinatorSettings, Digest, FleetEvent, FleetHome, Invitation, Listener, POLL, Pairing, ShownPairing,
    default_address, reachable, seconds_now,
};

use super::fleet::open;
use crate::flags::FleetInitFlags;
use crate::home::{home, reporter};
use crate::output::{print, remark};

/// Machines that may join with a pairing code unless the flags say otherwise: a small office.
const MACHINES: u32 = 10;

/// Makes this machine a coordinator, and lets others join until it is told to end.
pub(crate) fn init(flags: &FleetInitFlags) -> anyhow::Result<()> {
    let home = home(flags.home.home.as_deref())?;
    let listener = set_up(&home, flags)?;
    if flags.invitation || flags.approve || flags.no_wait || !flags.address.is_empty() {
        return invite(&home, flags, listener);
    }
    // What comes of the code is written in its file, also by a server that has the port meanwhile.
    let report = reporter();
    let quiet = home.clone().with_notify(Arc::new(move |event| match event {
        FleetEvent::Paired { .. } => {}
        event => report(event),
    }));
    let mut coordinator = WaitingCoordinator::start(quiet, listener)?;
    let machines = flags.machines.unwrap_or(MACHINES);
    let shown = home.pairings().show(machines, seconds_now() + 60 * flags.minutes)?;
    remark(&format!(
        "Run `cascadia join` on each of the other machines, and type this code there. It is good for {machines} {} and \
         {} minutes. Ctrl+C ends this.",
        if machines == 1 { "machine" } else { "machines" },
        flags.minutes
    ));
    let mut news = PairingNews::default();
    loop {
        coordinator.attend()?;
        // A disk that fails for a moment ends nothing.
        if let Ok(Some(pairing)) = shown.current() {
            news.tell(&pairing, &shown)?;
        }
        thread::sleep(POLL);
    }
}

/// Makes the keys of a fleet if there are none; gives the socket that machines connect to, unless a server has it or
/// nobody needs it.
fn set_up(home: &FleetHome, flags: &FleetInitFlags) -> anyhow::Result<Option<Listener>> {
    let known = home.coordinator().ok();
    let listen = flags.listen.clone().or_else(|| known.as_ref().map(|known| known.listen.clone()));
    let mut listen = listen.unwrap_or_else(default_address);
    let key = home.pending_coordinator_key()?;
    let listener = match flags.no_wait || home.is_served() {
        true => None,
        false => {
            home.check_alone()?;
            let listener = Listener::bind(&listen, key.identity(), home.members())?;
            listen = listener.address()?.to_string();
            Some(listener)
        }
    };
    key.keep()?;
    let silent = flags.no_announce;
    home.set_coordinator(&CoordinatorSettings { listen, silent, ..known.unwrap_or_default() })?;
    Ok(listener)
}

/// Prints an invitation, and waits for the machines unless told otherwise.
fn invite(home: &FleetHome, flags: &FleetInitFlags, listener: Option<Listener>) -> anyhow::Result<()> {
    let listen = home.coordinator()?.listen;
    let addresses = if flags.address.is_empty() { reachable(&listen) } else { flags.address.clone() };
    let expires = seconds_now() + 60 * flags.minutes;
    let invitation = Invitation::new(addresses, home.coordinator_key()?.pin(), expires)?;
    let members = home.members();
    let mut known = keys(home)?;
    open(&members, &invitation, (flags.machines.unwrap_or(1), flags.approve))?;
    let mut coordinator = match flags.no_wait {
        true => None,
        false => Some(WaitingCoordinator::start(home.clone(), listener)?),
    };
    print(&format!("{invitation}\n"))?;
    let Some(coordinator) = &mut coordinator else { return Ok(()) };
    remark("Run this on the other machine, while this one waits:  cascadia join <that line>");
    let mut joined = 0;
    while joined < flags.machines.unwrap_or(1) {
        if seconds_now() >= expires {
            bail!("nobody joined in time; run `cascadia fleet init` again");
        }
        coordinator.attend()?;
        joined += members.all()?.iter().filter(|member| known.insert(member.key)).count() as u32;
        thread::sleep(POLL);
    }
    Ok(())
}

/// The keys of all members.
fn keys(home: &FleetHome) -> anyhow::Result<BTreeSet<Digest>> {
    Ok(home.members().all()?.into_iter().map(|member| member.key).collect())
}

/// What people have been told of a code.
#[derive(Default)]
struct PairingNews {
    code: String,
    joined: BTreeSet<String>,
    refused: u64,
    is_over: bool,
}

impl PairingNews {
    /// Tells what is new, and shows another code where one is burned.
    fn tell(&mut self, pairing: &Pairing, shown: &ShownPairing) -> anyhow::Result<()> {
        let code = pairing.code.to_string();
        if self.code != code {
            print(&format!("Pairing code: {code}\n"))?;
            self.code = code;
        }
        for machine in &pairing.joined {
            let (node, agreed) = (&machine.node, &machine.agreed);
            if self.joined.insert(format!("{node} {agreed}")) {
                let (count, machines) = (pairing.joined.len(), pairing.machines);
                remark(&format!(
                    "{node} has joined ({count} of {machines}). It shows {agreed} too; if not, run `cascadia fleet revoke {node}`."
                ));
            }
        }
        for refused in pairing.refused.iter().filter(|refused| refused.number > self.refused) {
            remark(&format!("{} did not join: {}.", refused.address, refused.refusal));
        }
        self.refused = pairing.refused.last().map_or(self.refused, |last| self.refused.max(last.number));
        let is_over = pairing.is_used_up() || seconds_now() >= pairing.expires;
        if is_over && !self.is_over {
            let why = if pairing.is_used_up() { "All machines have joined" } else { "The time is over" };
            remark(&format!(
                "{why}: the code is of no more use. Run `cascadia fleet init` again to let more machines join."
            ));
        } else if pairing.is_burned() && !is_over {
            remark("Wrong codes were given three times, so the code is of no more use. Use the new one:");
            shown.renew()?;
        }
        self.is_over = is_over;
        Ok(())
    }
}
