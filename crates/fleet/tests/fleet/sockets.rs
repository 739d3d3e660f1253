//! Real sockets: machines join once, members compute, and strangers do not get a byte.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use cascadia_fleet::frame::WIRE_VERSION;
use cascadia_fleet::link::{Link, LinkError};
use cascadia_fleet::{
    Arrival, Clock, Digest, FleetError, Identity, Invitation, Listener, Members, RemoteStage, TcpLink, seconds_now,
};

use crate::harness::{PATIENCE, Workshop, continuation, prompt};

/// A coordinator on a port of its own.
pub(crate) struct Office {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) identity: Identity,
    pub(crate) members: Arc<Members>,
    pub(crate) address: String,
    arrivals: Mutex<Receiver<Arrival>>,
}

impl Office {
    pub(crate) fn open() -> Office {
        let folder = tempfile::tempdir().expect("a folder");
        let identity = key(folder.path(), "coordinator");
        let members = Arc::new(Members::at(&folder.path().join("members.json")));
        let listener = Listener::bind("127.0.0.1:0", &identity, Arc::clone(&members)).expect("a free port");
        let address = listener.address().expect("it listens").to_string();
        let (sender, arrivals) = channel();
        let sender = Mutex::new(sender);
        listener.run(move |arrival| drop(sender.lock().map(|sender| sender.send(arrival))));
        Office { folder, identity, members, address, arrivals: Mutex::new(arrivals) }
    }

    fn invite(&self, seconds: u64) -> Invitation {
        let invitation = self.invitation(seconds);
        self.members.invite(&invitation, 1).expect("it can be written");
        invitation
    }

    /// One that is not open yet.
    pub(crate) fn invitation(&self, seconds: u64) -> Invitation {
        let addresses = vec!["127.0.0.1:9".to_owned(), self.address.clone()];
        let invitation = Invitation::new(addresses, self.identity.pin(), seconds_now() + seconds).expect("random");
        invitation.to_string().parse().expect("a line can be read")
    }

    pub(crate) fn next(&self) -> Arrival {
        self.arrivals.lock().unwrap().recv().expect("someone arrives")
    }

    pub(crate) fn turned_away(&self) -> String {
        match self.next() {
            Arrival::TurnedAway { problem, .. } => problem,
            Arrival::Member { node, .. }
            | Arrival::Joined { node }
            | Arrival::Paired { node }
            | Arrival::Rotated { node }
            | Arrival::Pending { node, .. } => panic!("{node} was let in"),
        }
    }
}

/// Joins without anybody's approval.
fn join(invitation: &Invitation, key: &Identity, wanted: &str) -> Result<String, FleetError> {
    let joined = cascadia_fleet::join(invitation, &key.clone().into(), wanted, |code| panic!("it should show {code}"));
    joined.map(|fleet| fleet.node)
}

pub(crate) fn key(folder: &Path, name: &str) -> Identity {
    let path = folder.join(format!("{name}.key"));
    let identity = Identity::open_or_make(&path).expect("a key");
    assert_eq!(Identity::open_or_make(&path).expect("the same key").pin(), identity.pin());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(path.metadata().expect("it was written").permissions().mode() & 0o777, 0o600);
    }
    identity
}

/// Whether the other end sends anything at all, or just ends.
pub(crate) fn hears_nothing(link: &mut TcpLink) {
    let heard = link.read(&mut [0], Clock::system().now() + PATIENCE.silence);
    assert!(matches!(heard, Err(LinkError::Closed | LinkError::HungUp | LinkError::Broken(_))), "{heard:?}");
}

#[test]
fn an_invitation_is_used_once_and_strangers_hear_nothing() {
    let office = Office::open();
    let [one, other] = ["one", "other"].map(|name| key(office.folder.path(), name));
    let dial =
        |identity: &Identity| TcpLink::dial(std::slice::from_ref(&office.address), identity, office.identity.pin());

    // Without an invitation, a key that nobody knows ends the handshake.
    if let Ok(mut link) = dial(&one) {
        hears_nothing(&mut link);
    }
    assert!(office.turned_away().contains("not known"));

    // With a wrong secret, it is not let in while another is invited.
    let invitation = office.invite(60);
    let forged = Invitation { secret: [7; 16].into(), ..invitation.clone() };
    assert!(join(&forged, &one, "one").is_err());
    assert!(office.turned_away().contains("not invited"));

    // A worker's greeting from a stranger is not answered either.
    let mut link = dial(&one).expect("an invitation is open");
    link.write(&[1, WIRE_VERSION, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        .expect("it can be sent");
    hears_nothing(&mut link);
    assert!(office.turned_away().contains("may not send Hello"));

    // The right secret works once; a coordinator with another key is not spoken to.
    let impostor = Invitation { coordinator: Digest::of(b"impostor"), ..invitation.clone() };
    assert!(join(&impostor, &one, "one").is_err());
    office.turned_away();
    assert_eq!(join(&invitation, &one, "Not A Name!").expect("it was invited"), "node-00");
    assert!(matches!(office.next(), Arrival::Joined { node } if node == "node-00"));
    assert!(join(&invitation, &other, "other").is_err());
    office.turned_away();
    let expired = Invitation { expires: 1, ..office.invite(60) };
    assert!(join(&expired, &other, "other").unwrap_err().to_string().contains("expired"));
    assert_eq!(join(&office.invite(60), &other, "other").expect("it was invited"), "other");
    assert!(matches!(office.next(), Arrival::Joined { node } if node == "other"));
    let third = key(office.folder.path(), "third");
    assert_eq!(join(&office.invite(60), &third, "other").expect("it was invited"), "other-2", "two have this name");
    assert!(matches!(office.next(), Arrival::Joined { node } if node == "other-2"));
    let names: Vec<String> = office.members.all().unwrap().into_iter().map(|member| member.name).collect();
    assert_eq!(names, ["node-00", "other", "other-2"]);
}

#[test]
fn a_machine_whose_key_has_expired_is_told_what_to_do() {
    let office = Office::open();
    let identity = key(office.folder.path(), "old");
    let list = office.folder.path().join("members.json");
    let member = serde_json::json!({ "name": "node-07", "key": identity.pin(), "issued": 1 });
    std::fs::write(&list, serde_json::json!({ "members": [member], "invitations": [] }).to_string()).expect("a list");
    // Also while it could join as somebody else.
    for invitation in [office.invitation(60), office.invite(60)] {
        let told = join(&invitation, &identity, "new").expect_err("its key is too old").to_string();
        assert!(told.contains("older than 90 days") && told.contains("cascadia fleet trust node-07"), "{told}");
        assert!(office.turned_away().contains("node-07"));
    }
    assert!(office.members.trust("node-07").expect("it can be written"));
    assert_eq!(join(&office.invitation(60), &identity, "new").expect("it is a member"), "node-07");
}

#[test]
fn plain_bytes_get_no_application_byte() {
    let office = Office::open();
    office.invite(60);
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 64], &[22, 3, 1, 255, 255, 1, 0]] {
        let mut socket = TcpStream::connect(&office.address).expect("it listens");
        socket.write_all(bytes).expect("it can be sent");
        socket.shutdown(std::net::Shutdown::Write).expect("it can be ended");
        let mut heard = Vec::new();
        // A reset counts as nothing too.
        let _ = socket.read_to_end(&mut heard);
        // At most an alert of TLS, which is no application data (type 23).
        assert!(heard.len() <= 7 && heard.first() != Some(&23), "{heard:?}");
        office.turned_away();
    }
}

#[test]
fn strangers_who_dribble_do_not_keep_members_out() {
    let office = Office::open();
    let identity = key(office.folder.path(), "patient");
    let invitation = office.invite(600);
    let dribble = |_| {
        let mut socket = TcpStream::connect(&office.address).expect("it listens");
        thread::spawn(move || {
            // The beginning of a greeting that never ends.
            for byte in [22, 3, 1, 2, 0, 1, 0, 1, 252].into_iter().chain([3; 1000]) {
                if socket.write_all(&[byte]).is_err() {
                    return;
                }
                Clock::system().sleep(Duration::from_millis(200));
            }
        });
    };
    (0..300).for_each(dribble);
    let begin = Clock::system().now();
    while join(&invitation, &identity, "patient").is_err() {
        assert!(Clock::system().since(begin) < Duration::from_secs(300), "they keep it out");
    }
}

#[test]
fn tokens_over_encrypted_sockets_are_those_of_one_process() {
    let office = Office::open();
    let workshop = Workshop::new("llama3", Some("int4"));
    let expected = continuation(&mut workshop.open_whole().into_session(), &prompt(20), 20);
    let manifest = workshop.export(&[0, 1]);
    let members = ["node-a", "node-b"].map(|name| {
        let identity = key(office.folder.path(), name);
        join(&office.invite(60), &identity, name).expect("it was invited");
        assert!(matches!(office.next(), Arrival::Joined { node } if node == name));
        identity
    });
    for (stage, identity) in members.into_iter().enumerate() {
        let mut worker = workshop.worker(&manifest, stage);
        let (address, coordinator) = (office.address.clone(), office.identity.pin());
        thread::spawn(move || {
            let mut link = TcpLink::dial(&[address], &identity, coordinator).expect("it is a member");
            worker.serve(&mut link)
        });
    }
    let fleet = workshop.open(&manifest, |model_workers, stage, _| {
        if stage == 0 {
            for _ in 0..2 {
                let Arrival::Member { node, link } = office.next() else { panic!("only members come") };
                let worker = model_workers.admit(link, &node).expect("it fits");
                assert_eq!(node, ["node-a", "node-b"][worker]);
            }
        }
        Box::new(RemoteStage::new(model_workers, stage, PATIENCE))
    });
    assert!(continuation(&mut fleet.into_session(), &prompt(20), 20) == expected);
}

#[test]
fn members_that_say_nothing_do_not_pile_up() {
    let office = Office::open();
    let identity = key(office.folder.path(), "silent");
    join(&office.invite(60), &identity, "silent").expect("it was invited");
    // Everyone who is let in is talked to for as long as it likes.
    let listener = Listener::bind("127.0.0.1:0", &office.identity, Arc::clone(&office.members)).expect("a free port");
    let address = listener.address().expect("it listens").to_string();
    let (talking, silence) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(())));
    let (count, wait) = (Arc::clone(&talking), Arc::clone(&silence));
    let held = silence.lock().unwrap();
    listener.run(move |arrival| {
        assert!(matches!(arrival, Arrival::Member { .. }));
        count.fetch_add(1, Ordering::Relaxed);
        drop(wait.lock());
    });
    let dial = |_| TcpLink::dial(std::slice::from_ref(&address), &identity, office.identity.pin()).expect("a member");
    let waits_for = |count: usize| {
        let begin = Clock::system().now();
        while talking.load(Ordering::Relaxed) < count {
            assert!(Clock::system().since(begin) < Duration::from_secs(60), "not everyone is let in");
            Clock::system().sleep(Duration::from_millis(10));
        }
    };
    let _links: Vec<_> = (0..32).map(dial).collect();
    waits_for(32);
    // Those who come now are disconnected at once.
    (0..9).map(dial).for_each(|mut link| hears_nothing(&mut link));
    assert_eq!(talking.load(Ordering::Relaxed), 32);
    // There is room for others nevertheless.
    let other = key(office.folder.path(), "talkative");
    join(&office.invite(60), &other, "talkative").expect("it was invited");
    let _link = TcpLink::dial(std::slice::from_ref(&address), &other, office.identity.pin()).expect("a member");
    waits_for(33);
    drop(held);
}
