//! `cascadia bench chaos`: a real fleet of processes on this machine, answers under way, and machines that are killed.

mod fault;
mod machine;
mod office;
mod relay;
mod report;
mod streams;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;

use self::fault::{Chance, Strike};
use self::office::Office;
use self::report::Report;
use self::streams::Streams;
use crate::flags::{ChaosFlags, Fault};
use crate::output::{print, print_json};
use crate::progress::Progress;

/// The longest time between a fleet that is whole and the next fault.
const CALM_MS: u64 = 400;

/// Kills machines of a fleet while it answers, and prints what became of the answers.
pub(crate) fn chaos(flags: &ChaosFlags) -> anyhow::Result<()> {
    let mut office = Office::open(flags)?;
    let streams = Streams::new(flags, &office)?;
    let service = office.serve(streams.options())?;
    let (handle, begin, over) = (service.handle(), Instant::now(), AtomicBool::new(false));
    let (strikes, heard) = thread::scope(|scope| {
        let stream = |number| {
            scope.spawn({
                let (handle, streams, over) = (handle.clone(), &streams, &over);
                move || streams.listen(&handle, number as usize, over)
            })
        };
        let listening: Vec<_> = (0..flags.streams).map(stream).collect();
        let strikes = strike_all(flags, &mut office, &streams);
        over.store(true, Ordering::Relaxed);
        let heard: Vec<_> = listening.into_iter().filter_map(|stream| stream.join().ok()).collect();
        (strikes, heard)
    });
    ensure!(heard.len() == flags.streams as usize, "a stream broke off; this is a bug worth reporting");
    let report = Report::of(flags, &strikes?, (heard, office.late()), begin);
    if flags.json {
        print_json(&report.object())?;
    } else {
        print(&report.text())?;
    }
    service.drain();
    ensure!(report.is_clean(), "answers were dropped or changed, or a lost or slow machine went unnoticed");
    Ok(())
}

/// Does one fault after the other, each to a fleet that is whole and to answers that go on again.
fn strike_all(flags: &ChaosFlags, office: &mut Office, streams: &Streams) -> anyhow::Result<Vec<Strike>> {
    let (mut chance, mut strikes, mut kills) = (Chance(flags.seed), Vec::new(), 0);
    let absence = Duration::from_millis(flags.absence_ms);
    let bar = Progress::new(&flags.fault.unwrap_or(Fault::Kill).name());
    while kills < flags.kills {
        office.wait_until_whole()?;
        thread::sleep(Duration::from_millis(chance.below(CALM_MS)));
        let fault = flags.fault.unwrap_or_else(|| Fault::choose(&mut chance));
        let victim = chance.below(office.machines.len() as u64) as usize;
        if fault == Fault::Slow {
            office.wait_for_company(office.machines[victim].stage);
        }
        let so_far = streams.tokens();
        strikes.push(strike(office, victim, fault, absence)?);
        streams.wait_for_all(&so_far);
        kills += u32::from(fault == flags.fault.unwrap_or(Fault::Kill));
        bar.set(kills.into(), flags.kills.into());
    }
    office.wait_until_whole()?;
    Ok(strikes)
}

/// Does something to a machine, watches how long nobody notices, and makes it well again.
fn strike(office: &mut Office, victim: usize, fault: Fault, absence: Duration) -> anyhow::Result<Strike> {
    let stage = office.machines[victim].stage;
    let before = office.status(stage);
    let computed = before.node.as_ref() == Some(&office.machines[victim].node);
    let at = Instant::now();
    office.machines[victim].suffer(fault)?;
    let is_noticeable = computed && fault.is_noticeable(absence);
    let noticed = match (computed, is_noticeable) {
        (true, true) => office.wait_for_loss(&before, stage, fault.noticed_within()),
        (true, false) => office.wait_for_loss(&before, stage, absence),
        (false, _) => None,
    };
    if !matches!(fault, Fault::Kill | Fault::Cut) {
        thread::sleep(absence.saturating_sub(at.elapsed()));
    }
    office.machines[victim].recover(fault)?;
    Ok(Strike { fault, stage, computed, at, noticed, unnoticed: is_noticeable && noticed.is_none() })
}
