//! Who may send which frame, and when: one table. What does not stand in it is refused before its payload is read.

use crate::wire::frame::Kind;

/// Who is at the other end of a connection. Keys decide that, before the first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The machine whose key this worker pinned when it joined.
    Coordinator,
    /// A member of the fleet.
    Worker,
    /// A machine that is no member, while an invitation or a pairing code is open.
    Stranger,
    /// Whoever answers where a coordinator was found: it has yet to prove that it knows the pairing code.
    Unproven,
    /// A machine whose key has yet to be found in the statements that it shows.
    Successor,
}

/// What the one who listens is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expecting {
    /// A stranger proves an invitation.
    Proof,
    /// A stranger begins to exchange a key by a pairing code.
    PairStart,
    /// Whoever is to be the coordinator does so.
    PairAnswer,
    /// A stranger shows that it has the same key.
    PairProof,
    /// Whoever is to be the coordinator does so.
    PairConfirmation,
    /// A machine that knows the pairing code says what it would like to be called.
    Name,
    /// The coordinator takes this machine in.
    Welcome,
    /// Whoever answers for the coordinator shows which keys it has.
    Keys,
    /// The coordinator says whether this worker should have a new key, and that it has remembered one.
    Rotation,
    /// A worker shows its new key.
    Succession,
    /// A worker says who it is.
    Greeting,
    /// A worker answers while the link to it is measured.
    Measure,
    /// The coordinator decides what this worker should do.
    Assignment,
    /// The coordinator sends a file.
    File,
    /// A worker says how much of a file it has.
    Receipt,
    /// A worker loads its shard.
    Load,
    /// The coordinator sends steps.
    Work,
    /// A worker computes, or waits for work.
    Result,
}

/// Everything that may be said on a connection of the fleet. There is no verb for a path, an address or a program.
pub const VERBS: [(Expecting, Role, &[Kind]); 18] = [
    (Expecting::Proof, Role::Stranger, &[Kind::Join]),
    (Expecting::PairStart, Role::Stranger, &[Kind::PairStart]),
    (Expecting::PairAnswer, Role::Unproven, &[Kind::PairStart, Kind::PairRefused]),
    (Expecting::PairProof, Role::Stranger, &[Kind::PairProof]),
    (Expecting::PairConfirmation, Role::Unproven, &[Kind::PairProof, Kind::PairRefused]),
    (Expecting::Name, Role::Stranger, &[Kind::Join]),
    (Expecting::Welcome, Role::Coordinator, &[Kind::Joined, Kind::Pending, Kind::Refused]),
    (Expecting::Keys, Role::Successor, &[Kind::Keys, Kind::Refused]),
    (Expecting::Rotation, Role::Coordinator, &[Kind::Rotate, Kind::Succeeded, Kind::Refused]),
    (Expecting::Succession, Role::Worker, &[Kind::Succeed]),
    (Expecting::Greeting, Role::Worker, &[Kind::Hello]),
    (Expecting::Measure, Role::Worker, &[Kind::Pong]),
    (Expecting::Assignment, Role::Coordinator, &[Kind::Ping, Kind::Welcome, Kind::Offer, Kind::Refused, Kind::Revoked]),
    (Expecting::File, Role::Coordinator, &[Kind::Chunk, Kind::Compressed]),
    (Expecting::Receipt, Role::Worker, &[Kind::Have, Kind::Refused]),
    (Expecting::Load, Role::Worker, &[Kind::Ready, Kind::Refused]),
    (Expecting::Work, Role::Coordinator, &[Kind::Step, Kind::Adapter, Kind::Ping, Kind::Head, Kind::Fetch, Kind::Page]),
    (
        Expecting::Result,
        Role::Worker,
        &[Kind::Rows, Kind::Refused, Kind::Pong, Kind::Beat, Kind::Witness, Kind::Leaving, Kind::Page],
    ),
];

impl Expecting {
    /// Says why a frame may not come now; `Ok` if it may.
    pub(crate) fn allows(self, kind: Kind) -> Result<(), String> {
        let row = VERBS.iter().find(|(hearing, ..)| *hearing == self);
        match row {
            Some((_, _, kinds)) if kinds.contains(&kind) => Ok(()),
            Some((_, role, _)) => Err(format!("a {role:?} may not send {kind:?} here ({self:?})")),
            None => Err(format!("nobody may send {kind:?} here ({self:?})")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::time::Duration;

    use super::*;
    use crate::wire::frame::{Bounds, Frame, KINDS, Outgoing, Wait, receive};
    use crate::wire::link::{LinkError, channel_pair, fair};

    #[test]
    fn the_table_is_the_one_that_people_read() {
        let mut table = String::from("| waiting for | from | may come |\n|---|---|---|\n");
        for (hearing, role, kinds) in VERBS {
            let kinds: Vec<String> = kinds.iter().map(|kind| format!("`{kind:?}`")).collect();
            writeln!(table, "| {hearing:?} | {role:?} | {} |", kinds.join(", ")).expect("a text grows");
        }
        let document = include_str!("../../../../docs/fleet.md");
        assert!(document.contains(&table), "docs/fleet.md should have this table:\n{table}");
    }

    #[test]
    fn what_is_not_in_the_table_is_refused_before_its_payload_comes() {
        for (hearing, _, allowed) in VERBS {
            for kind in KINDS {
                let (mut here, mut there) = channel_pair([fair(), fair()]);
                let mut sent = Vec::new();
                Outgoing::message(kind, b"payload").send(&mut here, &mut sent).expect("it can be sent");
                let wait = Wait::For(Duration::from_secs(5));
                let heard = receive(&mut there, &Bounds::table(hearing, 64), &mut Frame::default(), wait);
                assert_eq!(heard.is_ok(), allowed.contains(&kind), "{kind:?} while waiting for {hearing:?}");
                if let Err(error) = heard {
                    assert!(
                        matches!(&error, LinkError::Broken(problem) if problem.contains("may not send")),
                        "{error}"
                    );
                }
            }
        }
    }
}
