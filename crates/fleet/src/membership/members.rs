//! Which machines belong to a fleet, and which invitations are open: one small file that every connection asks.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::audit::{AuditLog, Decision, Entry, Verb};
use crate::json_file::{read_json, write_json};
use crate::membership::invitation::is_proof;
use crate::shards::own_stage::HERE;
use crate::{Clock, Digest, FleetError, Invitation};

/// The most members, and the most open invitations.
const MOST: usize = 1024;
/// The longest name of a machine.
const MOST_NAME: usize = 64;

/// A machine of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// What people call it.
    pub name: String,
    /// The digest of its public key.
    pub key: Digest,
    /// Why it is not used until people say so, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distrusted: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    members: Vec<Member>,
    invitations: Vec<OpenInvitation>,
}

/// An invitation that is not used up.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenInvitation {
    proof_key: Digest,
    expires: u64,
    /// Machines that it still lets in.
    uses: u32,
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
        self.read().ok()?.find(|member| member.key == key).map(|member| member.name.clone())
    }

    /// Whether a machine of this name may still take part. A disk that fails takes nobody out: while the file cannot be
    /// read, that is who was in it when this was asked before.
    pub fn has(&self, name: &str) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(content) = self.read() {
            *seen = content;
        }
        seen.find(|member| member.name == name).is_some()
    }

    /// Lets a machine take no more part until [`Members::trust`] says so; `false` if there is none of that name.
    pub fn distrust(&self, name: &str, why: &str) -> Result<bool, FleetError> {
        let entry = Entry { note: why.to_owned(), ..Entry::new(name, Verb::Distrust, Decision::Noted) };
        self.mark(name, Some(why.to_owned()), entry)
    }

    /// Lets a machine take part again; `false` if there is none of that name.
    pub fn trust(&self, name: &str) -> Result<bool, FleetError> {
        self.mark(name, None, Entry { nodes: vec![name.to_owned()], ..Entry::admin(Verb::Trust) })
    }

    fn mark(&self, name: &str, distrusted: Option<String>, entry: Entry) -> Result<bool, FleetError> {
        let mut found = false;
        self.change(|content| {
            let member = content.members.iter_mut().find(|member| member.name == name)?;
            (member.distrusted, found) = (distrusted, true);
            Some(entry)
        })?;
        Ok(found)
    }

    /// Takes a machine out; `false` if there is none of that name.
    pub fn revoke(&self, name: &str) -> Result<bool, FleetError> {
        let mut revoked = false;
        self.change(|content| {
            let at = content.members.iter().position(|member| member.name == name)?;
            let Member { name, key, .. } = content.members.remove(at);
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
        self.change(|content| {
            let now = self.clock.unix_seconds();
            content.invitations.retain(|open| open.is_open(now));
            let open = OpenInvitation { proof_key: Digest(invitation.proof_key()), expires: invitation.expires, uses };
            content.invitations.push(open);
            let note = format!("for {uses} machines until {}", invitation.expires);
            let entry = Entry { note, ..Entry::admin(Verb::Invite) };
            (content.invitations.len() <= MOST).then_some(entry)
        })
    }

    /// Takes in a machine that proves an open invitation, which counts down its uses. Gives its name, or nothing.
    pub(crate) fn join(
        &self,
        wanted: &str,
        key: Digest,
        (session, proof): (&[u8; 32], &[u8; 32]),
    ) -> Result<Option<String>, FleetError> {
        let mut joined = None;
        self.change(|content| {
            let now = self.clock.unix_seconds();
            let shown = |open: &OpenInvitation| open.is_open(now) && is_proof(&open.proof_key.0, session, key, proof);
            let at = content.invitations.iter().position(shown).filter(|_| content.members.len() < MOST)?;
            content.invitations[at].uses -= 1;
            let taken = |name: &str| content.members.iter().any(|member| member.name == name);
            let numbered = (0..).map(|number| format!("node-{number:02}"));
            let name = Some(wanted.to_owned()).filter(|name| is_name(name) && !taken(name));
            let name = name.or_else(|| numbered.into_iter().find(|name| !taken(name))).unwrap_or_default();
            // Who joins again is the same machine.
            let mut known = content.members.extract_if(.., |member| member.key == key);
            let distrusted = known.find_map(|member| member.distrusted);
            drop(known);
            content.members.push(Member { name: name.clone(), key, distrusted });
            let entry = Entry::new(&name, Verb::Join, Decision::Allowed);
            let entry = Entry { digest: Some(key), nodes: vec![name.clone()], ..entry };
            joined = Some(name);
            Some(entry)
        })?;
        Ok(joined)
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

impl Content {
    /// A machine that may take part.
    fn find(&self, is: impl Fn(&&Member) -> bool) -> Option<&Member> {
        self.members.iter().filter(|member| member.distrusted.is_none()).find(is)
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
        let node = |name: &str| Member { name: name.to_owned(), key, distrusted: None };
        write(vec![node("node-00")]).expect("it can be written");
        assert!(members.has("node-00") && members.name_of(key).is_some());
        fs::write(&path, "{").expect("it can be written");
        assert!(members.has("node-00") && !members.has("node-01") && members.name_of(key).is_none());
        assert!(members.revoke("node-00").is_err());
        write(Vec::new()).expect("it can be written");
        assert!(!members.has("node-00"));
    }
}
