//! Machines join with a short code over real sockets, and whoever has another one learns nothing.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use cascadia_fleet::link::LinkError;
use cascadia_fleet::{
    Arrival, FleetError, Hello, Identity, Listener, Listening, Members, PairedFleet, PairingCode, Pairings, Sandbox,
    ShownPairing, TcpLink, greet, pair, seconds_now,
};

use crate::harness::PROGRAM;
use crate::sockets::key;

/// A coordinator at a port of its own, which was started so often.
struct Office {
    folder: tempfile::TempDir,
    identity: Identity,
    members: Arc<Members>,
}

struct Port {
    address: String,
    arrivals: Receiver<Arrival>,
    listening: Listening,
}

impl Office {
    fn new() -> Office {
        let folder = tempfile::tempdir().expect("a folder");
        let identity = key(folder.path(), "coordinator");
        let members = Arc::new(Members::at(&folder.path().join("members.json")));
        Office { folder, identity, members }
    }

    fn pairings(&self) -> Pairings {
        Pairings::at(&self.folder.path().join("pairing.json"))
    }

    fn show(&self, machines: u32) -> ShownPairing {
        self.pairings().show(machines, seconds_now() + 600).expect("it is written")
    }

    fn open_as(&self, identity: &Identity) -> Port {
        let listener = Listener::bind("127.0.0.1:0", identity, Arc::clone(&self.members)).expect("a free port");
        let address = listener.address().expect("it listens").to_string();
        let (sender, arrivals) = channel();
        let sender = Mutex::new(sender);
        let listener = listener.with_pairings(self.pairings());
        let listening = listener.run(move |arrival| drop(sender.lock().map(|sender| sender.send(arrival))));
        Port { address, arrivals, listening }
    }

    fn open(&self) -> Port {
        self.open_as(&self.identity)
    }
}

fn code(shown: &ShownPairing) -> PairingCode {
    shown.current().expect("it is read").expect("it is there").code
}

/// A code that differs from this one in one letter.
fn other_than(code: &PairingCode) -> PairingCode {
    let text = code.to_string();
    let last = if text.ends_with('7') { '9' } else { '7' };
    format!("{}{last}", &text[..text.len() - 1]).parse().expect("a code")
}

fn joins(port: &Port, code: &PairingCode, folder: &Path, name: &str) -> Result<PairedFleet, FleetError> {
    pair(std::slice::from_ref(&port.address), code, &key(folder, name).into(), name)
}

/// Why a machine may not join, which must be safe to read: no code is in it.
fn refused(port: &Port, code: &PairingCode, folder: &Path, name: &str) -> (String, bool) {
    match joins(port, code, folder, name) {
        Err(FleetError::Pairing { problem, is_mistyped }) => {
            assert!(!problem.contains(&code.to_string()), "{problem}");
            (problem, is_mistyped)
        }
        other => panic!("it joined, or failed in another way: {other:?}"),
    }
}

#[test]
fn machines_join_with_the_code_and_both_sides_show_the_same() {
    let office = Office::new();
    let (shown, port) = (office.show(2), office.open());
    let typed = code(&shown).to_string().to_lowercase().replace('-', "").parse().expect("a code");
    let first = joins(&port, &typed, office.folder.path(), "library-pc").expect("it has the code");
    assert_eq!(first.fleet.node, "library-pc");
    assert_eq!(first.fleet.keys.coordinator, office.identity.pin());
    assert!(matches!(port.arrivals.recv().expect("it joins"), Arrival::Paired { node } if node == "library-pc"));
    let seen = shown.current().expect("it is read").expect("it is there");
    assert_eq!(
        seen.joined.iter().map(|machine| (&*machine.node, &*machine.agreed)).collect::<Vec<_>>(),
        [("library-pc", &*first.agreed)]
    );
    // A member that has not heard of it is the same machine, and uses nothing up.
    let again = joins(&port, &typed, office.folder.path(), "library-pc").expect("it has the code");
    assert_eq!(again.fleet.node, "library-pc");
    assert_ne!(again.agreed, first.agreed, "what both show belongs to one connection");
    joins(&port, &typed, office.folder.path(), "desk-pc").expect("it is the second");
    let (problem, is_mistyped) = refused(&port, &typed, office.folder.path(), "third");
    assert!(problem.contains("as many machines have joined") && !is_mistyped, "{problem}");
    assert_eq!(office.members.all().expect("it is read").len(), 2);
    // Whoever listened gives the port back, and another takes it at once.
    let address = port.address.clone();
    port.listening.stop().expect("it listens");
    let next = Listener::bind(&address, &office.identity, Arc::clone(&office.members)).expect("it is free");
    assert_eq!(next.address().expect("it listens").to_string(), address);
}

#[test]
fn three_wrong_codes_burn_a_code_also_if_the_coordinator_is_started_again() {
    let office = Office::new();
    let (shown, port) = (office.show(10), office.open());
    let right = code(&shown);
    let wrong = other_than(&right);
    let folder = office.folder.path();
    assert!(refused(&port, &wrong, folder, "one").1, "it may be typed again");
    assert!(matches!(port.arrivals.recv().expect("it tries"), Arrival::TurnedAway { problem, .. }
        if problem.contains("wrong pairing code (1 of 3)")));
    port.listening.stop().expect("it listens");
    drop(shown);
    // What was counted is counted.
    let (shown, port) = (office.show(10), office.open());
    assert_eq!(code(&shown), right);
    assert!(refused(&port, &wrong, folder, "two").0.contains("1 more wrong code"), "it is the second");
    assert!(refused(&port, &wrong, folder, "one").0.contains("the third wrong one"), "it is the third");
    assert!(refused(&port, &right, folder, "one").0.contains("of no more use"), "nobody hears that it is right");
    shown.renew().expect("it is written");
    assert!(refused(&port, &right, folder, "one").0.contains("the code is wrong"), "there is another one");
    assert_eq!(joins(&port, &code(&shown), folder, "one").expect("it has the code").fleet.node, "one");
    assert_eq!(office.members.all().expect("it is read").len(), 1);
}

#[test]
fn no_code_is_good_that_has_expired_or_that_nobody_shows() {
    let office = Office::new();
    let (port, folder) = (office.open(), office.folder.path());
    let any: PairingCode = "K7QF-3MXP".parse().expect("a code");
    assert!(refused(&port, &any, folder, "one").0.contains("no machine may join there now"));
    let expired = office.pairings().show(1, seconds_now() - 1).expect("it is written");
    assert!(refused(&port, &code(&expired), folder, "one").0.contains("has expired"));
    let before = code(&expired);
    drop(expired);
    assert!(refused(&port, &before, folder, "one").0.contains("no machine may join there now"));
}

#[test]
fn a_coordinator_that_only_pretends_is_told_nothing() {
    let [office, impostor] = [Office::new(), Office::new()];
    let (shown, guessed) = (office.show(1), impostor.show(1));
    let port = impostor.open();
    let (problem, is_mistyped) = refused(&port, &code(&shown), office.folder.path(), "victim");
    // It looks like a wrong code, because it is one there.
    assert!(is_mistyped && problem.contains("the code is wrong"), "{problem}");
    assert!(impostor.members.all().expect("it is read").is_empty());
    assert_eq!(guessed.current().expect("it is read").expect("it is there").wrong, 1);
}

#[test]
fn a_machine_that_was_revoked_is_told_so_and_may_join_again() {
    let office = Office::new();
    let (shown, port) = (office.show(2), office.open());
    let identity = key(office.folder.path(), "node");
    joins(&port, &code(&shown), office.folder.path(), "node").expect("it has the code");
    assert!(office.members.revoke("node").expect("it is written"));
    let hello = Hello { program: PROGRAM.to_owned(), shard: None, sandbox: Sandbox::None };
    let mut link =
        TcpLink::dial(std::slice::from_ref(&port.address), &identity, office.identity.pin()).expect("it is answered");
    assert_eq!(greet(&mut link, &hello).err(), Some(LinkError::Revoked));
    joins(&port, &code(&shown), office.folder.path(), "node").expect("it has the code");
    assert!(office.members.has("node"));
    // One that is excluded may come back, and goes on asking.
    office.members.distrust("node", "it was wrong").expect("it is written");
    let mut link =
        TcpLink::dial(std::slice::from_ref(&port.address), &identity, office.identity.pin()).expect("it is answered");
    let excluded = greet(&mut link, &hello).err().expect("it may not").to_string();
    assert!(excluded.contains("is excluded"), "{excluded}");
}
