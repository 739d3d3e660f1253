//! Where other machines reach this one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The port of a coordinator unless another is asked for.
const PORT: u16 = 7420;

/// The address of this machine on its network, with the port that coordinators use.
pub fn default_address() -> String {
    SocketAddr::new(own_addresses(Ipv4Addr::UNSPECIFIED.into())[0], PORT).to_string()
}

/// Where others reach a socket that listens at `listen`: that address, or those of this machine if it stands for all.
pub fn reachable(listen: &str) -> Vec<String> {
    match listen.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_unspecified() => {
            let own = own_addresses(address.ip()).into_iter();
            own.map(|own| SocketAddr::new(own, address.port()).to_string()).collect()
        }
        _ => vec![listen.to_owned()],
    }
}

/// Addresses nobody has, behind the default route and on the usual private networks.
const ELSEWHERE: [&str; 5] =
    ["192.0.2.1:9", "192.168.255.254:9", "10.255.255.254:9", "172.31.255.254:9", "[2001:db8::1]:9"];

/// The addresses from which the system would reach others, and so about those at which others reach it: at least
/// one. Nothing is sent for that.
fn own_addresses(listening: IpAddr) -> Vec<IpAddr> {
    let mut own = Vec::new();
    for elsewhere in ELSEWHERE.iter().filter_map(|address| address.parse::<SocketAddr>().ok()) {
        let any: IpAddr = if elsewhere.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let found = UdpSocket::bind((any, 0)).and_then(|socket| {
            socket.connect(elsewhere)?;
            socket.local_addr()
        });
        // A socket that listens at every IPv4 address is not reached at an IPv6 one.
        let is_reached = |found: &IpAddr| found.is_ipv4() || listening.is_ipv6();
        own.extend(found.ok().map(|found| found.ip()).filter(|found| is_reached(found) && !own.contains(found)));
    }
    if own.is_empty() {
        own.push(Ipv4Addr::LOCALHOST.into());
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_means_all_is_no_place_to_go_to() {
        for listen in ["192.168.1.20:7420", "pc.example:7420", "127.0.0.1:9"] {
            assert_eq!(reachable(listen), [listen]);
        }
        for listen in ["0.0.0.0:7421", "[::]:7421"] {
            let addresses = reachable(listen);
            assert!(!addresses.is_empty());
            for address in addresses {
                let address: SocketAddr = address.parse().expect("an address");
                assert!(!address.ip().is_unspecified() && address.port() == 7421, "{address}");
            }
        }
    }
}
