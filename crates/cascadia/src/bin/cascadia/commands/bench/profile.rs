//! `cascadia bench --profile`: where the time goes, beside what the machine could do.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use cascadia_engine::Engine;
use cascadia_eval::{Ceilings, PhaseProfile, largest_part, profile_speed, write_trace};
use cascadia_model::{Place, Profile, Work};
use serde_json::{Value, json};

use super::machine;
use super::{files, model_name, open_options, speed_plan};
use crate::flags::BenchFlags;
use crate::output::{print, print_json, remark};

/// Operations that a trace holds at most; a step has about a dozen per layer.
const TRACE_EVENTS: usize = 1 << 20;

/// Runs each phase once and prints its operations.
pub(crate) fn profile(flags: &BenchFlags) -> anyhow::Result<()> {
    let plan = speed_plan(flags);
    let profile = Arc::new(Profile::new(if flags.trace.is_some() { TRACE_EVENTS } else { 0 }));
    let mut options = open_options(flags, plan.context())?;
    options.profile = Arc::clone(&profile);
    let files = files(flags)?;
    let ceilings = Ceilings::measure(options.pool.threads(), largest_part(&files).as_ref(), |_, _| {});
    let mut session = Engine::from_files(files, &options)?.into_session();
    let phases = profile_speed(&mut session, &plan, &profile)?;
    if let Some(path) = &flags.trace {
        write(&profile, path).with_context(|| format!("cannot write the trace {}", path.display()))?;
    }
    if flags.json {
        print_json(&json!({
            "model": model_name(flags),
            "threads": options.pool.threads(),
            "machine": machine::object(&ceilings, None),
            "phases": phases.iter().map(object).collect::<Vec<_>>(),
        }))?;
    } else {
        phases.iter().try_for_each(|phase| print(&table(phase, &ceilings)))?;
    }
    Ok(())
}

fn write(profile: &Profile, path: &Path) -> anyhow::Result<()> {
    let events = profile.trace();
    if events.len() == TRACE_EVENTS {
        remark(&format!("the trace holds the first {TRACE_EVENTS} operations"));
    }
    let mut out = BufWriter::new(File::create(path)?);
    write_trace(&events, &mut out)?;
    Ok(out.flush()?)
}

fn object(phase: &PhaseProfile) -> Value {
    let row = |name: String, work: &Work| {
        json!({
            "name": name,
            "calls": work.calls,
            "ms": work.nanoseconds as f64 / 1e6,
            "bytes": work.bytes,
            "operations": work.operations,
        })
    };
    json!({
        "phase": phase.phase,
        "depth": phase.depth,
        "tokens": phase.tokens,
        "total": row("total".into(), &phase.total()),
        "kinds": phase.by_kind().iter().map(|(kind, work)| row(kind.name().into(), work)).collect::<Vec<_>>(),
        "places": phase.by_place().iter().map(|(place, work)| row(place_name(*place), work)).collect::<Vec<_>>(),
    })
}

fn place_name(place: Place) -> String {
    match place {
        Place::Ends => "ends".into(),
        Place::Layer(layer) => format!("layer {layer}"),
    }
}

fn table(phase: &PhaseProfile, ceilings: &Ceilings) -> String {
    let (total, best) = (phase.total(), ceilings.all_threads());
    let speed = phase.tokens as f64 / (total.nanoseconds as f64 / 1e9);
    let (read, int8) = (best.read / 1e9, best.int8 / 1e9);
    let (phase_name, tokens, depth) = (phase.phase, phase.tokens, phase.depth);
    let mut text = format!(
        "{phase_name} of {tokens} tokens at depth {depth}: {speed:.1} tok/s; {} threads read {read:.1} GB/s and \
         reach {int8:.0} Gop/s in int8 at best\n{:24} {:>9} {:>7} {:>9} {:>8} {:>7} {:>9} {:>7} {:>8}\n",
        best.threads, "", "ms", "share", "MB", "GB/s", "of read", "Gop/s", "of int8", "calls",
    );
    let mut line = |name: &str, work: &Work| {
        let seconds = (work.nanoseconds as f64 / 1e9).max(1e-12);
        let (rate, operations) = (work.bytes as f64 / seconds, work.operations as f64 / seconds);
        text.push_str(&format!(
            "{name:24} {:9.2} {:6.1}% {:9.1} {:8.2} {:6.0}% {:9.1} {:6.1}% {:8}\n",
            seconds * 1e3,
            100.0 * work.nanoseconds as f64 / total.nanoseconds.max(1) as f64,
            work.bytes as f64 / 1e6,
            rate / 1e9,
            100.0 * rate / best.read,
            operations / 1e9,
            100.0 * operations / best.int8,
            work.calls,
        ));
    };
    phase.by_kind().iter().for_each(|(kind, work)| line(kind.name(), work));
    line("total", &total);
    phase.by_place().iter().for_each(|(place, work)| line(&place_name(*place), work));
    text.push('\n');
    text
}
