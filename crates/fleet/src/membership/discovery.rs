//! Finds a coordinator whose address has changed, by multicast in the local network. What is heard there is a hint and
//! no more: whoever is found must still prove the coordinator's key.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use mdns_sd::{MDNS_PORT, ServiceDaemon, ServiceEvent, ServiceInfo};

use crate::{Clock, Digest, FleetError};

const SERVICE: &str = "_cascadia._tcp.local.";
/// The property that says whose service it is.
const KEY: &str = "key";
/// The most addresses that are tried, and of one announcement: anybody may announce anything.
const MOST_HINTS: usize = 12;
const MOST_OF_ONE: usize = 4;

/// A coordinator can be found for as long as this is held.
pub struct Announcement(ServiceDaemon);

impl Drop for Announcement {
    fn drop(&mut self) {
        // Who still hears of it finds nobody there.
        let _ = self.0.shutdown();
    }
}

/// Says in the local network where the coordinator with this key listens.
pub(crate) fn announce(coordinator: Digest, address: SocketAddr) -> Result<Announcement, FleetError> {
    announce_at(MDNS_PORT, coordinator, address)
}

/// Where the coordinator with this key is said to listen, heard within `patience`.
pub fn look_around(coordinator: Digest, patience: Duration) -> Vec<String> {
    // A system without multicast knows of nobody.
    look_around_at(MDNS_PORT, coordinator, patience).unwrap_or_default()
}

fn announce_at(port: u16, coordinator: Digest, address: SocketAddr) -> Result<Announcement, FleetError> {
    let network = Path::new("the coordinator in the local network");
    let failed = |error: mdns_sd::Error| FleetError::io("announce", network)(io::Error::other(error));
    let (name, key) = (coordinator.short(), coordinator.to_string());
    let host = format!("cascadia-{name}.local.");
    let properties = [(KEY, key.as_str())];
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

fn look_around_at(port: u16, coordinator: Digest, patience: Duration) -> Result<Vec<String>, mdns_sd::Error> {
    let end = Clock::system().now() + patience;
    let key = coordinator.to_string();
    let daemon = ServiceDaemon::new_with_port(port)?;
    let heard = daemon.browse(SERVICE)?;
    let mut found = Vec::new();
    while let Ok(event) = heard.recv_deadline(end) {
        let ServiceEvent::ServiceResolved(service) = event else { continue };
        if service.get_property_val_str(KEY) != Some(&key) {
            continue;
        }
        let addresses = service.get_addresses().iter().map(|ip| SocketAddr::new(ip.to_ip_addr(), service.get_port()));
        found.extend(addresses.map(|address| address.to_string()).take(MOST_OF_ONE));
        if found.len() >= MOST_HINTS {
            break;
        }
    }
    let _ = daemon.shutdown();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not the usual port, so that nothing else in the network hears or disturbs it.
    const PORT: u16 = 54_531;

    #[test]
    fn the_coordinator_that_is_meant_is_found_where_it_listens() {
        let [meant, other] = [b"meant", b"other"].map(|key| Digest::of(key));
        let address: SocketAddr = "127.0.0.1:7420".parse().expect("an address");
        let _other = announce_at(PORT, other, "127.0.0.1:9".parse().expect("an address")).expect("it can be announced");
        let announcement = announce_at(PORT, meant, address).expect("it can be announced");
        // It takes as long as the threads that ask and answer need; who has heard nothing looks again.
        let look = |_| look_around_at(PORT, meant, Duration::from_secs(5)).expect("it can listen");
        let found = (0..12).map(look).find(|found| !found.is_empty());
        assert_eq!(found.unwrap_or_default(), [address.to_string()]);
        drop(announcement);
    }
}
