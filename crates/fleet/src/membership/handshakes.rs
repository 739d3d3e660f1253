//! Connections that have yet to prove a key: how many there may be, and which of them make room for others.
//!
//! A handshake takes a member milliseconds. Who connects and says nothing holds a place for as long as it is given one,
//! so places are shared by address, members' addresses come first, and the oldest gives way.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Handshakes at a time.
const MOST: usize = 128;
/// Of those, from addresses from which no member has come yet.
const MOST_STRANGERS: usize = 96;
/// From one such address.
const STRANGER_SHARE: usize = 16;
/// From one address from which members have come.
const MEMBER_SHARE: usize = 64;
/// For so long, nobody has to make room: longer than an honest handshake takes.
const GRACE: Duration = Duration::from_millis(500);
/// Addresses of members that are remembered.
const MOST_KNOWN: usize = 256;

/// All handshakes under way.
#[derive(Clone, Default)]
pub(crate) struct Handshakes(Arc<Mutex<State>>);

/// The place of one handshake, free again when this is dropped.
pub(crate) struct HandshakePlace {
    handshakes: Handshakes,
    number: u64,
    network: Network,
}

/// Ends the connection of a handshake that makes room.
pub(crate) type End = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    /// Numbers of handshakes, growing.
    next: u64,
    under_way: BTreeMap<u64, Handshake>,
    /// From where members have come, the latest last.
    known: VecDeque<Network>,
}

struct Handshake {
    network: Network,
    is_known: bool,
    since: Instant,
    end: End,
}

/// Addresses that one machine can choose among: one of IPv4, 2⁶⁴ of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network(u64);

impl Network {
    fn of(address: IpAddr) -> Network {
        match address.to_canonical() {
            IpAddr::V4(address) => Network(address.to_bits().into()),
            IpAddr::V6(address) => Network((address.to_bits() >> 64) as u64),
        }
    }
}

impl Handshakes {
    /// A place for a connection from an address, if need be that of an older one, which is ended. Without one, the
    /// connection is refused before anything is computed for it.
    pub(crate) fn take(&self, address: IpAddr, now: Instant, end: End) -> Option<HandshakePlace> {
        let network = Network::of(address);
        let mut state = self.state();
        let is_known = state.known.contains(&network);
        if let Some(oldest) = state.in_the_way(network, is_known) {
            let old = &state.under_way[&oldest];
            let makes_room = now.saturating_duration_since(old.since) >= GRACE || (is_known && !old.is_known);
            let ended = makes_room.then(|| state.under_way.remove(&oldest))??;
            (ended.end)();
        }
        state.next += 1;
        let number = state.next;
        state.under_way.insert(number, Handshake { network, is_known, since: now, end });
        Some(HandshakePlace { handshakes: self.clone(), number, network })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The handshake that would have to end for another one from there; none if there is room.
    fn in_the_way(&self, network: Network, is_known: bool) -> Option<u64> {
        let own = self.of(|other| other.network == network);
        let strangers = self.of(|other| !other.is_known);
        let share = if is_known { MEMBER_SHARE } else { STRANGER_SHARE };
        let is_full = self.under_way.len() >= MOST;
        let crowded = if own.count >= share {
            own
        } else if (!is_known && strangers.count >= MOST_STRANGERS) || (is_full && strangers.count > 0) {
            strangers
        } else if is_full {
            self.of(|_| true)
        } else {
            return None;
        };
        crowded.oldest
    }

    fn of(&self, belongs: impl Fn(&Handshake) -> bool) -> Group {
        let mut group = Group { count: 0, oldest: None };
        for (number, _) in self.under_way.iter().filter(|(_, handshake)| belongs(handshake)) {
            group.count += 1;
            group.oldest.get_or_insert(*number);
        }
        group
    }
}

/// Some of the handshakes.
struct Group {
    count: usize,
    oldest: Option<u64>,
}

impl HandshakePlace {
    /// A member has proved itself from there: its address comes first from now on.
    pub(crate) fn remember_member(&self) {
        let mut state = self.handshakes.state();
        state.known.retain(|network| *network != self.network);
        state.known.push_back(self.network);
        if state.known.len() > MOST_KNOWN {
            state.known.pop_front();
        }
    }
}

impl Drop for HandshakePlace {
    fn drop(&mut self) {
        // One that made room has no place any more.
        self.handshakes.state().under_way.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::Clock;

    /// Handshakes that never end by themselves, and how many were ended.
    struct Crowd {
        handshakes: Handshakes,
        now: Instant,
        held: Vec<HandshakePlace>,
        ended: Arc<AtomicUsize>,
    }

    impl Crowd {
        fn new() -> Crowd {
            let (handshakes, ended) = (Handshakes::default(), Arc::default());
            Crowd { handshakes, now: Clock::system().now(), held: Vec::new(), ended }
        }

        /// Connects so often from one of the addresses 10.0.x.x; how many found a place.
        fn connect(&mut self, from: u16, times: usize) -> usize {
            let address = IpAddr::from([10, 0, (from >> 8) as u8, from as u8]);
            let before = self.held.len();
            for _ in 0..times {
                let ended = Arc::clone(&self.ended);
                let end = Box::new(move || {
                    ended.fetch_add(1, Ordering::Relaxed);
                });
                self.held.extend(self.handshakes.take(address, self.now, end));
            }
            self.held.len() - before
        }

        fn ended(&self) -> usize {
            self.ended.swap(0, Ordering::Relaxed)
        }

        fn is_member(&mut self, from: u16) {
            assert_eq!(self.connect(from, 1), 1);
            self.held.pop().expect("a place").remember_member();
        }
    }

    #[test]
    fn one_address_has_a_share_and_gives_way_to_itself() {
        let mut crowd = Crowd::new();
        assert_eq!(
            (crowd.connect(1, 320), crowd.connect(2, 1)),
            (STRANGER_SHARE, 1),
            "another address is not affected"
        );
        crowd.now += GRACE;
        // A machine that joins from the same address is let in at once.
        assert_eq!((crowd.connect(1, 1), crowd.ended()), (1, 1));
        crowd.held.clear();
        assert_eq!(crowd.connect(1, 320), STRANGER_SHARE, "places are free again");
    }

    #[test]
    fn strangers_leave_room_for_members_and_make_room_for_each_other() {
        let mut crowd = Crowd::new();
        (0..3).for_each(|member| crowd.is_member(member));
        let taken: usize = (100..500).map(|from| crowd.connect(from, 2)).sum();
        assert_eq!((taken, crowd.ended()), (MOST_STRANGERS, 0), "refused before a handshake");
        assert_eq!((crowd.connect(0, MOST - MOST_STRANGERS), crowd.ended()), (MOST - MOST_STRANGERS, 0));
        // Members need not even wait for them.
        assert_eq!((crowd.connect(1, MEMBER_SHARE), crowd.ended()), (MEMBER_SHARE, MEMBER_SHARE));
        crowd.now += GRACE;
        assert_eq!((crowd.connect(501, 1), crowd.ended()), (1, 1), "the oldest stranger makes room");
    }

    #[test]
    fn one_member_cannot_hold_all_places() {
        let mut crowd = Crowd::new();
        (0..3).for_each(|member| crowd.is_member(member));
        assert_eq!(crowd.connect(0, 1000), MEMBER_SHARE);
        assert_eq!(crowd.connect(1, 1000), MEMBER_SHARE);
        assert_eq!(crowd.connect(2, 1), 0, "all are younger than a handshake takes");
        crowd.now += GRACE;
        assert_eq!((crowd.connect(2, 1), crowd.ended()), (1, 1));
    }

    #[test]
    fn a_machine_with_many_addresses_of_one_network_is_one() {
        let parse = |text: &str| Network::of(text.parse().expect("an address"));
        assert_eq!(parse("2001:db8:1:2::1"), parse("2001:db8:1:2:ffff::9"));
        assert_ne!(parse("2001:db8:1:2::1"), parse("2001:db8:1:3::1"));
        assert_eq!(parse("::ffff:10.0.0.1"), parse("10.0.0.1"));
        assert_ne!(parse("10.0.0.1"), parse("10.0.0.2"));
    }
}
