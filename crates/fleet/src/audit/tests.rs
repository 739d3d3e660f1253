//! Whatever is done to a log is noticed with one honest worker's head; what a crash does to it is not taken for that.

use std::fs;
use std::path::{Path, PathBuf};

use super::record::{Position, Record};
use super::*;
use crate::{Digest, Identity, Members, seconds_now};

/// A coordinator and a worker.
struct Office {
    folder: tempfile::TempDir,
    coordinator: Identity,
}

impl Office {
    fn open() -> Office {
        let folder = tempfile::tempdir().expect("a folder");
        let coordinator = Identity::open_or_make(&folder.path().join("coordinator.key")).expect("a key");
        Office { folder, coordinator }
    }

    fn log(&self) -> AuditLog {
        AuditLog::at(&self.folder.path().join("audit"))
    }

    fn worker(&self) -> Witnesses {
        let identity = Identity::open_or_make(&self.folder.path().join("worker.key")).expect("a key");
        Witnesses::at(&self.heads(), identity, self.coordinator.pin())
    }

    fn heads(&self) -> PathBuf {
        self.folder.path().join("heads.json")
    }

    fn sign(&self) -> SignedHead {
        SignedHead::new(&self.coordinator, self.log().position().expect("a log"), seconds_now()).expect("a key signs")
    }

    /// What `audit verify --heads` says.
    fn verify(&self) -> Result<Verdict, String> {
        let seen = Witnesses::read(&self.heads()).expect("it was written").into_iter().map(|witness| witness.seen);
        let remembered: Vec<SignedHead> = seen.collect();
        let own = self.log().own_heads().expect("it was written");
        self.log().verify(&[self.coordinator.pin()], &own, &[remembered]).map_err(|error| error.to_string())
    }
}

fn entry(number: u64) -> Entry {
    let note = format!("number {number} \"quoted\"\n");
    Entry { note, digest: Some(Digest::of(b"shard")), nodes: vec!["node-00".to_owned()], ..Entry::admin(Verb::Push) }
}

fn fill(log: &AuditLog, numbers: std::ops::Range<u64>) {
    for number in numbers {
        log.append(entry(number)).expect("it can be written");
    }
}

fn records(log: &AuditLog) -> Vec<Record> {
    let mut records = Vec::new();
    log.read(|record, _| records.push(record.clone())).expect("an honest log");
    records
}

/// The one file of a short log.
fn only_file(log: &AuditLog) -> PathBuf {
    log.files().expect("a folder").pop().expect("a file")
}

/// Writes a log of these records whose chain is as it should be.
fn forge(log: &AuditLog, records: &[Record]) {
    let (mut text, mut position) =
        (String::from("cascadia-audit-1 0 ") + &Position::START.hash.to_string() + "\n", Position::START);
    for record in records {
        let (line, _, next) = Record::after(position, record.time, record.entry.clone()).expect("it fits");
        text += &line;
        position = next;
    }
    fs::write(only_file(log), text).expect("it can be written");
}

/// Writes a log in place of another that says that it has dropped so many records.
fn forge_after(log: &AuditLog, count: u64) {
    let position = Position { count, hash: Digest::of(b"anything") };
    let forget =
        Entry { note: format!("records up to {count}"), ..Entry::new("coordinator", Verb::Forget, Decision::Noted) };
    let (line, _, _) = Record::after(position, seconds_now(), forget).expect("it fits");
    log.files().expect("a folder").iter().for_each(|file| fs::remove_file(file).expect("it is there"));
    let path = log.folder().join(format!("{count:020}.log"));
    fs::write(path, format!("cascadia-audit-1 {count} {}\n{line}", position.hash)).expect("it can be written");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for file in fs::read_dir(from).expect("a folder").flatten() {
        fs::copy(file.path(), to.join(file.file_name())).expect("it can be copied");
    }
}

/// Whoever has the coordinator's key and disk does this, and then signs what is there.
type Attack<'a> = (&'a str, &'a dyn Fn(&AuditLog, Vec<Record>));

#[test]
fn eight_of_eight_attacks_are_noticed() {
    let attacks: [Attack<'_>; 8] = [
        ("edit", &|log, mut records| {
            records[4].entry.nodes = vec!["node-07".to_owned()];
            forge(log, &records);
        }),
        ("drop", &|log, mut records| {
            records.remove(3);
            records.push(records[0].clone());
            forge(log, &records);
        }),
        ("reorder", &|log, mut records| {
            records.swap(2, 6);
            forge(log, &records);
        }),
        ("restamp", &|log, mut records| {
            records[5].time -= 3600;
            forge(log, &records);
        }),
        ("truncate", &|log, mut records| {
            records.truncate(7);
            forge(log, &records);
        }),
        ("truncate and append", &|log, mut records| {
            records.truncate(7);
            forge(log, &records);
            fill(log, 100..120);
        }),
        ("roll back", &|log, _| {
            let earlier = log.folder().with_file_name("earlier");
            fs::remove_dir_all(log.folder()).expect("it is there");
            copy(&earlier, log.folder());
        }),
        ("throw away the past", &|log, records| forge_after(log, records.len() as u64)),
    ];
    for (name, attack) in attacks {
        let (office, mut noticed_alone) = (Office::open(), None);
        let (log, worker) = (office.log(), office.worker());
        fill(&log, 0..6);
        copy(log.folder(), &log.folder().with_file_name("earlier"));
        fill(&log, 6..10);
        worker.see(office.sign()).expect("an honest head");
        assert_eq!(office.verify().map(|verdict| (verdict.end.count, verdict.heads)), Ok((10, 1)), "{name}");
        attack(&log, records(&log));
        for _ in 0..2 {
            let problem = office.verify().expect_err(name);
            assert!(problem.contains("signed") || problem.contains("are missing"), "{name}: {problem}");
            // Signing it anew suggestions nothing, and the worker refuses what cannot be the same log.
            crate::write_json(&log.folder().join("head.json"), &office.sign()).expect("it can be written");
            noticed_alone = Some(worker.see(office.sign()).is_err());
        }
        // A longer log with another past looks honest to a worker, which still remembers how it was.
        let is_longer = ["truncate and append", "throw away the past"].contains(&name);
        assert_eq!(noticed_alone, Some(!is_longer), "{name}");
    }
}

#[test]
fn changes_that_leave_the_chain_as_it_is_need_no_head_to_be_noticed() {
    let office = Office::open();
    let log = office.log();
    fill(&log, 0..4);
    let path = only_file(&log);
    let text = fs::read_to_string(&path).expect("it was written");
    let lines: Vec<&str> = text.lines().collect();
    let check = |lines: Vec<String>| {
        fs::write(&path, lines.join("\n") + "\n").expect("it can be written");
        let problem = office.verify().expect_err("it was changed");
        assert!(problem.contains("line "), "{problem}");
    };
    let with = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        change(&mut lines);
        check(lines);
    };
    with(&|lines| lines[2] = lines[2].replace("number 1", "number 9"));
    with(&|lines| lines[2] = lines[2].replace("\"count\":", "\"count\": "));
    with(&|lines| lines[2] = lines[2].replace("\"time\":", "\"more\":1,\"time\":"));
    with(&|lines| drop(lines.remove(2)));
    with(&|lines| lines.swap(1, 2));
    with(&|lines| lines[0] = lines[0].replace(" 0 ", " 1 "));
    with(&|lines| lines.insert(2, String::new()));
    fs::write(&path, text).expect("it can be written");
    assert_eq!(office.verify().map(|verdict| verdict.end.count), Ok(4));
    let other = Office::open();
    let problem =
        log.verify(&[office.coordinator.pin()], &[other.sign()], &[]).expect_err("it is of another log").to_string();
    assert!(problem.contains("not signed with this coordinator's key"), "{problem}");
}

#[test]
fn a_crash_loses_at_most_the_record_that_was_being_written() {
    let office = Office::open();
    let log = office.log();
    fill(&log, 0..3);
    office.worker().see(office.sign()).expect("an honest head");
    let path = only_file(&log);
    let before = fs::read(&path).expect("it was written");
    log.append(entry(3)).expect("it can be written");
    let after = fs::read(&path).expect("it was written");
    for cut in (before.len()..after.len()).step_by(7).chain([after.len() - 1]) {
        fs::write(&path, &after[..cut]).expect("it can be written");
        let torn = (cut - before.len()) as u64;
        assert_eq!(office.verify().map(|verdict| (verdict.end.count, verdict.torn)), Ok((3, torn)));
        log.append(entry(4)).expect("it continues");
        let notes: Vec<(Verb, u64)> =
            records(&log)[3..].iter().map(|record| (record.entry.verb, record.count)).collect();
        match torn {
            0 => assert_eq!(notes, [(Verb::Push, 4)]),
            _ => assert_eq!(notes, [(Verb::Recover, 4), (Verb::Push, 5)], "{torn}"),
        }
        assert!(office.verify().is_ok_and(|verdict| verdict.torn == 0));
    }
    // In the middle of what was signed, it is no crash.
    fs::write(&path, &before[..before.len() - 20]).expect("it can be written");
    assert!(office.verify().is_err_and(|problem| problem.contains("ends after 2 records, but 3 were signed")));
}

#[test]
fn files_roll_over_and_old_ones_are_let_go_openly() {
    let office = Office::open();
    let log = office.log().with_limits(LogLimits { file_bytes: 2000, files: 3 });
    let mut heads = Vec::new();
    for number in 0..100 {
        log.append(entry(number)).expect("it can be written");
        heads.push(office.sign());
    }
    let files = log.files().expect("a folder");
    assert_eq!(files.len(), 3);
    let verify = |own: &[SignedHead], remembered: &[Vec<SignedHead>]| {
        log.verify(&[office.coordinator.pin()], own, remembered).map_err(|error| error.to_string())
    };
    let verdict = verify(&heads[..3], &[heads.clone()]).expect("it is honest");
    assert!(verdict.begin.count > 50 && verdict.end.count > 100, "{verdict:?}");
    // Who was last there before the oldest record that is kept cannot say whether it is the same log.
    assert!(verify(&heads, &[heads[..3].to_vec()]).is_err_and(|problem| problem.contains("are no longer kept")));
    // The place where it begins is compared too.
    let hash = Digest::of(b"anything");
    let other =
        SignedHead::new(&office.coordinator, Position { hash, ..verdict.begin }, seconds_now()).expect("a key signs");
    assert!(verify(&[other], &[]).is_err_and(|problem| problem.contains("not those that were signed")));
    // Nobody else may drop more.
    fs::remove_file(&files[0]).expect("it is there");
    let problem = verify(&heads, &[]).expect_err("a file is missing");
    assert!(problem.contains("are missing"), "{problem}");
    fs::remove_file(&files[2]).expect("it is there");
    assert!(verify(&heads, &[]).is_err());
    // Nor does it help to say so.
    forge_after(&log, 200);
    assert!(verify(&[], &[]).is_err_and(|problem| problem.contains("are kept before any goes")));
}

#[test]
fn what_cannot_be_recorded_does_not_happen() {
    let office = Office::open();
    let (log, path) = (office.log(), office.folder.path().join("members.json"));
    let members = Members::at(&path).audited(log.clone());
    let invitation =
        || crate::Invitation::new(Vec::new(), office.coordinator.pin(), seconds_now() + 60).expect("random");
    // The log cannot be where something else is.
    fs::write(log.folder(), "").expect("it can be written");
    members.invite(&invitation(), 1).expect_err("it cannot be recorded");
    assert!(!path.exists() && !members.invites());
    fs::remove_file(log.folder()).expect("it is there");
    members.invite(&invitation(), 1).expect("it is recorded");
    assert!(members.invites());
    let failed: Result<(), _> = log.acting(entry(1), || Err(Identity::unusable()));
    assert!(failed.is_err());
    let decisions: Vec<_> = records(&log).iter().map(|record| (record.entry.verb, record.entry.decision)).collect();
    use Decision::{Allowed, Failed};
    assert_eq!(decisions, [(Verb::Invite, Allowed), (Verb::Push, Allowed), (Verb::Push, Failed)]);
}

#[test]
fn a_worker_remembers_a_long_past_in_little_space() {
    let office = Office::open();
    let worker = office.worker();
    for count in 1..=300 {
        let hash = Digest::of(&u64::to_le_bytes(count));
        let head = SignedHead::new(&office.coordinator, Position { count, hash }, seconds_now()).expect("a key signs");
        let witness = worker.see(head).expect("it continues");
        assert!(witness.is_signed_by(witness.seal.pin()) && !witness.is_signed_by(office.coordinator.pin()));
    }
    let counts: Vec<u64> = Witnesses::read(&office.heads()).unwrap().iter().map(|seen| seen.seen.head.count).collect();
    assert!(counts.len() <= 256 && counts.first() == Some(&1) && counts.last() == Some(&300), "{counts:?}");
    assert!(counts.is_sorted());
}

#[test]
fn a_worker_cannot_fill_the_log_with_what_it_does_not_countersign() {
    let office = Office::open();
    let members = Members::at(&office.folder.path().join("members.json"));
    let auditor = Auditor::new(office.log(), office.coordinator.clone());
    for number in 0..1000_u32 {
        let countersignature = Err(format!("problem {number}"));
        auditor.heard("node-00", &members, &testimony_bytes(&countersignature));
    }
    auditor.heard("node-01", &members, b"nonsense");
    auditor.tick(|_| {}).expect("it can be written");
    let refused: Vec<(String, Verb)> =
        records(&office.log()).into_iter().map(|record| (record.entry.who, record.entry.verb)).collect();
    assert_eq!(refused, ["node-00", "node-01"].map(|node| (node.to_owned(), Verb::Witness)));
}

#[test]
fn what_a_worker_countersigned_waits_for_a_disk_that_fails() {
    let office = Office::open();
    let path = office.folder.path().join("members.json");
    let worker = Identity::open_or_make(&office.folder.path().join("worker.key")).expect("a key");
    let list = serde_json::json!({"members": [{"name": "node-00", "key": worker.pin()}], "invitations": []});
    fs::write(&path, list.to_string()).expect("it can be written");
    fill(&office.log(), 0..3);
    let auditor = Auditor::new(office.log(), office.coordinator.clone());
    auditor.heard("node-00", &Members::at(&path), &testimony_bytes(&office.worker().see(office.sign())));
    let kept = office.log().folder().join("witnesses.json");
    fs::create_dir(&kept).expect("it can be made");
    auditor.tick(|_| {}).expect_err("it cannot be written");
    fs::remove_dir(&kept).expect("it is there");
    for _ in 0..2 {
        auditor.tick(|_| {}).expect("it can be written");
        assert_eq!(office.log().own_heads().expect("they are there").len(), 2, "its own, and the one that was seen");
    }
}
