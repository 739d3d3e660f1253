#!/usr/bin/env python3
"""Disables the checks of keys, proofs and signatures in the fleet, and shows that a test fails for every one.

    checks/auth_mutations.py            # all at once, one build: every forgery has to be taken
    checks/auth_mutations.py --each     # one after the other, one build for each

Checks are marked `auth:` in the code; crates/fleet/src/membership/forgeries.rs has a forgery for every mark.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "crates/fleet/src"
TEST = ["cargo", "test", "--release", "-p", "cascadia-fleet", "--lib", "every_check_refuses"]

# File, what is there, what it becomes, and the checks that are gone with it.
MUTATIONS = [
    ("wire/tls.rs", "match (self.may_speak)(Digest::of(key)) {", "match (self.may_speak)(Digest::of(key)) || true {",
     "member-key coordinator-pin"),
    ("wire/tls.rs", "&self.provider.signature_verification_algorithms)",
     "&self.provider.signature_verification_algorithms).or_else(|_| Ok(HandshakeSignatureValid::assertion()))",
     "member-signature coordinator-signature"),
    ("membership/listener.rs", "Standing::Unknown => return self.take_in(link, (pin, key), deadline),",
     "Standing::Unknown => String::new(),", "member-standing"),
    ("membership/members.rs", "match content.trusted().find(|member| member.has_key(key)) {",
     "match content.members.iter().find(|member| member.has_key(key)) {", "member-trusted"),
    ("membership/members.rs", "None => content.untrusted(key),", "None => Standing::Member(String::new()),",
     "member-revoked member-old-key member-pending"),
    ("membership/members.rs", "Some(member) if member.is_expired(now) =>", "Some(member) if false && member.is_expired(now) =>",
     "member-expiry"),
    ("membership/members.rs", "let is_anothers = ", "let is_anothers = false && ", "succession-foreign"),
    ("membership/members.rs", "open.is_open(now) && is_proof(", "open.is_open(now) || is_proof(",
     "invitation-secret invitation-session invitation-key"),
    ("membership/members.rs", "self.uses > 0 && now < self.expires", "self.uses > 0 || now < self.expires",
     "invitation-expiry invitation-uses"),
    ("membership/members.rs", "if approve {\n                let pending", "if false && approve {\n                let pending",
     "invitation-approval"),
    ("membership/members.rs", "let may = member.distrusted.is_none() &&", "let may = ", "pairing-excluded"),
    ("membership/pairings.rs", "if now >= self.expires {", "if false {", "pairing-expiry"),
    ("membership/pairings.rs", "} else if self.is_burned() {", "} else if false {", "pairing-tries"),
    ("membership/pairings.rs", "} else if self.is_used_up() && !is_member {", "} else if false {", "pairing-uses"),
    ("membership/pairings.rs", "is_ok_and(|file| file.try_lock_shared().is_err())", "is_ok()", "pairing-shown"),
    ("membership/key_exchange.rs", "hmac::verify(&self.tag(end), &self.session[..], shown).is_ok()", "!shown.is_empty()",
     "pairing-code pairing-session pairing-direction pairing-joiner pairing-coordinator"),
    ("membership/key_exchange.rs", "[name, &key.0].concat()", "[name, &key.0[..0]].concat()",
     "pairing-joiner pairing-coordinator"),
    ("membership/rotation.rs", "(self.old.pin() == key && self.old.holds(&message) && self.new.holds(&message)).then_some(new)",
     "(true || self.old.holds(&message)).then_some(new)",
     "succession-old succession-new succession-coordinator succession-machine"),
    ("shards/signed_manifest.rs", "if !self.seal.holds(", "if false && !self.seal.holds(", "manifest-signature"),
    ("shards/signed_manifest.rs", "!keys.accepts_targets(key, now)", "false", "manifest-key"),
    ("shards/signed_manifest.rs", "known.filter(|known| self.version < known.version)", "known.filter(|_| false)",
     "manifest-version"),
    ("shards/signed_manifest.rs", "match self.shards.contains(&shard) {", "match true {", "manifest-shard"),
    ("audit/head.rs", "if !head.is_signed_by(signer) ||", "if", "head-signature"),
    ("audit/head.rs", "!keys.accepts_coordinator(signer, self.clock.unix_seconds())", "false", "head-signer"),
    ("audit/auditor.rs", "match is_its && witness.seen.is_signed_by(signer)",
     "match true || is_its && witness.seen.is_signed_by(signer)", "witness-signer witness-node witness-head"),
    ("membership/key_statement.rs", "by_coordinator.pin() == coordinator\n", "true || by_coordinator.pin() == coordinator\n",
     "keys-old-coordinator keys-old-targets"),
    ("membership/key_statement.rs", "coordinator.pin() == self.statement.coordinator.pin\n",
     "true || coordinator.pin() == self.statement.coordinator.pin\n", "keys-new-coordinator keys-new-targets"),
    ("membership/known_keys.rs", "if newest.statement.coordinator.pin != coordinator ||", "if", "keys-invitation"),
    ("membership/known_keys.rs", "if fleet != self.fleet() {", "if false {", "keys-fleet"),
    ("membership/known_keys.rs", "if number > expected {", "if false {", "keys-order"),
    ("membership/known_keys.rs", "if known.coordinator != peer || !is_proved {", "if false && !is_proved {", "keys-peer keys-proof"),
    ("membership/known_keys.rs", "filter(|stated| now < stated.previous_until)", "filter(|_| true)",
     "coordinator-old-key manifest-old-key head-old-key"),
    ("membership/known_keys.rs", "filter(|stated| now >= stated.coordinator_expires)", "filter(|_| false)", "coordinator-expiry"),
    ("membership/known_keys.rs", "filter(|stated| now >= stated.targets_expires)", "filter(|_| false)", "manifest-expiry"),
]


def mutate(mutations) -> None:
    for file, there, instead, _ in mutations:
        path = SOURCE / file
        text = path.read_text()
        if text.count(there) != 1:
            sys.exit(f"{file} does not have this once: {there}")
        path.write_text(text.replace(there, instead))


def taken(mutations) -> set[str]:
    """The forgeries that the test says were taken while the checks are disabled."""
    before = {file: (SOURCE / file).read_text() for file, *_ in mutations}
    try:
        mutate(mutations)
        ran = subprocess.run(TEST, cwd=ROOT, capture_output=True, text=True)
    finally:
        for file, text in before.items():
            (SOURCE / file).write_text(text)
    said = ran.stdout + ran.stderr
    if "these forgeries were taken" not in said and "test result: ok" not in said:
        sys.exit(said[-4000:])
    listed = re.search(r"left: (\[.*?\])", said, re.S)
    return set(re.findall(r'"([a-z-]+)"', listed.group(1))) if listed else set()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", action="store_true", help="disable one after the other")
    rounds = [[mutation] for mutation in MUTATIONS] if parser.parse_args().each else [MUTATIONS]
    survived = []
    for mutations in rounds:
        expected = {name for *_, names in mutations for name in names.split()}
        missed = expected - taken(mutations)
        print(f"{len(expected) - len(missed)} of {len(expected)} forgeries are noticed without: {', '.join(sorted(expected))}")
        survived += sorted(missed)
    if survived:
        sys.exit(f"no test fails without these checks: {', '.join(survived)}")


if __name__ == "__main__":
    main()
