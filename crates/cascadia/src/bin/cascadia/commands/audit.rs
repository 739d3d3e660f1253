//! `cascadia audit`, and what a worker remembers of the log.

use std::collections::VecDeque;

use anyhow::bail;
use cascadia_fleet::{Record, SeenRequests, SignedHead, Verdict, Witnesses};
use cascadia_text::Clock;
use serde::Serialize;
use serde_json::{Value, json};

use crate::flags::{AuditShowFlags, AuditVerifyFlags, WorkerHeadFlags};
use crate::home::home;
use crate::output::{print, print_json, remark};

/// Compares the log with everything that was ever signed of it; an error if it is not the same.
pub(crate) fn verify(flags: &AuditVerifyFlags) -> anyhow::Result<()> {
    let home = home(flags.home.home.as_deref())?;
    let log = home.audit_log();
    let mut remembered = Vec::new();
    for path in &flags.heads {
        let seen: Vec<SignedHead> = Witnesses::read(path)?.iter().map(|witness| witness.seen).collect();
        if seen.is_empty() {
            bail!("{} holds no head; write it with `cascadia worker head` on a worker", path.display());
        }
        remembered.push(seen);
    }
    // A log that is gone while a key is here is not what was signed, and says so.
    home.coordinator()?;
    let verdict = log.verify(&home.keys().current()?.coordinator_pins(), &log.own_heads()?, &remembered)?;
    let Verdict { begin, end, torn, heads } = verdict;
    let forgotten = begin.count;
    if flags.json {
        let hash = end.hash.to_string();
        let object =
            json!({"records": end.count, "forgotten": forgotten, "torn_bytes": torn, "heads": heads, "hash": hash});
        return Ok(print_json(&object)?);
    }
    print(&format!("{} records, as they were written; {heads} signed heads agree.\n", end.count))?;
    if forgotten > 0 {
        remark(&format!("The first {forgotten} are no longer kept, as the log says itself."));
    }
    if torn > 0 {
        remark(&format!("A crash left {torn} bytes of a record after them; the next one takes their place."));
    }
    if flags.heads.is_empty() {
        remark(
            "Whether it was replaced as a whole, only workers can tell: give what `cascadia worker head` prints there with --heads.",
        );
    }
    Ok(())
}

/// Shows the newest records.
pub(crate) fn show(flags: &AuditShowFlags) -> anyhow::Result<()> {
    let home = home(flags.home.home.as_deref())?;
    if let Some(node) = &flags.seen_by {
        let seen = SeenRequests::of(home.audit_log().folder(), node)?;
        let shown = if flags.json { print_json(&seen_json(&seen)) } else { print(&seen_by(node, &seen)) };
        return Ok(shown?);
    }
    let mut records = VecDeque::new();
    home.audit_log().read(|record, _| {
        if records.len() >= flags.last as usize {
            records.pop_front();
        }
        records.push_back(record.clone());
    })?;
    if flags.json {
        let records = records.iter().map(serde_json::to_value).collect::<Result<Vec<Value>, _>>()?;
        return Ok(print_json(&json!({ "records": records }))?);
    }
    let text: String = records.iter().map(line).collect();
    Ok(print(&text)?)
}

/// For which requests a machine was sent hidden states, for people.
pub(crate) fn seen_by(node: &str, seen: &[SeenRequests]) -> String {
    let count: usize = seen.iter().map(|seen| seen.requests.len()).sum();
    let (first, last) = (seen.iter().map(|seen| seen.time[0]).min(), seen.iter().map(|seen| seen.time[1]).max());
    let Some((first, last)) = first.zip(last) else {
        return format!("{node} computed for no request that is recorded.\n");
    };
    let mut text =
        format!("{node} computed for {count} requests, which began from {} to {} UTC:\n", date(first), date(last));
    for seen in seen {
        let (model, since) = (seen.served.model.short(), date(seen.served.since));
        text += &format!("  model {model}, served since {since}: requests {}\n", seen.numbers());
    }
    text
}

fn seen_json(seen: &[SeenRequests]) -> Value {
    let one = |seen: &SeenRequests| {
        let SeenRequests { served, time: [first, last], requests } = seen;
        json!({"model": served.model, "since": served.since, "first": first, "last": last, "requests": requests})
    };
    json!({ "seen": seen.iter().map(one).collect::<Vec<_>>() })
}

/// Prints the heads that this machine has seen.
pub(crate) fn worker_head(flags: &WorkerHeadFlags) -> anyhow::Result<()> {
    let home = home(flags.home.home.as_deref())?;
    home.worker()?;
    let heads = Witnesses::read(&home.heads())?;
    if heads.is_empty() {
        bail!("this machine has seen no head yet; it is shown one when it computes for its coordinator");
    }
    Ok(print(&format!("{}\n", serde_json::to_string_pretty(&heads)?))?)
}

fn line(record: &Record) -> String {
    let Record { count, time, entry } = record;
    let digest = entry.digest.map(|digest| digest.short()).unwrap_or_default();
    let (verb, decision) = (word(&entry.verb), word(&entry.decision));
    let rest = [entry.nodes.join(","), digest, entry.note.clone()];
    let rest: Vec<String> = rest.into_iter().filter(|part| !part.is_empty()).collect();
    format!("{count:>8}  {}  {:<16} {verb:<12} {decision:<8} {}\n", date(*time), entry.who, rest.join("  "))
}

/// A choice as it stands in the log.
fn word(choice: &impl Serialize) -> String {
    serde_json::to_value(choice).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Seconds since 1970 as a date and time of UTC.
fn date(seconds: u64) -> String {
    let clock = Clock { unix_seconds: seconds.cast_signed(), utc_offset_seconds: 0 };
    clock.format("%Y-%m-%d %H:%M:%S").unwrap_or_default()
}
