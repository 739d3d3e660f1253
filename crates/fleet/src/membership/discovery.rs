//! Finds coordinators by multicast in the local network. What is heard there is a hint and no more: whoever is found must
//! still prove the coordinator's key, or the pairing code.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use mdns_sd::{MDNS_PORT, ResolvedService, ServiceDaemon, ServiceEvent, ServiceInfo};

use crate::os::{host_name, name_from};
use crate::{Clock, Digest, FleetError};

const SERVICE: &str = "_cascadia._tcp.local.";
/// The property that says whose service it is.
const KEY: &str = "key";
/// The property with the name of the machine.
const HOST: &str = "host";
/// The most addresses that are tried, and of one announcement: anybody may announce anything.
const MOST_HINTS: usize = 12;
const MOST_OF_ONE: usize = 4;
/// How long to listen at least: another coordinator may answer later.
const AT_LEAST: Duration = Duration::from_secs(2);
/// How long the last of what was asked may take to end.
const ENDING: Duration = Duration::from_millis(500);

/// A coordinator can be found for as long as this is held.
pub struct Announcement(ServiceDaemon);

impl Drop for Announcement {
    fn drop(&mut self) {
        // Who still hears of it finds nobody there.
        let _ = self.0.shutdown();
    }
}

/// A coordinator as it says itself, which is not proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundCoordinator {
    /// The name of the machine.
    pub host: String,
    /// Where it listens.
    pub addresses: Vec<String>,
    /// The first key of its fleet.
    fleet: String,
}

/// Says in the local network where the coordinator with this key listens.
pub(crate) fn announce(coordinator: Digest, address: SocketAddr) -> Result<Announcement, FleetError> {
    announce_at(MDNS_PORT, (coordinator, &host_name()), address)
}

/// Where the coordinator with this key is said to listen, heard within `patience`.
pub fn look_around(coordinator: Digest, patience: Duration) -> Vec<String> {
    let key = coordinator.to_string();
    // A system without multicast knows of nobody.
    let found =
        listen_at(MDNS_PORT, patience, |found, _| found.iter().any(|found| found.fleet == key)).unwrap_or_default();
    found.into_iter().filter(|found| found.fleet == key).flat_map(|found| found.addresses).take(MOST_HINTS).collect()
}

/// Coordinators that say within `patience` that they are there, by their names.
pub fn find_coordinators(patience: Duration) -> Vec<FoundCoordinator> {
    find_at(MDNS_PORT, patience)
}

fn find_at(port: u16, patience: Duration) -> Vec<FoundCoordinator> {
    let mut found =
        listen_at(port, patience, |found, listened| !found.is_empty() && listened >= AT_LEAST).unwrap_or_default();
    found.sort_by(|one, other| (&one.host, &one.fleet).cmp(&(&other.host, &other.fleet)));
    found
}

fn announce_at(
    port: u16,
    (coordinator, host_name): (Digest, &str),
    address: SocketAddr,
) -> Result<Announcement, FleetError> {
    let network = Path::new("the coordinator in the local network");
    let failed = |error: mdns_sd::Error| FleetError::io("announce", network)(io::Error::other(error));
    let (name, key) = (coordinator.short(), coordinator.to_string());
    let host = format!("cascadia-{name}.local.");
    let properties = [(KEY, key.as_str()), (HOST, host_name)];
    let service = match address.ip() {
        // It listens everywhere, so wherever this machine can be reached.
        ip if ip.is_unspecified() => ServiceInfo::new(SERVICE, &name, &host, "", address.port(), &properties[..])
            .map(ServiceInfo::enable_addr_auto),
        ip => ServiceInfo::new(SERVICE, &name, &host, ip, address.port(), &properties[..]),
    };
    let daemon = ServiceDaemon::new_with_port(port).map_err(failed)?;
    daemon.register(service.map_err(failed)?).map_err(failed)?;
    Ok(Announcement(daemon))
}

/// Listens until it is enough, which is asked with what was found and the time that was listened, or time is up.
fn listen_at(
    port: u16,
    patience: Duration,
    is_enough: impl Fn(&[FoundCoordinator], Duration) -> bool,
) -> Result<Vec<FoundCoordinator>, mdns_sd::Error> {
    let clock = Clock::system();
    let begin = clock.now();
    let end = begin + patience;
    let daemon = ServiceDaemon::new_with_port(port)?;
    let heard = daemon.browse(SERVICE)?;
    let mut found = Vec::new();
    while clock.now() < end && !is_enough(&found, clock.since(begin)) {
        if let Ok(ServiceEvent::ServiceResolved(service)) = heard.recv_deadline(next_look(clock.now(), end)) {
            add(&mut found, &service);
        }
    }
    // Nothing of it should run on when this process gives up what it does not need.
    if let Ok(ended) = daemon.shutdown() {
        let _ = ended.recv_timeout(ENDING);
    }
    Ok(found)
}

/// It may be enough before the next is heard.
fn next_look(now: Instant, end: Instant) -> Instant {
    end.min(now + AT_LEAST / 8)
}

fn add(found: &mut Vec<FoundCoordinator>, service: &ResolvedService) {
    let Some(fleet) = service.get_property_val_str(KEY) else { return };
    // A name that anybody can choose is shown to people.
    let host: String = name_from(service.get_property_val_str(HOST).unwrap_or_default()).chars().take(64).collect();
    let host = if host.is_empty() { fleet.chars().filter(char::is_ascii_hexdigit).take(8).collect() } else { host };
    let is_usable = |ip: &IpAddr| match ip {
        IpAddr::V4(_) => true,
        // Without its network, such an address leads nowhere.
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    };
    let mut addresses: Vec<IpAddr> =
        service.get_addresses().iter().map(|ip| ip.to_ip_addr()).filter(is_usable).take(MOST_OF_ONE).collect();
    addresses.sort_by_key(|ip| (ip.is_ipv6(), *ip));
    let addresses = addresses.into_iter().map(|ip| SocketAddr::new(ip, service.get_port()).to_string());
    let known = found.iter().position(|known| known.fleet == fleet && known.host == host);
    let Some(at) = known.or_else(|| (found.len() < MOST_HINTS).then_some(found.len())) else { return };
    if at == found.len() {
        found.push(FoundCoordinator { host, addresses: Vec::new(), fleet: fleet.to_owned() });
    }
    let known = &mut found[at].addresses;
    let new: Vec<String> = addresses.filter(|address| !known.contains(address)).collect();
    known.extend(new);
    known.truncate(MOST_OF_ONE);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not the usual port, so that nothing else in the network hears or disturbs it.
    const PORT: u16 = 54_531;

    /// What is heard of them in the end. It takes as long as the threads that ask and answer need; who has heard nothing
    /// looks again.
    fn heard<T: Default + PartialEq>(look: impl Fn() -> T, is_enough: impl Fn(&T) -> bool) -> T {
        (0..12).map(|_| look()).find(is_enough).unwrap_or_default()
    }

    #[test]
    fn coordinators_are_found_where_they_listen() {
        let [meant, other] = [b"meant", b"other"].map(|key| Digest::of(key));
        let address: SocketAddr = "127.0.0.1:7420".parse().expect("an address");
        let elsewhere = "127.0.0.1:9".parse().expect("an address");
        let others = announce_at(PORT, (other, "Library-PC.office\u{7}"), elsewhere).expect("it can be announced");
        let announcement = announce_at(PORT, (meant, ""), address).expect("it can be announced");
        let patience = Duration::from_secs(5);
        let is_meant = |found: &[FoundCoordinator], _| found.iter().any(|found| found.fleet == meant.to_string());
        let all = || listen_at(PORT, patience, is_meant).expect("it can listen");
        let found = heard(all, |found| is_meant(found, patience));
        let found = found.into_iter().find(|found| found.fleet == meant.to_string()).expect("it is announced");
        assert_eq!((found.addresses, found.host), (vec![address.to_string()], meant.to_string()[..8].to_owned()));
        let both = heard(|| find_at(PORT, patience), |found| found.len() == 2);
        assert!(both.iter().any(|found| found.host == "library-pc"), "{both:?}");
        drop(others);
        drop(announcement);
    }
}
