//! `cascadia bench chaos`: a real fleet of processes on this machine, answers under way, and workers that are killed.

mod fault;
mod relay;
mod report;
mod streams;
mod test_fleet;
mod worker;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;

use self::fault::{InjectedFault, SeededRandom};
use self::report::Report;
use self::streams::Streams;
use self::test_fleet::TestFleet;
use crate::flags::{ChaosFlags, Fault};
use crate::output::{print, print_json};
use crate::progress::Progress;

/// The longest time between a fleet that is whole and the next fault.
const MOST_PAUSE_MS: u64 = 400;

/// Kills workers of a fleet while it answers, and prints what became of the answers.
pub(crate) fn chaos(flags: &ChaosFlags) -> anyhow::Result<()> {
    let mut fleet = TestFleet::open(flags)?;
    let streams = Streams::new(flags, &fleet)?;
    let service = fleet.serve(streams.options())?;
    let (handle, begin, over) = (service.handle(), Instant::now(), AtomicBool::new(false));
    let (injected, logs) = thread::scope(|scope| {
        let stream = |number| {
            scope.spawn({
                let (handle, streams, over) = (handle.clone(), &streams, &over);
                move || streams.listen(&handle, number as usize, over)
            })
        };
        let listening: Vec<_> = (0..flags.streams).map(stream).collect();
        let injected = inject_all(flags, &mut fleet, &streams);
        over.store(true, Ordering::Relaxed);
        let logs: Vec<_> = listening.into_iter().filter_map(|stream| stream.join().ok()).collect();
        (injected, logs)
    });
    ensure!(logs.len() == flags.streams as usize, "a stream broke off; this is a bug worth reporting");
    let report = Report::of(flags, &injected?, (logs, fleet.late()), begin);
    if flags.json {
        print_json(&report.object())?;
    } else {
        print(&report.text())?;
    }
    service.drain();
    ensure!(report.is_clean(), "answers were dropped or changed, or a lost or slow machine went unnoticed");
    Ok(())
}

/// Injects one fault after the other, each when the fleet is whole and all answers continue.
fn inject_all(flags: &ChaosFlags, fleet: &mut TestFleet, streams: &Streams) -> anyhow::Result<Vec<InjectedFault>> {
    let (mut random, mut injected, mut kills) = (SeededRandom(flags.seed), Vec::new(), 0);
    let absence = Duration::from_millis(flags.absence_ms);
    let bar = Progress::new(&flags.fault.unwrap_or(Fault::Kill).name());
    while kills < flags.kills {
        fleet.wait_until_whole()?;
        thread::sleep(Duration::from_millis(random.below(MOST_PAUSE_MS)));
        let fault = flags.fault.unwrap_or_else(|| Fault::choose(&mut random));
        let target = random.below(fleet.workers.len() as u64) as usize;
        if fault == Fault::Slow {
            fleet.wait_for_lockstep(fleet.workers[target].stage);
        }
        let so_far = streams.tokens();
        injected.push(inject(fleet, target, fault, absence)?);
        streams.wait_for_all(&so_far);
        kills += u32::from(fault == flags.fault.unwrap_or(Fault::Kill));
        bar.set(kills.into(), flags.kills.into());
    }
    fleet.wait_until_whole()?;
    Ok(injected)
}

/// Injects a fault into a worker, measures how long it goes unnoticed, and repairs it.
fn inject(fleet: &mut TestFleet, target: usize, fault: Fault, absence: Duration) -> anyhow::Result<InjectedFault> {
    let stage = fleet.workers[target].stage;
    let before = fleet.status(stage);
    let computed = before.node.as_ref() == Some(&fleet.workers[target].node);
    let at = Instant::now();
    fleet.workers[target].inject(fault)?;
    let is_noticeable = computed && fault.is_noticeable(absence);
    let noticed = match (computed, is_noticeable) {
        (true, true) => fleet.wait_for_loss(&before, stage, fault.noticed_within()),
        (true, false) => fleet.wait_for_loss(&before, stage, absence),
        (false, _) => None,
    };
    if !matches!(fault, Fault::Kill | Fault::Cut) {
        thread::sleep(absence.saturating_sub(at.elapsed()));
    }
    fleet.workers[target].recover(fault)?;
    Ok(InjectedFault { fault, stage, computed, at, noticed, unnoticed: is_noticeable && noticed.is_none() })
}
