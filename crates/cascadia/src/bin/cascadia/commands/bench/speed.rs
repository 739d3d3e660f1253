//! `cascadia bench`: prefill and decode speed of a model.

use std::collections::BTreeMap;
use std::time::Instant;

use cascadia_engine::Engine;
use cascadia_eval::{SpeedRun, Spread, measure_speed};
use cascadia_kernels::OpsSlot;
use serde_json::{Value, json};

use super::{model_name, open_options, source, speed_plan};
use crate::flags::BenchFlags;
use crate::output::{print, print_json};
use crate::progress::Progress;

/// Measures prefill and decode speed at each depth.
pub(crate) fn speed(flags: &BenchFlags) -> anyhow::Result<()> {
    let plan = speed_plan(flags);
    let options = open_options(flags, plan.context())?;
    let threads = options.pool.threads();
    let source = source(flags)?;
    let begin = Instant::now();
    let mut session = Engine::from_files(source.files()?, &options)?.into_session();
    let load_ms = begin.elapsed().as_secs_f64() * 1e3;
    session.feed(&[0])?;
    let first_token_ms = begin.elapsed().as_secs_f64() * 1e3;
    let bar = Progress::new("measurements");
    let runs = measure_speed(&mut session, &plan, |done, total| bar.set(done as u64, total as u64))?;
    drop(bar);
    if flags.json {
        let object = json!({
            "model": model_name(flags),
            "threads": threads,
            "kernels": kernels(&options.ops),
            "activations": options.activations.name(),
            "kv": options.kv.describe(session.spec()),
            "prompt": flags.prompt,
            "gen": flags.generate,
            "repeat": flags.repeat,
            "load_ms": load_ms,
            "load_to_first_token_ms": first_token_ms,
            "runs": runs.iter().map(run_object).collect::<Vec<_>>(),
        });
        print_json(&object)?;
    } else {
        print(&format!(
            "threads {threads}, loaded in {load_ms:.0} ms, first token after {first_token_ms:.0} ms\n{}",
            table(&runs)
        ))?;
    }
    Ok(())
}

/// The chosen way to read each kind of matrix, by kind.
fn kernels(ops: &OpsSlot) -> Value {
    let readings = ops.readings();
    let chosen = readings.chosen().map(|(kind, timed)| {
        (kind.to_string(), json!({"reading": timed.reading.to_string(), "gb_s": timed.speed / 1e9}))
    });
    json!({"instructions": ops.current().name(), "readings": chosen.collect::<BTreeMap<_, _>>()})
}

fn run_object(run: &SpeedRun) -> Value {
    let spread = |spread: &Spread| json!({"median": spread.median, "min": spread.min, "max": spread.max});
    json!({
        "depth": run.depth,
        "prefill_tok_s": spread(&run.prefill_tok_s),
        "decode_tok_s": spread(&run.decode_tok_s),
        "ttft_ms": run.ttft_ms,
        "rss_bytes": run.rss_bytes,
    })
}

fn table(runs: &[SpeedRun]) -> String {
    let mut text =
        String::from("   depth   prefill tok/s (min … max)    decode tok/s (min … max)   first token ms   memory MB\n");
    for run in runs {
        let spread = |spread: &Spread| format!("{:9.1} ({:.1} … {:.1})", spread.median, spread.min, spread.max);
        let memory = run.rss_bytes.map_or("unknown".into(), |bytes| format!("{:.0}", bytes as f64 / 1e6));
        text.push_str(&format!(
            "{:8} {:>27} {:>27} {:>16.1} {:>11}\n",
            run.depth,
            spread(&run.prefill_tok_s),
            spread(&run.decode_tok_s),
            run.ttft_ms,
            memory
        ));
    }
    text
}
