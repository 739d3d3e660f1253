//! `cascadia bench`.

use std::time::Instant;

use cascadia_engine::Engine;
use cascadia_eval::{SpeedPlan, SpeedRun, Spread, measure_speed};
use serde_json::{Value, json};

use crate::flags::BenchFlags;
use crate::machine::open_options;
use crate::output::{print, print_json};
use crate::progress::Progress;
use crate::source::Located;

/// Measures prefill and decode speed at each depth.
pub(crate) fn bench(flags: &BenchFlags) -> anyhow::Result<()> {
    let plan = SpeedPlan {
        prompt: flags.prompt as usize,
        generate: flags.generate as usize,
        depths: flags.depth.iter().map(|&depth| depth as usize).collect(),
        repeat: flags.repeat as usize,
    };
    let context = u32::try_from(plan.context())?;
    let options = open_options(Some(context), flags.threads);
    let threads = options.pool.threads();
    let files = Located::find(&flags.model)?.files()?;
    let begin = Instant::now();
    let mut engine = Engine::from_files(files, &options)?;
    let load_ms = begin.elapsed().as_secs_f64() * 1e3;
    let bar = Progress::new("measurements");
    let runs = measure_speed(&mut engine.session, &plan, |done, total| bar.set(done as u64, total as u64))?;
    drop(bar);
    if flags.json {
        let object = json!({
            "model": flags.model,
            "threads": threads,
            "prompt": flags.prompt,
            "gen": flags.generate,
            "repeat": flags.repeat,
            "load_ms": load_ms,
            "runs": runs.iter().map(run_object).collect::<Vec<_>>(),
        });
        print_json(&object)?;
    } else {
        print(&table(&runs, threads, load_ms))?;
    }
    Ok(())
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

fn table(runs: &[SpeedRun], threads: usize, load_ms: f64) -> String {
    let mut text = format!("threads {threads}, loaded in {load_ms:.0} ms\n");
    text.push_str("   depth   prefill tok/s (min … max)    decode tok/s (min … max)   first token ms   memory MB\n");
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
