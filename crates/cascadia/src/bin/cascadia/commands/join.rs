//! `cascadia join`.

use std::io::{self, IsTerminal, Write};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use cascadia::{Error, WorkerBuilder};
use cascadia_fleet::{FleetError, FleetHome, FoundCoordinator, PairingCode, find_coordinators, host_name};

use super::worker;
use crate::flags::JoinFlags;
use crate::home::home;
use crate::output::remark;

/// How long to look for a coordinator.
const LOOKING: Duration = Duration::from_secs(15);
/// The same for one that has an address if it does not answer.
const LOOKING_FOR_NAME: Duration = Duration::from_secs(4);
/// The port of a coordinator unless another is given.
const PORT: u16 = 7420;
/// How often a person may type a code: the coordinator takes no more wrong ones.
const TRIES: u32 = 3;

/// Joins a fleet with a key of its own, and goes on as its worker.
pub(crate) fn join(flags: &JoinFlags) -> anyhow::Result<()> {
    let home = home(flags.run.home.home.as_deref())?;
    let name = flags.name.clone().unwrap_or_else(host_name);
    if let Some(invitation) = &flags.invitation {
        let node = WorkerBuilder::from_home(home).join(&invitation.parse()?, &name)?;
        remark(&format!("This machine is {node} now. Start it with:  cascadia worker start"));
        return Ok(());
    }
    match home.worker() {
        Ok(known) => remark(&format!(
            "This machine is {} of a fleet already; to join another, run `cascadia leave` first.",
            known.node
        )),
        Err(FleetError::NotSetUp { .. }) => pair(home, flags, &name)?,
        Err(error) => return Err(error.into()),
    }
    if flags.no_start { Ok(()) } else { worker::run(&flags.run, None) }
}

/// Joins with the pairing code that a coordinator shows.
fn pair(home: FleetHome, flags: &JoinFlags, name: &str) -> anyhow::Result<()> {
    let addresses = addresses(flags.coordinator.as_deref())?;
    let joining = WorkerBuilder::from_home(home);
    let is_asked = flags.code.is_none() && io::stdin().is_terminal();
    for tried in 1.. {
        let joined = code(flags).map_err(Error::from).and_then(|code| joining.pair(&addresses, &code, name));
        match joined {
            Ok((node, agreed)) => {
                remark(&format!(
                    "This machine is {node} now. The coordinator shows {agreed} too; if not, run `cascadia leave`."
                ));
                return Ok(());
            }
            Err(Error::Fleet(error @ FleetError::Pairing { is_mistyped: true, .. })) if is_asked && tried < TRIES => {
                remark(&format!("{error}."));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The code that was given, or that a person or a pipe gives.
fn code(flags: &JoinFlags) -> Result<PairingCode, FleetError> {
    match &flags.code {
        Some(code) => code.parse(),
        None => ask("Pairing code that the coordinator shows: ").unwrap_or_default().parse(),
    }
}

/// A line of standard input; the question goes to a person alone.
fn ask(question: &str) -> io::Result<String> {
    if io::stdin().is_terminal() {
        let _ = write!(io::stderr(), "{question}").and_then(|()| io::stderr().flush());
    }
    let mut line = String::new();
    io::stdin().read_line(&mut line).map(|_| line)
}

/// Where the coordinator listens that was named, or that answers.
fn addresses(named: Option<&str>) -> anyhow::Result<Vec<String>> {
    let Some(named) = named else {
        remark("Looking for a coordinator in this network …");
        return choose(find_coordinators(LOOKING));
    };
    if let Some(address) = address(named) {
        return Ok(vec![address]);
    }
    let mut found = find_coordinators(LOOKING_FOR_NAME);
    found.retain(|found| found.host.eq_ignore_ascii_case(named));
    // Who does not answer by multicast may still be known by its name.
    if found.is_empty() { Ok(vec![format!("{named}:{PORT}")]) } else { choose(found) }
}

/// What is an address and no name.
fn address(text: &str) -> Option<String> {
    match text.parse::<IpAddr>() {
        Ok(ip) => Some(std::net::SocketAddr::new(ip, PORT).to_string()),
        Err(_) => text.contains(':').then(|| text.to_owned()),
    }
}

/// One of those that were found.
fn choose(mut found: Vec<FoundCoordinator>) -> anyhow::Result<Vec<String>> {
    let shown = |found: &FoundCoordinator| format!("{} ({})", found.host, found.addresses.join(", "));
    let at = match found.len() {
        0 => bail!(
            "no coordinator answers in this network; is `cascadia fleet init` running there? Where multicast does not reach, \
             give its address: cascadia join --coordinator 192.168.1.20"
        ),
        1 => 0,
        _ if io::stdin().is_terminal() => {
            for (number, found) in found.iter().enumerate() {
                remark(&format!("{:>3}  {}", number + 1, shown(found)));
            }
            let line =
                ask("Several coordinators answer. Number of the right one: ").context("cannot read the answer")?;
            let number = line.trim().parse::<usize>().ok().filter(|number| (1..=found.len()).contains(number));
            number.context("there is no coordinator of that number")? - 1
        }
        _ => {
            let all: Vec<String> = found.iter().map(shown).collect();
            bail!("several coordinators answer: {}; choose one: cascadia join --coordinator NAME", all.join(", "))
        }
    };
    let FoundCoordinator { host, addresses, .. } = found.swap_remove(at);
    remark(&format!("The coordinator is {host} ({}).", addresses.join(", ")));
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_from_a_name() {
        for (text, expected) in [
            ("192.168.1.20", Some("192.168.1.20:7420")),
            ("192.168.1.20:9", Some("192.168.1.20:9")),
            ("2001:db8::1", Some("[2001:db8::1]:7420")),
            ("office.example:9", Some("office.example:9")),
            ("library-pc", None),
        ] {
            assert_eq!(address(text).as_deref(), expected, "{text}");
        }
    }
}
