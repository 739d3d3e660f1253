//! A machine that waits until people have compared the codes on both screens and approve it.

use std::time::{Duration, Instant};

use crate::membership::invitation::base32;
use crate::membership::members::{Approval, PendingMember};
use crate::wire::frame::{Kind, Outgoing};
use crate::wire::link::{Link, LinkError};
use crate::wire::message::refuse;
use crate::{Digest, Members};

/// How often it is looked whether somebody has decided.
const GLANCE: Duration = Duration::from_millis(100);
/// How often the machine hears that it is waited for: well within the time that it listens.
const REMINDER: Duration = Duration::from_secs(10);
/// Bytes of a code: too many to find, within the time of a handshake, a connection that gives the code of another.
const CODE_BYTES: usize = 5;

/// What both ends of a connection show to people. Somebody between them has two connections, and so two codes.
pub(crate) fn code(session: &[u8; 32], coordinator: Digest, node: Digest) -> String {
    let context = "cascadia fleet join, code that people compare";
    let all = blake3::derive_key(context, &[&session[..], &coordinator.0, &node.0].concat());
    let letters = base32(&all[..CODE_BYTES]);
    let (first, last) = letters.split_at(letters.len() / 2);
    format!("{first}-{last}")
}

/// Holds the connection of a machine until it is approved; the error says why it was not.
pub(crate) fn await_approval(link: &mut dyn Link, members: &Members, pending: &PendingMember) -> Result<(), String> {
    let mut remind = link.clock().now();
    loop {
        match members.approval(pending) {
            Approval::Approved => return Ok(()),
            Approval::Rejected => {
                refuse(link, "it was rejected there, or nobody approved it in time".to_owned());
                return Err(format!("{} was not approved", pending.name));
            }
            Approval::Undecided => {}
        }
        if let Err(error) = wait(link, &mut remind) {
            // Where that cannot be written, it is forgotten when the invitation expires.
            let _ = members.withdraw(pending);
            return Err(format!("{} no longer waits: {error}", pending.name));
        }
    }
}

/// Lets a moment pass in which the machine stays silent, and stays.
fn wait(link: &mut dyn Link, remind: &mut Instant) -> Result<(), LinkError> {
    let now = link.clock().now();
    if now >= *remind {
        Outgoing::message(Kind::Pending, &[]).send(link, &mut Vec::new())?;
        *remind = now + REMINDER;
    }
    match link.read(&mut [0], now + GLANCE) {
        Err(LinkError::TimedOut) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(LinkError::Broken("it may not send anything before it is approved".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Invitation;
    use crate::clock::{Clock, Simulation};
    use crate::membership::invitation::proof;
    use crate::membership::members::{JoinRequest, Joining};
    use crate::wire::frame::{Bounds, Frame, Wait, receive};
    use crate::wire::link::{ChannelLink, fair, timed_pair};
    use crate::wire::message::{MOST_MESSAGE, Writer, reason};
    use crate::wire::verbs::Expecting;

    const SESSION: [u8; 32] = [1; 32];

    #[test]
    fn a_code_belongs_to_one_connection_and_two_keys() {
        let [coordinator, node] = [b"coordinator", b"nodenodenod"].map(|key| Digest::of(key));
        let right = code(&SESSION, coordinator, node);
        assert!(right.len() == 9 && right.as_bytes()[4] == b'-', "{right}");
        assert_eq!(code(&SESSION, coordinator, node), right);
        for other in
            [code(&[2; 32], coordinator, node), code(&SESSION, node, node), code(&SESSION, coordinator, coordinator)]
        {
            assert_ne!(other, right);
        }
    }

    /// A machine that waits, in simulated time, with an invitation for one that is open for ten minutes.
    struct Waiting {
        members: Arc<Members>,
        invitation: Invitation,
        folder: tempfile::TempDir,
    }

    impl Waiting {
        fn new(clock: &Clock) -> Waiting {
            let folder = tempfile::tempdir().expect("a folder");
            let members = Arc::new(Members::at(&folder.path().join("members.json")).on_clock(clock));
            let expires = clock.unix_seconds() + 600;
            let invitation = Invitation::new(Vec::new(), Digest::of(b"key"), expires).expect("random numbers");
            members.invite_for_approval(&invitation, 1).expect("it can be written");
            Waiting { members, invitation, folder }
        }

        /// Proves the invitation; whether it may.
        fn join(&self) -> Option<PendingMember> {
            let key = Digest::of(b"node");
            let proof = proof(&self.invitation.proof_key(), &SESSION, key);
            let request =
                JoinRequest { wanted: "", key, session: &SESSION, proof: &proof, code: "abcd-efgh".to_owned() };
            match self.members.join(request).expect("it can be written")? {
                Joining::Pending(pending) => Some(pending),
                Joining::Joined(node) => panic!("{node} was let in"),
            }
        }

        /// Holds its connection, and gives its own end.
        fn wait(&self, clock: &Clock) -> ChannelLink {
            let pending = self.join().expect("it was invited");
            let (mut here, there) = timed_pair(clock, Duration::ZERO, [fair(), fair()]);
            let members = Arc::clone(&self.members);
            clock.spawn(move || {
                if await_approval(&mut here, &members, &pending).is_ok() {
                    let message = Writer::default().text(&pending.name).0;
                    Outgoing::message(Kind::Joined, &message).send(&mut here, &mut Vec::new()).expect("it is there");
                }
            });
            there
        }
    }

    /// Everything that the machine hears until it is no longer told to wait: how often it was, and what came then.
    fn hear(link: &mut ChannelLink) -> (usize, Kind, String) {
        let (mut frame, bounds) = (Frame::default(), Bounds::table(Expecting::Welcome, MOST_MESSAGE));
        for waited in 0.. {
            receive(link, &bounds, &mut frame, Wait::For(3 * REMINDER)).expect("it is told to wait");
            if frame.header.kind != Kind::Pending {
                return (waited, frame.header.kind, reason(frame.table()).expect("a text"));
            }
        }
        unreachable!("something else comes in the end")
    }

    #[test]
    fn a_machine_waits_for_minutes_and_hears_what_was_decided() {
        let simulation = Simulation::new(1);
        let clock = simulation.clock().clone();
        let waiting = Waiting::new(&clock);
        let (mut link, members, decides) = (waiting.wait(&clock), Arc::clone(&waiting.members), clock.clone());
        clock.spawn(move || {
            decides.sleep(Duration::from_secs(95));
            assert!(members.approve("node-00").expect("it can be written").is_some());
        });
        assert_eq!(hear(&mut link), (10, Kind::Joined, "node-00".to_owned()));
        assert!(waiting.members.has("node-00"));
        simulation.finish();
    }

    #[test]
    fn one_that_nobody_approves_is_sent_away_when_its_invitation_expires() {
        let simulation = Simulation::new(1);
        let clock = simulation.clock().clone();
        let waiting = Waiting::new(&clock);
        let begin = clock.now();
        let (waited, kind, _) = hear(&mut waiting.wait(&clock));
        assert_eq!((waited, kind, clock.since(begin).as_secs()), (60, Kind::Refused, 600));
        assert!(waiting.members.pending().expect("it can be read").is_empty());
        assert_eq!(waiting.members.approve("node-00").expect("it can be read"), None);
        simulation.finish();
    }

    #[test]
    fn one_that_leaves_or_talks_makes_room_for_another() {
        let simulation = Simulation::new(1);
        let clock = simulation.clock().clone();
        let waiting = Waiting::new(&clock);
        let leaves: [fn(ChannelLink) -> Option<ChannelLink>; 2] = [
            |_| None,
            |mut link| {
                link.write(b"x").expect("it can be sent");
                Some(link)
            },
        ];
        for leave in leaves {
            let _left = leave(waiting.wait(&clock));
            clock.sleep(Duration::from_secs(1));
            assert!(waiting.members.pending().expect("it can be read").is_empty());
        }
        // A coordinator that was killed meanwhile has not forgotten it: asking again, it is the same machine.
        assert!(waiting.join().is_some() && waiting.join().is_some());
        assert_eq!(waiting.members.pending().expect("it can be read").len(), 1);
        // Whoever has an invitation cannot fill the log with that.
        assert!((0..100).map_while(|_| waiting.join()).count() < 32);
        drop(waiting.folder);
        simulation.finish();
    }
}
