//! Where the time of prefill and decode goes, as numbers and as a trace for a browser.

use std::io::{self, Write};

use cascadia_engine::Session;
use cascadia_model::{Kind, Place, Profile, TraceEvent, Work};

use crate::speed::synthetic_tokens;
use crate::{EvalError, SpeedPlan};

/// What the operations of one phase took.
#[derive(Clone, Debug)]
pub struct PhaseProfile {
    /// Prefill or decode.
    pub phase: &'static str,
    /// Tokens in the context before it.
    pub depth: usize,
    /// Tokens it computed.
    pub tokens: usize,
    /// By place and kind.
    pub rows: Vec<(Place, Kind, Work)>,
}

impl PhaseProfile {
    /// Everything together.
    pub fn total(&self) -> Work {
        sum(self.rows.iter().map(|row| row.2))
    }

    /// By kind, in the order of a step; kinds that did not run are left out.
    pub fn by_kind(&self) -> Vec<(Kind, Work)> {
        let of = |kind: Kind| sum(self.rows.iter().filter(|row| row.1 == kind).map(|row| row.2));
        Kind::ALL.iter().map(|&kind| (kind, of(kind))).filter(|(_, work)| work.calls > 0).collect()
    }

    /// By place, the ends of the model first.
    pub fn by_place(&self) -> Vec<(Place, Work)> {
        let mut places: Vec<(Place, Work)> = Vec::new();
        for &(place, _, work) in &self.rows {
            match places.last_mut() {
                Some((last, sum)) if *last == place => *sum = sum.plus(work),
                _ => places.push((place, work)),
            }
        }
        places
    }
}

/// Runs prefill and decode once per depth of the plan and returns what each phase took. `profile` must be the one
/// that the session's model was opened with.
pub fn profile_speed(
    session: &mut Session,
    plan: &SpeedPlan,
    profile: &Profile,
) -> Result<Vec<PhaseProfile>, EvalError> {
    let tokens = synthetic_tokens(session.spec().vocabulary, plan.context());
    session.truncate(0);
    session.feed(&tokens[..1])?;
    let mut phases = Vec::new();
    for &depth in &plan.depths {
        session.truncate(0);
        if depth > 0 {
            session.append(&tokens[..depth])?;
        }
        profile.take();
        session.feed(&tokens[depth..depth + plan.prompt])?;
        phases.push(PhaseProfile { phase: "prefill", depth, tokens: plan.prompt, rows: profile.take() });
        session.truncate(depth);
        for token in tokens[depth..depth + plan.generate].chunks(1) {
            session.feed(token)?;
        }
        phases.push(PhaseProfile { phase: "decode", depth, tokens: plan.generate, rows: profile.take() });
    }
    Ok(phases)
}

/// Writes operations in the trace format that Chrome (`chrome://tracing`) and Perfetto read.
pub fn write_trace(events: &[TraceEvent], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "[")?;
    for (index, event) in events.iter().enumerate() {
        let Work { nanoseconds, bytes, operations, .. } = event.work;
        let comma = if index + 1 < events.len() { "," } else { "" };
        let place = match event.place {
            Place::Ends => "ends".to_owned(),
            Place::Layer(layer) => format!("layer {layer}"),
        };
        writeln!(
            out,
            r#"{{"name":"{}","cat":"{place}","ph":"X","ts":{:.3},"dur":{:.3},"pid":1,"tid":1,"args":{{"place":"{place}","bytes":{bytes},"operations":{operations}}}}}{comma}"#,
            event.kind.name(),
            event.begin_nanoseconds as f64 / 1e3,
            nanoseconds as f64 / 1e3,
        )?;
    }
    writeln!(out, "]")
}

fn sum(works: impl Iterator<Item = Work>) -> Work {
    works.fold(Work::default(), Work::plus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(nanoseconds: u64, bytes: u64) -> Work {
        Work { calls: 1, nanoseconds, bytes, operations: 2 * bytes }
    }

    #[test]
    fn sums_by_kind_and_place() {
        let layer = Place::Layer;
        let rows = vec![
            (Place::Ends, Kind::Output, work(5, 50)),
            (layer(0), Kind::Norm, work(1, 0)),
            (layer(0), Kind::Attention, work(2, 10)),
            (layer(1), Kind::Norm, work(3, 0)),
        ];
        let phase = PhaseProfile { phase: "decode", depth: 0, tokens: 1, rows };
        assert_eq!((phase.total().nanoseconds, phase.total().bytes, phase.total().calls), (11, 60, 4));
        let kinds: Vec<_> = phase.by_kind().into_iter().map(|(kind, work)| (kind, work.nanoseconds)).collect();
        assert_eq!(kinds, [(Kind::Norm, 4), (Kind::Attention, 2), (Kind::Output, 5)]);
        let places: Vec<_> = phase.by_place().into_iter().map(|(place, work)| (place, work.nanoseconds)).collect();
        assert_eq!(places, [(Place::Ends, 5), (layer(0), 3), (layer(1), 3)]);
    }

    #[test]
    fn a_trace_is_a_list_of_complete_events() {
        let event =
            TraceEvent { place: Place::Layer(3), kind: Kind::Rope, begin_nanoseconds: 1500, work: work(250, 8) };
        let mut out = Vec::new();
        write_trace(&[event, event], &mut out).unwrap();
        let line = r#"{"name":"rope","cat":"layer 3","ph":"X","ts":1.500,"dur":0.250,"pid":1,"tid":1,"args":{"place":"layer 3","bytes":8,"operations":16}}"#;
        assert_eq!(String::from_utf8(out).unwrap(), format!("[\n{line},\n{line}\n]\n"));
    }
}
