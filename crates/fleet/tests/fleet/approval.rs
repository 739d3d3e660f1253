//! Machines that people approve, after they have compared what both screens show.

use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};

use cascadia_fleet::{Arrival, FleetError, Identity, Invitation, TcpLink, join};

use crate::sockets::{Office, hears_nothing, key};

/// A machine that joins, and the code that it shows.
struct Joining {
    code: Receiver<String>,
    joined: JoinHandle<Result<String, FleetError>>,
}

impl Joining {
    fn start(invitation: &Invitation, identity: &Identity) -> Joining {
        let (invitation, identity, (sender, code)) = (invitation.clone(), identity.clone(), channel());
        let show = move |code: &str| sender.send(code.to_owned()).expect("somebody looks");
        let joins = move || join(&invitation, &identity.into(), "", show).map(|fleet| fleet.node);
        Joining { code, joined: thread::spawn(joins) }
    }

    fn code(&self) -> String {
        self.code.recv().expect("it shows a code")
    }

    fn end(self) -> Result<String, FleetError> {
        self.joined.join().expect("it ends")
    }
}

fn pending(office: &Office) -> (String, String) {
    match office.next() {
        Arrival::Pending { node, code } => (node, code),
        _ => panic!("it should have to be approved"),
    }
}

#[test]
fn a_machine_that_waits_is_no_member_until_it_is_approved() {
    let office = Office::open();
    let [one, other] = ["one", "other"].map(|name| key(office.folder.path(), name));
    let invitation = office.invitation(600);
    office.members.invite_for_approval(&invitation, 1).expect("it can be written");
    let dial =
        |identity: &Identity| TcpLink::dial(std::slice::from_ref(&office.address), identity, office.identity.pin());

    let first = Joining::start(&invitation, &one);
    let (node, code) = pending(&office);
    assert_eq!((node.as_str(), first.code()), ("node-00", code.clone()));
    let waiting = office.members.pending().expect("the list can be read");
    assert_eq!((waiting[0].name.as_str(), waiting[0].key, &waiting[0].code), ("node-00", one.pin(), &code));
    // Its key opens nothing, its name stands for nothing, and its invitation is used up.
    assert!(office.members.all().expect("the list can be read").is_empty() && !office.members.has("node-00"));
    for stranger in [&one, &other] {
        if let Ok(mut link) = dial(stranger) {
            hears_nothing(&mut link);
        }
        assert!(office.turned_away().contains("not known"));
    }

    // Rejected, it hears so, and another may join in its place: on another connection, which has another code.
    assert_eq!(office.members.reject("node-00").expect("it can be written").as_deref(), Some("node-00"));
    assert!(first.end().expect_err("it was rejected").to_string().contains("it was rejected there"));
    office.turned_away();
    let second = Joining::start(&invitation, &one);
    let (_, again) = pending(&office);
    assert_eq!(second.code(), again);
    assert_ne!(again, code);
    assert_eq!(office.members.approve(&code).expect("it can be read"), None, "that code is over");
    let typed = again.to_uppercase().replace('-', "");
    assert_eq!(office.members.approve(&typed).expect("it can be written").as_deref(), Some("node-00"));
    assert_eq!(second.end().expect("it was approved"), "node-00");
    assert!(matches!(office.next(), Arrival::Joined { node } if node == "node-00"));
    let _link = dial(&one).expect("it is a member");
    assert!(matches!(office.next(), Arrival::Member { node, .. } if node == "node-00"));
    // One that has not heard of it asks again, and is told.
    assert_eq!(Joining::start(&invitation, &one).end().expect("it is a member"), "node-00");
}

#[test]
fn whoever_is_between_two_machines_shows_two_codes() {
    let [office, between] = [0, 1].map(|_| Office::open());
    let [honest, other] = ["honest", "other"].map(|name| key(office.folder.path(), name));
    // The secret has leaked, and the machine is given a line with another address and key.
    let invitation = office.invitation(600);
    let forged = Invitation { secret: invitation.secret.clone(), ..between.invitation(600) };
    office.members.invite_for_approval(&invitation, 1).expect("it can be written");
    between.members.invite_for_approval(&forged, 1).expect("it can be written");
    let (deceived, relayed) = (Joining::start(&forged, &honest), Joining::start(&invitation, &other));
    let ((_, shown), (_, shown_there)) = (pending(&office), pending(&between));
    assert_eq!((deceived.code(), relayed.code()), (shown_there.clone(), shown.clone()));
    assert_ne!(shown, shown_there);
    for (office, joining) in [(&between, deceived), (&office, relayed)] {
        office.members.reject("node-00").expect("it can be written");
        assert!(joining.end().is_err());
    }
}
