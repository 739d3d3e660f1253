//! The pairing code of a fleet on its coordinator's disk: who shows it and who listens for machines may be two processes.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::audit::{AuditLog, Entry, Verb};
use crate::json_file::{read_json, write_json};
use crate::wire::link::LinkError;
use crate::wire::message::{Reader, Writer, broken};
use crate::{Clock, FleetError, PairingCode};

/// Wrong codes after which a code is of no more use.
pub const MOST_WRONG: u32 = 3;
/// Refusals that are kept for whoever shows the code.
const MOST_REFUSED: usize = 8;
/// How often and how long it is tried to be the only one who shows a code: others look whether somebody does.
const TRIES: u32 = 20;

/// A code, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pairing {
    /// What people type.
    pub code: PairingCode,
    /// When it ends, in seconds since 1970.
    pub expires: u64,
    /// Machines that it is good for.
    pub machines: u32,
    /// Those that have proved it. Counted before one is a member: a crash between leaves a code good for one fewer.
    proved: u32,
    /// How often a wrong one was given instead.
    pub wrong: u32,
    /// Machines that have joined, in that order.
    pub joined: Vec<PairedMachine>,
    /// How many were refused in all.
    refusals: u64,
    /// The last of them.
    pub refused: Vec<RefusedMachine>,
}

/// A machine that has joined with a code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairedMachine {
    /// Its name.
    pub node: String,
    /// What it shows too, unless somebody is between.
    pub agreed: String,
}

/// One that did not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusedMachine {
    /// Counts them.
    pub number: u64,
    /// Where it is.
    pub address: String,
    /// Why.
    pub refusal: PairRefusal,
}

/// Why a machine does not join with a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairRefusal {
    /// Its code is wrong; so many more may be, before the right one is of no more use.
    Wrong(u32),
    /// The code was given wrongly too often, or there is another one by now.
    Burned,
    /// The code is too old.
    Expired,
    /// As many machines have joined as the code is good for.
    UsedUp,
    /// Nobody shows a code.
    NotShown,
}

impl PairRefusal {
    pub(crate) fn bytes(self) -> Vec<u8> {
        let (kind, left) = match self {
            PairRefusal::Wrong(left) => (1, left),
            PairRefusal::Burned => (2, 0),
            PairRefusal::Expired => (3, 0),
            PairRefusal::UsedUp => (4, 0),
            PairRefusal::NotShown => (5, 0),
        };
        Writer::default().number(kind).number(left).0
    }

    /// Who sends it has proved nothing: it is a number, and no text for people.
    pub(crate) fn parse(bytes: &[u8]) -> Result<PairRefusal, LinkError> {
        let mut reader = Reader(bytes);
        let said = (reader.number()?, reader.number()?);
        reader.end()?;
        match said {
            (1, left) if left < MOST_WRONG => Ok(PairRefusal::Wrong(left)),
            (2, 0) => Ok(PairRefusal::Burned),
            (3, 0) => Ok(PairRefusal::Expired),
            (4, 0) => Ok(PairRefusal::UsedUp),
            (5, 0) => Ok(PairRefusal::NotShown),
            _ => Err(broken()),
        }
    }

    /// What the person in front of the machine that wants to join reads.
    pub(crate) fn advice(self) -> String {
        match self {
            PairRefusal::Wrong(0) => "the code is wrong, and it was the third wrong one: use the new code that the \
                                      coordinator shows"
                .to_owned(),
            PairRefusal::Wrong(left) => format!(
                "the code is wrong; {left} more wrong {} and the coordinator makes a new one",
                if left == 1 { "code" } else { "codes" }
            ),
            PairRefusal::Burned => {
                "the code is of no more use, because wrong ones were given three times: use the new \
                                    code that the coordinator shows"
                    .to_owned()
            }
            PairRefusal::Expired => {
                "the code has expired; run `cascadia fleet init` on the coordinator again, which shows a new one"
                    .to_owned()
            }
            PairRefusal::UsedUp => {
                "as many machines have joined as the code is good for; run `cascadia fleet init` on the \
                                    coordinator again for more"
                    .to_owned()
            }
            PairRefusal::NotShown => {
                "no machine may join there now; run `cascadia fleet init` on the coordinator, and keep \
                                      it running"
                    .to_owned()
            }
        }
    }
}

/// For the coordinator's people.
impl fmt::Display for PairRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PairRefusal::Wrong(left) => {
                write!(f, "it gave a wrong pairing code ({} of {MOST_WRONG})", MOST_WRONG - left)
            }
            PairRefusal::Burned => f.write_str("it gave a pairing code that is of no more use"),
            PairRefusal::Expired => f.write_str("the pairing code has expired"),
            PairRefusal::UsedUp => f.write_str("the pairing code is used up"),
            PairRefusal::NotShown => f.write_str("no pairing code is shown"),
        }
    }
}

impl Pairing {
    /// A new code for so many machines.
    fn new(machines: u32, expires: u64) -> Result<Pairing, FleetError> {
        let (joined, refused) = (Vec::new(), Vec::new());
        let code = PairingCode::new()?;
        Ok(Pairing { code, expires, machines, proved: 0, wrong: 0, joined, refusals: 0, refused })
    }

    /// Whether it was given wrongly too often.
    pub fn is_burned(&self) -> bool {
        self.wrong >= MOST_WRONG
    }

    /// Whether nobody can join with it any more, though nothing is wrong.
    pub fn is_used_up(&self) -> bool {
        self.proved >= self.machines
    }

    /// Whether a machine may try; a member may do so again, which has not heard that it is one.
    fn check(&self, is_member: bool, now: u64) -> Result<(), PairRefusal> {
        // auth: pairing-expiry, pairing-tries, pairing-uses
        if now >= self.expires {
            Err(PairRefusal::Expired)
        } else if self.is_burned() {
            Err(PairRefusal::Burned)
        } else if self.is_used_up() && !is_member {
            Err(PairRefusal::UsedUp)
        } else {
            Ok(())
        }
    }
}

/// The code of a fleet, if one is shown.
pub struct Pairings {
    path: PathBuf,
    log: Option<AuditLog>,
    clock: Clock,
}

/// Shows a code for as long as this is held: nobody joins with a code that nobody looks at.
pub struct ShownPairing {
    pairings: Pairings,
    _alone: File,
}

/// What a machine has proved about a code.
pub(crate) struct PairingTry<'a> {
    /// The code that it was asked for.
    pub(crate) code: &'a PairingCode,
    /// Where it is.
    pub(crate) address: String,
    /// Whether it has proved that code.
    pub(crate) is_right: bool,
    /// Whether it is a member already.
    pub(crate) is_member: bool,
}

impl Pairings {
    /// The code in a file; there is none while it does not exist.
    pub fn at(path: &Path) -> Pairings {
        Pairings { path: path.to_owned(), log: None, clock: Clock::default() }
    }

    /// The same, with every new code in an audit log before it is shown.
    pub fn audited(self, log: AuditLog) -> Pairings {
        Pairings { log: Some(log), ..self }
    }

    /// The same with codes that expire by another clock than the system's.
    pub fn on_clock(self, clock: &Clock) -> Pairings {
        Pairings { clock: clock.clone(), ..self }
    }

    /// Shows a code for so many machines: the one of before if it can still be used, however often wrong ones were
    /// given, or else a new one. An error if another process shows one.
    pub fn show(self, machines: u32, expires: u64) -> Result<ShownPairing, FleetError> {
        let alone = self.lock_shown()?.ok_or_else(|| FleetError::InUse {
            problem: "another `cascadia fleet init` runs with this fleet; end it first".to_owned(),
        })?;
        let now = self.clock.unix_seconds();
        self.begin(|before| {
            let next = Pairing::new(machines, expires)?;
            Ok(match before.filter(|before| before.check(false, now).is_ok()) {
                Some(Pairing { code, wrong, .. }) => Pairing { code, wrong, ..next },
                None => next,
            })
        })?;
        Ok(ShownPairing { pairings: self, _alone: alone })
    }

    /// The code, if there is one.
    pub fn current(&self) -> Result<Option<Pairing>, FleetError> {
        read_json(&self.path)
    }

    /// Whether somebody shows it.
    pub(crate) fn is_shown(&self) -> bool {
        // auth: pairing-shown
        File::open(self.path.with_extension("shown")).is_ok_and(|file| file.try_lock_shared().is_err())
    }

    /// The code that a machine has to prove, or why none can be.
    pub(crate) fn asked(&self, address: &str, is_member: bool) -> Result<PairingCode, PairRefusal> {
        let current = self.current().ok().flatten().filter(|_| self.is_shown()).ok_or(PairRefusal::NotShown)?;
        match current.check(is_member, self.clock.unix_seconds()) {
            Ok(()) => Ok(current.code),
            Err(refusal) => {
                // Where that cannot be written, nobody reads of it.
                let _ = self.change(|pairing| pairing.remember(address, refusal));
                Err(refusal)
            }
        }
    }

    /// Decides about a machine that has shown its proof. All are decided one after the other, so that nobody who tries
    /// many codes at a time hears of more than [`MOST_WRONG`] of them.
    pub(crate) fn decide(&self, tried: &PairingTry<'_>) -> Result<(), PairRefusal> {
        if !self.is_shown() {
            return Err(PairRefusal::NotShown);
        }
        let now = self.clock.unix_seconds();
        let decided = self.change(|pairing| {
            let decided = pairing.decide(tried, now);
            if let Err(refusal) = decided {
                pairing.remember(&tried.address, refusal);
            }
            decided
        });
        // What cannot be counted does not happen.
        decided.ok().flatten().unwrap_or(Err(PairRefusal::NotShown))
    }

    /// Writes down that a machine has joined.
    pub(crate) fn joined(&self, machine: PairedMachine) -> Result<(), FleetError> {
        let joined = self.change(|pairing| {
            pairing.joined.retain(|before| before.node != machine.node);
            pairing.joined.push(machine);
        });
        joined.map(|_| ())
    }

    /// Writes a new code in place of the old one.
    fn begin(&self, next: impl FnOnce(Option<Pairing>) -> Result<Pairing, FleetError>) -> Result<(), FleetError> {
        let _one_at_a_time = self.lock()?;
        // One that cannot be read is of no use to anybody.
        let next = next(self.current().unwrap_or_default())?;
        let note = format!("a pairing code for {} machines until {}", next.machines, next.expires);
        let write = || write_json(&self.path, &next);
        match &self.log {
            Some(log) => log.acting(Entry { note, ..Entry::admin(Verb::Invite) }, write),
            None => write(),
        }
    }

    /// Changes what is written of the code; nothing if there is none.
    fn change<T>(&self, change: impl FnOnce(&mut Pairing) -> T) -> Result<Option<T>, FleetError> {
        let _one_at_a_time = self.lock()?;
        let Some(before) = self.current()? else { return Ok(None) };
        let mut pairing = before.clone();
        let changed = change(&mut pairing);
        if pairing != before {
            write_json(&self.path, &pairing)?;
        }
        Ok(Some(changed))
    }

    fn lock(&self) -> Result<File, FleetError> {
        let file = self.file("lock")?;
        file.lock().map_err(FleetError::io("lock", &self.path))?;
        Ok(file)
    }

    /// Nothing if somebody else shows a code.
    fn lock_shown(&self) -> Result<Option<File>, FleetError> {
        let file = self.file("shown")?;
        // Whoever looks whether a code is shown holds the file for a moment.
        for _ in 0..TRIES {
            if file.try_lock().is_ok() {
                return Ok(Some(file));
            }
            Clock::system().sleep(crate::POLL / 2);
        }
        Ok(None)
    }

    /// A file beside the other, which is another one after every change.
    fn file(&self, ending: &str) -> Result<File, FleetError> {
        let path = self.path.with_extension(ending);
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(FleetError::io("make the folder", folder))?;
        File::create(&path).map_err(FleetError::io("create", &path))
    }
}

impl Pairing {
    fn decide(&mut self, tried: &PairingTry<'_>, now: u64) -> Result<(), PairRefusal> {
        // Another one is shown by now, and which of the two it proved is not told.
        if self.code != *tried.code {
            return Err(PairRefusal::Burned);
        }
        self.check(tried.is_member, now)?;
        if !tried.is_right {
            self.wrong += 1;
            return Err(PairRefusal::Wrong(MOST_WRONG - self.wrong));
        }
        self.proved += u32::from(!tried.is_member);
        Ok(())
    }

    /// Keeps a refusal for people. Who is refused for the same reason again is no news, and no work for the disk.
    fn remember(&mut self, address: &str, refusal: PairRefusal) {
        let is_known = |known: &RefusedMachine| known.address == address && known.refusal == refusal;
        if self.refused.iter().any(is_known) {
            return;
        }
        self.refusals += 1;
        self.refused.push(RefusedMachine { number: self.refusals, address: address.to_owned(), refusal });
        let most = self.refused.len().saturating_sub(MOST_REFUSED);
        self.refused.drain(..most);
    }
}

impl ShownPairing {
    /// The code, and what became of it so far.
    pub fn current(&self) -> Result<Option<Pairing>, FleetError> {
        self.pairings.current()
    }

    /// A new code in place of one that is burned, for the machines that have yet to join.
    pub fn renew(&self) -> Result<(), FleetError> {
        self.pairings.begin(|burned| {
            let burned = burned.ok_or_else(|| FleetError::pairing("the file of the code is gone"))?;
            Ok(Pairing { code: PairingCode::new()?, wrong: 0, refused: Vec::new(), ..burned })
        })
    }
}
