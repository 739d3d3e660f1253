//! Reads arbitrary bytes as the files of a fleet's folder, and as an invitation.
#![no_main]

use std::fs;

use cascadia_fleet::{AuditLog, Digest, FleetHome, Identity, Invitation, Members, Position, SignedHead, Witnesses};
use cascadia_fuzz::{folder, with_file};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, rest)) = bytes.split_first() else { return };
    match choice % 5 {
        0 => members(rest),
        1 => key(rest),
        2 => invitation(rest),
        3 => settings(rest),
        _ => records(rest),
    }
});

/// The list of members: a change leaves all others as they were.
fn members(bytes: &[u8]) {
    let members = with_file("members.json", bytes, Members::at);
    members.invites();
    let Ok(all) = members.all() else {
        assert!(members.name_of(Digest::of(b"")).is_none(), "a list that cannot be read lets somebody in");
        return;
    };
    for member in &all {
        assert!(members.name_of(member.key).is_some() || all.iter().any(|member| member.distrusted.is_some()));
    }
    if let Some(first) = all.first() {
        assert!(members.distrust(&first.name, "why").expect("it can be written"));
        assert!(members.revoke(&first.name).expect("it can be written"));
        assert_eq!(members.all().expect("it was written by this program").len(), all.len() - 1);
    }
}

fn key(bytes: &[u8]) {
    if let Ok(key) = with_file("key", bytes, Identity::prepare) {
        // What is accepted as a key also signs.
        let head = SignedHead::new(key.identity(), Position::START, 0).expect("a key signs");
        assert!(head.is_signed_by(key.identity().pin()));
    }
}

/// The line that people copy: any letters, and those of any content with the checksum that belongs to it.
fn invitation(bytes: &[u8]) {
    let checksum = Digest::of(bytes);
    for line in [String::from_utf8_lossy(bytes).into_owned(), base32(&[bytes, &checksum.0[..4]].concat())] {
        let Ok(invitation) = format!("cas1-{line}").parse::<Invitation>() else { continue };
        let written = invitation.to_string();
        assert_eq!(written.parse::<Invitation>().expect("it was written by this program"), invitation);
    }
}

fn base32(bytes: &[u8]) -> String {
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let digits = bits.chunks(5).map(|bits| bits.iter().fold(0, |digit, bit| digit << 1 | bit) << (5 - bits.len()));
    digits.map(|digit| char::from(b"abcdefghijklmnopqrstuvwxyz234567"[usize::from(digit)])).collect()
}

/// What coordinators and workers remember.
fn settings(bytes: &[u8]) {
    let home = FleetHome::open(folder()).expect("the folder is there");
    for name in [
        "coordinator/fleet.json",
        "coordinator/machines.json",
        "worker/fleet.json",
        "worker/limits.json",
        "coordinator/status.json",
        "coordinator/keys.json",
    ] {
        fs::create_dir_all(folder().join(name).parent().expect("a file has a folder")).expect("it can be made");
        with_file(name, bytes, |_| {
            let _ = (home.coordinator(), home.machines(), home.worker(), home.limits(), home.status());
            // Without the file, keys would be made.
            if name.ends_with("keys.json") {
                assert!(home.keys().current().is_err(), "keys are taken that nobody has");
            }
        });
    }
}

/// The audit log, and the heads of it that a worker remembers.
fn records(bytes: &[u8]) {
    let _ = with_file("heads.json", bytes, Witnesses::read);
    fs::create_dir_all(folder().join("audit")).expect("it can be made");
    let _ = with_file("audit/00000000000000000000.log", bytes, |_| {
        AuditLog::at(&folder().join("audit")).verify(&[Digest::of(b"")], &[], &[])
    });
}
