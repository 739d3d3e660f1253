//! Which machines belong to a fleet, and which invitations are open: one small file that every connection asks.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::audit::{AuditLog, Decision, Entry, Verb};
use crate::json_file::{read_json, write_json};
use crate::membership::invitation::is_proof;
use crate::membership::member::{Member, RevokedMember, Standing, is_false};
use crate::shards::own_stage::HERE;
use crate::{Clock, Digest, FleetError, Invitation};

/// The most members, and the most open invitations.
const MOST: usize = 1024;
/// The most machines that wait to be approved: each of them is a code that people compare.
const MOST_PENDING: usize = 32;
/// How often an invitation lets in another machine in place of one that was not approved.
const MOST_RETURNS: u32 = 32;
/// The longest name of a machine.
const MOST_NAME: usize = 64;

/// A machine that has proved an invitation, and is no member before somebody approves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PendingMember {
    /// What it will be called.
    pub name: String,
    /// The digest of its public key.
    pub key: Digest,
    /// What it shows to the person in front of it, if nobody is between it and the coordinator.
    pub code: String,
    /// When it is no longer waited for, in seconds since 1970.
    pub expires: u64,
    /// The invitation that it proved, which lets in another machine if this one is not approved.
    invitation: Digest,
}

/// What became of a machine that proved an invitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Joining {
    /// It is a member of this name.
    Joined(String),
    /// It has to be approved.
    Pending(PendingMember),
}

/// What a machine shows that wants to join.
pub(crate) struct JoinRequest<'a> {
    /// What it would like to be called.
    pub(crate) wanted: &'a str,
    /// The key that it has proved.
    pub(crate) key: Digest,
    /// What only the two ends of its connection know.
    pub(crate) session: &'a [u8; 32],
    /// Its proof that it knows the invitation.
    pub(crate) proof: &'a [u8; 32],
    /// What people compare on both machines.
    pub(crate) code: String,
}

/// What people have decided about a machine that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approval {
    Approved,
    Rejected,
    /// Nothing yet.
    Undecided,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    members: Vec<Member>,
    invitations: Vec<OpenInvitation>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pending: Vec<PendingMember>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    revoked: Vec<RevokedMember>,
}

/// An invitation that is not used up.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenInvitation {
    proof_key: Digest,
    expires: u64,
    /// Machines that it still lets in.
    uses: u32,
    /// Whether people approve each of them.
    #[serde(default, skip_serializing_if = "is_false")]
    approve: bool,
    /// How often another machine may still join in place of one that was not approved.
    #[serde(default)]
    returns: u32,
}

/// The file of members.
pub struct Members {
    path: PathBuf,
    /// Where every change is written down first, if anywhere.
    log: Option<AuditLog>,
    /// What was in it when it was last asked who still takes part.
    seen: Mutex<Content>,
    clock: Clock,
}

impl Members {
    /// The members in a file; there are none while it does not exist.
    pub fn at(path: &Path) -> Members {
        Members { path: path.to_owned(), log: None, seen: Mutex::default(), clock: Clock::default() }
    }

    /// The same, with every change in an audit log before it is made: what cannot be recorded does not happen.
    pub fn audited(self, log: AuditLog) -> Members {
        Members { log: Some(log), ..self }
    }

    /// The same with invitations that expire by another clock than the system's.
    pub fn on_clock(self, clock: &Clock) -> Members {
        Members { clock: clock.clone(), ..self }
    }

    /// Everyone who belongs to the fleet.
    pub fn all(&self) -> Result<Vec<Member>, FleetError> {
        Ok(self.read()?.members)
    }

    /// The name of the machine with this key, if it may take part. A file that cannot be read lets nobody in.
    pub fn name_of(&self, key: Digest) -> Option<String> {
        match self.standing(key) {
            Standing::Member(name) => Some(name),
            Standing::Expired(_) | Standing::Excluded(_) | Standing::Revoked(_) | Standing::Unknown => None,
        }
    }

    /// Whom a key belongs to. A file that cannot be read knows nobody.
    pub(crate) fn standing(&self, key: Digest) -> Standing {
        let (content, now) = (self.read().unwrap_or_default(), self.clock.unix_seconds());
        // auth: member-trusted, member-revoked, member-old-key, member-pending
        match content.trusted().find(|member| member.has_key(key)) {
            // auth: member-expiry
            Some(member) if member.is_expired(now) => Standing::Expired(member.name.clone()),
            Some(member) => Standing::Member(member.name.clone()),
            None => content.untrusted(key),
        }
    }

    /// A machine has connected with a key: the first time is the date of a key that has none, and a new key that is used
    /// takes the place of the old one.
    pub(crate) fn came(&self, key: Digest) -> Result<(), FleetError> {
        let is_new = |member: &Member| member.next == Some(key) || (member.issued.is_none() && member.key == key);
        if !self.read()?.members.iter().any(is_new) {
            return Ok(());
        }
        self.change(|content| {
            let member = content.members.iter_mut().find(|member| is_new(member))?;
            let was_rotated = member.next.take_if(|next| *next == key).is_some();
            (member.issued, member.key) = (Some(self.clock.unix_seconds()), key);
            member.rotate &= !was_rotated;
            let note = if was_rotated { "its old key is of no more use" } else { "its key has a date from now on" };
            let entry = Entry::new(&member.name, Verb::Rotate, Decision::Noted);
            Some(Entry { digest: Some(key), note: note.to_owned(), ..entry })
        })
    }

    /// Whether the machine with this key should have a new one.
    pub(crate) fn is_rotation_due(&self, key: Digest) -> bool {
        let now = self.clock.unix_seconds();
        self.read()
            .is_ok_and(|content| content.members.iter().any(|member| member.key == key && member.is_rotation_due(now)))
    }

    /// Lets the machine with this key use another one from now on; `false` if there is none, if the other key is
    /// somebody else's, or if the machine has chosen yet another before.
    pub(crate) fn succeed(&self, key: Digest, next: Digest) -> Result<bool, FleetError> {
        let mut succeeds = false;
        self.change(|content| {
            // auth: succession-foreign
            let is_anothers = content.members.iter().any(|member| member.key != key && member.has_key(next));
            let mut members = content.members.iter_mut().filter(|_| !is_anothers);
            let member = members.find(|member| member.key == key && next != key)?;
            if let Some(chosen) = member.next {
                succeeds = chosen == next;
                return None;
            }
            (member.next, succeeds) = (Some(next), true);
            let entry = Entry::new(&member.name, Verb::Rotate, Decision::Allowed);
            Some(Entry { digest: Some(next), note: "it has a new key".to_owned(), ..entry })
        })?;
        Ok(succeeds)
    }

    /// Wants a machine to have a new key, which it chooses when it next asks; `false` if there is none of that name.
    pub fn rotate(&self, name: &str) -> Result<bool, FleetError> {
        let entry = Entry { nodes: vec![name.to_owned()], ..Entry::admin(Verb::Rotate) };
        self.mark(name, entry, |member| (member.next, member.rotate) = (None, true))
    }

    /// Whether a machine of this name may still take part. A disk that fails takes nobody out: while the file cannot be
    /// read, that is who was in it when this was asked before.
    pub fn has(&self, name: &str) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(content) = self.read() {
            *seen = content;
        }
        let now = self.clock.unix_seconds();
        seen.trusted().any(|member| member.name == name && !member.is_expired(now))
    }

    /// Lets a machine take no more part until [`Members::trust`] says so; `false` if there is none of that name.
    pub fn distrust(&self, name: &str, why: &str) -> Result<bool, FleetError> {
        let entry = Entry { note: why.to_owned(), ..Entry::new(name, Verb::Distrust, Decision::Noted) };
        self.mark(name, entry, |member| member.distrusted = Some(why.to_owned()))
    }

    /// Lets a machine take part again that was wrong, or whose key is too old: it makes a new one then. `false` if there
    /// is none of that name.
    pub fn trust(&self, name: &str) -> Result<bool, FleetError> {
        let (entry, now) =
            (Entry { nodes: vec![name.to_owned()], ..Entry::admin(Verb::Trust) }, self.clock.unix_seconds());
        self.mark(name, entry, |member| {
            if member.is_expired(now) {
                (member.issued, member.rotate) = (Some(now), true);
            }
            member.distrusted = None;
        })
    }

    fn mark(&self, name: &str, entry: Entry, change: impl FnOnce(&mut Member)) -> Result<bool, FleetError> {
        let mut found = false;
        self.change(|content| {
            let member = content.members.iter_mut().find(|member| member.name == name)?;
            change(member);
            found = true;
            Some(entry)
        })?;
        Ok(found)
    }

    /// Takes a machine out; `false` if there is none of that name.
    pub fn revoke(&self, name: &str) -> Result<bool, FleetError> {
        let mut revoked = false;
        self.change(|content| {
            let at = content.members.iter().position(|member| member.name == name)?;
            let Member { name, key, next, .. } = content.members.remove(at);
            let keys = [key].into_iter().chain(next);
            content.revoked.extend(keys.map(|key| RevokedMember { name: name.clone(), key }));
            // Those that went long ago have heard of it, or nothing listens to them all the same.
            content.revoked.drain(..content.revoked.len().saturating_sub(MOST));
            revoked = true;
            Some(Entry { digest: Some(key), nodes: vec![name], ..Entry::admin(Verb::Revoke) })
        })?;
        Ok(revoked)
    }

    /// Whether a machine that is no member may try to become one.
    pub fn invites(&self) -> bool {
        let now = self.clock.unix_seconds();
        self.read().is_ok_and(|content| content.invitations.iter().any(|open| open.is_open(now)))
    }

    /// Opens an invitation for so many machines.
    pub fn invite(&self, invitation: &Invitation, uses: u32) -> Result<(), FleetError> {
        self.open(invitation, uses, Admittance::AtOnce)
    }

    /// Opens an invitation for so many machines, each of which waits for [`Members::approve`].
    pub fn invite_for_approval(&self, invitation: &Invitation, uses: u32) -> Result<(), FleetError> {
        self.open(invitation, uses, Admittance::AfterApproval)
    }

    fn open(&self, invitation: &Invitation, uses: u32, admittance: Admittance) -> Result<(), FleetError> {
        self.change(|content| {
            content.forget_expired(self.clock.unix_seconds());
            let (proof_key, expires) = (Digest(*invitation.proof_key()), invitation.expires);
            let approve = admittance == Admittance::AfterApproval;
            content.invitations.push(OpenInvitation { proof_key, expires, uses, approve, returns: MOST_RETURNS });
            let note = format!("for {uses} machines until {expires}{}", if approve { ", to be approved" } else { "" });
            let entry = Entry { note, ..Entry::admin(Verb::Invite) };
            (content.invitations.len() <= MOST).then_some(entry)
        })
    }

    /// Machines that wait to be approved.
    pub fn pending(&self) -> Result<Vec<PendingMember>, FleetError> {
        let now = self.clock.unix_seconds();
        let mut pending = self.read()?.pending;
        pending.retain(|pending| now < pending.expires);
        Ok(pending)
    }

    /// Makes a machine that waits a member, by its name or its code; gives its name, or nothing if none waits.
    pub fn approve(&self, which: &str) -> Result<Option<String>, FleetError> {
        self.decide(which, Verb::Approve)
    }

    /// Sends a machine away that waits, by its name or its code; gives its name, or nothing if none waits.
    pub fn reject(&self, which: &str) -> Result<Option<String>, FleetError> {
        self.decide(which, Verb::Reject)
    }

    fn decide(&self, which: &str, verb: Verb) -> Result<Option<String>, FleetError> {
        let mut decided = None;
        self.change(|content| {
            content.forget_expired(self.clock.unix_seconds());
            let at = content.pending.iter().position(|pending| pending.is_called(which))?;
            let pending = content.pending.remove(at);
            let entry = Entry { digest: Some(pending.key), nodes: vec![pending.name.clone()], ..Entry::admin(verb) };
            decided = Some(pending.name.clone());
            match verb {
                Verb::Approve => content.add(pending.name, pending.key, self.clock.unix_seconds()),
                _ => content.give_back(&pending),
            }
            Some(entry)
        })?;
        Ok(decided)
    }

    /// What was decided about a machine that waits. While the list cannot be read, nothing is.
    pub(crate) fn approval(&self, waiting: &PendingMember) -> Approval {
        let Ok(content) = self.read() else { return Approval::Undecided };
        if content.trusted().any(|member| member.key == waiting.key) {
            return Approval::Approved;
        }
        let is_listed = content.pending.contains(waiting) && self.clock.unix_seconds() < waiting.expires;
        if is_listed { Approval::Undecided } else { Approval::Rejected }
    }

    /// Forgets a machine that no longer waits; another one may join in its place.
    pub(crate) fn withdraw(&self, waiting: &PendingMember) -> Result<(), FleetError> {
        self.change(|content| {
            let at = content.pending.iter().position(|pending| pending == waiting)?;
            let pending = content.pending.remove(at);
            content.give_back(&pending);
            let entry = Entry::new(&pending.name, Verb::Join, Decision::Failed);
            Some(Entry { digest: Some(pending.key), note: "it no longer waits to be approved".to_owned(), ..entry })
        })
    }

    /// Takes in a machine that proves an open invitation, which counts down its uses. Nothing without such a proof.
    pub(crate) fn join(&self, request: JoinRequest<'_>) -> Result<Option<Joining>, FleetError> {
        let JoinRequest { wanted, key, session, proof, code } = request;
        let mut joining = None;
        self.change(|content| {
            let now = self.clock.unix_seconds();
            content.forget_expired(now);
            // Who asks again, because its connection was lost, is the same machine.
            content.pending.extract_if(.., |pending| pending.key == key).collect::<Vec<_>>().iter().for_each(|again| {
                content.give_back(again);
            });
            // auth: invitation-secret, invitation-session, invitation-key, invitation-expiry, invitation-uses
            let shown = |open: &OpenInvitation| open.is_open(now) && is_proof(&open.proof_key.0, session, key, proof);
            let at = content.invitations.iter().position(shown).filter(|_| content.members.len() < MOST)?;
            let OpenInvitation { proof_key, expires, approve, .. } = content.invitations[at];
            if approve && content.pending.len() >= MOST_PENDING {
                return None;
            }
            content.invitations[at].uses = content.invitations[at].uses.saturating_sub(1);
            let name = content.free_name(wanted);
            let entry = Entry {
                digest: Some(key),
                nodes: vec![name.clone()],
                ..Entry::new(&name, Verb::Join, Decision::Allowed)
            };
            // auth: invitation-approval
            if approve {
                let pending = PendingMember { name, key, code, expires, invitation: proof_key };
                content.pending.push(pending.clone());
                let note = format!("it waits to be approved with the code {}", pending.code);
                joining = Some(Joining::Pending(pending));
                return Some(Entry { decision: Decision::Noted, note, ..entry });
            }
            content.add(name.clone(), key, now);
            joining = Some(Joining::Joined(name));
            Some(entry)
        })?;
        Ok(joining)
    }

    /// Takes in a machine that has proved a pairing code, and gives its name; nothing if it may not take part. One that
    /// is a member already stays what it is.
    pub(crate) fn admit(&self, wanted: &str, key: Digest, note: String) -> Result<Option<String>, FleetError> {
        let mut admitted = None;
        self.change(|content| {
            let now = self.clock.unix_seconds();
            if let Some(member) = content.members.iter().find(|member| member.has_key(key)) {
                // auth: pairing-excluded
                let may = member.distrusted.is_none() && !member.is_expired(now);
                admitted = may.then(|| member.name.clone());
                return None;
            }
            if content.members.len() >= MOST {
                return None;
            }
            let name = content.free_name(wanted);
            content.add(name.clone(), key, now);
            admitted = Some(name.clone());
            let entry = Entry::new(&name, Verb::Join, Decision::Allowed);
            Some(Entry { digest: Some(key), nodes: vec![name], note, ..entry })
        })?;
        Ok(admitted)
    }

    fn read(&self) -> Result<Content, FleetError> {
        Ok(read_json(&self.path)?.unwrap_or_default())
    }

    /// Changes the file if `change` says what to record of it. Changes come one after the other, also those of other
    /// processes: a server takes machines in while somebody revokes one.
    fn change(&self, change: impl FnOnce(&mut Content) -> Option<Entry>) -> Result<(), FleetError> {
        // Beside the file, which is another one after every change.
        let path = self.path.with_extension("lock");
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(FleetError::io("make the folder", folder))?;
        let one_at_a_time = File::create(&path).map_err(FleetError::io("create", &path))?;
        one_at_a_time.lock().map_err(FleetError::io("lock", &path))?;
        let mut content = self.read()?;
        match (change(&mut content), &self.log) {
            (Some(entry), Some(log)) => log.acting(entry, || write_json(&self.path, &content)),
            (Some(_), None) => write_json(&self.path, &content),
            (None, _) => Ok(()),
        }
    }
}

/// When a machine that proves an invitation becomes a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admittance {
    AtOnce,
    AfterApproval,
}

impl PendingMember {
    /// Whether this is its name, or its code however it was typed.
    fn is_called(&self, which: &str) -> bool {
        let letters = |text: &str| text.replace('-', "").to_lowercase();
        self.name == which || letters(&self.code) == letters(which)
    }
}

impl Content {
    /// Makes a machine a member. Who joins again is the same machine.
    fn add(&mut self, name: String, key: Digest, now: u64) {
        let mut known = self.members.extract_if(.., |member| member.key == key);
        let distrusted = known.find_map(|member| member.distrusted);
        drop(known);
        self.revoked.retain(|revoked| revoked.key != key);
        self.members.push(Member { distrusted, issued: Some(now), ..Member::new(name, key) });
    }

    /// The name that a machine would like to have, with a number if another has it, or else the next that is free.
    fn free_name(&self, wanted: &str) -> String {
        let members = self.members.iter().map(|member| &member.name);
        let taken: Vec<&String> = members.chain(self.pending.iter().map(|pending| &pending.name)).collect();
        let is_free = |name: &String| !taken.contains(&name);
        let mut wanted =
            [wanted.to_owned()].into_iter().chain((2..MOST_ALIKE).map(|number| format!("{wanted}-{number}")));
        let mut numbered = (0..).map(|number| format!("node-{number:02}"));
        let found = wanted
            .next()
            .filter(|name| is_name(name))
            .and_then(|first| [first].into_iter().chain(wanted).find(|name| is_name(name) && is_free(name)));
        found.or_else(|| numbered.find(is_free)).unwrap_or_default()
    }

    /// Lets another machine join in place of one that was not approved: not for ever, because all of it is recorded.
    fn give_back(&mut self, pending: &PendingMember) {
        let is_its = |open: &&mut OpenInvitation| open.proof_key == pending.invitation && open.returns > 0;
        if let Some(open) = self.invitations.iter_mut().find(is_its) {
            (open.uses, open.returns) = (open.uses + 1, open.returns - 1);
        }
    }

    /// Forgets what is over at this time, in seconds since 1970.
    fn forget_expired(&mut self, now: u64) {
        self.pending.retain(|pending| now < pending.expires);
        // One that is used up may be given back a use.
        let is_awaited =
            |open: &OpenInvitation| self.pending.iter().any(|pending| pending.invitation == open.proof_key);
        self.invitations.retain(|open| open.is_open(now) || (now < open.expires && is_awaited(open)));
    }

    /// What is known of a key with which nobody may take part.
    fn untrusted(&self, key: Digest) -> Standing {
        let excluded = self.members.iter().find(|member| member.has_key(key));
        let revoked = self.revoked.iter().find(|revoked| revoked.key == key);
        match (excluded, revoked) {
            (Some(member), _) => Standing::Excluded(member.name.clone()),
            (None, Some(revoked)) => Standing::Revoked(revoked.name.clone()),
            (None, None) => Standing::Unknown,
        }
    }

    /// Machines that were not found to be wrong.
    fn trusted(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.distrusted.is_none())
    }
}

impl OpenInvitation {
    /// At this time, in seconds since 1970.
    fn is_open(&self, now: u64) -> bool {
        self.uses > 0 && now < self.expires
    }
}

/// Names that stand for something else where machines are listed.
const RESERVED: [&str; 2] = [HERE, "all"];

/// The most machines that want the same name and get it with a number.
const MOST_ALIKE: u32 = 100;

/// Whether a machine may be called this.
fn is_name(name: &str) -> bool {
    let letter = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
    !name.is_empty() && name.len() <= MOST_NAME && name.bytes().all(letter) && !RESERVED.contains(&name)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn no_change_of_another_process_is_lost() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("members.json");
        thread::scope(|scope| {
            for _ in 0..4 {
                // Each has the file for itself, as a process has.
                let members = Members::at(&path);
                scope.spawn(move || {
                    for _ in 0..16 {
                        let invitation =
                            Invitation::new(Vec::new(), Digest::of(b"key"), u64::MAX).expect("random numbers");
                        members.invite(&invitation, 1).expect("it can be written");
                    }
                });
            }
        });
        assert_eq!(Members::at(&path).read().expect("it can be read").invitations.len(), 64);
    }

    #[test]
    fn a_list_that_cannot_be_read_lets_nobody_in_and_takes_nobody_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, key) = (folder.path().join("members.json"), Digest::of(b"key"));
        let write = |members: Vec<Member>| write_json(&path, &Content { members, ..Content::default() });
        let members = Members::at(&path);
        let node = |name: &str| Member::new(name, key);
        write(vec![node("node-00")]).expect("it can be written");
        assert!(members.has("node-00") && members.name_of(key).is_some());
        fs::write(&path, "{").expect("it can be written");
        assert!(members.has("node-00") && !members.has("node-01") && members.name_of(key).is_none());
        assert!(members.revoke("node-00").is_err());
        write(Vec::new()).expect("it can be written");
        assert!(!members.has("node-00"));
    }
}
